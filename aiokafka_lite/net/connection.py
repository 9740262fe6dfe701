"""One connection to one broker. Requests go out, and responses come in, in the same order.

Rule 1: A connection is opened once and closed once. ``closed`` holds the error that closed it.

Rule 2: A connection has no task. The transport's callback handles frames, and one timer watches the deadlines of all
requests. ``in_flight`` has the promises and deadlines of requests, and throttling. ``handshake`` has the requests
before the user's first request.

Rule 3: Every failure closes the connection. After a response out of order, a bad frame, or a request without a response
in time, later responses cannot be assigned to requests.

Rule 4: A connection can be used from the end of the handshake until it is closed (``_is_open``), also while it logs in
again. The state is in a table of ``state_machine``. The flag ``_is_open`` exists because each request reads it, and
because AUTHENTICATING is a state of the handshake and of the later login. ``_retiring`` refuses new callers and lets
the present requests finish.
"""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..aio.deadline import deadline
from ..aio.framed_stream import Frame, FramedStream
from ..errors import ConnectionLost, IllegalStateError, KafkaError, ProtocolError
from ..protocol.framing import WaitingFrameMemory
from ..protocol.schema import Request
from ..protocol.versions import VersionTable
from ..state_machine import CONNECTION, ConnectionEvent, ConnectionState, next_state
from .connector import ADDRESS_ERRORS, Connector, format_address
from .handshake import AgreedVersions, Handshake
from .in_flight import InFlightRequests
from .traffic import TrafficCounters

if TYPE_CHECKING:  # a client without a login does not import its modules
    from ..protocol.partial import PartialResponse
    from .login import Login

logger = logging.getLogger(__name__)

R = TypeVar("R")

_CLOSED = ConnectionState.CLOSED


MAX_BEFORE_READY = 1024 * 1024
"""The largest response during the handshake, in bytes. The peer is not authenticated yet, and a decoded ApiVersions
response takes about 17 times its size in memory. Real responses have less than 4 KiB."""


class Purpose(Enum):
    """The purpose of a connection.

    Each purpose has its own connection to a broker, so that a long fetch never delays a heartbeat. OTHER is for
    requests that brokers answer at once: metadata, coordinators, offsets. ADMIN is for requests that may take long,
    such as creating topics, so that metadata requests never wait behind them.
    """

    __hash__ = object.__hash__  # each request looks its connection up; that of Enum hashes the name

    PRODUCE = "produce"
    FETCH = "fetch"
    GROUP = "group"
    ADMIN = "admin"
    OTHER = "other"


