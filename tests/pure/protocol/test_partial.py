"""A large response that is decoded in parts equals one that is decoded in one call."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from aiokafka_lite.errors import ProtocolError
from aiokafka_lite.protocol.codec import decode_message, encode_message
from aiokafka_lite.protocol.messages import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokafka_lite.protocol.partial import PartialResponse
from aiokafka_lite.protocol.wire import UndecodableResponse

VERSIONS = range(MetadataResponse.versions.first, MetadataResponse.versions.last + 1)


def encoded(version: int) -> bytes:
    partition = MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=1, replica_nodes=[1, 2], isr_nodes=[1]
    )
    message = MetadataResponse(
        throttle_time_ms=70 if version >= 3 else 0,
        brokers=[MetadataResponseBroker(node_id=1, host="größe", port=9092)],
        cluster_id="a-cluster",
        topics=[
            MetadataResponseTopic(error_code=0, name="orders", partitions=[partition] * 3),
            MetadataResponseTopic(error_code=3, name="missing", partitions=[]),
            MetadataResponseTopic(error_code=0, name="payments", partitions=[partition]),
        ],
        error_code=57 if version >= 13 else 0,
    )
    out = bytearray()
    encode_message(message, version, out)
    return bytes(out)


def decoded_in_parts(version: int, data: bytes) -> MetadataResponse:
    parts = PartialResponse(MetadataResponse, version, "topics", data, 0, "broker 1")
    elements = [parts.decode() for _ in range(parts.remaining)]
    parts.end()
    message: MetadataResponse = parts.message
    assert message.topics == []
    message.topics = elements
    return message


@pytest.mark.parametrize("version", VERSIONS)
def test_the_parts_are_those_of_the_whole_message(version: int) -> None:
    data = encoded(version)
    assert decoded_in_parts(version, data) == decode_message(MetadataResponse, version, data)[0]


@pytest.mark.parametrize("version", [1, 12, 13])
def test_damaged_bytes_are_refused_exactly_when_the_whole_message_refuses_them(version: int) -> None:
    data = encoded(version)
    damaged = [data[:size] for size in range(len(data))]
    damaged += [data[:place] + bytes([value]) + data[place + 1 :] for place in range(len(data)) for value in (0, 0xFF)]
    for frame in damaged:
        assert outcome(decoded_in_parts, version, frame) == outcome(whole, version, frame)


def whole(version: int, data: bytes) -> MetadataResponse:
    return decode_message(MetadataResponse, version, data)[0]


def outcome(decode: Any, version: int, data: bytes) -> object:
    """Return the message, or the text of the error without the broker's name."""
    try:
        return decode(version, data)
    except UndecodableResponse as error:
        return str(error).removeprefix("broker 1 sent a response that cannot be decoded: ")
    except ProtocolError as error:
        return str(error)


def test_an_element_with_known_bytes_is_skipped_and_another_one_is_not() -> None:
    data = encoded(12)
    parts = PartialResponse(MetadataResponse, 12, "topics", data, 0, "broker 1")
    begin = parts.position
    first = parts.decode()
    orders = data[begin : parts.position]
    parts.begin()
    assert parts.remaining == 3
    assert parts.skip(orders)
    assert not parts.skip(orders)
    assert not parts.skip(b"")
    assert [parts.decode().name, parts.decode().name] == ["missing", "payments"]
    assert parts.remaining == 0
    assert first.name == "orders"


def test_the_throttle_time_is_known_before_the_elements() -> None:
    parts = PartialResponse(MetadataResponse, 12, "topics", encoded(12), 0, "broker 1")
    assert parts.client_throttle_ms(12) == 70


def test_a_count_beyond_the_bytes_is_refused_at_once() -> None:
    data = encoded(1)
    place = data.index(b"orders") - 2 - 2 - 4
    with pytest.raises(UndecodableResponse, match=r"broker 1 sent a response .* MetadataResponse.topics claims"):
        PartialResponse(
            MetadataResponse, 1, "topics", data[:place] + struct.pack(">i", 1000) + data[place + 4 :], 0, "broker 1"
        )
