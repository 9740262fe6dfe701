"""Handlers and listeners that hang, are cancelled, block the event loop, or leave records unmarked."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import anyio
import pytest

from aiokafka_lite.consumer import (
    Claim,
    ConsumerGroupHandler,
    ConsumerGroupSession,
    RebalanceHandle,
    RebalanceListener,
    ResetReason,
)
from aiokafka_lite.consumer.group.group_core import CLAIMS_PER_ITERATION
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.coordinators.groups.records import OFFSETS_TOPIC, partition_of
from aiokafka_lite.errors import ConfigurationError, CorruptRecord, ErrorCode, IllegalStateError, KafkaTimeout
from aiokafka_lite.group import CommitResult
from aiokafka_lite.protocol.messages import HeartbeatRequest
from aiokafka_lite.protocol.records import encode_batch
from aiokafka_lite.types import Record, TopicPartition
from tests.case_notes import seeds
from tests.embedded.consumer.direct_writes import fill, write_batch
from tests.embedded.group.recording_members import CONSUMER, COOPERATIVE, ORDERS, each_way, member_of, now
from tests.embedded.group.test_sessions import Recorder, Running, committed, group_of, until

QUICK: dict[str, Any] = {"session_timeout": 6.0, "heartbeat_interval": 1.0, "rebalance_timeout": 8.0}


# ---- handlers that are not coroutines


async def test_a_handler_of_plain_functions_is_refused(cluster: EmbeddedCluster) -> None:
    class Plain(ConsumerGroupHandler[bytes, bytes]):
        def consume_claim(self, session: ConsumerGroupSession, claim: Claim[bytes, bytes]) -> None:  # type: ignore[override]
            pass

    async with group_of(cluster) as group:
        with pytest.raises(TypeError, match=r"consume_claim\(\) of .* must be defined by 'async def'"):
            await group.consume(["orders"], Plain())


class Failing(ConsumerGroupHandler[bytes, bytes]):
    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim[bytes, bytes]) -> None:
        raise RuntimeError("all of them")


class MarksInItsFirstSession(ConsumerGroupHandler[bytes, bytes]):
    """Marks a record in the first session, and commits in the second."""

    def __init__(self) -> None:
        self.sessions = 0
        self.marked = asyncio.Event()
        self.result: asyncio.Future[CommitResult] = asyncio.get_running_loop().create_future()

    async def setup(self, session: ConsumerGroupSession) -> None:
        self.sessions += 1
        if self.sessions == 2:
            self.result.set_result(await session.commit())

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim[bytes, bytes]) -> None:
        async for record in claim:
            if self.sessions == 1:
                session.mark(record)
                self.marked.set()


async def test_a_session_does_not_report_marks_of_the_session_before(cluster: EmbeddedCluster) -> None:
    fill(cluster, ORDERS[0], 1)
    handler = MarksInItsFirstSession()
    running = Running(cluster, handler, auto_commit=False, **QUICK)
    await handler.marked.wait()
    cluster.on(HeartbeatRequest).fail(ErrorCode.UNKNOWN_MEMBER_ID)
    assert (await handler.result).refused == {}
    await running.cancel()


async def test_claims_that_all_fail_alike_are_reported_once(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with group_of(cluster) as group:
        with pytest.raises(RuntimeError, match="all of them"):
            await group.consume(["orders"], Failing())
    assert "all of them" not in caplog.text


# ---- handlers that hang


class Hanging(Recorder):
    """Hangs in one of its methods, until it is cancelled."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.cancelled_after: list[float] = []

    async def _hang(self, where: str) -> None:
        if where == self.where:
            began = now()
            try:
                await asyncio.sleep(10_000)
            finally:
                self.cancelled_after.append(now() - began)

    async def setup(self, session: ConsumerGroupSession) -> None:
        await super().setup(session)
        await self._hang("setup")

    async def cleanup(self, session: ConsumerGroupSession) -> None:
        await super().cleanup(session)
        await self._hang("cleanup")


