"""Interceptors see each record once, with every kind of read, and every commit. Their errors do not stop reading."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from aiokafka_lite.consumer import Claim, ConsumerGroup, ConsumerGroupHandler, ConsumerGroupSession, StrDeserializer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ConfigurationError, IllegalStateError
from aiokafka_lite.types import OffsetAndMetadata, Record, TopicPartition
from tests.embedded.consumer.direct_writes import consumer_of, fill, take
from tests.waiting import until

FIRST = TopicPartition("orders", 0)


class Seen:
    """Keeps the offsets of each call, and adds a header to the records."""

    def __init__(self, name: str = "seen") -> None:
        self.name = name
        self.reads: list[list[int]] = []
        self.commits: list[Mapping[TopicPartition, OffsetAndMetadata]] = []

    def on_consume(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
        self.reads.append([record.offset for record in records])
        return [record._replace(headers=(*record.headers, (self.name, b""))) for record in records]

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.commits.append(offsets)


class Broken(Seen):
    """Returns too few records, and raises in ``on_commit``."""

    def on_consume(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
        return []

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        raise RuntimeError("no room")


@pytest.fixture(autouse=True)
async def records(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders", partitions=1)
    fill(cluster, FIRST, 20)


async def slowly(data: bytes) -> str:
    await asyncio.sleep(0)
    return data.decode()


@pytest.mark.parametrize("deserializer", [None, StrDeserializer(), slowly], ids=["bytes", "text", "async"])
async def test_each_record_passes_through_once(cluster: EmbeddedCluster, deserializer: Any) -> None:
    seen, again = Seen("first"), Seen("second")
    settings = {"interceptors": [seen, again], "value_deserializer": deserializer}
    async with consumer_of(cluster, topics=["orders"], **settings) as consumer:
        one_by_one = await take(consumer, 5)
        polled = await consumer.poll(5, timeout=1.0)
        reader = consumer.partition(*FIRST)
        rest = [await anext(reader) for _ in range(20 - 5 - len(polled))]
    offsets = [offset for read in seen.reads for offset in read]
    assert offsets == list(range(20))
    assert seen.reads[:6] == [[0], [1], [2], [3], [4], [record.offset for record in polled]]
    assert again.reads == seen.reads
    for record in (*one_by_one, *polled, *rest):
        assert [name for name, _ in record.headers] == ["first", "second"]


async def test_a_record_is_seen_when_it_is_returned_and_not_before(cluster: EmbeddedCluster) -> None:
    seen = Seen()
    async with consumer_of(cluster, topics=["orders"], interceptors=[seen]) as consumer:
        await take(consumer, 3)
        assert seen.reads == [[0], [1], [2]]
        consumer.seek(FIRST, 10)
        await take(consumer, 1)
        assert seen.reads[3:] == [[10]]


async def test_commits_are_seen_with_their_offsets(cluster: EmbeddedCluster) -> None:
    seen = Seen()
    async with consumer_of(
        cluster, topics=["orders"], group_id="g", auto_commit_interval=1.0, interceptors=[seen]
    ) as consumer:
        await take(consumer, 5)
        consumer.mark()
        await consumer.commit()
        assert [commit[FIRST].offset for commit in seen.commits] == [5]
        await take(consumer, 3)
        await until(lambda: len(seen.commits) > 1, "the automatic commit")
    assert [commit[FIRST].offset for commit in seen.commits] == [5, 7]


async def test_an_interceptor_that_fails_does_not_stop_reading(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    settings = {"topics": ["orders"], "group_id": "g", "interceptors": [Broken(), seen]}
    async with consumer_of(cluster, **settings) as consumer:
        records = await take(consumer, 10)
        consumer.mark()
        assert await consumer.commit()
    assert [record.offset for record in records] == list(range(10))
    assert seen.commits
    assert [record.message for record in caplog.records if record.name == "aiokafka_lite.aio.callbacks"] == [
        "Broken.on_consume failed for records of 'orders'; this error is not logged again",
        "Broken.on_commit failed; this error is not logged again",
    ]


class Handler(ConsumerGroupHandler[Any, Any]):
    """Marks every record."""

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim[Any, Any]) -> None:
        async for record in claim:
            session.mark(record)


async def test_the_claims_and_commits_of_a_consumer_group_are_seen(cluster: EmbeddedCluster) -> None:
    seen = Seen()
    settings = {"connector": cluster.connector, "group_id": "g", "interceptors": [seen]}
    group: ConsumerGroup[Any, Any] = ConsumerGroup(cluster.bootstrap_servers, **settings)
    consuming = asyncio.create_task(group.consume(["orders"], Handler()))
    await until(lambda: len(seen.reads) == 20)
    await group.close()
    await consuming
    assert seen.reads == [[offset] for offset in range(20)]
    assert seen.commits[-1][FIRST].offset == 20


async def test_columns_and_interceptors_exclude_one_another(cluster: EmbeddedCluster) -> None:
    async with consumer_of(cluster, topics=["orders"], interceptors=[Seen()]) as consumer:
        with pytest.raises(IllegalStateError, match="a consumer with interceptors cannot read columns"):
            consumer.batches()


@pytest.mark.parametrize(
    ("interceptors", "error"),
    [
        (5, "interceptors must be a list of interceptors, got 5"),
        ([Seen], "interceptor must be an object, got the class Seen; pass Seen()"),
        ([object()], "interceptor must be an object with on_consume() and on_commit(), got <object"),
    ],
)
async def test_a_wrong_interceptor_is_refused(cluster: EmbeddedCluster, interceptors: Any, error: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        consumer_of(cluster, interceptors=interceptors)
    assert str(refused.value).startswith(error)
