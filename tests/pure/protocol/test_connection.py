"""The client's and the broker's side of a connection, without a transport."""

from __future__ import annotations

import contextlib
import gc
import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiokafka_lite.errors import ErrorCode, ProtocolError, UnsupportedVersion
from aiokafka_lite.protocol.connection import (
    ClientProtocol,
    ParsedRequest,
    RequestHeader,
    UnknownRequest,
    encode_response,
    encode_unsupported_api_versions,
    parse_request,
)
from aiokafka_lite.protocol.messages import (
    REQUESTS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
    ProduceRequest,
)
from aiokafka_lite.protocol.schema import Request, Response

from .strategies import struct_in, versions_of

PREFIX = 4
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def body(frame: bytes | bytearray) -> bytes:
    assert struct.unpack_from(">i", frame) == (len(frame) - PREFIX,)
    return bytes(frame[PREFIX:])


def encoded(request: Request[Any], version: int, client_id: str | None = "me") -> bytes:
    """Return the frame of a connection's first request, without its size."""
    return body(ClientProtocol[None]("broker 1").encode_request(request, version, client_id, None))


def asked(client: ClientProtocol[str], request: Request[Any], version: int, promise: str = "") -> RequestHeader:
    """Return the header that the broker reads of a request."""
    parsed = parse_request(body(client.encode_request(request, version, "me", promise)))
    assert isinstance(parsed, ParsedRequest)
    assert parsed.request == request
    return parsed.header


def answer(header: RequestHeader, response: Response) -> bytes:
    return body(encode_response(header, response))


@pytest.mark.parametrize("cls", REQUESTS.values(), ids=lambda cls: cls.__name__)
@given(data=st.data())
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_requests_and_responses_cross_in_every_version(cls: type[Any], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(versions_of(cls)))
    request, response = data.draw(struct_in(cls, version)), data.draw(struct_in(cls.response, version))
    if isinstance(response, ApiVersionsResponse):
        response.error_code = 0
    client = ClientProtocol[str]("broker 1")
    header = asked(client, request, version, "promise")
    assert header == RequestHeader(cls.api_key, version, 0, "me")
    answered, received = client.receive(answer(header, response))
    assert (answered.correlation_id, answered.request, answered.version) == (0, cls, version)
    assert (answered.promise, received) == ("promise", response)
    assert not client.in_flight


def test_golden_request_headers() -> None:
    client = ClientProtocol[None]("broker 1")
    client.encode_request(HEARTBEAT, 3, "me", None)
    old = client.encode_request(HEARTBEAT, 3, "me", None)
    flexible = client.encode_request(HEARTBEAT, 4, "me", None)
    nameless = client.encode_request(MetadataRequest(topics=None), 1, None, None)
    assert body(old)[:12] == b"\0\x0c" + b"\0\3" + b"\0\0\0\1" + b"\0\2me"
    assert body(flexible)[:13] == b"\0\x0c" + b"\0\4" + b"\0\0\0\2" + b"\0\2me" + b"\0"
    assert body(nameless) == b"\0\3" + b"\0\1" + b"\0\0\0\3" + b"\xff\xff" + b"\xff\xff\xff\xff"


def test_golden_response_headers() -> None:
    assert answer(RequestHeader(12, 3, 7, None), HeartbeatResponse(error_code=1)) == b"\0\0\0\7" + bytes(4) + b"\0\1"
    assert answer(RequestHeader(12, 4, 7, None), HeartbeatResponse(error_code=1)) == (
        b"\0\0\0\7\0" + bytes(4) + b"\0\1" + b"\0"
    )


def test_the_header_of_an_api_versions_response_is_always_the_oldest() -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[])
    assert answer(RequestHeader(18, 4, 7, None), response)[:7] == b"\0\0\0\7" + b"\0\0" + b"\1"


def test_correlation_ids_count_up_and_wrap_to_zero() -> None:
    client = ClientProtocol[str]("broker 1")
    assert [asked(client, HEARTBEAT, 0).correlation_id for _ in range(3)] == [0, 1, 2]
    client._next = 2**31 - 1
    assert [asked(client, HEARTBEAT, 0).correlation_id for _ in range(2)] == [2**31 - 1, 0]


