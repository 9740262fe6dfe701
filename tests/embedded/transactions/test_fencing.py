"""InitProducerId: the producer that may continue, the producer that is fenced, and the end of an open transaction."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.errors import ConnectionLost, ErrorCode
from aiokafka_lite.protocol import messages as m
from tests.embedded.transactions.raw_producer import TransactionalPeer
from tests.waiting import until

OK = ErrorCode.NONE
LAST = 32766


async def test_a_new_producer_fences_the_old_one_and_aborts_its_transaction(
    cluster: EmbeddedCluster, producer: TransactionalPeer
) -> None:
    await producer.write("t", b"old")
    async with TransactionalPeer(cluster, "id", generation=producer.generation) as new:
        assert await new.initialize(attempts=1) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert await new.initialize() is OK
        assert (new.producer_id, new.epoch) == (producer.producer_id, producer.epoch + 2)
        assert await producer.commit() is ErrorCode.PRODUCER_FENCED
        assert await producer.add(("t", 0)) == [ErrorCode.PRODUCER_FENCED]
        assert await producer.produce("t", b"zombie") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await new.write("t", b"new") is OK
        assert await new.commit() is OK
        await new.until_complete()
        assert await new.read("t") == [b"new"]


async def test_the_epoch_of_a_batch_is_checked_before_its_transactional_id(cluster: EmbeddedCluster) -> None:
    async with TransactionalPeer(cluster, "id") as first, TransactionalPeer(cluster, "other") as other:
        await other.initialize()
        await first.initialize()
        other.producer_id, other.epoch = first.producer_id, first.epoch
        await first.write("t", b"value")
        await first.commit()
        await first.until_complete()
        assert await other.produce("t", b"late") is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_old_versions_name_a_fenced_producer_otherwise(
    cluster: EmbeddedCluster, first: TransactionalPeer
) -> None:
    old = (first.producer_id, first.epoch)
    async with TransactionalPeer(cluster, "id", generation=1) as new:
        await new.initialize()
        assert await first.add(("t", 0), version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert await first.end(commit=True, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
        await new.initialize()
        assert await first.initialize(old=old, version=3) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await first.initialize(old=old) is ErrorCode.PRODUCER_FENCED


async def test_a_producer_continues_with_the_next_epoch(producer: TransactionalPeer) -> None:
    """KIP-360: after an error, with its old id and epoch. If the answer is lost, it gets the same answer again."""
    old = (producer.producer_id, producer.epoch)
    assert await producer.initialize(old=old) is OK
    assert (producer.producer_id, producer.epoch) == (old[0], old[1] + 1)
    assert await producer.initialize(old=old) is OK
    assert (producer.producer_id, producer.epoch) == (old[0], old[1] + 1)


async def test_another_producer_id_cannot_continue(producer: TransactionalPeer) -> None:
    assert await producer.initialize(old=(4711, 0)) is ErrorCode.PRODUCER_FENCED
    producer.producer_id += 1
    assert await producer.add(("t", 0)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert await producer.commit() is ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_an_unknown_transactional_id_has_no_producer(producer: TransactionalPeer) -> None:
    producer.transactional_id = "unknown"
    assert await producer.commit() is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert (await producer.describe()).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_an_empty_transactional_id_is_refused(producer: TransactionalPeer) -> None:
    producer.transactional_id = ""
    assert await producer.initialize() is ErrorCode.INVALID_REQUEST
    assert await producer.commit() is ErrorCode.INVALID_REQUEST


def exhaust(producer: TransactionalPeer, epoch: int = LAST) -> None:
    """Set the epoch of a transactional id, as after thousands of producers or transactions."""
    for node in producer.cluster.nodes.values():
        hosted = node.transactions._hosted.get(producer.transactional_id)
        if hosted is not None:
            hosted.value = replace(hosted.value, producer_epoch=epoch)
    producer.epoch = epoch


async def test_an_exhausted_epoch_brings_a_new_producer_id(producer: TransactionalPeer) -> None:
    exhaust(producer)
    old = (producer.producer_id, producer.epoch)
    assert await producer.initialize(old=old) is OK
    new = (producer.producer_id, producer.epoch)
    assert (new[0] != old[0], new[1]) == (True, 0)
    assert await producer.initialize(old=old) is OK  # the answer was lost
    assert (producer.producer_id, producer.epoch) == new


async def test_the_end_of_the_last_epoch_brings_a_new_producer_id(second: TransactionalPeer) -> None:
    exhaust(second)
    old = (second.producer_id, second.epoch)
    await second.write("t", b"1")
    assert await second.commit() is OK
    new = (second.producer_id, second.epoch)
    assert (new[0] != old[0], new[1]) == (True, 0)
    await second.until_complete()
    second.producer_id, second.epoch = old
    assert await second.commit() is OK  # the answer was lost
    assert (second.producer_id, second.epoch) == new
    await second.write("t", b"2")
    await second.commit()
    await second.until_complete()
    assert await second.read("t") == [b"1", b"2"]


async def test_a_transaction_is_aborted_after_its_timeout(producer: TransactionalPeer) -> None:
    await producer.initialize(timeout_ms=5000)
    await producer.write("t", b"1")
    await asyncio.sleep(4)
    assert (await producer.describe()).transaction_state == "Ongoing"
    await asyncio.sleep(3)
    assert await producer.until_complete() == "CompleteAbort"
    assert await producer.read("t") == []
    assert (await producer.fetch("t")).last_stable_offset == 2
    fenced = {1: ErrorCode.PRODUCER_FENCED, 2: ErrorCode.INVALID_TXN_STATE}
    assert await producer.commit() is fenced[producer.generation]
    assert await producer.initialize(old=(producer.producer_id, producer.epoch)) is OK


async def test_a_cluster_of_generation_1_fences_the_producer_of_a_transaction_that_timed_out(
    first: TransactionalPeer,
) -> None:
    first.cluster.set_feature("transaction.version", 1)
    await first.initialize(timeout_ms=5000)
    await first.write("t", b"1")
    await asyncio.sleep(7)
    assert await first.until_complete() == "CompleteAbort"
    assert await first.commit() is ErrorCode.PRODUCER_FENCED
    assert await first.initialize(old=(first.producer_id, first.epoch)) is ErrorCode.PRODUCER_FENCED


async def test_an_unused_transactional_id_expires() -> None:
    now = 1_000_000.0
    configs = {"transactional.id.expiration.ms": "60000"}
    config = ClusterConfig(wall_clock=lambda: now)
    async with EmbeddedCluster(brokers=1, tcp=False, configs=configs, config=config) as cluster:
        await cluster.create_topic("t")
        async with TransactionalPeer(cluster, "id") as producer:
            await producer.initialize()
            now += 59
            cluster.clean_up()
            assert (await producer.describe()).transaction_state == "Empty"
            now += 2
            cluster.clean_up()
            await until(lambda: cluster.nodes[1].transactions.get("id") is None)
            await cluster.restart(1)
        async with TransactionalPeer(cluster, "id") as producer:
            assert (await producer.describe()).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            assert await producer.commit() is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("disconnected", [True, False])
async def test_a_client_that_disconnects_does_not_stop_the_change_of_its_transaction(
    producer: TransactionalPeer, disconnected: bool
) -> None:
    await producer.write("t", b"1")
    if disconnected:
        producer.cluster.on(m.EndTxnRequest).apply_then_disconnect()
        coordinator = await producer.find("id", 1)
        version = 5 if producer.generation == 2 else 4
        with pytest.raises(ConnectionLost):
            await producer.ask(coordinator, m.EndTxnRequest(committed=True, **producer.identity), version)
    else:
        await producer.commit()
    assert await producer.until_complete() == "CompleteCommit"
