"""Both sides of a connection without I/O: frames to typed messages, and typed messages to frames.

``ClientProtocol`` is the client's side, ``parse_request`` and ``encode_response`` are the broker's. The rules:

1. Nothing here reads a clock or writes to a transport.
2. The protocol owns the requests in flight: correlation id, request class, version, and the connection's promise. The
   connection keeps no second queue of them.
3. Brokers respond in order. A response to any other request than the oldest is a ``ProtocolError``.
4. A frame holds one message. Bytes after it are ignored, as Kafka's brokers and Java's client do. librdkafka's request
   for all topics has three bytes too many, and the flexible Metadata response of its mock cluster has one.
"""

from __future__ import annotations

import gc
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ..errors import ProtocolError, UnsupportedVersion
from . import messages  # messages.REQUESTS imports every message, so only the broker's side uses it
from .codec import Buffer, decode_message, encode_message
from .framing import close_frame, open_frame, size_of
from .messages import ApiVersionsRequest, ApiVersionsResponse
from .schema import MOST_TAGS, Request, Response
from .versions import decode_api_versions
from .wire import get_uvarint

P = TypeVar("P")

_REQUEST_HEADER = struct.Struct(">hhih")
_WRITTEN_LAST = struct.Struct(">ihhi")
"""The start of a request's frame: its size, the API key, the version and the correlation id."""
_CORRELATION_ID = struct.Struct(">i")
_LAST_CORRELATION_ID = 0x7FFFFFFF

MAX_WITHOUT_RECORDS = 8 * 1024 * 1024
"""The largest request, in bytes, that a broker accepts; Produce may be larger. Decoding more would block the broker's
loop for seconds."""

LARGE = 256 * 1024
"""A size in bytes. While a larger response is decoded, the garbage collector is paused, unless the response is decoded
in parts. Responses with records have few objects."""


class InFlightRequest(Generic[P]):
    """A request without a response yet. ``promise`` is the connection's own; the protocol only returns it."""

    __slots__ = ("correlation_id", "promise", "request", "version")

    def __init__(self, correlation_id: int, request: type[Request[Any]], version: int, promise: P) -> None:
        self.correlation_id: int = correlation_id
        self.request: type[Request[Any]] = request
        self.version: int = version
        self.promise: P = promise


class ClientProtocol(Generic[P]):
    """The requests in flight on one connection of a client, in the order of writing. Owned by that connection."""

    __slots__ = ("_in_flight", "_next", "peer")

    def __init__(self, peer: str) -> None:
        self.peer: str = peer
        self._next = 0
        self._in_flight: deque[InFlightRequest[P]] = deque()

    def __repr__(self) -> str:
        return f"<ClientProtocol peer={self.peer} in_flight={len(self._in_flight)}>"

    @property
    def in_flight(self) -> Sequence[InFlightRequest[P]]:
        """The requests without a response, the oldest first. Read only."""
        return self._in_flight

    @property
    def next_correlation_id(self) -> int:
        """The correlation id of the next request."""
        return self._next

    def encode_request(self, request: Request[Any], version: int, client_id: str | None, promise: P) -> bytearray:
        """Encode a request as a whole frame, ready to write; ``receive`` returns ``promise`` with the response.

        Frames must be written in call order. Raises ``UnsupportedVersion`` if only a later version can carry the
        request, and ``ValueError`` if no version can. The request is not in flight then.
        """
        # Read before the encoding, which moves ``_next`` on.
        correlation_id = self._next
        out = self.encode_unanswered_request(request, version, client_id)
        self._in_flight.append(InFlightRequest(correlation_id, type(request), version, promise))
        return out

    def encode_unanswered_request(self, request: Request[Any], version: int, client_id: str | None) -> bytearray:
        """Encode a request without a response: Produce with acks=0. Raises the errors of ``encode_request``."""
        correlation_id, cls = self._next, type(request)
        out = bytearray(_start_of_frame(cls, version, client_id))
        try:
            encode_message(request, version, out)
        except ValueError as error:
            self._explain(request, version, error)
            raise
        _WRITTEN_LAST.pack_into(out, 0, size_of(out), cls.api_key, version, correlation_id)
        self._next = 0 if correlation_id == _LAST_CORRELATION_ID else correlation_id + 1
        return out

    def _explain(self, request: Request[Any], version: int, error: ValueError) -> None:
        """Raise ``UnsupportedVersion`` if only a newer version than the peer supports can carry the request."""
        from .encode_errors import describe_encode_error

        newer = range(version + 1, type(request).versions.last + 1)
        if any(describe_encode_error(request, newer_version) is None for newer_version in newer):
            name = type(request).__name__.removesuffix("Request")
            unsupported = UnsupportedVersion(
                f"{self.peer} supports {name} up to version {version}, which cannot carry this request: {error}"
            )
            unsupported.__cause__ = error  # compiled code ignores the "from" of a raise
            raise unsupported from error

    def receive(self, frame: Buffer, *, in_parts: str = "") -> tuple[InFlightRequest[P], Response]:
        """Decode a response. Return the request that it answers, which is no longer in flight, and the response.

        Brokers respond in order, so the response must be to the oldest request. Raises ``ProtocolError`` if it is not,
        or if it cannot be decoded; the stream cannot be used after that. ``in_parts`` names an array of the response
        that the caller decodes in parts: the response is a ``PartialResponse`` then.
        """
        if len(frame) < _CORRELATION_ID.size:
            raise ProtocolError(f"{self.peer} sent a response of {len(frame)} bytes, too few for a header")
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        if not self._in_flight:
            raise ProtocolError(
                f"{self.peer} sent a response with correlation id {correlation_id}, but no request is in flight"
            )
        oldest = self._in_flight[0]
        if correlation_id != oldest.correlation_id:
            raise ProtocolError(
                f"{self.peer} sent a response with correlation id {correlation_id}, but {oldest.correlation_id} "
                f"({oldest.request.__name__}) is next"
            )
        response: Response
        if in_parts:
            response = _decode_head(oldest.request, oldest.version, in_parts, frame, self.peer)
        else:
            response = decode_response(oldest.request, oldest.version, frame, self.peer)
        # Removed only after the response is decoded: otherwise the failing connection would not fail its promise.
        answered = self._in_flight.popleft()
        assert answered is oldest, "brokers respond in order"
        return oldest, response

    def take_in_flight(self) -> Sequence[InFlightRequest[P]]:
        """Remove and return the requests in flight, the oldest first, because the connection is closed."""
        requests, self._in_flight = self._in_flight, deque()
        return requests


