"""The two ends of a connection without the connection: frames in, typed messages out, and the other way round.

``ClientProtocol`` allots correlation ids and knows what is outstanding. ``parse_request`` and ``encode_response`` are a
broker's side. Neither reads a clock nor writes to anything.

A frame holds one message. Bytes left over after an answer are a ``ProtocolError``: the version settles every byte, and
whoever has some to spare has misread the rest. After a request they are let pass, as Kafka's brokers do, since some
clients send them: librdkafka asks for all topics with three bytes too many.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Any, NamedTuple

from ..errors import ProtocolError
from ..facts import fact
from . import messages  # its REQUESTS only when a broker asks for it: that is every family of messages
from .codec import Buffer, decode_message, encode_message, get_uvarint
from .framing import close_frame, open_frame
from .messages import ApiVersionsRequest, ApiVersionsResponse
from .schema import Message, Request, Response
from .versions import decode_api_versions

_REQUEST_HEADER = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")
_LAST_CORRELATION_ID = 0x7FFFFFFF


class Outstanding(NamedTuple):
    """A request whose answer has not come."""

    correlation_id: int
    request: type[Request[Any]]
    version: int


class ClientProtocol:
    """What one connection of a client has asked and still waits for. Owned by that connection."""

    __slots__ = ("_next", "_outstanding", "peer")

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self._next = 0
        self._outstanding: deque[Outstanding] = deque()

    def __repr__(self) -> str:
        return f"<ClientProtocol peer={self.peer} outstanding={len(self._outstanding)}>"

    @property
    def outstanding(self) -> int:
        """How many answers have not come."""
        return len(self._outstanding)

    @property
    def next_correlation_id(self) -> int:
        """What the next request gets."""
        return self._next

    def encode_request(
        self, request: Request[Any], version: int, client_id: str | None, *, answered: bool = True
    ) -> tuple[int, bytearray]:
        """Return the correlation id and the whole frame, ready to write. Frames must be written in call order.

        ``answered=False`` is for the one request that a broker does not answer, Produce with acks=0. Raises
        ``ValueError`` when the version cannot carry the request; nothing is outstanding then.
        """
        correlation_id = self._next
        out = open_frame()
        encode_request_header(type(request), version, correlation_id, client_id, out)
        encode_message(request, version, out)
        close_frame(out)
        self._next = 0 if correlation_id == _LAST_CORRELATION_ID else correlation_id + 1
        if answered:
            self._outstanding.append(Outstanding(correlation_id, type(request), version))
        return correlation_id, out

    def receive(self, frame: Buffer) -> tuple[int, Response]:
        """Read an answer: return its correlation id and the response.

        Brokers answer in order, so only the oldest outstanding request can be meant. Raises ``ProtocolError`` when
        another one is, or none, or when the answer cannot be read; the stream is of no use after that.
        """
        if len(frame) < _CORRELATION_ID.size:
            raise ProtocolError(f"{self.peer} answered with {len(frame)} bytes, too few for a header")
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        if not self._outstanding:
            raise ProtocolError(f"{self.peer} answered a request that nobody made (correlation id {correlation_id})")
        oldest = self._outstanding[0]
        if correlation_id != oldest.correlation_id:
            raise ProtocolError(
                f"{self.peer} answered correlation id {correlation_id} where {oldest.correlation_id} "
                f"({oldest.request.__name__}) was next"
            )
        response = decode_response(oldest.request, oldest.version, frame, self.peer)
        self._outstanding.popleft()
        return correlation_id, response


def encode_request_header(
    cls: type[Request[Any]], version: int, correlation_id: int, client_id: str | None, out: bytearray
) -> None:
    """Append a request header: version 2 for flexible requests, else version 1.

    The client id keeps its two-byte length in both, so that a broker can read it before it knows the version.
    """
    encoded = None if client_id is None else client_id.encode()
    if encoded is not None and len(encoded) > 0x7FFF:
        raise ValueError(f"a client id of {len(encoded)} bytes is too long")
    length = -1 if encoded is None else len(encoded)
    out += _REQUEST_HEADER.pack(cls.api_key, version, correlation_id, length)
    out += encoded or b""
    if version >= cls.flexible:
        out.append(0)


def decode_response(cls: type[Request[Any]], version: int, frame: Buffer, peer: str) -> Response:
    """Read the answer to a ``cls`` that was sent in ``version``; the correlation id is not looked at.

    Raises ``ProtocolError`` naming ``peer``.
    """
    try:
        position = _CORRELATION_ID.size
        if _response_is_flexible(cls, version):
            position = _skip_tags(frame, position)
        response: Response
        if cls is ApiVersionsRequest:
            response, end = decode_api_versions(frame, position, version)
        else:
            response, end = decode_message(cls.response, version, frame, position)
        _check_whole(cls.response, version, frame, end)
    except ProtocolError as error:
        raise ProtocolError(f"{peer} sent an answer that cannot be read: {error}") from error
    return response


def _response_is_flexible(cls: type[Request[Any]], version: int) -> bool:
    # ApiVersions is answered before versions are agreed on, so its header stays the oldest one (KIP-511)
    return version >= cls.flexible and cls.api_key != ApiVersionsRequest.api_key


def _skip_tags(frame: Buffer, position: int) -> int:
    """Step over the tagged fields of a header: none is defined."""
    try:
        count, position = get_uvarint(frame, position)
        for _ in range(count):
            _, position = get_uvarint(frame, position)
            size, position = get_uvarint(frame, position)
            position += size
    except IndexError:
        raise ProtocolError("the frame ends inside its header") from None
    if position > len(frame):
        raise ProtocolError("the frame ends inside its header")
    return position


def _check_whole(cls: type[Message], version: int, frame: Buffer, end: int) -> None:
    if end != len(frame):
        raise ProtocolError(f"{cls.__name__} v{version}: {len(frame) - end} bytes are left over after it")


# A broker's side.


@fact
class RequestHeader:
    """What every request begins with."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None

    @property
    def name(self) -> str:
        """The API's name, or its key where it is not known here."""
        request = messages.REQUESTS.get(self.api_key)
        return request.__name__.removesuffix("Request") if request else f"API key {self.api_key}"


