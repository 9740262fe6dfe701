"""Each order has one bill, after any fault of brokers, members and batches. In virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from aiokafka_lite import Admin, Consumer, ExactlyOnce, KafkaError, Producer, Record, TopicPartition
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import AuthorizationError, ErrorCode, IllegalStateError, ProducerFenced
from aiokafka_lite.protocol.messages import (
    EndTxnRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from aiokafka_lite.protocol.schema import Request
from tests.cancelling import at_every_turn
from tests.embedded.exactly_once.billing_workers import STRATEGIES, bill, bills, worker, write
from tests.waiting import until

COUNT = 200


async def finish(cluster: EmbeddedCluster, values: list[str], strategy: str = "eager") -> None:
    """Let one worker process the remaining orders, and check that each order has one bill."""
    async with worker(cluster, "last", strategy) as (session, producer):
        working = asyncio.create_task(bill(session, producer))
        assert await bills(cluster, len(values)) == Counter(values)
        session.stop()
        await working


async def test_a_batch_and_its_offsets_become_visible_together(cluster: EmbeddedCluster) -> None:
    values = await write(cluster, COUNT)
    await finish(cluster, values)


async def test_an_aborted_batch_is_returned_again_from_its_first_record(cluster: EmbeddedCluster) -> None:
    values = await write(cluster, COUNT)
    async with worker(cluster, "first") as (session, producer):
        first = await anext(session)
        producer.send_nowait("bills", b"wrong")
        await session.abort()
        again: list[Record] = []
        while not {record.partition for record in first} <= {record.partition for record in again}:
            for record in await anext(session):
                producer.send_nowait("bills", record.value)
                again.append(record)

        def starts(records: list[Record]) -> dict[int, int]:
            return {record.partition: record.offset for record in reversed(records)}

        assert starts(first).items() <= starts(again).items()
    await finish(cluster, values)


async def test_a_member_that_loses_its_partitions_during_a_batch_aborts_it(cluster: EmbeddedCluster) -> None:
    values = await write(cluster, COUNT)
    async with worker(cluster, "first") as (session, producer):
        for record in await anext(session):
            producer.send_nowait("bills", record.value)
        with cluster.on(HeartbeatRequest).fail(ErrorCode.UNKNOWN_MEMBER_ID, times=1):
            await asyncio.sleep(17.0)  # it is a member again, and has the same partitions
        for record in await anext(session):
            producer.send_nowait("bills", record.value)
        await session.commit()
        working = asyncio.create_task(bill(session, producer))
        assert await bills(cluster, COUNT) == Counter(values)
        session.stop()
        await working


async def test_a_partition_that_was_lost_and_assigned_again_continues_at_its_committed_offset(
    cluster: EmbeddedCluster,
) -> None:
    await write(cluster, COUNT)
    async with worker(cluster, "first") as (session, _):
        partition = TopicPartition("orders", (await anext(session))[0].partition)
        with (
            cluster.on(HeartbeatRequest).fail(ErrorCode.UNKNOWN_MEMBER_ID, times=1),
            cluster.on(JoinGroupRequest).delay(20.0, times=1) as joining,
        ):
            await until(lambda: joining.hits)
            await asyncio.sleep(15.0)  # longer than session_timeout: the group has no member
            async with Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin:
                (await admin.groups.alter_offsets("billing", {partition: 5})).raise_for_errors()
        offsets: list[int] = []
        while not offsets:
            offsets = [record.offset for record in await anext(session) if record.partition == partition.partition]
        assert offsets[0] == 5


async def test_a_revocation_during_a_commit_does_not_end_the_next_batch(cluster: EmbeddedCluster) -> None:
    values = await write(cluster, 6)
    async with worker(cluster, "first", "cooperative", commit_interval=0.5) as (session, producer):
        working = asyncio.create_task(bill(session, producer))
        with cluster.on(EndTxnRequest).delay(4.0, times=1) as delayed:
            await until(lambda: delayed.hits)
            async with worker(cluster, "second", "cooperative") as (other, other_producer):
                others = asyncio.create_task(bill(other, other_producer))
                values += await write(cluster, COUNT, first=6)
                assert await bills(cluster, len(values)) == Counter(values)
                other.stop()
                await others
        session.stop()
        await working


@pytest.mark.parametrize(
    "code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.TRANSACTION_ABORTABLE]
)
async def test_refused_offsets_abort_the_batch(cluster: EmbeddedCluster, code: ErrorCode) -> None:
    values = await write(cluster, COUNT)
    with cluster.on(TxnOffsetCommitRequest).fail(code, times=3):
        await finish(cluster, values)


async def test_a_commit_without_an_answer_is_not_repeated_as_another_batch(cluster: EmbeddedCluster) -> None:
    values = await write(cluster, COUNT)
    with cluster.on(EndTxnRequest).apply_then_disconnect(times=5):
        await finish(cluster, values)


@pytest.mark.parametrize("step", [TxnOffsetCommitRequest, EndTxnRequest])
async def test_a_cancelled_commit_is_ended_although_no_record_follows(
    cluster: EmbeddedCluster, step: type[Request[Any]]
) -> None:
    values = await write(cluster, 6)
    async with worker(cluster, "first", commit_interval=5.0) as (session, producer):
        remaining = len(values)
        while remaining:
            for record in await anext(session):
                producer.send_nowait("bills", record.value)
                remaining -= 1
        with cluster.on(step).delay(4.0, times=1) as delayed:
            committing = asyncio.ensure_future(anext(session))
            await until(lambda: delayed.hits)
            committing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await committing
        working = asyncio.create_task(bill(session, producer))
        assert await bills(cluster, len(values)) == Counter(values)
        session.stop()
        await working


async def test_a_cancelled_abort_after_a_commit_that_timed_out_is_continued(cluster: EmbeddedCluster) -> None:
    values = await write(cluster, 6)
    async with worker(cluster, "first", writing={"api_timeout": 5.0}) as (session, producer):
        with cluster.on(ProduceRequest, times=None).drop(), cluster.on(EndTxnRequest).delay(2.0, times=1) as delayed:
            for record in await anext(session):
                producer.send_nowait("bills", record.value)
            committing = asyncio.ensure_future(session.commit())
            await until(lambda: delayed.hits)
            committing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await committing
        working = asyncio.create_task(bill(session, producer))
        assert await bills(cluster, len(values)) == Counter(values)
        session.stop()
        await working


async def test_a_loss_after_a_cancelled_commit_does_not_prevent_its_end(cluster: EmbeddedCluster) -> None:
    values = await write(cluster, 6)
    async with worker(cluster, "first", "consumer") as (session, producer):
        for record in await anext(session):
            producer.send_nowait("bills", record.value)
        with cluster.on(EndTxnRequest).delay(4.0, times=1) as delayed:
            committing = asyncio.ensure_future(anext(session))
            await until(lambda: delayed.hits)
            committing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await committing
            session.lost([TopicPartition("orders", number) for number in range(3)])
        working = asyncio.create_task(bill(session, producer))
        assert await bills(cluster, len(values)) == Counter(values)
        session.stop()
        await working


async def test_a_loss_while_the_offsets_are_sent_aborts_the_batch(cluster: EmbeddedCluster) -> None:
    await write(cluster, 6)
    async with worker(cluster, "first", "consumer") as (session, producer):
        for record in await anext(session):
            producer.send_nowait("bills", record.value)
        with cluster.on(TxnOffsetCommitRequest).delay(4.0, times=1) as delayed:
            committing = asyncio.create_task(session.commit())
            await until(lambda: delayed.hits)
            session.lost([TopicPartition("orders", number) for number in range(3)])
            await committing
    ends = cluster.history.of(EndTxnRequest)
    assert ends
    assert not any(end.request.committed for end in ends)


async def test_a_record_that_is_refused_for_good_ends_the_loop_and_the_batch(cluster: EmbeddedCluster) -> None:
    values = await write(cluster, COUNT)
    async with worker(cluster, "first") as (session, producer):
        refused = cluster.on(ProduceRequest).fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=1)
        with refused, pytest.raises(AuthorizationError):
            await bill(session, producer)
        working = asyncio.create_task(bill(session, producer))
        assert await bills(cluster, COUNT) == Counter(values)
        session.stop()
        await working


each_protocol = pytest.mark.parametrize("strategy", ["eager", "consumer"])


@each_protocol
@pytest.mark.parametrize("interval", [0.0, 0.5])
async def test_a_call_that_is_cancelled_at_any_turn_repeats_and_loses_nothing(
    cluster: EmbeddedCluster, interval: float, strategy: str
) -> None:
    values = await write(cluster, COUNT)
    interrupted = 0
    async with worker(cluster, "first", strategy, commit_interval=interval, max_records=3) as (session, producer):
        for turns in range(120):
            reading = asyncio.ensure_future(anext(session))
            for _ in range(turns):
                await asyncio.sleep(0)
            reading.cancel()
            with suppress(asyncio.CancelledError):
                for record in await reading:
                    producer.send_nowait("bills", record.value)
            interrupted += reading.cancelled()
        working = asyncio.create_task(bill(session, producer, work=0.0))
        assert await bills(cluster, COUNT) == Counter(values)
        session.stop()
        await working
    assert interrupted > 10


@each_protocol
@pytest.mark.parametrize("name", ["commit", "abort"])
async def test_an_end_that_is_cancelled_at_any_turn_repeats_and_loses_nothing(
    cluster: EmbeddedCluster, name: str, strategy: str
) -> None:
    values = await write(cluster, COUNT)
    async with worker(cluster, "first", strategy, commit_interval=10.0, max_records=1) as (session, producer):

        async def read() -> None:
            for record in await anext(session):
                await producer.send("bills", record.value, partition=0)
            await asyncio.sleep(1.0)  # so that the coordinator has added the partition, and the call does not wait

        await at_every_turn(getattr(session, name), read)
        working = asyncio.create_task(bill(session, producer, work=0.0))
        assert await bills(cluster, COUNT) == Counter(values)
        session.stop()
        await working


@pytest.mark.parametrize("has_unwritten", [False, True], ids=["all written", "one sent after the timeout"])
async def test_a_batch_that_takes_longer_than_the_transaction_timeout_is_returned_again(
    cluster: EmbeddedCluster, has_unwritten: bool
) -> None:
    values = await write(cluster, 6)
    async with worker(cluster, "first") as (session, producer):

        async def bill_slowly_at_first() -> None:
            work = 40.0
            async for records in session:
                for record in records:
                    await producer.send("bills", record.value)
                await asyncio.sleep(work)
                if work and has_unwritten:
                    producer.send_nowait("bills", b"late")
                work = 0.0

        working = asyncio.create_task(bill_slowly_at_first())
        assert await bills(cluster, len(values)) == Counter(values)
        session.stop()
        await working


async def test_a_batch_that_takes_longer_than_the_timeout_fences_a_producer_of_generation_1(
    cluster: EmbeddedCluster,
) -> None:
    cluster.set_feature("transaction.version", 1)
    await write(cluster, 6)
    async with worker(cluster, "first") as (session, producer):
        slow = await anext(session)
        await producer.send("bills", slow[0].value)
        await asyncio.sleep(40.0)
        with pytest.raises(ProducerFenced, match="open for longer than transaction_timeout=20 s"):
            await anext(session)


class Chaos:
    """Workers and brokers that fail at random times, by one seed."""

    def __init__(self, cluster: EmbeddedCluster, seed: int) -> None:
        self.chance = random.Random(seed)
        self._cluster = cluster
        self.strategy = self.chance.choice(list(STRATEGIES))
        self._settings: dict[str, Any] = {"commit_interval": self.chance.choice([0.0, 0.0, 0.7])}
        self._working: dict[int, asyncio.Task[None]] = {}
        self._taken = 0

    def start(self, number: int) -> None:
        self._working[number] = asyncio.create_task(self._work(number))

    async def _work(self, number: int) -> None:
        """Run a worker. An error ends it, as it would end a process."""
        if self.chance.random() < 0.5:
            self._taken += 1
        own = dict(self._settings)
        if self.chance.random() < 0.3:
            own["reading"] = {"group_instance_id": f"instance-{number}"}
        with suppress(KafkaError):
            async with worker(self._cluster, f"worker-{number}-{self._taken}", self.strategy, **own) as (
                session,
                producer,
            ):
                await bill(session, producer, self.chance.choice([0.0, 0.05, 1.0]))

    async def fail_once(self) -> None:
        cluster, chance = self._cluster, self.chance
        match chance.randrange(6):
            case 0 | 1:
                number = chance.choice(list(self._working))
                self._working[number].cancel()
                await asyncio.gather(self._working[number], return_exceptions=True)
                self.start(number)
            case 2:
                await cluster.restart(chance.randrange(1, 4))
            case 3:
                node = chance.randrange(1, 4)
                await cluster.freeze(node)
                await asyncio.sleep(chance.uniform(1.0, 15.0))
                await cluster.thaw(node)
            case 4:
                topic, count = chance.choice([("orders", 3), ("bills", 2)])
                await cluster.move_leader(topic, chance.randrange(count))
            case 5:
                request = chance.choice([EndTxnRequest, TxnOffsetCommitRequest])
                with cluster.on(request).apply_then_disconnect(times=2):
                    await asyncio.sleep(5.0)

    async def run(self, faults: int) -> None:
        for number in range(3):
            self.start(number)
        for _ in range(faults):
            await asyncio.sleep(self.chance.uniform(0.0, 4.0))
            await self.fail_once()
            for number, task in list(self._working.items()):
                if task.done():
                    self.start(number)

    async def stop(self) -> None:
        for task in self._working.values():
            task.cancel()
        results = await asyncio.gather(*self._working.values(), return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) or result is None for result in results), results


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(20))
async def test_each_order_has_one_bill_while_brokers_and_workers_fail(cluster: EmbeddedCluster, seed: int) -> None:
    values = await write(cluster, COUNT)
    chaos = Chaos(cluster, seed)
    await chaos.run(faults=8)
    await chaos.stop()
    await finish(cluster, values, chaos.strategy)


async def test_a_session_survives_its_stop(cluster: EmbeddedCluster) -> None:
    await write(cluster, 10)
    async with worker(cluster, "first") as (session, _):
        session.stop()
        assert [records async for records in session] == []


async def test_a_consumer_that_lost_its_membership_has_no_identity_to_commit_with(cluster: EmbeddedCluster) -> None:
    """A coordinator accepts any offset of a transaction that comes without a member (KIP-447)."""
    await write(cluster, COUNT)
    settings: dict[str, Any] = {"connector": cluster.connector, "group_id": "billing", "auto_commit": False}
    async with Consumer(cluster.bootstrap_servers, topics=["orders"], **settings) as consumer:
        with pytest.raises(IllegalStateError, match="not a member of its group now"):
            consumer.group_metadata()
        assert await consumer.poll(10, timeout=10.0)
        assert consumer.group_metadata().generation_id > 0
        cluster.on(HeartbeatRequest).fail(ErrorCode.UNKNOWN_MEMBER_ID, times=1)
        cluster.on(JoinGroupRequest).drop()
        await until(lambda: not consumer.assignment)
        with pytest.raises(IllegalStateError, match="not a member of its group now"):
            consumer.group_metadata()


SENDS: dict[str, Any] = {
    "send_nowait": lambda producer, record: producer.send_nowait("bills", record.value),
    "put": lambda producer, record: producer.put("bills", record.value),
    "send": lambda producer, record: producer.send("bills", record.value),
    "send_many": lambda producer, record: producer.send_many("bills", [record.value]),
}


@pytest.mark.parametrize(("how", "strategy"), [*((how, "eager") for how in SENDS), ("send_nowait", "consumer")])
async def test_a_batch_that_becomes_too_slow_is_returned_again_in_smaller_batches(
    cluster: EmbeddedCluster, how: str, strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    values = await write(cluster, 200)
    sizes: list[int] = []
    async with worker(cluster, "first", strategy, max_records=50) as (session, producer):

        async def bill_slowly_after_a_while() -> None:
            async for records in session:
                sizes.append(len(records))
                for record in records:
                    sent = SENDS[how](producer, record)
                    if asyncio.iscoroutine(sent):
                        await sent
                    await asyncio.sleep(0.001 if len(sizes) < 3 else 1.0)

        working = asyncio.create_task(bill_slowly_after_a_while())
        assert await bills(cluster, len(values)) == Counter(values)
        session.stop()
        await working
    slow = next((place for place, size in enumerate(sizes) if place >= 2 and size > 20), 0)
    assert slow, sizes
    assert max(sizes[slow + 1 :]) <= 10
    assert caplog.text.count("transaction_timeout is 20 s. It will return them again") == 1


@pytest.mark.parametrize("seconds", [1.0, 15.0])
async def test_a_slow_program_never_exceeds_the_transaction_timeout(
    cluster: EmbeddedCluster, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    values = await write(cluster, 30)
    async with worker(cluster, "first", max_records=500) as (session, producer):

        async def bill_slowly() -> None:
            async for records in session:
                for record in records:
                    producer.send_nowait("bills", record.value)
                    await asyncio.sleep(seconds)

        working = asyncio.create_task(bill_slowly())
        assert await bills(cluster, len(values), within=2_000.0) == Counter(values)
        session.stop()
        await working
    assert "aborted a transaction" not in caplog.text


async def test_a_transaction_begins_at_its_first_send(cluster: EmbeddedCluster) -> None:
    """A program may compute for longer than ``transaction_timeout`` before it sends."""
    await write(cluster, 1)
    async with worker(cluster, "first") as (session, producer):
        (record,) = await anext(session)
        await asyncio.sleep(50.0)
        await producer.send("bills", record.value)
        await session.commit()
        assert producer.metrics().transactions is not None
        assert producer.metrics().transactions.aborted == 0
    assert await bills(cluster, 1) == Counter(["0"])


async def test_a_slow_program_does_not_exceed_the_poll_interval(cluster: EmbeddedCluster) -> None:
    values = await write(cluster, 40)
    reading, writing = {"max_poll_interval": 30.0, "session_timeout": 10.0}, {"transaction_timeout": 600.0}
    async with worker(cluster, "first", max_records=500, reading=reading, writing=writing) as (session, producer):
        working = asyncio.create_task(bill_one_by_one(session, producer, 1.0))
        assert await bills(cluster, len(values), within=2_000.0) == Counter(values)
        session.stop()
        await working
        assert producer.metrics().transactions is not None
        assert producer.metrics().transactions.aborted == 0


async def bill_one_by_one(session: ExactlyOnce, producer: Producer, seconds: float) -> None:
    async for records in session:
        for record in records:
            await asyncio.sleep(seconds)
            producer.send_nowait("bills", record.value)
