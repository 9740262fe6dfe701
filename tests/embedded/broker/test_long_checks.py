"""Batches whose checks take long: other clients are answered meanwhile, and the checks change nothing else."""

from __future__ import annotations

import asyncio
import random
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from aiokafka_lite.embedded import EmbeddedCluster, handlers
from aiokafka_lite.embedded.request_context import LONG_STEP, PREPARATIONS, LongWork, RequestContext
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.connection import RequestHeader
from aiokafka_lite.protocol.messages import (
    MetadataRequest,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceResponsePartition,
)
from aiokafka_lite.protocol.records import compress
from aiokafka_lite.types import Compression
from tests.embedded.broker.raw_client import Peer, produce_request
from tests.pure.embedded.batches import produced
from tests.waiting import DEADLINE, until

MB = 1 << 20
LARGE = produced(bytes(16 * MB), compression=Compression.ZSTD)
SMALL = produced(b"small")


def values(cluster: EmbeddedCluster, topic: str = "t") -> list[bytes | None]:
    return [record.value for record in cluster.records(topic)]


def request_for(partitions: Iterable[int], records: bytes) -> ProduceRequest:
    request = produce_request("t", records)
    data = [ProduceRequestPartition(index=partition, records=records) for partition in partitions]
    request.topic_data[0].partition_data = data
    return request


async def begun(cluster: EmbeddedCluster, node: int = 1) -> None:
    """Wait until the checks of a large batch have begun. ``until`` could miss them, because they may end between two
    looks."""
    async with asyncio.timeout(DEADLINE):
        while not cluster.nodes[node].clients.long_work.locked():
            await asyncio.sleep(0)


@asynccontextmanager
async def checking(
    cluster: EmbeddedCluster, records: bytes = LARGE, **configs: str
) -> AsyncIterator[asyncio.Task[ProduceResponsePartition]]:
    """Yield a request whose checks have begun. The topic has the ``configs``, whose names have ``_`` for ``.``."""
    await cluster.create_topic("t", configs={name.replace("_", "."): value for name, value in configs.items()})
    async with Peer(cluster) as peer:
        answer = asyncio.create_task(peer.produce("t", records))
        await begun(cluster)
        yield answer


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
async def test_another_client_is_answered_during_the_checks_of_a_large_batch(
    one: EmbeddedCluster, compression: Compression
) -> None:
    records = produced(bytes(16 * MB), compression=compression)
    async with checking(one, records, max_message_bytes="100000000") as answer, Peer(one) as other:
        assert (await other.ask(MetadataRequest(topics=[]))).brokers
        assert not answer.done()
        assert (await answer).error_code == ErrorCode.NONE


@pytest.mark.parametrize("settings", [{"cleanup.policy": "compact"}, {"message.timestamp.after.max.ms": "1"}])
async def test_another_client_is_answered_while_the_records_of_a_batch_are_checked(
    one: EmbeddedCluster, settings: dict[str, str]
) -> None:
    # Each record is a millisecond newer than the one before: the last ones are in the future.
    begin = time.time_ns() // 1_000_000 - 10_000
    records = produced(*[b""] * 30_000, timestamp=begin, compression=Compression.ZSTD)
    async with checking(one, records, **settings) as answer, Peer(one) as other:
        assert (await other.ask(MetadataRequest(topics=[]))).brokers
        assert not answer.done()
        expected = ErrorCode.NONE if "cleanup.policy" in settings else ErrorCode.INVALID_TIMESTAMP
        assert (await answer).error_code == expected


