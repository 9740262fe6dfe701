"""Hostile bytes: no crash, no memory allocated for a claimed length, no effect on other connections."""

from __future__ import annotations

import asyncio
import random
import struct
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.embedded.client_connections import INCOMPLETE_REQUEST
from aiokafka_lite.embedded.closing_log import ClosingLog
from aiokafka_lite.embedded.connection_limits import LONGEST_SILENCE
from aiokafka_lite.embedded.error_responses import LONGEST_MESSAGE
from aiokafka_lite.embedded.server_stream import ServerStream, UnsentResponses
from aiokafka_lite.embedded.settings.listeners import Listener
from aiokafka_lite.errors import ConfigurationError, ErrorCode, KafkaError
from aiokafka_lite.protocol.connection import ClientProtocol
from aiokafka_lite.protocol.framing import FrameMemory
from aiokafka_lite.protocol.messages import (
    REQUESTS,
    CreatableTopic,
    CreateTopicsRequest,
    DescribeClientQuotasComponent,
    DescribeClientQuotasRequest,
    MetadataRequest,
    MetadataRequestTopic,
    ProduceRequest,
)
from aiokafka_lite.protocol.schema import Request
from aiokafka_lite.types import Compression
from tests.embedded.broker.raw_client import Peer, fetch_request, produce_request
from tests.pure.embedded.batches import produced
from tests.virtual import in_virtual_time
from tests.waiting import DEADLINE, until


async def assert_alive(cluster: EmbeddedCluster) -> None:
    async with Peer(cluster) as peer:
        async with asyncio.timeout(DEADLINE):
            assert (await peer.ask(MetadataRequest(topics=[]))).brokers


async def ended(peer: Peer) -> bool:
    """Return whether the node closes the connection."""
    try:
        async with asyncio.timeout(DEADLINE):
            while await peer.stream.read_frame() is not None:
                pass
    except KafkaError:
        pass
    return True


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 3, 2**31 - 1, int.from_bytes(b"GET ", "big")])
async def test_an_impossible_frame_size_closes_the_connection(cluster: EmbeddedCluster, size: int) -> None:
    async with Peer(cluster) as bystander:
        async with Peer(cluster) as peer:
            peer.stream.write([struct.pack(">i", size) + b"x" * 100])
            assert await ended(peer)
        assert (await bystander.ask(MetadataRequest(topics=[]))).brokers


async def test_a_large_frame_size_alone_allocates_no_memory() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        tracemalloc.start()
        try:
            peers = [await Peer(cluster).__aenter__() for _ in range(20)]
            for peer in peers:
                peer.stream.write([struct.pack(">i", 100 * 1024 * 1024), b"x"])
            await asyncio.sleep(0.01)
            assert tracemalloc.get_traced_memory()[0] < 64 * 1024 * 1024
        finally:
            tracemalloc.stop()
        for peer in peers:
            await peer.__aexit__(None, None, None)
        await assert_alive(cluster)


