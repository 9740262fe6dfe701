"""Random sequences of requests, valid and invalid, made from a seed alone.

A step is made before anything is sent, and has a fixed version. What only a broker knows (a topic's id, a member's id)
is looked up when the step is sent. Each seed has a theme: records, topics, or a group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from aiokafka_lite.embedded.handlers import default_versions
from aiokafka_lite.embedded.versions import KAFKA_RELEASES
from aiokafka_lite.protocol import messages as m
from aiokafka_lite.protocol.codec import encode_versioned
from aiokafka_lite.protocol.records import encode_batch
from aiokafka_lite.protocol.schema import Request
from aiokafka_lite.types import Compression
from tests.end_to_end.differential import batches
from tests.end_to_end.differential.sides import UNKNOWN_TOPIC_ID, Make, Side

RELEASE = "4.3.1"
GROUP, TRANSACTION = 0, 1
TOPIC, BROKER = 2, 4


def common_versions() -> dict[int, range]:
    """API key to the versions that both brokers speak."""
    real, embedded = KAFKA_RELEASES[RELEASE], default_versions()
    return {
        key: range(max(embedded[key][0], real[key][0]), min(embedded[key][1], real[key][1]) + 1)
        for key in sorted(embedded.keys() & real.keys())
    }


@dataclass(frozen=True, slots=True)
class Step:
    """A request for both brokers. ``changes`` names the topics whose state it may change."""

    kind: type[Request[Any]]
    version: int
    make: Make = field(repr=False)
    changes: tuple[str, ...] = ()
    only_of_scenario: bool = False
    """Whether the response contains everything on the broker, so that only this scenario's part is compared."""
    note: str = ""


class Scenario:
    """The steps of one seed. ``prefix`` makes names that no other scenario uses."""

    def __init__(self, seed: int, prefix: str) -> None:
        self.seed = seed
        self.prefix = prefix
        self.random = Random(seed)
        self.steps: list[Step] = []
        self.partitions: dict[str, int] = {}
        self.sequences: dict[tuple[str, int, int], tuple[int, int]] = {}
        self._uses: dict[type[Request[Any]], int] = {}
        self._versions = common_versions()
        theme = _THEMES[seed % len(_THEMES)]
        theme(self)

    def add(self, kind: type[Request[Any]], make: Callable[[Side, int], Any], **fields: Any) -> None:
        """Append a step in the API's next version, so that a few uses and a few seeds cover all versions."""
        versions = self._versions[kind.api_key]
        use = self._uses[kind] = self._uses.get(kind, self.seed // len(_THEMES)) + 1
        version = versions[use % len(versions)]
        self.steps.append(Step(kind, version, lambda side: make(side, version), **fields))

    # ---- names

    def topic(self) -> str:
        """Mostly a topic that exists."""
        if self.partitions and self.random.random() < 0.85:
            return self.random.choice(list(self.partitions))
        return self.random.choice([f"{self.prefix}nowhere", f"{self.prefix}not legal", f"{self.prefix}deleted"])

    def partition(self, topic: str) -> int:
        count = self.partitions.get(topic, 1)
        indexes: list[int] = [*range(count), *range(count), *range(count), count, -1, 1000]
        return self.random.choice(indexes)

    def several(self, most: int) -> int:
        return self.random.randint(1, most)


# ---- records


def _records(scenario: Scenario) -> None:
    random = scenario.random
    create(scenario, "plain", 3, _KEEP)
    create(scenario, "a", 1, _KEEP | random.choice(_SETTINGS))
    create(scenario, "b", 2, _KEEP | random.choice(_SETTINGS))
    choices = [produce] * 6 + [fetch] * 4 + [list_offsets] * 3
    choices += [offset_for_leader_epoch, init_producer_id, metadata, delete_records, fetch_session, describe_producers]
    for _ in range(60):
        random.choice(choices)(scenario)
    drop(scenario)
    for _ in range(5):
        random.choice(choices)(scenario)


_KEEP = {"retention.ms": "-1"}
"""The records are dated 2023: a broker deletes them as soon as it looks for expired records."""

_SETTINGS: list[dict[str, str]] = [
    {"message.timestamp.type": "LogAppendTime"},
    {"cleanup.policy": "compact"},
    {"cleanup.policy": "compact,delete"},
    {"max.message.bytes": "1000"},
    {"compression.type": "gzip"},
    {"compression.type": "uncompressed"},
    {"compression.type": "zstd"},
    {"message.timestamp.before.max.ms": "1000"},
    {"message.timestamp.after.max.ms": "1000"},
    {"segment.bytes": "1048576", "retention.bytes": "-1"},
    {"min.insync.replicas": "2"},
]


def create(scenario: Scenario, name: str, partitions: int, settings: dict[str, str] | None = None) -> None:
    """A creation that succeeds."""
    name = f"{scenario.prefix}{name}"
    scenario.partitions[name] = partitions
    topic = m.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[m.CreatableTopicConfig(name=key, value=value) for key, value in (settings or {}).items()],
    )
    scenario.add(m.CreateTopicsRequest, lambda side, _: m.CreateTopicsRequest(topics=[topic]), changes=(name,))


def drop(scenario: Scenario) -> None:
    """Delete one of the topics that exist."""
    name = scenario.random.choice(list(scenario.partitions))
    del scenario.partitions[name]

    def make(side: Side, version: int) -> m.DeleteTopicsRequest:
        if version >= 6:
            return m.DeleteTopicsRequest(topics=[m.DeleteTopicState(name=name)], timeout_ms=1000)
        return m.DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)

    scenario.add(m.DeleteTopicsRequest, make, changes=(name,))