def test_responses_are_matched_in_the_order_of_the_requests() -> None:
    client = ClientProtocol[str]("broker 1")
    headers = [asked(client, HEARTBEAT, version, f"v{version}") for version in (0, 1, 4)]
    for number, header in enumerate(headers):
        assert len(client.in_flight) == 3 - number
        request, response = client.receive(answer(header, HeartbeatResponse(error_code=number)))
        assert (request.correlation_id, request.promise) == (number, f"v{header.version}")
        assert response == HeartbeatResponse(error_code=number)


def test_a_closed_connection_takes_the_requests_in_flight_back() -> None:
    client = ClientProtocol[str]("broker 1")
    for promise in ("first", "second"):
        client.encode_request(HEARTBEAT, 0, "me", promise)
    assert [request.promise for request in client.take_in_flight()] == ["first", "second"]
    assert not client.in_flight


def test_a_response_to_another_request_than_the_oldest_is_refused() -> None:
    client = ClientProtocol[str]("broker 1")
    headers = [asked(client, HEARTBEAT, 0) for _ in range(2)]
    with pytest.raises(
        ProtocolError, match=r"broker 1 sent a response with correlation id 1, but 0 \(HeartbeatRequest\) is next"
    ):
        client.receive(answer(headers[1], HeartbeatResponse(error_code=0)))
    assert len(client.in_flight) == 2


def test_a_response_without_a_request_is_refused() -> None:
    with pytest.raises(ProtocolError, match=r"broker 1 sent a response .* but no request is in flight"):
        ClientProtocol[None]("broker 1").receive(bytes(6))


def test_an_unanswered_request_is_not_in_flight() -> None:
    client = ClientProtocol[str]("broker 1")
    produce = ProduceRequest(acks=0, timeout_ms=0, topic_data=[])
    assert client.encode_unanswered_request(produce, 9, None)
    assert not client.in_flight
    assert asked(client, HEARTBEAT, 0).correlation_id == 1


def test_a_request_that_cannot_be_encoded_is_not_in_flight() -> None:
    client = ClientProtocol[str]("broker 1")
    static = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="i")
    says = r"broker 1 supports Heartbeat up to version 0, .* HeartbeatRequest\.group_instance_id v0"
    with pytest.raises(UnsupportedVersion, match=says):
        client.encode_request(static, 0, "", "promise")
    with pytest.raises(ValueError, match=r"HeartbeatRequest\.generation_id v0"):
        client.encode_request(HeartbeatRequest(group_id="g", generation_id=2**31, member_id="m"), 0, "", "promise")
    assert not client.in_flight
    assert client.next_correlation_id == 0


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\0\0"])
def test_a_response_without_a_correlation_id_is_refused(frame: bytes) -> None:
    client = ClientProtocol[None]("broker 1")
    client.encode_request(HEARTBEAT, 0, None, None)
    with pytest.raises(ProtocolError, match="too few for a header"):
        client.receive(frame)


@pytest.mark.parametrize("version", [0, 4])
@pytest.mark.parametrize("left_over", [b"\0", b"garbage"])
def test_bytes_after_a_message_are_ignored(version: int, left_over: bytes) -> None:
    client = ClientProtocol[str]("broker 1")
    header = asked(client, HEARTBEAT, version)
    _, response = client.receive(answer(header, HeartbeatResponse(error_code=0)) + left_over)
    assert response == HeartbeatResponse(error_code=0)
    parsed = parse_request(encoded(HEARTBEAT, version) + left_over)
    assert isinstance(parsed, ParsedRequest)
    assert parsed.request == HEARTBEAT


@pytest.mark.parametrize("version", [0, 4])
def test_a_truncated_response_is_refused_and_names_the_peer(version: int) -> None:
    client = ClientProtocol[str]("broker 1")
    whole = answer(asked(client, HEARTBEAT, version), HeartbeatResponse(error_code=0))
    for cut in range(len(whole)):
        with pytest.raises(ProtocolError, match="broker 1"):
            client.receive(whole[:cut])


@pytest.mark.parametrize("version", [0, 4])
def test_a_truncated_request_is_refused(version: int) -> None:
    whole = encoded(HEARTBEAT, version)
    for cut in range(len(whole)):
        with pytest.raises(ProtocolError):
            parse_request(whole[:cut])


