"""Compile a message class and a version into an encoder and a decoder without loops over fields.

This module owns the wire format: byte order, compact and wide lengths, nulls, tagged fields. It has no code for single
messages. The rules:

1. Encoding raises only ``ValueError``, which names ``Message.field`` and the version, and leaves the buffer unchanged.
2. Decoding raises only ``ProtocolError``, whatever the bytes are.
3. Before memory is allocated, the remaining bytes are compared with a length, or with the smallest size of an array of
   this count. So the memory of a message is proportional to the size of its frame.
4. A decoded message has every slot set, with new objects, so it can be encoded in any version that has its values.
5. The codec ignores bytes after a message: ``decode_message`` returns the message's end. ``decode_versioned``
   needs that, because newer versions of the consumer protocol append fields.

``encoders`` and ``decoders`` generate the source. It is in ``linecache``, so a traceback or a debugger shows the
generated line that failed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from ..errors import ProtocolError
from .decoders import get_fields, get_struct
from .encoders import put_struct
from .generated_source import Source, has_records
from .schema import Message
from .wire import decode_error

Buffer: TypeAlias = bytes | bytearray | memoryview
Encoder: TypeAlias = Callable[[Any, bytearray], None]
Decoder: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]
M = TypeVar("M", bound=Message)


def encode_message(message: Message, version: int, out: bytearray) -> None:
    """Append ``message`` in ``version`` to ``out``.

    Raises ``ValueError`` with the field and the version if the version cannot carry a value:

    - null is not allowed
    - a number or a length does not fit
    - the type is wrong
    - the version lacks a field that must not be ignored.
    """
    start = len(out)
    try:
        cls = type(message)
        encode = _encoders.get((cls, version)) or encoder(cls, version)  # hot: mostly without the call
        encode(message, out)
    except (ValueError, TypeError, AttributeError, OverflowError, struct.error) as error:
        del out[start:]
        from .encode_errors import describe_encode_error

        label = type(message).__name__
        wrong = ValueError(describe_encode_error(message, version) or f"{label} v{version}: {error}")
        wrong.__cause__ = error  # compiled code ignores the "from" of a raise
        raise wrong from error


def decode_message(cls: type[M], version: int, data: Buffer, position: int = 0) -> tuple[M, int]:
    """Decode a ``cls`` in ``version`` from ``data`` at ``position``; return it and the position after it.

    Record sets are memoryviews into ``data``, which must not change while the message is used. Every other field is a
    copy. Raises ``ProtocolError`` for bytes that are not such a message.
    """
    try:
        decode = _decoders.get((cls, version)) or decoder(cls, version)  # hot: mostly without the call
        message, end = decode(data, position)
    # The generated code checks lengths, not each number: a read behind the end of ``data`` raises one of these.
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        damaged = decode_error(cls.__name__, version, len(data), error)
        damaged.__cause__ = None  # hides the error: compiled code ignores the "from" of a raise
        raise damaged from None
    return message, end


def encode_versioned(message: Message, version: int) -> bytes:
    """Encode a message that is a field of another message. The encoding begins with the version, as an int16."""
    out = bytearray(struct.pack(">h", version))
    encode_message(message, version, out)
    return bytes(out)


def decode_versioned(cls: type[M], data: Buffer) -> tuple[M, int]:
    """Decode a message that has its version in front; return it and the sender's version.

    A version that is newer than all versions here is decoded as the newest version here. The remaining bytes are
    ignored, because new versions only append fields.
    """
    if len(data) < 2:
        raise ProtocolError(f"{cls.__name__}: {len(data)} bytes cannot hold its version")
    (version,) = struct.unpack_from(">h", data)
    if version < cls.versions.first:
        raise ProtocolError(f"{cls.__name__}: version {version} does not exist")
    message, _ = decode_message(cls, min(version, cls.versions.last), data, 2)
    return message, version


_encoders: dict[tuple[type[Any], int], Encoder] = {}
_decoders: dict[tuple[type[Any], int], Decoder] = {}
_part_decoders: dict[tuple[type[Any], int, str], PartDecoders] = {}


def encoder(cls: type[Any], version: int) -> Encoder:
    """Return the compiled encoder: ``encode(message, out)``. It raises Python's own errors for wrong values."""
    compiled = _encoders.get((cls, version))
    if compiled is None:
        compiled = _encoders[cls, version] = _compile_encoder(cls, version)
    return compiled


def decoder(cls: type[Any], version: int) -> Decoder:
    """Return the compiled decoder: ``decode(data, position) -> (message, end)``. Raises IndexError if cut off."""
    compiled = _decoders.get((cls, version))
    if compiled is None:
        compiled = _decoders[cls, version] = _compile_decoder(cls, version)
    return compiled


def _compile_encoder(cls: type[Any], version: int) -> Encoder:
    _check_version(cls, version)
    source = Source("def encode(m, out):", cls, version)
    put_struct(source, cls, "m")
    return cast(Encoder, source.build("encode"))


def _compile_decoder(cls: type[Any], version: int) -> Decoder:
    _check_version(cls, version)
    source = Source("def decode(data, pos):", cls, version)
    if has_records(cls):
        source("view = memoryview(data)")
    else:  # after one copy of a small frame, all slices of it are cheaper
        source("if type(data) is not bytes: data = bytes(data)")
    source("size = len(data)")
    get_struct(source, cls, "m")
    source("return m, pos")
    return cast(Decoder, source.build("decode"))


class PartDecoders(NamedTuple):
    """The decoders of a message whose longest array is decoded in parts. They raise errors like a ``Decoder``.

    ``head`` decodes the fields before the array. It returns the message with an empty array, the count of the array,
    and the position of its first element. ``element`` decodes one element. ``tail`` decodes the other fields into the
    message, and returns the position after it. ``data`` must be bytes.
    """

    head: Callable[[bytes, int], tuple[Any, int, int]]
    element: Decoder
    tail: Callable[[Any, bytes, int], int]


def part_decoders(cls: type[Any], version: int, array: str) -> PartDecoders:
    """Return the compiled decoders of a message without tagged fields; ``array`` is its array of structs."""
    compiled = _part_decoders.get((cls, version, array))
    if compiled is None:
        compiled = _part_decoders[cls, version, array] = _compile_parts(cls, version, array)
    return compiled


def _compile_parts(cls: type[Any], version: int, array: str) -> PartDecoders:
    _check_version(cls, version)
    names = list(cls.specs)
    after = names.index(array) + 1
    head = Source("def head(data, pos):", cls, version, stops_at=f"{cls.__name__}.{array}")
    head("size = len(data)")
    head(f"m = {head.bind('new', cls.__new__)}({head.bind('cls', cls)})")
    get_fields(head, cls, "m", names[:after], is_end=False)
    element = Source("def element(data, pos):", cls, version)
    element("size = len(data)")
    get_struct(element, cls.specs[array].item, "m")
    element("return m, pos")
    tail = Source("def tail(m, data, pos):", cls, version)
    tail("size = len(data)")
    get_fields(tail, cls, "m", names[after:])
    tail("return pos")
    return PartDecoders(head.build("head"), element.build("element"), tail.build("tail"))


def _check_version(cls: type[Any], version: int) -> None:
    if version not in cls.versions:
        raise ValueError(f"{cls.__name__} has versions {cls.versions.first} to {cls.versions.last}, not {version}")
