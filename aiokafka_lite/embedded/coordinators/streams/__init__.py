"""Groups of Kafka Streams: topology, tasks, and members (KIP-1071)."""
