"""From the user's keys, values and headers to bytes."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Never, Protocol, TypeVar, cast

from ..config import check_methods
from ..errors import ConfigurationError, SerializationError
from ..types import Header

Headers = Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None]
"""What a call takes as headers: pairs of a name and bytes (or None), or a mapping when no name occurs twice."""

T_contra = TypeVar("T_contra", contravariant=True)

_NO_HEADERS: tuple[Header, ...] = ()


class Serializer(Protocol[T_contra]):
    """Turns a key or a value into bytes; None stays null and is not passed.

    ``headers`` are those of the record. An exception of any kind comes out of the send as `SerializationError`, with
    the original as its cause. Called in the loop, so it must not block.
    """

    def serialize(self, topic: str, data: T_contra, headers: tuple[Header, ...]) -> bytes:
        """The bytes to write."""
        ...


class AsyncSerializer(Protocol[T_contra]):
    """A serializer that waits for something, such as a registry of schemas: the same, as ``async def``.

    Calls overlap, so it may be called again before an earlier call is over.
    """

    async def serialize(self, topic: str, data: T_contra, headers: tuple[Header, ...]) -> bytes:
        """The bytes to write."""
        ...


AnySerializer = Serializer[object] | AsyncSerializer[object]
GivenSerializer = (
    Serializer[Never] | AsyncSerializer[Never] | Callable[[Never], bytes] | Callable[[Never], Awaitable[bytes]]
)
"""What may be given as a serializer: one for some types of data, or a function of the key or value alone."""


class FunctionSerializer:
    """A function of the key or value alone, such as ``lambda value: json.dumps(value).encode()``, as a serializer."""

    def __init__(self, function: Callable[[object], bytes]) -> None:
        self._function = function

    def __repr__(self) -> str:
        return getattr(self._function, "__qualname__", repr(self._function))

    def serialize(self, topic: str, data: object, headers: tuple[Header, ...]) -> bytes:
        return self._function(data)


class AsyncFunctionSerializer:
    """The same for an ``async def``."""

    def __init__(self, function: Callable[[object], Awaitable[bytes]]) -> None:
        self._function = function

    def __repr__(self) -> str:
        return getattr(self._function, "__qualname__", repr(self._function))

    async def serialize(self, topic: str, data: object, headers: tuple[Header, ...]) -> bytes:
        return await self._function(data)


class BytesSerializer:
    """Takes bytes as they are, and str as UTF-8: what a producer does unless told otherwise."""

    def serialize(self, topic: str, data: object, headers: tuple[Header, ...]) -> bytes:
        if isinstance(data, str):
            return data.encode()
        if isinstance(data, bytes | bytearray | memoryview):
            # A copy: the caller is free to write into its buffer as soon as the call is over.
            return bytes(data)
        raise TypeError("bytes or str are needed")


class StrSerializer:
    """Takes text and nothing else."""

    def __init__(self, encoding: str = "utf-8") -> None:
        try:
            "".encode(encoding)
        except LookupError:
            raise ConfigurationError(f"encoding={encoding!r}: Python knows no such encoding") from None
        self._encoding = encoding

    def serialize(self, topic: str, data: object, headers: tuple[Header, ...]) -> bytes:
        if not isinstance(data, str):
            raise TypeError("str is needed")
        return data.encode(self._encoding)


class JsonSerializer:
    """Takes what ``json.dumps`` takes, and writes it without blanks as UTF-8.

    ``default`` turns other objects into such, as in ``json.dumps``. With ``sort_keys`` equal dicts become equal bytes,
    which keys of records need. NaN and infinity, which are not JSON, are refused.
    """

    def __init__(self, *, default: Callable[[object], object] | None = None, sort_keys: bool = False) -> None:
        self._encoder = json.JSONEncoder(
            default=default, sort_keys=sort_keys, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )

    def serialize(self, topic: str, data: object, headers: tuple[Header, ...]) -> bytes:
        return self._encoder.encode(data).encode()


class IntSerializer:
    """Takes an int and writes it in ``size`` bytes, big-endian two's complement.

    With 2, 4 and 8 bytes that is what Java's serializers for Short, Integer and Long write.
    """

    def __init__(self, size: int = 8) -> None:
        if size not in (1, 2, 4, 8):
            raise ConfigurationError(f"size={size!r}: 1, 2, 4 or 8 bytes")
        self._size = size

    def serialize(self, topic: str, data: object, headers: tuple[Header, ...]) -> bytes:
        if not isinstance(data, int) or isinstance(data, bool):
            raise TypeError("int is needed")
        return data.to_bytes(self._size, "big", signed=True)


def as_serializer(name: str, given: object) -> AnySerializer:
    """The serializer that a setting of that name stands for: one, or a function of the key or value alone.

    Raises ConfigurationError for anything else.
    """
    if callable(getattr(given, "serialize", None)):
        check_methods(name, given, "serialize")
        return cast(AnySerializer, given)
    if not callable(given):
        raise ConfigurationError(
            f"{name}={given!r}: an object with serialize(topic, data, headers), or a function that makes bytes of a "
            "key or value, is needed"
        )
    if inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(getattr(given, "__call__", None)):  # noqa: B004
        return AsyncFunctionSerializer(given)
    return FunctionSerializer(given)


def is_async(serializer: AnySerializer) -> bool:
    """Whether its results have to be awaited."""
    return inspect.iscoroutinefunction(serializer.serialize)


class Serialization:
    """The serializers of a producer. ``plain_keys`` and ``plain_values``: none was given, so bytes are taken as is."""

    __slots__ = ("is_async", "key", "plain_keys", "plain_values", "value")

    def __init__(self, key: GivenSerializer | None, value: GivenSerializer | None) -> None:
        self.key = BytesSerializer() if key is None else as_serializer("key_serializer", key)
        self.value = BytesSerializer() if value is None else as_serializer("value_serializer", value)
        self.plain_keys = key is None
        self.plain_values = value is None
        self.is_async = is_async(self.key) or is_async(self.value)


def serialize(serializer: AnySerializer, topic: str, part: str, data: object, headers: tuple[Header, ...]) -> bytes:
    """Run a serializer that is not async; ``part`` ("key" or "value") is for the error's text."""
    try:
        result = serializer.serialize(topic, data, headers)
    except Exception as error:  # a user's serializer may raise anything, and the caller is told all of it
        raise _not_serialized(serializer, topic, part, data, error) from error
    return _checked(serializer, topic, part, data, result)