def test_tagged_fields_of_a_header_are_skipped() -> None:
    client = ClientProtocol[str]("broker 1")
    whole = answer(asked(client, HEARTBEAT, 4), HeartbeatResponse(error_code=3))
    assert client.receive(whole[:4] + b"\1\7\2ab" + whole[5:])[1] == HeartbeatResponse(error_code=3)
    request = encoded(HEARTBEAT, 4)
    parsed = parse_request(request[:12] + b"\1\7\2ab" + request[13:])
    assert isinstance(parsed, ParsedRequest)
    assert parsed.request == HEARTBEAT


def test_too_many_tagged_fields_of_a_header_are_refused() -> None:
    request = encoded(HEARTBEAT, 4)
    with pytest.raises(ProtocolError, match="a header claims 1001 tagged fields; at most 1000 are accepted"):
        parse_request(request[:12] + b"\xe9\7" + b"\7\0" * 1001 + request[13:])


@given(st.binary(max_size=60))
@settings(deadline=None)
def test_any_bytes_are_a_request_or_a_protocol_error(frame: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert isinstance(parse_request(frame), ParsedRequest | UnknownRequest)


@given(st.sampled_from(sorted(REQUESTS)), st.integers(0, 14), st.binary(max_size=60))
@settings(deadline=None)
def test_any_body_is_a_request_or_a_protocol_error(key: int, version: int, rest: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        parse_request(struct.pack(">hhihx", key, version, 1, -1) + rest)


@pytest.mark.parametrize(("key", "version"), [(999, 0), (-1, 0), (3, 99), (3, -1), (18, 99)])
def test_an_unknown_api_or_version_is_a_value_not_an_error(key: int, version: int) -> None:
    parsed = parse_request(struct.pack(">hhih", key, version, 5, 2) + b"me" + b"whatever it says")
    assert parsed == UnknownRequest(RequestHeader(key, version, 5, "me"))
    assert isinstance(parsed, UnknownRequest)


def test_an_unknown_api_versions_request_is_answered_in_version_0() -> None:
    client = ClientProtocol[str]("broker 1")
    client.encode_request(ApiVersionsRequest(), 4, "me", "")
    offered = ApiVersionsResponse(
        error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=[ApiVersion(api_key=18, min_version=0, max_version=3)]
    )
    frame = body(encode_unsupported_api_versions(RequestHeader(18, 4, 0, "me"), offered))
    assert frame == b"\0\0\0\0" + b"\0\x23" + b"\0\0\0\1" + b"\0\x12\0\0\0\3"
    assert client.receive(frame)[1] == offered


def test_a_request_header_has_the_name_of_its_api() -> None:
    assert RequestHeader(3, 0, 0, None).name == "Metadata"
    assert RequestHeader(999, 0, 0, None).name == "API key 999"


def test_a_frame_may_be_a_view() -> None:
    client = ClientProtocol[str]("broker 1")
    parsed = parse_request(memoryview(client.encode_request(MetadataRequest(topics=[]), 12, "me", ""))[PREFIX:])
    assert isinstance(parsed, ParsedRequest)
    response = MetadataResponse(brokers=[], topics=[])
    assert client.receive(memoryview(encode_response(parsed.header, response))[PREFIX:])[1] == response


def test_a_large_response_is_decoded_without_a_garbage_collection() -> None:
    """Collections among 100,000 new partitions would hold the event loop three times as long."""
    partitions = [
        MetadataResponsePartition(
            error_code=0, partition_index=number, leader_id=1, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3]
        )
        for number in range(20_000)
    ]
    topic = MetadataResponseTopic(error_code=0, name="t", partitions=partitions)
    client = ClientProtocol[str]("broker 1")
    header = asked(client, MetadataRequest(topics=[]), 12)
    frame = answer(header, MetadataResponse(brokers=[], topics=[topic]))
    collections: list[str] = []
    gc.callbacks.append(notice := lambda phase, _: collections.append(phase) if phase == "start" else None)
    try:
        _, response = client.receive(frame)
        during = list(collections)
    finally:
        gc.callbacks.remove(notice)
    assert isinstance(response, MetadataResponse)
    assert len(response.topics[0].partitions) == 20_000
    assert len(during) <= 1, "only the one after the response"
    assert gc.isenabled()
