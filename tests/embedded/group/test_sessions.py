"""``ConsumerGroup``: handlers, sessions and claims, over rebalances and errors."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from aiokafka_lite.consumer import Claim, ConsumerGroup, ConsumerGroupHandler, ConsumerGroupSession
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import BrokerError, ConfigurationError, ErrorCode, IllegalStateError
from aiokafka_lite.producer import Producer
from aiokafka_lite.protocol.messages import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest
from aiokafka_lite.types import Record, TopicPartition
from tests.embedded.consumer.direct_writes import fill
from tests.embedded.group.recording_members import ORDERS, each_way, member_of


class Recorder(ConsumerGroupHandler):
    """Reads and marks everything, and records the calls of its methods."""

    def __init__(self, *, work: float = 0.0) -> None:
        self.work = work
        self.calls: list[str] = []
        self.read: list[Record] = []
        self.sessions: list[ConsumerGroupSession] = []
        self.reading: set[TopicPartition] = set()

    async def setup(self, session: ConsumerGroupSession) -> None:
        assert not self.reading
        self.sessions.append(session)
        self.calls.append(f"setup {sum(map(len, session.claims.values()))}")

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
        partition = TopicPartition(claim.topic, claim.partition)
        self.reading.add(partition)
        try:
            async for record in claim:
                self.read.append(record)
                if self.work:
                    await asyncio.sleep(self.work)
                session.mark(record)
        finally:
            self.reading.discard(partition)

    async def cleanup(self, session: ConsumerGroupSession) -> None:
        assert not self.reading
        assert session.cancelled
        self.calls.append("cleanup")


def group_of(cluster: EmbeddedCluster, **settings: Any) -> ConsumerGroup:
    settings = {"group_id": "workers", **settings}
    return ConsumerGroup(cluster.bootstrap_servers, connector=cluster.connector, **settings)


async def until(condition: Callable[[], bool], within: float = 60.0) -> None:
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.05)  # virtual


class Running:
    """A group that consumes in its own task."""

    def __init__(self, cluster: EmbeddedCluster, handler: ConsumerGroupHandler, **settings: Any) -> None:
        self.group = group_of(cluster, **settings)
        self.task = asyncio.create_task(self.group.consume(["orders"], handler))

    async def cancel(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


async def committed(cluster: EmbeddedCluster) -> dict[TopicPartition, int]:
    async with member_of(cluster, topics=()) as reader:
        committed = await reader.committed(ORDERS)
        return {partition: offset.offset for partition, offset in committed.items() if offset is not None}


async def test_each_claim_of_a_session_is_read_by_its_own_task(cluster: EmbeddedCluster) -> None:
    for partition in ORDERS:
        fill(cluster, partition, 30)
    handler = Recorder()
    running = Running(cluster, handler)
    await until(lambda: len(handler.read) == 180)
    assert len(handler.reading) == 6
    (session,) = handler.sessions
    assert session.claims == {"orders": (0, 1, 2, 3, 4, 5)}
    assert session.member_id
    assert session.generation_id == 1
    assert not session.cancelled
    await running.cancel()
    assert handler.calls == ["setup 6", "cleanup"]
    assert session.cancelled
    assert await committed(cluster) == dict.fromkeys(ORDERS, 30)


async def test_a_claim_has_its_initial_offset_and_high_watermark(cluster: EmbeddedCluster) -> None:
    fill(cluster, ORDERS[0], 30)
    seen: list[tuple[int | None, int | None]] = []

    class Handler(ConsumerGroupHandler):
        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
            async for record in claim:
                session.mark(record)
                if record.offset in (9, 19):
                    await asyncio.sleep(0.1)
                    seen.append((claim.initial_offset, claim.high_watermark))
                    raise ValueError("enough")

    for _ in range(2):
        with pytest.raises(ValueError, match="enough"):
            await group_of(cluster).consume(["orders"], Handler())
    assert seen == [(0, 30), (10, 30)]


@each_way
async def test_a_rebalance_ends_the_session_and_nothing_is_read_twice(
    cluster: EmbeddedCluster, settings: dict[str, Any]
) -> None:
    for partition in ORDERS:
        fill(cluster, partition, 50)
    handlers = [Recorder(work=0.2) for _ in range(3)]
    running = []
    for handler in handlers:
        running.append(Running(cluster, handler, **settings))
        await asyncio.sleep(4.0)
    await until(lambda: sum(len(handler.read) for handler in handlers) >= 300)
    counts = Counter((record.partition, record.offset) for handler in handlers for record in handler.read)
    assert len(counts) == 300
    assert set(counts.values()) == {1}
    await until(lambda: [len(handler.reading) for handler in handlers] == [2, 2, 2])
    assert handlers[0].calls[:2] == ["setup 6", "cleanup"]
    for group in running:
        await group.cancel()
    assert all(handler.calls[-1] == "cleanup" for handler in handlers)
    assert await committed(cluster) == dict.fromkeys(ORDERS, 50)


async def test_a_claim_that_does_not_end_is_cancelled_when_the_time_is_over(cluster: EmbeddedCluster) -> None:
    cancelled_at: list[float] = []
    began: list[float] = []

    class Stubborn(Recorder):
        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
            began.append(asyncio.get_running_loop().time())
            try:
                await asyncio.sleep(10_000)
            except asyncio.CancelledError:
                cancelled_at.append(asyncio.get_running_loop().time())
                raise

    stubborn, other = Stubborn(), Recorder()
    one = Running(cluster, stubborn, rebalance_timeout=20.0)
    await until(lambda: len(began) == 6)
    two = Running(cluster, other, rebalance_timeout=20.0)
    await until(lambda: len(other.reading) == 3)
    assert len(cancelled_at) == 6
    assert max(cancelled_at) < 3.5 + 20.0
    await one.cancel()
    await two.cancel()


@pytest.mark.parametrize("where", ["setup", "consume_claim", "cleanup"])
async def test_consume_raises_an_error_of_the_handler_after_leaving_the_group(
    cluster: EmbeddedCluster, where: str
) -> None:
    fill(cluster, ORDERS[0], 10)

    class Wrong(Recorder):
        async def setup(self, session: ConsumerGroupSession) -> None:
            await super().setup(session)
            if where == "setup":
                raise ValueError("wrong")

        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
            await super().consume_claim(session, claim)
            assert where == "cleanup"

        async def cleanup(self, session: ConsumerGroupSession) -> None:
            await super().cleanup(session)
            if where == "cleanup":
                raise ValueError("wrong")

    class Once(Wrong):
        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
            if where == "consume_claim" and claim.partition == 3:
                raise ValueError("wrong")
            async for record in claim:
                session.mark(record)

    group = group_of(cluster)
    if where == "cleanup":
        asyncio.get_running_loop().call_later(5.0, lambda: asyncio.ensure_future(group.close()))
    with pytest.raises(ValueError, match="wrong"):
        await group.consume(["orders"], Once())
    assert len(cluster.history.of(LeaveGroupRequest)) == 1
    if where == "consume_claim":
        assert (await committed(cluster)).get(ORDERS[0], 10) == 10
    await group.close()


async def test_a_claim_that_returns_early_ends_only_itself(cluster: EmbeddedCluster) -> None:
    for partition in ORDERS:
        fill(cluster, partition, 10)

    class Picky(Recorder):
        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
            if claim.partition:
                await super().consume_claim(session, claim)

    handler = Picky()
    running = Running(cluster, handler)
    await until(lambda: len(handler.read) == 50)
    assert handler.calls == ["setup 6"]
    await running.cancel()
    assert handler.calls == ["setup 6", "cleanup"]


async def test_close_ends_consume_which_returns(cluster: EmbeddedCluster) -> None:
    handler = Recorder()
    async with group_of(cluster) as group:
        task = asyncio.create_task(group.consume(["orders"], handler))
        await until(lambda: len(handler.reading) == 6)
        began = asyncio.get_running_loop().time()
        await group.close()
        assert asyncio.get_running_loop().time() - began <= 5.0
        assert task.done()
        await task
        with pytest.raises(IllegalStateError):
            await group.consume(["orders"], handler)
    assert handler.calls == ["setup 6", "cleanup"]


async def test_marks_go_forward_and_resets_go_both_ways(cluster: EmbeddedCluster) -> None:
    fill(cluster, ORDERS[0], 10)
    results: list[Any] = []

    class Handler(ConsumerGroupHandler):
        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
            if claim.partition:
                return
            results.append(session.offsets.mark(ORDERS[0], 7, "seven"))
            results.append(session.offsets.mark(ORDERS[0], 5))
            results.append((await session.commit()).committed[ORDERS[0]])
            results.append(session.offsets.reset(ORDERS[0], 3, "back"))
            results.append((await session.commit()).committed[ORDERS[0]])
            results.append(session.offsets.mark(TopicPartition("elsewhere", 0), 3))
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        await group_of(cluster, auto_commit=False).consume(["orders"], Handler())
    assert [results[index] for index in (0, 1, 3, 5)] == [True, False, True, False]
    assert (results[2].offset, results[2].metadata) == (7, "seven")
    assert (results[4].offset, results[4].metadata) == (3, "back")
    assert await committed(cluster) == {ORDERS[0]: 3}


async def test_wrong_arguments_of_marks_and_commits_are_refused_by_name(cluster: EmbeddedCluster) -> None:
    mistakes: list[tuple[Callable[[ConsumerGroupSession], Any], type[Exception], str]] = [
        (lambda session: session.mark("x"), TypeError, "record must be"),  # type: ignore[arg-type]
        (lambda session: session.offsets.mark(("orders", "0"), 5), TypeError, "partition"),  # type: ignore[arg-type]
        (lambda session: session.offsets.reset((5, 0), 5), TypeError, "partition"),  # type: ignore[arg-type]
        (lambda session: session.offsets.mark(ORDERS[0], "5"), TypeError, "offset"),  # type: ignore[arg-type]
        (lambda session: session.commit(timeout="1"), ConfigurationError, "timeout"),  # type: ignore[arg-type]
        (lambda session: session.wait_cancelled(timeout="1"), ConfigurationError, "timeout"),  # type: ignore[arg-type]
    ]

    class Mistaken(Recorder):
        async def setup(self, session: ConsumerGroupSession) -> None:
            for call, kind, says in mistakes:
                with pytest.raises(kind, match=says):
                    result = call(session)
                    if asyncio.iscoroutine(result):
                        await result
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        await group_of(cluster).consume(["orders"], Mistaken())


async def test_an_ended_session_refuses_marks(cluster: EmbeddedCluster) -> None:
    handler = Recorder()
    running = Running(cluster, handler)
    await until(lambda: len(handler.reading) == 6)
    await running.cancel()
    with pytest.raises(IllegalStateError):
        handler.sessions[0].offsets.mark(ORDERS[0], 5)


async def test_errors_of_the_group_can_be_iterated_over(cluster: EmbeddedCluster) -> None:
    handler = Recorder()
    cluster.on(JoinGroupRequest).fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=2)
    group = group_of(cluster)
    task = asyncio.create_task(group.consume(["orders"], handler))
    errors = group.errors()
    async with asyncio.timeout(30):
        assert "COORDINATOR_LOAD_IN_PROGRESS" in str(await anext(errors))
        assert "COORDINATOR_LOAD_IN_PROGRESS" in str(await anext(errors))
    await until(lambda: len(handler.reading) == 6)
    waiting = asyncio.create_task(anext(errors))
    await asyncio.sleep(1.0)
    await group.close()
    with pytest.raises(StopAsyncIteration):
        await waiting
    await task


async def test_a_session_that_is_lost_is_cleaned_up_and_another_begins(cluster: EmbeddedCluster) -> None:
    handler = Recorder()
    running = Running(cluster, handler)
    await until(lambda: len(handler.reading) == 6)
    cluster.on(HeartbeatRequest).fail(ErrorCode.UNKNOWN_MEMBER_ID)
    await until(lambda: len(handler.sessions) == 2)
    assert handler.calls == ["setup 6", "cleanup", "setup 6"]
    await running.cancel()


async def test_consume_checks_its_arguments_and_refuses_a_second_call(cluster: EmbeddedCluster) -> None:
    group = group_of(cluster)
    with pytest.raises(ConfigurationError):
        await group.consume([], Recorder())
    with pytest.raises(ConfigurationError):
        await group.consume("orders", Recorder())
    for wrong in (Recorder, print, None):
        with pytest.raises(TypeError, match="handler must be"):
            await group.consume(["orders"], wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="group_id is required"):
        group_of(cluster, group_id=None)
    handler = Recorder()
    task = asyncio.create_task(group.consume(["orders"], handler))
    await until(lambda: bool(handler.reading))
    with pytest.raises(IllegalStateError, match="already"):
        await group.consume(["orders"], handler)
    await group.close()
    await task


async def test_a_group_that_finds_no_broker_can_be_closed_at_once(cluster: EmbeddedCluster) -> None:
    group = ConsumerGroup(["nowhere.invalid:9092"], connector=cluster.connector, group_id="workers")
    task = asyncio.create_task(group.consume(["orders"], Recorder()))
    await asyncio.sleep(0.5)
    began = asyncio.get_running_loop().time()
    await group.close()
    assert asyncio.get_running_loop().time() - began <= 5.0
    assert await task is None


@pytest.mark.parametrize("after", [0.0, 0.001, 0.5, 3.2, 4.0])
@each_way
async def test_closing_a_group_during_a_rebalance_is_quick_and_leaves_it(
    cluster: EmbeddedCluster, settings: dict[str, Any], after: float
) -> None:
    for partition in ORDERS:
        fill(cluster, partition, 100)
    one, two = Recorder(work=0.3), Recorder(work=0.3)
    first = Running(cluster, one, **settings)
    await until(lambda: len(one.reading) == 6)
    second = Running(cluster, two, **settings)
    await asyncio.sleep(after)
    for running in (second, first):
        began = asyncio.get_running_loop().time()
        await running.group.close()
        assert asyncio.get_running_loop().time() - began <= 5.0
        await running.task
    assert not one.reading
    assert not two.reading
    assert one.calls.count("cleanup") == len(one.sessions)
    groups = [node.groups.group("workers") for node in cluster.nodes.values()]
    assert all(group is None or not group.members for group in groups)
    read = {(record.partition, record.offset) for record in one.read + two.read}
    done = await committed(cluster)
    assert all((partition.partition, offset) in read for partition, end in done.items() for offset in range(end))


async def test_a_second_member_with_the_same_instance_id_ends_the_first_consume(cluster: EmbeddedCluster) -> None:
    older, newer = Recorder(), Recorder()
    first = Running(cluster, older, group_instance_id="a")
    await until(lambda: len(older.reading) == 6)
    second = Running(cluster, newer, group_instance_id="a")
    with pytest.raises(BrokerError, match="group_instance_id") as raised:
        await first.task
    assert raised.value.code is ErrorCode.FENCED_INSTANCE_ID
    assert older.calls == ["setup 6", "cleanup"]
    await until(lambda: len(newer.reading) == 6)
    await asyncio.sleep(10.0)
    assert newer.calls == ["setup 6"]
    await second.cancel()


# Transaction markers.


async def write_transactions(cluster: EmbeddedCluster, count: int) -> None:
    """Write transactions of one record each to the first partition. Each takes two offsets: a record and its marker."""
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector, transactional_id="t") as producer:
        for _ in range(count):
            async with producer.transaction() as transaction:
                await transaction.send("orders", b"", partition=0)


class Chooses(Recorder):
    """Marks the first record, and seeks behind it to ``then``, if that is an offset."""

    def __init__(self, then: int | None) -> None:
        super().__init__()
        self.then = then

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
        async for record in claim:
            self.read.append(record)
            if record.offset == 0:
                session.mark(record)
                if self.then is not None:
                    claim.seek(self.then)


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (Recorder(), 6),
        (Chooses(None), 1),
        (Chooses(6), 1),
    ],
    ids=["all marked", "one marked", "one marked, the others skipped by a seek"],
)
async def test_a_mark_moves_behind_transaction_markers_but_not_behind_unmarked_records(
    cluster: EmbeddedCluster, handler: Recorder, expected: int
) -> None:
    await write_transactions(cluster, 3)
    running = Running(cluster, handler)
    await until(lambda: bool(handler.read))
    await asyncio.sleep(20.0)  # longer than auto_commit_interval
    assert (await committed(cluster))[ORDERS[0]] == expected
    await running.cancel()
    assert (await committed(cluster))[ORDERS[0]] == expected


class GoesBack(Recorder):
    """Marks every record, seeks back to the record at offset 2 once, and keeps that record instead of marking it."""

    kept: Record | None = None

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
        is_back = False
        async for record in claim:
            self.read.append(record)
            if not is_back:
                session.mark(record)
            elif record.offset == 2:
                self.kept = record
            if record.offset == 4 and not is_back:
                is_back = True
                claim.seek(2)


async def test_the_first_mark_after_a_seek_may_move_back_although_the_old_mark_was_reached(
    cluster: EmbeddedCluster,
) -> None:
    await write_transactions(cluster, 3)
    handler = GoesBack()
    running = Running(cluster, handler)
    await until(lambda: len(handler.read) == 5)
    await asyncio.sleep(20.0)  # longer than auto_commit_interval
    assert handler.kept is not None
    assert handler.sessions[0].mark(handler.kept)
    await asyncio.sleep(20.0)
    assert (await committed(cluster))[ORDERS[0]] == 3
    await running.cancel()
