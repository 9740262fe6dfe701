"""Produce, Fetch and ListOffsets from a raw client, in every version."""

from __future__ import annotations

import asyncio
import time

import pytest

from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.errors import ConfigurationError, ErrorCode
from aiokafka_lite.protocol.messages import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from aiokafka_lite.protocol.records import replace_max_timestamp, split_batches
from aiokafka_lite.types import Compression
from tests.embedded.broker.raw_client import Peer, fetch_request, produce_request
from tests.pure.embedded.batches import produced
from tests.virtual import in_virtual_time


def now_batch(*values: bytes, **fields: int) -> bytes:
    return produced(*values, timestamp=int(time.time() * 1000), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", range(3, 14))
async def test_each_version_of_produce_appends_and_answers_with_offsets(one: EmbeddedCluster, version: int) -> None:
    topic = await one.create_topic("t", 2)
    async with Peer(one) as peer:
        for expected in (0, 2):
            data = ProduceRequestPartition(index=1, records=now_batch(b"a", b"b"))
            topic_request = ProduceRequestTopic(name="t", topic_id=topic.topic_id, partition_data=[data])
            response = await peer.ask(ProduceRequest(acks=-1, timeout_ms=100, topic_data=[topic_request]), version)
            (answered,) = response.responses
            assert (answered.name, answered.topic_id) == (("t", bytes(16)) if version < 13 else ("", topic.topic_id))
            (partition,) = answered.partition_responses
            assert (partition.index, partition.error_code, partition.base_offset) == (1, 0, expected)


@pytest.mark.parametrize("version", range(4, 19))
async def test_each_version_of_fetch_returns_the_produced_records(one: EmbeddedCluster, version: int) -> None:
    topic = await one.create_topic("t")
    async with Peer(one) as peer:
        await peer.produce("t", now_batch(b"a", b"b"))
        partition_request = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        request = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1000,
            topics=[FetchRequestTopic(topic="t", topic_id=topic.topic_id, partitions=[partition_request])],
        )
        response = await peer.ask(request, version)
        (answered,) = response.responses
        (partition,) = answered.partitions
        assert (partition.error_code, partition.high_watermark, partition.last_stable_offset) == (0, 2, 2)
        assert partition.records is not None
        (batch,) = split_batches(partition.records)
        batch.verify_crc()
        assert batch.columns().values == [b"a", b"b"]


