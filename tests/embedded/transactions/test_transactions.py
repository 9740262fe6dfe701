"""Transactions from their first record to their markers, with both generations of the protocol."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol import messages as m
from aiokafka_lite.protocol.records import split_batches
from tests.embedded.broker.raw_client import Peer
from tests.embedded.transactions.raw_producer import OFFSETS, STATE, TransactionalPeer

OK = ErrorCode.NONE


async def test_a_committed_transaction_is_read_whole(producer: TransactionalPeer) -> None:
    assert await producer.write("t", b"1", b"2") is OK
    assert await producer.write("u", b"3", partition=1) is OK
    assert await producer.read("t") == []
    assert await producer.read("t", committed=False) == [b"1", b"2"]
    assert await producer.commit() is OK
    assert await producer.until_complete() == "CompleteCommit"
    assert await producer.read("t") == [b"1", b"2"]
    assert await producer.read("u", partition=1) == [b"3"]


async def test_an_aborted_transaction_is_skipped_and_its_offsets_are_not(producer: TransactionalPeer) -> None:
    assert await producer.write("t", b"1") is OK
    assert await producer.abort() is OK
    assert await producer.until_complete() == "CompleteAbort"
    assert await producer.write("t", b"2") is OK
    assert await producer.commit() is OK
    await producer.until_complete()
    assert await producer.read("t") == [b"2"]
    assert await producer.read("t", committed=False) == [b"1", b"2"]
    answer = await producer.fetch("t")
    assert [
        (aborted_transaction.producer_id, aborted_transaction.first_offset)
        for aborted_transaction in answer.aborted_transactions
    ] == [(0, 0)]
    assert answer.last_stable_offset == answer.high_watermark == 4
    assert (await producer.fetch("t", committed=False)).aborted_transactions is None


async def test_the_last_stable_offset_is_before_the_first_open_transaction(
    cluster: EmbeddedCluster, producer: TransactionalPeer
) -> None:
    async with TransactionalPeer(cluster, "other") as other:
        await other.initialize()
        await other.write("t", b"0")
        await producer.write("t", b"1")
        await other.commit()
        await other.until_complete()
        assert await producer.read("t") == [b"0"]
        async with Peer(cluster, cluster.leader_of("t", 0)) as peer:
            for isolation, end in ((0, 3), (1, 1)):
                partition = m.ListOffsetsRequestPartition(partition_index=0, timestamp=-1)
                topic = m.ListOffsetsRequestTopic(name="t", partitions=[partition])
                request = m.ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[topic])
                assert (await peer.ask(request, 9)).topics[0].partitions[0].offset == end


async def test_a_waiting_reader_of_committed_records_gets_them_with_the_commit(producer: TransactionalPeer) -> None:
    await producer.write("t", b"1")
    async with Peer(producer.cluster, producer.cluster.leader_of("t", 0)) as peer:
        waiting = asyncio.create_task(peer.fetch("t", 0, isolation_level=1, max_wait_ms=60_000, min_bytes=1))
        await asyncio.sleep(10)
        assert not waiting.done()
        await producer.commit()
        assert split_batches((await waiting).records)[0].count == 1


async def test_markers_have_the_result_and_the_epoch_of_the_coordinator(second: TransactionalPeer) -> None:
    await second.write("t", b"1")
    epoch = second.epoch
    await second.commit()
    await second.until_complete()
    _, marker = split_batches((await second.fetch("t")).records)
    assert (marker.is_control, marker.is_transactional, marker.producer_epoch) == (True, True, epoch + 1)
    columns = marker.columns()
    assert bytes(columns.keys[0] or b"") == bytes.fromhex("0000 0001")
    assert bytes(columns.values[0] or b"") == bytes.fromhex("0000 00000000")


async def test_generation_1_keeps_the_epoch_and_the_sequences(first: TransactionalPeer) -> None:
    for value in (b"1", b"2"):
        assert await first.write("t", value) is OK
        assert await first.commit() is OK
    assert (first.epoch, first.sequences) == (0, {("t", 0): 2})


async def test_generation_2_gets_the_next_epoch_with_each_end(second: TransactionalPeer) -> None:
    for epoch in (0, 1, 2):
        assert second.epoch == epoch
        assert await second.write("t", b"v") is OK
        assert await second.end(commit=epoch != 1) is OK


async def test_generation_2_adds_partitions_by_writing_to_them(second: TransactionalPeer) -> None:
    await second.write("t", b"1")
    await second.write("u", b"2", partition=1)
    described = await second.describe()
    assert described.transaction_state == "Ongoing"
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [("t", [0]), ("u", [1])]


async def test_a_repeated_end_gets_the_same_answer(producer: TransactionalPeer) -> None:
    """The answer to the first one was lost."""
    await producer.write("t", b"1")
    before = (producer.producer_id, producer.epoch)
    assert await producer.commit() is OK
    after = (producer.producer_id, producer.epoch)
    await producer.until_complete()
    producer.producer_id, producer.epoch = before
    assert await producer.commit() is OK
    assert (producer.producer_id, producer.epoch) == after
    producer.producer_id, producer.epoch = before
    assert await producer.abort() is ErrorCode.INVALID_TXN_STATE


async def test_a_commit_without_a_transaction_is_refused(producer: TransactionalPeer) -> None:
    assert await producer.commit() is ErrorCode.INVALID_TXN_STATE


async def test_only_generation_2_aborts_without_a_transaction(
    first: TransactionalPeer, cluster: EmbeddedCluster
) -> None:
    assert await first.abort() is ErrorCode.INVALID_TXN_STATE
    async with TransactionalPeer(cluster, "other") as second:
        await second.initialize()
        assert await second.abort() is OK
        assert second.epoch == 1


async def test_the_next_transaction_waits_for_the_markers_of_the_last(producer: TransactionalPeer) -> None:
    with producer.cluster.hold_markers("t", 0):
        await producer.write("t", b"1")
        await producer.write("u", b"2")
        assert await producer.commit() is OK
        await asyncio.sleep(60)
        assert (await producer.describe()).transaction_state == "PrepareCommit"
        assert await producer.read("u") == [b"2"]
        assert await producer.read("t") == []
        refused = await producer.add(("t", 0))
        assert refused == [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert await producer.initialize(attempts=1) is ErrorCode.CONCURRENT_TRANSACTIONS
    await producer.until_complete()
    assert await producer.read("t") == [b"1"]
    assert await producer.write("t", b"3") is OK


async def test_records_outside_of_the_transaction_are_refused_while_it_is_open(first: TransactionalPeer) -> None:
    await first.write("t", b"1")
    assert await first.produce("t", b"2", transactional=False) is ErrorCode.INVALID_TXN_STATE


async def test_a_partition_that_was_not_added_is_refused(first: TransactionalPeer) -> None:
    """Otherwise no marker would follow the record, and the transaction would hang (KIP-890)."""
    await first.add(("t", 0))
    assert await first.produce("u", b"1") is ErrorCode.TRANSACTION_ABORTABLE
    assert await first.produce("t", b"1") is OK


async def test_a_late_record_of_an_ended_transaction_is_refused(producer: TransactionalPeer) -> None:
    await producer.write("t", b"1")
    late = (producer.producer_id, producer.epoch, producer.sequences["t", 0])
    await producer.commit()
    await producer.until_complete()
    producer.producer_id, producer.epoch, producer.sequences["t", 0] = late
    expected = {1: ErrorCode.TRANSACTION_ABORTABLE, 2: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert await producer.produce("t", b"late") is expected[producer.generation]


async def test_brokers_before_3_6_do_not_verify_partitions() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, as_kafka="2.8") as cluster:
        await cluster.create_topic("t")
        async with TransactionalPeer(cluster, "id", generation=1) as producer:
            request = m.FindCoordinatorRequest(key_type=1, key="id")
            assert (await producer.ask(1, request, 3)).error_code == 0
            initialize = m.InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=1000)
            answer = await producer.ask(1, initialize, 4)
            assert (answer.error_code, answer.producer_epoch) == (0, 0)
            producer.producer_id, producer.epoch = answer.producer_id, answer.producer_epoch
            assert await producer.produce("t", b"not added", version=9) is OK


async def test_unknown_partitions_add_nothing(first: TransactionalPeer) -> None:
    answers = await first.add(("t", 0), ("nowhere", 0))
    assert answers == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (await first.describe()).transaction_state == "Empty"


async def test_followers_know_the_last_stable_offset_and_the_aborted_transactions(
    producer: TransactionalPeer,
) -> None:
    await producer.write("t", b"1")
    await producer.abort()
    await producer.until_complete()
    await producer.write("t", b"2")
    for node in producer.cluster.nodes:
        answer = await producer.fetch("t", node=node)
        assert [aborted_transaction.first_offset for aborted_transaction in answer.aborted_transactions] == [0]
        assert answer.last_stable_offset == 2
    await producer.cluster.move_leader("t", 0)
    assert await producer.write("t", b"3") is OK
    await producer.commit()
    await producer.until_complete()
    assert await producer.read("t") == [b"2", b"3"]


async def test_a_deleted_topic_does_not_keep_a_transaction_open(producer: TransactionalPeer) -> None:
    await producer.write("t", b"1")
    await producer.write("u", b"2")
    await producer.cluster.delete_topic("t")
    assert await producer.commit() is OK
    assert await producer.until_complete() == "CompleteCommit"
    assert await producer.read("u") == [b"2"]


async def test_direct_reads_of_a_test_see_committed_records_only(producer: TransactionalPeer) -> None:
    await producer.write("t", b"1")
    assert producer.cluster.records("t") == []
    await producer.abort()
    await producer.until_complete()
    await producer.write("t", b"2")
    await producer.commit()
    await producer.until_complete()
    assert [record.value for record in producer.cluster.records("t")] == [b"2"]


async def test_the_topic_of_transactions_has_kafkas_settings(first: TransactionalPeer) -> None:
    topic = first.cluster.controller.topics[STATE]
    assert topic.is_internal
    assert (len(topic.partitions), len(topic.partitions[0].replicas)) == (3, 3)
    assert topic.config.compacted
    assert topic.config.min_insync_replicas == 2
    assert OFFSETS not in first.cluster.controller.topics


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_a_transaction_timeout_out_of_range_is_refused(first: TransactionalPeer, timeout_ms: int) -> None:
    assert await first.initialize(timeout_ms=timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
