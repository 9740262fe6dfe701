"""The controller's side of the cluster: brokers, topics, features, leaders, and each broker's view of them."""
