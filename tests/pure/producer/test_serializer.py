"""From keys, values and headers to bytes."""

from __future__ import annotations

import asyncio
import functools
import json
from typing import Any

import pytest

from aiokafka_lite.errors import ConfigurationError, SerializationError
from aiokafka_lite.serialization.headers import headers_of
from aiokafka_lite.serialization.serializer import (
    AnySerializer,
    BytesSerializer,
    IntSerializer,
    JsonSerializer,
    MustAwait,
    StrSerializer,
    as_serializer,
    is_async,
    serialize,
    serialize_async,
)
from aiokafka_lite.types import Header


class Upper:
    def serialize(self, topic: str, data: object, headers: list[Header]) -> bytes:
        assert isinstance(data, str)
        return data.upper().encode()


class Careless:
    def serialize(self, topic: str, data: object, headers: list[Header]) -> Any:
        return "text"


@pytest.mark.parametrize("data", ["é", "é".encode(), bytearray("é".encode()), memoryview("é".encode())])
def test_text_and_buffers_become_bytes(data: object) -> None:
    assert serialize(BytesSerializer(), "t", "value", data, ())[0] == b"\xc3\xa9"


def test_a_buffer_is_copied() -> None:
    buffer = bytearray(b"before")
    data, _ = serialize(BytesSerializer(), "t", "value", buffer, ())
    buffer[:] = b"after!"
    assert data == b"before"


def test_a_serializer_of_the_users_own_is_used() -> None:
    assert serialize(Upper(), "t", "key", "abc", ())[0] == b"ABC"


@pytest.mark.parametrize("serializer", [BytesSerializer(), Upper(), Careless()])
@pytest.mark.parametrize("part", ["key", "value"])
def test_data_that_cannot_be_serialized_is_named_in_the_error(serializer: Any, part: str) -> None:
    with pytest.raises(SerializationError, match=part) as caught:
        serialize(serializer, "orders", part, 5, ())
    assert "orders" in str(caught.value)
    assert "int" in str(caught.value)
    assert type(serializer).__name__ in str(caught.value)


class Waiting:
    """Async, and looks at the context that it is given."""

    async def serialize(self, topic: str, data: object, headers: list[Header]) -> bytes:
        return f"{topic} {data} {len(headers)}".encode()


class Disguised:
    def serialize(self, topic: str, data: object, headers: list[Header]) -> Any:
        return Waiting().serialize(topic, data, headers)


async def ask(value: object) -> bytes:
    return f"asked {value}".encode()


class Callable:
    async def __call__(self, value: object) -> bytes:
        return await ask(value)


def test_a_function_of_the_value_alone_is_a_serializer() -> None:
    serializer = as_serializer("value_serializer", lambda value: json.dumps(value).encode())
    assert not is_async(serializer)
    assert serialize(serializer, "t", "value", [1], ())[0] == b"[1]"
    assert serialize(as_serializer("value_serializer", bytes), "t", "value", [1], ())[0] == b"\1"


@pytest.mark.parametrize("function", [ask, functools.partial(ask), Callable()])
async def test_an_async_function_of_the_value_alone_is_a_serializer(function: object) -> None:
    serializer = as_serializer("value_serializer", function)
    assert is_async(serializer)
    assert (await serialize_async(serializer, "t", "value", 5, ()))[0] == b"asked 5"


def test_a_function_is_called_by_its_name() -> None:
    with pytest.raises(SerializationError, match="dumps must return bytes, got str"):
        serialize(as_serializer("value_serializer", json.dumps), "t", "value", [1], ())
    with pytest.raises(SerializationError, match="cannot be serialized by dumps: Object of type complex"):
        serialize(as_serializer("value_serializer", json.dumps), "t", "value", 1j, ())


def test_a_serializer_stays_itself() -> None:
    serializer = Upper()
    assert as_serializer("value_serializer", serializer) is serializer


BUILT_IN: list[tuple[AnySerializer, object, bytes]] = [
    (StrSerializer(), "é", b"\xc3\xa9"),
    (StrSerializer("latin-1"), "é", b"\xe9"),
    (JsonSerializer(), {"b": [1, None, "é"], "a": 0.5}, '{"b":[1,null,"é"],"a":0.5}'.encode()),
    (JsonSerializer(sort_keys=True), {"b": 1, "a": 2}, b'{"a":2,"b":1}'),
    (JsonSerializer(default=str), [1j], b'["1j"]'),
    (IntSerializer(), -2, b"\xff\xff\xff\xff\xff\xff\xff\xfe"),
    (IntSerializer(4), 258, b"\0\0\1\2"),
    (IntSerializer(1), 127, b"\x7f"),
]


@pytest.mark.parametrize("serializer, data, expected", BUILT_IN)
def test_built_in_serializers_write_the_expected_bytes(
    serializer: AnySerializer, data: object, expected: bytes
) -> None:
    assert serialize(serializer, "t", "value", data, ())[0] == expected