def produce(scenario: Scenario) -> None:
    random = scenario.random
    acks = random.choice([-1, -1, -1, 1, 1, 0, 2])
    transactional_id = None  # a transaction needs a coordinator, which the embedded broker does not have
    chosen: dict[str, dict[int, bytes | None]] = {}
    notes = []
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        topic = scenario.topic()
        index = scenario.partition(topic)
        note, chosen.setdefault(topic, {})[index] = _data(scenario, topic, index)
        notes.append(f"{topic}-{index}: {note}")
        if note in batches.ALONE:
            chosen = {topic: {index: chosen[topic][index]}}
            break

    def make(side: Side, version: int) -> m.ProduceRequest:
        topics = [
            m.ProduceRequestTopic(
                **_named(side, name, version >= 13),
                partition_data=[
                    m.ProduceRequestPartition(index=index, records=data) for index, data in parts.items()
                ],
            )
            for name, parts in chosen.items()
        ]
        return m.ProduceRequest(
            transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=topics
        )

    scenario.add(m.ProduceRequest, make, note="; ".join(notes))


def _named(side: Side, name: str, by_id: bool) -> dict[str, Any]:
    return {"topic_id": side.topic_id(name)} if by_id else {"name": name}


def _data(scenario: Scenario, topic: str, index: int) -> tuple[str, bytes | None]:
    """Records for a partition, and a note of what is special about them."""
    random = scenario.random
    kind = random.random()
    if kind < 0.3:
        return "good", batches.good(random)
    if kind < 0.4:
        return "without keys", batches.keyless(random)
    if kind < 0.45:
        return "large", batches.large(random)
    if kind < 0.7:
        return _idempotent(scenario, topic, index)
    name = random.choice(list(batches.BAD))
    return name, batches.BAD[name](random)


def _idempotent(scenario: Scenario, topic: str, index: int) -> tuple[str, bytes]:
    """A producer's next batch, or a batch that is sent again, too early, or with another epoch."""
    random = scenario.random
    producer_id = random.choice([9001, 9002])
    key = (topic, index, producer_id)
    epoch, following = scenario.sequences.get(key, (0, 0))
    sequence = following
    what = random.choice(["next"] * 6 + ["again", "older", "gap", "epoch", "epoch late", "old epoch", "wrap"])
    match what:
        case "again":
            sequence = max(0, following - random.randint(1, 3))
        case "older":
            sequence = max(0, following - random.randint(4, 20))
        case "gap":
            sequence = following + random.randint(1, 3)
        case "epoch":
            epoch, sequence = epoch + 1, 0
        case "epoch late":
            epoch, sequence = epoch + 1, 5
        case "old epoch":
            epoch = max(0, epoch - 1)
        case "wrap":
            sequence = 2**31 - 2
    count = random.choice([1, 1, 1, 2, 3])
    if sequence == following or sequence == 0:
        scenario.sequences[key] = (epoch, (sequence + count) % 2**31)
    note = f"producer {producer_id}: {what}, epoch {epoch}, sequence {sequence}, count {count}"
    return note, encode_batch(
        batches.records(random, count, keyed=True),
        compression=random.choice([Compression.NONE, Compression.LZ4]),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


_OFFSETS = [0, 0, 0, 0, 1, 2, 3, 5, 8, 13, 20, -1, -2, -5, 2**40]
_EPOCHS = [-1] * 12 + [0, 0, 1, 5, -2]
_SIZES = [1 << 20] * 5 + [0, 1, 100, 500, 2000, -1, 2**31 - 1]


def fetch(scenario: Scenario) -> None:
    random = scenario.random
    wanted: list[tuple[str, list[dict[str, int]]]] = []
    for _ in range(random.choice([0, 1, 1, 1, 2, 3])):
        topic = scenario.topic()
        if topic not in dict(wanted):
            indexes = sorted({scenario.partition(topic) for _ in range(scenario.several(3))})
            wanted.append((topic, [_fetch_partition(random, index) for index in indexes]))
    parameters: dict[str, Any] = {
        "max_wait_ms": random.choice([0, 0, 0, 5]),
        "min_bytes": random.choice([0, 1, 1, 1, 100, -1]),
        "max_bytes": random.choice(_SIZES),
        "isolation_level": random.choice([0, 0, 1]),
    }
    with_session = random.random() < 0.1

    def make(side: Side, version: int) -> m.FetchRequest:
        request = m.FetchRequest(topics=_fetch_topics(side, version, wanted), **parameters)
        if with_session and version >= 7:
            request.session_epoch = 0
        return request

    scenario.add(m.FetchRequest, make)


def _fetch_partition(random: Random, index: int) -> dict[str, int]:
    return {
        "partition": index,
        "fetch_offset": random.choice(_OFFSETS),
        "partition_max_bytes": random.choice(_SIZES),
        "current_leader_epoch": random.choice(_EPOCHS),
        "last_fetched_epoch": random.choice(_EPOCHS),
    }


def _fetch_topics(
    side: Side, version: int, wanted: list[tuple[str, list[dict[str, int]]]]
) -> list[m.FetchRequestTopic]:
    def allowed(part: dict[str, int]) -> dict[str, Any]:
        lacking = {"current_leader_epoch"} if version < 9 else set()
        lacking |= {"last_fetched_epoch"} if version < 12 else set()
        return {name: value for name, value in part.items() if name not in lacking}

    def named(name: str) -> dict[str, Any]:
        return {"topic_id": side.topic_id(name)} if version >= 13 else {"topic": name}

    return [
        m.FetchRequestTopic(**named(name), partitions=[m.FetchRequestPartition(**allowed(part)) for part in parts])
        for name, parts in wanted
    ]


def fetch_session(scenario: Scenario) -> None:
    """Open a session, continue it in some ways, and use wrong session ids and epochs."""
    random = scenario.random
    topics = list(scenario.partitions)
    wanted = [(topic, [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]) for topic in topics]
    versions = [each for each in scenario._versions[m.FetchRequest.api_key] if each >= 7]
    version = random.choice(versions)

    def opening(side: Side) -> m.FetchRequest:
        side.session_id = 0
        return m.FetchRequest(
            max_wait_ms=0, min_bytes=0, session_epoch=0, topics=_fetch_topics(side, version, wanted)
        )

    scenario.steps.append(Step(m.FetchRequest, version, opening))
    epoch = 1
    for _ in range(scenario.several(4)):
        what = random.choice(["same", "same", "add", "forget", "wrong epoch", "wrong id", "end", "other version"])
        used = random.choice(versions) if what == "other version" else version
        part = {"partition": 0, "fetch_offset": random.choice([1, 2, 50]), "partition_max_bytes": 1 << 20}
        topic = random.choice(topics)

        def going_on(
            side: Side, what: str = what, used: int = used, part: dict[str, int] = part, topic: str = topic,
            epoch: int = epoch,
        ) -> m.FetchRequest:  # fmt: skip
            request = m.FetchRequest(
                max_wait_ms=0, min_bytes=0, session_id=side.session_id, session_epoch=epoch, topics=[]
            )
            if what == "add":
                request.topics = _fetch_topics(side, used, [(topic, [part])])
            elif what == "forget":
                named = {"topic_id": side.topic_id(topic)} if used >= 13 else {"topic": topic}
                request.forgotten_topics_data = [m.FetchRequestForgottenTopic(**named, partitions=[0])]
            elif what == "wrong epoch":
                request.session_epoch = epoch + 3
            elif what == "wrong id":
                request.session_id = 5
            elif what == "end":
                request.session_epoch = -1
                request.topics = _fetch_topics(side, used, [(topic, [part])])
            return request

        scenario.steps.append(Step(m.FetchRequest, used, going_on))
        if what in ("same", "add", "forget"):
            epoch += 1
        if random.random() < 0.5:
            produce(scenario)


def list_offsets(scenario: Scenario) -> None:
    random = scenario.random
    times = [-1, -1, -2, -3, -4, -5, -6, -7, 0, 1, batches.BASE_TIME, batches.BASE_TIME + 7000, batches.FAR_FUTURE]
    wanted = []
    for _ in range(scenario.several(2)):
        topic = scenario.topic()
        indexes = [scenario.partition(topic) for _ in range(scenario.several(3))]
        if random.random() < 0.9:
            indexes = sorted(set(indexes))
        wanted.append((topic, [(index, random.choice(times), random.choice(_EPOCHS)) for index in indexes]))
    isolation = random.choice([0, 0, 1])
    replica = random.choice([-1, -1, -1, -2])

    def make(side: Side, version: int) -> m.ListOffsetsRequest:
        topics = [
            m.ListOffsetsRequestTopic(
                name=name,
                partitions=[
                    m.ListOffsetsRequestPartition(
                        partition_index=index,
                        timestamp=timestamp,
                        current_leader_epoch=epoch if version >= 4 else -1,
                    )
                    for index, timestamp, epoch in parts
                ],
            )
            for name, parts in wanted
        ]
        return m.ListOffsetsRequest(
            replica_id=replica, isolation_level=isolation if version >= 2 else 0, topics=topics
        )

    scenario.add(m.ListOffsetsRequest, make)


def offset_for_leader_epoch(scenario: Scenario) -> None:
    random = scenario.random
    topic = scenario.topic()
    parts = [
        m.OffsetForLeaderEpochRequestPartition(
            partition=index, current_leader_epoch=random.choice(_EPOCHS), leader_epoch=random.choice([-1, 0, 0, 1, 7])
        )
        for index in sorted({scenario.partition(topic) for _ in range(scenario.several(3))})
    ]
    wanted = [m.OffsetForLeaderEpochRequestTopic(topic=topic, partitions=parts)]
    replica = random.choice([-1, -2])
    scenario.add(
        m.OffsetForLeaderEpochRequest,
        lambda side, version: m.OffsetForLeaderEpochRequest(
            replica_id=replica if version >= 3 else -2, topics=wanted
        ),
    )


def init_producer_id(scenario: Scenario) -> None:
    random = scenario.random
    transactional_id = random.choice([None, None, None, ""])
    timeout = random.choice([60_000, 60_000, 0, -1])
    identity = random.choice([(-1, -1), (-1, -1), (5, 0), (5, -1), (-1, 3)])

    def make(side: Side, version: int) -> m.InitProducerIdRequest:
        request = m.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout)
        if version >= 3:
            request.producer_id, request.producer_epoch = identity
        return request

    scenario.add(m.InitProducerIdRequest, make)


