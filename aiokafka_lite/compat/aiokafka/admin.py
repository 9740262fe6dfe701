"""``AIOKafkaAdminClient`` on top of ``Admin``: its calls about topics, records and groups.

aiokafka returns the responses of the protocol. Here those of ``create_topics``, ``delete_topics`` and
``create_partitions`` have the one field that programs read; calls whose response has no such field raise
NotImplementedError and name the call of ``aiokafka_lite.Admin``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self, Unpack

from ... import admin as native
from ...errors import BrokerError, ErrorCode, KafkaError
from ...types import TopicPartition
from .errors import connecting, missing, translating
from .settings import ConnectionSettings, connection_settings, seconds
from .structs import OffsetAndMetadata


@dataclass
class NewTopic:
    """A topic to create: numbers of partitions and replicas, or ``{partition: [broker, ...]}`` and -1 for both."""

    name: str
    num_partitions: int
    replication_factor: int
    replica_assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    topic_configs: Mapping[str, str] = field(default_factory=dict)


@dataclass
class NewPartitions:
    """The new total number of partitions of a topic, and the replicas of each new partition."""

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None


@dataclass
class RecordsToDelete:
    """Delete the records before this offset; -1 means all."""

    before_offset: int


class TopicErrors(NamedTuple):
    """``topic_errors`` has a topic, an error code (0 is success) and a text or None for each topic."""

    topic_errors: list[tuple[str, int, str | None]]

    def to_object(self) -> dict[str, Any]:
        """The errors as dictionaries with ``topic``, ``error_code`` and ``error_message``."""
        names = ("topic", "error_code", "error_message")
        return {"topic_errors": [dict(zip(names, each)) for each in self.topic_errors]}


class TopicErrorCodes(NamedTuple):
    """``topic_error_codes`` has a topic and an error code (0 is success) for each topic."""

    topic_error_codes: list[tuple[str, int]]

    def to_object(self) -> dict[str, Any]:
        """The codes as dictionaries with ``topic`` and ``error_code``."""
        return {"topic_error_codes": [dict(zip(("topic", "error_code"), each)) for each in self.topic_error_codes]}


class AIOKafkaAdminClient:
    """Has the interface of aiokafka's class. Raises ValueError for wrong settings, TypeError for unknown ones."""

    def __init__(self, **settings: Unpack[ConnectionSettings]) -> None:
        with translating():
            self._admin = native.Admin(**connection_settings(settings))

    async def start(self) -> None:
        """Connect. Raises KafkaConnectionError if no broker answers within ``request_timeout_ms``."""
        with connecting():
            await self._admin.start()

    async def close(self) -> None:
        with translating():
            await self._admin.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # Topics.

    async def create_topics(
        self, new_topics: Iterable[NewTopic], timeout_ms: int | None = None, validate_only: bool = False
    ) -> TopicErrors:
        """Create topics. The response has an error code for each; nothing is raised for them."""
        topics = [_native_topic(each) for each in new_topics]
        with translating():
            results = await self._admin.topics.create(
                topics, validate_only=validate_only, timeout=seconds(timeout_ms)
            )
        return TopicErrors([(topic.name, *_outcome(results.failed.get(topic.name))) for topic in topics])

    async def delete_topics(self, topics: Iterable[str], timeout_ms: int | None = None) -> TopicErrorCodes:
        """Delete topics. The response has an error code for each; nothing is raised for them."""
        names = list(topics)
        with translating():
            results = await self._admin.topics.delete(names, timeout=seconds(timeout_ms))
        return TopicErrorCodes([(name, _outcome(results.failed.get(name))[0]) for name in names])

    async def create_partitions(
        self,
        topic_partitions: Mapping[str, NewPartitions],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> TopicErrors:
        """Add partitions to topics. Raises the error of the first topic that has one."""
        totals = {topic: each.total_count for topic, each in topic_partitions.items()}
        assignments = {
            topic: each.new_assignments for topic, each in topic_partitions.items() if each.new_assignments is not None
        }
        with translating():
            results = await self._admin.topics.add_partitions(
                totals, assignments=assignments, validate_only=validate_only, timeout=seconds(timeout_ms)
            )
            results.raise_for_errors()
        return TopicErrors([(topic, 0, None) for topic in totals])

    async def list_topics(self) -> list[str]:
        """The names of all topics."""
        with translating():
            return [each.name for each in await self._admin.topics.list(internal=True)]

    async def describe_topics(self, topics: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """The partitions of these topics, or of all, with leaders and replicas."""
        names = await self.list_topics() if topics is None else list(topics)
        with translating():
            results = await self._admin.topics.describe(names)
        return [_described(name, results.done.get(name), results.failed.get(name)) for name in names]

    async def describe_cluster(self) -> dict[str, Any]:
        """The brokers, the controller's id and the cluster's id."""
        with translating():
            found = await self._admin.cluster.describe()
        return {
            "brokers": [
                {"node_id": broker.node_id, "host": broker.host, "port": broker.port, "rack": broker.rack}
                for broker in found.brokers
            ],
            "cluster_id": found.cluster_id,
            "controller_id": found.controller,
        }

    async def delete_records(
        self, records_to_delete: Mapping[TopicPartition, RecordsToDelete], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset. The result is the new first offset of each partition."""
        before = {
            partition: None if each.before_offset == -1 else each.before_offset
            for partition, each in records_to_delete.items()
        }
        with translating():
            results = await self._admin.records.delete(before, timeout=seconds(timeout_ms))
            return dict(results.raise_for_errors())

    # Groups.

    async def list_consumer_groups(self, broker_ids: Sequence[int] | None = None) -> list[tuple[str, str]]:
        """Name and protocol type of each group. Raises NotImplementedError for ``broker_ids``."""
        if broker_ids is not None:
            raise NotImplementedError("list_consumer_groups() asks all brokers; remove broker_ids")
        with translating():
            return [(each.group_id, each.protocol_type) for each in await self._admin.groups.list()]

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: Sequence[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group; -1 for a partition in ``partitions`` that has none."""
        with translating():
            found = (await self._admin.groups.offsets(group_id))[group_id]
        made = {partition: OffsetAndMetadata(each.offset, each.metadata) for partition, each in found.items()}
        if partitions is None:
            return made
        return {partition: made.get(partition, OffsetAndMetadata(-1, "")) for partition in partitions}

    # Calls whose responses are those of the protocol.

    describe_configs = missing("aiokafka_lite.Admin has admin.configs.describe()")
    alter_configs = missing("aiokafka_lite.Admin has admin.configs.alter()")
    describe_consumer_groups = missing("aiokafka_lite.Admin has admin.groups.describe()")
    find_coordinator = missing("aiokafka_lite.Admin has admin.groups.describe(), whose result names the coordinator")


def _native_topic(topic: NewTopic) -> native.NewTopic:
    assignments = topic.replica_assignments
    if assignments:
        replicas = [list(assignments[partition]) for partition in sorted(assignments)]
        return native.NewTopic(topic.name, assignments=replicas, configs=topic.topic_configs or {})
    return native.NewTopic(
        topic.name,
        None if topic.num_partitions == -1 else topic.num_partitions,
        None if topic.replication_factor == -1 else topic.replication_factor,
        configs=topic.topic_configs or {},
    )


def _outcome(error: KafkaError | None) -> tuple[int, str | None]:
    if error is None:
        return 0, None
    code = error.code if isinstance(error, BrokerError) else ErrorCode.UNKNOWN_SERVER_ERROR
    return int(code), str(error)


def _described(name: str, topic: native.TopicDescription | None, error: KafkaError | None) -> dict[str, Any]:
    return {
        "error_code": _outcome(error)[0],
        "topic": name,
        "is_internal": topic is not None and topic.is_internal,
        "partitions": [
            {
                "error_code": 0,
                "partition": each.partition,
                "leader": -1 if each.leader is None else each.leader,
                "replicas": list(each.replicas),
                "isr": list(each.in_sync),
                "offline_replicas": list(each.offline),
            }
            for each in (() if topic is None else topic.partitions)
        ],
    }