async def test_a_setup_that_hangs_is_cancelled_and_the_member_leaves(cluster: EmbeddedCluster) -> None:
    handler = Hanging("setup")
    began = now()
    with pytest.raises(KafkaTimeout, match=r"setup\(\) took longer than 8 s"):
        await group_of(cluster, **QUICK).consume(["orders"], handler)
    assert handler.cancelled_after == [pytest.approx(8.0)]
    assert now() - began < 20.0
    assert handler.calls == ["setup 6"]
    other = Recorder()
    running = Running(cluster, other, **QUICK)
    await until(lambda: len(other.reading) == 6, within=1.0)
    await running.cancel()


@pytest.mark.parametrize("settings", [{}, COOPERATIVE], ids=["eager", "cooperative"])
async def test_a_cleanup_that_hangs_delays_a_rebalance_by_its_timeout_only(
    cluster: EmbeddedCluster, settings: dict[str, Any]
) -> None:
    for partition in ORDERS:
        fill(cluster, partition, 10)
    handler, other = Hanging("cleanup"), Recorder()
    one = Running(cluster, handler, **QUICK, **settings)
    await until(lambda: len(handler.read) == 60)
    two = Running(cluster, other, **QUICK, **settings)
    with pytest.raises(KafkaTimeout, match=r"cleanup\(\) took longer than 8 s"):
        await one.task
    await until(lambda: len(other.reading) == 6, within=10.0)
    await two.cancel()
    assert await committed(cluster) == dict.fromkeys(ORDERS, 10)


async def test_a_cleanup_that_hangs_when_the_group_is_closed_costs_no_commit(cluster: EmbeddedCluster) -> None:
    for partition in ORDERS:
        fill(cluster, partition, 10)
    handler = Hanging("cleanup")
    running = Running(cluster, handler)
    await until(lambda: len(handler.read) == 60)
    began = now()
    await running.group.close()
    assert now() - began <= 5.0
    with pytest.raises(KafkaTimeout, match=r"cleanup\(\)"):
        await running.task
    assert await committed(cluster) == dict.fromkeys(ORDERS, 10)
    assert all(group is None or not group.members for group in groups(cluster))


class FailsBesideAStubbornClaim(ConsumerGroupHandler):
    """The claim of the first partition fails. The one of the second does not end for a minute, although cancelled."""

    def __init__(self) -> None:
        self.is_over = asyncio.Event()

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
        if claim.partition == 0:
            raise RuntimeError("the first claim fails")
        if claim.partition == 1:
            with anyio.CancelScope(shield=True):
                await asyncio.sleep(60.0)
            self.is_over.set()


