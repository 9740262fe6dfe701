"""Marks and commits: every processed record is committed and no other one, also after cancellations and refusals."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest

from aiokafka_lite.aio.service import ServiceState
from aiokafka_lite.consumer import Consumer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import (
    BrokerError,
    CommitFailed,
    ConfigurationError,
    ErrorCode,
    IllegalStateError,
    KafkaTimeout,
)
from aiokafka_lite.protocol.messages import (
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from aiokafka_lite.types import OffsetAndMetadata, TopicPartition
from tests.embedded.consumer.direct_writes import fill, take
from tests.embedded.group.recording_members import (
    CONSUMER,
    ORDERS,
    Ownership,
    Worker,
    each_protocol,
    member_of,
    read_all,
    until_stable,
)

FIRST = ORDERS[0]


@pytest.fixture(autouse=True)
async def records(cluster: EmbeddedCluster) -> None:
    fill(cluster, FIRST, 50)


async def committed(cluster: EmbeddedCluster, partition: TopicPartition = FIRST) -> int | None:
    async with member_of(cluster, topics=()) as reader:
        committed = (await reader.committed([partition]))[partition]
        return None if committed is None else committed.offset


def offsets_answer(
    request: OffsetFetchRequest, partitions: Iterable[int], offset: int, code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponse:
    """Return the same answer for each of these partitions of the only topic."""
    (group,) = request.groups
    (topic,) = group.topics or ()
    answers = [
        OffsetFetchResponsePartitions(partition_index=partition, committed_offset=offset, error_code=code)
        for partition in partitions
    ]
    named = OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=answers)
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=group.group_id, topics=[named])])


@each_protocol
async def test_the_record_in_hand_is_never_committed(cluster: EmbeddedCluster, protocol: dict[str, Any]) -> None:
    async with member_of(cluster, **protocol) as consumer:
        async for record in consumer:
            if record.offset == 7:
                result = await consumer.commit()
                assert result.committed[FIRST].offset == 7
            if record.offset == 20:
                await asyncio.sleep(6.0)  # longer than auto_commit_interval
                assert (await consumer.committed([FIRST]))[FIRST] == OffsetAndMetadata(20, "", 0)
            if record.offset == 30:
                break
    assert await committed(cluster) == 30  # closing commits, too


@each_protocol
async def test_polled_records_count_as_processed_at_the_next_poll(
    cluster: EmbeddedCluster, protocol: dict[str, Any]
) -> None:
    async with member_of(cluster, auto_commit=False, **protocol) as consumer:
        await read_all(consumer, 10)
        assert (await consumer.commit()).committed == {}
        assert await consumer.poll(5, timeout=1.0)
        assert (await consumer.commit()).committed[FIRST].offset == 10
        await consumer.poll(5)
    assert await committed(cluster) == 10  # without auto_commit, closing commits nothing


async def test_a_batch_counts_as_processed_when_the_next_is_requested(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as consumer:
        batches = aiter(consumer.batches(max_records=10))
        first = await anext(batches)
        assert (await consumer.commit()).committed == {}
        await anext(batches)
        assert (await consumer.commit()).committed[FIRST].offset == first.offsets[-1] + 1


async def test_a_record_can_be_marked_before_the_next_is_requested(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as consumer:
        (record,) = await take(consumer, 1)
        consumer.mark(record)
        assert (await consumer.commit()).committed[FIRST] == OffsetAndMetadata(1, "", 0)


async def test_calls_during_an_iteration_mark_nothing_too_early(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as consumer:
        async for record in consumer:
            consumer.pause([ORDERS[1]])  # ends the reader's current iterator
            consumer.resume([ORDERS[1]])
            expected = None if record.offset == 0 else record.offset
            result = await consumer.commit()
            assert (result.committed[FIRST].offset if result.committed else None) == expected
            if record.offset == 12:
                break


async def test_committed_offsets_are_not_sent_again(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as consumer:
        await read_all(consumer, 50)
        assert await consumer.poll(timeout=60.0) == []
    assert len(cluster.history.of(OffsetCommitRequest)) == 1


async def test_a_commit_after_seeking_back_goes_back(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as consumer:
        await read_all(consumer, 40)
        await consumer.poll()
        await consumer.commit()
        consumer.seek(FIRST, 5)
        assert (await consumer.commit()).committed == {}
        assert [record.offset for record in await read_all(consumer, 2)] == [5, 6]
        await consumer.poll(1, timeout=1.0)
        assert (await consumer.commit()).committed[FIRST].offset == 7


async def test_an_explicit_commit_can_go_back_and_carries_metadata(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as consumer:
        await read_all(consumer, 40)
        await consumer.poll()
        assert await consumer.commit()
        assert await consumer.commit({FIRST: OffsetAndMetadata(3, "again from here", 0)})
        await asyncio.sleep(10.0)
        assert (await consumer.committed([FIRST]))[FIRST] == OffsetAndMetadata(3, "again from here", 0)


async def test_only_assigned_partitions_can_be_committed(cluster: EmbeddedCluster) -> None:
    elsewhere = TopicPartition("elsewhere", 0)
    async with member_of(cluster) as consumer:
        await read_all(consumer, 1)
        result = await consumer.commit({FIRST: OffsetAndMetadata(1), elsewhere: OffsetAndMetadata(1)})
        assert set(result.committed) == {FIRST}
        assert isinstance(result.refused[elsewhere], IllegalStateError)
        with pytest.raises(CommitFailed, match="elsewhere-0"):
            result.raise_for_refused()


async def test_the_refusal_of_one_partition_does_not_affect_the_others(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as consumer:
        await read_all(consumer, 1)
        notes = {FIRST: OffsetAndMetadata(1), ORDERS[1]: OffsetAndMetadata(0, "x" * 5_000)}
        result = await consumer.commit(notes)
        assert set(result.committed) == {FIRST}
        assert "OFFSET_METADATA_TOO_LARGE" in str(result.refused[ORDERS[1]])


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.REBALANCE_IN_PROGRESS]
)
async def test_a_retriable_refusal_of_a_commit_is_retried(cluster: EmbeddedCluster, code: ErrorCode) -> None:
    async with member_of(cluster) as consumer:
        await read_all(consumer, 10)
        await consumer.poll()
        fault = cluster.on(OffsetCommitRequest).fail(code, times=3)
        assert await consumer.commit()
        assert fault.hits == 3


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH])
async def test_a_commit_whose_leader_epoch_is_refused_is_repeated_without_it(
    cluster: EmbeddedCluster, code: ErrorCode
) -> None:
    """Kafka does not check it; librdkafka's mock cluster refuses the epoch of an earlier leader."""

    def epochs() -> list[int]:
        sent = cluster.history.of(OffsetCommitRequest)
        topics = [exchange.request.topics[0] for exchange in sent]
        return [partition.committed_leader_epoch for topic in topics for partition in topic.partitions]

    async with member_of(cluster) as consumer:
        await read_all(consumer, 10)
        consumer.mark()
        cluster.on(OffsetCommitRequest).fail(code)
        result = await consumer.commit()
        assert result.committed == {FIRST: OffsetAndMetadata(10)}
        assert epochs() == [0, -1]
        assert await consumer.commit()
        assert epochs() == [0, -1]  # nothing is left to commit
        cluster.on(OffsetCommitRequest).fail(code)
        assert await consumer.commit({FIRST: OffsetAndMetadata(8, leader_epoch=0)})
        assert await consumer.commit()
        assert epochs() == [0, -1, 0, -1]  # the same after a commit of given offsets


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH])
@pytest.mark.parametrize(("epoch", "requests"), [(0, 2), (None, 1)])
async def test_a_commit_without_a_leader_epoch_that_is_refused_for_its_epoch_is_final(
    cluster: EmbeddedCluster, code: ErrorCode, epoch: int | None, requests: int
) -> None:
    async with member_of(cluster, auto_commit=False) as consumer:
        await read_all(consumer, 10)
        with cluster.on(OffsetCommitRequest, times=None).fail(code, times=None) as fault:
            result = await consumer.commit({FIRST: OffsetAndMetadata(5, leader_epoch=epoch)})
        assert fault.hits == requests
        assert isinstance(result.refused[FIRST], BrokerError)


