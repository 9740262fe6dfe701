"""Figures of a whole cluster for an exporter: lag of groups in records and seconds, ends of topics, replicas, brokers.

``ClusterWatch`` asks the brokers, ``figures`` returns what it found last. A cluster has more groups and topics than a
program has clients, so the number of series is bounded.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from re import Pattern

from ..admin import (
    Admin,
    ClusterDescription,
    ConfigResource,
    GroupLag,
    MemberDescription,
    OffsetSpec,
    Setting,
    TopicDescription,
)
from ..errors import KafkaError, UnsupportedVersion
from ..types import TopicPartition

MOST_SAMPLES = 120
"""The most ends of a partition that are kept, for the lag in seconds."""


@dataclass(frozen=True)
class Family:
    """A metric, with a value for each combination of labels."""

    name: str
    description: str
    labels: tuple[str, ...]
    samples: list[tuple[tuple[str, ...], float]] = field(default_factory=list)
    is_counter: bool = False

    def add(self, value: float, *labels: str) -> None:
        """Add a value with these values of the labels."""
        assert len(labels) == len(self.labels), "each label has a value"
        self.samples.append((labels, value))


class EndTimes:
    """Remembers when the end of a partition was at which offset, to say how old a record is without reading it."""

    def __init__(self) -> None:
        self._times: dict[TopicPartition, list[float]] = {}
        self._ends: dict[TopicPartition, list[int]] = {}

    def add(self, ends: Mapping[TopicPartition, int], now: float) -> None:
        """Add the ends of partitions at a time. A partition without an end in between keeps its past."""
        for partition, end in ends.items():
            past_ends, times = self._ends.setdefault(partition, []), self._times.setdefault(partition, [])
            if past_ends and end < past_ends[-1]:  # the topic was created again, or its log was truncated
                past_ends.clear()
                times.clear()
            if len(past_ends) >= 2 and past_ends[-2] == past_ends[-1] == end:
                times[-1] = now  # between the two, the end did not move
                continue
            past_ends.append(end)
            times.append(now)
            if len(past_ends) > MOST_SAMPLES:
                _thin(past_ends, times)

    def forget(self, topics: Collection[str]) -> None:
        """Forget the partitions of all topics but these."""
        for gone in [partition for partition in self._ends if partition.topic not in topics]:
            del self._ends[gone], self._times[gone]

    def age(self, partition: TopicPartition, offset: int, now: float) -> float | None:
        """Return the seconds since the record at an offset was written; 0 at the end, None for an unknown partition.

        A record that was there before the first sample is at least as old as the result.
        """
        ends, times = self._ends.get(partition), self._times.get(partition)
        if not ends or not times:
            return None
        if offset >= ends[-1]:
            return 0.0
        after = bisect_right(ends, offset)  # the first sample with the record
        if after == 0:
            return now - times[0]
        share = (offset - ends[after - 1]) / (ends[after] - ends[after - 1])
        return now - (times[after - 1] + share * (times[after] - times[after - 1]))


def _thin(ends: list[int], times: list[float]) -> None:
    """Drop old samples: the age of an older record need not be as exact.

    Those go that their neighbours tell best. The end of a quiet time stays: without it, the records after it would seem
    to be as old as the records before it.
    """

    def error(index: int) -> float:
        (before, end, after), (first, at, last) = ends[index - 1 : index + 2], times[index - 1 : index + 2]
        share = 0.0 if after == before else (end - before) / (after - before)
        return abs(at - first - share * (last - first))

    every_second = range(1, MOST_SAMPLES // 2, 2)  # so that both neighbours of each stay
    for index in sorted(sorted(every_second, key=error)[: len(every_second) // 2], reverse=True):
        del ends[index], times[index]


class ClusterWatch:
    """Looks at a cluster again and again. ``look`` is called by one task; ``figures`` may be read in any thread.

    ``groups`` and ``topics`` are patterns that whole names must match; ``internal`` includes Kafka's own topics. With
    ``by_partition``, offsets and lag have a series for each partition. ``topic_settings`` become labels of
    ``kafka_topic_info``. ``most_series`` bounds the series of each metric: those with the greatest values stay.
    """

    def __init__(
        self,
        admin: Admin,
        *,
        groups: Pattern[str],
        topics: Pattern[str],
        internal: bool = False,
        by_partition: bool = False,
        topic_settings: Sequence[str] = (),
        most_series: int = 10_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._admin = admin
        self._groups = groups
        self._topics = topics
        self._internal = internal
        self._by_partition = by_partition
        self._topic_settings = tuple(topic_settings)
        self._most_series = most_series
        self._clock = clock
        self._end_times = EndTimes()
        self._failures = 0
        self.figures: tuple[Family, ...] = self._about_itself(0.0, is_up=False, left_out=0)

    def __repr__(self) -> str:
        return f"<ClusterWatch families={len(self.figures)} failures={self._failures}>"

    async def look(self) -> KafkaError | None:
        """Ask the brokers, and replace the figures. Returns the error if the cluster did not answer.

        After an error, the figures have no values of the cluster: old values would look like a cluster that stands
        still. A group or topic that cannot be read is counted as a failure, and left out.
        """
        begin = time.monotonic()
        try:
            families = await self._look()
        except KafkaError as error:
            self._failures += 1
            self.figures = self._about_itself(time.monotonic() - begin, is_up=False, left_out=0)
            return error
        left_out = sum(self._bound(family) for family in families)
        self.figures = (*families, *self._about_itself(time.monotonic() - begin, is_up=True, left_out=left_out))
        return None

    async def _look(self) -> list[Family]:
        cluster = await self._admin.cluster.describe()
        listed = await self._admin.topics.list(internal=self._internal)
        names = [topic.name for topic in listed if self._topics.fullmatch(topic.name)]
        described = await self._admin.topics.describe(names)
        self._failures += len(described.failed)
        topics = list(described.done.values())
        ends = await self._offsets([item for topic in topics for item in _partitions_of(topic)], OffsetSpec.LATEST)
        starts = await self._offsets(ends, OffsetSpec.EARLIEST)
        settings = await self._settings(topics)
        now = self._clock()
        self._end_times.forget(set(names))
        self._end_times.add(ends, now)
        return [
            *_cluster_families(cluster),
            *_topic_families(topics, starts, ends),
            *(_partition_families(starts, ends) if self._by_partition else ()),
            self._topic_info(topics, settings),
            *await self._disk_families(topics),
            *self._group_families(await self._lags(), now),
            *await self._share_families(),
        ]

    async def _offsets(self, partitions: Iterable[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        answered = await self._admin.offsets.list(dict.fromkeys(partitions, spec))
        self._failures += len(answered.failed)
        return {partition: offset.offset for partition, offset in answered.done.items() if offset is not None}

    async def _settings(self, topics: Iterable[TopicDescription]) -> dict[str, Mapping[str, Setting]]:
        """Return the settings that become labels, by topic. A topic whose settings cannot be read has none."""
        if not self._topic_settings:
            return {}
        resources = [ConfigResource.topic(topic.name) for topic in topics]
        answered = await self._admin.configs.describe(resources, names=self._topic_settings, synonyms=False)
        self._failures += len(answered.failed)
        return {resource.name: settings for resource, settings in answered.done.items()}

    def _topic_info(self, topics: Iterable[TopicDescription], settings: Mapping[str, Mapping[str, Setting]]) -> Family:
        labels = [name.replace(".", "_") for name in self._topic_settings]
        info = Family("kafka_topic_info", "1, with settings as labels.", ("topic", "replication_factor", *labels))
        for topic in topics:
            factor = max((len(item.replicas) for item in topic.partitions), default=0)
            of_topic = settings.get(topic.name, {})
            values = [of_topic[name].value or "" if name in of_topic else "" for name in self._topic_settings]
            info.add(1, topic.name, str(factor), *values)
        return info

    async def _lags(self) -> Iterable[GroupLag]:
        listings = [
            group
            for group in await self._admin.groups.list()
            if group.type.value != "Share" and self._groups.fullmatch(group.group_id)
        ]
        answered = await self._admin.groups.lag([group.group_id for group in listings])
        self._failures += len(answered.failed)
        return answered.done.values()

    def _group_families(self, groups: Iterable[GroupLag], now: float) -> list[Family]:
        names = ("group", "topic", "partition") if self._by_partition else ("group", "topic")
        records = Family("kafka_group_lag_records", "Records after the committed offset.", names)
        seconds = Family(
            "kafka_group_lag_seconds",
            "Age of the oldest record after the committed offset, at least, from the ends of the partition over time.",
            names,
        )
        committed = Family("kafka_group_committed_offsets", "Sum of the committed offsets.", names)
        members = Family("kafka_group_members", "Members of a group.", ("group",))
        idle = Family("kafka_group_members_without_partitions", "Members without partitions or tasks.", ("group",))
        owners = Family("kafka_group_topic_members", "Members that own partitions of a topic.", ("group", "topic"))
        owned = Family("kafka_group_topic_partitions", "Partitions that members own.", ("group", "topic"))
        states = Family("kafka_group_state", "1 for the state that the group is in.", ("group", "state"))
        for group in groups:
            members.add(len(group.members), group.group_id)
            idle.add(sum(_is_idle(member) for member in group.members), group.group_id)
            states.add(1, group.group_id, group.state.value)
            for topic, owning in _owning_members(group).items():
                if self._topics.fullmatch(topic):
                    owners.add(len(set(owning)), group.group_id, topic)
                    owned.add(len(owning), group.group_id, topic)
            lags: dict[tuple[str, ...], int] = {}
            offsets: dict[tuple[str, ...], int] = {}
            ages: dict[tuple[str, ...], float] = {}
            incomplete: set[tuple[str, ...]] = set()
            for item in group.partitions:
                topic, number = item.partition
                if item.committed is None or not self._topics.fullmatch(topic):
                    continue
                labels = (group.group_id, topic, str(number))[: len(names)]
                if item.lag is None:  # without a leader, or the offset is no position in the log
                    incomplete.add(labels)
                    continue
                lags[labels] = lags.get(labels, 0) + item.lag
                offsets[labels] = offsets.get(labels, 0) + item.committed
                age = self._end_times.age(item.partition, item.committed, now) if item.lag else 0.0
                if age is not None:
                    ages[labels] = max(ages.get(labels, 0.0), age)
            for labels, lag in lags.items():
                records.add(lag, *labels)
                if labels not in incomplete:  # a lower sum would look like a group that went back
                    committed.add(offsets[labels], *labels)
            for labels, age in ages.items():  # none for an unknown age, because 0 would say that there is no lag
                seconds.add(age, *labels)
        return [records, seconds, committed, members, idle, owners, owned, states]

    async def _share_families(self) -> list[Family]:
        names = ("group", "topic", "partition") if self._by_partition else ("group", "topic")
        records = Family(
            "kafka_share_group_lag_records", "Records that a share group has not delivered or acknowledged.", names
        )
        try:
            groups = [group.group_id for group in await self._admin.share_groups.list()]
        except UnsupportedVersion:
            return []
        answered = await self._admin.share_groups.offsets([name for name in groups if self._groups.fullmatch(name)])
        self._failures += len(answered.failed)
        lags: dict[tuple[str, ...], int] = {}
        for group, offsets in answered.done.items():
            for (topic, number), offset in offsets.items():
                if offset.lag is not None and self._topics.fullmatch(topic):
                    labels = (group, topic, str(number))[: len(names)]
                    lags[labels] = lags.get(labels, 0) + offset.lag
        for labels, lag in lags.items():
            records.add(lag, *labels)
        return [records]

    async def _disk_families(self, topics: Iterable[TopicDescription]) -> list[Family]:
        of_topics = Family("kafka_topic_log_bytes", "Bytes of all replicas of a topic.", ("topic",))
        sizes = Family("kafka_broker_log_bytes", "Bytes of all replicas of a broker.", ("broker",))
        offline = Family("kafka_broker_log_dirs_offline", "Log directories that are offline.", ("broker",))
        answered = await self._admin.log_dirs.describe()
        if all(isinstance(error, UnsupportedVersion) for error in answered.failed.values()) and not answered.done:
            return []  # before Kafka 2.0
        # Before Kafka 3.2, a broker lists no directories for a client without the permission.
        listed = {broker: directories for broker, directories in answered.done.items() if directories}
        self._failures += len(answered.failed) + len(answered.done) - len(listed)
        for broker, directories in listed.items():
            sizes.add(sum(directory.size for directory in directories), str(broker))
            offline.add(sum(directory.error is not None for directory in directories), str(broker))
        every = [directory for directories in listed.values() for directory in directories]
        all_listed = len(listed) == len(answered.done) + len(answered.failed)
        if all_listed and all(directory.error is None for directory in every):  # or a sum would be too low
            # A broker that is down is not asked.
            by_topic = {
                topic.name: 0
                for topic in topics
                if listed.keys() >= {replica for item in topic.partitions for replica in item.replicas}
            }
            for replica in (replica for directory in every for replica in directory.replicas):
                if replica.partition.topic in by_topic:
                    by_topic[replica.partition.topic] += replica.size
            for topic, size in by_topic.items():
                of_topics.add(size, topic)
        return [of_topics, sizes, offline]

    def _bound(self, family: Family) -> int:
        """Leave out the lowest values of a family with too many. Returns their number."""
        excess = len(family.samples) - self._most_series
        if excess <= 0:
            return 0
        family.samples.sort(key=lambda sample: -sample[1])
        del family.samples[self._most_series :]
        return excess

    def _about_itself(self, seconds: float, *, is_up: bool, left_out: int) -> tuple[Family, ...]:
        up = Family("kafka_exporter_up", "1 if the cluster answered the last time.", ())
        took = Family("kafka_exporter_look_seconds", "Time of the last look at the cluster.", ())
        failures = Family(
            "kafka_exporter_failures_total", "Looks, groups, topics and brokers that failed.", (), is_counter=True
        )
        series = Family("kafka_exporter_series_left_out", "Series above the limit, which are not exported.", ())
        for family, value in ((up, is_up), (took, seconds), (failures, self._failures), (series, left_out)):
            family.add(value)
        return up, took, failures, series


def _cluster_families(cluster: ClusterDescription) -> list[Family]:
    info = Family("kafka_cluster_info", "1, with the id of the cluster.", ("cluster_id",))
    info.add(1, cluster.cluster_id or "")
    brokers = Family("kafka_brokers", "Brokers that are in service.", ())
    brokers.add(len(cluster.brokers))
    broker_info = Family("kafka_broker_info", "1, with address and rack.", ("broker", "host", "port", "rack"))
    for node in cluster.brokers:
        broker_info.add(1, str(node.node_id), node.host, str(node.port), node.rack or "")
    controller = Family("kafka_controller_id", "Id of the controller, or of a broker that forwards to it.", ())
    if cluster.controller is not None:
        controller.add(cluster.controller.node_id)
    return [info, brokers, broker_info, controller]


def _topic_families(
    topics: Iterable[TopicDescription], starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> list[Family]:
    labels = ("topic",)
    partitions = Family("kafka_topic_partitions", "Partitions of a topic.", labels)
    deleted = Family("kafka_topic_start_offsets", "Sum of the starts of all partitions.", labels)
    written = Family("kafka_topic_end_offsets", "Sum of the ends of all partitions.", labels)
    leaderless = Family("kafka_topic_partitions_without_leader", "Partitions that cannot be used.", labels)
    out_of_sync = Family("kafka_topic_replicas_out_of_sync", "Replicas that are not in sync.", labels)
    for topic in topics:
        partitions.add(len(topic.partitions), topic.name)
        items = _partitions_of(topic)
        for offsets, family in ((starts, deleted), (ends, written)):
            if offsets.keys() >= set(items):  # a sum without one of them would look like a topic that lost records
                family.add(sum(offsets[item] for item in items), topic.name)
        leaderless.add(sum(item.leader is None for item in topic.partitions), topic.name)
        out_of_sync.add(sum(len(item.replicas) - len(item.in_sync) for item in topic.partitions), topic.name)
    return [partitions, deleted, written, leaderless, out_of_sync]


def _partition_families(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[Family]:
    labels = ("topic", "partition")
    start = Family("kafka_partition_start_offset", "Start of a partition.", labels)
    end = Family("kafka_partition_end_offset", "End of a partition.", labels)
    for family, offsets in ((start, starts), (end, ends)):
        for (topic, number), offset in offsets.items():
            family.add(offset, topic, str(number))
    return [start, end]


def _is_idle(member: MemberDescription) -> bool:
    """Return whether a member has nothing to do; not if its assignment cannot be read, as in Kafka Connect."""
    if member.tasks is not None:
        return not any(member.tasks.active.values())
    return member.assignment is not None and not member.assignment


def _owning_members(group: GroupLag) -> dict[str, list[str]]:
    """Return the ids of the members that own partitions, by topic, once for each partition."""
    owners: dict[str, list[str]] = {}
    for item in group.partitions:
        if item.member is not None:
            owners.setdefault(item.partition.topic, []).append(item.member.member_id)
    return owners


def _partitions_of(topic: TopicDescription) -> list[TopicPartition]:
    return [TopicPartition(topic.name, item.partition) for item in topic.partitions]
