"""A broker throttles a client: requests are held back, in order and for a bounded time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite.errors import ConnectionLost, KafkaTimeout
from aiokafka_lite.net.in_flight import LONGEST_THROTTLE
from aiokafka_lite.protocol.connection import RequestHeader
from aiokafka_lite.protocol.messages import HeartbeatRequest, HeartbeatResponse
from tests.embedded.net.scripted_broker import HEARTBEAT, Peer, Served, ask, end, open_to, usual
from tests.virtual import in_virtual_time, run_clean


def throttling(served: Served, header: RequestHeader, request: Any) -> None:
    if isinstance(request, HeartbeatRequest):
        throttle = 5000 if request.generation_id == 1 else 0
        served.answer(header, HeartbeatResponse(error_code=0, throttle_time_ms=throttle))
    else:
        usual(served, header, request)


@in_virtual_time
async def test_a_throttled_client_holds_back_its_requests() -> None:
    peer = Peer(throttling)
    connection = await open_to(peer)
    loop = asyncio.get_running_loop()
    await connection.send(HEARTBEAT)
    muted_at = loop.time()
    assert connection.throttled_until == pytest.approx(muted_at + 5)
    promises = [connection.send_nowait(ask(f"t{number}")) for number in range(3)]
    await asyncio.sleep(4.9)
    assert len(peer.requests) == 2
    assert connection.in_flight == 3
    answers = await asyncio.gather(*promises)
    assert [answer.cluster_id for answer in answers] == ["t0", "t1", "t2"]
    assert loop.time() == pytest.approx(muted_at + 5)
    await end(connection)


def test_a_broken_throttle_time_does_not_stop_the_connection_for_weeks() -> None:
    def script(served: Served, header: RequestHeader, request: Any) -> None:
        if isinstance(request, HeartbeatRequest):
            served.answer(header, HeartbeatResponse(error_code=0, throttle_time_ms=2**31 - 1))
        else:
            usual(served, header, request)

    async def main() -> None:
        connection = await open_to(Peer(script))
        await connection.send(HEARTBEAT)
        assert (await connection.send(ask("orders"), timeout=100.0)).cluster_id == "orders"
        assert asyncio.get_running_loop().time() == pytest.approx(LONGEST_THROTTLE)
        await end(connection)

    run_clean(main())


@in_virtual_time
async def test_in_old_versions_the_broker_itself_throttles() -> None:
    connection = await open_to(Peer(throttling))
    await connection.send(HEARTBEAT, at_most=1)
    assert not connection.throttled_until
    await end(connection)


@in_virtual_time
async def test_a_request_held_back_for_its_whole_timeout_fails_alone() -> None:
    peer = Peer(throttling)
    connection = await open_to(peer)
    await connection.send(HEARTBEAT)
    late = connection.send_nowait(ask("late"), timeout=2)
    patient = connection.send_nowait(ask("patient"), timeout=30)
    with pytest.raises(KafkaTimeout, match="throttles"):
        await late
    assert (await patient).cluster_id == "patient"
    assert connection.ready
    assert len(peer.requests) == 3
    await end(connection)


@in_virtual_time
async def test_requests_held_back_when_the_connection_ends_were_not_sent() -> None:
    peer = Peer(throttling)
    connection = await open_to(peer)
    await connection.send(HEARTBEAT)
    promise = connection.send_nowait(ask("t"))
    peer.open[0].transport.abort()
    with pytest.raises(ConnectionLost) as caught:
        await promise
    assert not caught.value.sent
