"""Claims with deserializers: the same behaviour as ``Consumer``, partition by partition."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from aiokafka_lite.consumer import (
    Claim,
    ConsumerGroup,
    ConsumerGroupHandler,
    ConsumerGroupSession,
    IntDeserializer,
    JsonDeserializer,
    StrDeserializer,
)
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ConfigurationError, DeserializationError
from aiokafka_lite.protocol.records import encode_batch
from aiokafka_lite.types import Record, TopicPartition
from tests.embedded.consumer.direct_writes import write, write_batch
from tests.embedded.group.recording_members import ORDERS
from tests.embedded.group.test_sessions import committed, group_of, until

POISON = b"poison"


class Values(ConsumerGroupHandler[Any, Any]):
    """Collects records and marks them."""

    def __init__(self) -> None:
        self.read: list[Record[Any, Any]] = []

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim[Any, Any]) -> None:
        async for record in claim:
            self.read.append(record)
            session.mark(record)

    def values(self, partition: TopicPartition) -> list[object]:
        return [record.value for record in self.read if record.partition == partition.partition]


async def slow_json(data: bytes) -> object:
    await asyncio.sleep(0.5)  # virtual
    return json.loads(data)


def fill_with_poison(cluster: EmbeddedCluster) -> None:
    """Write ten JSON numbers to two partitions; those at offsets 3 and 4 of the first one are not JSON."""
    write(cluster, ORDERS[0], [POISON if number in (3, 4) else b"%d" % number for number in range(10)])
    write(cluster, ORDERS[1], [b"%d" % number for number in range(10)])


async def consume_until(group: ConsumerGroup[Any, Any], handler: Values, condition: Callable[[], bool]) -> None:
    task = asyncio.create_task(group.consume(["orders"], handler))
    try:
        await until(lambda: condition() or task.done())
    finally:
        await group.close()
    await task


async def test_the_records_of_claims_are_deserialized(cluster: EmbeddedCluster) -> None:
    rows = [(0, (7).to_bytes(8, "big"), "grün".encode(), ()), (0, None, None, ())]
    write_batch(cluster, ORDERS[0], encode_batch(rows))
    seen: list[tuple[int, str]] = []

    class Typed(ConsumerGroupHandler[int, str]):
        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim[int, str]) -> None:
            async for record in claim:
                assert record.key is not None
                assert record.value is not None
                seen.append((record.key, record.value))
                raise ValueError("enough")

    group = group_of(cluster, key_deserializer=IntDeserializer(), value_deserializer=StrDeserializer())
    with pytest.raises(ValueError, match="enough"):
        await group.consume(["orders"], Typed())
    assert seen == [(7, "grün")]
    handler = Values()
    group = group_of(cluster, key_deserializer=IntDeserializer(), value_deserializer=StrDeserializer())
    await consume_until(group, handler, lambda: len(handler.read) == 2)
    assert [(record.key, record.value) for record in handler.read] == [(7, "grün"), (None, None)]


@pytest.mark.parametrize("deserializer", [JsonDeserializer(), json.loads, slow_json], ids=["object", "plain", "async"])
async def test_a_poison_record_ends_consume_and_the_records_before_it_are_committed(
    cluster: EmbeddedCluster, deserializer: object
) -> None:
    fill_with_poison(cluster)
    handler = Values()
    with pytest.raises(DeserializationError, match="orders-0 at offset 3") as raised:
        await group_of(cluster, value_deserializer=deserializer).consume(["orders"], handler)
    assert raised.value.offset == 3
    assert handler.values(ORDERS[0]) == [0, 1, 2]
    assert (await committed(cluster))[ORDERS[0]] == 3


def none_of(error: DeserializationError, raw: Record) -> None:
    assert raw.value == POISON


async def replaced(error: DeserializationError, raw: Record) -> Record[Any, Any]:
    decoded: Record[Any, Any] = raw
    return decoded._replace(value=-error.offset)


POLICIES: list[tuple[object, list[object]]] = [
    ("skip", []),
    ("raw", [POISON, POISON]),
    (none_of, []),
    (replaced, [-3, -4]),
]


@pytest.mark.parametrize("policy,instead", POLICIES)
@pytest.mark.parametrize("deserializer", [JsonDeserializer(), slow_json], ids=["sync", "async"])
async def test_poison_records_are_handled_as_in_a_consumer(
    cluster: EmbeddedCluster, policy: object, instead: list[object], deserializer: object
) -> None:
    fill_with_poison(cluster)
    handler = Values()
    group = group_of(cluster, value_deserializer=deserializer, on_deserialization_error=policy)
    await consume_until(group, handler, lambda: len(handler.read) == 18 + len(instead))
    assert handler.values(ORDERS[0]) == [0, 1, 2, *instead, 5, 6, 7, 8, 9]
    assert handler.values(ORDERS[1]) == list(range(10))
    assert await committed(cluster) == {ORDERS[0]: 10, ORDERS[1]: 10}


async def test_claims_do_not_wait_for_one_anothers_deserializer(cluster: EmbeddedCluster) -> None:
    fill_with_poison(cluster)
    stuck = asyncio.Event()

    async def picky(data: bytes) -> bytes:
        if data == POISON:
            await stuck.wait()
        return data

    handler = Values()
    group = group_of(cluster, value_deserializer=picky)
    await consume_until(group, handler, lambda: len(handler.read) == 13)
    assert handler.values(ORDERS[1]) == [b"%d" % number for number in range(10)]
    assert await committed(cluster) == {ORDERS[0]: 3, ORDERS[1]: 10}


async def test_a_wait_that_is_cancelled_while_it_deserializes_loses_no_record(cluster: EmbeddedCluster) -> None:
    write(cluster, ORDERS[0], [b"%d" % number for number in range(20)])
    seen: list[object] = []

    class Impatient(ConsumerGroupHandler[Any, Any]):
        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim[Any, Any]) -> None:
            if claim.partition:
                return
            turns = 0
            while len(seen) < 20:
                task = asyncio.ensure_future(self.step(claim))
                for _ in range(turns % 9):
                    await asyncio.sleep(0)
                if turns % 3:
                    await asyncio.sleep(0.3)
                turns += 1
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            raise ValueError("enough")

        async def step(self, claim: Claim[Any, Any]) -> None:
            seen.append((await anext(claim)).value)

    async def slow(data: bytes) -> int:
        await asyncio.sleep(0.2)
        return int(data)

    with pytest.raises(ValueError, match="enough"):
        await group_of(cluster, value_deserializer=slow).consume(["orders"], Impatient())
    assert seen == list(range(20))


@pytest.mark.parametrize("settings", [{"value_deserializer": 5}, {"on_deserialization_error": "drop"}])
async def test_wrong_settings_are_refused_by_name(cluster: EmbeddedCluster, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        group_of(cluster, **settings)
