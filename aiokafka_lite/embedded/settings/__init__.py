"""The settings of brokers, topics, groups and other resources, their keys, and their listeners."""
