"""Confluent's wire format, by its bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite.schemas.wire import find_header, header, prefix, read_indexes, read_name, write_indexes
from aiokafka_lite.types import Header

GUID = "00112233-4455-6677-8899-aabbccddeeff"


def test_a_prefix_is_a_zero_and_the_id_in_four_bytes() -> None:
    assert prefix(258) == b"\0\0\0\1\2"
    assert read_name(b"\0\0\0\1\2rest") == (258, 5)


def test_a_header_is_a_one_and_the_guid() -> None:
    id_header = header("key", GUID, b"\0")
    assert id_header == Header("__key_schema_id", bytes.fromhex("01 00112233445566778899aabbccddeeff 00"))
    assert read_name(id_header.value or b"") == (GUID, 17)
    assert find_header("key", (Header("trace", None), id_header)) == id_header.value
    assert find_header("value", (id_header,)) is None


@pytest.mark.parametrize("data", [b"", b"\0\0\0\1", b"\1" + b"x" * 15, b"{}", b"\2\0\0\0\0\0"])
def test_bytes_without_the_name_of_a_schema_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="do not begin with the id of a schema"):
        read_name(data)


@pytest.mark.parametrize("path, data", [([0], "00"), ([1], "02 02"), ([2, 0, 70], "06 04 00 8c 01")])
def test_a_path_of_indexes_is_zigzag_varints(path: list[int], data: str) -> None:
    assert write_indexes(path) == bytes.fromhex(data)
    assert read_indexes(b"xx" + bytes.fromhex(data) + b"yy", 2) == (tuple(path), 2 + len(bytes.fromhex(data)))


@given(st.binary(max_size=30))
def test_any_bytes_are_a_path_or_a_value_error(data: bytes) -> None:
    try:
        path, end = read_indexes(data, 0)
    except ValueError:
        return
    assert end <= len(data)
    assert path