@fact
class ParsedRequest:
    """A request that can be answered."""

    header: RequestHeader
    request: Request[Any]


@fact
class UnknownRequest:
    """A request for an API, or in a version of one, that is not spoken here.

    Its body cannot be read. A broker closes the connection, unless ``is_api_versions``: that one is answered with
    UNSUPPORTED_VERSION in version 0 (``encode_unsupported_api_versions``), which is how clients find the right one.
    """

    header: RequestHeader

    @property
    def is_api_versions(self) -> bool:
        return self.header.api_key == ApiVersionsRequest.api_key


def parse_request(frame: Buffer) -> ParsedRequest | UnknownRequest:
    """Read a request as a broker does. Raises ``ProtocolError`` when the header or a known request is malformed."""
    if len(frame) < _REQUEST_HEADER.size:
        raise ProtocolError(f"{len(frame)} bytes are too few for a request header")
    api_key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
    position = _REQUEST_HEADER.size
    if length > len(frame) - position or length < -1:
        raise ProtocolError(f"the client id claims {length} bytes where {len(frame) - position} are left")
    client_id = None
    if length >= 0:
        client_id = _text(frame, position, position + length)
        position += length
    header = RequestHeader(api_key, version, correlation_id, client_id)
    cls = messages.REQUESTS.get(api_key)
    if cls is None or version not in cls.versions:
        return UnknownRequest(header)
    if version >= cls.flexible:
        position = _skip_tags(frame, position)
    request, _ = decode_message(cls, version, frame, position)
    return ParsedRequest(header, request)


def _text(frame: Buffer, start: int, stop: int) -> str:
    try:
        return str(frame[start:stop], "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"the client id is not UTF-8 ({error.reason})") from None


def encode_response(header: RequestHeader, response: Response) -> bytearray:
    """The whole frame that answers ``header``, in the version that it asked for."""
    out = open_frame()
    out += _CORRELATION_ID.pack(header.correlation_id)
    if _response_is_flexible(messages.REQUESTS[header.api_key], header.version):
        out.append(0)
    encode_message(response, header.version, out)
    return close_frame(out)


def encode_unsupported_api_versions(header: RequestHeader, response: ApiVersionsResponse) -> bytearray:
    """The whole frame that answers ApiVersions in a version that is not spoken here: in version 0, whatever was asked.

    ``response`` carries UNSUPPORTED_VERSION and, from Kafka 2.4 on, the versions of ApiVersions that are.
    """
    out = open_frame()
    out += _CORRELATION_ID.pack(header.correlation_id)
    encode_message(response, 0, out)
    return close_frame(out)