def describe_producers(scenario: Scenario) -> None:
    topic = scenario.topic()
    indexes = sorted({scenario.partition(topic) for _ in range(scenario.several(3))})
    wanted = [m.DescribeProducersTopic(name=topic, partition_indexes=indexes)]
    scenario.add(m.DescribeProducersRequest, lambda side, _: m.DescribeProducersRequest(topics=wanted))


def delete_records(scenario: Scenario) -> None:
    random = scenario.random
    topic = scenario.topic()
    parts = [
        m.DeleteRecordsPartition(partition_index=index, offset=random.choice([0, 1, 2, 3, 5, -1, -2, 10**9]))
        for index in sorted({scenario.partition(topic) for _ in range(scenario.several(2))})
    ]
    wanted = [m.DeleteRecordsTopic(name=topic, partitions=parts)]
    scenario.add(m.DeleteRecordsRequest, lambda side, _: m.DeleteRecordsRequest(topics=wanted, timeout_ms=1000))


# ---- topics


def _topics(scenario: Scenario) -> None:
    random = scenario.random
    create(scenario, "plain", 2)
    create(scenario, "a.b", 1, random.choice(_SETTINGS))
    choices = [create_topics] * 5 + [metadata] * 4 + [describe_configs] * 3 + [incremental_alter_configs] * 2
    choices += [alter_configs] * 2 + [create_partitions] * 3 + [delete_topics] * 2
    choices += [describe_topic_partitions] * 2
    choices += [alter_client_quotas, describe_client_quotas, describe_client_quotas]
    choices += [produce, list_offsets, describe_cluster, api_versions, elect_leaders, reassignments, describe_log_dirs]
    for _ in range(45):
        random.choice(choices)(scenario)