async def serialize_async(
    serializer: AnySerializer, topic: str, part: str, data: object, headers: tuple[Header, ...]
) -> bytes:
    """The same for one that may be async."""
    try:
        result = serializer.serialize(topic, data, headers)
        if isinstance(result, Awaitable):
            result = await result
    except Exception as error:
        raise _not_serialized(serializer, topic, part, data, error) from error
    return _checked(serializer, topic, part, data, result)


def _not_serialized(
    serializer: AnySerializer, topic: str, part: str, data: object, error: Exception
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
        return bytes(result)  # a subclass would not be known for what is serialized already
    advice = ""
    if isinstance(result, Awaitable):
        advice = "; a serializer that waits is an `async def`"
        if isinstance(result, Coroutine):
            result.close()
    raise SerializationError(
        f"{_name_of(serializer)} made {type(result).__name__}, not bytes, of the {part} of a record"
        f" for topic {topic!r}, which is of type {type(data).__name__}{advice}"
    )


def headers_of(topic: str, headers: Headers) -> tuple[Header, ...]:
    """Headers as they are written; SerializationError for anything but names and bytes."""
    if not headers:
        return _NO_HEADERS
    pairs: Iterable[object] = headers.items() if isinstance(headers, Mapping) else headers
    checked: list[Header] = []
    try:
        for pair in pairs:
            name, value = cast(tuple[object, object], pair)
            if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
                raise SerializationError(
                    f"a header of a record for topic {topic!r} is ({type(name).__name__}, {type(value).__name__}):"
                    " a str and bytes or None are needed"
                )
            if not name.isascii():
                name.encode()
            checked.append(Header(name, value))
    except UnicodeEncodeError as error:
        raise SerializationError(
            f"a header of a record for topic {topic!r} has a name that is no text: {error}"
        ) from error
    except (TypeError, ValueError) as error:
        raise SerializationError(
            f"the headers of a record for topic {topic!r} are not pairs of a name and bytes: {error}"
        ) from error
    return tuple(checked)
