"""Coordinators that move or die between any two steps of a transaction."""

from __future__ import annotations

import asyncio
import random

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.coordinators.transactions.transaction import TransactionState
from aiokafka_lite.embedded.log.producer_state import read_marker
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol import messages as m
from aiokafka_lite.protocol.records import split_batches
from tests.embedded.transactions.conftest import CONFIGS
from tests.embedded.transactions.raw_producer import STATE, TransactionalPeer

OK = ErrorCode.NONE


async def move(producer: TransactionalPeer) -> None:
    await producer.cluster.move_leader(STATE, producer.state_partition)


async def test_an_open_transaction_moves_with_its_coordinator(producer: TransactionalPeer) -> None:
    await producer.write("t", b"1")
    before = await producer.describe()
    await move(producer)
    assert await producer.describe() == before
    await producer.write("u", b"2")
    assert await producer.commit() is OK
    await producer.until_complete()
    assert await producer.read("t") + await producer.read("u") == [b"1", b"2"]


@pytest.mark.parametrize("commit", [True, False])
async def test_the_next_coordinator_writes_the_markers_of_a_decided_transaction(
    producer: TransactionalPeer, commit: bool
) -> None:
    with producer.cluster.hold_markers("t", 0):
        await producer.write("t", b"1")
        await producer.write("u", b"2")
        assert await producer.end(commit=commit) is OK
        await asyncio.sleep(1)
        await producer.cluster.kill(await producer.find("id", 1))
        await asyncio.sleep(1)
    assert await producer.until_complete() == ("CompleteCommit" if commit else "CompleteAbort")
    assert await producer.read("t") == ([b"1"] if commit else [])
    assert await producer.read("u") == ([b"2"] if commit else [])
    assert await producer.write("t", b"3") is OK
    assert await producer.commit() is OK


async def test_a_coordinator_that_dies_before_the_decision_leaves_the_transaction_open(
    producer: TransactionalPeer,
) -> None:
    await producer.write("t", b"1")
    await producer.cluster.kill(await producer.find("id", 1))
    assert (await producer.describe()).transaction_state == "Ongoing"
    assert await producer.commit() is OK
    await producer.until_complete()
    assert await producer.read("t") == [b"1"]


async def test_the_timeout_counts_on_the_next_coordinator_too(producer: TransactionalPeer) -> None:
    await producer.initialize(timeout_ms=5000)
    await producer.write("t", b"1")
    await move(producer)
    await asyncio.sleep(7)
    assert await producer.until_complete() == "CompleteAbort"


def hosts(producer: TransactionalPeer) -> list[int]:
    """Return the nodes that have the transactional id in memory."""
    nodes = producer.cluster.nodes.values()
    return [node.node_id for node in nodes if node.transactions.get(producer.transactional_id) is not None]


async def test_only_the_coordinator_hosts_a_transactional_id(producer: TransactionalPeer) -> None:
    assert hosts(producer) == [await producer.find("id", 1)]
    await move(producer)
    moved_to = await producer.find("id", 1)
    assert hosts(producer) == [moved_to]
    await producer.cluster.kill(moved_to)
    assert hosts(producer) == [await producer.find("id", 1)]


async def test_markers_have_the_leader_epoch_of_a_coordinator_that_is_elected_again(
    producer: TransactionalPeer,
) -> None:
    """A marker with an older epoch would be fenced by the markers of coordinators in between."""
    await producer.write("t", b"1")
    await producer.cluster.move_leader(STATE, producer.state_partition, await producer.find("id", 1))
    epoch = producer.cluster.state_of(STATE, producer.state_partition).leader_epoch
    assert epoch == 1
    assert await producer.commit() is OK
    await producer.until_complete()
    _, batch = split_batches((await producer.fetch("t")).records)
    marker = read_marker(batch)
    assert marker is not None
    assert (marker.committed, marker.coordinator_epoch) == (True, epoch)