_BAD_NAMES = ["", ".", "..", "a b", "ä", "a" * 250, "a/b", "a,b"]
_CONFIGS: list[tuple[str, str | None]] = [
    ("retention.ms", "1000000"), ("retention.ms", "-1"), ("retention.ms", "-2"), ("retention.ms", "x"),
    ("retention.ms", ""), ("retention.ms", None), ("retention.ms", "1.5"), ("retention.ms", " 77 "),
    ("retention.bytes", "-5"), ("retention.bytes", "123456"),
    ("cleanup.policy", "compact"), ("cleanup.policy", "delete,compact"), ("cleanup.policy", "none"),
    ("cleanup.policy", ""), ("cleanup.policy", "delete, compact"), ("cleanup.policy", "delete,delete"),
    ("max.message.bytes", "0"), ("max.message.bytes", "-1"), ("max.message.bytes", "5000000000"),
    ("min.insync.replicas", "0"), ("min.insync.replicas", "1"), ("min.insync.replicas", "3"),
    ("compression.type", "zstd"), ("compression.type", "ZSTD"), ("compression.type", "best"),
    ("compression.gzip.level", "0"), ("compression.gzip.level", "9"), ("compression.gzip.level", "-1"),
    ("compression.lz4.level", "18"), ("compression.zstd.level", "22"),
    ("message.timestamp.type", "LogAppendTime"), ("message.timestamp.type", "logappendtime"),
    ("message.timestamp.after.max.ms", "5"), ("message.timestamp.before.max.ms", "-1"),
    ("segment.bytes", "14"), ("segment.bytes", "1048576"), ("segment.bytes", "13"), ("segment.ms", "0"),
    ("unclean.leader.election.enable", "true"), ("unclean.leader.election.enable", "TRUE"),
    ("unclean.leader.election.enable", "yes"), ("preallocate", "maybe"),
    ("min.cleanable.dirty.ratio", "0.5"), ("min.cleanable.dirty.ratio", "1.5"), ("min.cleanable.dirty.ratio", "1"),
    ("no.such.setting", "1"), ("", "1"), ("message.format.version", "2.8"), ("flush.messages", "0"),
    ("leader.replication.throttled.replicas", "*"), ("leader.replication.throttled.replicas", "0:1,1:1"),
    ("leader.replication.throttled.replicas", "x"), ("min.compaction.lag.ms", "7"),
    ("delete.retention.ms", "-1"), ("file.delete.delay.ms", "1"), ("index.interval.bytes", "-1"),
    ("local.retention.ms", "5"), ("local.retention.bytes", "-3"), ("remote.storage.enable", "false"),
]  # fmt: skip


def create_topics(scenario: Scenario) -> None:
    random = scenario.random
    topics = []
    for _ in range(random.choice([0, 1, 1, 1, 2, 3])):
        name = scenario.prefix + random.choice(["c", "d", "e", "f", "plain", "a.b", "a_b", "c.d"])
        if random.random() < 0.15:
            name = random.choice(_BAD_NAMES)
        topic = m.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[], configs=[])
        if random.random() < 0.25:
            topic.assignments = _assignments(random)
            if random.random() < 0.2:
                topic.num_partitions = 1
        else:
            topic.num_partitions = random.choice([1, 1, 2, 3, 3, -1, 0, -2])
            topic.replication_factor = random.choice([1, 1, 1, 1, -1, 0, 2, -2, 32767])
        if random.random() < 0.4:
            settings = random.sample(_CONFIGS, scenario.several(2))
            topic.configs = [m.CreatableTopicConfig(name=key, value=value) for key, value in settings]
        topics.append(topic)
    validate_only = random.random() < 0.2
    names = tuple({topic.name for topic in topics})
    for topic in topics:
        if topic.num_partitions > 0 and topic.replication_factor == 1 and not topic.configs:
            scenario.partitions.setdefault(topic.name, topic.num_partitions)
    scenario.add(
        m.CreateTopicsRequest,
        lambda side, _: m.CreateTopicsRequest(topics=topics, validate_only=validate_only, timeout_ms=5000),
        changes=names,
    )


def _assignments(random: Random) -> list[m.CreatableReplicaAssignment]:
    choices: list[list[tuple[int, list[int]]]] = [
        [(0, [1])], [(0, [1])], [(0, [1]), (1, [1])], [(1, [1]), (0, [1])], [(0, [1]), (2, [1])], [(0, [7])],
        [(0, [1, 1])], [(0, [])], [(0, [1]), (1, [1, 7])], [(0, [1]), (0, [1])], [(-1, [1])], [(0, [-1])], [(1, [1])],
    ]  # fmt: skip
    return [
        m.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index, brokers in random.choice(choices)
    ]


def create_partitions(scenario: Scenario) -> None:
    random = scenario.random
    topics = []
    for _ in range(random.choice([0, 1, 1, 1, 2])):
        name = scenario.topic()
        count = random.choice([1, 2, 3, 4, 0, -1, scenario.partitions.get(name, 1) + 1])
        choices: list[list[list[int]] | None] = [None, None, None, [[1]], [[1], [1]], [[7]], [[1, 1]], [[]], []]
        assignments = random.choice(choices)
        topics.append(
            m.CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None
                if assignments is None
                else [m.CreatePartitionsAssignment(broker_ids=each) for each in assignments],
            )
        )
    validate_only = random.random() < 0.2
    names = tuple({topic.name for topic in topics})
    scenario.add(
        m.CreatePartitionsRequest,
        lambda side, _: m.CreatePartitionsRequest(topics=topics, timeout_ms=5000, validate_only=validate_only),
        changes=names,
    )


def delete_topics(scenario: Scenario) -> None:
    random = scenario.random
    names = [scenario.topic() for _ in range(scenario.several(2))]
    if random.random() < 0.1:
        names = [names[0], names[0]]
    if random.random() < 0.1:
        names.append(random.choice(_BAD_NAMES))
    how = random.choice(["name", "name", "id", "both", "neither"])
    for name in names:
        if how != "neither" and len(scenario.partitions) > 1:
            scenario.partitions.pop(name, None)

    def make(side: Side, version: int) -> m.DeleteTopicsRequest:
        if version < 6:
            return m.DeleteTopicsRequest(topic_names=names, timeout_ms=5000)
        topics = []
        for name in names:
            state = m.DeleteTopicState(name=name if how in ("name", "both") else None)
            if how in ("id", "both"):
                state.topic_id = side.topic_id(name)
            topics.append(state)
        return m.DeleteTopicsRequest(topics=topics, timeout_ms=5000)

    scenario.add(m.DeleteTopicsRequest, make, changes=tuple(names))