async def test_the_exception_of_a_handler_is_raised_although_another_claim_resists_cancellation(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    handler = FailsBesideAStubbornClaim()
    with pytest.raises(RuntimeError, match="the first claim fails"):
        await group_of(cluster).consume(["orders"], handler)
    assert "these tasks were cancelled and still run: GroupRun, claim of orders-1" in caplog.text
    await handler.is_over.wait()


def groups(cluster: EmbeddedCluster) -> list[Any]:
    return [node.groups.group("workers") for node in cluster.nodes.values()]


# ---- handlers that await a cancelled task


async def awaits_what_is_cancelled() -> None:
    task = asyncio.ensure_future(asyncio.sleep(10_000))
    asyncio.get_running_loop().call_later(0.5, task.cancel)
    await task


@pytest.mark.parametrize("where", ["setup", "consume_claim", "cleanup"])
async def test_a_cancelled_error_of_the_handlers_own_is_an_error(cluster: EmbeddedCluster, where: str) -> None:
    class Own(Recorder):
        async def setup(self, session: ConsumerGroupSession) -> None:
            await super().setup(session)
            if where == "setup":
                await awaits_what_is_cancelled()

        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
            if where == "consume_claim" and claim.partition == 3:
                await awaits_what_is_cancelled()
            await super().consume_claim(session, claim)

        async def cleanup(self, session: ConsumerGroupSession) -> None:
            await super().cleanup(session)
            if where == "cleanup":
                await awaits_what_is_cancelled()

    handler = Own()
    running = Running(cluster, handler)
    await until(lambda: bool(handler.sessions))
    if where == "cleanup":
        await running.group.close()
    with pytest.raises(IllegalStateError, match=rf"{where}\(\).*raised CancelledError") as raised:
        await running.task
    assert isinstance(raised.value.__cause__, asyncio.CancelledError)
    assert all(group is None or not group.members for group in groups(cluster))


async def test_a_cancelled_error_of_the_listeners_own_is_an_error(cluster: EmbeddedCluster) -> None:
    class Own(RebalanceListener):
        async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
            await awaits_what_is_cancelled()

    consumer = member_of(cluster, listener=Own())
    await consumer.start()
    with pytest.raises(IllegalStateError, match=r"on_assigned\(\) raised CancelledError"):
        await consumer.poll(timeout=10.0)
    await consumer.close()


# ---- handlers that block the event loop


@pytest.mark.parametrize("blocked", [1.0, 5.0, 20.0])
@pytest.mark.parametrize("settings", [{}, COOPERATIVE], ids=["eager", "cooperative"])
async def test_a_claim_that_blocks_the_event_loop_costs_the_session_only_beyond_its_timeout(
    cluster: EmbeddedCluster, settings: dict[str, Any], blocked: float, caplog: pytest.LogCaptureFixture
) -> None:
    loop: Any = asyncio.get_running_loop()
    for partition in ORDERS:
        fill(cluster, partition, 20)

    class Blocking(Recorder):
        has_blocked = False

        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
            async for record in claim:
                if record.offset == 10 and claim.partition == 2 and not self.has_blocked:
                    self.has_blocked = True
                    # For all other code, also the coordinator's timers, this looks like a blocked loop.
                    loop.now += blocked
                self.read.append(record)
                await asyncio.sleep(0.1)
                session.mark(record)

    handler = Blocking()
    with caplog.at_level(logging.WARNING, logger="aiokafka_lite.group"):
        running = Running(cluster, handler, session_timeout=10.0, heartbeat_interval=2.0, **settings)
        await until(lambda: handler.has_blocked)
        await until(lambda: len({(record.partition, record.offset) for record in handler.read}) == 120)
        await asyncio.sleep(5.0)
    assert [call for call in handler.calls if call == "setup 6"] == ["setup 6"] * (1 if blocked < 10.0 else 2)
    said = [record for record in caplog.records if "blocked" in record.getMessage()]
    assert len(said) == (0 if blocked == 1.0 else 1)
    await running.cancel()
    assert await committed(cluster) == dict.fromkeys(ORDERS, 20)


# ---- handlers that leave work behind


@pytest.mark.parametrize("how", ["returns", "is cancelled"])
async def test_records_that_a_claim_did_not_mark_are_read_again_in_the_next_session(
    cluster: EmbeddedCluster, how: str
) -> None:
    for partition in ORDERS:
        fill(cluster, partition, 30)
    done: set[tuple[int, int]] = set()

    class Lists(Recorder):
        """Processes seven records at a time and marks the last one; at the end it drops the remaining records."""

        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
            self.reading.add(TopicPartition(claim.topic, claim.partition))
            records = []
            try:
                async for record in claim:
                    records.append(record)
                    if len(records) == 7 or record.offset == 29:
                        done.update((record.partition, record.offset) for record in records)
                        session.mark(records[-1])
                        records.clear()
                    await asyncio.sleep(0.3)
                if how == "is cancelled":
                    await asyncio.sleep(10_000)
            finally:
                self.reading.discard(TopicPartition(claim.topic, claim.partition))

    handlers = [Lists() for _ in range(3)]
    running = []
    for handler in handlers:
        running.append(Running(cluster, handler, heartbeat_interval=0.5, rebalance_timeout=6.0, **COOPERATIVE))
        await asyncio.sleep(2.0)
    with suppress(TimeoutError):
        await until(lambda: len(done) == 180)
    assert sum(len(handler.sessions) for handler in handlers) > 3
    for group in running:
        await group.cancel()
    assert len(done) == 180
    assert await committed(cluster) == dict.fromkeys(ORDERS, 30)


async def test_a_mark_skips_a_damaged_batch(cluster: EmbeddedCluster) -> None:
    fill(cluster, ORDERS[0], 20)
    write_batch(cluster, ORDERS[0], encode_batch([(0, None, b"bad", ())] * 10), damage=3)
    fill(cluster, ORDERS[0], 10)
    errors: list[CorruptRecord] = []

    class Careful(Recorder):
        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
            try:
                await super().consume_claim(session, claim)
            except CorruptRecord as error:
                errors.append(error)
                session.offsets.mark(claim.topic_partition, error.next_offset or 0)

    handler, other = Careful(), Recorder()
    one = Running(cluster, handler, **COOPERATIVE)
    await until(lambda: bool(errors))
    assert (errors[0].offset, errors[0].next_offset) == (20, 30)
    two = Running(cluster, other, **COOPERATIVE)  # so that another session begins
    await until(lambda: len(handler.read) + len(other.read) == 30)
    assert len(errors) == 1
    await one.cancel()
    await two.cancel()
    assert await committed(cluster) == {ORDERS[0]: 40}


async def test_marks_follow_a_recreated_topic_and_the_reset_is_reported(cluster: EmbeddedCluster) -> None:
    fill(cluster, ORDERS[0], 30)
    heard: list[tuple[TopicPartition, int, int, ResetReason]] = []
    handler = Recorder()
    running = Running(cluster, handler, metadata_max_age=2.0, on_offset_reset=lambda *reset: heard.append(reset))
    await until(lambda: len(handler.read) == 30)
    await cluster.delete_topic("orders")
    await cluster.create_topic("orders", partitions=6)
    fill(cluster, ORDERS[0], 10)
    await until(lambda: len(handler.read) == 40)
    await asyncio.sleep(1.0)
    await running.cancel()
    assert (ORDERS[0], 30, 0, ResetReason.RECREATED) in heard
    assert await committed(cluster) == {ORDERS[0]: 10}
    with pytest.raises(ConfigurationError, match="on_offset_reset must be a function, got 5"):
        group_of(cluster, on_offset_reset=5)


# ---- all of these at once


class Storm:
    """The records that all handlers of a test have processed, and the sessions that read each partition."""

    def __init__(self, late: float) -> None:
        self.late = late
        self.done: set[tuple[int, int]] = set()
        self.owners: dict[int, ConsumerGroupSession | None] = {}
        self.clashes: list[str] = []

    def claimed(self, session: ConsumerGroupSession, number: int) -> None:
        """Record a new reader, and a clash if another member still reads and belongs to the group.

        The group does not wait for a member without a generation: it had no contact for its session timeout.
        """
        owner = self.owners.get(number)
        if owner is not None and owner.generation_id >= 0:
            self.clashes.append(f"{number} has two readers")
        self.owners[number] = session


class Careless(ConsumerGroupHandler):
    """Processes some records at once and marks the last; is late, returns early, and drops records."""

    def __init__(self, storm: Storm, choice: random.Random) -> None:
        self.storm = storm
        self.choice = choice

    async def setup(self, session: ConsumerGroupSession) -> None:
        await asyncio.sleep(self.choice.choice([0.0, 0.0, 1.0]))

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
        number = claim.partition
        self.storm.claimed(session, number)
        try:
            records: list[Record] = []
            async for record in claim:
                records.append(record)
                await asyncio.sleep(self.choice.choice([0.0, 0.02, 0.1]))
                if len(records) >= self.choice.randrange(1, 9) or record.offset % 10 == 9:
                    self.storm.done.update((record.partition, record.offset) for record in records)
                    session.mark(records[-1])
                    records.clear()
                if self.choice.random() < 0.01:
                    await session.commit()
            if self.choice.random() < 0.1:
                await asyncio.sleep(self.storm.late)
        finally:
            if self.storm.owners.get(number) is session:
                self.storm.owners[number] = None


async def disturb_the_coordinator(cluster: EmbeddedCluster, choice: random.Random) -> None:
    node = cluster.leader_of(OFFSETS_TOPIC, partition_of("workers", 3))
    match choice.choice(["move", "kill", "stop", "freeze"]):
        case "move":
            await cluster.move_leader(OFFSETS_TOPIC, partition_of("workers", 3))
        case "freeze":
            await cluster.freeze(node)
            await asyncio.sleep(choice.choice([1.0, 5.0, 12.0]))
            await cluster.thaw(node)
        case how:
            await (cluster.kill(node) if how == "kill" else cluster.stop(node))
            await asyncio.sleep(choice.choice([0.5, 4.0]))
            await cluster.restart(node)


@pytest.mark.thorough
@each_way
@pytest.mark.parametrize("seed", seeds(4, usual=1))
async def test_a_storm_of_handlers_processes_every_record_and_commits_only_processed_ones(
    cluster: EmbeddedCluster, settings: dict[str, Any], seed: int
) -> None:
    settings = settings if settings is CONSUMER else {**QUICK, **settings}
    in_time = seed % 2 == 0  # otherwise it takes longer than other members wait
    choice, storm = random.Random(seed), Storm(late=4.0 if in_time else 20.0)
    for partition in ORDERS:
        fill(cluster, partition, 200)
    running: list[Running] = []

    async def no_commit_is_early() -> None:
        done = await committed(cluster)
        early = [
            (partition.partition, offset) for partition, end in done.items() for offset in range(end)
            if (partition.partition, offset) not in storm.done
        ]  # fmt: skip
        assert early == []

    for _ in range(25):
        if len(running) > 2 and choice.random() < 0.45:
            leaver = running.pop(choice.randrange(len(running)))
            if choice.random() < 0.5:
                await leaver.cancel()
            else:
                await leaver.group.close()
                await leaver.task
        else:
            running.append(Running(cluster, Careless(storm, choice), **settings))
        if choice.random() < 0.2 and storm.owners:
            await disturb_the_coordinator(cluster, choice)
        await asyncio.sleep(choice.choice([0.0, 0.5, 3.0, 6.0]))
        await no_commit_is_early()
    async with asyncio.timeout(600):
        while len(storm.done) < 1_200:
            await asyncio.sleep(1.0)
            assert not any(group.task.done() for group in running)
    await asyncio.gather(*(group.cancel() for group in running))
    await no_commit_is_early()
    if in_time:
        assert storm.clashes == []
    assert await committed(cluster) == dict.fromkeys(ORDERS, 200)


async def test_a_member_of_thousands_of_partitions_begins_and_wakes_only_some_claims_in_one_iteration_of_the_loop(
    cluster: EmbeddedCluster,
) -> None:
    """10,000 claims that begin or wake at once would hold the loop for a second."""
    await cluster.create_topic("wide", 450)
    iteration, steps = 0, dict[int, int]()
    begun: set[int] = set()

    async def count_iterations() -> None:
        nonlocal iteration
        while True:
            iteration += 1
            await asyncio.sleep(0)

    class Handler(ConsumerGroupHandler[Any, Any]):
        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim[Any, Any]) -> None:
            begun.add(claim.partition)
            steps[iteration] = steps.get(iteration, 0) + 1
            await session.wait_cancelled()
            steps[iteration] = steps.get(iteration, 0) + 1

    group, handler = group_of(cluster), Handler()
    counting = asyncio.ensure_future(count_iterations())
    try:
        consuming = asyncio.ensure_future(group.consume(["wide"], handler))
        await until(lambda: len(begun) == 450)
        await group.close()
        await consuming
    finally:
        counting.cancel()
    assert sum(steps.values()) == 900
    assert max(steps.values()) <= 2 * CLAIMS_PER_ITERATION