_starts: dict[tuple[type[Request[Any]], int, str | None], bytes] = {}

_MOST_STARTS = 1_000
"""The number of entries from which ``_starts`` begins again, because a program may use any number of client ids."""


def _start_of_frame(cls: type[Request[Any]], version: int, client_id: str | None) -> bytes:
    """Return the start of a request's frame: the header, with a size and a correlation id that are written later."""
    start = _starts.get((cls, version, client_id))
    if start is None:
        out = open_frame()
        encode_request_header(cls, version, 0, client_id, out)
        if len(_starts) >= _MOST_STARTS:
            _starts.clear()
        start = _starts[cls, version, client_id] = bytes(out)
    return start


def encode_request_header(
    cls: type[Request[Any]], version: int, correlation_id: int, client_id: str | None, out: bytearray
) -> None:
    """Append a request header: header version 2 for flexible requests, else 1.

    The client id has a two-byte length in both, so that a broker can read it before it knows the version.
    """
    encoded = None if client_id is None else client_id.encode()
    if encoded is not None and len(encoded) > 0x7FFF:
        raise ValueError(f"client_id must be at most 32767 bytes long, got {len(encoded)} bytes")
    length = -1 if encoded is None else len(encoded)
    out += _REQUEST_HEADER.pack(cls.api_key, version, correlation_id, length)
    out += encoded or b""
    if version >= cls.flexible:
        out.append(0)


def decode_response(cls: type[Request[Any]], version: int, frame: Buffer, peer: str) -> Response:
    """Decode the response to a request ``cls`` of ``version``. The correlation id is not checked.

    Bytes after the message are ignored, as Java's client and librdkafka do: librdkafka's mock cluster writes one.
    Raises ``ProtocolError``, which names ``peer``.
    """
    try:
        position = _CORRELATION_ID.size
        if version >= cls.flexible and cls is not ApiVersionsRequest:  # as in ``_response_is_flexible``
            # Nearly always there are no tagged fields.
            position = position + 1 if len(frame) > position and not frame[position] else _skip_tags(frame, position)
        response: Response
        if cls is ApiVersionsRequest:
            response, _ = decode_api_versions(frame, position, version)
        elif len(frame) < LARGE:
            response, _ = decode_message(cls.response, version, frame, position)
        else:
            with garbage_collection_paused():
                response, _ = decode_message(cls.response, version, frame, position)
    except ProtocolError as error:
        wrong = ProtocolError(f"{peer} sent a response that cannot be decoded: {error}")
        wrong.__cause__ = error  # compiled code ignores the "from" of a raise
        raise wrong from error
    return response


