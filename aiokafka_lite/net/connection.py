"""One connection to one broker: opened, agreed on versions, then requests out and answers in, in the same order.

A broker answers the requests of a connection in the order in which it got them. So requests are written one behind the
other without waiting (pipelining), each leaves a promise at the end of a queue, and each frame that comes fulfils the
promise at its head. Three rules follow from that order:

 - Whoever stops waiting does not disturb the others: the promise keeps its place, and its answer is dropped.
 - A request that is not answered in time ends the connection, as nothing behind it can be answered either.
 - An answer that is not the next one ends it too: what else has been mixed up cannot be known.

Where SASL is used, who we are is shown before the first request, and again before the session ends (KIP-368). Requests
that are made during the latter wait and are written when it is over; those in flight are answered meanwhile.

There is no task in here. Frames are taken as they come, in the transport's callback, and one timer per connection
watches over all deadlines.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Awaitable
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..aio.framed_stream import Frame, FramedStream
from ..errors import (
    AuthenticationError,
    ConnectionLost,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    KafkaTimeout,
    ProtocolError,
    error_for,
)
from ..protocol.connection import ClientProtocol, InFlight
from ..protocol.messages import ApiVersionsRequest
from ..protocol.schema import Message, Request
from ..protocol.state import CONNECTION, ConnectionEvent, ConnectionState, next_state
from ..protocol.versions import VersionTable, version_after_refusal
from ..version import VERSION
from .connector import Connector, format_address
from .tls import alert

if TYPE_CHECKING:  # what a login takes is not imported by those who have none
    from ..protocol.sasl import Exchange
    from .login import Login

logger = logging.getLogger(__name__)

R = TypeVar("R")

SOFTWARE_NAME = "aiokafka-lite"
"""How the client names itself to brokers (KIP-511)."""

LATE = 0.5
"""Seconds by which a timer may be late before the loop counts as having been blocked."""

GRACE = 1.0
"""Seconds that a loop which was blocked gets to read what came meanwhile, before requests are said to be unanswered."""

LONGEST_THROTTLE = 60.0
"""Seconds for which a connection is quiet at the most, whatever throttle time an answer names. Brokers' quotas work in
windows of some seconds and throttle again in the next answer if need be; a nonsensical number would mute for weeks."""

_WANTS_TLS = 'wants TLS (security_protocol="SSL" or "SASL_SSL")'
_WANTS_SASL = 'if it wants a login, set security_protocol to "SASL_PLAINTEXT" or "SASL_SSL", and sasl_mechanism'

_TICK = 0.001
"""A timer may fire a little before its time: clocks of loops are coarse."""


class Purpose(Enum):
    """What a connection is for. Each has its own to a broker, so that a long fetch never holds up a heartbeat."""

    PRODUCE = "produce"
    FETCH = "fetch"
    GROUP = "group"
    OTHER = "other"


class _Promise:
    """A response that has not arrived. ``deadline`` is in loop time, ``timeout`` in seconds."""

    __slots__ = ("deadline", "future", "timeout")

    def __init__(self, future: asyncio.Future[Any], timeout: float, deadline: float) -> None:
        self.future = future
        self.timeout = timeout
        self.deadline = deadline

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # counts as seen: whoever dropped the promise does not want to hear of it


class _Held(NamedTuple):
    """A request that waits to be written; without a promise if the broker will not answer it."""

    request: Request[Any]
    version: int
    promise: _Promise | None


class Connection:
    """A connection, for one use: NEW, opened once, closed once. Owned by the loop in which it was made.

    ``closed`` is a future that is done when the connection is closed, with what closed it, or None when that was
    ``close()`` without an error. It never raises, and must not be cancelled.
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
        oldest_first: bool = False,
        login: Login | None = None,
        uses_tls: bool = False,
    ) -> None:
        """``oldest_first`` asks for versions in the oldest way, for a peer that hung up on the newest one.

        ``login`` is who we are, if that is to be shown. ``uses_tls`` is only for the texts of errors.
        """
        self.host = host
        self.port = port
        self.node_id = node_id if node_id is not None and node_id >= 0 else None
        self.address = format_address(host, port)
        self.peer = self.address if self.node_id is None else f"broker {self.node_id} ({self.address})"
        self.hung_up_on_versions = False
        self._connector = connector
        self._client_id = client_id
        self._request_timeout = request_timeout
        self._oldest_first = oldest_first
        self._login = login
        self._uses_tls = uses_tls
        self._loop = asyncio.get_running_loop()
        self._state = ConnectionState.NEW
        self._wire = _Wire(self, max_response_size, self.peer)
        self._protocol: ClientProtocol[_Promise] = ClientProtocol(self.peer)
        self._versions: VersionTable | None = None
        self._picked: dict[type[Message], int] = {}
        self._capped: dict[type[Message], int] = {}  # the last ones under ``at_most``, for diagnoses
        self._held: deque[_Held] = deque()  # not written: the broker throttles, or wants to know again who we are
        self._holding = False
        self._opening = True
        self._first_correlation_id = 0  # of those that are not the connection's own
        self._timer: asyncio.TimerHandle | None = None
        self._unmute_timer: asyncio.TimerHandle | None = None
        self._retiring = False
        self.opened_at = 0.0
        self.last_used = 0.0
        self.throttled_until = 0.0
        self._was_throttled = False
        self.session_ends = 0.0
        self.closed: asyncio.Future[KafkaError | None] = self._loop.create_future()

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        connector: Connector,
        client_id: str | None,
        timeout: float,
        node_id: int | None = None,
        request_timeout: float = 30.0,
        max_response_size: int = 128 * 1024 * 1024,
    ) -> Connection:
        """Make a connection and open it, within ``timeout`` seconds. Raises as ``connect`` does."""
        connection = cls(
            host,
            port,
            connector=connector,
            client_id=client_id,
            node_id=node_id,
            request_timeout=request_timeout,
            max_response_size=max_response_size,
        )
        await connection.connect(timeout)
        return connection

    # What it is.

    @property
    def state(self) -> ConnectionState:
        return self._state

    @property
    def ready(self) -> bool:
        """Whether requests are taken; while who we are is shown again they are, too."""
        return (self._state is ConnectionState.READY or self._is_reauthenticating) and not self._retiring

    @property
    def gone(self) -> bool:
        """Whether there is no transport any more, or never was one."""
        return self._wire.gone

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet, those that wait to be written included."""
        return len(self._protocol.in_flight) + len(self._held)

    @property
    def versions(self) -> VersionTable:
        """What the broker speaks. Raises IllegalStateError before that is known."""
        if self._versions is None:
            raise IllegalStateError(f"{self!r} does not know the broker's versions yet")
        return self._versions

    @property
    def agreed_versions(self) -> dict[str, int]:
        """The version that each API is spoken in, of those that were used on this connection."""
        used = self._picked | self._capped
        return {_api(request): version for request, version in used.items()}

    def __repr__(self) -> str:
        broker = "" if self.node_id is None else f" broker={self.node_id}"
        return f"<Connection{broker} {self.address} {self._state.name} in_flight={self.in_flight}>"

    @property
    def _is_reauthenticating(self) -> bool:
        return self._state is ConnectionState.AUTHENTICATING and not self._opening

    # Opening.

    async def connect(self, timeout: float) -> None:
        """Connect, agree on versions and log in within ``timeout`` seconds; else the connection is closed for good.

        Raises ``ConnectionLost``, ``KafkaTimeout``, ``ProtocolError`` when the peer does not speak Kafka,
        ``AuthenticationError`` when one side does not accept the other, ``UnsupportedVersion``, or ``BrokerError``;
        each names the address and, where one can be told, a likely cause.
        """
        self._advance(ConnectionEvent.CONNECT)
        try:
            async with asyncio.timeout(timeout):
                await self._connect()
                self._check_not_closed()
                self._advance(ConnectionEvent.CONNECTED)
                await self._check_api_versions()
                if self._login is not None:
                    self._advance(ConnectionEvent.AUTHENTICATION_REQUIRED)
                    await self._authenticate(self._login, await self._login.exchange())
        except KafkaError as error:
            self.close(error)
            raise
        except TimeoutError:
            late = self._too_late(timeout)
            self.close(late)
            raise late from None
        except BaseException:
            self.close(ConnectionLost(f"opening the connection to {self.peer} was given up", sent=False))
            raise
        self.opened_at = self.last_used = self._loop.time()
        self._advance(ConnectionEvent.VERSIONS_KNOWN if self._login is None else ConnectionEvent.AUTHENTICATED)
        self._opening = False
        self._first_correlation_id = self._protocol.next_correlation_id
        logger.debug("%r is open", self)

    async def _connect(self) -> None:
        try:
            await self._connector.connect(self.host, self.port, lambda: self._wire)
        except KafkaError:
            raise
        except OSError as error:
            raise ConnectionLost(f"cannot connect to {self.peer}: {error}", sent=False) from error

    async def _check_api_versions(self) -> None:
        """Ask what the broker speaks, in older versions as long as it refuses.

        A peer older than the request for versions, or not Kafka at all, may just hang up. That is only noted in
        ``hung_up_on_versions``: to try again at once would double the load on a broker that is about to go down.
        """
        ours = ApiVersionsRequest.versions
        version = ours.first if self._oldest_first else ours.last
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=VERSION)
        while True:
            future = self._loop.create_future()
            self._write(request, version, _Promise(future, 0.0, float("inf")))
            answer = await future
            self._check_not_closed()
            if answer.error_code != ErrorCode.UNSUPPORTED_VERSION:
                break
            version = version_after_refusal(version, answer, self.peer)
        if answer.error_code:
            raise error_for(answer.error_code, f"{self.peer} refused to say what it speaks")
        self._versions = VersionTable.from_response(answer, self.peer)

    async def _authenticate(self, login: Login, exchange: Exchange) -> None:
        begun = self._loop.time()
        lifetime = await login.show(exchange, self._ask, self.versions, self.peer)
        self._check_not_closed()
        # From before the broker began to count, so that its session does not end before ours.
        self.session_ends = begun + lifetime if lifetime else 0.0
        logger.debug("%r has logged in by %s", self, login)

    def _ask(self, request: Request[R]) -> Awaitable[R]:
        """Write a request of the connection's own, whether or not others are held back."""
        future: asyncio.Future[R] = self._loop.create_future()
        seconds = self._request_timeout
        promise = _Promise(future, seconds, self._loop.time() + seconds)
        self._write(request, self.versions.pick(type(request)), promise)
        if self._timer is None or promise.deadline < self._timer.when():
            self._set_timer(promise.deadline)
        return future

    async def reauthenticate(self) -> None:
        """Show again who we are, on the open connection; until that is done, requests wait, and none is lost.

        Does nothing on a connection that is not open. Whatever goes wrong closes it, and is in ``closed`` then; it
        raises only when it is cancelled.
        """
        login = self._login
        if login is None:
            return
        try:
            exchange = await login.exchange()
            if self._state is ConnectionState.READY:
                await self._authenticate_again(login, exchange)
        except KafkaError as error:
            self.close(error)
        except BaseException:
            self.close(ConnectionLost(f"logging in again to {self.peer} was given up", sent=False))
            raise

    async def _authenticate_again(self, login: Login, exchange: Exchange) -> None:
        self._advance(ConnectionEvent.SESSION_EXPIRING)
        self._holding = True
        await self._authenticate(login, exchange)
        self._advance(ConnectionEvent.AUTHENTICATED)
        self._release()

    def _check_not_closed(self) -> None:
        """Raise what closed the connection, if that came between what was awaited and the turn of who awaited it."""
        if self._state is ConnectionState.CLOSED:
            raise self.closed.result() or ConnectionLost(f"the connection to {self.peer} was closed here", sent=False)

    def _too_late(self, timeout: float) -> KafkaTimeout:
        if self._state is ConnectionState.CONNECTING:
            return KafkaTimeout(f"could not connect to {self.peer} within {timeout:g} s")
        if self._state is ConnectionState.AUTHENTICATING:
            return KafkaTimeout(f"the login to {self.peer} by {self._login} was not over within {timeout:g} s")
        return KafkaTimeout(
            f"{self.peer} accepted the connection but did not answer ApiVersions within {timeout:g} s; "
            f"either it hangs, or the port is not Kafka's{'' if self._uses_tls else f', or it {_WANTS_TLS}'}"
        )

    # Requests.

    async def send(self, request: Request[R], *, timeout: float | None = None, at_most: int | None = None) -> R:
        """Send a request and wait for its answer; see ``send_nowait``. When cancelled, the answer is dropped."""
        return await self.send_nowait(request, timeout=timeout, at_most=at_most)

    def send_nowait(
        self, request: Request[R], *, timeout: float | None = None, at_most: int | None = None
    ) -> asyncio.Future[R]:
        """Write a request now, behind those written before, and return the promise of its answer.

        ``timeout`` is how many seconds the broker has to answer from the moment of writing; then the promise fails with
        ``KafkaTimeout``, the connection is closed, and all other promises fail with ``ConnectionLost``. While the
        broker throttles, requests are held back; one held for its whole timeout fails alone. ``at_most`` bounds the
        version. Raises ``ConnectionLost(sent=False)`` when closed, ``UnsupportedVersion``, and ValueError for a request
        that the version cannot carry. The promise may be dropped or cancelled.
        """
        version = self._version_of(type(request), at_most)
        seconds = self._request_timeout if timeout is None else timeout
        loop = self._loop
        future: asyncio.Future[R] = loop.create_future()
        now = self.last_used = loop.time()
        promise = _Promise(future, seconds, now + seconds)
        if self._holding:
            self._held.append(_Held(request, version, promise))
        else:
            self._write(request, version, promise)
        if self._timer is None or promise.deadline < self._timer.when():
            self._set_timer(promise.deadline)
        return future

    def send_without_response(self, request: Request[Any], *, at_most: int | None = None) -> None:
        """Write a request that the broker does not answer: Produce with acks=0. ``drain`` bounds what piles up.

        Raises as ``send_nowait`` does.
        """
        version = self._version_of(type(request), at_most)
        self.last_used = self._loop.time()
        if self._holding:
            self._held.append(_Held(request, version, None))
        else:
            self._write_unanswered(request, version)

    async def drain(self) -> None:
        """Wait until what was written has left, all but a little. Raises ``ConnectionLost``."""
        await self._wire.drain()

    # Hot: a few microseconds over the encoding itself.
    def _version_of(self, cls: type[Message], at_most: int | None) -> int:
        if self._state is not ConnectionState.READY and not self._is_reauthenticating:
            raise self._unusable()
        if at_most is not None:
            capped = self._capped[cls] = self.versions.pick(cls, at_most)
            return capped
        version = self._picked.get(cls)
        if version is None:
            version = self._picked[cls] = self.versions.pick(cls)
        return version

    def _write(self, request: Request[Any], version: int, promise: _Promise) -> None:
        # The promise is in flight before the bytes are written: a transport that fails at once calls back from write().
        frame = self._protocol.encode_request(request, version, self._client_id, promise)
        self._wire.write((frame,))

    def _write_unanswered(self, request: Request[Any], version: int) -> None:
        frame = self._protocol.encode_unanswered_request(request, version, self._client_id)
        self._wire.write((frame,))

    # Answers.

    def _frames_received(self, frames: list[Frame]) -> None:
        protocol = self._protocol
        for frame in frames:
            if self._state is ConnectionState.CLOSED:
                return
            try:
                request, response = protocol.receive(frame)
            except ProtocolError as error:
                self.close(error)
                return
            throttle_ms = response.client_throttle_ms(request.version)
            if throttle_ms > 0:
                self._throttle(throttle_ms)
            future = request.promise.future
            if not future.done():
                future.set_result(response)
        if self._retiring:
            self._close_if_idle()

    def _stream_ended(self, error: Exception | None) -> None:
        if self._state is ConnectionState.CLOSED:
            return
        if isinstance(error, ProtocolError | AuthenticationError):
            self.close(error)
        elif self._state is ConnectionState.CHECKING_API_VERSIONS:
            self.hung_up_on_versions = True
            likely = "" if self._uses_tls else f" {_WANTS_TLS},"
            text = f"{self.peer} hung up when asked what it speaks: it is going down,{likely} or is not Kafka"
            self.close(ConnectionLost(text, sent=True))
        elif isinstance(error, KafkaError):
            self.close(error)
        else:
            self.close(ConnectionLost(f"{self.peer} closed the connection{self._likely_reason()}", sent=True))

    def _likely_reason(self) -> str:
        """Kafka says what it speaks to anyone, and hangs up on the first request of one who should have logged in."""
        if self._login is not None or self._opening or not self._protocol.in_flight:
            return ""
        answered = self._protocol.next_correlation_id - len(self._protocol.in_flight)
        return f" at the first request; {_WANTS_SASL}" if answered == self._first_correlation_id else ""

    # Throttling (KIP-219), for as long as the broker says, but at most for LONGEST_THROTTLE.

    def _throttle(self, throttle_time_ms: int) -> None:
        seconds = min(throttle_time_ms / 1000, LONGEST_THROTTLE)
        until = self._loop.time() + seconds
        if until > self.throttled_until:
            level = logging.DEBUG if self._was_throttled else logging.INFO  # above a quota every answer says so
            logger.log(level, "%r is throttled for %g s (the broker said %d ms)", self, seconds, throttle_time_ms)
            self._was_throttled = True
            self.throttled_until = until
            self._holding = True
            if self._unmute_timer is not None:
                self._unmute_timer.cancel()
            self._unmute_timer = self._loop.call_at(until, self._unmute)

    def _unmute(self) -> None:
        self._unmute_timer = None
        self.throttled_until = 0.0
        self._release()

    def _release(self) -> None:
        """Write what was held back, if nothing holds it back any longer."""
        if self.throttled_until or self._state is not ConnectionState.READY:
            return
        self._holding = False
        held, self._held = self._held, deque()
        for entry in held:
            try:
                self._write_held(entry)
            except (ValueError, KafkaError) as error:
                if entry.promise is not None:
                    entry.promise.fail(error)
                else:
                    logger.warning("%r: a request that was held back could not be sent: %s", self, error)
        if self._retiring:
            self._close_if_idle()

    def _write_held(self, held: _Held) -> None:
        if held.promise is None:
            self._write_unanswered(held.request, held.version)
        elif not held.promise.future.done():
            held.promise.deadline = self._loop.time() + held.promise.timeout
            self._write(held.request, held.version, held.promise)

    # Deadlines: one timer, set to the earliest of them when it was last set. Answers do not touch it.

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._check_deadlines)

    def _check_deadlines(self) -> None:
        assert self._timer is not None
        now = self._loop.time()
        late, self._timer = now - self._timer.when(), None
        if late > LATE:
            # The loop was blocked, or the machine slept: answers may have come that nobody has had a chance to read.
            self._set_timer(now + min(late, GRACE))
            return
        for request in self._protocol.in_flight:
            if request.promise.deadline <= now + _TICK:
                self._time_out(request)
                return
        self._give_up_held(now)
        deadlines = [request.promise.deadline for request in self._protocol.in_flight]
        deadlines += [held.promise.deadline for held in self._held if held.promise is not None]
        if deadlines:
            self._set_timer(min(deadlines))

    def _time_out(self, request: InFlight[_Promise]) -> None:
        text = f"{self.peer} did not answer {_api(request.request)} within {request.promise.timeout:g} s"
        request.promise.fail(KafkaTimeout(text))
        self.close(KafkaTimeout(text))

    def _give_up_held(self, now: float) -> None:
        kept: deque[_Held] = deque()
        for held in self._held:
            promise = held.promise
            if promise is None or promise.deadline > now + _TICK:
                kept.append(held)
                continue
            if self.throttled_until:
                reason = f"the broker throttles this client for another {self.throttled_until - now:.1f} s"
            else:
                reason = "the broker has not yet accepted who we are once more"
            promise.fail(
                KafkaTimeout(
                    f"{_api(type(held.request))} was not sent to {self.peer} within {promise.timeout:g} s: {reason}"
                )
            )
        self._held = kept

    # Ending.

    def close(self, error: KafkaError | None = None) -> None:
        """Close the connection; whoever waits for an answer gets ``ConnectionLost``, caused by ``error`` if given.

        Without an error what was written still goes out. May be called at any time, and again.
        """
        if self._state is ConnectionState.CLOSED:
            return
        self._advance(ConnectionEvent.CLOSE)
        for timer in (self._timer, self._unmute_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._unmute_timer = None
        if error is None:
            self._wire.close()
        else:
            self._wire.abort()
        logger.debug("%r: %s", self, error or "closed here")
        self.closed.set_result(error)
        held, self._held = self._held, deque()
        for request in self._protocol.take_in_flight():
            request.promise.fail(self._loss(error, sent=True))
        for entry in held:
            if entry.promise is not None:
                entry.promise.fail(self._loss(error, sent=False))

    def retire(self) -> None:
        """Take no more requests, and close as soon as those in flight are answered."""
        self._retiring = True
        self._close_if_idle()

    async def wait_closed(self) -> None:
        """Wait until the transport is gone; to be called after ``close``."""
        await self._wire.wait_closed()

    def _close_if_idle(self) -> None:
        if not self.in_flight:
            self.close()

    def _loss(self, cause: KafkaError | None, *, sent: bool) -> KafkaError:
        if self._opening and cause is not None:
            return cause  # the only one who waits is the opening itself; it reports the cause as it is
        text = str(cause) if cause is not None else f"the connection to {self.peer} was closed here"
        lost = ConnectionLost(text, sent=sent)
        lost.__cause__ = cause
        return lost

    def _unusable(self) -> KafkaError:
        if self._state is ConnectionState.CLOSED:
            cause = self.closed.result()
            lost = ConnectionLost(f"the connection to {self.peer} is closed", sent=False)
            lost.__cause__ = cause
            return lost
        return IllegalStateError(f"{self!r} is not open")

    def _advance(self, event: ConnectionEvent) -> None:
        self._state = next_state(CONNECTION, self._state, event)


def _api(request: type[Message]) -> str:
    return request.__name__.removesuffix("Request")


class _Wire(FramedStream):
    """The connection's transport side."""

    def __init__(self, connection: Connection, max_size: int, peer: str) -> None:
        super().__init__(max_size, peer)
        self._connection = connection

    def frames_received(self, frames: list[Frame]) -> None:
        self._connection._frames_received(frames)

    def stream_ended(self, error: Exception | None) -> None:
        self._connection._stream_ended(error)

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError):
            explained = alert(exc, self.peer)
            if explained is not None:
                self._end(explained)
        super().connection_lost(exc)
