"""The client's knowledge of the cluster, and the way of a request to the right broker."""
