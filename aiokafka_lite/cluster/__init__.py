"""The client's view of the cluster, and the routing of requests to brokers."""