def metadata(scenario: Scenario) -> None:
    random = scenario.random
    names: list[str] | None = [scenario.topic() for _ in range(random.choice([0, 1, 1, 2, 3]))]
    if random.random() < 0.1 and names:
        names[0] = random.choice(_BAD_NAMES)
    if random.random() < 0.1:
        names = None
    by_id = random.choice([False, False, True])
    odd = random.choice(["", "", "", "unknown", "both"])
    may_create = random.random() < 0.1
    operations = random.random() < 0.3

    def make(side: Side, version: int) -> m.MetadataRequest:
        topics = None
        if names is not None:
            topics = []
            for name in names:
                if by_id and version >= 12:
                    topics.append(m.MetadataRequestTopic(name=None, topic_id=side.topic_id(name)))
                else:
                    topics.append(m.MetadataRequestTopic(name=name))
            if odd and version >= 12 and topics:
                topics[0].name = None if odd != "both" else names[0]
                topics[0].topic_id = UNKNOWN_TOPIC_ID
        elif version == 0:
            topics = []
        request = m.MetadataRequest(topics=topics)
        if version >= 4:
            request.allow_auto_topic_creation = may_create
        if version >= 8:
            request.include_topic_authorized_operations = operations
            request.include_cluster_authorized_operations = operations and version <= 10
        return request

    # before version 4 a request for a topic creates it
    scenario.add(m.MetadataRequest, make, changes=tuple(names or ()), only_of_scenario=True)


def describe_topic_partitions(scenario: Scenario) -> None:
    random = scenario.random
    names = sorted({scenario.topic() for _ in range(scenario.several(3))})
    limit = random.choice([2000, 1, 2, 3])
    cursor = None
    if random.random() < 0.4:
        cursor = m.TopicPartitionCursor(topic_name=random.choice(names), partition_index=random.choice([0, 1, 2, 7]))
    wanted = [m.DescribeTopicPartitionsRequestTopic(name=name) for name in names]
    scenario.add(
        m.DescribeTopicPartitionsRequest,
        lambda side, _: m.DescribeTopicPartitionsRequest(
            topics=wanted, response_partition_limit=limit, cursor=cursor
        ),
    )


def describe_configs(scenario: Scenario) -> None:
    random = scenario.random
    resources = []
    for _ in range(random.choice([0, 1, 1, 1, 2])):
        kind, name = TOPIC, scenario.topic()
        if random.random() < 0.15:
            kind, name = random.choice([(BROKER, "1"), (BROKER, ""), (BROKER, "9"), (BROKER, "x"), (0, "x"), (99, "x")])
        if random.random() < 0.05:
            kind, name = TOPIC, random.choice(_BAD_NAMES)
        keys = random.choice([None, None, [], ["retention.ms"], ["retention.ms", "no.such.setting", "cleanup.policy"]])
        if kind == BROKER:
            keys = random.choice([["log.retention.ms"], ["num.partitions", "no.such.setting"]])
        resources.append(m.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys))
    synonyms, documentation = random.random() < 0.4, random.random() < 0.3

    def make(side: Side, version: int) -> m.DescribeConfigsRequest:
        return m.DescribeConfigsRequest(
            resources=resources, include_synonyms=synonyms, include_documentation=documentation and version >= 3
        )

    scenario.add(m.DescribeConfigsRequest, make)


def _some_configs(scenario: Scenario) -> list[tuple[str, str | None]]:
    chosen = scenario.random.sample(_CONFIGS, scenario.random.choice([0, 1, 1, 1, 2]))
    if scenario.random.random() < 0.05 and chosen:
        chosen.append(chosen[0])
    return chosen


def _resources(scenario: Scenario) -> list[tuple[int, str]]:
    """Topics, and sometimes a resource whose settings cannot be changed.

    None is named twice: Kafka 4.3.1 never answers that in version 0 of AlterConfigs.
    """
    random = scenario.random
    resources = [(TOPIC, scenario.topic()) for _ in range(random.choice([0, 1, 1, 1, 2]))]
    if random.random() < 0.15:
        odd = [(BROKER, "9"), (BROKER, "x"), (0, "x"), (99, "x"), (TOPIC, ""), (TOPIC, "a b")]
        resources.append(random.choice(odd))
    return list(dict.fromkeys(resources))


def alter_configs(scenario: Scenario) -> None:
    resources = [
        m.AlterConfigsRequestResource(
            resource_type=kind,
            resource_name=name,
            configs=[m.AlterConfigsRequestConfig(name=key, value=value) for key, value in _some_configs(scenario)],
        )
        for kind, name in _resources(scenario)
    ]
    validate_only = scenario.random.random() < 0.2
    scenario.add(
        m.AlterConfigsRequest,
        lambda side, _: m.AlterConfigsRequest(resources=resources, validate_only=validate_only),
        changes=tuple(each.resource_name for each in resources if each.resource_type == TOPIC),
    )


def incremental_alter_configs(scenario: Scenario) -> None:
    random = scenario.random
    resources = [
        m.IncrementalAlterConfigsRequestResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                m.IncrementalAlterConfigsRequestConfig(
                    name=key, value=value, config_operation=random.choice([0, 0, 0, 0, 1, 2, 3])
                )
                for key, value in _some_configs(scenario)
            ],
        )
        for kind, name in _resources(scenario)
    ]
    validate_only = random.random() < 0.2
    scenario.add(
        m.IncrementalAlterConfigsRequest,
        lambda side, _: m.IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only),
        changes=tuple(each.resource_name for each in resources if each.resource_type == TOPIC),
    )


