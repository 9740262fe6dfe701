"""From keys, values and headers to bytes."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka_lite.errors import SerializationError
from aiokafka_lite.producer.serializer import BytesSerializer, headers_of, serialize
from aiokafka_lite.types import Header


class Upper:
    def serialize(self, topic: str, data: object) -> bytes:
        assert isinstance(data, str)
        return data.upper().encode()


class Careless:
    def serialize(self, topic: str, data: object) -> Any:
        return "text"


@pytest.mark.parametrize("data", ["é", "é".encode(), bytearray("é".encode()), memoryview("é".encode())])
def test_text_and_buffers_become_bytes(data: object) -> None:
    assert serialize(BytesSerializer(), "t", "value", data) == b"\xc3\xa9"


def test_a_buffer_is_copied() -> None:
    buffer = bytearray(b"before")
    data = serialize(BytesSerializer(), "t", "value", buffer)
    buffer[:] = b"after!"
    assert data == b"before"


def test_a_serializer_of_the_users_own_is_used() -> None:
    assert serialize(Upper(), "t", "key", "abc") == b"ABC"


@pytest.mark.parametrize("serializer", [BytesSerializer(), Upper(), Careless()])
@pytest.mark.parametrize("part", ["key", "value"])
def test_what_cannot_be_serialized_is_named(serializer: Any, part: str) -> None:
    with pytest.raises(SerializationError, match=rf"{part}.*'orders'|{part} of a record") as caught:
        serialize(serializer, "orders", part, 5)
    assert "orders" in str(caught.value)
    assert type(serializer).__name__ in str(caught.value)


def test_headers_are_pairs_or_a_mapping() -> None:
    expected = (Header("a", b"1"), Header("b", None))
    assert headers_of("t", [("a", b"1"), ("b", None)]) == expected
    assert headers_of("t", {"a": b"1", "b": None}) == expected
    assert headers_of("t", iter(expected)) == expected
    assert headers_of("t", ()) == ()


@pytest.mark.parametrize("headers", [[("a", "text")], [(1, b"")], [("a",)], [5], 5, "ab", [("a", b"", b"")]])
def test_headers_of_the_wrong_shape_name_the_topic(headers: Any) -> None:
    with pytest.raises(SerializationError, match="orders"):
        headers_of("orders", headers)
