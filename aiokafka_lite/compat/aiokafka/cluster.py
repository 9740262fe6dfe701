"""``ClusterMetadata``: the brokers and topics that a client knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ... import admin as native
from ...types import TopicPartition
from .structs import BrokerMetadata, PartitionMetadata

if TYPE_CHECKING:
    from ...metrics import BrokerTraffic


class ClusterMetadata:
    """The cluster at one moment. Empty without arguments.

    ``_brokers`` and ``_partitions`` have aiokafka's names, because programs read them.
    """

    def __init__(self, brokers: Iterable[BrokerMetadata] = (), controller: int | None = None) -> None:
        self._brokers = {broker.nodeId: broker for broker in brokers}
        self._partitions: dict[str, dict[int, PartitionMetadata]] = {}
        self.controller: BrokerMetadata | None = None if controller is None else self._brokers.get(controller)
        self.internal_topics: set[str] = set()
        self.unauthorized_topics: set[str] = set()

    def add(self, topic: native.TopicDescription) -> None:
        if topic.is_internal:
            self.internal_topics.add(topic.name)
        numbers = self._partitions.setdefault(topic.name, {})
        for partition in topic.partitions:
            leader = -1 if partition.leader is None else partition.leader
            numbers[partition.partition] = PartitionMetadata(
                topic.name, partition.partition, leader, list(partition.replicas), list(partition.in_sync), None
            )

    def add_numbers(self, topic: str, numbers: Iterable[int]) -> None:
        """Add partitions of a topic whose leaders are not known."""
        self._partitions[topic] = {number: PartitionMetadata(topic, number, None, [], [], None) for number in numbers}

    def brokers(self) -> set[BrokerMetadata]:
        return set(self._brokers.values())

    def broker_metadata(self, broker_id: int | str) -> BrokerMetadata | None:
        return self._brokers.get(broker_id)

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        return self._partitions.keys() - (self.internal_topics if exclude_internal_topics else set())

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the numbers of the partitions; None for an unknown topic."""
        return set(self._partitions[topic]) if topic in self._partitions else None

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions with a leader, or with an unknown leader; None for an unknown topic."""
        if topic not in self._partitions:
            return None
        return {number for number, partition in self._partitions[topic].items() if partition.leader != -1}

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        """Return the broker id of the leader: -1 if there is none, None if it is not known."""
        topic, number = partition
        metadata = self._partitions.get(topic, {}).get(number)
        return None if metadata is None else metadata.leader

    def partitions_for_broker(self, broker_id: int) -> set[TopicPartition] | None:
        """Return the partitions that this broker leads; None if there are none."""
        led = {
            TopicPartition(topic, number)
            for topic, partitions in self._partitions.items()
            for number, metadata in partitions.items()
            if metadata.leader == broker_id
        }
        return led or None

    def __str__(self) -> str:
        return f"ClusterMetadata(brokers: {len(self._brokers)}, topics: {len(self._partitions)})"


def known(traffic: Mapping[int, BrokerTraffic], topics: Mapping[str, Iterable[int]]) -> ClusterMetadata:
    """Return the cluster in the client's metadata: the brokers, and the partitions of its topics. Sends no request."""
    brokers = []
    for node_id, broker_traffic in traffic.items():
        if node_id >= 0:  # a bootstrap address has a negative id
            host, _, port = broker_traffic.address.rpartition(":")
            brokers.append(BrokerMetadata(node_id, host.strip("[]"), int(port), None))
    cluster = ClusterMetadata(brokers)
    for topic, numbers in topics.items():
        cluster.add_numbers(topic, numbers)
    return cluster


async def fetch(admin: native.Admin) -> ClusterMetadata:
    """Fetch the cluster with all its topics. Raises KafkaError of aiokafka_lite, not of aiokafka."""
    description = await admin.cluster.describe()
    controller = None if description.controller is None else description.controller.node_id
    cluster = ClusterMetadata((BrokerMetadata(*node) for node in description.brokers), controller)
    async for page in admin.topics.pages():
        for topic in page:
            cluster.add(topic)
    return cluster