def describe_cluster(scenario: Scenario) -> None:
    operations = scenario.random.random() < 0.5
    endpoint = scenario.random.choice([1, 1, 2, 3])
    fenced = scenario.random.random() < 0.5

    def make(side: Side, version: int) -> m.DescribeClusterRequest:
        return m.DescribeClusterRequest(
            include_cluster_authorized_operations=operations,
            endpoint_type=endpoint if version >= 1 else 1,
            include_fenced_brokers=fenced and version >= 2,
        )

    scenario.add(m.DescribeClusterRequest, make)


def api_versions(scenario: Scenario) -> None:
    names = [("name", "1.0"), ("a.b-c", "1"), ("", ""), ("a b", "1"), ("-a", "1"), ("ä", "1")]
    software = scenario.random.choice(names)

    def make(side: Side, version: int) -> m.ApiVersionsRequest:
        if version < 3:
            return m.ApiVersionsRequest()
        return m.ApiVersionsRequest(client_software_name=software[0], client_software_version=software[1])

    scenario.add(m.ApiVersionsRequest, make, only_of_scenario=True)


def elect_leaders(scenario: Scenario) -> None:
    random = scenario.random
    topic = scenario.topic()
    indexes = sorted({scenario.partition(topic) for _ in range(scenario.several(2))})
    wanted = [m.ElectLeadersTopic(topic=topic, partitions=indexes)]
    kind = random.choice([0, 0, 1])
    scenario.add(
        m.ElectLeadersRequest,
        lambda side, version: m.ElectLeadersRequest(
            election_type=kind if version >= 1 else 0, topic_partitions=wanted, timeout_ms=1000
        ),
    )


def reassignments(scenario: Scenario) -> None:
    random = scenario.random
    topic = scenario.topic()
    indexes = sorted({scenario.partition(topic) for _ in range(scenario.several(2))})
    if random.random() < 0.5:
        listed = random.choice([None, [m.ListPartitionReassignmentsTopic(name=topic, partition_indexes=indexes)], []])
        scenario.add(
            m.ListPartitionReassignmentsRequest,
            lambda side, _: m.ListPartitionReassignmentsRequest(topics=listed, timeout_ms=1000),
        )
        return
    parts = [
        m.ReassignablePartition(
            partition_index=index, replicas=random.choice([None, [1], [1], [7], [], [1, 1], [1, 7], [-1]])
        )
        for index in indexes
    ]
    wanted = [m.ReassignableTopic(name=topic, partitions=parts)]
    keep = random.random() < 0.3

    def make(side: Side, version: int) -> m.AlterPartitionReassignmentsRequest:
        request = m.AlterPartitionReassignmentsRequest(topics=wanted, timeout_ms=1000)
        if version >= 1:
            request.allow_replication_factor_change = not keep
        return request

    scenario.add(m.AlterPartitionReassignmentsRequest, make)


def describe_log_dirs(scenario: Scenario) -> None:
    topic = scenario.topic()
    indexes = sorted({scenario.partition(topic) for _ in range(scenario.several(2))})
    wanted = [m.DescribableLogDirTopic(topic=topic, partitions=indexes)]
    scenario.add(m.DescribeLogDirsRequest, lambda side, _: m.DescribeLogDirsRequest(topics=wanted))


def alter_client_quotas(scenario: Scenario) -> None:
    """Only for client ids that do not exist, so that no client is throttled."""
    random = scenario.random
    entries = []
    for number in random.sample(range(4), scenario.several(2)):
        entity = _ENTITIES[number]
        named = [
            m.AlterClientQuotasRequestEntity(entity_type=kind, entity_name=f"{scenario.prefix}{name}")
            for kind, name in entity
        ]
        keys = random.sample(_QUOTAS, scenario.several(2))
        ops = [
            m.AlterClientQuotasOperation(key=key, value=random.choice([1000.0, 5.5]), remove=random.random() < 0.3)
            for key in keys
        ]
        entries.append(m.AlterClientQuotasRequestEntry(entity=named, ops=ops))
    validate_only = random.random() < 0.2
    scenario.add(
        m.AlterClientQuotasRequest,
        lambda side, _: m.AlterClientQuotasRequest(entries=entries, validate_only=validate_only),
        changes=(f"{scenario.prefix}plain",),
    )


_ENTITIES = [[("user", "u")], [("client-id", "c")], [("user", "u"), ("client-id", "c")], [("stranger", "n")]]
_QUOTAS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "no.such.quota"]


def describe_client_quotas(scenario: Scenario) -> None:
    components = [
        m.DescribeClientQuotasComponent(entity_type=kind, match_type=0, match=f"{scenario.prefix}{name}")
        for kind, name in scenario.random.choice(_ENTITIES)
    ]
    strict = scenario.random.random() < 0.5
    scenario.add(
        m.DescribeClientQuotasRequest,
        lambda side, _: m.DescribeClientQuotasRequest(components=components, strict=strict),
    )


# ---- a group


def _group(scenario: Scenario) -> None:
    random = scenario.random
    create(scenario, "plain", 2)
    group = f"{scenario.prefix}group"
    others = [find_coordinator, describe_groups, list_groups, offset_commit, offset_fetch, heartbeat, sync_group]
    others += [delete_groups, offset_delete, join_group_wrongly, offset_fetch, offset_commit, leave_group_wrongly]
    for _ in range(10):
        random.choice(others)(scenario, group)
    for _ in range(2):
        instance = random.choice([None, None, f"{scenario.prefix}instance"])
        joined(scenario, group, instance)
        for _ in range(12):
            random.choice([*others, live_heartbeat, live_commit, live_commit])(scenario, group)
        left(scenario, group, instance)
        for _ in range(6):
            random.choice(others)(scenario, group)
    delete_groups(scenario, group)


_INSTANCE_SINCE = {m.JoinGroupRequest: 5, m.SyncGroupRequest: 3, m.HeartbeatRequest: 3, m.OffsetCommitRequest: 7}


def _subscription(topics: list[str], version: int = 0) -> bytes:
    return encode_versioned(m.ConsumerProtocolSubscription(topics=topics), version)


