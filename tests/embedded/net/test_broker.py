"""A broker's connections are opened on demand, shared, opened with backoff after failures, and closed when idle."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from aiokafka_lite.errors import ConnectionLost, KafkaError, KafkaTimeout, ProtocolError
from aiokafka_lite.net.broker import Broker, Purpose
from aiokafka_lite.protocol.connection import RequestHeader
from aiokafka_lite.protocol.messages import ApiVersionsRequest
from aiokafka_lite.settings.client import ClientConfig
from aiokafka_lite.types import Node
from tests.embedded.net.scripted_broker import HEARTBEAT, Owner, Peer, Served, only_versions, usual
from tests.virtual import in_virtual_time

NODE = Node(2, "127.0.0.1", 9092)


@asynccontextmanager
async def broker_of(peer: Peer, **settings: Any) -> AsyncIterator[Broker]:
    settings.setdefault("connect_timeout", 5.0)
    config = ClientConfig(bootstrap_servers="unused:1", client_id="tester", **settings)
    async with Owner() as owner:
        broker = Broker(NODE, config=config, connector=peer, spawn=owner.spawn)
        try:
            yield broker
        finally:
            broker.close()
            await broker.wait_closed()
    assert not peer.open


@in_virtual_time
async def test_many_waiters_share_one_attempt() -> None:
    peer = Peer()
    async with broker_of(peer) as broker:
        connections = await asyncio.gather(*(broker.connection(Purpose.FETCH) for _ in range(100)))
        assert len(set(connections)) == 1
        assert len(peer.connects) == 1
        assert repr(broker) == "<Broker 2 127.0.0.1:9092 open=fetch>"


@in_virtual_time
async def test_each_purpose_has_its_own_connection() -> None:
    peer = Peer()
    async with broker_of(peer) as broker:
        connections = await asyncio.gather(*(broker.connection(purpose) for purpose in Purpose))
        assert len(set(connections)) == len(Purpose)
        assert await broker.connection(Purpose.GROUP) is connections[list(Purpose).index(Purpose.GROUP)]
        assert broker.connected


@in_virtual_time
async def test_a_request_finds_its_connection() -> None:
    async with broker_of(Peer()) as broker:
        assert (await broker.send(HEARTBEAT, purpose=Purpose.GROUP, timeout=1)).error_code == 0


@in_virtual_time
async def test_a_cancelled_caller_does_not_end_the_attempt_for_others() -> None:
    peer = Peer()
    async with broker_of(peer) as broker:
        first = asyncio.create_task(broker.connection())
        second = asyncio.create_task(broker.connection())
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).ready
        assert len(peer.connects) == 1
        with pytest.raises(asyncio.CancelledError):
            await first


@in_virtual_time
async def test_an_attempt_whose_callers_were_all_cancelled_logs_no_unretrieved_exception() -> None:
    peer = Peer()
    peer.refuses = True
    async with broker_of(peer) as broker:
        only = asyncio.create_task(broker.connection())
        await asyncio.sleep(0)
        only.cancel()
        await asyncio.gather(only, return_exceptions=True)
        await asyncio.sleep(1)


@in_virtual_time
async def test_a_failed_attempt_fails_the_callers_of_all_purposes() -> None:
    peer = Peer()
    peer.refuses = True
    async with broker_of(peer) as broker:
        waiting = [broker.connection(purpose) for purpose in Purpose]
        for result in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(result, ConnectionLost)
            assert not result.sent
            assert "127.0.0.1:9092" in str(result)
        assert len(peer.connects) == 1


async def connects_in_a_minute(peer: Peer, **settings: Any) -> int:
    """Return the number of connections in a minute to a failing broker, by clients that never pause."""
    loop = asyncio.get_running_loop()

    async def insist(purpose: Purpose) -> None:
        while loop.time() < 60:
            try:
                connection = await broker.connection(purpose)
                await connection.send(HEARTBEAT, timeout=10)
            except KafkaError:
                await asyncio.sleep(0)

    async with broker_of(peer, **settings) as broker:
        await asyncio.gather(*(insist(purpose) for purpose in Purpose))
    return sum(when < 60 for when, _, _ in peer.connects)


@in_virtual_time
async def test_a_broker_that_is_down_is_not_connected_to_often() -> None:
    peer = Peer()
    peer.refuses = True
    assert await connects_in_a_minute(peer) < 20
    gaps = [after[0] - before[0] for before, after in pairwise(peer.connects)]
    assert all(later > 1.5 * earlier for earlier, later in pairwise(gaps[:7])), "each pause is about twice the last"


@in_virtual_time
async def test_a_port_with_another_protocol_is_not_connected_to_often() -> None:
    peer = Peer()
    peer.greeting = b"HTTP/1.1 400 Bad Request\r\n"
    assert await connects_in_a_minute(peer) < 20


@in_virtual_time
async def test_a_broker_that_drops_each_connection_is_not_connected_to_often() -> None:
    def drops(served: Served, header: RequestHeader, request: Any) -> None:
        if isinstance(request, ApiVersionsRequest):
            usual(served, header, request)
        else:
            served.transport.abort()

    # The purposes have a connection each, which are lost together and made again one after the other.
    assert await connects_in_a_minute(Peer(drops)) < 20 * len(Purpose)


@in_virtual_time
async def test_a_broker_that_comes_back_is_found_within_the_longest_pause() -> None:
    peer = Peer()
    peer.refuses = True
    loop = asyncio.get_running_loop()
    async with broker_of(peer, reconnect_backoff_max=4.0) as broker:
        while loop.time() < 60:
            with pytest.raises(ConnectionLost):
                await broker.connection()
        up_at, peer.refuses = loop.time(), False
        assert broker.retry_at > up_at
        await broker.connection()
        assert loop.time() - up_at <= 4.0


@in_virtual_time
async def test_a_lost_connection_that_was_stable_is_replaced_at_once() -> None:
    peer = Peer()
    async with broker_of(peer) as broker:
        connection = await broker.connection()
        await asyncio.sleep(3600 / 10)
        loop = asyncio.get_running_loop()
        lost_at = loop.time()
        peer.open[0].transport.abort()
        await connection.closed
        assert not broker.connected
        assert (await broker.connection()).ready
        assert loop.time() - lost_at <= 0.05


@in_virtual_time
async def test_connections_that_are_reset_every_few_seconds_are_replaced_at_once() -> None:
    peer = Peer()
    loop = asyncio.get_running_loop()
    async with broker_of(peer) as broker:
        for _ in range(20):
            connection = await broker.connection()
            await asyncio.sleep(3)
            lost_at = loop.time()
            peer.open[-1].transport.abort()
            await connection.closed
            assert (await broker.connection()).ready
            assert loop.time() - lost_at <= 0.05


@in_virtual_time
async def test_a_request_that_times_out_closes_only_its_own_connection() -> None:
    peer = Peer(only_versions)
    async with broker_of(peer) as broker:
        other = await broker.connection(Purpose.GROUP)
        with pytest.raises(KafkaTimeout):
            await broker.send(HEARTBEAT, purpose=Purpose.FETCH, timeout=2)
        assert other.ready
        peer.script = usual
        assert (await broker.send(HEARTBEAT, purpose=Purpose.FETCH, timeout=2)).error_code == 0


@in_virtual_time
async def test_idle_connections_are_closed_and_busy_ones_kept() -> None:
    peer = Peer(only_versions)
    async with broker_of(peer, connections_max_idle=100.0) as broker:
        idle = await broker.connection(Purpose.OTHER)
        busy = await broker.connection(Purpose.FETCH)
        used = await broker.connection(Purpose.GROUP)
        promise = busy.send_nowait(HEARTBEAT, timeout=10000)
        for _ in range(15):
            used.send_without_response(HEARTBEAT)
            await asyncio.sleep(10)
        assert not idle.ready
        assert busy.ready
        assert used.ready
        assert tuple(broker.connections.values()) == (busy, used)
        assert broker.retry_at == 0.0
        assert (await broker.connection(Purpose.OTHER)).ready
        promise.cancel()


@in_virtual_time
async def test_a_closed_connection_is_dropped_with_its_transport() -> None:
    async with broker_of(Peer()) as broker:
        connection = await broker.connection(Purpose.OTHER)
        connection.retire()
        await connection.wait_closed()
        await asyncio.sleep(0)
        closed = weakref.ref(connection.closed)  # a compiled connection has no weak references
        del connection
        gc.collect()  # a connection and its transport refer to each other
        assert closed() is None


@in_virtual_time
async def test_a_broker_that_moved_is_connected_to_at_its_new_address() -> None:
    peer = Peer()
    async with broker_of(peer) as broker:
        old = await broker.connection()
        promise = old.send_nowait(HEARTBEAT)
        broker.update(Node(2, "127.0.0.1", 9999))
        assert (await promise).error_code == 0
        assert await old.closed is None
        assert (await broker.connection()).address == "127.0.0.1:9999"
        again = await broker.connection()
        broker.update(Node(2, "127.0.0.1", 9999, "rack"))
        assert await broker.connection() is again


@in_virtual_time
async def test_callers_that_wait_for_a_dead_address_get_the_new_one_at_once() -> None:
    peer = Peer()
    peer.silent_connects = True
    async with broker_of(peer) as broker:
        waiting = asyncio.create_task(broker.connection())
        await asyncio.sleep(1)
        peer.silent_connects = False
        broker.update(Node(2, "127.0.0.1", 9999))
        assert (await waiting).address == "127.0.0.1:9999"
        assert asyncio.get_running_loop().time() == pytest.approx(1.0)


@in_virtual_time
async def test_the_pause_ends_when_the_address_changes() -> None:
    peer = Peer()
    peer.refuses = True
    async with broker_of(peer, reconnect_backoff=30.0, reconnect_backoff_max=60.0) as broker:
        with pytest.raises(ConnectionLost):
            await broker.connection()
        waiting = asyncio.create_task(broker.connection())
        await asyncio.sleep(1)
        peer.refuses = False
        broker.update(Node(2, "127.0.0.1", 9999))
        assert (await waiting).ready
        assert asyncio.get_running_loop().time() == pytest.approx(1.0)


@in_virtual_time
async def test_close_ends_attempts_and_connections_and_refuses_new_ones() -> None:
    peer = Peer()
    async with broker_of(peer) as broker:
        connection = await broker.connection(Purpose.OTHER)
        peer.silent_connects = True
        waiting = asyncio.create_task(broker.connection(Purpose.FETCH))
        await asyncio.sleep(1)
        broker.close()
        with pytest.raises(ConnectionLost, match="is closed"):
            await waiting
        with pytest.raises(ConnectionLost, match="is closed"):
            await broker.connection(Purpose.OTHER)
        await broker.wait_closed()
        assert connection.gone


@in_virtual_time
async def test_closing_the_owner_cancels_its_attempts() -> None:
    peer = Peer()
    peer.silent_connects = True
    async with Owner() as owner:
        config = ClientConfig(bootstrap_servers="unused:1")
        broker = Broker(NODE, config=config, connector=peer, spawn=owner.spawn)
        waiting = asyncio.create_task(broker.connection())
        await asyncio.sleep(1)
    with pytest.raises(ConnectionLost, match="cancelled"):
        await waiting
    broker.close()


@in_virtual_time
async def test_after_a_peer_closed_on_api_versions_the_oldest_version_is_used_next() -> None:
    def ancient(served: Served, header: RequestHeader, request: Any) -> None:
        if isinstance(request, ApiVersionsRequest) and header.version > 0:
            served.transport.close()
        else:
            usual(served, header, request)

    peer = Peer(ancient)
    async with broker_of(peer) as broker:
        with pytest.raises(ConnectionLost, match="closed the connection on ApiVersions"):
            await broker.connection()
        assert (await broker.connection()).ready
        assert [header.version for header in peer.headers] == [4, 0]
        assert (await broker.send(HEARTBEAT, timeout=1)).error_code == 0


@in_virtual_time
async def test_a_garbage_response_is_a_protocol_error() -> None:
    peer = Peer()
    peer.greeting = b"\x00\x00\x00\x06garbage"
    async with broker_of(peer) as broker:
        with pytest.raises(ProtocolError):
            await broker.connection()
