"""Serializers convert the keys and values of a user to bytes."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Never, Protocol, TypeAlias, TypeVar, cast

from ..aio.callbacks import RAISED
from ..arguments import check_function, check_methods, for_part, must_be
from ..errors import ConfigurationError, KafkaTimeout, SerializationError
from ..types import Header
from .headers import headers_of

T_contra = TypeVar("T_contra", contravariant=True)


class Serializer(Protocol[T_contra]):
    """Converts a key or a value to bytes. It is not called for None, which is written as null.

    ``headers`` is a list with the headers of the record. The serializer may change it, and the record is written with
    the changes: ``headers.append(Header("schema-id", b"7"))``. The key is serialized before the value. The send raises
    any exception as the cause of a SerializationError. Runs in the event loop, so it must not block.

    ``serialize`` may return an awaitable of the bytes, for example until it knows a schema; it is then called again for
    the same record. ``send_nowait`` cannot wait and raises. An optional method ``for_part(part)`` is called once with
    ``"key"`` or ``"value"``, and returns the serializer for this part.
    """

    def serialize(self, topic: str, data: T_contra, headers: list[Header]) -> bytes | Awaitable[bytes]:
        """Return the bytes to write."""
        ...


class AsyncSerializer(Protocol[T_contra]):
    """A serializer with an ``async def``, for example because it asks a schema registry.

    Calls overlap: it may be called again before an earlier call has returned.
    """

    async def serialize(self, topic: str, data: T_contra, headers: list[Header]) -> bytes: ...


AnySerializer = Serializer[object] | AsyncSerializer[object]
GivenSerializer: TypeAlias = (
    Serializer[T_contra] | AsyncSerializer[T_contra] | Callable[[T_contra], bytes | Awaitable[bytes]]
)
"""Arguments that are accepted as a serializer: an object for some type of data, or a function of the data alone."""


class SerializedBytes(bytes):
    """Bytes that a producer writes as they are, whatever its serializers: a record that is sent on."""

    __slots__ = ()


class FunctionSerializer:
    """A serializer made of a function of the data alone, such as ``lambda value: json.dumps(value).encode()``."""

    def __init__(self, function: Callable[[object], bytes]) -> None:
        self._function = function

    def __repr__(self) -> str:
        return getattr(self._function, "__qualname__", repr(self._function))

    def serialize(self, topic: str, data: object, headers: list[Header]) -> bytes:
        return self._function(data)


class AsyncFunctionSerializer:
    """A serializer made of an ``async def`` of the data alone."""

    def __init__(self, function: Callable[[object], Awaitable[bytes]]) -> None:
        self._function = function

    def __repr__(self) -> str:
        return getattr(self._function, "__qualname__", repr(self._function))

    async def serialize(self, topic: str, data: object, headers: list[Header]) -> bytes:
        return await self._function(data)


class BytesSerializer:
    """Accepts bytes, which it does not change, and str, which it encodes as UTF-8. It is the default of a producer."""

    def serialize(self, topic: str, data: object, headers: list[Header]) -> bytes:
        if isinstance(data, str):
            return data.encode()
        if isinstance(data, bytes | bytearray | memoryview):
            # The result is a copy, because the caller may change its buffer after the call.
            return bytes(data)
        raise TypeError("the type must be bytes or str; pass a serializer, such as JsonSerializer(), for other types")


class StrSerializer:
    """Accepts str only. Raises ConfigurationError for an unknown ``encoding``."""

    def __init__(self, encoding: str = "utf-8") -> None:
        try:
            "".encode(encoding)
        except (LookupError, TypeError):
            raise ConfigurationError(must_be("encoding", "an encoding that Python knows", encoding)) from None
        self._encoding = encoding

    def serialize(self, topic: str, data: str, headers: list[Header]) -> bytes:
        _check_type(data, str)
        return data.encode(self._encoding)


class JsonSerializer:
    """Accepts the types that ``json.dumps`` accepts, and writes compact JSON in UTF-8.

    ``default`` converts other objects, as in ``json.dumps``. With ``sort_keys`` equal dicts become equal bytes, which
    keys of records need. NaN and infinity are refused, because they are not JSON.
    """

    def __init__(self, *, default: Callable[[object], object] | None = None, sort_keys: bool = False) -> None:
        if default is not None:
            check_function("default", default)
        self._encoder = json.JSONEncoder(
            default=default, sort_keys=sort_keys, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )

    def serialize(self, topic: str, data: object, headers: list[Header]) -> bytes:
        return self._encoder.encode(data).encode()


class IntSerializer:
    """Accepts int, and writes it in ``size`` bytes as big-endian two's complement.

    With 2, 4 and 8 bytes it is compatible with Java's serializers for Short, Integer and Long. Raises
    ConfigurationError unless ``size`` is 1, 2, 4 or 8.
    """

    def __init__(self, size: int = 8) -> None:
        if size not in (1, 2, 4, 8):
            raise ConfigurationError(must_be("size", "1, 2, 4 or 8 bytes", size))
        self._size = size

    def serialize(self, topic: str, data: int, headers: list[Header]) -> bytes:
        _check_type(data, int)
        return data.to_bytes(self._size, "big", signed=True)


def _check_type(data: object, kind: type) -> None:
    """Raise TypeError for any other type, and for a bool instead of an int."""
    if not isinstance(data, kind) or isinstance(data, bool):
        raise TypeError(f"the type must be {kind.__name__}")


def as_serializer(name: str, serializer: object) -> AnySerializer:
    """Return the serializer for the setting ``name``: a serializer itself, or a function of the key or value alone.

    Raises ConfigurationError for any other object.
    """
    if callable(getattr(serializer, "serialize", None)):
        check_methods(name, serializer, "serialize")
        return cast(AnySerializer, for_part(name, serializer))
    if not callable(serializer):
        what = "an object with serialize(topic, data, headers), or a function that returns bytes"
        raise ConfigurationError(must_be(name, what, serializer))
    if inspect.iscoroutinefunction(serializer) or inspect.iscoroutinefunction(getattr(serializer, "__call__", None)):  # noqa: B004
        return AsyncFunctionSerializer(serializer)
    return FunctionSerializer(serializer)


def is_async(serializer: AnySerializer) -> bool:
    """Return whether the results of the serializer have to be awaited."""
    return inspect.iscoroutinefunction(serializer.serialize)


class Serialization:
    """The serializers of a producer. ``plain_keys``, ``plain_values``: without a serializer, bytes stay unchanged."""

    __slots__ = ("is_async", "key", "plain_keys", "plain_values", "value")

    def __init__(self, key: GivenSerializer[Never] | None, value: GivenSerializer[Never] | None) -> None:
        self.key: AnySerializer | BytesSerializer = (
            BytesSerializer() if key is None else as_serializer("key_serializer", key)
        )
        self.value: AnySerializer | BytesSerializer = (
            BytesSerializer() if value is None else as_serializer("value_serializer", value)
        )
        self.plain_keys: bool = key is None
        self.plain_values: bool = value is None
        self.is_async: bool = is_async(self.key) or is_async(self.value)


Serialized: TypeAlias = tuple[bytes, tuple[Header, ...]]
"""A serialized key or value, and the headers of the record, which the serializer may have changed."""


class MustAwait(Exception):
    """A serializer that is not ``async def`` returned an awaitable for a record."""


# Hot: runs for each key and value that is not bytes.
def serialize(
    serializer: AnySerializer, topic: str, part: str, data: object, headers: tuple[Header, ...]
) -> Serialized:
    """Call a serializer that is not async. ``part`` is "key" or "value", for the text of an error. Raises MustAwait."""
    if type(data) is SerializedBytes:
        return bytes(data), headers
    changeable = list(headers)
    try:
        result = serializer.serialize(topic, data, changeable)
    except RAISED as error:
        raise _not_serialized(serializer, topic, part, data, error) from error
    if type(result) is bytes:
        serialized = result
    elif isinstance(result, Awaitable):
        # The caller calls the serializer again for this record, and awaits that result.
        _drop(result)
        raise MustAwait
    else:
        serialized = _checked(serializer, topic, part, data, result)
    is_changed = tuple(changeable) != headers
    return serialized, headers_of(topic, changeable) if is_changed else headers


async def serialize_async(
    serializer: AnySerializer, topic: str, part: str, data: object, headers: tuple[Header, ...]
) -> Serialized:
    """Call a serializer that may be async."""
    if type(data) is SerializedBytes:
        return bytes(data), headers
    changeable = list(headers)
    try:
        result = serializer.serialize(topic, data, changeable)
        if isinstance(result, Awaitable):
            result = await result
    except KafkaTimeout:
        raise  # a server that does not answer is not an error of the record
    except Exception as error:
        raise _not_serialized(serializer, topic, part, data, error) from error
    return _checked(serializer, topic, part, data, result), headers_of(topic, changeable)


def _not_serialized(
    serializer: AnySerializer, topic: str, part: str, data: object, error: BaseException
) -> SerializationError:
    return SerializationError(
        f"the {part} of a record for topic {topic!r} is of type {type(data).__name__} and cannot be serialized"
        f" by {_name_of(serializer)}: {error}"
    )


def _name_of(serializer: AnySerializer) -> str:
    if isinstance(serializer, FunctionSerializer | AsyncFunctionSerializer):
        return repr(serializer)
    return type(serializer).__name__


def _checked(serializer: AnySerializer, topic: str, part: str, data: object, result: object) -> bytes:
    if type(result) is bytes:
        return result
    if isinstance(result, bytes):
        return bytes(result)  # the producer takes exactly bytes for serialized data
    _drop(result)
    raise SerializationError(
        f"{_name_of(serializer)} must return bytes, got {type(result).__name__} for the {part} of a record"
        f" for topic {topic!r}, which is of type {type(data).__name__}"
    )


def _drop(result: object) -> None:
    """Close an awaitable that is never awaited."""
    if isinstance(result, Coroutine):
        result.close()
    elif isinstance(result, asyncio.Future):
        result.cancel()
