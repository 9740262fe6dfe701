"""An asyncio-native Apache Kafka client."""