async def test_another_node_is_not_the_coordinator(producer: TransactionalPeer) -> None:
    coordinator = await producer.find("id", 1)
    other = next(node for node in producer.cluster.nodes if node != coordinator)
    transactions = producer.cluster.nodes[other].transactions
    assert transactions.check("id") is ErrorCode.NOT_COORDINATOR
    result = await transactions.end("id", (producer.producer_id, producer.epoch), commit=True, generation=0)
    assert result.error is ErrorCode.NOT_COORDINATOR


async def test_a_coordinator_that_cannot_replicate_does_not_decide(producer: TransactionalPeer) -> None:
    await producer.write("t", b"1")
    coordinator = await producer.find("id", 1)
    followers = [node for node in producer.cluster.nodes if node != coordinator]
    for node in followers:
        await producer.cluster.freeze(node)
    await producer.cluster.set_isr(STATE, producer.state_partition, [coordinator])
    version = 5 if producer.generation == 2 else 4
    answer = await producer.ask(coordinator, m.EndTxnRequest(committed=True, **producer.identity), version)
    assert ErrorCode.of(answer.error_code) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    transaction = producer.cluster.nodes[coordinator].transactions.get("id")
    assert transaction is not None
    assert transaction.state is TransactionState.ONGOING
    for node in followers:
        await producer.cluster.thaw(node)
    await producer.cluster.until_in_sync(STATE)
    assert await producer.commit() is OK
    assert await producer.until_complete() == "CompleteCommit"


async def test_a_leader_that_moves_before_its_marker_gets_it_at_its_new_node(producer: TransactionalPeer) -> None:
    with producer.cluster.hold_markers("t", 0):
        await producer.write("t", b"1")
        await producer.commit()
        await producer.cluster.move_leader("t", 0)
        await asyncio.sleep(1)
        assert await producer.read("t") == []
    await producer.until_complete()
    assert await producer.read("t") == [b"1"]


async def test_a_leader_that_is_cut_off_gets_its_marker_later(producer: TransactionalPeer) -> None:
    cluster = producer.cluster
    await cluster.create_topic("single", assignments=[[cluster.leader_of("t", 0)]])
    await producer.write("single", b"1")
    coordinator = await producer.find("id", 1)
    leader = cluster.leader_of("single", 0)
    if coordinator == leader:
        await move(producer)
    await cluster.partition_network([leader])
    while (error := await producer.commit()) is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        await asyncio.sleep(1)  # until the follower that is cut off is fenced
    assert error is OK
    await asyncio.sleep(5)
    assert (await producer.describe()).transaction_state == "PrepareCommit"
    await cluster.heal_network()
    assert await producer.until_complete() == "CompleteCommit"
    assert await producer.read("single") == [b"1"]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(20))
async def test_no_crash_or_move_loses_or_splits_a_transaction(seed: int) -> None:
    """Coordinators and leaders move at random while a producer writes to two partitions: a value is in both or none."""
    choice = random.Random(seed)
    async with EmbeddedCluster(brokers=3, tcp=False, seed=seed, configs=CONFIGS) as cluster:
        await cluster.create_topic("t", 1, 3)
        await cluster.create_topic("u", 1, 3)
        committed: list[bytes] = []
        async with TransactionalPeer(cluster, "id", generation=1 + seed % 2) as producer:
            await producer.initialize()
            for number in range(20):
                value = b"%d" % number
                written = [await producer.write(topic, value) for topic in ("t", "u")]
                commit = choice.random() < 0.7 and written == [OK, OK]
                error = await producer.end(commit=commit)
                if choice.random() < 0.4:
                    topic = choice.choice(["t", "u", STATE])
                    await cluster.move_leader(topic, producer.state_partition if topic == STATE else 0)
                if error is OK and commit:
                    committed.append(value)
                elif error is not OK:
                    assert await producer.initialize() is OK
            await producer.until_complete()
            assert await producer.read("t") == committed
            assert await producer.read("u") == committed
