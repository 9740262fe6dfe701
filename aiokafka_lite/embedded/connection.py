"""One coroutine for each connection: read a request, apply a fault, run the handler, write the response, in order.

A request that has to wait is an ``await`` in its handler. If the client disconnects, the await is cancelled. Requests
that the client sent before it disconnected are still handled: producers with acks=0 rely on that. So the preparation of
a request is not cancelled when the client disconnects. It ends when the node stops.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from typing import Any, Protocol

import anyio

from ..aio.framed_stream import Frame
from ..errors import ConnectionLost, ErrorCode, KafkaError, ProtocolError
from ..protocol.connection import (
    RequestHeader,
    UnknownRequest,
    encode_response,
    encode_unsupported_api_versions,
    parse_request,
)
from ..protocol.framing import frame as with_size
from ..protocol.messages import ApiVersionsRequest, ApiVersionsResponse, ProduceRequest, SaslHandshakeRequest
from ..protocol.schema import Request, Response
from .closing_log import ClosingLog
from .connection_limits import ConnectionLimits
from .error_responses import error_response, shorten_messages
from .faults import Exchange, Fault, FaultOutcome, Faults, History
from .metadata.controller import Refused
from .request_context import (
    HANDLERS,
    PREPARATIONS,
    Answer,
    BrokerParts,
    CloseConnection,
    RequestContext,
    do_next_step,
    do_step,
)
from .request_topics import merge_responses, split_request
from .security.authentication import Authentication, LoginFailed
from .server_stream import ServerStream

logger = logging.getLogger(__name__)

LOGIN_TIMEOUT = 30.0
"""Seconds that a client has for its login. Kafka has no such limit."""

MAX_TURN = 0.005
"""Seconds that a preparation takes in one iteration of the event loop, unless one step takes longer."""


class Server(Protocol):
    """What the connections of a node share."""

    node_id: int
    parts: BrokerParts
    faults: Faults
    history: History
    limits: ConnectionLimits
    closings: ClosingLog
    connection_ids: itertools.count[int]
    long_work: asyncio.Lock
    """A request holds this lock while its work takes several steps; other requests with such work wait."""

    @property
    def is_frozen(self) -> bool: ...

    async def until_thawed(self) -> None: ...

    def disconnected(self, connection: ServerConnection) -> None: ...


class ServerConnection:
    """The connection of a client. Owner: its node. ``authentication`` is None on a listener without logins.

    ``principal`` is the principal of a client certificate, or the anonymous principal; a login replaces it.
    """

    def __init__(
        self,
        server: Server,
        stream: ServerStream,
        principal: str,
        authentication: Authentication | None,
    ) -> None:
        self.connection_id: int = next(server.connection_ids)
        self.server = server
        self.stream = stream
        self.listener: str = stream.listener.name
        self.principal: str = principal
        self.has_token: bool = False
        self.client_address: str = stream.client_address
        self._time = asyncio.get_running_loop().time
        self.idle_since: float | None = None  # None until it is accepted, and while a request is being handled
        self.silent_since: float | None = None  # None until it is accepted, and after its first request
        self.is_refused: bool = False
        """Whether the broker closes the connection without an answer, because the IP address is above its quota."""
        self._is_accepted = False
        self._authentication = authentication
        self._is_logged_in = False
        self._login_timer: asyncio.TimerHandle | None = None
        self._waiting: asyncio.Task[Any] | None = None  # this connection's task, while a request has to wait
        self._client_disconnected = False
        self._node_stopped = False
        stream.on_disconnected = self.client_disconnected

    def __repr__(self) -> str:
        return f"<ServerConnection {self.connection_id} node={self.server.node_id} {self.stream.peer}>"

    @property
    def client_host(self) -> str:
        """The client's address, in Kafka's form."""
        return f"/{self.client_address}"

    def replace(self) -> None:
        """Close at once, because the client has sent no request, and another client needs the connection."""
        self._report("it has sent no request, and other clients need the connection")
        self.stream.drop()

    def client_disconnected(self) -> None:
        """Cancel the wait of the present request: there is no client to answer."""
        self._client_disconnected = True
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def node_stopped(self) -> None:
        """Handle no more requests, not even requests that have arrived."""
        self._node_stopped = True
        self.client_disconnected()

    async def serve(self) -> None:
        """Answer requests until either side closes the connection. Raises only cancellation."""
        try:
            await self._wait_for(self._accept())
            while self._is_accepted and (frame := await self.stream.read_frame()) is not None:
                # A connection is not idle while its request waits, however long that takes.
                self.idle_since = self.silent_since = None
                if self.server.is_frozen:
                    await self.server.until_thawed()
                if self._node_stopped:
                    break
                if self._authentication is None or not self._log_in_by(self._authentication, frame):
                    await self._serve_frame(frame)
                # A request takes memory until its response is written, so slow handlers hold back their clients.
                self.stream.release(len(frame))
                del frame
                self.idle_since = self._time()
            self.stream.close()
        except CloseConnection as closing:
            if str(closing):
                self._report(str(closing))
            self.stream.close()
        except LoginFailed as failed:
            await self._delay_refusal(failed)
            self.stream.close()
        except ProtocolError as error:
            self._report(str(error))
            self.stream.abort()
        except ConnectionLost as error:
            logger.info("%r closed: %.300r", self, str(error))
            self.stream.abort()
        except Exception:
            # A defect of the embedded broker. It must not end the other connections.
            logger.exception("%r closed because a request failed", self)
            self.stream.abort()
        except BaseException:
            self.stream.abort()
            raise
        finally:
            if self._login_timer is not None:
                self._login_timer.cancel()
            self.stream.release_all()
            self.server.disconnected(self)

    def _report(self, reason: str) -> None:
        """Log why the broker closes this connection."""
        self.server.closings.closed(f"{self.stream.peer} ({self.listener})", reason)

    async def _accept(self) -> None:
        """Wait until the listener accepts this connection. It is served unless its client leaves while it waits."""
        refused_for = await self.server.limits.admit(self.listener, self.client_address)
        if refused_for:
            self.is_refused = True
            self._report("connection_creation_rate of its IP address is used up")
            await asyncio.sleep(refused_for)
            return
        self._is_accepted = True
        self.idle_since = self.silent_since = self._time()
        if self._authentication is not None:
            self._login_timer = asyncio.get_running_loop().call_later(LOGIN_TIMEOUT, self._login_timed_out)

    def _log_in_by(self, authentication: Authentication, frame: Frame) -> bool:
        """Answer a login message that has no header. Returns False if the frame is a request.

        Raises ProtocolError for a request that is not allowed before the login.
        """
        if not authentication.expects_bare_message:
            authentication.check_api(int.from_bytes(frame[:2], "big"))
            return False
        self.stream.write([with_size(authentication.bare_answer(bytes(frame)))])
        self._follow(authentication)
        return True

    async def _serve_frame(self, frame: Frame) -> None:
        server, parts = self.server, self.server.parts
        parsed = parse_request(frame)
        header = parsed.header
        if isinstance(parsed, UnknownRequest) or not parts.versions.has(header.api_key, header.version):
            self._refuse_version(header)
            return
        request = parsed.request
        context = RequestContext(parts, self, header)
        came_at = self._time()
        if type(request) in PREPARATIONS and not await self._prepare(context, request):
            return
        # Recorded now and not on arrival, because the history has the order in which requests take effect.
        exchange = Exchange(
            server.node_id, self.connection_id, header.client_id, header.version, came_at, request, size=len(frame)
        )
        server.history.add(exchange)
        fault = server.faults.match(server.node_id, request, parts.metadata.topic_name)
        is_refused = False
        try:
            if fault is None:
                response = await self._handle_measured(context, request)
            else:
                response = await self._apply_fault(fault, context, request, exchange)
        except LoginFailed as failed:
            await self._delay_refusal(failed)
            response, is_refused = failed.response, True
        handled_at = self._time()
        context.broker.replica_manager.counters.apis[header.api_key].handled(handled_at - came_at)
        # The node may have been frozen while the handler waited. A frozen node sends nothing.
        if server.is_frozen:
            await server.until_thawed()
        if response is not None:
            exchange.response, exchange.handled_at = response, handled_at
            self.stream.write([_encoded(header, response)])
            if self.stream.is_full:
                await self.stream.drain()
        if is_refused:
            raise CloseConnection
        # The throttle time of the context also applies if there is no response (acks=0).
        throttle = max(context.throttle_ms, getattr(response, "throttle_time_ms", 0))
        if throttle:
            await self._pause_reading(throttle / 1000)

    async def _prepare(self, context: RequestContext, request: Request[Any]) -> bool:
        """Do the long work that comes before the handler. Returns False if the node has stopped meanwhile."""
        if self._authentication is not None and not self._is_logged_in:
            return True
        turn_began = context.busy
        for work in PREPARATIONS[type(request)](context, request):
            if context.busy - turn_began > MAX_TURN:
                await self._let_others_run()
                turn_began = context.busy
            if do_step(context, work):
                if self.server.long_work.locked():
                    work.restart()  # of all requests that wait here, only one has its records decompressed
                async with self.server.long_work:
                    while not self._node_stopped and await do_next_step(context, work):
                        await self._let_others_run()
                    await self._let_others_run()  # the node may have been frozen during a step in a thread
        return not self._node_stopped

    async def _let_others_run(self) -> None:
        await asyncio.sleep(0)
        if self.server.is_frozen:
            await self.server.until_thawed()

    async def _pause_reading(self, seconds: float) -> None:
        """Read nothing from a throttled client for its throttle time (KIP-219)."""
        await self._wait_for(asyncio.sleep(seconds))

    def _refuse_version(self, header: RequestHeader) -> None:
        if header.api_key != ApiVersionsRequest.api_key:
            raise ProtocolError(f"{header.name} version {header.version} is not supported")
        self.stream.write([encode_unsupported_api_versions(header, self.server.parts.versions.refusal())])

    async def _handle_measured(self, context: RequestContext, request: Request[Any]) -> Response | None:
        """Handle a request. If the client has a request quota, count the work towards it; acks=0 is exempt."""
        quotas = context.broker.quotas
        is_exempt = isinstance(request, ProduceRequest) and request.acks == 0
        if is_exempt or not quotas.limits_requests(context.principal, context.client_id):
            return await self._handle(context, request)
        began = time.thread_time()
        response = await self._handle(context, request)
        busy = time.thread_time() - began + context.busy
        throttle_ms = quotas.record_request(context.principal, context.client_id, busy)
        context.throttle_ms = max(context.throttle_ms, throttle_ms)
        if response is not None and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, context.throttle_ms)
        return response

    async def _handle(self, context: RequestContext, request: Request[Any]) -> Response | None:
        """Run the handler. As in Kafka, the client gets UNKNOWN_SERVER_ERROR if the handler has a defect."""
        try:
            if self._authentication is None or (self._is_logged_in and type(request) is not SaslHandshakeRequest):
                answer = HANDLERS[type(request)](context, request)
            else:
                answer = self._log_in(self._authentication, context, request)
            return await self._wait_for(answer)
        except Refused as refusal:  # before its base class KafkaError, which closes the connection
            logger.info("%r refused %s: %s", self, type(request).__name__, refusal)
            return _failure(context, request, refusal.code)
        except (CloseConnection, KafkaError, LoginFailed):
            raise
        except Exception:
            logger.exception("%r: the handler of %s failed", self, type(request).__name__)
            return _failure(context, request, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _log_in(self, authentication: Authentication, context: RequestContext, request: Request[Any]) -> Answer:
        """Handle a request of the login, or ApiVersions before it."""
        response = authentication.answer(request, context.version)
        self._follow(authentication)
        if response is not None:
            return response
        answer = HANDLERS[type(request)](context, request)
        if isinstance(answer, ApiVersionsResponse) and answer.error_code == ErrorCode.NONE:
            authentication.versions_answered()
        return answer

    def _follow(self, authentication: Authentication) -> None:
        """Change the frames that the connection accepts after a change of the login."""
        if authentication.is_complete is self._is_logged_in:
            return
        self._is_logged_in = authentication.is_complete
        limit = "socket.request.max.bytes" if self._is_logged_in else "sasl.server.max.receive.size"
        self.stream.accept(self.server.parts.settings.of_listener(self.listener).number(limit))
        if self._is_logged_in:
            self.principal, self.has_token = f"User:{authentication.name}", authentication.by_token
            logger.debug("%r logged in as %r", self, authentication.name)
            if self._login_timer is not None:
                self._login_timer.cancel()

    def _login_timed_out(self) -> None:
        self._report(f"the client did not log in within {LOGIN_TIMEOUT:g} s")
        self.stream.close()

    async def _delay_refusal(self, failed: LoginFailed) -> None:
        """Wait before the answer to a failed login, so that passwords cannot be guessed quickly."""
        self._report(f"its login was refused: {failed}")
        await self._pause_reading(self.server.parts.settings.seconds("connection.failed.authentication.delay.ms"))

    async def _wait_for(self, answer: Answer) -> Response | None:
        """Wait for a response that is not there yet, and return it; None if the client disconnects first."""
        if answer is None or isinstance(answer, Response):
            return answer
        if self._client_disconnected:
            # The handler runs up to its first wait: a producer with acks=0 relies on that, and has left meanwhile.
            with anyio.CancelScope() as scope:
                scope.cancel()
                return await answer
            return None
        # This runs for every request: a cancel scope would take 12 µs of the 60 µs of a small one.
        self._waiting = task = asyncio.current_task()
        assert task is not None
        try:
            response = await answer
            if self._waiting is None:
                await asyncio.sleep(0)  # the handler has caused the cancellation, which is raised at the next await
            return response
        except asyncio.CancelledError:
            if self._waiting is None and task.uncancel() == 0:
                return None
            raise
        finally:
            self._waiting = None

    async def _apply_fault(
        self, fault: Fault, context: RequestContext, request: Request[Any], exchange: Exchange
    ) -> Response | None:
        """Apply the effect of the fault instead of, or besides, handling the request."""
        if fault.wait:
            await self._pause_reading(fault.wait)
        match fault.outcome:
            case FaultOutcome.HANDLE:
                return await self._handle_measured(context, request)
            case FaultOutcome.FAIL:
                return await self._fail(fault, context, request)
            case FaultOutcome.ANSWER:
                assert fault.function is not None
                return await self._wait_for(fault.function(request))
            case FaultOutcome.ALTER:
                assert fault.alteration is not None
                response = await self._handle_measured(context, request)
                return None if response is None else fault.alteration(response)
            case FaultOutcome.DROP:
                return None
            case FaultOutcome.DISCONNECT:
                self.stream.reset()
                raise ConnectionLost("a fault reset the connection", sent=False)
            case FaultOutcome.APPLY_THEN_DISCONNECT:
                exchange.response = await self._handle_measured(context, request)
                exchange.handled_at = self._time()
                self.stream.reset()
                raise ConnectionLost("a fault reset the connection after the request was handled", sent=True)
            case FaultOutcome.REPLY_BYTES:
                self.stream.write([fault.bytes])
                return None
            case FaultOutcome.TRUNCATE:
                exchange.response = await self._handle_measured(context, request)
                exchange.handled_at = self._time()
                if exchange.response is not None:
                    self.stream.write([encode_response(context.header, exchange.response)[: fault.size]])
                raise CloseConnection

    async def _fail(self, fault: Fault, context: RequestContext, request: Request[Any]) -> Response | None:
        """Fail the part of the request that the fault concerns, and handle the rest."""
        hit, rest = split_request(request, fault.is_about, context.broker.metadata.topic_name)
        if rest is None:
            return _failure(context, hit, fault.code)
        handled = await self._handle_measured(context, rest)
        failed = _failure(context, hit, fault.code)
        if handled is None:
            raise CloseConnection
        return merge_responses(request, failed, handled)


def _failure(context: RequestContext, request: Request[Any], code: ErrorCode) -> Response:
    """Return the response in which a request failed.

    Raises CloseConnection with acks=0, which has no response: only a closed connection reports the error.
    """
    response = error_response(request, code, context.version)
    if response is None:
        raise CloseConnection
    return response


def _encoded(header: RequestHeader, response: Response) -> bytearray:
    try:
        return encode_response(header, response)
    except ValueError:
        shorten_messages(response)
        return encode_response(header, response)
