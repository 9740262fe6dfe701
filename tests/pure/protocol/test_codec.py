"""The rules of the codec, one by one, with small messages."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from aiokafka_lite.errors import ProtocolError
from aiokafka_lite.protocol.codec import (
    decode_message,
    decode_versioned,
    encode_message,
    encode_versioned,
)
from aiokafka_lite.protocol.messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from aiokafka_lite.protocol.schema import (
    MOST_TAGS,
    Message,
    array,
    blob,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    message,
    nested,
    string,
    struct,
    uint16,
    uuid,
)
from aiokafka_lite.protocol.wire import get_uvarint, put_uvarint


@struct
class Point:
    x: int = int32(default=0)
    y: int = int32(default=0)


@struct
class Nothing:
    later: int = int32("5+", default=0)


@message(key=-1, versions=(0, 3), flexible=2)
class Sample(Message):
    always: int = int16()
    from_one: int = int32("1+", default=-1)
    ignorable: int = int32("1+", default=-1, ignorable=True)
    only_zero: str = string("0", default="")
    name: str | None = string(nullable="1+", default="")
    number: int = int64("2+", default=5, tag=0)
    text: str | None = string("2+", nullable="2+", default=None, tag=1)
    point: Point = nested(Point, "2+", default=Point(), tag=2)
    points: list[Point] = array(Point, "2+", default=[], tag=3)
    maybe: Point | None = nested(Point, "2+", nullable="2+", default=None, tag=4)
    numbers: list[int] = array(int32, "2+", default=[], tag=5)
    data: bytes | None = blob("2+", nullable="2+", default=b"", tag=6)
    flag: bool = boolean("2+", default=False, tag=7)
    ratio: float = float64("2+", default=0.0, tag=8)
    port: int = uint16("2+", default=0, tag=9)
    identity: bytes = uuid("2+", default=bytes(16), tag=10)
    from_three: int = int8("3+", default=0, tag=200)
    inline: Point | None = nested(Point, "3+", nullable="3+", default=None)


def encoded(value: Message, version: int) -> bytes:
    out = bytearray()
    encode_message(value, version, out)
    return bytes(out)


FULL = Sample(
    always=1,
    from_one=2,
    name=None,
    number=6,
    text="t",
    point=Point(x=1, y=2),
    points=[Point(x=3, y=4), Point(x=5, y=6)],
    maybe=Point(x=7, y=8),
    numbers=[9, 10],
    data=None,
    flag=True,
    ratio=0.5,
    port=65535,
    identity=bytes(range(16)),
    from_three=-1,
    inline=Point(x=-1, y=-2),
)


# Tagged fields.


def test_tagged_fields_of_every_wire_type_come_back() -> None:
    wire = encoded(FULL, 3)
    assert decode_message(Sample, 3, wire) == (FULL, len(wire))


def test_tagged_fields_with_their_defaults_are_not_encoded() -> None:
    assert encoded(Sample(always=1), 2) == b"\0\1" + b"\xff\xff\xff\xff" * 2 + b"\1" + b"\0"


def test_tagged_fields_are_encoded_in_the_order_of_their_tags() -> None:
    wire = encoded(Sample(always=1, port=1, number=6), 2)
    assert wire[11:] == b"\2" + b"\0\x08" + (6).to_bytes(8, "big") + b"\x09\2\0\1"


@pytest.mark.parametrize("size", [0, 1, 127, 128, 300])
def test_unknown_tags_are_skipped(size: int) -> None:
    wire = bytearray(encoded(Sample(always=1, port=3), 2))
    wire[11] = 2
    put_uvarint(wire, 77)
    put_uvarint(wire, size)
    wire += bytes(size)
    assert decode_message(Sample, 2, wire) == (Sample(always=1, port=3), len(wire))


def test_a_tag_of_a_later_version_is_skipped() -> None:
    with_tag = encoded(Sample(always=1), 2)[:-1] + b"\1\xc8\1\1\7"
    assert decode_message(Sample, 2, with_tag) == (Sample(always=1), len(with_tag))


@pytest.mark.parametrize("body", [b"\0\0\1", b"\1"])
def test_a_tagged_field_must_be_consumed_exactly(body: bytes) -> None:
    wire = encoded(Sample(always=1), 2)[:-1] + b"\1\x09" + bytes([len(body)]) + body + bytes(8)
    with pytest.raises(ProtocolError, match=r"tag 9 \(Sample\.port\)"):
        decode_message(Sample, 2, wire)


def test_more_tagged_fields_than_any_message_has_are_refused() -> None:
    count = bytearray()
    put_uvarint(count, MOST_TAGS + 1)
    unknown = b"\xff\1\0" * (MOST_TAGS + 1)
    with pytest.raises(ProtocolError, match="the tagged fields of Sample claims 1001 elements; at most 1000"):
        decode_message(Sample, 2, encoded(Sample(always=1), 2)[:-1] + count + unknown)


def test_a_tagged_field_longer_than_the_frame_is_refused() -> None:
    wire = encoded(Sample(always=1), 2)[:-1] + b"\1\x4d\x7f"
    with pytest.raises(ProtocolError, match="claims 127 bytes, but 0 remain"):
        decode_message(Sample, 2, wire)


# What a version can carry.


def test_a_value_that_the_version_lacks_is_refused_and_named() -> None:
    with pytest.raises(ValueError, match=r"Sample\.from_one v0: the field exists in versions 1 and above only"):
        encoded(Sample(always=1, from_one=3), 0)
    with pytest.raises(ValueError, match=r"Sample\.only_zero v1: the field exists in versions 0 to 0 only"):
        encoded(Sample(always=1, only_zero="x"), 1)


def test_a_value_that_the_version_lacks_is_dropped_when_ignorable() -> None:
    assert encoded(Sample(always=1, ignorable=9), 0) == encoded(Sample(always=1), 0)


def test_null_is_refused_where_the_version_forbids_it() -> None:
    assert decode_message(Sample, 1, encoded(Sample(always=1, name=None), 1))[0].name is None
    with pytest.raises(ValueError, match=r"Sample\.name v0: null is not allowed"):
        encoded(Sample(always=1, name=None), 0)


def test_null_read_where_the_version_forbids_it_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match=r"MetadataRequestTopic\.name is null"):
        decode_message(MetadataRequest, 0, b"\0\0\0\1\xff\xff")
    with pytest.raises(ProtocolError, match=r"MetadataResponse\.brokers is null"):
        decode_message(MetadataResponse, 9, bytes(4) + b"\0")


def test_no_topics_and_all_topics_are_different_requests() -> None:
    every, none = MetadataRequest(topics=None), MetadataRequest(topics=[])
    for version in (1, 9):
        assert encoded(every, version) != encoded(none, version)
        assert decode_message(MetadataRequest, version, encoded(every, version))[0] == every
        assert decode_message(MetadataRequest, version, encoded(none, version))[0] == none


@pytest.mark.parametrize(
    ("value", "version", "complaint"),
    [
        (Sample(always=40000), 1, r"Sample\.always v1: 40000 does not fit"),
        (Sample(always="x"), 1, r"Sample\.always v1: 'x' does not fit"),  # type: ignore[arg-type]
        (Sample(always=1, name="x" * 32768), 1, r"Sample\.name v1: must have at most 32767 bytes, got 32768"),
        (Sample(always=1, name="x" * 32768), 2, r"Sample\.name v2: must have at most 32767 bytes, got 32768"),
        (Sample(always=1, name="\ud800"), 1, r"Sample\.name v1: .*does not fit"),
        (Sample(always=1, name=7), 1, r"Sample\.name v1: 7 does not fit"),  # type: ignore[arg-type]
        (Sample(always=1, identity=b"short"), 2, r"Sample\.identity v2: a UUID must have 16 bytes, got 5"),
        (Sample(always=1, data="text"), 2, r"Sample\.data v2: 'text' does not fit"),  # type: ignore[arg-type]
        (Sample(always=1, points=[Point(), Point(y=2**40)]), 2, r"Sample\.points\[1\]\.y v2"),
        (Sample(always=1, points=7), 2, r"Sample\.points v2: must be a list, got int"),  # type: ignore[arg-type]
        (Sample(always=1, points=[7]), 2, r"Sample\.points\[0\] v2: must be Point, got int"),  # type: ignore[list-item]
        (Sample(always=1, point=None), 2, r"Sample\.point v2: null is not allowed"),  # type: ignore[arg-type]
    ],
)
def test_a_field_that_cannot_be_encoded_is_named(value: Sample, version: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        encoded(value, version)


def test_a_field_that_is_not_set_is_named() -> None:
    value = Sample.__new__(Sample)
    with pytest.raises(ValueError, match=r"Sample\.always v1: is not set"):
        encoded(value, 1)


def test_a_refused_message_leaves_the_buffer_unchanged() -> None:
    out = bytearray(b"before")
    request = ListOffsetsRequest(replica_id=-1, topics=[], isolation_level=1)
    with pytest.raises(ValueError):
        encode_message(request, 1, out)
    with pytest.raises(ValueError):
        encode_message(
            MetadataRequest(topics=[MetadataRequestTopic(name="a"), MetadataRequestTopic(name=None)]), 9, out
        )
    assert out == b"before"


def test_versions_that_a_message_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="Sample has versions 0 to 3, not 4"):
        encoded(Sample(always=1), 4)
    with pytest.raises(ValueError, match="Sample has versions 0 to 3, not -1"):
        decode_message(Sample, -1, b"")


def test_elements_without_bytes_cannot_be_declared() -> None:
    @message(key=-1, versions=(0, 0))
    class Endless(Message):
        nothings: list[Nothing] = array(Nothing)

    with pytest.raises(TypeError, match=r"Endless\.nothings: elements without bytes"):
        decode_message(Endless, 0, b"\x7f\xff\xff\xff")


# What is decoded.


def test_fields_that_a_version_lacks_have_their_defaults() -> None:
    decoded, _ = decode_message(Sample, 0, encoded(Sample(always=1), 0))
    assert decoded == Sample(always=1)


def test_mutable_defaults_belong_to_one_message() -> None:
    wire = encoded(Sample(always=1), 2)
    one, other = decode_message(Sample, 2, wire)[0], decode_message(Sample, 2, wire)[0]
    one.points.append(Point())
    one.point.x = 9
    assert other == Sample(always=1) == decode_message(Sample, 2, wire)[0]


def test_a_decoded_message_encodes_in_another_version() -> None:
    response = MetadataResponse(brokers=[], topics=[MetadataResponseTopic(error_code=0, name="a", partitions=[])])
    for version in (0, 5, 12):
        decoded, _ = decode_message(MetadataResponse, version, encoded(response, version))
        assert encoded(decoded, 13) == encoded(response, 13)


def test_small_blobs_are_copies_and_record_sets_are_views_of_the_frame() -> None:
    partition = FetchResponsePartition(
        partition_index=0, error_code=0, high_watermark=9, aborted_transactions=None, records=b"batch"
    )
    response = FetchResponse(responses=[FetchResponseTopic(topic="t", partitions=[partition])])
    frame = bytearray(encoded(response, 11))
    records = decode_message(FetchResponse, 11, frame)[0].responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records == b"batch"
    frame[frame.index(b"batch")] = ord("B")
    assert records == b"Batch"
    decoded = decode_message(Sample, 2, bytearray(encoded(Sample(always=1, data=b"blob"), 2)))[0]
    assert type(decoded.data) is bytes


def test_record_sets_may_be_given_as_any_buffer() -> None:
    def request(records: Any) -> ProduceRequest:
        partition = ProduceRequestPartition(index=0, records=records)
        return ProduceRequest(
            acks=1, timeout_ms=1, topic_data=[ProduceRequestTopic(name="t", partition_data=[partition])]
        )

    wires = {encoded(request(kind(b"batch")), 9) for kind in (bytes, bytearray, memoryview)}
    assert len(wires) == 1


@pytest.mark.parametrize("size", [b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xfe", b"\0\0\0\x14"])
def test_a_count_beyond_the_remaining_bytes_is_refused(size: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"MetadataRequest\.topics (claims|has a negative length)"):
        decode_message(MetadataRequest, 1, size + bytes(19))


def test_a_count_is_compared_with_the_smallest_size_of_its_elements() -> None:
    """20 bytes can have 10 topics with empty names, and not 11."""
    decode_message(MetadataRequest, 1, b"\0\0\0\x0a" + bytes(20))
    with pytest.raises(ProtocolError, match="claims 22 bytes, but 20 remain"):
        decode_message(MetadataRequest, 1, b"\0\0\0\x0b" + bytes(20))


@pytest.mark.parametrize(
    ("version", "length"), [(0, b"\x80\0"), (0, b"\xff\xfe"), (0, b"\x7f\xff"), (3, b"\xff\xff\x03")]
)
def test_a_wrong_string_length_is_refused(version: int, length: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"FindCoordinatorRequest\.key"):
        decode_message(FindCoordinatorRequest, version, length + b"abc")


def test_a_compact_string_has_the_limit_of_an_old_one() -> None:
    with pytest.raises(ProtocolError, match="32768 bytes; at most 32767 are allowed"):
        decode_message(FindCoordinatorRequest, 3, b"\x81\x80\x02" + bytes(40000))


def test_bad_utf_8_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        decode_message(FindCoordinatorRequest, 0, b"\0\1\xff")
    with pytest.raises(ProtocolError, match="UTF-8"):
        decode_message(FetchResponse, 4, b"\0\0\0\0" + b"\0\0\0\1\0\1\xff" + bytes(4))


def test_a_nullable_struct_has_one_of_two_markers() -> None:
    wire = encoded(Sample(always=1, inline=Point()), 3)
    at = wire.index(b"\1" + bytes(9), 11)
    with pytest.raises(ProtocolError, match=r"Sample\.inline must begin with -1 \(null\) or 1, got 2"):
        decode_message(Sample, 3, wire[:at] + b"\2" + wire[at + 1 :])


# Varints.


@pytest.mark.parametrize("number", [0, 1, 127, 128, 16383, 16384, 2**31, 2**32 - 1])
def test_varints_come_back(number: int) -> None:
    out = bytearray(b"x")
    put_uvarint(out, number)
    assert get_uvarint(out, 1) == (number, len(out))


@pytest.mark.parametrize("wire", [b"\xff" * 5, b"\x80" * 5 + b"\0", b"\xff\xff\xff\xff\x1f"])
def test_varints_have_32_bits(wire: bytes) -> None:
    with pytest.raises(ProtocolError):
        get_uvarint(wire, 0)


# Data that carries its own version.


def test_a_newer_version_is_decoded_as_the_newest_known() -> None:
    value = ConsumerProtocolSubscription(topics=["a"], generation_id=4, rack_id="r")
    newer = b"\0\x09" + encode_versioned(value, 3)[2:] + b"what version 9 adds"
    assert decode_versioned(ConsumerProtocolSubscription, newer) == (value, 9)


def test_an_older_version_has_defaults_for_missing_fields() -> None:
    value = ConsumerProtocolSubscription(topics=["a"], generation_id=4, rack_id="r")
    decoded, version = decode_versioned(ConsumerProtocolSubscription, encode_versioned(value, 0))
    assert (decoded, version) == (ConsumerProtocolSubscription(topics=["a"]), 0)


@pytest.mark.parametrize("wire", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0"])
def test_bad_versioned_data_is_a_protocol_error(wire: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_versioned(ConsumerProtocolSubscription, wire)


def test_the_assignment_is_as_other_clients_write_it() -> None:
    topic = ConsumerProtocolAssignmentTopicPartition(topic="t", partitions=[0, 1])
    wire = encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[topic]), 0)
    assert wire == b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2" + b"\0\0\0\0" + b"\0\0\0\1" + b"\xff\xff\xff\xff"


def test_tracebacks_show_the_generated_line() -> None:
    with pytest.raises(ValueError) as caught:
        encoded(Sample(always=2**20), 1)
    text = "".join(traceback.format_exception(caught.value.__cause__))
    assert '"<encode Sample v1>"' in text
    assert "m.always, m.from_one" in text


@message(key=-1, versions=(0, 1), flexible=1)
class Lists(Message):
    numbers: list[int] = array(int32, default=[])
    identities: list[bytes] = array(uuid, default=[])
    flags: list[bool] = array(boolean, default=[])


@pytest.mark.parametrize("version", [0, 1])
def test_lists_of_any_length_come_back(version: int) -> None:
    for count in (0, 1, 15, 16, 17, 126, 127, 128, 200):
        value = Lists(numbers=list(range(count)), identities=[bytes([count] * 16)] * count, flags=[True, False] * count)
        assert decode_message(Lists, version, encoded(value, version))[0] == value


def test_a_wrong_count_of_numbers_is_refused_before_anything_is_read() -> None:
    for lie in (b"\0\0\0\x14", b"\x7f\xff\xff\xff", b"\x80\0\0\0"):
        with pytest.raises(ProtocolError, match=r"Lists\.numbers (claims|has a negative length)"):
            decode_message(Lists, 0, lie + bytes(40))
        with pytest.raises(ProtocolError, match=r"Lists\.identities (claims|has a negative length)"):
            decode_message(Lists, 0, bytes(4) + lie + bytes(40))
    with pytest.raises(ProtocolError, match=r"Lists\.numbers claims 17179869176 bytes, but 40 remain"):
        decode_message(Lists, 1, b"\xff\xff\xff\xff\x0f" + bytes(40))
