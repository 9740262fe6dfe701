"""The requests of one connection that have no response yet: written requests and held requests.

A broker answers the requests of a connection in the order in which it received them. So requests are written one after
another without waiting (pipelining), and the next response is always for the oldest request.

Rule 1: A request keeps its place until it is answered. A caller that stops waiting cancels its own promise. Then the
response is dropped, and the other requests are not affected.

Rule 2: A written request that is not answered in time ends the connection: no later request can be answered either.

Rule 3: A response that does not belong to the oldest request ends the connection: no later response can be trusted.

Rule 4: Requests are held back, in order, for three reasons. The broker throttles this client (KIP-219), the connection
logs in again (KIP-368), or ``max_open`` requests have no response. A held request was not sent, so its timeout does not
end the connection. ``_is_holding`` is one flag for the three reasons, because each request reads it.

One timer watches all deadlines. It is set to the earliest deadline when a request is added. Responses do not change it.
Usually it fires, finds a younger request, and is set again. That costs less than a timer per request.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from ..aio import forks
from ..aio.framed_stream import Frame
from ..arguments import in_seconds
from ..errors import KafkaError, KafkaTimeout
from ..protocol.connection import LARGE, ClientProtocol, InFlightRequest
from ..protocol.framing import SIZE_PREFIX
from ..protocol.schema import Message, Request
from .traffic import TrafficCounters

logger = logging.getLogger(__name__)

R = TypeVar("R")

LATE_TIMER = 0.5
"""The largest delay of a timer, in seconds. After a longer one, the event loop was blocked, or the machine slept."""

READ_TIME = 1.0
"""Seconds after a block of the loop until requests may time out. The loop first reads the responses that arrived."""

LONGEST_THROTTLE = 60.0
"""The longest time, in seconds, for which requests are held back. A longer throttle time in a response is reduced to
this limit. Quotas of brokers use windows of some seconds, and the next response throttles again if necessary. Without
the limit, a wrong value could stop a connection for weeks.
"""

_TIMER_PRECISION = 0.001
"""Seconds by which a timer of the loop may fire early."""


class _Promise:
    """The promise of a response, as a future or with a callback.

    ``deadline`` is in the loop's time, ``timeout`` in seconds. ``in_parts`` names the array that the caller decodes in
    parts if the response is large; for most requests it is empty. A callback is called once, in the iteration of the
    loop that reads the outcome. A future costs one more iteration.
    """

    __slots__ = ("callback", "deadline", "future", "in_parts", "timeout")

    def __init__(
        self,
        future: asyncio.Future[Any] | None,
        callback: Callable[[Any], object] | None,
        timeout: float,
        deadline: float,
        in_parts: str = "",
    ) -> None:
        self.future = future
        self.callback = callback
        self.timeout = timeout
        self.deadline = deadline
        self.in_parts = in_parts

    @property
    def is_dropped(self) -> bool:
        """Whether the caller has cancelled the future."""
        return self.future is not None and self.future.done()

    def fulfil(self, response: object) -> None:
        # The caller may have cancelled the promise (rule 1). The response still had to be taken from the stream.
        if self.future is not None:
            if not self.future.done():
                self.future.set_result(response)
        elif self.callback is not None:
            callback, self.callback = self.callback, None
            callback(response)

    def fail(self, error: Exception) -> None:
        """Fail the promise.

        Only the first failure counts. A request that has timed out is failed again when the connection closes.
        """
        if self.future is not None:
            if not self.future.done():
                self.future.set_exception(error)
                # Marks the exception as retrieved, because the caller may have dropped the promise.
                self.future.exception()
        elif self.callback is not None:
            callback, self.callback = self.callback, None
            callback(error)


class _Held(NamedTuple):
    """A request that is held back. ``promise`` is None if the broker will not answer it."""

    request: Request[Any]
    version: int
    promise: _Promise | None


_NONE_HELD: deque[_Held] = deque(maxlen=0)
"""The shared queue of all connections that hold nothing back: an empty deque takes 760 bytes."""


class InFlightRequests:
    """Writes the requests of one connection and fulfils their promises. Owned by that connection.

    ``write`` takes the parts of a frame. ``on_timeout`` is called when a written request times out, and must close the
    connection. ``on_idle`` is called when held requests were dropped and no request remains. ``max_open`` requests may
    be without a response.
    """

    def __init__(
        self,
        peer: str,
        client_id: str | None,
        *,
        write: Callable[[Sequence[bytearray]], None],
        on_timeout: Callable[[KafkaTimeout], None],
        on_idle: Callable[[], None],
        max_open: float = math.inf,
        counters: TrafficCounters | None = None,
    ) -> None:
        self.throttled_until: float = 0.0
        """The loop's time until which the broker throttles this client; 0.0 if it does not."""
        self.hide_secrets: Callable[[Message], None] | None = None
        """Hides the secrets of the login in the error texts of responses. None without a login."""
        self.last_used: float = 0.0
        """The loop's time of the last request."""
        self._client_id = client_id
        self._write = write
        self._on_timeout = on_timeout
        self._on_idle = on_idle
        self._max_open = max_open
        self._counters = TrafficCounters() if counters is None else counters
        self._loop = asyncio.get_running_loop()
        self._generation = forks.generation
        self._protocol: ClientProtocol[_Promise] = ClientProtocol(peer)
        self._held = _NONE_HELD
        self._is_logging_in = False
        self._is_holding = False  # rule 4
        self._was_throttled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._throttle_timer: asyncio.TimerHandle | None = None
        self._first_of_users = 0  # the first correlation id after the handshake

    def __len__(self) -> int:
        """Return the number of requests without a response, held ones included."""
        return len(self._protocol.in_flight) + len(self._held)

    @property
    def written(self) -> int:
        """The number of written requests without a response."""
        return len(self._protocol.in_flight)

    @property
    def is_first_unanswered(self) -> bool:
        """Whether requests were written after the handshake, and none of them was answered."""
        in_flight = self._protocol.in_flight
        return bool(in_flight) and self._protocol.next_correlation_id - len(in_flight) == self._first_of_users

    # Requests. Hot: a few microseconds more than the encoding itself.

    def send(self, request: Request[R], version: int, timeout: float, in_parts: str = "") -> asyncio.Future[R]:
        """Write a request, or hold it back, and return the promise of its response.

        With ``in_parts``, the name of an array, a large response is a PartialResponse. Raises ConnectionLost if the
        transport is closed. Raises UnsupportedVersion if the request needs a newer version than the broker has, and
        ValueError if no version can carry it.
        """
        future: asyncio.Future[R] = self._loop.create_future()
        self._send(request, version, timeout, future, None, in_parts)
        return future

    def send_with_callback(
        self, request: Request[R], version: int, timeout: float, callback: Callable[[R | Exception], object]
    ) -> None:
        """Send like ``send``, but call ``callback`` with the response or the error, in the iteration that reads it.

        ``callback`` must not raise. It may be called before this method returns, when the transport fails at once.
        """
        self._send(request, version, timeout, None, callback)

    def _send(
        self,
        request: Request[Any],
        version: int,
        timeout: float,
        future: asyncio.Future[Any] | None,
        callback: Callable[[Any], object] | None,
        in_parts: str = "",
    ) -> None:
        now = self.last_used = self._loop.time()
        deadline = now + timeout
        promise = _Promise(future, callback, timeout, deadline, in_parts)
        # The timer stays if encoding fails below: a timer that finds no request is harmless.
        if deadline < self._timer_at:
            self._set_timer(deadline)
        if self._is_holding:
            self._hold(_Held(request, version, promise))
        else:
            # encode_request() puts the promise in flight: a transport that fails in write() reports that at once.
            frame = self._protocol.encode_request(request, version, self._client_id, promise)
            try:
                self._write_frame(frame)
            except KafkaError:
                # The caller gets this error, so ``fail_all`` must not report the request a second time.
                promise.callback = None
                raise
            in_flight = len(self._protocol.in_flight)
            assert in_flight <= self._max_open, "at most max_open requests have no response (rule 4)"
            if in_flight == self._max_open:
                self._is_holding = True

    def send_in_handshake(self, request: Request[R], version: int, timeout: float) -> asyncio.Future[R]:
        """Write a request of the connection itself, which is never held back. ``timeout`` may be infinite."""
        # ``last_used`` does not change: a new login must not keep open a connection that users no longer need.
        future: asyncio.Future[R] = self._loop.create_future()
        promise = _Promise(future, None, timeout, self._loop.time() + timeout)
        if promise.deadline < self._timer_at:
            self._set_timer(promise.deadline)
        self._write_frame(self._protocol.encode_request(request, version, self._client_id, promise))
        return future

    def send_unanswered(self, request: Request[Any], version: int) -> None:
        """Write a request that the broker does not answer, or hold it back. Raises the errors of ``send``."""
        self.last_used = self._loop.time()
        if self._is_holding:
            self._hold(_Held(request, version, None))
        else:
            self._write_frame(self._protocol.encode_unanswered_request(request, version, self._client_id))

    def _write_frame(self, frame: bytearray) -> None:
        counters = self._counters
        counters.requests += 1
        counters.bytes_sent += len(frame)
        self._write((frame,))

    def receive(self, frames: list[Frame]) -> None:
        """Fulfil the promises of the oldest requests. After a ProtocolError, the caller must close the connection."""
        protocol, counters, now = self._protocol, self._counters, self._loop.time()
        counters.last_response_at = now
        for frame in frames:
            counters.responses += 1
            counters.bytes_received += SIZE_PREFIX + len(frame)
            in_parts = ""
            if len(frame) >= LARGE and protocol.in_flight:
                in_parts = protocol.in_flight[0].promise.in_parts
            request, response = protocol.receive(frame, in_parts=in_parts)
            if self.hide_secrets is not None:
                self.hide_secrets(response)
            # This comes before the promise is fulfilled, so that the caller's next request is held back.
            throttle_ms = response.client_throttle_ms(request.version)
            if throttle_ms > 0:
                self._throttle(throttle_ms)
            promise = request.promise
            if promise.timeout < math.inf:  # the response to the handshake's first request has no throttle time
                counters.latencies.add(now - promise.deadline + promise.timeout)
            promise.fulfil(response)
        if self._is_holding:
            self._release()

    def fail_all(self, written: Exception, unsent: Exception) -> None:
        """Fail all written and held requests, and stop the timers, because the connection is closed."""
        # Timers are stopped first, because no timer may fire for a closed connection.
        for timer in (self._timer, self._throttle_timer):
            if timer is not None:
                timer.cancel()
        dropped, self._held = self._held, _NONE_HELD
        for request in self._protocol.take_in_flight():
            request.promise.fail(written)
        for entry in dropped:
            if entry.promise is not None:
                entry.promise.fail(unsent)

    # Holding back.

    def _hold(self, entry: _Held) -> None:
        if self._held is _NONE_HELD:
            self._held = deque()
        self._held.append(entry)

    def handshake_ended(self) -> None:
        """End the handshake. All later requests come from users."""
        self.last_used = self._loop.time()
        self._first_of_users = self._protocol.next_correlation_id

    def hold_for_login(self) -> None:
        """Hold requests back from now on, because the connection logs in again."""
        self._is_logging_in = self._is_holding = True

    def release_after_login(self) -> None:
        """Write the held requests, unless the broker throttles this client."""
        # A throttle and a login may overlap. The last pause that ends releases the requests.
        self._is_logging_in = False
        self._release()

    def _throttle(self, throttle_time_ms: int) -> None:
        seconds = min(throttle_time_ms / 1000, LONGEST_THROTTLE)
        self._counters.throttle_time += seconds
        until = self._loop.time() + seconds
        # A later response with a shorter time must not end a longer throttle.
        if until > self.throttled_until:
            # Above a quota, every response throttles the client, so only the first one is logged.
            level = logging.DEBUG if self._was_throttled else logging.INFO
            logger.log(
                level,
                "%s throttles this client for %g s (throttle_time_ms=%d)",
                self._protocol.peer,
                seconds,
                throttle_time_ms,
            )
            self._was_throttled = True
            self.throttled_until = until
            self._is_holding = True
            if self._throttle_timer is not None:
                self._throttle_timer.cancel()
            self._throttle_timer = self._loop.call_at(until, self._throttle_ended)

    def _throttle_ended(self) -> None:
        if self._generation != forks.generation:  # the requests are for the parent of this process
            return
        self._throttle_timer = None
        self.throttled_until = 0.0
        self._release()

    def _release(self) -> None:
        if self.throttled_until or self._is_logging_in:
            return
        in_flight, queue = self._protocol.in_flight, self._held
        # Each request has its own error handling: if the version cannot carry one request, the next ones must be sent.
        while queue and len(in_flight) < self._max_open:
            entry = queue.popleft()
            try:
                self._write_held(entry)
            except Exception as error:  # noqa: BLE001 - this request alone fails, with any error, as if it was not held
                if entry.promise is not None:
                    entry.promise.fail(error)
                else:
                    logger.warning("failed to send a held request to %s: %s", self._protocol.peer, error)
        self._is_holding = len(in_flight) >= self._max_open
        self._check_idle()

    def _write_held(self, entry: _Held) -> None:
        request, version, promise = entry
        if promise is None:
            self._write_frame(self._protocol.encode_unanswered_request(request, version, self._client_id))
        # A cancelled request that was never sent is simply left out.
        elif not promise.is_dropped:
            # The broker has the whole timeout from the moment of writing; the time of the throttle does not count.
            promise.deadline = self._loop.time() + promise.timeout
            self._write_frame(self._protocol.encode_request(request, version, self._client_id, promise))

    def _check_idle(self) -> None:
        if not len(self):
            self._on_idle()

    # Deadlines.

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(when, self._check_deadlines), when

    def _check_deadlines(self) -> None:
        if self._generation != forks.generation:  # the answers go to the parent of this process
            return
        now = self._loop.time()
        late, self._timer, self._timer_at = now - self._timer_at, None, math.inf
        if late > LATE_TIMER:
            # Responses may have arrived that the loop could not read yet. Check again after it has read them.
            self._set_timer(now + min(late, READ_TIME))
            return
        # All requests are checked, because an older Fetch or JoinGroup may have a longer timeout than a newer request.
        for request in self._protocol.in_flight:
            if request.promise.deadline <= now + _TIMER_PRECISION:
                # The connection is closed now, and ``fail_all`` has ended everything else (rule 2).
                self._time_out(request)
                return
        self._time_out_held(now)
        # A cancelled request still counts: its place in the order is needed until it is answered (rule 1).
        deadlines = [request.promise.deadline for request in self._protocol.in_flight]
        deadlines += [entry.promise.deadline for entry in self._held if entry.promise is not None]
        if deadlines:
            self._set_timer(min(deadlines))

    def _time_out(self, request: InFlightRequest[_Promise]) -> None:
        seconds = request.promise.timeout
        text = f"{self._protocol.peer} did not answer {api_name(request.request)} within {in_seconds(seconds)}"
        request.promise.fail(KafkaTimeout(text))
        self._on_timeout(KafkaTimeout(text))

    def _time_out_held(self, now: float) -> None:
        kept: deque[_Held] = deque()
        for entry in self._held:
            promise = entry.promise
            if promise is None or promise.deadline > now + _TIMER_PRECISION:
                kept.append(entry)
                continue
            if self.throttled_until:
                reason = f"the broker throttles this client for another {self.throttled_until - now:.1f} s"
            elif self._is_logging_in:
                reason = "the connection is logging in again"
            else:
                reason = f"{len(self._protocol.in_flight)} earlier requests are not answered (max_open_requests)"
            name = api_name(type(entry.request))
            promise.fail(
                KafkaTimeout(
                    f"{name} was not sent to {self._protocol.peer} within {in_seconds(promise.timeout)}: {reason}"
                )
            )
        if len(kept) < len(self._held):
            self._held = kept
            self._check_idle()


def api_name(request: type[Message]) -> str:
    """Return the name of the API, as in ``Fetch``."""
    return request.__name__.removesuffix("Request")