@pytest.mark.parametrize(
    "serializer, data",
    [
        (StrSerializer(), b"bytes"),
        (StrSerializer("ascii"), "é"),
        (JsonSerializer(), {1, 2}),
        (JsonSerializer(), float("nan")),
        (IntSerializer(), "1"),
        (IntSerializer(), True),
        (IntSerializer(2), 2**15),
    ],
)
def test_built_in_serializers_refuse_other_types_and_name_the_right_one(
    serializer: AnySerializer, data: object
) -> None:
    with pytest.raises(SerializationError, match=rf"value.*'t'.*{type(data).__name__}.*{type(serializer).__name__}"):
        serialize(serializer, "t", "value", data, ())


@pytest.mark.parametrize("make", [lambda: StrSerializer("utf-9"), lambda: IntSerializer(3)])
def test_built_in_serializers_refuse_wrong_settings(make: Any) -> None:
    with pytest.raises(ConfigurationError):
        make()


async def test_an_async_serializer_is_awaited_and_one_that_is_not_is_called() -> None:
    headers = (Header("a", None),)
    assert (await serialize_async(Waiting(), "t", "key", 5, headers))[0] == b"t 5 1"
    assert (await serialize_async(IntSerializer(1), "t", "key", 5, headers))[0] == b"\5"
    with pytest.raises(SerializationError, match="text"):
        await serialize_async(StrSerializer(), "text", "key", 5, ())


def test_a_serializer_is_async_if_it_is_defined_with_async() -> None:
    assert is_async(Waiting())
    assert not is_async(Disguised())
    with pytest.raises(ConfigurationError, match=r"^value_serializer must be an object with serialize\("):
        as_serializer("value_serializer", object())


def test_a_serializer_that_returns_a_coroutine_must_be_awaited() -> None:
    with pytest.raises(MustAwait):
        serialize(Disguised(), "t", "key", 5, ())


async def test_an_async_serializer_that_returns_a_coroutine_has_not_returned_bytes() -> None:
    class Twice:
        async def serialize(self, topic: str, data: object, headers: list[Header]) -> Any:
            return ask(data)

    with pytest.raises(SerializationError, match="Twice must return bytes, got coroutine for the key of a record"):
        await serialize_async(Twice(), "t", "key", 5, ())


class AddingId:
    """Writes the id of a schema into a header, as serializers of Java's client can."""

    def serialize(self, topic: str, data: object, headers: list[Header]) -> bytes:
        headers.append(Header("id", b"7"))
        return b"data"


def test_a_serializer_may_change_the_headers() -> None:
    headers = (Header("a", None),)
    assert serialize(AddingId(), "t", "value", 5, headers) == (b"data", (Header("a", None), Header("id", b"7")))
    assert headers == (Header("a", None),)


@pytest.mark.parametrize("wrong", [5, ("id", "7")])
def test_a_serializer_that_adds_a_wrong_header_fails_its_record(wrong: Any) -> None:
    class Wrong:
        def serialize(self, topic: str, data: object, headers: list[Any]) -> bytes:
            headers.append(wrong)
            return b"data"

    with pytest.raises(SerializationError, match=r"header.* of a record for topic 't'"):
        serialize(Wrong(), "t", "value", 5, ())


def test_a_serializer_that_raises_cancelled_error_fails_its_record_only() -> None:
    def ask_a_cancelled_future(_: object) -> bytes:
        raise asyncio.CancelledError

    with pytest.raises(SerializationError, match="value of a record for topic 't' is of type int"):
        serialize(as_serializer("value_serializer", ask_a_cancelled_future), "t", "value", 5, ())


def test_headers_are_pairs_or_a_mapping() -> None:
    expected = (Header("a", b"1"), Header("b", None))
    assert headers_of("t", [("a", b"1"), ("b", None)]) == expected
    assert headers_of("t", {"a": b"1", "b": None}) == expected
    assert headers_of("t", iter(expected)) == expected
    assert headers_of("t", ()) == ()


@pytest.mark.parametrize(
    ("headers", "got"),
    [
        ("abc", "str with an item of type str"),
        (("trace", b"1"), "tuple with an item of type str"),
        (["trace"], "list with an item of type str"),
        ([("trace",)], "list with an item of type tuple"),
        (b"abc", "bytes with an item of type int"),
    ],
)
def test_headers_that_are_no_pairs_are_refused_with_the_right_form(headers: Any, got: str) -> None:
    with pytest.raises(SerializationError, match=rf"'t' must be .* as in \[\('trace', b'1'\)\], got {got}$"):
        headers_of("t", headers)


def test_an_iterator_of_headers_that_raises_fails_its_record() -> None:
    def headers() -> Any:
        yield ("a", b"1")
        raise RuntimeError("no more")

    with pytest.raises(SerializationError, match="'t' must be pairs of a name and bytes: no more"):
        headers_of("t", headers())


@pytest.mark.parametrize("headers", [[("a", "text")], [(1, b"")], [("a",)], [5], 5, "ab", [("a", b"", b"")]])
def test_headers_of_the_wrong_shape_name_the_topic(headers: Any) -> None:
    with pytest.raises(SerializationError, match="orders"):
        headers_of("orders", headers)
