"""From bytes to the user's keys and values: the mirror of the producer's serializers."""

from __future__ import annotations

import codecs
import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar, cast

from ..config import check_methods
from ..errors import ConfigurationError
from ..types import Header

T_co = TypeVar("T_co", covariant=True)


class Deserializer(Protocol[T_co]):
    """Turns the bytes of a key or a value into what the user works with; a null stays None and is not passed.

    ``deserialize`` may be an ``async def``, as when it asks a registry of schemas; then it may be cancelled. It is
    called for one record after the other, somewhat ahead of the reader, and again for a record that was not handed out
    then. Whatever it raises makes the record one that cannot be deserialized; see ``Consumer``.
    """

    def deserialize(self, topic: str, data: bytes, headers: tuple[Header, ...]) -> T_co | Awaitable[T_co]:
        """The key or value of a record that has these headers."""
        ...


class FunctionDeserializer:
    """A function of the bytes alone, such as ``json.loads``, as a deserializer."""

    def __init__(self, function: Callable[[bytes], object]) -> None:
        self._function = function

    def deserialize(self, topic: str, data: bytes, headers: tuple[Header, ...]) -> object:
        return self._function(data)


class AsyncFunctionDeserializer:
    """The same for an ``async def``."""

    def __init__(self, function: Callable[[bytes], Awaitable[object]]) -> None:
        self._function = function

    async def deserialize(self, topic: str, data: bytes, headers: tuple[Header, ...]) -> object:
        return await self._function(data)


class StrDeserializer:
    """Gives text."""

    def __init__(self, encoding: str = "utf-8") -> None:
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise ConfigurationError(f"encoding={encoding!r}: Python knows no such encoding") from None
        self._encoding = encoding

    def deserialize(self, topic: str, data: bytes, headers: tuple[Header, ...]) -> str:
        return data.decode(self._encoding)


class JsonDeserializer:
    """Gives what the module ``json`` makes of UTF-8. NaN and infinity, which are not JSON, are refused."""

    def __init__(self) -> None:
        self._decode = json.JSONDecoder(parse_constant=_refuse_constant).decode  # json.loads would make one a call

    def deserialize(self, topic: str, data: bytes, headers: tuple[Header, ...]) -> object:
        return self._decode(data.decode())


class IntDeserializer:
    """Gives an int of ``size`` bytes, big-endian two's complement: with 2, 4 and 8 Java's Short, Integer and Long."""

    def __init__(self, size: int = 8) -> None:
        if size not in (1, 2, 4, 8):
            raise ConfigurationError(f"size={size!r}: 1, 2, 4 or 8 bytes")
        self._size = size

    def deserialize(self, topic: str, data: bytes, headers: tuple[Header, ...]) -> int:
        if len(data) != self._size:
            raise ValueError(f"{self._size} bytes are needed, not {len(data)}")
        return int.from_bytes(data, "big", signed=True)


def as_deserializer(name: str, given: object) -> Deserializer[object]:
    """The deserializer that a setting of that name stands for: one, or a function of the bytes alone.

    Raises ConfigurationError for anything else.
    """
    if callable(getattr(given, "deserialize", None)):
        check_methods(name, given, "deserialize")
        return cast("Deserializer[object]", given)
    if not callable(given):
        raise ConfigurationError(
            f"{name}={given!r}: an object with deserialize(topic, data, headers), or a function of bytes, is needed"
        )
    if inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(getattr(given, "__call__", None)):  # noqa: B004
        return AsyncFunctionDeserializer(given)
    return FunctionDeserializer(given)


def is_async(deserializer: Deserializer[object]) -> bool:
    """Whether its results have to be awaited."""
    return inspect.iscoroutinefunction(deserializer.deserialize)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
