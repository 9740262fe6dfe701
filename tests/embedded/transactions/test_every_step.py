"""A broker dies, or a coordinator moves, between any two steps of a transaction.

The steps are not listed here. A step is a turn of the event loop that brings the cluster into a new state of this run.
Then a request came or was answered, a log of a broker has another record, or the memory of a coordinator changed. Each
step has a run of its own, so a step that is new in the code is visited as well.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from aiokafka_lite import KafkaError, OffsetAndMetadata, TopicPartition
from aiokafka_lite.aio.virtual_time import VirtualTimeLoop
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.coordinators.groups.records import partition_of
from aiokafka_lite.embedded.coordinators.transactions.transaction import TransactionState
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.producer import Producer
from aiokafka_lite.types import GroupMetadata
from tests.embedded.transactions.conftest import CONFIGS
from tests.embedded.transactions.raw_producer import OFFSETS, STATE, TransactionalPeer

OK = ErrorCode.NONE
DECIDED = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
COMMIT_STATES = {"none", "EMPTY", "ONGOING", "PREPARE_COMMIT", "COMPLETE_COMMIT"}
ABORT_STATES = {"none", "EMPTY", "ONGOING", "PREPARE_ABORT", "COMPLETE_ABORT"}
OFFSET = 7


class SteppedLoop(VirtualTimeLoop):
    """A loop that calls ``on_turn`` after each of its turns."""

    on_turn: Callable[[], None] | None = None

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]
        if self.on_turn is not None:
            self.on_turn()


def run(main: Coroutine[Any, Any, bool]) -> bool:
    state = random.getstate()
    random.seed(1)
    try:
        with asyncio.Runner(loop_factory=SteppedLoop) as runner:
            return runner.run(main)
    finally:
        random.setstate(state)


class Steps:
    """Counts the steps of a cluster, and acts once at one of them."""

    def __init__(self, cluster: EmbeddedCluster, last_step: int, act: Callable[[], None]) -> None:
        self.is_reached = False
        self._cluster = cluster
        self._wanted = last_step
        self._act = act
        self._seen: set[object] = set()

    def look(self) -> None:
        if self.is_reached:
            return
        self._seen.add(self._state())
        if len(self._seen) > self._wanted:
            self.is_reached = True
            self._act()

    def _state(self) -> object:
        brokers = self._cluster.nodes.values()
        logs = [
            (broker.node_id, key, partition.log.end_offset)
            for broker in brokers
            for key, partition in broker.replica_manager.partitions.items()
        ]
        ids = [(broker.node_id, transaction) for broker in brokers for transaction in broker.transactions.all()]
        answered = sum(exchange.response is not None for exchange in self._cluster.history)
        return len(self._cluster.history), answered, tuple(sorted(logs)), tuple(ids)


@asynccontextmanager
async def a_cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1, configs=CONFIGS) as cluster:
        await cluster.create_topic("t", 1, 3)
        await cluster.create_topic("u", 1, 3)
        yield cluster


# What happens at a step. Each function returns the broker that has to be started again, or 0.

Event = Callable[[EmbeddedCluster], int]


def death_of_leader(topic: str, partition: int) -> Event:
    def kill(cluster: EmbeddedCluster) -> int:
        leader = cluster.leader_of(topic, partition) if topic in cluster.controller.topics else 1
        _at_once(cluster.kill(leader))
        return leader

    return kill


def move_of_leader(topic: str, partition: int) -> Event:
    def move(cluster: EmbeddedCluster) -> int:
        if topic in cluster.controller.topics:
            _at_once(cluster.move_leader(topic, partition))
        return 0

    return move


def _at_once(call: Coroutine[Any, Any, object]) -> None:
    """Run a call that waits for nothing, in the present turn of the loop."""
    with suppress(StopIteration):
        call.send(None)
        raise AssertionError("the call waits for something")


INDEX, GROUP_INDEX = partition_of("id", 3), partition_of("group", 3)
EVENTS = {
    "the coordinator dies": death_of_leader(STATE, INDEX),
    "the coordinator moves": move_of_leader(STATE, INDEX),
    "the group's coordinator dies": death_of_leader(OFFSETS, GROUP_INDEX),
    "the group's coordinator moves": move_of_leader(OFFSETS, GROUP_INDEX),
    "a leader dies": death_of_leader("t", 0),
}


def each_event(test: Any) -> Any:
    """Return all events, in both generations. Two of them in the short tests."""
    short = list(EVENTS)[:2]
    events = [pytest.param(name, marks=[] if name in short else pytest.mark.long) for name in EVENTS]
    return pytest.mark.parametrize("generation", [1, 2])(pytest.mark.parametrize("event", events)(test))


# A producer that dies at the same time.


async def whole_transaction(producer: TransactionalPeer, *, commit: bool) -> bool:
    """Write two records and an offset, and end the transaction. Returns whether the coordinator has accepted that."""
    assert await producer.initialize() is OK
    assert await producer.write("t", b"1") is OK
    assert await producer.write("u", b"1") is OK
    assert await producer.commit_offsets("group", "t", OFFSET) is OK
    answer = await producer.end(commit=commit)
    await producer.until_complete()
    return answer is OK


def decision(cluster: EmbeddedCluster) -> TransactionState | None:
    """Return the state in the log of the coordinator."""
    if STATE not in cluster.controller.topics:
        return None
    stored = cluster.nodes[cluster.leader_of(STATE, INDEX)].transactions.log.read(INDEX).get("id")
    return None if stored is None else stored.state


def remembered(cluster: EmbeddedCluster) -> TransactionState | None:
    """Return the state that the coordinator has written to all replicas."""
    if STATE not in cluster.controller.topics:
        return None
    stored = cluster.nodes[cluster.leader_of(STATE, INDEX)].transactions.get("id")
    return None if stored is None else stored.state


async def visible(producer: TransactionalPeer) -> tuple[list[bytes], list[bytes], int]:
    """Return what readers see when no transaction is open: the two logs and the offset of the group."""
    async with asyncio.timeout(600):
        while (committed := await producer.committed("group", "t", stable=True))[1] is not OK:
            await asyncio.sleep(0.1)
    return await producer.read("t"), await producer.read("u"), committed[0]


async def dies_at(step: int, event: str, generation: int, *, commit: bool, states: set[str]) -> bool:
    """Run one transaction, and end its client and a broker at a step. Returns whether there is such a step."""
    async with a_cluster() as cluster:
        before: list[TransactionState | None] = []
        killed = 0

        def act() -> None:
            nonlocal killed
            before.append(remembered(cluster))
            states.add("none" if before[0] is None else before[0].name)
            killed = EVENTS[event](cluster)
            task.cancel()

        steps = Steps(cluster, step, act)
        async with TransactionalPeer(cluster, "id", generation=generation) as producer:
            task = asyncio.create_task(whole_transaction(producer, commit=commit))
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SteppedLoop)
            loop.on_turn = steps.look
            await asyncio.wait([task])
            loop.on_turn = None
        if not steps.is_reached:
            assert task.result()
            return False
        await asyncio.sleep(1.0)  # the coordinator may have the request for the end already
        decided = decision(cluster) in DECIDED
        if before[0] in DECIDED:
            assert decided, "the coordinator loses a decision that all replicas had"
        expected = ([b"1"], [b"1"], OFFSET) if decided else ([], [], -1)
        async with TransactionalPeer(cluster, "id", generation=generation) as successor:
            assert await successor.initialize() is OK
            assert await visible(successor) == expected
            if killed:
                await cluster.start_node(killed)
            for topic in ("t", "u", STATE, OFFSETS):
                await cluster.until_in_sync(topic, 60.0)
            assert await successor.write("t", b"2") is OK
            assert await successor.commit() is OK
            await successor.until_complete()
            assert await visible(successor) == ([*expected[0], b"2"], expected[1], expected[2])
        return True


@pytest.mark.thorough
@each_event
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_whole_if_its_commit_is_in_the_log_and_else_not_there(
    event: str, generation: int, commit: bool
) -> None:
    states: set[str] = set()
    steps = itertools.takewhile(
        lambda step: run(dies_at(step, event, generation, commit=commit, states=states)), itertools.count()
    )
    assert len(list(steps)) > 20
    assert states >= (COMMIT_STATES if commit else ABORT_STATES)


# A producer that lives on.


async def lives_on(step: int, event: str, generation: int, outcomes: list[str]) -> bool:
    """Write one transaction with a producer while something happens at a step, then another one."""
    async with a_cluster() as cluster:
        killed = 0

        def act() -> None:
            nonlocal killed
            killed = EVENTS[event](cluster)

        if generation == 1:
            cluster.set_feature("transaction.version", 1)
        steps = Steps(cluster, step, act)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SteppedLoop)
        loop.on_turn = steps.look
        async with Producer(cluster.bootstrap_servers, transactional_id="id", connector=cluster.connector) as producer:
            outcomes.append("committed")
            try:
                async with producer.transaction() as transaction:
                    transaction.send_nowait("t", b"1", partition=0)
                    await transaction.send("u", b"1", partition=0)
                    offsets = {TopicPartition("t", 0): OffsetAndMetadata(OFFSET)}
                    await transaction.send_offsets(offsets, GroupMetadata("group"))
            except KafkaError as error:
                outcomes[-1] = repr(error)
            loop.on_turn = None
            if killed:
                await cluster.start_node(killed)
            async with producer.transaction() as transaction:
                await transaction.send("t", b"2", partition=0)
        async with TransactionalPeer(cluster, "reader") as reader:
            until = asyncio.get_running_loop().time() + 600
            while (contents := await visible(reader))[0][-1:] != [b"2"] and asyncio.get_running_loop().time() < until:
                await asyncio.sleep(0.1)
        if outcomes[-1] == "committed":
            assert contents == ([b"1", b"2"], [b"1"], OFFSET)
        else:
            assert contents == ([b"2"], [], -1), outcomes[-1]
        return steps.is_reached


@pytest.mark.thorough
@each_event
def test_a_producer_commits_while_a_coordinator_or_a_leader_is_replaced(event: str, generation: int) -> None:
    outcomes: list[str] = []
    steps = itertools.takewhile(lambda step: run(lives_on(step, event, generation, outcomes)), itertools.count())
    assert len(list(steps)) > 20
    assert set(outcomes) == {"committed"}
