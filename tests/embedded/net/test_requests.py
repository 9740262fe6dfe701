"""Pipelining and timeouts: each request has its response or a typed error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite.aio.virtual_time import VirtualTimeLoop
from aiokafka_lite.errors import ConnectionLost, KafkaTimeout, UnsupportedVersion
from aiokafka_lite.net.connector import TcpConnector
from aiokafka_lite.protocol.connection import RequestHeader, encode_response
from aiokafka_lite.protocol.framing import WaitingFrameMemory
from aiokafka_lite.protocol.messages import (
    ApiVersionsRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataResponse,
    MetadataResponseBroker,
)
from aiokafka_lite.state_machine import ConnectionState
from tests.embedded.net.scripted_broker import (
    HEARTBEAT,
    Peer,
    Script,
    Served,
    ask,
    end,
    only_versions,
    open_to,
    usual,
)
from tests.virtual import in_virtual_time, run_clean
from tests.waiting import DEADLINE


def in_one_segment(last: str) -> Script:
    """Answer requests for metadata together, when the request for the topic ``last`` has come."""
    glued = bytearray()

    def script(served: Served, header: RequestHeader, request: Any) -> None:
        if isinstance(request, ApiVersionsRequest):
            usual(served, header, request)
            return
        name = request.topics[0].name
        glued.extend(encode_response(header, MetadataResponse(brokers=[], cluster_id=name, controller_id=1, topics=[])))
        if name == last:
            served.transport.write(bytes(glued))

    return script


# Requests and answers.


@pytest.mark.parametrize("segment_size", [None, 1, 3])
async def test_pipelined_requests_get_their_own_answers(segment_size: int | None) -> None:
    connection = await open_to(Peer(segment_size=segment_size))
    promises = [connection.send_nowait(ask(f"t{number}")) for number in range(20)]
    assert connection.in_flight == 20
    answers = await asyncio.gather(*promises)
    assert [answer.cluster_id for answer in answers] == [f"t{number}" for number in range(20)]
    assert connection.in_flight == 0
    await end(connection)


@in_virtual_time
async def test_a_response_without_room_waits_until_the_stuck_response_before_it_times_out() -> None:
    size = 2_000_000

    def large(served: Served, header: RequestHeader, request: Any) -> None:
        if isinstance(request, ApiVersionsRequest):
            usual(served, header, request)
            return
        brokers = [MetadataResponseBroker(node_id=number, host="h" * 20_000, port=9092) for number in range(90)]
        body = encode_response(header, MetadataResponse(brokers=brokers, topics=[]))
        name = request.topics[0].name
        served.transport.write(body[:-1] if name == "s" else body)  # the response for "s" is never complete

    memory = WaitingFrameMemory(limit=size + 1000, largest=size + 1000)
    peer = Peer(large)
    stuck, waiting = [await open_to(peer, memory=memory, request_timeout=seconds) for seconds in (5.0, 30.0)]
    lost = stuck.send_nowait(ask("s"))
    await asyncio.sleep(1)
    answer = asyncio.ensure_future(waiting.send(ask("w")))
    await asyncio.sleep(3)
    assert not answer.done()
    assert 0 < memory.held <= memory.limit
    with pytest.raises(KafkaTimeout):
        await lost
    assert len((await answer).brokers) == 90
    assert asyncio.get_running_loop().time() < 6
    assert memory.held == 0
    await end(waiting)


async def test_a_large_response_without_a_request_in_flight_ends_the_connection_before_it_is_complete() -> None:
    peer = Peer()
    connection = await open_to(peer)
    peer.open[0].transport.write((1_000_000).to_bytes(4, "big") + bytes(1000))
    error = await asyncio.wait_for(connection.closed, 10)
    assert "no request is in flight" in str(error)
    await connection.wait_closed()


async def test_a_held_request_does_not_permit_a_large_response() -> None:
    def throttle(served: Served, header: RequestHeader, request: Any) -> None:
        if isinstance(request, ApiVersionsRequest):
            usual(served, header, request)
        else:
            served.answer(header, HeartbeatResponse(error_code=0, throttle_time_ms=60_000))

    peer = Peer(throttle)
    connection = await open_to(peer)
    await connection.send(HEARTBEAT)
    promise = connection.send_nowait(HEARTBEAT)
    peer.open[0].transport.write((1_000_000).to_bytes(4, "big") + bytes(1000))
    error = await asyncio.wait_for(connection.closed, 10)
    assert "no request is in flight" in str(error)
    with pytest.raises(ConnectionLost) as caught:
        await promise
    assert not caught.value.sent
    await connection.wait_closed()


async def test_a_large_response_that_begins_after_close_does_not_stop_the_sending_of_requests() -> None:
    class Late(Peer):
        """Its client receives bytes after ``close()``, as over TLS."""

        async def connect(self, host: str, port: int, protocol_factory: Any) -> Any:
            transport, self.client = await super().connect(host, port, protocol_factory)
            return transport, self.client

    peer = Late(only_versions)
    connection = await open_to(peer)
    connection.send_nowait(HEARTBEAT)
    connection.close()
    beginning = (1_000_000).to_bytes(4, "big") + bytes(1000)
    peer.client.get_buffer(-1)[: len(beginning)] = beginning
    peer.client.buffer_updated(len(beginning))
    await connection.wait_closed()
    await asyncio.wait_for(peer.got(2), DEADLINE)


async def test_open_requests_are_bounded_and_further_ones_wait_in_order() -> None:
    waiting: list[tuple[RequestHeader, Any]] = []

    def collect(served: Served, header: RequestHeader, request: Any) -> None:
        if isinstance(request, ApiVersionsRequest):
            usual(served, header, request)
        else:
            waiting.append((header, request))

    peer = Peer(collect)
    connection = await open_to(peer, max_open_requests=3)
    answers = [connection.send_nowait(ask(f"t{number}")) for number in range(8)]
    answers[4].cancel()
    order = []
    while any(not answer.done() for answer in answers):
        await asyncio.sleep(0.01)
        assert 0 < len(waiting) <= 3
        header, request = waiting.pop(0)
        order.append(request.topics[0].name)
        usual(peer.open[0], header, request)
        await asyncio.sleep(0.01)
    assert order == ["t0", "t1", "t2", "t3", "t5", "t6", "t7"]
    assert [(await answer).cluster_id for number, answer in enumerate(answers) if number != 4] == order
    again = connection.send_nowait(ask("again"))
    await asyncio.sleep(0.01)
    usual(peer.open[0], *waiting.pop())
    assert (await again).cluster_id == "again"
    await end(connection)


@in_virtual_time
async def test_a_request_that_waits_for_its_place_times_out_alone_or_with_the_connection() -> None:
    connection = await open_to(Peer(only_versions), max_open_requests=1)
    first = connection.send_nowait(HEARTBEAT, timeout=60.0)
    second = connection.send_nowait(HEARTBEAT, timeout=1.0)
    with pytest.raises(KafkaTimeout, match=r"was not sent .* 1 earlier requests are not answered \(max_open_req"):
        await second
    assert not first.done()
    await end(connection)
    with pytest.raises(ConnectionLost):
        await first


async def test_responses_in_one_segment_are_split() -> None:
    connection = await open_to(Peer(in_one_segment("t9")))
    answers = await asyncio.gather(*(connection.send(ask(f"t{number}")) for number in range(10)))
    assert [answer.cluster_id for answer in answers] == [f"t{number}" for number in range(10)]
    await end(connection)


async def test_a_cancelled_request_does_not_affect_the_others() -> None:
    connection = await open_to(Peer())
    first = asyncio.create_task(connection.send(ask("first")))
    second = asyncio.create_task(connection.send(ask("second")))
    third = connection.send_nowait(ask("third"))
    await asyncio.sleep(0)
    first.cancel()
    third.cancel()
    assert (await second).cluster_id == "second"
    assert (await connection.send(ask("fourth"))).cluster_id == "fourth"
    with pytest.raises(asyncio.CancelledError):
        await first
    await end(connection)


async def test_a_callback_gets_its_response_in_the_iteration_of_the_loop_that_reads_it() -> None:
    connection = await open_to(Peer(in_one_segment("callback")))
    order: list[str] = []
    promise = connection.send_nowait(ask("promise"))
    promise.add_done_callback(lambda _: order.append("promise"))
    connection.send_with_callback(ask("callback"), lambda response: order.append(response.cluster_id))
    await promise
    assert order == ["callback", "promise"]
    await end(connection)


async def test_a_callback_gets_the_error_of_its_connection_once() -> None:
    connection = await open_to(Peer(only_versions))
    outcomes: list[object] = []
    connection.send_with_callback(HEARTBEAT, outcomes.append)
    await end(connection)
    assert [type(outcome) for outcome in outcomes] == [ConnectionLost]
    with pytest.raises(ConnectionLost):
        connection.send_with_callback(HEARTBEAT, outcomes.append)
    assert len(outcomes) == 1


@in_virtual_time
async def test_a_callback_whose_request_times_out_is_called_once() -> None:
    connection = await open_to(Peer(only_versions))
    outcomes: list[object] = []
    connection.send_with_callback(HEARTBEAT, outcomes.append, timeout=5)
    assert isinstance(await connection.closed, KafkaTimeout)
    assert [type(outcome) for outcome in outcomes] == [KafkaTimeout]


async def test_a_request_that_cannot_be_encoded_does_not_affect_the_others() -> None:
    connection = await open_to(Peer())
    before = connection.send_nowait(ask("before"))
    with pytest.raises((ValueError, UnsupportedVersion)):
        connection.send_nowait(HeartbeatRequest(group_id="g" * 70000, generation_id=1, member_id="m"), at_most=0)
    assert (await before).cluster_id == "before"
    assert (await connection.send(ask("after"))).cluster_id == "after"
    await end(connection)


async def test_a_request_without_a_response_is_written_and_not_in_flight() -> None:
    peer = Peer(only_versions)
    connection = await open_to(peer)
    connection.send_without_response(HEARTBEAT)
    await connection.drain()
    await peer.got(2)
    assert connection.in_flight == 0
    await end(connection)


async def test_bytes_written_before_close_still_leave() -> None:
    peer = Peer(only_versions)
    async with peer.listening() as port:
        connection = await open_to(TcpConnector(), port=port)
        for _ in range(100):
            connection.send_without_response(HEARTBEAT)
        await end(connection)
        await peer.got(101)


# Deadlines.


def test_a_request_that_times_out_closes_the_connection() -> None:
    async def main() -> float:
        connection = await open_to(Peer(only_versions))
        late = connection.send_nowait(HEARTBEAT, timeout=1.5)
        patient = connection.send_nowait(ask("t"), timeout=60)
        with pytest.raises(KafkaTimeout, match=r"broker 2 \(127.0.0.1:9092\) did not answer Heartbeat within 1.5 s"):
            await late
        with pytest.raises(ConnectionLost) as caught:
            await patient
        assert caught.value.sent
        assert isinstance(caught.value.__cause__, KafkaTimeout)
        assert connection.state is ConnectionState.CLOSED
        assert isinstance(connection.closed.result(), KafkaTimeout)
        await connection.wait_closed()
        return asyncio.get_running_loop().time()

    assert run_clean(main()) == pytest.approx(1.5, abs=0.01)


def test_deadlines_are_kept_in_any_order() -> None:
    async def main() -> float:
        connection = await open_to(Peer(only_versions))
        promises = [connection.send_nowait(HEARTBEAT, timeout=seconds) for seconds in (30, 10, 20)]
        results = await asyncio.gather(*promises, return_exceptions=True)
        assert [type(result) for result in results] == [ConnectionLost, KafkaTimeout, ConnectionLost]
        return asyncio.get_running_loop().time()

    assert run_clean(main()) == pytest.approx(10, abs=0.01)


@in_virtual_time
async def test_a_cancelled_request_times_out_too() -> None:
    connection = await open_to(Peer(only_versions))
    promise = connection.send_nowait(HEARTBEAT, timeout=5)
    promise.cancel()
    assert isinstance(await connection.closed, KafkaTimeout)


@in_virtual_time
async def test_answered_requests_never_time_out() -> None:
    connection = await open_to(Peer())
    for _ in range(100):
        await connection.send(HEARTBEAT, timeout=2)
        await asyncio.sleep(1.7)
    assert connection.ready
    await end(connection)


@in_virtual_time
async def test_a_blocked_loop_does_not_make_answers_late() -> None:
    connection = await open_to(Peer())
    promise = connection.send_nowait(HEARTBEAT, timeout=1)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.now += 5  # as if code of the user had blocked the loop
    assert (await promise).error_code == 0
    await end(connection)


@in_virtual_time
async def test_unanswered_requests_time_out_after_a_blocked_loop_too() -> None:
    connection = await open_to(Peer(only_versions))
    promise = connection.send_nowait(HEARTBEAT, timeout=1)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.now += 5
    with pytest.raises(KafkaTimeout):
        await promise
    assert loop.time() <= 6.1
