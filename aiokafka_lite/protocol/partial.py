"""Decodes a large response in parts, so that its reader can let the event loop run in between."""

from __future__ import annotations

import struct
from typing import Any

from ..errors import ProtocolError
from .codec import part_decoders
from .schema import Response
from .wire import UndecodableResponse, decode_error

_ERRORS = (IndexError, struct.error, UnicodeDecodeError, ProtocolError)


class PartialResponse(Response):
    """A response whose longest array is decoded element by element.

    ``message`` has the fields before the array at once, and the fields after it when ``end`` was called. ``position``
    is the place of the next element in ``data``, and ``remaining`` the number of remaining elements. The constructor,
    ``begin``, ``decode`` and ``end`` raise UndecodableResponse, which names ``peer``.
    """

    specs = {}  # so the redaction of error texts skips it
    __slots__ = ("_decoders", "_first", "_name", "data", "message", "peer", "position", "remaining", "version")

    def __init__(self, cls: type[Response], version: int, array: str, data: bytes, position: int, peer: str) -> None:
        self._name = cls.__name__
        self._decoders = part_decoders(cls, version, array)
        self.version: int = version
        self.peer: str = peer
        self.data: bytes = data
        self._first = position
        self.begin()

    def begin(self) -> None:
        """Begin again with the first element."""
        try:
            self.message, self.remaining, self.position = self._decoders.head(self.data, self._first)
        except _ERRORS as error:
            raise self._undecodable(error) from None

    def client_throttle_ms(self, version: int) -> int:
        throttle_ms: int = self.message.client_throttle_ms(version)
        return throttle_ms

    def decode(self) -> Any:
        """Decode the next element."""
        try:
            element, self.position = self._decoders.element(self.data, self.position)
        except _ERRORS as error:
            raise self._undecodable(error) from None
        self.remaining -= 1
        assert self.remaining >= 0, "the array has no further element"
        return element

    def skip(self, encoded: bytes) -> bool:
        """Skip the next element if it has the known bytes. Returns whether it was skipped."""
        if not encoded or not self.data.startswith(encoded, self.position):
            return False
        self.position += len(encoded)
        self.remaining -= 1
        return True

    def end(self) -> None:
        """Decode the fields after the array, whose elements are all decoded or skipped."""
        assert not self.remaining, "all elements are decoded or skipped"
        try:
            self._decoders.tail(self.message, self.data, self.position)
        except _ERRORS as error:
            raise self._undecodable(error) from None

    def _undecodable(self, error: Exception) -> UndecodableResponse:
        if not isinstance(error, ProtocolError):
            error = decode_error(self._name, self.version, len(self.data), error)
        return UndecodableResponse(f"{self.peer} sent a response that cannot be decoded: {error}")
