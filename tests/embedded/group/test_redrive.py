"""``redrive``: dead letters go back to their origins, once, and up to the present end."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from aiokafka_lite import Consumer, Producer, Workers
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import CommitFailed, ConfigurationError, KafkaError, RecordTooLarge, UnknownTopic
from aiokafka_lite.processing import Redriven, dead_letter, redrive, retry_topic
from aiokafka_lite.types import Record, TopicPartition
from tests.embedded.group.recording_members import member_of
from tests.embedded.group.test_sessions import Running, group_of, until
from tests.embedded.group.test_workers import finish

DEAD = "dead"


async def fail_all(cluster: EmbeddedCluster, count: int) -> None:
    """Write records to all partitions, and let a group of Workers send all of them to the dead-letter topic."""
    await cluster.create_topic(DEAD, partitions=2)
    await cluster.create_topic("later", partitions=1)
    for number in range(count):
        headers = {"trace": b"%d" % number}
        key = b"key-%d" % (number % 5)
        await cluster.produce("orders", b"%d" % number, key=key, headers=headers, partition=number % 6)

    async def refuse(record: Record[bytes, bytes]) -> None:
        raise (ValueError if int(record.value) % 2 else KeyError)("refused")

    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        workers = Workers(
            refuse, rules=[retry_topic(topics={"later": 1.0}), dead_letter(topic=DEAD)], producer=producer
        )
        group = group_of(cluster)
        consuming = asyncio.create_task(group.consume(["orders", "later"], workers))
        await until(lambda: workers.metrics().failed == count + (count + 1) // 2)
        await group.close()
        await consuming


async def run(cluster: EmbeddedCluster, topic: str = DEAD, **arguments: Any) -> Redriven:
    return await redrive(cluster.bootstrap_servers, topic, connector=cluster.connector, **arguments)


async def read(cluster: EmbeddedCluster, topic: str, count: int) -> list[Record[bytes, bytes]]:
    """Read a topic, which has ``count`` records."""
    async with Consumer(cluster.bootstrap_servers, topics=[topic], connector=cluster.connector) as consumer:
        records = [await anext(consumer) for _ in range(count)]
        assert await consumer.poll(timeout=5.0) == []
    return records


async def committed_in(cluster: EmbeddedCluster, group_id: str) -> dict[int, int]:
    partitions = [TopicPartition(DEAD, number) for number in range(2)]
    async with member_of(cluster, topics=(), group_id=group_id) as reader:
        stored = await reader.committed(partitions)
    return {partition.partition: offset.offset for partition, offset in stored.items() if offset is not None}


async def test_dead_letters_go_back_to_their_partitions_as_they_were(cluster: EmbeddedCluster) -> None:
    await fail_all(cluster, 30)
    result = await run(cluster)
    assert result == Redriven(
        records={("orders", "KeyError"): 15, ("orders", "ValueError"): 15}, left_out=0, without_origin=0
    )
    assert result.total == 30
    records = await read(cluster, "orders", 60)
    twice = Counter((record.partition, record.key, record.value, record.headers) for record in records)
    assert len(twice) == 30
    assert set(twice.values()) == {2}


async def test_the_next_call_sends_only_new_dead_letters(cluster: EmbeddedCluster) -> None:
    await fail_all(cluster, 10)
    assert (await run(cluster)).total == 10
    assert sum((await committed_in(cluster, "dead.redrive")).values()) == 10
    assert (await run(cluster)).total == 0
    assert (await run(cluster, group_id="others", to="later")).records == {
        ("later", "KeyError"): 5,
        ("later", "ValueError"): 5,
    }
    assert (await run(cluster, from_beginning=True)).total == 10
    await read(cluster, "orders", 30)


async def test_a_dry_run_sends_and_commits_nothing(cluster: EmbeddedCluster) -> None:
    await fail_all(cluster, 10)
    await cluster.produce(DEAD, b"by hand", partition=0)
    result = await run(cluster, dry_run=True, select=lambda record: record.value != b"7")
    assert result == Redriven(
        records={("orders", "KeyError"): 5, ("orders", "ValueError"): 4}, left_out=1, without_origin=1
    )
    assert await committed_in(cluster, "dead.redrive") == {}
    await read(cluster, "orders", 10)


async def test_records_that_are_not_selected_are_passed(cluster: EmbeddedCluster) -> None:
    await fail_all(cluster, 10)

    def is_key_error(record: Record[bytes, bytes]) -> bool:
        return dict(record.headers)["error.class"] == b"KeyError"

    result = await run(cluster, select=is_key_error)
    assert (result.total, result.left_out) == (5, 5)
    assert (await run(cluster)).total == 0
    assert (await run(cluster, from_beginning=True, select=lambda record: not is_key_error(record))).total == 5
    await read(cluster, "orders", 20)


async def test_a_record_that_fails_again_is_for_the_next_call(cluster: EmbeddedCluster) -> None:
    await fail_all(cluster, 4)

    async def refuse(record: Record[bytes, bytes]) -> None:
        raise ValueError("still refused")

    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        workers = Workers(refuse, rules=[dead_letter(topic=DEAD)], producer=producer)
        running = Running(cluster, workers)
        assert (await run(cluster)).total == 4
        await until(lambda: workers.metrics().failed == 4)
        await finish(running)
    assert (await run(cluster)).records == {("orders", "ValueError"): 4}
    await read(cluster, "orders", 12)


async def test_a_record_without_an_origin_is_named_and_those_before_it_are_sent(cluster: EmbeddedCluster) -> None:
    await fail_all(cluster, 10)
    await cluster.produce(DEAD, b"by hand", partition=0)
    with pytest.raises(KafkaError, match=r"^the record at offset \d+ of dead-0 has no header origin.topic, so no Work"):
        await run(cluster)
    before = sum((await committed_in(cluster, "dead.redrive")).values())
    assert (await run(cluster, select=lambda record: record.value != b"by hand")).total == 10 - before
    assert (await run(cluster, from_beginning=True, to="later")).total == 11
    await read(cluster, "orders", 20)


@pytest.mark.parametrize("dry_run", [False, True])
async def test_an_origin_that_does_not_exist_is_named(cluster: EmbeddedCluster, dry_run: bool) -> None:
    await cluster.create_topic(DEAD, partitions=1)
    await cluster.produce(DEAD, b"a", headers={"origin.topic": b"gone"})
    with pytest.raises(UnknownTopic, match=r"^the record at offset 0 of dead-0 cannot be sent to 'gone': "):
        await run(cluster, dry_run=dry_run)
    async with Consumer(cluster.bootstrap_servers, connector=cluster.connector) as consumer:
        assert "gone" not in await consumer.topics()


async def test_a_topic_that_does_not_exist_is_an_error(cluster: EmbeddedCluster) -> None:
    for arguments in ({"topic": "nothing"}, {"to": "nothing"}):
        if "to" in arguments:
            await cluster.create_topic(DEAD, partitions=1)
        with pytest.raises(UnknownTopic, match="nothing"):
            await run(cluster, **arguments)


async def test_a_record_that_is_too_large_for_its_origin_is_named(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("small", partitions=1, configs={"max.message.bytes": "1000"})
    await cluster.create_topic(DEAD, partitions=1)
    for value in (b"a", b"b" * 2000, b"c"):
        await cluster.produce(DEAD, value, headers={"origin.topic": b"small", "origin.partition": b"0"})
    with pytest.raises(RecordTooLarge, match=r"^the record at offset 1 of dead-0 cannot be sent to 'small': "):
        await run(cluster)
    assert await committed_in(cluster, "dead.redrive") == {0: 1}


@pytest.mark.parametrize("partition", [b"7", b"x", b"-1", b"9" * 5000, None])
async def test_without_its_partition_a_record_goes_where_its_key_says(
    cluster: EmbeddedCluster, partition: bytes | None
) -> None:
    await cluster.create_topic(DEAD, partitions=1)
    headers = {"origin.topic": b"orders"} | ({} if partition is None else {"origin.partition": partition})
    await cluster.produce(DEAD, b"a", key=b"table-7", headers=headers)
    assert (await run(cluster)).total == 1
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        by_key = await producer.send("orders", b"b", key=b"table-7")
    (first, _) = await read(cluster, "orders", 2)
    assert first.partition == by_key.partition


async def test_a_dead_letter_topic_that_was_made_again_is_read_from_its_beginning(cluster: EmbeddedCluster) -> None:
    await fail_all(cluster, 10)
    assert (await run(cluster)).total == 10
    await cluster.delete_topic(DEAD)
    await cluster.create_topic(DEAD, partitions=2)
    await cluster.produce(DEAD, b"a", headers={"origin.topic": b"orders"}, partition=0)
    assert (await run(cluster)).total == 1


async def test_a_call_that_is_cancelled_at_any_turn_sends_each_record(cluster: EmbeddedCluster) -> None:
    await fail_all(cluster, 20)
    for turns in range(0, 400, 13):
        calling = asyncio.create_task(run(cluster))
        for _ in range(turns):
            await asyncio.sleep(0)
        calling.cancel()
        await asyncio.wait([calling])
        if calling.cancelled() is False:
            calling.result()
    await run(cluster)
    values: Counter[bytes] = Counter()
    async with Consumer(cluster.bootstrap_servers, topics=["orders"], connector=cluster.connector) as consumer:
        while records := await consumer.poll(timeout=5.0):
            values.update(record.value for record in records)
    assert min(values.values()) >= 2
    assert len(values) == 20


async def test_an_error_of_select_is_raised(cluster: EmbeddedCluster) -> None:
    await fail_all(cluster, 2)

    def select(record: Record[bytes, bytes]) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run(cluster, select=select)
    await read(cluster, "orders", 2)


async def test_a_select_whose_result_would_have_to_be_awaited_sends_nothing(cluster: EmbeddedCluster) -> None:
    await fail_all(cluster, 2)

    async def select(record: Record[bytes, bytes]) -> bool:
        return False

    with pytest.raises(ConfigurationError, match="select must be a plain function"):
        await run(cluster, select=select)
    with pytest.raises(TypeError, match="select must return whether a record is sent, and returned an awaitable"):
        await run(cluster, select=lambda record: select(record))
    await read(cluster, "orders", 2)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"topic": 5}, "topic must be the name of a topic, got 5"),
        ({"topic": "a b"}, "topic: topic name"),
        ({"to": "a b"}, "to: topic name"),
        ({"to": DEAD}, "to must be another topic than the dead-letter topic 'dead'"),
        ({"select": "error"}, "select must be a function, got 'error'"),
        ({"sasl_mechanism": "SCRAM"}, "sasl_mechanism"),
        ({"group_id": ""}, "group_id"),
    ],
)
async def test_wrong_arguments_are_refused(cluster: EmbeddedCluster, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        await run(cluster, **arguments)
    assert text in str(caught.value)


async def test_a_group_with_members_is_refused_before_anything_is_sent(cluster: EmbeddedCluster) -> None:
    await fail_all(cluster, 2)
    running = Running(cluster, Workers(lambda record: None))
    await until(lambda: running.group.health().is_ready)
    with pytest.raises(CommitFailed, match="group 'workers' has members"):
        await run(cluster, group_id="workers")
    await finish(running)
    await read(cluster, "orders", 2)