def _protocols(scenario: Scenario) -> list[m.JoinGroupRequestProtocol]:
    subscription = _subscription([f"{scenario.prefix}plain"])
    return [
        m.JoinGroupRequestProtocol(name="range", metadata=subscription),
        m.JoinGroupRequestProtocol(name="sticky", metadata=subscription),
    ]


def joined(scenario: Scenario, group: str, instance: str | None) -> None:
    """A member joins, a second time if it has to, and assigns the partitions to itself."""
    protocols = _protocols(scenario)
    versions = scenario._versions[m.JoinGroupRequest.api_key]
    version = scenario.random.choice([each for each in versions if each >= 5 or instance is None])

    def join(side: Side, again: bool) -> m.JoinGroupRequest:
        member = side.member(-1) if again else ""
        request = m.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000 if version >= 1 else -1,
            member_id=member,
            protocol_type="consumer",
            protocols=protocols,
        )
        if instance is not None:
            request.group_instance_id = instance
        return request

    scenario.steps.append(Step(m.JoinGroupRequest, version, lambda side: join(side, again=False)))
    for _ in range(1 if version >= 4 and instance is None else 0):
        scenario.steps.append(Step(m.JoinGroupRequest, version, lambda side: join(side, again=True)))
    sync_versions = [each for each in scenario._versions[m.SyncGroupRequest.api_key] if each >= 3 or instance is None]
    sync_version = scenario.random.choice(sync_versions)

    def sync(side: Side) -> m.SyncGroupRequest:
        member = side.member(-1)
        request = m.SyncGroupRequest(
            group_id=group,
            generation_id=side.generation,
            member_id=member,
            assignments=[m.SyncGroupRequestAssignment(member_id=member, assignment=b"assigned")],
        )
        if sync_version >= 5:
            request.protocol_type, request.protocol_name = "consumer", "range"
        if instance is not None:
            request.group_instance_id = instance
        return request

    scenario.steps.append(Step(m.SyncGroupRequest, sync_version, sync))


def left(scenario: Scenario, group: str, instance: str | None) -> None:
    by_instance = instance is not None and scenario.random.random() < 0.5

    def make(side: Side, version: int) -> m.LeaveGroupRequest:
        member = side.member(-1)
        if version < 3:
            return m.LeaveGroupRequest(group_id=group, member_id=member)
        leaving = m.LeaveGroupRequestMember(member_id="" if by_instance else member)
        if by_instance:
            leaving.group_instance_id = instance
        return m.LeaveGroupRequest(group_id=group, members=[leaving])

    scenario.add(m.LeaveGroupRequest, make)


def live_heartbeat(scenario: Scenario, group: str) -> None:
    off = scenario.random.choice([0, 0, 0, 1, -1])
    scenario.add(
        m.HeartbeatRequest,
        lambda side, _: m.HeartbeatRequest(
            group_id=group, generation_id=side.generation + off, member_id=side.member(-1)
        ),
    )


def live_commit(scenario: Scenario, group: str) -> None:
    off = scenario.random.choice([0, 0, 0, 1, -1])
    topics = _commit_topics(scenario, ["", "metadata", None, "x" * 4096, "x" * 4097, "ä" * 2100])
    scenario.add(
        m.OffsetCommitRequest,
        lambda side, version: m.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=side.generation + off,
            member_id=side.member(-1),
            topics=_named_commit_topics(side, topics, version),
        ),
    )


def _group_name(scenario: Scenario, group: str) -> str:
    return scenario.random.choice([group] * 5 + [f"{scenario.prefix}other", "", f"{scenario.prefix}none"])


Parts = list[tuple[int, int, int, str | None]]


def _commit_topics(scenario: Scenario, texts: list[str | None]) -> list[tuple[str, Parts]]:
    random = scenario.random
    topics: dict[str, Parts] = {}
    for _ in range(random.choice([0, 1, 1, 2])):
        topic = scenario.topic()
        topics[topic] = [
            (index, random.choice([0, 1, 5, -1, -2, 10**12]), random.choice([-1, 0, 3]), random.choice(texts))
            for index in sorted({scenario.partition(topic) for _ in range(scenario.several(3))})
        ]
    return list(topics.items())


def _named_commit_topics(
    side: Side, topics: list[tuple[str, Parts]], version: int
) -> list[m.OffsetCommitRequestTopic]:
    return [
        m.OffsetCommitRequestTopic(
            **_named(side, name, version >= 10),
            partitions=[
                m.OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=epoch if version >= 6 else -1,
                    committed_metadata=text,
                )
                for index, offset, epoch, text in parts
            ],
        )
        for name, parts in topics
    ]


def offset_commit(scenario: Scenario, group: str) -> None:
    """Commits without a member, or with an unknown one.

    Never for the group with an empty name, which all scenarios would share. Never with metadata that is too large:
    Kafka shows a group that only a refused commit has created when something else is written, or never.
    """
    random = scenario.random
    name = _group_name(scenario, group) or group
    generation, member = random.choice([(-1, ""), (-1, ""), (-1, ""), (5, ""), (-1, "stranger"), (5, "stranger")])
    topics = _commit_topics(scenario, ["", "", "metadata", None, "ä" * 4096])
    scenario.add(
        m.OffsetCommitRequest,
        lambda side, version: m.OffsetCommitRequest(
            group_id=name,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=_named_commit_topics(side, topics, version),
        ),
    )


def offset_fetch(scenario: Scenario, group: str) -> None:
    random = scenario.random
    groups = [_group_name(scenario, group) for _ in range(random.choice([1, 1, 2, 0]))]
    wanted = []
    for _ in range(scenario.several(2)):
        topic = scenario.topic()
        wanted.append((topic, sorted({scenario.partition(topic) for _ in range(scenario.several(2))})))
    everything = random.random() < 0.3
    stable = random.random() < 0.3

    def make(side: Side, version: int) -> m.OffsetFetchRequest:
        if version < 8:
            topics = [m.OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in wanted]
            request = m.OffsetFetchRequest(
                group_id=groups[0] if groups else "", topics=None if everything and version >= 2 else topics
            )
        else:
            many = [
                m.OffsetFetchRequestTopics(**_named(side, name, version >= 10), partition_indexes=indexes)
                for name, indexes in wanted
            ]
            request = m.OffsetFetchRequest(
                groups=[
                    m.OffsetFetchRequestGroup(group_id=each, topics=None if everything else many)
                    for each in dict.fromkeys(groups)
                ]
            )
        if version >= 7:
            request.require_stable = stable
        return request

    scenario.add(m.OffsetFetchRequest, make)


