"""Functions for the generated code of ``codec``: unsigned varints, and the errors of bytes that are not a message."""

from __future__ import annotations

from typing import NoReturn

from ..errors import ProtocolError
from .schema import LONGEST_STRING


class UndecodableResponse(ProtocolError):
    """A part of a response cannot be decoded. The connection that it came from must be closed."""


def put_uvarint(out: bytearray, number: int) -> None:
    """Append an unsigned varint."""
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def get_uvarint(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits; return it and the position after it."""
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise ProtocolError("a varint is longer than five bytes")
    if number > 0xFFFFFFFF:
        raise ProtocolError(f"the varint {number} does not fit 32 bits")
    return number, position


def decode_error(name: str, version: int, size: int, error: Exception) -> ProtocolError:
    """Convert the IndexError, struct.error or UnicodeDecodeError of a decoder for ``size`` bytes."""
    if isinstance(error, UnicodeDecodeError):
        return ProtocolError(f"{name} v{version}: a string is not UTF-8 ({error.reason})")
    return ProtocolError(f"{name} v{version}: {size} bytes end in the middle of the message")


def refuse(where: str, need: int, bytes_left: int) -> NoReturn:
    if need < 0:
        raise ProtocolError(f"{where} has a negative length: {need}")
    raise ProtocolError(f"{where} claims {need} bytes, but {bytes_left} remain")


def refuse_null(where: str) -> NoReturn:
    raise ProtocolError(f"{where} is null, but this version does not allow null")


def refuse_long_string(where: str, length: int) -> NoReturn:
    raise ProtocolError(f"{where} is a string of {length} bytes; at most {LONGEST_STRING} are allowed")


def refuse_count(where: str, count: int, most: int) -> NoReturn:
    raise ProtocolError(f"{where} claims {count} elements; at most {most} are accepted")


def refuse_tag(where: str, tag: int, read: int, size: int) -> NoReturn:
    raise ProtocolError(f"tag {tag} ({where}) has {size} bytes, but its value has {read}")


def refuse_flag(where: str, flag: int) -> NoReturn:
    raise ProtocolError(f"{where} must begin with -1 (null) or 1, got {flag}")


def lacks_field(where: str, versions: str) -> NoReturn:
    raise ValueError(f"{where} exists in versions {versions} only")


def wrong_length(what: str) -> NoReturn:
    raise ValueError(what)
