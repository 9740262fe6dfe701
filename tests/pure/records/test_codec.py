"""The loops over records: numbers, wrong lengths, and memory."""

from __future__ import annotations

import tracemalloc

import pytest

from aiokafka_lite.errors import CorruptRecord
from aiokafka_lite.protocol.records.record_format import append_record, decode_records, encode_records
from aiokafka_lite.protocol.records.varint import ENCODINGS, encode_varint, read_raw_varint, read_raw_varlong
from aiokafka_lite.types import Header

EDGES = [0, 1, 63, 64, 8191, 8192, (1 << 20) - 1, 1 << 20, (1 << 31) - 1, (1 << 62), (1 << 63) - 1]


def one_record(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


def decode_one(data: bytes) -> tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]:
    columns, end = decode_records(data, 0, 1, 0, 0)
    assert end == len(data)
    [row] = zip(columns.offsets, columns.timestamps, columns.keys, columns.values, columns.headers)
    return row


@pytest.mark.parametrize("number", [*EDGES, *(-edge for edge in EDGES), -(1 << 63)])
def test_varint_comes_back(number: int) -> None:
    encoded = encode_varint(number)
    assert ENCODINGS[number] == ENCODINGS[number] == encoded
    raw, end = read_raw_varlong(b"\xff" + encoded + b"\xff", 1)
    assert (raw >> 1) ^ -(raw & 1) == number
    assert end == 1 + len(encoded)


# From the page on encodings of Protocol Buffers, whose zigzag this is.
def test_varint_bytes_are_those_of_the_specification() -> None:
    assert [encode_varint(number) for number in (0, -1, 1, -2)] == [b"\0", b"\1", b"\2", b"\3"]
    assert encode_varint(150) == b"\xac\x02"
    assert encode_varint(2147483647) == b"\xfe\xff\xff\xff\x0f"
    assert encode_varint(-2147483648) == b"\xff\xff\xff\xff\x0f"


def test_varint_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="64 bits"):
        encode_varint(1 << 63)


@pytest.mark.parametrize("read, longest", [(read_raw_varint, 5), (read_raw_varlong, 10)])
def test_varint_that_is_too_long_or_cut_off_is_corrupt(read: object, longest: int) -> None:
    assert callable(read)
    for data in (b"\x80" * longest + b"\x01", b"\x80" * (longest - 1) + b"\x7f", b"\x80" * (longest - 1), b""):
        with pytest.raises(CorruptRecord):
            read(data, 0)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 127, 128, 8191, 8192, 100_000])
def test_sizes_around_the_number_of_length_bytes(size: int) -> None:
    key, value = b"k" * size, b"v" * size
    data = encode_records(0, [0], [key], [value], [[("h" * size, value)]])
    assert decode_one(bytes(data)) == (0, 0, key, value, (Header("h" * size, value),))


@pytest.mark.parametrize("delta", [0, -1, 63, -64, 64, 8191, 8192, -8192, -8193, 1 << 40, -(1 << 40)])
def test_timestamps_go_forward_and_back(delta: int) -> None:
    base = 1 << 50
    data = encode_records(base, [base + delta], [None], [None])
    assert decode_records(bytes(data), 0, 1, 0, base)[0].timestamps == [base + delta]


def test_a_record_without_room_leaves_the_buffer_unchanged() -> None:
    buffer = bytearray(b"head")
    assert append_record(buffer, 11, 0, 0, None, None, b"\0")
    before = bytes(buffer)
    assert len(before) == 11
    assert not append_record(buffer, 17, 1, 0, None, None, b"\0")
    for bad in (("text", None), (None, 5)):
        with pytest.raises(TypeError):
            append_record(buffer, 1 << 20, 1, 0, *bad, b"\0")  # type: ignore[arg-type]
    assert buffer == before


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        encode_records(0, [0, 1], [None], [None, None])