class Connection:
    """A connection that is opened once and closed once. Owned by the loop in which it was made.

    The future ``closed`` is done when the connection is closed. Its result is the error that closed the connection, or
    None after ``close()`` without an error. The future never raises, and must not be cancelled.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        connector: Connector,
        client_id: str | None,
        node_id: int | None = None,
        request_timeout: float = 30.0,
        max_response_size: int = 128 * 1024 * 1024,
        memory: WaitingFrameMemory | None = None,
        oldest_first: bool = False,
        login: Login | None = None,
        uses_tls: bool = False,
        max_open_requests: float = math.inf,
        counters: TrafficCounters | None = None,
        on_gone: Callable[[], None] | None = None,
    ) -> None:
        """``oldest_first`` begins with version 0 of ApiVersions, for a peer that closed a connection on a newer
        version.

        ``login`` has the credentials, None if there is no login. ``uses_tls`` only chooses the text of errors.
        ``memory`` bounds the incomplete responses of several connections. ``counters`` are the broker's. ``on_gone`` is
        called when the transport is closed.
        """
        self.host = host
        self.port = port
        self.node_id: int | None = node_id if node_id is not None and node_id >= 0 else None
        self.address: str = format_address(host, port)
        self.peer: str = self.address if self.node_id is None else f"broker {self.node_id} ({self.address})"
        self.closed_on_versions: bool = False
        """Whether the peer closed the connection after ApiVersions. Then an older version of ApiVersions may work."""
        self.opened_at: float = 0.0
        self.session_ends: float = 0.0
        """The loop's time at which the login expires; 0.0 if it does not expire."""
        self.closed: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()
        self._connector = connector
        self._request_timeout = request_timeout
        self._state = ConnectionState.NEW
        self._is_open = False
        self._retiring = False
        self._agreed: AgreedVersions | None = None
        self._max_response_size = max_response_size
        first_limit = min(max_response_size, MAX_BEFORE_READY)
        self._wire = _Wire(
            first_limit,
            self.peer,
            memory,
            on_frames=self._frames_received,
            is_unasked=lambda: self._state is not ConnectionState.CLOSED and not self._requests.written,
            on_end=self._stream_ended,
            on_gone=on_gone,
        )
        self._requests = InFlightRequests(
            self.peer,
            client_id,
            write=self._wire.write,
            on_timeout=self.close,
            on_idle=self._close_if_retiring,
            max_open=max_open_requests,
            counters=counters,
        )
        self._handshake = Handshake(
            self.peer,
            (host, port),
            self._send_in_handshake,
            login=login,
            request_timeout=request_timeout,
            uses_tls=uses_tls,
            oldest_first=oldest_first,
        )

    @property
    def state(self) -> ConnectionState:
        return self._state

    @property
    def ready(self) -> bool:
        """Whether the connection takes requests."""
        return self._is_open and not self._retiring

    @property
    def is_free(self) -> bool:
        """Whether a request would be written at once: the connection is ready, not throttled and not closing."""
        return self._is_open and not self._retiring and not self._requests.throttled_until and not self._wire.is_closing

    @property
    def gone(self) -> bool:
        """Whether there is no transport: the connection is not open yet, or its transport is closed."""
        return self._wire.gone

    @property
    def in_flight(self) -> int:
        """The number of requests without a response, including those that are not written yet."""
        return len(self._requests)

    @property
    def throttled_until(self) -> float:
        """The loop's time until which the broker throttles this client; 0.0 if it does not."""
        return self._requests.throttled_until

    @property
    def last_used(self) -> float:
        """The loop's time of the last request."""
        return self._requests.last_used

    @property
    def versions(self) -> VersionTable:
        """The versions that the broker offers. Raises IllegalStateError before the handshake."""
        if self._agreed is None:
            raise IllegalStateError(f"{self!r} does not know the broker's versions yet")
        return self._agreed.table

    @property
    def agreed_versions(self) -> dict[str, int]:
        """The version of each API that was used on this connection, by the name of the API."""
        return {} if self._agreed is None else self._agreed.by_api()

    def __repr__(self) -> str:
        broker = "" if self.node_id is None else f" broker={self.node_id}"
        return f"<Connection{broker} {self.address} {self._state.name} in_flight={self.in_flight}>"

    # Opening.

    async def connect(self, timeout: float) -> None:
        """Connect, agree on versions and log in within ``timeout`` seconds. A failure closes the connection.

        Raises ConnectionLost, KafkaTimeout, UnsupportedVersion and BrokerError. Raises ProtocolError if the peer does
        not speak Kafka, and AuthenticationError if one side does not accept the other. Each error names the address
        and, if possible, a likely cause.
        """
        self._advance(ConnectionEvent.CONNECT)
        login = self._handshake.login
        try:
            with deadline(timeout, lambda: self._handshake.timed_out(self._state, timeout)):
                await _connect(self._connector, self.host, self.port, self._wire)
                # ``close`` may have run between the event and this task's turn, so this is checked after each await.
                self._check_not_closed()
                self._advance(ConnectionEvent.CONNECTED)
                self._agreed = AgreedVersions(await self._handshake.api_versions())
                if login is not None:
                    self._advance(ConnectionEvent.AUTHENTICATION_REQUIRED)
                    exchange = await login.exchange(self.host)
                    self.session_ends = await self._handshake.log_in(login, exchange, self.versions)
                    self._requests.hide_secrets = exchange.hide_secrets
                    self._check_not_closed()
        except KafkaError as error:
            self._report_handshake(ready=False)
            self.close(error)
            raise
        # A cancelled caller does not get the connection, so only this code can close it.
        except BaseException:
            self.close(ConnectionLost(f"connecting to {self.peer} was cancelled", sent=False))
            raise
        self._report_handshake(ready=True)
        self.opened_at = asyncio.get_running_loop().time()
        # No await from here on, so no caller sees a connection that is READY but refuses requests.
        self._requests.handshake_ended()
        # During the handshake, only small responses are accepted (``MAX_BEFORE_READY``).
        self._wire.accept(self._max_response_size)
        self._advance(ConnectionEvent.VERSIONS_KNOWN if login is None else ConnectionEvent.AUTHENTICATED)
        self._is_open = True
        logger.debug("%r is open", self)

    def _report_handshake(self, *, ready: bool) -> None:
        """Tell the connector how the handshake ended, if it knows other addresses of the host name."""
        ended = getattr(self._connector, "handshake_ended", None)
        if ended is not None:
            ended(self.host, self.port, self._wire.transport, ready=ready)

    async def reauthenticate(self) -> None:
        """Log in again on the open connection. Requests are held back meanwhile, and none is lost.

        Does nothing on a connection that is not open or has no login. Raises only when it is cancelled; any failure
        closes the connection, and ``closed`` has the error.
        """
        login = self._handshake.login
        if login is None:
            return
        try:
            # The token is requested before requests are held back: a provider may take seconds, and the old login is
            # still valid.
            exchange = await login.exchange(self.host)
            # The connection was closed, or began another login, while the token was requested.
            if self._state is not ConnectionState.READY:
                return
            self._advance(ConnectionEvent.SESSION_EXPIRING)
            self._requests.hold_for_login()
            self.session_ends = await self._handshake.log_in(login, exchange, self.versions)
            self._requests.hide_secrets = exchange.hide_secrets
            self._check_not_closed()
            self._advance(ConnectionEvent.AUTHENTICATED)
            self._requests.release_after_login()
        except KafkaError as error:
            self.close(error)
        except BaseException:
            self.close(ConnectionLost(f"the new login to {self.peer} was cancelled", sent=False))
            raise

    async def _send_in_handshake(self, request: Request[R], version: int, timeout: float, /) -> R:
        response = await self._requests.send_in_handshake(request, version, timeout)
        self._check_not_closed()
        return response

    def _check_not_closed(self) -> None:
        """Raise the error of a closed connection. It may close after an event, before the waiting task runs again."""
        if self._state is ConnectionState.CLOSED:
            raise self.closed.result() or ConnectionLost(f"the connection to {self.peer} was closed here", sent=False)

    # Requests. Hot: a few microseconds more than the encoding itself.

    async def send(self, request: Request[R], *, timeout: float | None = None, at_most: int | None = None) -> R:
        """Send a request and wait for its response. A cancelled call drops the response.

        Raises the errors of ``send_nowait``.
        """
        return await self.send_nowait(request, timeout=timeout, at_most=at_most)

    def send_nowait(
        self, request: Request[R], *, timeout: float | None = None, at_most: int | None = None
    ) -> asyncio.Future[R]:
        """Write a request after all earlier ones, and return the promise of its response.

        The broker has ``timeout`` seconds to answer, ``request_timeout`` if None. After that time the promise fails
        with KafkaTimeout, the connection is closed, and all other promises fail with ConnectionLost. Requests are held
        back while the broker throttles this client. If a request is held for its whole timeout, only its own promise
        fails. ``at_most`` is the newest version to use. The promise may be dropped or cancelled.

        Raises:

        - ConnectionLost(sent=False) when the connection is closed
        - IllegalStateError when it is not open yet
        - UnsupportedVersion if the broker lacks the API or is too old for the request
        - ValueError for a request that no version can carry.
        """
        if not self._is_open:
            raise _unusable(self)
        assert self._agreed is not None
        version = self._agreed.pick(type(request), at_most)
        return self._requests.send(request, version, self._request_timeout if timeout is None else timeout)

    def send_in_parts(self, request: Request[R], array: str, *, timeout: float) -> asyncio.Future[R | PartialResponse]:
        """Send like ``send_nowait``. A large response is a PartialResponse, whose reader decodes ``array`` in parts."""
        if not self._is_open:
            raise _unusable(self)
        assert self._agreed is not None
        version = self._agreed.pick(type(request), None)
        return cast("asyncio.Future[R | PartialResponse]", self._requests.send(request, version, timeout, array))

    def send_with_callback(
        self,
        request: Request[R],
        callback: Callable[[R | Exception], object],
        *,
        timeout: float | None = None,
        at_most: int | None = None,
    ) -> None:
        """Send like ``send_nowait``, but call ``callback`` with the response or the error when it arrives.

        The call comes in the iteration of the loop that reads the response; a future would need another iteration.
        ``callback`` must not raise. It may run before this method returns.
        """
        if not self._is_open:
            raise _unusable(self)
        assert self._agreed is not None
        version = self._agreed.pick(type(request), at_most)
        seconds = self._request_timeout if timeout is None else timeout
        self._requests.send_with_callback(request, version, seconds, callback)

    def send_without_response(self, request: Request[Any], *, at_most: int | None = None) -> None:
        """Write a request that the broker does not answer: Produce with acks=0. ``drain`` bounds the unsent bytes.

        Raises the errors of ``send_nowait``.
        """
        if not self._is_open:
            raise _unusable(self)
        assert self._agreed is not None
        self._requests.send_unanswered(request, self._agreed.pick(type(request), at_most))

    async def drain(self) -> None:
        """Wait until the transport has room for more bytes. Raises ConnectionLost."""
        await self._wire.drain()

    # Callbacks of the transport.

    def _frames_received(self, frames: list[Frame]) -> None:
        # A transport may still deliver bytes that it had read before ``abort``. Their promises have failed.
        if self._state is _CLOSED:
            return
        try:
            self._requests.receive(frames)
        except ProtocolError as error:
            self.close(error)
            return
        if self._retiring:
            self._close_if_retiring()

    def _stream_ended(self, error: Exception | None) -> None:
        """Close, because the transport is closed. ``error`` is None if the peer closed it between two frames."""
        if self._state is ConnectionState.CLOSED:
            return
        # Some peers close the connection on a version of ApiVersions that they do not know, instead of answering with
        # an error. Then the owner tries an older version.
        checks_versions = self._state is ConnectionState.CHECKING_API_VERSIONS
        self.closed_on_versions = checks_versions and (error is None or isinstance(error, ConnectionLost))
        if isinstance(error, KafkaError) and not self.closed_on_versions:
            self.close(error)
        else:
            is_first = self._requests.is_first_unanswered
            self.close(self._handshake.closed_by_peer(self._state, is_first_unanswered=is_first))

    # Closing.

    def close(self, error: KafkaError | None = None) -> None:
        """Close the connection. Requests without a response fail with ConnectionLost, caused by ``error`` if given.

        Without an error, the bytes that are already written are still sent. May be called at any time, more than once.
        """
        if self._state is ConnectionState.CLOSED:
            return
        # The state changes first and the promises last, so that a caller that wakes up and sends again finds a closed
        # connection.
        self._advance(ConnectionEvent.CLOSE)
        was_open, self._is_open = self._is_open, False
        if error is None:
            self._wire.close()
        else:
            self._wire.abort()
        logger.debug("%r: %s", self, error or "closed here")
        self.closed.set_result(error)
        if error is not None and not was_open:
            self._requests.fail_all(error, error)  # no caller waits except connect(), which raises the error itself
        else:
            text = str(error) if error is not None else f"the connection to {self.peer} was closed here"
            self._requests.fail_all(_lost(text, error, sent=True), _lost(text, error, sent=False))

    def retire(self) -> None:
        """Refuse new requests, and close as soon as all present ones are answered."""
        # Requests in flight are answered first. Otherwise callers could not know whether the broker executed them.
        self._retiring = True
        self._close_if_retiring()

    async def wait_closed(self) -> None:
        """Wait until the transport is gone. Call it after ``close``."""
        await self._wire.wait_closed()

    def _close_if_retiring(self) -> None:
        if self._retiring and not self.in_flight:
            self.close()

    def _advance(self, event: ConnectionEvent) -> None:
        self._state = next_state(CONNECTION, self._state, event)


