"""For users' own tests: pytest fixtures for the embedded cluster, and for Apache Kafka in a container."""
