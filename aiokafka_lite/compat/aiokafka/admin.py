"""``AIOKafkaAdminClient`` on top of ``Admin``: its calls about topics, records, settings and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from types import TracebackType
from typing import Any, Self, Unpack

from ... import admin as native
from ...errors import BrokerError, ErrorCode, KafkaError
from ...group.payloads import write_assignment, write_subscription
from ...types import TopicPartition
from .admin_values import (
    AlteredConfigs,
    ConfigResource,
    ConfigResourceType,
    DescribedConfigs,
    DescribedGroups,
    Entry,
    NewPartitions,
    NewTopic,
    RecordsToDelete,
    TopicErrorCodes,
    TopicErrors,
)
from .client import ClientOwner
from .cluster import ClusterMetadata, known
from .errors import connecting, translated, translating
from .settings import ConnectionSettings, connection_settings, listing_settings, naming, seconds
from .structs import OffsetAndMetadata

__all__ = [
    "AIOKafkaAdminClient",
    "ConfigResource",
    "ConfigResourceType",
    "NewPartitions",
    "NewTopic",
    "RecordsToDelete",
]


class AIOKafkaAdminClient(ClientOwner):
    """Has the interface of aiokafka's class.

    Raises ValueError for wrong settings, TypeError for unknown ones and for times that are not numbers.
    """

    @listing_settings
    def __init__(self, **settings: Unpack[ConnectionSettings]) -> None:
        self._given = settings
        self._admin = self._create()
        self._is_used = False  # whether a start() of this client has begun
        self._started = False
        self._closed = False
        """Whether ``close()`` was called. ``_started`` and ``_closed`` have aiokafka's names: programs read them."""

    def _create(self) -> native.Admin:
        with naming(self._given):
            return native.Admin(**connection_settings(self._given))

    async def start(self) -> None:
        """Connect. Raises KafkaConnectionError if no broker answers within ``request_timeout_ms``."""
        is_first = not self._is_used
        self._is_used = True
        try:
            with connecting():
                await self._admin.start()
        except BaseException:
            if is_first and not self._closed:
                self._admin = self._create()  # so that another start() is possible, and close() has no error to raise
                self._is_used = False
            raise
        self._started = True

    async def close(self) -> None:
        self._closed = True
        try:
            with translating():
                await self._admin.close()
        finally:
            await self._close_client()

    def _known_cluster(self) -> ClusterMetadata:
        return known(self._admin.traffic(), {})

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
        """Create topics. The response has an error code for each topic; a failed topic raises no exception."""
        topics = [_native_topic(new_topic) for new_topic in new_topics]
        with translating():
            results = await self._admin.topics.create(topics, validate_only=validate_only, timeout=_timeout(timeout_ms))
        return TopicErrors([(topic.name, *_outcome(results.failed.get(topic.name))) for topic in topics])

    async def delete_topics(self, topics: Iterable[str], timeout_ms: int | None = None) -> TopicErrorCodes:
        """Delete topics. The response has an error code for each topic; a failed topic raises no exception."""
        names = list(topics)
        with translating():
            results = await self._admin.topics.delete(names, timeout=_timeout(timeout_ms))
        return TopicErrorCodes([(name, _outcome(results.failed.get(name))[0]) for name in names])

    async def create_partitions(
        self,
        topic_partitions: Mapping[str, NewPartitions],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> TopicErrors:
        """Add partitions to topics. Raises the error of the first topic that failed."""
        totals = {topic: new_partitions.total_count for topic, new_partitions in topic_partitions.items()}
        assignments = {
            topic: new_partitions.new_assignments
            for topic, new_partitions in topic_partitions.items()
            if new_partitions.new_assignments is not None
        }
        with translating():
            results = await self._admin.topics.add_partitions(
                totals, assignments=assignments, validate_only=validate_only, timeout=_timeout(timeout_ms)
            )
            results.raise_for_errors()
        return TopicErrors([(topic, 0, None) for topic in totals])

    async def list_topics(self) -> list[str]:
        """List the names of all topics."""
        with translating():
            return [topic.name for topic in await self._admin.topics.list(internal=True)]

    async def describe_topics(self, topics: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Describe these topics, or all: their partitions with leaders and replicas."""
        names = await self.list_topics() if topics is None else list(topics)
        with translating():
            results = await self._admin.topics.describe(names)
        return [_described(name, results.done.get(name), results.failed.get(name)) for name in names]

    async def describe_cluster(self) -> dict[str, Any]:
        """Describe the cluster: its brokers, the controller's id, its id."""
        with translating():
            cluster = await self._admin.cluster.describe()
        return {
            "throttle_time_ms": 0,
            "brokers": [
                {"node_id": broker.node_id, "host": broker.host, "port": broker.port, "rack": broker.rack}
                for broker in cluster.brokers
            ],
            "cluster_id": cluster.cluster_id,
            "controller_id": -1 if cluster.controller is None else cluster.controller.node_id,
        }

    async def delete_records(
        self, records_to_delete: Mapping[TopicPartition, RecordsToDelete], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset. The result is the new first offset of each partition."""
        before = {
            partition: None if deletion.before_offset == -1 else deletion.before_offset
            for partition, deletion in records_to_delete.items()
        }
        with translating():
            results = await self._admin.records.delete(before, timeout=_timeout(timeout_ms))
            return dict(results.raise_for_errors())

    # Groups.

    async def list_consumer_groups(self, broker_ids: Sequence[int] | None = None) -> list[tuple[str, str]]:
        """List name and protocol type of each group, or of the groups that these brokers coordinate."""
        with translating():
            protocol_types = {group.group_id: group.protocol_type for group in await self._admin.groups.list()}
            if broker_ids is None:
                return list(protocol_types.items())
            coordinators = (await self._admin.groups.coordinators(protocol_types)).raise_for_errors()
        return [(name, protocol_types[name]) for name, node in coordinators.items() if node.node_id in broker_ids]

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: Sequence[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """List the committed offsets of a group; -1 for a partition in ``partitions`` that has none."""
        with translating():
            committed = (await self._admin.groups.offsets(group_id))[group_id]
        offsets = {
            partition: OffsetAndMetadata(offset.offset, offset.metadata) for partition, offset in committed.items()
        }
        if partitions is None:
            return offsets
        return {partition: offsets.get(partition, OffsetAndMetadata(-1, "")) for partition in partitions}

    async def describe_consumer_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> list[DescribedGroups]:
        """Describe groups and their members: a response for each coordinator. A group that does not exist is "Dead".

        ``group_coordinator_id`` has no effect. Raises NotImplementedError for ``include_authorized_operations``. If a
        group has an error, it raises that error.
        """
        if include_authorized_operations:
            raise NotImplementedError("include_authorized_operations is not supported; remove it")
        with translating():
            results = await self._admin.groups.describe(list(group_ids))
        by_coordinator: dict[int, list[Entry]] = {}
        for group_id, error in results.failed.items():
            if not isinstance(error, BrokerError) or error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise translated(error) from error
            by_coordinator.setdefault(-1, []).append((0, group_id, "Dead", "", "", []))
        for group in results.done.values():
            by_coordinator.setdefault(group.coordinator.node_id, []).append(_group(group))
        return list(map(DescribedGroups, by_coordinator.values()))

    async def find_coordinator(self, group_id: str, coordinator_type: int = 0) -> int:
        """Find the broker that coordinates a group, or with type 1 a transactional id."""
        calls = self._admin.transactions if coordinator_type == 1 else self._admin.groups
        with translating():
            return (await calls.coordinators(group_id)).raise_for_errors()[group_id].node_id

    # Settings.

    async def describe_configs(
        self, config_resources: Iterable[ConfigResource], include_synonyms: bool = False
    ) -> list[DescribedConfigs]:
        """Describe the settings of resources, all or those in ``configs``.

        Returns a response for each broker, and one for all topics. A failed resource has an error code and raises no
        exception. Raises ValueError if a resource is named twice.
        """
        resources = _native_resources(config_resources)
        names_of = {resource: list(config_resource.configs or ()) for resource, config_resource in resources.items()}
        names = list(dict.fromkeys(chain(*names_of.values()))) if all(names_of.values()) else None
        with translating():
            results = await self._admin.configs.describe(list(resources), names=names, synonyms=include_synonyms)
        of_brokers, of_topics = _by_kind(
            (*_result(resource, results), _settings(results.done.get(resource, {}), names_of[resource]))
            for resource in resources
        )
        responses = [DescribedConfigs([of_broker]) for of_broker in of_brokers]
        return [*responses, DescribedConfigs(of_topics)] if of_topics else responses

    async def alter_configs(self, config_resources: Iterable[ConfigResource]) -> list[AlteredConfigs]:
        """Set the settings of resources: a response for all topics, and one for each broker.

        As in aiokafka, the settings of a resource that are not in ``configs`` return to their defaults. A failed
        resource has an error code and raises no exception. Raises ValueError if a resource is named twice.
        """
        resources = _native_resources(config_resources)
        own_sources = (native.ConfigSource.TOPIC, native.ConfigSource.BROKER)
        with translating():
            present = await self._admin.configs.describe(list(resources), synonyms=False)
            changes: dict[native.ConfigResource, dict[str, str | None]] = {}
            for resource, settings in present.done.items():
                changes[resource] = {
                    setting.name: None for setting in settings.values() if setting.source in own_sources
                }
                changes[resource] |= resources[resource].configs or {}
            results = await self._admin.configs.alter(changes)
        of_brokers, of_topics = _by_kind(
            _result(resource, present if resource in present.failed else results) for resource in resources
        )
        return [AlteredConfigs(of_topics), *(AlteredConfigs([of_broker]) for of_broker in of_brokers)]


def _native_resources(config_resources: Iterable[ConfigResource]) -> dict[native.ConfigResource, ConfigResource]:
    """Return this client's names of the resources."""
    resources: dict[native.ConfigResource, ConfigResource] = {}
    for config_resource in config_resources:
        resource = native.ConfigResource(
            native.ConfigResourceType(config_resource.resource_type), str(config_resource.name)
        )
        if resource in resources:
            raise ValueError(f"config_resources must name {resource} once")
        resources[resource] = config_resource
    return resources


def _result(resource: native.ConfigResource, results: native.Results[native.ConfigResource, Any]) -> Entry:
    return *_outcome(results.failed.get(resource)), int(resource.type), resource.name


def _settings(settings: Mapping[str, native.Setting], names: Sequence[str]) -> list[Entry]:
    """Return the settings with these names, or all if there are no names."""
    return [
        (
            setting.name,
            setting.value,
            setting.read_only,
            int(setting.source),
            setting.sensitive,
            [(synonym.name, synonym.value, int(synonym.source)) for synonym in setting.synonyms],
        )
        for setting in settings.values()
        if not names or setting.name in names
    ]


def _by_kind(entries: Iterable[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Return the entries of brokers, and the entries of topics."""
    of_brokers: list[Entry] = []
    of_topics: list[Entry] = []
    for entry in entries:
        is_broker = entry[2] == ConfigResourceType.BROKER
        (of_brokers if is_broker else of_topics).append(entry)
    return of_brokers, of_topics


def _group(group: native.GroupDescription) -> Entry:
    members = [
        (
            member.member_id,
            member.client_id,
            member.host,
            write_subscription(member.topics or (), (), -1, None, None),
            write_assignment(member.assignment or ()),
        )
        for member in group.members
    ]
    return 0, group.group_id, group.state.value, group.protocol_type, group.strategy, members


def _timeout(timeout_ms: float | None) -> float | None:
    return None if timeout_ms is None else seconds("timeout_ms", timeout_ms)


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
                "partition": partition.partition,
                "leader": -1 if partition.leader is None else partition.leader,
                "replicas": list(partition.replicas),
                "isr": list(partition.in_sync),
                "offline_replicas": list(partition.offline),
            }
            for partition in (() if topic is None else topic.partitions)
        ],
    }