def _decode_head(cls: type[Request[Any]], version: int, array: str, frame: Buffer, peer: str) -> Response:
    from .partial import PartialResponse  # imported here: most clients get no large response

    data, position = bytes(frame), _CORRELATION_ID.size
    try:
        if _response_is_flexible(cls, version):
            position = _skip_tags(data, position)
    except ProtocolError as error:
        wrong = ProtocolError(f"{peer} sent a response that cannot be decoded: {error}")
        wrong.__cause__ = error  # compiled code ignores the "from" of a raise
        raise wrong from error
    return PartialResponse(cls.response, version, array, data, position, peer)


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pause the garbage collector while many objects are created. It would find nothing, and take 2/3 of the time.

    Metadata of 100,000 partitions is decoded in 0.1 s this way, and in 0.3 s without, in one turn of the loop.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _response_is_flexible(cls: type[Request[Any]], version: int) -> bool:
    # ApiVersions is sent before versions are negotiated, so its response keeps the oldest header (KIP-511).
    return version >= cls.flexible and cls.api_key != ApiVersionsRequest.api_key


def _skip_tags(frame: Buffer, position: int) -> int:
    """Skip the tagged fields of a header: none is defined."""
    try:
        count, position = get_uvarint(frame, position)
        if count > MOST_TAGS:
            raise ProtocolError(f"a header claims {count} tagged fields; at most {MOST_TAGS} are accepted")
        for _ in range(count):
            _, position = get_uvarint(frame, position)
            size, position = get_uvarint(frame, position)
            position += size
    except IndexError:
        damaged = ProtocolError("the frame ends inside its header")
        damaged.__cause__ = None  # hides the error: compiled code ignores the "from" of a raise
        raise damaged from None
    if position > len(frame):
        raise ProtocolError("the frame ends inside its header")
    return position


# The broker's side.


@dataclass(slots=True)
class RequestHeader:
    """The header of every request. It is never changed, but not frozen: creating a frozen dataclass takes 1 µs more."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    size: int = field(default=0, compare=False)
    """Bytes of the request with its header, for quotas."""

    @property
    def name(self) -> str:
        """The name of the API, or its key if it is unknown here."""
        request = messages.REQUESTS.get(self.api_key)
        return request.__name__.removesuffix("Request") if request else f"API key {self.api_key}"


@dataclass(slots=True)
class ParsedRequest:
    """A request of a known API and version."""

    header: RequestHeader
    request: Request[Any]


@dataclass(frozen=True, slots=True)
class UnknownRequest:
    """A request of an unknown API, or of an unknown version; its body cannot be decoded.

    A broker closes the connection. The exception is ApiVersions, so that clients can find a common version: the broker
    responds with UNSUPPORTED_VERSION in version 0 (``encode_unsupported_api_versions``).
    """

    header: RequestHeader


def parse_request(frame: Buffer) -> ParsedRequest | UnknownRequest:
    """Decode a request, as a broker does. Raises ``ProtocolError`` if the header or the body is malformed."""
    if len(frame) < _REQUEST_HEADER.size:
        raise ProtocolError(f"a frame of {len(frame)} bytes is too short for a request header")
    # These fields are the same in all header versions, so they can be read before the version is known.
    api_key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
    position = _REQUEST_HEADER.size
    if length > len(frame) - position or length < -1:
        raise ProtocolError(f"the client id claims {length} bytes, but the frame has {len(frame) - position} more")
    client_id = None
    if length >= 0:
        client_id = _text(frame, position, position + length)
        position += length
    header = RequestHeader(api_key, version, correlation_id, client_id, len(frame))
    cls = messages.REQUESTS.get(api_key)
    if cls is None or version not in cls.versions:
        return UnknownRequest(header)
    if len(frame) > MAX_WITHOUT_RECORDS and cls is not messages.ProduceRequest:
        raise ProtocolError(
            f"a request of {header.name} has {len(frame)} bytes; only Produce may have more than {MAX_WITHOUT_RECORDS}"
        )
    if version >= cls.flexible:
        position = _skip_tags(frame, position)
    request, _ = decode_message(cls, version, frame, position)
    return ParsedRequest(header, request)


def _text(frame: Buffer, start: int, stop: int) -> str:
    try:
        return str(frame[start:stop], "utf-8")
    except UnicodeDecodeError as error:
        damaged = ProtocolError(f"the client id is not UTF-8 ({error.reason})")
        damaged.__cause__ = None  # hides the error: compiled code ignores the "from" of a raise
        raise damaged from None


def encode_response(header: RequestHeader, response: Response) -> bytearray:
    """Encode the response to a request as a frame, in the request's version."""
    out = open_frame()
    out += _CORRELATION_ID.pack(header.correlation_id)
    if _response_is_flexible(messages.REQUESTS[header.api_key], header.version):
        out.append(0)
    encode_message(response, header.version, out)
    return close_frame(out)


def encode_unsupported_api_versions(header: RequestHeader, response: ApiVersionsResponse) -> bytearray:
    """Encode the response to ApiVersions of an unknown version as a frame. It is always in version 0.

    ``response`` has the code UNSUPPORTED_VERSION and, since Kafka 2.4, the supported versions of ApiVersions.
    """
    out = open_frame()
    out += _CORRELATION_ID.pack(header.correlation_id)
    encode_message(response, 0, out)
    return close_frame(out)