async def test_a_commit_ends_within_its_timeout(cluster: EmbeddedCluster) -> None:
    loop = asyncio.get_running_loop()
    async with member_of(cluster, auto_commit=False) as consumer:
        await read_all(consumer, 10)
        await consumer.poll()
        with cluster.on(OffsetCommitRequest, times=None).fail(ErrorCode.NOT_COORDINATOR, times=None) as fault:
            began = loop.time()
            one, two = await asyncio.gather(consumer.commit(timeout=5.0), consumer.commit(timeout=2.0))
            assert loop.time() - began == pytest.approx(5.0, abs=0.01)
            assert fault.hits < 30
        for result in (one, two):
            assert isinstance(result.refused[FIRST], KafkaTimeout)
        assert await consumer.commit()


async def test_many_commits_at_once_end_with_the_newest(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as consumer:
        await read_all(consumer, 50)
        cluster.on(OffsetCommitRequest, nth=2).disconnect(times=2)
        offsets = range(1, 30)
        results = await asyncio.gather(*(consumer.commit({FIRST: OffsetAndMetadata(offset)}) for offset in offsets))
        assert all(results)
        assert (await consumer.committed([FIRST]))[FIRST] == OffsetAndMetadata(29)


async def test_offsets_of_an_open_transaction_are_awaited(cluster: EmbeddedCluster) -> None:
    def unstable(request: OffsetFetchRequest) -> OffsetFetchResponse:
        assert request.require_stable
        return offsets_answer(request, range(len(ORDERS)), -1, ErrorCode.UNSTABLE_OFFSET_COMMIT)

    cluster.on(OffsetFetchRequest, times=4).answer(unstable, times=4)
    async with member_of(cluster) as consumer:
        assert len(await read_all(consumer, 50)) == 50
    assert len(cluster.history.of(OffsetFetchRequest)) == 5


@pytest.mark.parametrize("last", [9, 8, 7, 6, 5, 2])
async def test_older_versions_of_the_offset_requests_work(cluster: EmbeddedCluster, last: int) -> None:
    for node in cluster.nodes:
        cluster.cap_versions(node, OffsetFetchRequest, last)
        cluster.cap_versions(node, OffsetCommitRequest, last)
    async with member_of(cluster) as consumer:
        await read_all(consumer, 20)
        await consumer.poll(1)
        assert (await consumer.commit()).committed[FIRST].offset == 20
    async with member_of(cluster) as consumer:
        assert (await read_all(consumer, 1))[0].offset in (20, 21)


async def test_a_recreated_topic_is_committed_under_its_new_id(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("short", partitions=1)
    short = TopicPartition("short", 0)
    fill(cluster, short, 10)
    async with member_of(cluster, topics=["short"]) as consumer:
        await read_all(consumer, 10)
        await consumer.poll()
        await cluster.delete_topic("short")
        await cluster.create_topic("short", partitions=1)
        result = await consumer.commit(timeout=10.0)
        assert set(result.committed) | set(result.refused) == {short}


async def test_a_consumer_with_assign_can_commit_to_a_group(cluster: EmbeddedCluster) -> None:
    for expected in (0, 20, 40):
        async with member_of(cluster, topics=()) as consumer:
            consumer.assign([FIRST])
            records = await read_all(consumer, 10)
            assert records[0].offset == expected
            records = await read_all(consumer, 10) if expected < 40 else []
            await consumer.poll(1) if expected < 40 else None
            if expected < 40:
                consumer.seek(FIRST, records[-1].offset + 1)
    assert await committed(cluster) == 40


async def test_a_seek_before_the_offsets_are_known_wins(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster, topics=()) as consumer:
        consumer.assign([FIRST])
        await read_all(consumer, 10)
        await consumer.poll()
    consumer = member_of(cluster, topics=())
    consumer.assign([FIRST])
    consumer.seek(FIRST, 33)
    async with consumer:
        assert (await read_all(consumer, 1))[0].offset == 33


@each_protocol
async def test_a_commit_to_the_group_of_other_members_names_the_likely_cause(
    cluster: EmbeddedCluster, protocol: dict[str, Any]
) -> None:
    settings = {"group_id": "billing", "connector": cluster.connector}
    async with Consumer(cluster.bootstrap_servers, topics=["orders"], **settings, **protocol) as member:
        await member.wait_assigned()
        async with Consumer(cluster.bootstrap_servers, **settings) as alone:
            alone.assign([FIRST])
            result = await alone.commit({FIRST: 1})
    cause = "group 'billing' has members, and this consumer is none of them; most likely another consumer subscribes"
    assert cause in str(result.refused[FIRST])
    assert isinstance(result.refused[FIRST], BrokerError)
    assert result.refused[FIRST].code is ErrorCode.UNKNOWN_MEMBER_ID


async def test_an_offset_can_be_committed_right_after_assign(cluster: EmbeddedCluster) -> None:
    """A program that sets the start of another one commits before the group's committed offset is known here."""
    async with member_of(cluster, topics=()) as consumer:
        with cluster.on(OffsetFetchRequest).delay(1.0):
            consumer.assign([FIRST])
            assert await consumer.commit({FIRST: 4})
            consumer.assign([FIRST, ORDERS[1]])
            assert await consumer.commit({ORDERS[1]: 0})
            records = await read_all(consumer, 1)
    assert (records[0].partition, records[0].offset) == (0, 4)
    assert await committed(cluster) == 4


@pytest.mark.parametrize("goes_back", [False, True], ids=["mark", "seek and mark"])
async def test_a_mark_before_the_offsets_are_known_goes_back_only_behind_a_seek(
    cluster: EmbeddedCluster, goes_back: bool
) -> None:
    async with member_of(cluster, topics=()) as consumer:
        consumer.assign([FIRST])
        records = await read_all(consumer, 10)
        assert await consumer.commit({FIRST: 40})
    async with member_of(cluster, topics=(), auto_commit=False) as consumer:
        consumer.assign([FIRST])
        if goes_back:
            consumer.seek(FIRST, 4)
        assert consumer.mark(records[4])
        assert (await read_all(consumer, 1))[0].offset == (4 if goes_back else 40)
        assert await consumer.commit()
    assert await committed(cluster) == (5 if goes_back else 40)


async def test_a_member_whose_group_is_gone_joins_again_and_keeps_its_committed_offset(
    cluster: EmbeddedCluster,
) -> None:
    async with member_of(cluster, **CONSUMER) as consumer:
        await read_all(consumer, 10)
        assert await consumer.commit({FIRST: 40})
    cluster.on(OffsetFetchRequest).fail(ErrorCode.GROUP_ID_NOT_FOUND)
    async with member_of(cluster, **CONSUMER) as consumer:
        assert (await read_all(consumer, 1))[0].offset == 40


async def test_a_group_that_does_not_exist_has_no_offsets(cluster: EmbeddedCluster) -> None:
    """Kafka answers without offsets; other brokers answer that there is no such group."""
    async with member_of(cluster, topics=()) as consumer:
        with cluster.on(OffsetFetchRequest, times=None).fail(ErrorCode.GROUP_ID_NOT_FOUND, times=None):
            consumer.assign([FIRST])
            assert (await read_all(consumer, 1))[0].offset == 0
            assert await consumer.committed([FIRST]) == {FIRST: None}


async def test_commit_without_a_group_is_refused(cluster: EmbeddedCluster) -> None:
    async with Consumer(cluster.bootstrap_servers, connector=cluster.connector, topics=["orders"]) as consumer:
        with pytest.raises(IllegalStateError):
            await consumer.commit()
        with pytest.raises(IllegalStateError):
            consumer.group_metadata()


# Cancellation.


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(20))
async def test_cancelling_any_call_loses_nothing(cluster: EmbeddedCluster, seed: int) -> None:
    """Each call is cancelled after a random number of loop turns, while other members join and leave."""
    choice = random.Random(seed)
    for partition in ORDERS[1:]:
        fill(cluster, partition, 50)
    seen: list[tuple[int, int]] = []
    others: list[Worker] = []
    ownership = Ownership()

    async with member_of(cluster, heartbeat_interval=0.5, auto_commit_interval=0.3) as consumer:

        async def poll() -> None:
            seen.extend((record.partition, record.offset) for record in await consumer.poll(7, timeout=0.5))

        async def step() -> None:
            record = await anext(consumer)
            seen.append((record.partition, record.offset))

        async def commit() -> None:
            await consumer.commit()

        async def look() -> None:
            await consumer.committed(ORDERS)

        for _ in range(60):
            task = asyncio.ensure_future(choice.choice([poll, poll, step, step, commit, look])())
            for _ in range(choice.randrange(30)):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            if choice.random() < 0.1:
                if others and choice.random() < 0.5:
                    await others.pop().stop()
                else:
                    others.append(await Worker(cluster, ownership, f"other-{len(others)}").start())
        for other in others:
            await other.stop()
        async with asyncio.timeout(120):
            while len(seen) + sum(ownership.read.values()) < 300 or await consumer.poll(timeout=8.0):
                await poll()
        await consumer.poll()
        assert await consumer.commit()
        committed = await consumer.committed(ORDERS)
        assert {offset.offset for offset in committed.values() if offset is not None} <= {50}
    everything = set(seen) | {(partition, offset) for _, partition, offset in ownership.read}
    assert len(everything) == 300


@pytest.mark.parametrize("turns", range(0, 60, 3))
async def test_a_cancelled_start_or_close_leaves_no_member(cluster: EmbeddedCluster, turns: int) -> None:
    consumer = member_of(cluster)
    task = asyncio.ensure_future(consumer.start())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    with suppress(IllegalStateError):
        await consumer.close()
    other = member_of(cluster)
    await other.start()
    await read_all(other, 5)
    task = asyncio.ensure_future(other.close())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await other.close()
    async with member_of(cluster) as third:
        third_reads = asyncio.ensure_future(read_all(third, 1))
        await until_stable(third, within=60.0)
        await third_reads


async def test_a_mark_made_during_a_commit_survives_it(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster, auto_commit=False) as consumer:
        await until_stable(consumer)
        commit = asyncio.ensure_future(consumer.commit({FIRST: OffsetAndMetadata(5)}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not commit.done()
        assert consumer.offsets.mark(FIRST, 10)
        assert (await commit).committed[FIRST].offset == 5
        assert (await consumer.commit()).committed[FIRST].offset == 10


@pytest.mark.parametrize("arguments", [("5",), (None,), (1.5,), (True,), (-3,), (2**63,), (5, 7), (5, "", "e")])
async def test_an_invalid_offset_is_refused_by_the_call_that_passes_it(
    cluster: EmbeddedCluster, arguments: tuple[Any, ...]
) -> None:
    async with member_of(cluster, auto_commit_interval=0.5) as consumer:
        await until_stable(consumer)
        with pytest.raises((TypeError, ValueError), match=r"(offset|metadata|leader_epoch) must be"):
            consumer.offsets.mark(FIRST, *arguments)
        with pytest.raises((TypeError, ValueError), match=r"(offset|metadata|leader_epoch) must be"):
            consumer.offsets.reset(FIRST, *arguments)
        with pytest.raises((TypeError, ValueError), match=r"(offset|metadata|leader_epoch) must be"):
            await consumer.commit({FIRST: OffsetAndMetadata(*arguments)})
        await asyncio.sleep(2.0)  # the automatic commit does not fail either
        assert consumer.state is ServiceState.RUNNING


@pytest.mark.parametrize("value", [7, {FIRST: "5"}, {FIRST: True}, {FIRST: None}, {"orders": OffsetAndMetadata(1)}])
async def test_offsets_of_the_wrong_type_are_refused(cluster: EmbeddedCluster, value: Any) -> None:
    async with member_of(cluster) as consumer:
        await until_stable(consumer)
        with pytest.raises(TypeError):
            await consumer.commit(value)


async def test_an_int_is_committed_as_an_offset_without_metadata(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as consumer:
        await until_stable(consumer)
        assert (await consumer.commit({FIRST: 5})).committed == {FIRST: OffsetAndMetadata(5)}


async def test_a_plain_tuple_is_accepted_as_a_partition(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as consumer:
        await until_stable(consumer)
        assert consumer.offsets.mark(("orders", 0), 5)  # type: ignore[arg-type]
        assert (await consumer.commit()).committed == {FIRST: OffsetAndMetadata(5)}
        with pytest.raises(TypeError, match="partition must be"):
            consumer.offsets.mark(("orders", "0"), 5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="partition must be"):
            await consumer.commit({("orders", "0"): OffsetAndMetadata(5)})  # type: ignore[dict-item]
        with pytest.raises(ConfigurationError, match=r"timeout must be .* got '5'"):
            await consumer.offsets.commit(timeout="5")  # type: ignore[arg-type]


async def test_a_poll_that_is_too_short_for_an_async_deserializer_returns_the_finished_records(
    cluster: EmbeddedCluster,
) -> None:
    async def slowly(data: bytes) -> bytes:
        await asyncio.sleep(0.03)
        return data

    async with member_of(cluster, value_deserializer=slowly) as consumer:
        await until_stable(consumer)
        offsets: list[int] = []
        for _ in range(25):
            began = asyncio.get_running_loop().time()
            offsets += [record.offset for record in await consumer.poll(500, timeout=0.1)]
            assert asyncio.get_running_loop().time() - began <= 0.1 + 1e-6
        assert offsets == list(range(50))


async def test_skipping_many_records_yields_to_the_event_loop(cluster: EmbeddedCluster) -> None:
    in_this_turn: list[bytes] = []
    longest = 0

    def refuse(data: bytes) -> bytes:
        nonlocal longest
        in_this_turn.append(data)
        longest = max(longest, len(in_this_turn))
        asyncio.get_running_loop().call_soon(in_this_turn.clear)
        raise ValueError(data)

    async with member_of(cluster, value_deserializer=refuse, on_deserialization_error="skip") as consumer:
        assert await consumer.poll(500, timeout=30.0) == []
    assert 0 < longest < 10
