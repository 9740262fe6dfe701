"""Random requests about records: produce, fetch, look up offsets, delete."""

from __future__ import annotations

from random import Random
from typing import Any

from aiokafka_lite.protocol import messages as m
from aiokafka_lite.protocol.records import encode_batch
from aiokafka_lite.types import Compression
from tests.end_to_end.differential import batches
from tests.end_to_end.differential.compared_brokers import Side
from tests.end_to_end.differential.scenario import Scenario, Step, named


def produce(scenario: Scenario) -> None:
    random = scenario.random
    acks = random.choice([-1, -1, -1, 1, 1, 0, 2])
    transactional_id = None  # transactions.py has the batches of transactions
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
                **named(side, name, version >= 13),
                partition_data=[m.ProduceRequestPartition(index=index, records=data) for index, data in parts.items()],
            )
            for name, parts in chosen.items()
        ]
        return m.ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=topics)

    scenario.add(m.ProduceRequest, make, note="; ".join(notes))


def _data(scenario: Scenario, topic: str, index: int) -> tuple[str, bytes | None]:
    """Return records for a partition, and a description of them."""
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
    """Return a producer's next batch, or a batch that is sent again, too early, or with another epoch."""
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
    fetch_topics: list[tuple[str, list[dict[str, int]]]] = []
    for _ in range(random.choice([0, 1, 1, 1, 2, 3])):
        topic = scenario.topic()
        if topic not in dict(fetch_topics):
            indexes = scenario.some_partitions(topic, 3)
            fetch_topics.append((topic, [_fetch_partition(random, index) for index in indexes]))
    parameters: dict[str, Any] = {
        "max_wait_ms": random.choice([0, 0, 0, 5]),
        "min_bytes": random.choice([0, 1, 1, 1, 100, -1]),
        "max_bytes": random.choice(_SIZES),
        "isolation_level": random.choice([0, 0, 1]),
    }
    with_session = random.random() < 0.1

    def make(side: Side, version: int) -> m.FetchRequest:
        request = m.FetchRequest(topics=_fetch_topics(side, version, fetch_topics), **parameters)
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
    side: Side, version: int, fetch_topics: list[tuple[str, list[dict[str, int]]]]
) -> list[m.FetchRequestTopic]:
    def allowed(part: dict[str, int]) -> dict[str, Any]:
        lacking = {"current_leader_epoch"} if version < 9 else set()
        lacking |= {"last_fetched_epoch"} if version < 12 else set()
        return {name: value for name, value in part.items() if name not in lacking}

    def named(name: str) -> dict[str, Any]:
        return {"topic_id": side.topic_id(name)} if version >= 13 else {"topic": name}

    return [
        m.FetchRequestTopic(**named(name), partitions=[m.FetchRequestPartition(**allowed(part)) for part in parts])
        for name, parts in fetch_topics
    ]


def fetch_session(scenario: Scenario) -> None:
    """Open a session, continue it in some ways, and use wrong session ids and epochs."""
    random = scenario.random
    topics = list(scenario.partitions)
    fetch_topics = [(topic, [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]) for topic in topics]
    versions = [version for version in scenario.versions[m.FetchRequest.api_key] if version >= 7]
    version = random.choice(versions)

    def opening(side: Side) -> m.FetchRequest:
        side.session_id = 0
        return m.FetchRequest(
            max_wait_ms=0, min_bytes=0, session_epoch=0, topics=_fetch_topics(side, version, fetch_topics)
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
    offset_topics = []
    for _ in range(scenario.several(2)):
        topic = scenario.topic()
        indexes = [scenario.partition(topic) for _ in range(scenario.several(3))]
        if random.random() < 0.9:
            indexes = sorted(set(indexes))
        offset_topics.append((topic, [(index, random.choice(times), random.choice(_EPOCHS)) for index in indexes]))
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
            for name, parts in offset_topics
        ]
        return m.ListOffsetsRequest(replica_id=replica, isolation_level=isolation if version >= 2 else 0, topics=topics)

    scenario.add(m.ListOffsetsRequest, make)


def offset_for_leader_epoch(scenario: Scenario) -> None:
    random = scenario.random
    topic = scenario.topic()
    parts = [
        m.OffsetForLeaderEpochRequestPartition(
            partition=index, current_leader_epoch=random.choice(_EPOCHS), leader_epoch=random.choice([-1, 0, 0, 1, 7])
        )
        for index in scenario.some_partitions(topic, 3)
    ]
    epoch_topics = [m.OffsetForLeaderEpochRequestTopic(topic=topic, partitions=parts)]
    replica = random.choice([-1, -2])
    scenario.add(
        m.OffsetForLeaderEpochRequest,
        lambda side, version: m.OffsetForLeaderEpochRequest(
            replica_id=replica if version >= 3 else -2, topics=epoch_topics
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
    indexes = scenario.some_partitions(topic, 3)
    producer_topics = [m.DescribeProducersTopic(name=topic, partition_indexes=indexes)]
    scenario.add(m.DescribeProducersRequest, lambda side, _: m.DescribeProducersRequest(topics=producer_topics))


def delete_records(scenario: Scenario) -> None:
    random = scenario.random
    topic = scenario.topic()
    parts = [
        m.DeleteRecordsPartition(partition_index=index, offset=random.choice([0, 1, 2, 3, 5, -1, -2, 10**9]))
        for index in scenario.some_partitions(topic, 2)
    ]
    delete_topics = [m.DeleteRecordsTopic(name=topic, partitions=parts)]
    scenario.add(m.DeleteRecordsRequest, lambda side, _: m.DeleteRecordsRequest(topics=delete_topics, timeout_ms=1000))