@pytest.mark.parametrize("key", [-1, 4, 999, 32767])
async def test_an_unknown_api_closes_the_connection_without_an_error_log(
    one: EmbeddedCluster, key: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with Peer(one) as peer:
        peer.stream.write([struct.pack(">ihhih", 10, key, 0, 1, -1)])
        assert await ended(peer)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    await assert_alive(one)


async def test_a_truncated_request_closes_the_connection_or_waits(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    frame = ClientProtocol[None]("x").encode_request(fetch_request("t", 0), 12, "peer", None)
    for cut in range(4, len(frame)):
        async with Peer(one) as peer:
            peer.stream.write([struct.pack(">i", cut - 4) + bytes(frame[4:cut])])
            assert await ended(peer)
    await assert_alive(one)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    key=st.sampled_from(sorted(REQUESTS)),
    version=st.integers(0, 18),
    body=st.binary(max_size=200),
)
def test_garbage_after_a_valid_header_affects_no_other_connection(key: int, version: int, body: bytes) -> None:
    async def main() -> None:
        async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
            async with Peer(cluster) as peer:
                header = struct.pack(">hhih", key, version, 1, -1)
                peer.stream.write([struct.pack(">i", len(header) + len(body)) + header + body])
                await asyncio.sleep(0)
            await assert_alive(cluster)

    asyncio.run(main())


async def test_malformed_records_are_rejected_and_not_stored(one: EmbeddedCluster) -> None:
    await one.create_topic("t", configs={"cleanup.policy": "compact"})
    dice = random.Random(5)
    refused = 0
    async with Peer(one) as peer:
        for compression in (Compression.NONE, Compression.GZIP, Compression.LZ4, Compression.ZSTD):
            good = produced(b"a" * 50, b"b" * 50, timestamp=-1, compression=compression)
            for _ in range(60):
                bad = bytearray(good)
                place = dice.randrange(len(bad))
                bad[place] ^= 1 << dice.randrange(8)
                answered = await peer.produce("t", bytes(bad), acks=1)
                refused += answered.error_code != 0
                # the leader writes the leader epoch, so a changed bit there is not an error
                assert answered.error_code != 0 or 12 <= place < 16
            for cut in (1, 10, 60, 61, len(good) - 1):
                assert (await peer.produce("t", good[:cut], acks=1)).error_code != 0
    assert refused > 200


@pytest.mark.thorough
async def test_a_decompression_bomb_is_rejected_early(one: EmbeddedCluster) -> None:
    await one.create_topic("t", configs={"cleanup.policy": "compact", "max.message.bytes": "10000000"})
    bomb = produced(b"\0" * (200 * 1024 * 1024), timestamp=-1, compression=Compression.GZIP)
    assert len(bomb) < 1024 * 1024
    async with Peer(one) as peer:
        assert (await peer.produce("t", bomb)).error_code == ErrorCode.CORRUPT_MESSAGE
    await assert_alive(one)


@pytest.mark.parametrize(
    "configs",
    [
        {"max.connections": "2"},
        {"max.connections.per.ip": "2"},
        {"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "127.0.0.1:9,memory:2"},
    ],
)
@in_virtual_time
async def test_connections_above_the_limit_are_refused(configs: dict[str, str]) -> None:
    async with (
        EmbeddedCluster(brokers=1, tcp=False, configs=configs) as cluster,
        Peer(cluster) as first,
        Peer(cluster) as second,
        Peer(cluster) as third,
    ):
        assert await ended(third)
        for peer in (first, second):
            assert (await peer.ask(MetadataRequest(topics=[]))).brokers


@in_virtual_time
async def test_connections_that_were_never_used_make_room_for_others() -> None:
    configs = {"max.connections": "3"}
    async with EmbeddedCluster(brokers=1, tcp=False, configs=configs) as cluster, Peer(cluster) as used:
        assert (await used.ask(MetadataRequest(topics=[]))).brokers
        silent = [await Peer(cluster).__aenter__() for _ in range(2)]
        silent[0].stream.write([struct.pack(">ih", 100, 3)])  # half of a request
        await asyncio.sleep(LONGEST_SILENCE + 0.1)
        async with Peer(cluster) as first, Peer(cluster) as second, Peer(cluster) as third:
            for peer in (first, second, used):
                assert (await peer.ask(MetadataRequest(topics=[]))).brokers
            assert await ended(third)
        for peer in silent:
            assert await ended(peer)
            await peer.__aexit__(None, None, None)


async def test_the_requests_of_all_connections_share_one_bound() -> None:
    configs = {"queued.max.request.bytes": "2000000"}
    async with EmbeddedCluster(brokers=1, tcp=False, configs=configs) as cluster:
        await cluster.create_topic("t")
        peers = [await Peer(cluster).__aenter__() for _ in range(10)]
        for peer in peers:
            peer.stream.write([struct.pack(">i", 900_000) + bytes(300_000)])
        connections = cluster.nodes[1].connections
        await until(lambda: 1 <= len(connections) <= 6, "requests beyond the bound end their connections")
        for peer in peers:
            await peer.__aexit__(None, None, None)
        await until(lambda: not connections, "the connections are closed")
        async with Peer(cluster) as peer:  # the memory is free again
            for _ in range(10):
                assert (await peer.produce("t", produced(b"x" * 900_000, timestamp=-1))).error_code == 0


async def test_requests_that_are_handled_count_until_they_are_answered_or_dropped() -> None:
    configs = {"queued.max.request.bytes": "2000000"}
    async with EmbeddedCluster(brokers=1, tcp=False, configs=configs) as cluster:
        await cluster.create_topic("t")
        slow = cluster.on(ProduceRequest, times=None).delay(DEADLINE)
        peers = [await Peer(cluster).__aenter__() for _ in range(10)]
        for peer in peers:
            peer.send(produce_request("t", produced(b"x" * 30_000, timestamp=-1)), 9)
        connections = cluster.nodes[1].connections
        await until(lambda: slow.hits == 10, "all requests are handled")
        assert len(connections) == 10
        for peer in peers:
            peer.send(produce_request("t", produced(b"x" * 600_000, timestamp=-1)), 9)
        await until(lambda: 1 <= len(connections) <= 3, "requests beyond the bound end their connections")
        slow.remove()
        for peer in peers:
            await peer.__aexit__(None, None, None)
        await until(lambda: not connections, "the connections are closed")
        async with Peer(cluster) as peer:  # the memory of requests without an answer is free again
            answer = await peer.produce("t", produced(b"x" * 1_400_000, timestamp=-1))
            assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_stream_that_was_released_holds_no_memory() -> None:
    memory, closings = FrameMemory(1_000), ClosingLog(1, lambda: 0.0)
    listener = Listener("PLAINTEXT", "127.0.0.1", 0)
    unsent = UnsentResponses(1_000, closings)
    stream = ServerStream(listener, 1_000, memory, unsent, closings, lambda stream: None)
    stream.frames_received([b"x" * 10])
    assert memory.held == 10
    stream.release_all()
    stream.frames_received([b"x" * 10])
    assert memory.held == 0


async def test_half_sent_frames_do_not_shut_out_small_requests() -> None:
    configs = {"queued.max.request.bytes": "2000000"}
    async with EmbeddedCluster(brokers=1, tcp=False, configs=configs) as cluster:
        peers = [await Peer(cluster).__aenter__() for _ in range(2)]
        for peer in peers:
            peer.stream.write([struct.pack(">i", 1_000_000) + bytes(500_000)])
        await asyncio.sleep(0.01)
        async with Peer(cluster) as peer:
            assert (await peer.ask(MetadataRequest(topics=[]))).brokers
        for peer in peers:
            await peer.__aexit__(None, None, None)


@in_virtual_time
async def test_a_large_request_displaces_one_that_stays_incomplete() -> None:
    configs = {"queued.max.request.bytes": "2000000"}
    async with EmbeddedCluster(brokers=1, tcp=False, configs=configs) as cluster:
        await cluster.create_topic("t")
        stalled = [await Peer(cluster).__aenter__() for _ in range(5)]
        for peer in stalled:
            peer.stream.write([struct.pack(">i", 300_000) + bytes(290_000)])
        await asyncio.sleep(INCOMPLETE_REQUEST + 0.1)
        assert len(cluster.nodes[1].connections) == 5
        async with Peer(cluster) as peer:
            assert (await peer.produce("t", produced(b"x" * 900_000, timestamp=-1))).error_code == 0
        assert 1 <= len(cluster.nodes[1].connections) <= 4
        for peer in stalled:
            await peer.__aexit__(None, None, None)


async def test_responses_that_clients_do_not_read_share_one_bound() -> None:
    """A client that reads its responses is answered, with any number of clients that do not read."""
    configs = {"queued.max.request.bytes": "4000000"}
    async with EmbeddedCluster(brokers=1, tcp=False, configs=configs) as cluster:
        await cluster.create_topic("t")
        async with Peer(cluster) as writer:
            await writer.produce("t", produced(b"x" * 900_000, timestamp=-1))
        connections = cluster.nodes[1].connections
        deaf = [await Peer(cluster).__aenter__() for _ in range(20)]
        for peer in deaf:
            assert peer.stream.transport is not None
            peer.stream.transport.pause_reading()
            peer.send(fetch_request("t", 0), 12)
        await until(lambda: len(connections) <= 4, "the sum of the responses is bounded")
        async with Peer(cluster) as reader:
            assert (await reader.fetch("t", 0)).records
        for peer in deaf:
            await peer.__aexit__(None, None, None)


@pytest.mark.parametrize(
    "key, version, before", [(MetadataRequest.api_key, 1, b""), (CreateTopicsRequest.api_key, 2, b""), (9, 1, b"\0\1g")]
)
async def test_millions_of_items_in_a_request_do_not_stop_a_broker(
    cluster: EmbeddedCluster, key: int, version: int, before: bytes
) -> None:
    count = 1_000_000
    body = struct.pack(">hhih", key, version, 1, -1) + before + struct.pack(">i", count) + bytes(6 * count)
    async with Peer(cluster) as peer:
        began = time.process_time()
        peer.stream.write([struct.pack(">i", len(body)) + body])
        assert await ended(peer)
        assert time.process_time() - began < 1
    await assert_alive(cluster)


async def test_a_request_without_records_is_refused_above_eight_mebibytes(cluster: EmbeddedCluster) -> None:
    async with Peer(cluster) as peer:
        peer.send(MetadataRequest(topics=[MetadataRequestTopic(name="x" * 30_000)] * 300), 1)
        assert await ended(peer)
    await assert_alive(cluster)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda name: DescribeClientQuotasRequest(
            components=[DescribeClientQuotasComponent(entity_type=name, match_type=0, match="x")], strict=False
        ),
        lambda name: CreateTopicsRequest(
            timeout_ms=1000,
            topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])],
        ),
    ],
)
async def test_an_error_message_that_quotes_a_long_name_is_shortened(
    one: EmbeddedCluster, request_of: Callable[[str], Request[Any]]
) -> None:
    async with Peer(one) as peer:
        answer = await peer.ask(request_of("\1" * 30_000))
        message = answer.topics[0].error_message if hasattr(answer, "topics") else answer.error_message
        assert len(message) <= LONGEST_MESSAGE + 1
        assert message.endswith("…")


