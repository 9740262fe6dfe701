"""One broker's view of the cluster: the controller's decisions, up to the last decision that reached this broker."""

from __future__ import annotations

from collections.abc import Mapping

from .controller import Registration
from .topics import PartitionKey, PartitionRegistration, Topic


class MetadataView:
    """A broker's copy of the metadata. Owner: the node."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.brokers: Mapping[int, Registration] = {}
        self.version: int = 0
        """Grows with each change of a topic."""
        self._names: dict[bytes, str] = {}

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def partition_state(self, key: PartitionKey) -> PartitionRegistration | None:
        """Return the state of a partition; None if this broker does not know the partition."""
        topic = self.topics.get(key[0])
        if topic is None or not 0 <= key[1] < len(topic.partitions):
            return None
        return topic.partitions[key[1]]

    def is_alive(self, node_id: int) -> bool:
        registration = self.brokers.get(node_id)
        return registration is not None and registration.alive

    def put(self, topic: Topic) -> None:
        self.version += 1
        self.topics[topic.name] = topic
        self._names[topic.topic_id] = topic.name

    def remove(self, topic: Topic) -> None:
        self.version += 1
        del self.topics[topic.name]
        self._names.pop(topic.topic_id, None)
