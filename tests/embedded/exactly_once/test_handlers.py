"""Exactly once with the handler API: a producer for each claim, as docs/transactions.md shows. In virtual time.

When a session ends for any reason, the transaction of a batch is aborted, and its records are read again from the last
commit.
"""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from aiokafka_lite import (
    Claim,
    ConsumerGroup,
    ConsumerGroupHandler,
    ConsumerGroupSession,
    KafkaError,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import CommitFailed, ErrorCode, IllegalStateError
from aiokafka_lite.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    EndTxnRequest,
    HeartbeatRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from aiokafka_lite.protocol.schema import Request
from tests.embedded.consumer.direct_writes import fill, leader
from tests.embedded.consumer.direct_writes import write as write_log
from tests.embedded.exactly_once.billing_workers import STRATEGIES, bills, write
from tests.waiting import until

COUNT = 120
FIRST = TopicPartition("orders", 0)

each_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


class Stop(Exception):
    """The work on a record fails."""


class Bill(ConsumerGroupHandler):
    """Sends each order on, each in a transaction of its own. ``seen`` has partitions and offsets, repeated ones too.

    The work on each record of ``fails`` raises once. ``is_early``: the member's identity is that before the work.
    """

    def __init__(self, cluster: EmbeddedCluster, work: float = 0.05, *, is_early: bool = False) -> None:
        self._is_early = is_early
        self.seen: list[tuple[int, int]] = []
        self.errors: list[Exception] = []
        self.fails: set[tuple[int, int]] = set()
        self._cluster = cluster
        self._work = work

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
        settings: dict[str, Any] = {"connector": self._cluster.connector, "transaction_timeout": 20.0}
        name = f"billing-{claim.topic_partition}"
        async with Producer(self._cluster.bootstrap_servers, transactional_id=name, **settings) as producer:
            async for record in claim:
                async with producer.transaction() as transaction:
                    place = (record.partition, record.offset)
                    self.seen.append(place)
                    group = session.group_metadata() if self._is_early else None
                    await transaction.send("bills", record.value, key=record.key)
                    await asyncio.sleep(self._work)
                    if place in self.fails:
                        self.fails.remove(place)
                        raise Stop
                    offsets = {claim.topic_partition: OffsetAndMetadata(record.offset + 1)}
                    await transaction.send_offsets(offsets, group or session.group_metadata())


async def serve(group: ConsumerGroup, handler: Bill) -> None:
    """Consume, again after each error."""
    while True:
        try:
            await group.consume(["orders"], handler)
        except (KafkaError, Stop) as error:
            handler.errors.append(error)
            await asyncio.sleep(0.1)
        else:
            return


@asynccontextmanager
async def serving(cluster: EmbeddedCluster, strategy: str, handler: Bill) -> AsyncIterator[ConsumerGroup]:
    settings = {"group_id": "billing", "auto_commit": False, "connector": cluster.connector, **STRATEGIES[strategy]}
    async with ConsumerGroup(cluster.bootstrap_servers, **settings) as group:
        task = asyncio.create_task(serve(group, handler))
        try:
            yield group
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def finish(cluster: EmbeddedCluster, values: list[str], strategy: str) -> None:
    """Let one member process the remaining orders, and check that each order has one bill."""
    async with serving(cluster, strategy, Bill(cluster, work=0.0)):
        assert await bills(cluster, len(values)) == Counter(values)


@each_strategy
async def test_an_automatic_commit_does_not_undo_the_offset_of_a_transaction(
    cluster: EmbeddedCluster, strategy: str
) -> None:
    await write(cluster, COUNT)
    handler = Bill(cluster, work=0.0)
    settings = {"group_id": "billing", "auto_offset_reset": "latest", "connector": cluster.connector}
    for count in (COUNT, 0):
        async with ConsumerGroup(cluster.bootstrap_servers, **settings, **STRATEGIES[strategy]) as group:
            task = asyncio.create_task(group.consume(["orders"], handler))
            await until(lambda: group.health().is_ready)
            if count:
                await write(cluster, count)
            await bills(cluster, COUNT)
            await group.close()
            await task
    assert len(handler.seen) == len(set(handler.seen)) == COUNT


@each_strategy
async def test_a_handler_that_raises_aborts_and_reads_the_record_again(cluster: EmbeddedCluster, strategy: str) -> None:
    values = await write(cluster, COUNT)
    handler = Bill(cluster)
    handler.fails = {(0, 3), (1, 7), (2, 11)}
    async with serving(cluster, strategy, handler):
        assert await bills(cluster, COUNT) == Counter(values)
    assert [type(error) for error in handler.errors] == [Stop] * 3
    assert len(handler.seen) > len(set(handler.seen)) == COUNT


@pytest.mark.thorough
@each_strategy
async def test_members_that_join_and_leave_repeat_and_lose_no_bill(cluster: EmbeddedCluster, strategy: str) -> None:
    values = await write(cluster, 2 * COUNT)
    handlers = [Bill(cluster, work=0.2) for _ in range(3)]
    async with serving(cluster, strategy, handlers[0]):
        await until(lambda: len(handlers[0].seen) > 10)
        async with serving(cluster, strategy, handlers[1]):
            await until(lambda: len(handlers[1].seen) > 10)
            async with serving(cluster, strategy, handlers[2]):
                await until(lambda: len(handlers[2].seen) > 5)
        assert await bills(cluster, 2 * COUNT) == Counter(values)
    assert [handler.errors for handler in handlers] == [[]] * 3


@pytest.mark.thorough
@each_strategy
async def test_a_generation_that_changes_during_a_transaction_does_not_end_consume(
    cluster: EmbeddedCluster, strategy: str
) -> None:
    """A claim that was kept is consumed again in the same session, from the last commit."""
    values = await write(cluster, COUNT)
    handlers: list[Bill] = []
    async with AsyncExitStack() as members:
        for _ in range(3):
            handlers.append(Bill(cluster, work=7.0, is_early=True))  # longer than the interval of heartbeats
            await members.enter_async_context(serving(cluster, strategy, handlers[-1]))
            await until(lambda: len(handlers[-1].seen) > 3)
    assert [handler.errors for handler in handlers] == [[]] * 3
    await finish(cluster, values, strategy)


class Recorder(Bill):
    """Records the sessions, their ends, and the partitions of the calls of ``consume_claim``."""

    def __init__(self, cluster: EmbeddedCluster, work: float = 0.05) -> None:
        super().__init__(cluster, work)
        self.sessions: list[ConsumerGroupSession] = []
        self.ended = 0
        self.calls: Counter[int] = Counter()

    async def setup(self, session: ConsumerGroupSession) -> None:
        self.sessions.append(session)

    async def cleanup(self, session: ConsumerGroupSession) -> None:
        self.ended += 1

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
        self.calls[claim.partition] += 1
        await super().consume_claim(session, claim)


@each_strategy
async def test_a_claim_is_read_again_in_its_session_after_a_refused_transaction(
    cluster: EmbeddedCluster, strategy: str
) -> None:
    values = await write(cluster, COUNT)
    handler = Recorder(cluster)
    async with serving(cluster, strategy, handler):
        with cluster.on(TxnOffsetCommitRequest, times=1).fail(ErrorCode.ILLEGAL_GENERATION):
            assert await bills(cluster, COUNT) == Counter(values)
    assert handler.errors == []
    assert len(handler.sessions) == 1
    assert sorted(handler.calls.values()) == [1, 1, 2]


@each_strategy
async def test_a_claim_that_is_always_refused_ends_consume(
    cluster: EmbeddedCluster, strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The membership does not change, so reading again cannot help."""
    await write(cluster, COUNT)
    handler = Bill(cluster, work=4.0)
    with cluster.on(TxnOffsetCommitRequest, times=None).fail(ErrorCode.UNKNOWN_MEMBER_ID):
        async with serving(cluster, strategy, handler):
            await until(lambda: handler.errors)
    assert isinstance(handler.errors[0], CommitFailed)
    assert "is read again from the last commit after 2 refused transactions in a row" in caplog.text


async def test_refusals_between_commits_do_not_end_consume(cluster: EmbeddedCluster) -> None:
    """Each one is followed by a commit, so they are not in a row."""
    fill(cluster, FIRST, 5)
    handler = Bill(cluster, work=11.0)  # longer than the session timeout
    for nth in (2, 3):  # a rule does not count the requests that the previous rule refused
        cluster.on(TxnOffsetCommitRequest, nth=nth).fail(ErrorCode.ILLEGAL_GENERATION)
    async with serving(cluster, "cooperative", handler):
        await until(lambda: len(set(handler.seen)) == 5)
    assert [offset for _, offset in handler.seen] == [0, 1, 1, 2, 2, 3, 4]
    assert handler.errors == []


class FormerSession(ConsumerGroupHandler):
    """Asks the session of an earlier ``consume`` for the identity of the member."""

    def __init__(self) -> None:
        self.former: ConsumerGroupSession | None = None

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
        if self.former is None:
            self.former = session
            raise Stop
        self.former.group_metadata()


async def test_the_end_of_another_session_ends_consume(cluster: EmbeddedCluster) -> None:
    handler = FormerSession()
    settings: dict[str, Any] = {"group_id": "billing", "connector": cluster.connector}
    async with ConsumerGroup(cluster.bootstrap_servers, **settings) as group:
        with pytest.raises(Stop):
            await group.consume(["orders"], handler)
        with pytest.raises(IllegalStateError, match="has ended") as caught:
            await asyncio.wait_for(group.consume(["orders"], handler), 600.0)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


async def test_a_claim_that_looks_up_its_commit_ends_with_its_session(cluster: EmbeddedCluster) -> None:
    values = await write(cluster, COUNT)
    handler = Recorder(cluster)
    loop = asyncio.get_running_loop()
    async with serving(cluster, "eager", handler), AsyncExitStack() as stack:
        await until(lambda: len(handler.seen) > 3)
        with cluster.on(OffsetFetchRequest, times=None).fail(ErrorCode.UNSTABLE_OFFSET_COMMIT) as lookup:
            cluster.on(TxnOffsetCommitRequest, times=1).fail(ErrorCode.ILLEGAL_GENERATION)
            await until(lambda: lookup.hits)
            await stack.enter_async_context(serving(cluster, "eager", Bill(cluster)))
            await until(lambda: handler.sessions[0].cancelled)
            began = loop.time()
            await until(lambda: handler.ended)
            assert loop.time() - began < 5.0
        assert await bills(cluster, COUNT) == Counter(values)
    assert handler.errors == []


@pytest.mark.parametrize(
    "strategy, request_type, code",
    [
        ("eager", HeartbeatRequest, ErrorCode.UNKNOWN_MEMBER_ID),
        ("cooperative", HeartbeatRequest, ErrorCode.ILLEGAL_GENERATION),
        ("consumer", ConsumerGroupHeartbeatRequest, ErrorCode.UNKNOWN_MEMBER_ID),
        ("consumer", ConsumerGroupHeartbeatRequest, ErrorCode.FENCED_MEMBER_EPOCH),
    ],
)
async def test_a_member_that_loses_its_partitions_aborts_and_reads_again(
    cluster: EmbeddedCluster, strategy: str, request_type: type[Request[Any]], code: ErrorCode
) -> None:
    values = await write(cluster, COUNT)
    handler = Bill(cluster, work=7.0)  # longer than the interval of heartbeats: the loss comes during a transaction
    async with serving(cluster, strategy, handler):
        await until(lambda: len(handler.seen) >= 3)
        with cluster.on(request_type, times=1).fail(code) as lost:
            await until(lambda: lost.hits)
        await until(lambda: len(set(handler.seen)) < len(handler.seen))
    assert handler.errors == []
    await finish(cluster, values, strategy)


async def test_a_member_that_cannot_reach_its_group_bills_nothing_a_second_time(cluster: EmbeddedCluster) -> None:
    values = await write(cluster, COUNT)
    former, present = Bill(cluster, work=15.0), Bill(cluster)
    async with serving(cluster, "eager", former):
        await until(lambda: len(former.seen) >= 3)
        with cluster.on(HeartbeatRequest, times=None).drop():
            async with serving(cluster, "eager", present):
                await until(lambda: present.seen)
    await finish(cluster, values, "eager")


@pytest.mark.thorough
@each_strategy
@pytest.mark.parametrize("request_type", [ProduceRequest, TxnOffsetCommitRequest, EndTxnRequest])
async def test_answers_that_are_lost_repeat_and_lose_no_bill(
    cluster: EmbeddedCluster, strategy: str, request_type: type[Request[Any]]
) -> None:
    values = await write(cluster, COUNT)
    for nth in range(3, 30, 5):
        cluster.on(request_type, nth=nth).apply_then_disconnect()
    await finish(cluster, values, strategy)


@pytest.mark.thorough
@each_strategy
@pytest.mark.parametrize("seed", range(2))
async def test_each_order_has_one_bill_while_brokers_and_handlers_fail(
    cluster: EmbeddedCluster, strategy: str, seed: int
) -> None:
    values = await write(cluster, COUNT)
    handlers = [Bill(cluster, work=0.3) for _ in range(2)]
    for number, handler in enumerate(handlers):
        handler.fails = {(place, offset) for place in range(3) for offset in range(seed + number, 30, 11)}
    async with serving(cluster, strategy, handlers[0]), serving(cluster, strategy, handlers[1]):
        for node in (seed % 3 + 1, (seed + 1) % 3 + 1):
            await asyncio.sleep(2.0 + seed)
            await cluster.restart(node)
            await asyncio.sleep(1.0)
            await cluster.freeze(node)
            await asyncio.sleep(12.0)
            await cluster.thaw(node)
    await finish(cluster, values, strategy)


class Commit(ConsumerGroupHandler):
    """Commits the offset of each record in a transaction of its own. Returns without a commit while ``holds``."""

    def __init__(self, cluster: EmbeddedCluster, *, with_epoch: bool) -> None:
        self._with_epoch = with_epoch
        self.seen: list[tuple[int, bytes | None]] = []
        self.holds = False
        self._cluster = cluster

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
        settings: dict[str, Any] = {"connector": self._cluster.connector, "transaction_timeout": 20.0}
        name = f"committing-{claim.topic_partition}"
        async with Producer(self._cluster.bootstrap_servers, transactional_id=name, **settings) as producer:
            async for record in claim:
                if claim.topic_partition == FIRST:
                    self.seen.append((record.offset, record.value))
                if self.holds:
                    await session.wait_cancelled()
                    return
                async with producer.transaction() as transaction:
                    epoch = record.leader_epoch if self._with_epoch else None
                    offset = OffsetAndMetadata(record.offset + 1, leader_epoch=epoch)
                    await transaction.send_offsets({claim.topic_partition: offset}, session.group_metadata())


async def serve_commits(cluster: EmbeddedCluster, handler: Commit) -> None:
    settings: dict[str, Any] = {"group_id": "billing", "auto_commit": False, "connector": cluster.connector}
    async with ConsumerGroup(cluster.bootstrap_servers, **settings, **STRATEGIES["cooperative"]) as group:
        await group.consume(["orders"], handler)


@pytest.mark.parametrize("was_committed", [False, True], ids=["in the session", "before it"])
async def test_a_kept_partition_that_was_truncated_continues_behind_the_cut(
    cluster: EmbeddedCluster, was_committed: bool
) -> None:
    """The committed offset belongs to the log that was cut, and the first new record is not committed yet."""
    fill(cluster, FIRST, 100)
    handler = Commit(cluster, with_epoch=was_committed)  # a reader that begins with an epoch sees the truncation
    if was_committed:
        first = asyncio.create_task(serve_commits(cluster, handler))
        await until(lambda: len(handler.seen) == 100)
        await asyncio.sleep(1.0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    members = [asyncio.create_task(serve_commits(cluster, handler))]
    await until(lambda: len(handler.seen) == 100)
    await asyncio.sleep(20.0)  # the reader waits at the end of the log
    handler.seen.clear()
    handler.holds = True
    leader(cluster, FIRST).truncate_to(60)
    await cluster.move_leader("orders", 0, cluster.leader_of("orders", 0))
    values = [b"new %d" % number for number in range(60)]
    for value in values:
        write_log(cluster, FIRST, [value])
    await until(lambda: handler.seen)
    assert handler.seen == [(60, values[0])]
    members.append(asyncio.create_task(serve_commits(cluster, handler)))
    handler.holds = False
    await until(lambda: values[-1] in [value for _, value in handler.seen])
    for member in members:
        member.cancel()
    await asyncio.gather(*members, return_exceptions=True)
    assert [value for _, value in handler.seen[1:]] == values
