"""What is known of the cluster, and how a request finds the broker that it is for."""
