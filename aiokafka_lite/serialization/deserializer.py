"""From bytes to the user's keys and values: the counterpart of the producer's serializers."""

from __future__ import annotations

import codecs
import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar, cast

from ..arguments import check_methods, for_part, must_be
from ..errors import (
    ConfigurationError,
    DeserializationError,
    KafkaError,
    SchemaRegistryError,
    SerializationError,
)
from ..types import Header, Record, ShareRecord

T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R", Record[Any, Any], ShareRecord[Any, Any])


class Deserializer(Protocol[T_co]):
    """Turns the bytes of a key or a value into an object. It is not called for a null, which stays None.

    ``deserialize`` may be an ``async def``, or return an awaitable, for example until it knows a schema; then it may be
    cancelled. It is called for one record after the other, up to 100 records ahead of the reader. It is called again
    for a record that was not returned. If it raises, the record cannot be deserialized; see
    ``on_deserialization_error`` of ``Consumer``. An optional method ``for_part(part)`` is called once with ``"key"`` or
    ``"value"``, and returns the deserializer for this part.
    """

    def deserialize(self, topic: str, data: bytes, headers: tuple[Header, ...]) -> T_co | Awaitable[T_co]:
        """Convert the key or value of a record with these headers."""
        ...


class FunctionDeserializer:
    """A deserializer that calls a function of the bytes alone, such as ``json.loads``."""

    def __init__(self, function: Callable[[bytes], object]) -> None:
        self._function = function

    def deserialize(self, topic: str, data: bytes, headers: tuple[Header, ...]) -> object:
        return self._function(data)


class AsyncFunctionDeserializer:
    """A deserializer that calls an async function of the bytes alone."""

    def __init__(self, function: Callable[[bytes], Awaitable[object]]) -> None:
        self._function = function

    async def deserialize(self, topic: str, data: bytes, headers: tuple[Header, ...]) -> object:
        return await self._function(data)


class StrDeserializer:
    """Returns text."""

    def __init__(self, encoding: str = "utf-8") -> None:
        try:
            codecs.lookup(encoding)
        except (LookupError, TypeError):
            raise ConfigurationError(must_be("encoding", "a text encoding of Python", encoding)) from None
        self._encoding = encoding

    def deserialize(self, topic: str, data: bytes, headers: tuple[Header, ...]) -> str:
        return data.decode(self._encoding)


class JsonDeserializer:
    """Returns JSON in UTF-8 as Python objects. Refuses NaN and infinity, which are not JSON."""

    def __init__(self) -> None:
        # json.loads would create a decoder for each call.
        self._decode = json.JSONDecoder(parse_constant=_refuse_constant).decode

    def deserialize(self, topic: str, data: bytes, headers: tuple[Header, ...]) -> Any:
        return self._decode(data.decode())


class IntDeserializer:
    """Returns an int of ``size`` bytes, big-endian two's complement. Sizes 2, 4, 8 are Java's Short, Integer, Long."""

    def __init__(self, size: int = 8) -> None:
        if size not in (1, 2, 4, 8):
            raise ConfigurationError(must_be("size", "1, 2, 4 or 8 bytes", size))
        self._size = size

    def deserialize(self, topic: str, data: bytes, headers: tuple[Header, ...]) -> int:
        if len(data) != self._size:
            raise ValueError(f"an integer of {self._size} bytes is needed, got {len(data)} bytes")
        return int.from_bytes(data, "big", signed=True)


def as_deserializer(name: str, deserializer: object) -> Deserializer[object]:
    """Return the deserializer for the setting ``name``: an object with ``deserialize``, or a function of bytes.

    Raises ConfigurationError for anything else.
    """
    if callable(getattr(deserializer, "deserialize", None)):
        check_methods(name, deserializer, "deserialize")
        return cast("Deserializer[object]", for_part(name, deserializer))
    if not callable(deserializer):
        what = "an object with deserialize(topic, data, headers), or a function of bytes"
        raise ConfigurationError(must_be(name, what, deserializer))
    call = getattr(deserializer, "__call__", None)  # noqa: B004 - an object may have an async __call__
    if inspect.iscoroutinefunction(deserializer) or inspect.iscoroutinefunction(call):
        return AsyncFunctionDeserializer(deserializer)
    return FunctionDeserializer(deserializer)


def is_async(deserializer: Deserializer[object]) -> bool:
    """Return whether each result must be awaited. An awaitable of a plain function is detected later."""
    return inspect.iscoroutinefunction(deserializer.deserialize)


def concerns_record(error: BaseException) -> bool:
    """Return whether the record is the cause of an exception, so that it may be skipped or rejected.

    It is not if a schema registry does not answer, refuses the credentials or is closed.
    """
    if isinstance(error, SchemaRegistryError):
        return 40400 <= error.code < 40500  # the registry has no such schema; a 404 of another server has code 404
    return not isinstance(error, KafkaError) or isinstance(error, ConfigurationError | SerializationError)


class RecordDeserializing:
    """Runs the deserializers of one consumer on whole records. Many readers may share it: it keeps no records."""

    ADVICE = ""
    """The end of an error's text, in which ``{next}`` is the offset after the record."""

    def __init__(self, key: object, value: object) -> None:
        self._key = None if key is None else as_deserializer("key_deserializer", key)
        self._value = None if value is None else as_deserializer("value_deserializer", value)
        self._is_always_async = any(part is not None and is_async(part) for part in (self._key, self._value))
        self.is_async: bool = self._is_always_async
        """Whether results must be awaited. Also set while a plain function returns awaitables, for example until it has
        a schema."""

    async def _deserialize(self, raw: R) -> R:
        key: object = raw.key
        value: object = raw.value
        part = "key"
        try:
            if raw.key is not None and self._key is not None:
                key = self._key.deserialize(raw.topic, raw.key, raw.headers)
                if isinstance(key, Awaitable):
                    self.is_async = True
                    key = await key
            part = "value"
            if raw.value is not None and self._value is not None:
                value = self._value.deserialize(raw.topic, raw.value, raw.headers)
                if isinstance(value, Awaitable):
                    self.is_async = True
                    value = await value
        except Exception as error:  # a user's deserializer may raise anything
            raise DeserializationError(
                f"the {part} of {raw.topic}-{raw.partition} at offset {raw.offset} cannot be deserialized: {error!r}; "
                + self.ADVICE.format(next=raw.offset + 1),
                topic=raw.topic,
                partition=raw.partition,
                offset=raw.offset,
            ) from error
        return raw._replace(key=key, value=value)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