async def _connect(connector: Connector, host: str, port: int, wire: _Wire) -> None:
    try:
        await connector.connect(host, port, lambda: wire)
    except KafkaError:
        raise
    except ADDRESS_ERRORS as error:
        lost = ConnectionLost(f"cannot connect to {wire.peer}: {error}", sent=False)
        lost.__cause__ = error  # compiled code ignores the "from" of a raise
        raise lost from error
    except Exception as error:
        # A connector of the user, such as a tunnel, has exceptions of its own. They concern this address alone. Their
        # text may hold a password of the tunnel.
        what = f"cannot connect to {wire.peer}: the connector raised {type(error).__name__}"
        lost = ConnectionLost(what, sent=False)
        lost.__cause__ = error  # compiled code ignores the "from" of a raise
        raise lost from error


def _unusable(connection: Connection) -> KafkaError:
    if connection.state is ConnectionState.CLOSED:
        return _lost(f"the connection to {connection.peer} is closed", connection.closed.result(), sent=False)
    return IllegalStateError(f"{connection!r} is not open")


def _lost(text: str, cause: KafkaError | None, *, sent: bool) -> ConnectionLost:
    lost = ConnectionLost(text, sent=sent)
    lost.__cause__ = cause
    return lost


class _Wire(FramedStream):
    """The transport of a connection. It reports a TLS alert instead of asyncio's error for it."""

    def __init__(
        self,
        max_size: int,
        peer: str,
        memory: WaitingFrameMemory | None,
        *,
        on_frames: Callable[[list[Frame]], None],
        is_unasked: Callable[[], bool],
        on_end: Callable[[Exception | None], None],
        on_gone: Callable[[], None] | None,
    ) -> None:
        super().__init__(max_size, peer, memory=memory)
        self._on_frames = on_frames
        self._is_unasked = is_unasked
        self._on_end = on_end
        self._on_gone = on_gone

    def buffer_updated(self, nbytes: int) -> None:
        super().buffer_updated(nbytes)
        # No request times out then, so the incomplete frame could hold the shared memory for long. After ``close()``, a
        # transport may still deliver bytes while it sends the written ones, as over TLS.
        if self._splitter.holds_memory and self._is_unasked():
            self._refuse(ProtocolError(f"{self.peer} began a large response, but no request is in flight"))

    def frames_received(self, frames: list[Frame]) -> None:
        self._on_frames(frames)

    def stream_ended(self, error: Exception | None) -> None:
        self._on_end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError):
            from .tls import alert

            explained = alert(exc, self.peer)
            if explained is not None:
                self._end(explained)
        super().connection_lost(exc)
        if self._on_gone is not None:
            self._on_gone()