async def test_unknown_topics_partitions_and_ids_do_not_fail_the_others(one: EmbeddedCluster) -> None:
    topic = await one.create_topic("t")
    async with Peer(one) as peer:
        request = produce_request("t", now_batch())
        request.topic_data[0].partition_data.append(ProduceRequestPartition(index=9, records=now_batch()))
        request.topic_data.append(
            ProduceRequestTopic(name="no", partition_data=[ProduceRequestPartition(index=0, records=now_batch())])
        )
        response = await peer.ask(request, 9)
        codes = [[p.error_code for p in t.partition_responses] for t in response.responses]
        assert codes == [[0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]]
        assert (await peer.fetch("no", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        data = [ProduceRequestPartition(index=0, records=now_batch())]
        unknown = ProduceRequestTopic(topic_id=bytes(15) + b"\1", partition_data=data)
        response = await peer.ask(ProduceRequest(acks=1, timeout_ms=1, topic_data=[unknown]), 13)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert topic.topic_id != unknown.topic_id


async def test_a_denied_topic_is_refused_and_the_rest_written(one: EmbeddedCluster) -> None:
    await one.create_topic("secret")
    await one.create_topic("t")
    one.authorizer.deny_topic("secret")
    async with Peer(one) as peer:
        request = produce_request("secret", now_batch())
        request.topic_data += produce_request("t", now_batch()).topic_data
        response = await peer.ask(request, 9)
        codes = [t.partition_responses[0].error_code for t in response.responses]
        assert codes == [ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0]
        assert (await peer.fetch("secret", 0)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_acks_must_be_minus_1_0_or_1(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    async with Peer(one) as peer:
        assert (await peer.produce("t", now_batch(), acks=2)).error_code == ErrorCode.INVALID_REQUIRED_ACKS


async def test_a_successful_produce_with_acks_0_has_no_response(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    async with Peer(one) as peer:
        peer.send(produce_request("t", now_batch(b"a"), acks=0), 9, answered=False)
        assert (await peer.produce("t", now_batch(b"b"))).base_offset == 1


async def test_a_failed_produce_with_acks_0_closes_the_connection(one: EmbeddedCluster) -> None:
    async with Peer(one) as peer:
        peer.send(produce_request("missing", now_batch(), acks=0), 9, answered=False)
        assert await peer.receive() is None


async def test_record_errors_and_messages_are_in_the_versions_that_have_them(one: EmbeddedCluster) -> None:
    await one.create_topic("compacted", configs={"cleanup.policy": "compact"})
    keyless = produced(b"a", key=None)
    async with Peer(one) as peer:
        refused = await peer.produce("compacted", keyless, version=8)
        assert refused.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in refused.record_errors] == [0]
        assert refused.error_message
        old = await peer.produce("compacted", keyless, version=7)
        assert (old.error_code, old.record_errors, old.error_message) == (ErrorCode.INVALID_RECORD, [], None)


async def test_a_follower_names_the_leader_from_version_10_on(three: EmbeddedCluster) -> None:
    await three.create_topic("t", assignments=[[2, 1]])
    async with Peer(three, node=1) as peer:
        response = await peer.ask(produce_request("t", now_batch()), 10)
        refused = response.responses[0].partition_responses[0]
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refused.current_leader.leader_id == 2
        (endpoint,) = response.node_endpoints
        assert (endpoint.node_id, endpoint.port) == (2, three.nodes[2].port)


async def test_a_fetch_waits_until_there_are_records(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    async with Peer(one) as reader, Peer(one) as writer:
        waiting = asyncio.ensure_future(reader.fetch("t", 0, max_wait_ms=60_000))
        while not len(one.nodes[1].replica_manager.fetch_purgatory):
            await asyncio.sleep(0)
        await writer.produce("t", now_batch(b"a"))
        assert (await waiting).high_watermark == 1
        assert len(one.nodes[1].replica_manager.fetch_purgatory) == 0


@in_virtual_time
async def test_a_fetch_without_records_waits_longer_in_a_patient_cluster() -> None:
    async with EmbeddedCluster(tcp=False, config=ClusterConfig(fetch_patience=4.0)) as cluster, Peer(cluster) as peer:
        await cluster.create_topic("t")
        clock = asyncio.get_running_loop().time
        began = clock()
        await peer.fetch("t", 0, max_wait_ms=500)
        assert clock() - began == pytest.approx(2.0, abs=0.01)
        await cluster.produce("t", "one")
        await peer.fetch("t", 0, max_wait_ms=500)  # records are answered at once
        await peer.fetch("t", 0, max_wait_ms=500, min_bytes=10_000)  # and those that wait for others after max_wait
        assert clock() - began == pytest.approx(2.5, abs=0.01)
    with pytest.raises(ConfigurationError, match=r"fetch_patience must be a number >= 1, got 0\.5"):
        ClusterConfig(fetch_patience=0.5)


async def test_a_fetch_waits_for_min_bytes_or_max_wait(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    async with Peer(one) as peer:
        await peer.produce("t", now_batch(b"a"))
        loop = asyncio.get_running_loop()
        began = loop.time()
        fetched = await peer.fetch("t", 0, max_wait_ms=50, min_bytes=10_000)
        assert loop.time() - began >= 0.049
        assert fetched.records


async def test_a_disconnected_reader_leaves_no_waiting_request(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    async with Peer(one) as peer:
        peer.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
        while not len(one.nodes[1].replica_manager.fetch_purgatory):
            await asyncio.sleep(0)
    while len(one.nodes[1].replica_manager.fetch_purgatory) or one.nodes[1].connections:
        await asyncio.sleep(0)


async def test_the_first_batch_is_whole_however_small_the_limits(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    async with Peer(one) as peer:
        await peer.produce("t", now_batch(b"x" * 5000))
        await peer.produce("t", now_batch(b"y" * 5000))
        fetched = await peer.fetch("t", 0, max_bytes=1, partition_max_bytes=1)
        assert fetched.records is not None
        (batch,) = split_batches(fetched.records)
        assert batch.last_offset == 0
        both = await peer.fetch("t", 0, partition_max_bytes=len(fetched.records) + 100)
        assert both.records is not None
        assert len(both.records) == len(fetched.records) + 100  # the second is cut, as Kafka's file slices are


async def test_an_offset_outside_the_log_is_out_of_range(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    async with Peer(one) as peer:
        assert (await peer.fetch("t", 1, max_wait_ms=1000)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_list_offsets_supports_all_special_timestamps(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    now = int(time.time() * 1000)
    async with Peer(one) as peer:
        for timestamp in (now, now - 50, now - 100):
            await peer.produce("t", produced(b"v", timestamp=timestamp))
        assert (await peer.offset("t", -1)).offset == 3
        assert (await peer.offset("t", -2)).offset == 0
        assert (await peer.offset("t", -3)).offset == 0
        assert (await peer.offset("t", -4)).offset == 0
        assert (await peer.offset("t", -5)).offset == -1
        by_time = await peer.offset("t", now - 60)
        assert (by_time.offset, by_time.timestamp, by_time.leader_epoch) == (0, now, 0)
        late = await peer.offset("t", now + 1)
        assert (late.error_code, late.offset, late.timestamp) == (0, -1, -1)
        assert (await peer.offset("t", -3, version=6)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_the_highest_of_no_timestamps_is_that_of_the_first_record(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    async with Peer(one) as peer:
        empty = await peer.offset("t", -3)
        for _ in range(2):
            await peer.produce("t", produced(b"v", timestamp=-1))
        answer = await peer.offset("t", -3)
    assert (empty.offset, empty.timestamp, empty.leader_epoch) == (-1, -1, -1)
    assert (answer.offset, answer.timestamp, answer.leader_epoch) == (0, -1, 0)


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("topic_compression", ["producer", "gzip"])
async def test_a_missing_maximum_timestamp_is_computed_so_that_no_fresh_record_expires(
    one: EmbeddedCluster, compression: Compression, topic_compression: str
) -> None:
    """Sarama leaves -1 in the header of a batch. Kafka stores the highest timestamp of the records."""
    await one.create_topic("t", configs={"compression.type": topic_compression})
    now = int(time.time() * 1000)
    batch = replace_max_timestamp(produced(b"a", b"b", timestamp=now, compression=compression), -1)
    async with Peer(one) as peer:
        assert (await peer.produce("t", batch)).error_code == ErrorCode.NONE
        one.clean_up()
        answer = await peer.fetch("t", 0)
        assert (answer.error_code, answer.log_start_offset) == (ErrorCode.NONE, 0)
        (stored,) = split_batches(answer.records or b"")
        assert (stored.max_timestamp, stored.count) == (now + 1, 2)
        stored.verify_crc()
        first = await peer.offset("t", now)
        assert (first.offset, first.timestamp) == (0, now)


async def test_a_record_of_the_future_is_refused_whatever_the_header_says(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    late = int(time.time() * 1000) + 2 * 3_600_000
    async with Peer(one) as peer:
        answer = await peer.produce("t", replace_max_timestamp(produced(b"a", timestamp=late), -1))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("version", range(1, 12))
async def test_each_version_of_list_offsets_answers(one: EmbeddedCluster, version: int) -> None:
    await one.create_topic("t")
    async with Peer(one) as peer:
        await peer.produce("t", now_batch(b"a", b"b"))
        assert (await peer.offset("t", -1, version=version)).offset == 2


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (9, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
async def test_the_end_of_a_log_does_not_go_back_with_a_new_leader(
    three: EmbeddedCluster, version: int, code: ErrorCode
) -> None:
    """Spark takes records for lost if the end of a log is lower than the end with which it planned a batch."""
    await three.create_topic("t", assignments=[[1, 2, 3]])
    async with Peer(three, 1) as peer:
        await peer.produce("t", now_batch(b"a", b"b"))
        assert (await peer.offset("t", -1, version=version)).offset == 2
    await three.freeze(3)
    replica = three.nodes[2].replica_manager.require(("t", 0))
    replica.log.high_watermark = 0  # as of a follower that has not heard yet that the records are committed
    await three.move_leader("t", 0, 2)
    async with Peer(three, 2) as peer:
        assert replica.log.high_watermark == 0
        for timestamp in (-1, 0, -3):
            answer = await peer.offset("t", timestamp, version=max(version, 7) if timestamp == -3 else version)
            expected = ErrorCode.OFFSET_NOT_AVAILABLE if timestamp == -3 else code
            assert (answer.error_code, answer.offset) == (expected, -1)
        assert (await peer.offset("t", -2, version=version)).offset == 0
        await three.thaw(3)
        await until_offset(peer, 2, version)


async def until_offset(peer: Peer, offset: int, version: int) -> None:
    async with asyncio.timeout(10):
        while (answer := await peer.offset("t", -1, version=version)).error_code:
            await asyncio.sleep(0.01)
    assert answer.offset == offset


async def test_an_epoch_ends_where_the_next_leader_starts(three: EmbeddedCluster) -> None:
    await three.create_topic("t", assignments=[[1, 2, 3]])
    async with Peer(three, 1) as peer:
        await peer.produce("t", now_batch(b"a", b"b"))
    await three.move_leader("t", 0, 2)
    async with Peer(three, 2) as peer:
        await peer.produce("t", now_batch(b"c"))
        partitions = [
            OffsetForLeaderEpochRequestPartition(partition=0, current_leader_epoch=1, leader_epoch=epoch)
            for epoch in (0, 1)
        ]
        request = OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderEpochRequestTopic(topic="t", partitions=partitions)]
        )
        ends = (await peer.ask(request)).topics[0].partitions
        assert [(end.leader_epoch, end.end_offset) for end in ends] == [(0, 2), (1, 3)]
        stale = await peer.fetch("t", 0, leader_epoch=0)
        assert stale.error_code == ErrorCode.FENCED_LEADER_EPOCH
        ahead = await peer.fetch("t", 3, leader_epoch=1, last_fetched_epoch=0, max_wait_ms=1000)
        assert (ahead.diverging_epoch.epoch, ahead.diverging_epoch.end_offset) == (0, 2)