async def test_the_requests_of_a_connection_stay_in_order(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    async with Peer(one) as peer:
        for records in (LARGE, SMALL, LARGE, SMALL):
            peer.send(produce_request("t", records), 12)
        answers = [(await peer.receive()).responses[0].partition_responses[0] for _ in range(4)]
        assert [answer.base_offset for answer in answers] == [0, 1, 2, 3]
    assert [len(value or b"") for value in values(one)] == [16 * MB, 5, 16 * MB, 5]


@pytest.mark.parametrize("acks, sizes", [(0, [16 * MB, 5]), (1, [16 * MB])])
async def test_no_batch_is_left_out_when_the_client_disconnects_during_its_checks(
    one: EmbeddedCluster, acks: int, sizes: list[int]
) -> None:
    # With acks=1, the connection ends at the first response that cannot be written, as without long checks.
    await one.create_topic("t")
    async with Peer(one) as peer:
        for records in (LARGE, SMALL):
            peer.send(produce_request("t", records, acks=acks), 12, answered=acks != 0)
        await begun(one)
    await until(lambda: not one.nodes[1].connections, "the connection has ended")
    assert [len(value or b"") for value in values(one)] == sizes


@pytest.mark.parametrize("end", [EmbeddedCluster.stop, EmbeddedCluster.kill])
async def test_nothing_is_appended_when_the_broker_stops_during_the_checks(
    three: EmbeddedCluster, end: Callable[[EmbeddedCluster, int], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    await three.create_topic("t", assignments=[[1, 2, 3]])
    async with Peer(three) as peer:
        for records in (LARGE, SMALL):
            peer.send(produce_request("t", records, acks=1), 12)
        await begun(three)
        await end(three, 1)
        await until(lambda: not three.nodes[1].clients.long_work.locked(), "the checks have ended")
        assert values(three) == []
        assert three.nodes[1].replica_manager.partitions["t", 0].log.end_offset == 0
    assert not [line for line in caplog.records if line.exc_info]


async def test_a_frozen_broker_checks_nothing(one: EmbeddedCluster) -> None:
    async with checking(one) as answer:
        await one.freeze(1)
        for _ in range(100):
            await asyncio.sleep(0)
        assert one.nodes[1].clients.long_work.locked()
        await one.thaw(1)
        assert (await answer).error_code == ErrorCode.NONE


async def test_settings_that_change_during_the_checks_count(one: EmbeddedCluster) -> None:
    async with checking(one) as answer:
        one.nodes[1].parts.changes.set_topic_configs("t", {"max.message.bytes": "100"})
        assert (await answer).error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_one_batch_at_a_time_is_decompressed(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    peers = [Peer(one) for _ in range(5)]
    for peer in peers:
        await peer.__aenter__()
    tracemalloc.start()
    try:
        await asyncio.gather(*(peer.produce("t", LARGE) for peer in peers))
        assert tracemalloc.get_traced_memory()[1] < 30 * MB
    finally:
        tracemalloc.stop()
    for peer in peers:
        await peer.__aexit__(None, None, None)


async def test_a_refused_batch_keeps_no_decompressed_records(one: EmbeddedCluster) -> None:
    await one.create_topic("t", 5, configs={"cleanup.policy": "compact"})
    records = produced(bytes(16 * MB), key=None, compression=Compression.ZSTD)
    async with Peer(one) as peer:
        tracemalloc.start()
        try:
            answer = await peer.ask(request_for(range(5), records), 12)
            assert tracemalloc.get_traced_memory()[1] < 30 * MB
        finally:
            tracemalloc.stop()
    refused = {partition_response.error_code for partition_response in answer.responses[0].partition_responses}
    assert refused == {ErrorCode.INVALID_RECORD}


async def test_few_batches_of_a_request_are_compressed_again_before_the_handler(one: EmbeddedCluster) -> None:
    await one.create_topic("t", 50, configs={"compression.type": "uncompressed"})
    one.nodes[1].replica_manager.storage_limit = 0  # the log itself would need the memory
    records = produced(bytes(1_000_000), compression=Compression.ZSTD)
    async with Peer(one) as peer:
        tracemalloc.start()
        try:
            answer = await peer.ask(request_for(range(50), records), 12)
            assert tracemalloc.get_traced_memory()[1] < 30 * MB
        finally:
            tracemalloc.stop()
    refused = {partition_response.error_code for partition_response in answer.responses[0].partition_responses}
    assert refused == {ErrorCode.KAFKA_STORAGE_ERROR}


async def test_batches_that_the_preparation_leaves_out_are_checked_and_appended(
    one: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers.produce, "MAX_PREPARED", 0)
    await one.create_topic("t", 3, configs={"compression.type": "uncompressed"})
    async with Peer(one) as peer:
        answer = await peer.ask(request_for(range(3), produced(bytes(1000), compression=Compression.ZSTD)), 12)
    assert {partition_response.error_code for partition_response in answer.responses[0].partition_responses} == {
        ErrorCode.NONE
    }
    assert values(one) == [bytes(1000)] * 3


def preparation(cluster: EmbeddedCluster, request: ProduceRequest) -> tuple[RequestContext, list[LongWork]]:
    """Return the pending work before the handler of a request, and the context that gets its results."""
    node = cluster.nodes[1]
    context = RequestContext(
        node.parts, next(iter(node.connections)), RequestHeader(ProduceRequest.api_key, 12, 1, "p")
    )
    return context, list(PREPARATIONS[ProduceRequest](context, request))


async def test_of_a_partition_that_is_named_often_only_the_last_batch_is_checked(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    async with Peer(one) as peer:
        await peer.produce("t", SMALL)
        request = request_for([0] * 50, LARGE)
        context, works = preparation(one, request)
        assert len(works) == 1
        assert list(context.prepared) == [id(request.topic_data[0].partition_data[-1])]
        request.topic_data += produce_request("t", SMALL).topic_data
        assert not preparation(one, request)[1]


async def test_batches_that_are_refused_before_the_handler_are_not_read_again(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    request = produce_request("t", produced(b"v", compression=Compression.ZSTD) * 2)
    async with Peer(one) as peer:
        await peer.produce("t", SMALL)
        context, works = preparation(one, request)
        assert (len(works), len(context.prepared)) == (0, 1)
        (answer,) = (await peer.ask(request, 12)).responses[0].partition_responses
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert answer.error_message == "a partition must have one batch, got 2"


async def test_other_clients_do_not_wait_for_many_checks_of_one_step(one: EmbeddedCluster) -> None:
    await one.create_topic("t", 15, configs={"cleanup.policy": "compact"})
    turns = []
    async with Peer(one) as peer:
        answer = asyncio.create_task(peer.ask(request_for(range(15), produced(*[b""] * 4096)), 12))
        while not answer.done():
            began = time.thread_time()
            await asyncio.sleep(0)
            turns.append(time.thread_time() - began)
    assert max(turns) < sum(turns) / 2


async def test_other_clients_do_not_wait_for_the_compression_of_a_large_batch(one: EmbeddedCluster) -> None:
    await one.create_topic("t", configs={"compression.type": "gzip", "max.message.bytes": "100000000"})
    value = random.Random(1).randbytes(4 * MB)
    began = time.thread_time()
    compress(Compression.GZIP, value)
    in_one_step = time.thread_time() - began
    turns = []
    async with Peer(one) as peer:
        answer = asyncio.create_task(peer.produce("t", produced(value, compression=Compression.LZ4)))
        while not answer.done():
            began = time.thread_time()
            await asyncio.sleep(0)
            turns.append(time.thread_time() - began)
    assert (await answer).error_code == ErrorCode.NONE
    assert max(turns) < in_one_step / 2
    assert values(one) == [value]


async def test_a_compression_does_not_wait_for_the_default_threads_of_the_loop(one: EmbeddedCluster) -> None:
    await one.create_topic("t", configs={"compression.type": "gzip", "max.message.bytes": "100000000"})
    value, answered = random.Random(1).randbytes(4 * MB), threading.Event()
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as threads:
        loop.set_default_executor(threads)
        waiting = loop.run_in_executor(None, answered.wait, DEADLINE)  # a blocking client of a test
        try:
            async with Peer(one) as peer:
                assert (await peer.produce("t", produced(value))).error_code == ErrorCode.NONE
        finally:
            answered.set()
        assert await waiting


async def test_a_broker_that_is_frozen_during_a_compression_appends_nothing_until_it_is_thawed(
    one: EmbeddedCluster,
) -> None:
    records = produced(random.Random(1).randbytes(4 * MB))
    async with checking(one, records, compression_type="gzip", max_message_bytes="100000000") as answer:
        await one.freeze(1)
        while any(thread.name.startswith(LONG_STEP) for thread in threading.enumerate()):
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert values(one) == []
        await one.thaw(1)
        assert (await answer).error_code == ErrorCode.NONE


async def test_the_history_has_the_time_before_the_checks(one: EmbeddedCluster) -> None:
    async with checking(one) as answer:
        now = asyncio.get_running_loop().time()
        await answer
    (exchange,) = one.history.of(ProduceRequest)
    assert exchange.at <= now
