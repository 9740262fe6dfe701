"""From the user's keys, values and headers to bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar, cast

from ..errors import SerializationError
from ..types import Header

Headers = Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None]
"""What a call takes as headers: pairs of a name and bytes (or None), or a mapping when no name occurs twice."""

T_contra = TypeVar("T_contra", contravariant=True)

_NO_HEADERS: tuple[Header, ...] = ()


class Serializer(Protocol[T_contra]):
    """Turns a key or a value into bytes; None stays null and is not passed.

    An exception of any kind comes out of the send as `SerializationError`, with the original as its cause.
    """

    def serialize(self, topic: str, data: T_contra) -> bytes:
        """The bytes to write."""
        ...


class BytesSerializer:
    """Takes bytes as they are, and str as UTF-8: what a producer does unless told otherwise."""

    def serialize(self, topic: str, data: object) -> bytes:
        if isinstance(data, str):
            return data.encode()
        if isinstance(data, bytes | bytearray | memoryview):
            # A copy: the caller is free to write into its buffer as soon as the call is over.
            return bytes(data)
        raise TypeError("bytes or str are needed")


def serialize(serializer: Serializer[object], topic: str, part: str, data: object) -> bytes:
    """Run a serializer; ``part`` ("key" or "value") is for the error's text."""
    try:
        result = serializer.serialize(topic, data)
    except Exception as error:  # a user's serializer may raise anything, and the caller is told all of it
        raise SerializationError(
            f"the {part} of a record for topic {topic!r} is of type {type(data).__name__} and cannot be serialized"
            f" by {type(serializer).__name__}: {error}"
        ) from error
    if not isinstance(result, bytes):
        raise SerializationError(
            f"{type(serializer).__name__} made {type(result).__name__}, not bytes, of the {part} of a record"
            f" for topic {topic!r}"
        )
    return result


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
            checked.append(Header(name, value))
    except (TypeError, ValueError) as error:
        raise SerializationError(
            f"the headers of a record for topic {topic!r} are not pairs of a name and bytes: {error}"
        ) from error
    return tuple(checked)
