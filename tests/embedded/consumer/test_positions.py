"""Positions: seeks, reset policies, lookups, and topics that are created, grow and are deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from aiokafka_lite.consumer import ResetReason
from aiokafka_lite.consumer.offsets import LOOKUPS_PER_REQUEST
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import (
    AuthorizationError,
    ErrorCode,
    IllegalStateError,
    InvalidTopic,
    KafkaTimeout,
    NoOffsetForPartition,
    OffsetOutOfRange,
    UnknownTopic,
)
from aiokafka_lite.protocol.messages import FetchRequest, ListOffsetsRequest, MetadataRequest
from aiokafka_lite.types import TopicPartition
from tests.embedded.consumer.direct_writes import consumer_of, fill, leader, take, write
from tests.waiting import until

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
async def orders(cluster: EmbeddedCluster) -> EmbeddedCluster:
    """The cluster with a topic of two partitions, 100 records each."""
    await cluster.create_topic("orders", partitions=2)
    fill(cluster, FIRST, 100)
    fill(cluster, SECOND, 100)
    return cluster


async def test_a_seek_takes_effect_before_the_start_before_the_first_fetch_and_later(orders: EmbeddedCluster) -> None:
    consumer = consumer_of(orders)
    consumer.assign([FIRST, SECOND])
    consumer.seek(FIRST, 95)
    consumer.pause([SECOND])
    async with consumer:
        assert [record.offset for record in await take(consumer, 5)] == [95, 96, 97, 98, 99]
        consumer.resume([SECOND])
        consumer.seek(SECOND, 42)
        assert [(record.partition, record.offset) for record in await take(consumer, 2)] == [(1, 42), (1, 43)]
        consumer.seek(SECOND, 98)
        assert [record.offset for record in await take(consumer, 2)] == [98, 99]
        await consumer.seek_to_beginning([FIRST])
        assert await consumer.position(FIRST) == 0
        await consumer.seek_to_end()
        assert (await consumer.position(FIRST), await consumer.position(SECOND)) == (100, 100)
        assert await consumer.poll(timeout=2.0) == []


async def test_a_seek_while_iterating_takes_effect_with_the_next_record(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        offsets = []
        async for record in consumer:
            offsets.append(record.offset)
            if record.offset == 4:
                consumer.seek(FIRST, 90)
            if record.offset == 92:
                break
    assert offsets == [0, 1, 2, 3, 4, 90, 91, 92]


async def test_only_assigned_partitions_have_a_position(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        for call in (
            consumer.high_watermark,
            lambda partition: consumer.seek(partition, 1),
            lambda partition: consumer.pause([partition]),
        ):
            with pytest.raises(IllegalStateError, match="orders-1"):
                call(SECOND)
        with pytest.raises(IllegalStateError, match="orders-1"):
            await consumer.position(SECOND)
        with pytest.raises(ValueError, match="offset must be"):
            consumer.seek(FIRST, -1)


async def test_partitions_that_stay_assigned_keep_their_position(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        await take(consumer, 30)
        consumer.assign([FIRST, SECOND])
        records = await take(consumer, 170)
        assert sorted(record.offset for record in records if record.partition == 0) == list(range(30, 100))
        consumer.assign([SECOND])
        assert consumer.assignment == (SECOND,)
        assert await consumer.position(SECOND) == 100
        consumer.assign([FIRST])
        assert (await take(consumer, 1))[0].offset == 0  # the position was dropped with the assignment


async def test_a_consumer_of_whole_topics_refuses_assign(orders: EmbeddedCluster) -> None:
    with pytest.raises(IllegalStateError, match="orders"):
        consumer_of(orders, topics=["orders"]).assign([FIRST])


# ---- seeks while the offset is looked up


@pytest.mark.parametrize("turns", range(40))
async def test_a_seek_to_the_end_wins_in_any_turn_of_the_first_lookup(orders: EmbeddedCluster, turns: int) -> None:
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST, SECOND])
        for _ in range(turns):
            await asyncio.sleep(0)
        await consumer.seek_to_end()
        assert [await consumer.position(partition) for partition in (FIRST, SECOND)] == [100, 100]
        assert await consumer.poll(timeout=2.0) == []


@pytest.mark.parametrize("policy", ["earliest", "latest", "none", "by_duration:PT1H"])
@pytest.mark.parametrize("end", ["beginning", "end"])
async def test_a_seek_to_either_end_wins_over_a_slow_lookup_by_any_policy(
    orders: EmbeddedCluster, policy: str, end: str
) -> None:
    orders.on(ListOffsetsRequest, times=3).delay(1.0)
    async with consumer_of(orders, auto_offset_reset=policy) as consumer:
        consumer.assign([FIRST])
        await asyncio.sleep(0.5)
        await (consumer.seek_to_end() if end == "end" else consumer.seek_to_beginning())
        assert await consumer.position(FIRST) == (100 if end == "end" else 0)
        await asyncio.sleep(5.0)
        assert await consumer.position(FIRST) == (100 if end == "end" else 0)


# ---- faults that delay a position


async def test_the_timeout_of_position_names_the_cause(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders, allow_auto_create_topics=False) as consumer:
        nowhere = TopicPartition("nowhere", 0)
        beyond = TopicPartition("orders", 9)
        refused = orders.on(ListOffsetsRequest, times=None).fail(ErrorCode.OFFSET_NOT_AVAILABLE)
        consumer.assign([FIRST, nowhere, beyond])
        with pytest.raises(KafkaTimeout, match=r"orders-0 was not found within 2 s: .*OFFSET_NOT_AVAILABLE"):
            await consumer.position(FIRST, timeout=2)
        with pytest.raises(KafkaTimeout, match=r"nowhere-0 .* UNKNOWN_TOPIC_OR_PARTITION"):
            await consumer.position(nowhere, timeout=0.5)
        with pytest.raises(UnknownTopic, match=r"'orders' has 2 partitions; there is no orders-9"):
            await consumer.position(beyond, timeout=0.5)
        refused.remove()
        orders.on(ListOffsetsRequest, times=None).delay(100.0)
        consumer.assign([SECOND])
        with pytest.raises(KafkaTimeout, match=r"orders-1 .* broker \d .* has not answered yet$"):
            await consumer.position(SECOND, timeout=0.5)


async def test_the_timeout_of_position_names_a_missing_leader(orders: EmbeddedCluster) -> None:
    await orders.stop(orders.leader_of(*FIRST))
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        with pytest.raises(KafkaTimeout, match=r"orders-0 was not found within 1\.5 s: it has no leader$"):
            await consumer.position(FIRST, timeout=1.5)


# ---- reset policies


@pytest.mark.parametrize("policy, offset", [("earliest", 40), ("latest", 100)])
async def test_reading_begins_by_the_policy(orders: EmbeddedCluster, policy: str, offset: int) -> None:
    leader(orders, FIRST).log.delete_before(40)
    async with consumer_of(orders, auto_offset_reset=policy) as consumer:
        consumer.assign([FIRST])
        assert await consumer.position(FIRST) == offset


@pytest.mark.parametrize("policy, first", [("earliest", 40), ("latest", 100)])
@pytest.mark.parametrize("sought", [7, 5_000])
async def test_an_offset_outside_of_the_log_is_reset(
    orders: EmbeddedCluster, policy: str, first: int, sought: int, caplog: pytest.LogCaptureFixture
) -> None:
    leader(orders, FIRST).log.delete_before(40)
    async with consumer_of(orders, auto_offset_reset=policy) as consumer:
        consumer.assign([FIRST])
        consumer.seek(FIRST, sought)
        asyncio.get_running_loop().call_later(5.0, write, orders, FIRST, [b"new"])
        assert (await take(consumer, 1))[0].offset == first
    assert f"reset orders-0 from offset {sought} to {first}" in caplog.text


async def test_without_a_policy_an_offset_outside_of_the_log_is_an_error_until_a_seek(
    orders: EmbeddedCluster,
) -> None:
    leader(orders, FIRST).log.delete_before(40)
    async with consumer_of(orders, auto_offset_reset="none") as consumer:
        consumer.assign([FIRST, SECOND])
        consumer.seek(FIRST, 7)
        consumer.seek(SECOND, 0)
        errors, records = [], []
        for _ in range(40):
            try:
                records += await consumer.poll(max_records=10, timeout=1.0)
            except OffsetOutOfRange as error:
                errors.append(error)
        assert len(records) == 100  # the other partition is not held up
        assert "orders-0 has no offset 7" in str(errors[0])
        assert "40 up to 100" in str(errors[0])
        assert {(error.topic, error.partition, error.offset) for error in errors} == {("orders", 0, 7)}
        assert not any(isinstance(error, NoOffsetForPartition) for error in errors)
        consumer.seek(FIRST, 60)
        assert (await take(consumer, 1))[0].offset == 60


async def test_without_a_policy_a_partition_without_a_position_is_an_error(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders, auto_offset_reset="none") as consumer:
        consumer.assign([FIRST])
        with pytest.raises(NoOffsetForPartition, match="orders-0 has no position") as caught:
            await consumer.poll(timeout=5.0)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 0, None)
        with pytest.raises(NoOffsetForPartition, match="orders-0 has no position"):
            await consumer.position(FIRST)


async def test_fetched_records_are_returned_before_a_reset(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        records = await take(consumer, 10)
        fault = orders.on(FetchRequest, topic="orders", times=1).fail(ErrorCode.OFFSET_OUT_OF_RANGE)
        await until(lambda: fault.hits, "the fetch is refused")
        records += await take(consumer, 90)
        assert [record.offset for record in records] == list(range(100))


async def test_a_reset_by_duration_begins_with_the_first_record_that_young(cluster: EmbeddedCluster) -> None:
    """Record ``n`` of 100 was written at 1,000 + n seconds; it is 1,100 s now."""
    await cluster.create_topic("orders")
    write(cluster, FIRST, [b"%d" % number for number in range(100)])
    ways: list[tuple[str | timedelta, int]] = [
        ("by_duration:PT1M", 40),
        (timedelta(seconds=10), 90),
        ("by_duration:P30DT0.5S", 0),
        ("by_duration:PT0.5S", 100),  # nothing is that young: the end
    ]
    for policy, offset in ways:
        async with consumer_of(cluster, auto_offset_reset=policy, clock=lambda: 1_100.0) as consumer:
            consumer.assign([FIRST])
            assert await consumer.position(FIRST) == offset, policy
            consumer.seek(FIRST, 5_000)  # out of range
            await asyncio.sleep(1.0)
            assert await consumer.position(FIRST) == offset, policy


async def test_a_log_start_that_passes_the_position_is_reported_with_both_offsets(orders: EmbeddedCluster) -> None:
    """Retention and DeleteRecords do this. Records that were fetched before are still returned."""
    resets: list[tuple[TopicPartition, int, int, ResetReason]] = []
    async with consumer_of(
        orders, max_partition_fetch_bytes=300, on_offset_reset=lambda *reset: resets.append(reset)
    ) as consumer:
        consumer.assign([FIRST])
        offsets = [record.offset for record in await take(consumer, 10)]
        leader(orders, FIRST).log.delete_before(60)
        offsets += [record.offset for record in await take(consumer, 40)]
    kept = resets[0][1]
    assert resets == [(FIRST, kept, 60, ResetReason.OUT_OF_RANGE)]
    assert 10 <= kept < 60
    assert offsets == [*range(kept), *range(60, 60 + 50 - kept)]


async def test_an_exception_of_on_offset_reset_is_raised_by_one_read(orders: EmbeddedCluster) -> None:
    def refuse(partition: TopicPartition, old: int, new: int, why: ResetReason) -> None:
        raise LookupError(f"{partition} {old} {new} {why.name}")

    leader(orders, FIRST).log.delete_before(40)
    consumer = consumer_of(orders, on_offset_reset=refuse)
    await consumer.start()
    consumer.assign([FIRST])
    consumer.seek(FIRST, 7)
    with pytest.raises(LookupError, match="orders-0 7 40 OUT_OF_RANGE"):
        await anext(consumer)
    assert (await anext(consumer)).offset == 40
    await consumer.close()


# ---- lag


async def test_the_lag_of_fetched_partitions_needs_no_request(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST, SECOND])
        assert await consumer.lag() == {FIRST: 100, SECOND: 100}
        records = await take(consumer, 30)
        await until(lambda: all(consumer.high_watermark(partition) == 100 for partition in (FIRST, SECOND)))
        orders.history.clear()
        lag = await consumer.lag()
        assert sum(lag.values()) == 170
        assert orders.history.of(ListOffsetsRequest) == []
        assert await consumer.lag([FIRST]) == {FIRST: lag[FIRST]}
        await take(consumer, 200 - len(records))
        assert await consumer.lag() == {FIRST: 0, SECOND: 0}
        write(orders, FIRST, [b"more"] * 5)
        await until(lambda: consumer.high_watermark(FIRST) == 105)
        assert await consumer.lag() == {FIRST: 5, SECOND: 0}


async def test_the_lag_of_a_paused_partition_is_looked_up(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        await take(consumer, 100)
        consumer.pause()
        await asyncio.sleep(1.0)  # the last fetch is answered
        write(orders, FIRST, [b"more"] * 5)
        assert await consumer.lag() == {FIRST: 5}
        assert consumer.high_watermark(FIRST) == 100  # when it was last fetched


@pytest.mark.parametrize("delays", [(1.5, 3.0), (1.5, 1.5)], ids=["positions", "positions and ends"])
async def test_the_lag_of_several_partitions_ends_within_one_timeout(
    orders: EmbeddedCluster, delays: tuple[float, float]
) -> None:
    loop = asyncio.get_running_loop()
    for partition, delay in zip((FIRST, SECOND), delays):
        orders.on(ListOffsetsRequest, node=orders.leader_of(*partition), times=None).delay(delay, times=None)
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST, SECOND])
        consumer.pause()  # so that ends are asked for, too
        began = loop.time()
        with pytest.raises(KafkaTimeout, match="within"):
            await consumer.lag(timeout=2.0)
        assert loop.time() - began <= 2.0 + 1e-6
        assert await consumer.lag(timeout=10.0) == {FIRST: 100, SECOND: 100}


async def test_a_seek_to_an_end_of_several_partitions_ends_within_one_api_timeout(orders: EmbeddedCluster) -> None:
    loop = asyncio.get_running_loop()
    async with consumer_of(orders, api_timeout=2.0, request_timeout=10.0) as consumer:
        consumer.assign([FIRST, SECOND])
        for partition, delay in ((FIRST, 1.5), (SECOND, 3.0)):
            orders.on(ListOffsetsRequest, node=orders.leader_of(*partition), times=None).delay(delay, times=None)
        began = loop.time()
        with pytest.raises(KafkaTimeout, match="orders-1 was not found within 2 s"):
            await consumer.seek_to_end()
        assert loop.time() - began <= 2.0 + 1e-6


# ---- lookups


async def test_offsets_are_looked_up_at_all_leaders_and_merged(orders: EmbeddedCluster) -> None:
    leader(orders, SECOND).log.delete_before(10)
    async with consumer_of(orders) as consumer:
        both = [FIRST, SECOND]
        assert await consumer.beginning_offsets(both) == {FIRST: 0, SECOND: 10}
        assert await consumer.end_offsets(both) == {FIRST: 100, SECOND: 100}
        offsets = await consumer.offsets_for_times({FIRST: 1_000_000, SECOND: 9_999_999_999})
        assert offsets[FIRST] == (0, 1_000_000, 0)
        assert offsets[SECOND] is None
        with pytest.raises(ValueError, match="-5"):
            await consumer.offsets_for_times({FIRST: -5})


async def test_lookups_are_retried_after_retriable_errors(orders: EmbeddedCluster) -> None:
    orders.on(ListOffsetsRequest, times=2).fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    orders.on(ListOffsetsRequest, nth=1, times=1).disconnect()
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST, SECOND])
        assert await consumer.end_offsets([FIRST, SECOND]) == {FIRST: 100, SECOND: 100}
        assert len(await take(consumer, 200)) == 200


async def test_the_timeout_of_a_lookup_names_the_missing_partitions(orders: EmbeddedCluster) -> None:
    loop = asyncio.get_running_loop()
    async with consumer_of(orders) as consumer:
        await consumer.end_offsets([FIRST])
        orders.on(ListOffsetsRequest, times=None).fail(ErrorCode.LEADER_NOT_AVAILABLE)
        began = loop.time()
        with pytest.raises(KafkaTimeout, match=r"orders-0 .*LEADER_NOT_AVAILABLE"):
            await consumer.end_offsets([FIRST], timeout=4.0)
        assert loop.time() - began == pytest.approx(4.0, abs=0.01)


async def test_a_lookup_of_a_partition_that_does_not_exist_is_an_error_soon(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders) as consumer:
        began = asyncio.get_running_loop().time()
        with pytest.raises(UnknownTopic, match="'orders' has 2 partitions; there is no orders-7") as caught:
            await consumer.end_offsets([TopicPartition("orders", 7)])
        assert (caught.value.topic, caught.value.partition) == ("orders", 7)
        assert asyncio.get_running_loop().time() - began < 3.0


async def test_partitions_that_were_just_added_can_be_looked_up(orders: EmbeddedCluster) -> None:
    new = TopicPartition("orders", 3)
    async with consumer_of(orders) as consumer:
        await consumer.end_offsets([FIRST])
        orders.controller.create_partitions("orders", 4, None)
        assert await consumer.end_offsets([new]) == {new: 0}
        assert await consumer.beginning_offsets([new]) == {new: 0}
        assert await consumer.offsets_for_times({new: 0}) == {new: None}


async def test_the_timeout_of_a_lookup_names_an_unknown_topic(cluster: EmbeddedCluster) -> None:
    async with consumer_of(cluster, allow_auto_create_topics=False, api_timeout=3.0) as consumer:
        began = asyncio.get_running_loop().time()
        with pytest.raises(UnknownTopic, match="nowhere"):
            await consumer.beginning_offsets([TopicPartition("nowhere", 0)])
        with pytest.raises(UnknownTopic, match="nowhere"):
            await consumer.end_offsets([TopicPartition("nowhere", 0)], timeout=2)
        assert asyncio.get_running_loop().time() - began == pytest.approx(5.0, abs=0.1)


# ---- topics


async def test_an_unknown_topic_is_an_error_that_names_it_within_the_api_timeout(cluster: EmbeddedCluster) -> None:
    loop = asyncio.get_running_loop()
    settings = {"api_timeout": 3.0, "allow_auto_create_topics": False}
    with pytest.raises(UnknownTopic, match="nowhere"):
        async with consumer_of(cluster, topics=["nowhere"], **settings):
            pass
    async with consumer_of(cluster, **settings) as consumer:
        consumer.assign([TopicPartition("nowhere", 0)])
        began = loop.time()
        with pytest.raises(UnknownTopic, match="nowhere-0"):
            await anext(consumer)
        assert loop.time() - began == pytest.approx(3.0, abs=0.1)
        assert len(cluster.history.of(MetadataRequest)) < 60


async def test_an_assignment_with_an_invalid_name_is_refused_and_changes_nothing(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        with pytest.raises(InvalidTopic, match="white space"):
            consumer.assign([SECOND, TopicPartition("white space", 0)])
        assert consumer.assignment == (FIRST,)


async def test_a_partition_beyond_the_topics_count_is_an_error_that_names_it(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders) as consumer:
        consumer.assign([TopicPartition("orders", 9), FIRST])
        began = asyncio.get_running_loop().time()
        assert len(await take(consumer, 100)) == 100
        with pytest.raises(UnknownTopic, match="'orders' has 2 partitions; there is no orders-9") as caught:
            await anext(consumer)
        assert (caught.value.topic, caught.value.partition) == ("orders", 9)
        assert asyncio.get_running_loop().time() - began < 3.0


async def test_a_topic_that_may_not_be_read_is_an_error_and_others_continue(orders: EmbeddedCluster) -> None:
    await orders.create_topic("secret")
    orders.on(FetchRequest, topic="secret", times=None).fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    async with consumer_of(orders) as consumer:
        consumer.assign([TopicPartition("secret", 0), FIRST, SECOND])
        errors: set[tuple[object, ...]] = set()
        records = 0
        while records < 200:
            try:
                records += len(await consumer.poll(max_records=20, timeout=1.0))
            except AuthorizationError as error:
                errors.add((error.topic, error.partition, error.offset))
        assert errors == {("secret", 0, 0)}


async def test_a_topic_that_is_created_later_is_read_from_then_on(cluster: EmbeddedCluster) -> None:
    async with consumer_of(cluster, allow_auto_create_topics=False) as consumer:
        consumer.assign([FIRST])
        assert await consumer.poll(timeout=2.0) == []
        await cluster.create_topic("orders")
        write(cluster, FIRST, [b"first"])
        assert [record.value for record in await take(consumer, 1)] == [b"first"]


async def test_partitions_that_are_added_are_read_from_their_beginning_with_any_policy(
    orders: EmbeddedCluster,
) -> None:
    async with consumer_of(orders, topics=["orders"], auto_offset_reset="latest", metadata_max_age=5.0) as consumer:
        await consumer.position(FIRST)
        orders.controller.create_partitions("orders", 4, None)
        third = TopicPartition("orders", 2)
        write(orders, third, [b"before it was noticed"])
        assert [record.value for record in await take(consumer, 1)] == [b"before it was noticed"]
        assert third in consumer.assignment


@pytest.mark.parametrize("policy", ["earliest", "latest"])
async def test_a_topic_created_again_is_read_from_its_beginning(
    orders: EmbeddedCluster, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with consumer_of(orders, auto_offset_reset=policy, metadata_max_age=5.0) as consumer:
        consumer.assign([FIRST])
        consumer.seek(FIRST, 1)
        await take(consumer, 50)
        await orders.delete_topic("orders")
        await orders.create_topic("orders", partitions=2)
        fill(orders, FIRST, 200)
        consumer.pause()
        await asyncio.sleep(10.0)
        consumer.resume()
        assert (await take(consumer, 1))[0].offset == 0
    assert "orders-0 was deleted and created again" in caplog.text


# ---- many partitions

MANY = [TopicPartition("wide", number) for number in range(2 * LOOKUPS_PER_REQUEST + 1)]


@pytest.fixture
async def wide() -> AsyncIterator[EmbeddedCluster]:
    """One broker, with a topic whose offsets take three requests."""
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1) as cluster:
        await cluster.create_topic("wide", partitions=len(MANY))
        fill(cluster, MANY[-1], 1)
        yield cluster


def looked_up(cluster: EmbeddedCluster) -> list[int]:
    """Return the number of partitions in each ListOffsets request."""
    requests = [exchange.request for exchange in cluster.history.of(ListOffsetsRequest)]
    return [sum(len(topic.partitions) for topic in request.topics) for request in requests]


async def test_the_offsets_of_many_partitions_are_looked_up_in_parts(wide: EmbeddedCluster) -> None:
    async with consumer_of(wide) as consumer:
        consumer.assign(MANY)
        assert [record.partition for record in await take(consumer, 1)] == [MANY[-1].partition]
    assert looked_up(wide) == [LOOKUPS_PER_REQUEST, LOOKUPS_PER_REQUEST, 1]


async def test_a_failed_part_of_many_lookups_is_repeated_with_the_parts_behind_it(wide: EmbeddedCluster) -> None:
    wide.on(ListOffsetsRequest, nth=1, times=1).disconnect()
    async with consumer_of(wide) as consumer:
        consumer.assign(MANY)
        assert [record.partition for record in await take(consumer, 1)] == [MANY[-1].partition]
    assert looked_up(wide) == [LOOKUPS_PER_REQUEST, LOOKUPS_PER_REQUEST, LOOKUPS_PER_REQUEST, 1]


async def test_partitions_that_are_refused_together_are_asked_for_again_in_one_request(wide: EmbeddedCluster) -> None:
    wide.on(ListOffsetsRequest, times=1).fail(ErrorCode.LEADER_NOT_AVAILABLE)
    async with consumer_of(wide) as consumer:
        consumer.assign(MANY)
        await until(lambda: len(looked_up(wide)) > 3, "the refused partitions are asked for again")
        assert await consumer.position(MANY[0]) == 0
    assert looked_up(wide) == [LOOKUPS_PER_REQUEST, LOOKUPS_PER_REQUEST, 1, LOOKUPS_PER_REQUEST]


async def test_the_end_offsets_of_many_partitions_are_looked_up_in_parts(wide: EmbeddedCluster) -> None:
    async with consumer_of(wide) as consumer:
        ends = await consumer.end_offsets(MANY)
    assert ends == {partition: int(partition == MANY[-1]) for partition in MANY}
    assert looked_up(wide) == [LOOKUPS_PER_REQUEST, LOOKUPS_PER_REQUEST, 1]