def offset_delete(scenario: Scenario, group: str) -> None:
    name = _group_name(scenario, group)
    topic = scenario.topic()
    parts = [
        m.OffsetDeleteRequestPartition(partition_index=index)
        for index in sorted({scenario.partition(topic) for _ in range(scenario.several(2))})
    ]
    topics = [m.OffsetDeleteRequestTopic(name=topic, partitions=parts)]
    scenario.add(m.OffsetDeleteRequest, lambda side, _: m.OffsetDeleteRequest(group_id=name, topics=topics))


def find_coordinator(scenario: Scenario, group: str) -> None:
    random = scenario.random
    keys = [_group_name(scenario, group) for _ in range(random.choice([1, 1, 2, 0]))]
    kind = random.choice([0, 0, 0, 0, 3, -1])

    def make(side: Side, version: int) -> m.FindCoordinatorRequest:
        if version >= 4:
            return m.FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)
        request = m.FindCoordinatorRequest(key=keys[0] if keys else "")
        if version >= 1:
            request.key_type = kind
        return request

    scenario.add(m.FindCoordinatorRequest, make)


def describe_groups(scenario: Scenario, group: str) -> None:
    random = scenario.random
    groups = list(dict.fromkeys(_group_name(scenario, group) for _ in range(random.choice([1, 1, 2, 0]))))
    operations = random.random() < 0.3
    scenario.add(
        m.DescribeGroupsRequest,
        lambda side, version: m.DescribeGroupsRequest(
            groups=groups, include_authorized_operations=operations and version >= 3
        ),
    )


def list_groups(scenario: Scenario, group: str) -> None:
    random = scenario.random
    states = random.choice([[], [], ["Stable"], ["Empty"], ["stable", "Empty"], ["Nonsense"], ["Dead"]])
    types = random.choice([[], [], ["classic"], ["Consumer"], ["nonsense"]])

    def make(side: Side, version: int) -> m.ListGroupsRequest:
        request = m.ListGroupsRequest()
        if version >= 4:
            request.states_filter = states
        if version >= 5:
            request.types_filter = types
        return request

    scenario.add(m.ListGroupsRequest, make, only_of_scenario=True)


def delete_groups(scenario: Scenario, group: str) -> None:
    groups = list(dict.fromkeys(_group_name(scenario, group) for _ in range(scenario.several(2))))
    scenario.add(m.DeleteGroupsRequest, lambda side, _: m.DeleteGroupsRequest(groups_names=groups))


def heartbeat(scenario: Scenario, group: str) -> None:
    random = scenario.random
    name = _group_name(scenario, group)
    generation, member = random.choice([-1, 0, 1, 5]), random.choice(["", "stranger"])
    instance = random.choice([None, None, "no instance", f"{scenario.prefix}instance"])

    def make(side: Side, version: int) -> m.HeartbeatRequest:
        request = m.HeartbeatRequest(group_id=name, generation_id=generation, member_id=member)
        if version >= 3:
            request.group_instance_id = instance
        return request

    scenario.add(m.HeartbeatRequest, make)


def sync_group(scenario: Scenario, group: str) -> None:
    """A request that fails: an unknown member, or the wrong generation or protocol."""
    random = scenario.random
    name = _group_name(scenario, group)
    how = random.choice(["stranger", "generation", "protocol", "no protocol"])

    def make(side: Side, version: int) -> m.SyncGroupRequest:
        member = side.member(-1) if how != "stranger" else "stranger"
        request = m.SyncGroupRequest(
            group_id=name,
            generation_id=side.generation + (5 if how == "generation" else 0),
            member_id=member,
            assignments=[],
        )
        if version >= 5 and how != "no protocol":
            request.protocol_type = "consumer"
            request.protocol_name = "other" if how == "protocol" else "range"
        return request

    scenario.add(m.SyncGroupRequest, make)


def join_group_wrongly(scenario: Scenario, group: str) -> None:
    random = scenario.random
    protocols = _protocols(scenario)
    fields: dict[str, Any] = {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "member_id": "stranger",
        "protocol_type": "consumer",
        "protocols": protocols,
    }
    wrong: dict[str, Any] = random.choice(
        [
            {},
            {"group_id": "", "member_id": ""},
            {"session_timeout_ms": 5},
            {"session_timeout_ms": 5, "member_id": ""},
            {"session_timeout_ms": 10_000_000},
            {"session_timeout_ms": -1},
            {"protocols": []},
            {"protocols": [], "member_id": ""},
            {"protocol_type": "", "member_id": ""},
            {"protocol_type": ""},
        ]
    )
    scenario.add(
        m.JoinGroupRequest,
        lambda side, version: m.JoinGroupRequest(
            **{**fields, **wrong}, rebalance_timeout_ms=30_000 if version >= 1 else -1
        ),
    )


def leave_group_wrongly(scenario: Scenario, group: str) -> None:
    random = scenario.random
    name = _group_name(scenario, group)
    choices: list[list[tuple[str, str | None]]] = [
        [("stranger", None)], [("", None)], [("", "no instance")], [("stranger", "no instance")], [],
        [("a", None), ("b", None)],
    ]  # fmt: skip
    members = random.choice(choices)

    def make(side: Side, version: int) -> m.LeaveGroupRequest:
        if version < 3:
            return m.LeaveGroupRequest(group_id=name, member_id=members[0][0] if members else "")
        return m.LeaveGroupRequest(
            group_id=name,
            members=[
                m.LeaveGroupRequestMember(member_id=member, group_instance_id=instance) for member, instance in members
            ],
        )

    scenario.add(m.LeaveGroupRequest, make)


_THEMES = (_records, _topics, _group)