def test_header_key_that_is_not_utf8_is_read_with_replacements() -> None:
    data = one_record(b"\0\0\0\1\1\2\4\xff\xfe\1")
    assert decode_one(data)[-1] == (Header("\ufffd\ufffd", None),)


def test_different_header_keys_stay_different() -> None:
    headers = (Header("", b"1"), Header("a", b"2"), Header("b", None), Header("a", b"3"), Header("", b""))
    data = encode_records(0, [0, 0], [None, None], [None, None], [headers, headers])
    assert decode_records(bytes(data), 0, 2, 0, 0)[0].headers == [headers, headers]


LIES = {
    "record length too large": b"\x7e\0\0\0\1\1\0",
    "record length too small": b"\x0a\0\0\0\1\1\0",
    "record length negative": b"\x0b\0\0\0\1\1\0",
    "record length over 5 bytes": b"\x80\x80\x80\x80\x80\x01\0\0\0\1\1\0",
    "record length over 32 bits": b"\xff\xff\xff\xff\x7f\0\0\0\1\1\0",
    "timestamp over 10 bytes": one_record(b"\0" + b"\x80" * 10 + b"\1" + b"\0\1\1\0"),
    "offset over 5 bytes": one_record(b"\0\0" + b"\x80" * 5 + b"\1" + b"\1\1\0"),
    "offset negative": one_record(b"\0\0\1\1\1\0"),
    "key length past the end": one_record(b"\0\0\0\x7e\1\0"),
    "key length -2": one_record(b"\0\0\0\3\1\0"),
    "key of 2 GiB": one_record(b"\0\0\0\xfe\xff\xff\xff\x0f\1\0"),
    "value length past the end": one_record(b"\0\0\0\1\x7e\0"),
    "value length -2": one_record(b"\0\0\0\1\3\0"),
    "value of 2 GiB": one_record(b"\0\0\0\1\xfe\xff\xff\xff\x0f\0"),
    "value into the next record": one_record(b"\0\0\0\1\x0e\0") + one_record(b"\0\0\2\1\1\0"),
    "header count negative": one_record(b"\0\0\0\1\1\1"),
    "header count of 2**31": one_record(b"\0\0\0\1\1\xfe\xff\xff\xff\x0f"),
    "header count one too many": one_record(b"\0\0\0\1\1\4\0\1"),
    "header key null": one_record(b"\0\0\0\1\1\2\1\1"),
    "header key past the end": one_record(b"\0\0\0\1\1\2\x7e\1"),
    "header value length -2": one_record(b"\0\0\0\1\1\2\0\3"),
    "header value past the end": one_record(b"\0\0\0\1\1\2\0\x7e"),
    "header value past the end, and the record too": b"\x1e\0\0\0\1\1\2\0\x0e...",
    "nothing": b"",
}


@pytest.mark.parametrize("data", LIES.values(), ids=LIES)
def test_a_wrong_length_in_a_record_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode_records(data, 0, 1, 0, 0)


def test_offsets_may_have_gaps_but_must_increase() -> None:
    def decode(*deltas: int) -> list[int]:
        nothing = [None] * len(deltas)
        data = encode_records(0, [0] * len(deltas), nothing, nothing, offset_deltas=deltas)
        return decode_records(bytes(data), 0, len(deltas), 100, 0)[0].offsets

    assert decode(0, 3, 70, 9000) == [100, 103, 170, 9100]
    for deltas in ((0, 0), (1, 0), (0, 9000, 70), (-1, 0)):
        with pytest.raises(CorruptRecord):
            decode(*deltas)


def test_timestamp_beyond_64_bits_is_corrupt() -> None:
    data = encode_records(0, [1], [None], [None])
    with pytest.raises(CorruptRecord, match="64 bits"):
        decode_records(bytes(data), 0, 1, 0, (1 << 63) - 1)


def test_no_memory_is_allocated_for_wrong_lengths() -> None:
    tracemalloc.start()
    try:
        for data in LIES.values():
            with pytest.raises(CorruptRecord):
                decode_records(data, 0, 1, 0, 0)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