async def test_frames_above_the_limit_are_refused() -> None:
    configs = {"socket.request.max.bytes": "1000"}
    async with EmbeddedCluster(brokers=1, tcp=False, configs=configs) as cluster, Peer(cluster) as peer:
        peer.send(produce_request("t", b"x" * 2000), 9)
        assert await ended(peer)


async def test_a_client_that_never_reads_stalls_only_itself(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", assignments=[[1]])
    async with Peer(cluster) as writer:
        await writer.produce("t", produced(b"x" * 900_000, timestamp=-1))
    async with Peer(cluster) as deaf:
        assert deaf.stream.transport is not None
        deaf.stream.transport.pause_reading()
        for _ in range(200):
            deaf.send(fetch_request("t", 0), 12)
        await asyncio.sleep(0.05)
        await assert_alive(cluster)
        waiting = [
            connection.stream.transport.get_write_buffer_size()
            for connection in cluster.nodes[1].connections
            if connection.stream.transport is not None
        ]
        assert max(waiting) < 4 * 1024 * 1024


@pytest.mark.parametrize(
    "settings",
    [
        {"brokers": 0},
        {"config": {"host": "0.0.0.0"}},
        {"config": {"racks": ["a"]}},
        {"config": {"replication_delay": -1.0}},
        {"ports": 70000},
        {"ports": [1, 2]},
        {"default_partitions": 0},
        {"configs": {"default.replication.factor": "4"}},
        {"configs": {"nonsense": "1"}},
        {"configs": {"num.partitions": "4"}, "default_partitions": 5},
        {"configs": {"auto.create.topics.enable": "true"}, "auto_create_topics": False},
        {"as_kafka": "0.9"},
    ],
    ids=str,
)
def test_a_wrong_setting_is_named_in_the_error(settings: dict[str, Any]) -> None:
    config: dict[str, Any] = settings.get("config", {})
    wrong = next(iter({**config, **settings.get("configs", {}), **settings}))
    with pytest.raises(
        ConfigurationError, match=wrong.replace("default_partitions", "num.partitions|default_partitions")
    ):
        EmbeddedCluster(**{"brokers": 3, **settings, "config": ClusterConfig(**config)})
