"""One coroutine per connection: read a request, apply faults, let its handler answer, write; one at a time, in order.

A request that waits for something is an ``await`` in its handler. When the client goes away the await is cancelled, but
what the client had sent before is still worked off, as acks=0 producers rely on.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
import struct
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

import anyio

from ..aio.framed_stream import Frame, FramedStreamReader
from ..errors import ConnectionLost, ErrorCode, KafkaError, ProtocolError
from ..protocol.connection import (
    RequestHeader,
    UnknownRequest,
    encode_response,
    encode_unsupported_api_versions,
    parse_request,
)
from ..protocol.messages import ApiVersionsRequest
from ..protocol.schema import Request, Response
from .connection_signals import CloseConnection
from .error_responses import error_response, merge_responses, split_request
from .faults import Exchange, Fault, Outcome

if TYPE_CHECKING:
    from .node import BrokerNode

logger = logging.getLogger(__name__)


class RequestContext:
    """What a handler knows besides the request: the node, the connection, and what the header said."""

    __slots__ = ("client_id", "connection", "header", "node", "principal", "throttle_ms", "version")

    def __init__(self, connection: ServerConnection, header: RequestHeader) -> None:
        self.node = connection.node
        self.connection = connection
        self.header = header
        self.version = header.version
        self.client_id = header.client_id or ""
        self.principal = connection.principal
        self.throttle_ms = 0


class ServerStream(FramedStreamReader):
    """A connection's frames. What is parked for a client that has gone is woken."""

    def __init__(self, node: BrokerNode, max_size: int) -> None:
        super().__init__(max_size, "a client")
        self._node = node
        self.connection: ServerConnection | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.peer = f"client {transport.get_extra_info('peername')}"
        self._node.connected(self)

    def stream_ended(self, error: Exception | None) -> None:
        super().stream_ended(error)
        if self.connection is not None:
            self.connection.client_gone()


class ServerConnection:
    """A client's connection. Owner: its node."""

    def __init__(self, node: BrokerNode, stream: ServerStream) -> None:
        self.connection_id = next(node.cluster.connection_ids)
        self.node = node
        self.stream = stream
        self.principal = "User:ANONYMOUS"
        self.client_software = ("", "")
        self.idle_since: float | None = node.time()  # None while a request is being handled
        self._parked: anyio.CancelScope | None = None
        self._gone = False
        self._node_ended = False
        stream.connection = self

    def __repr__(self) -> str:
        return f"<ServerConnection {self.connection_id} node={self.node.node_id} {self.stream.peer}>"

    @property
    def client_host(self) -> str:
        """The client's address as Kafka writes it."""
        transport = self.stream.transport
        address = None if transport is None else transport.get_extra_info("peername")
        return f"/{address[0]}" if isinstance(address, tuple) else "/memory"

    def client_gone(self) -> None:
        self._gone = True
        if self._parked is not None:
            self._parked.cancel()

    def node_gone(self) -> None:
        """The broker has stopped: what it has not begun it does not do any more."""
        self._node_ended = True
        self.client_gone()

    async def serve(self) -> None:
        """Answer requests until either side ends the connection. Raises nothing but cancellation."""
        try:
            while (frame := await self.stream.read_frame()) is not None:
                self.idle_since = None
                await self.node.until_thawed()
                if self._node_ended:
                    break
                await self._serve_frame(frame)
                del frame
                self.idle_since = self.node.time()
            self.stream.close()
        except CloseConnection:
            self.stream.close()
        except (ProtocolError, ConnectionLost) as error:
            logger.info("%r ends: %.300r", self, str(error))
            self.stream.abort()
        except Exception:
            # A defect of the embedded broker, which must not take the other connections with it.
            logger.exception("%r ends because a request could not be handled", self)
            self.stream.abort()
        except BaseException:
            self.stream.abort()
            raise
        finally:
            self.node.disconnected(self)

    def reset(self) -> None:
        """End the connection so that the client sees a reset; a plain abort looks like an orderly end over TCP."""
        transport = self.stream.transport
        sock = None if transport is None else transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.abort()

    async def _serve_frame(self, frame: Frame) -> None:
        parsed = parse_request(frame)
        header = parsed.header
        if isinstance(parsed, UnknownRequest) or not self.node.speaks(header.api_key, header.version):
            self._refuse_version(header)
            return
        request = parsed.request
        node = self.node
        exchange = Exchange(
            node.node_id,
            self.connection_id,
            header.client_id,
            header.version,
            node.time(),
            request,
            size=len(frame),
        )
        node.cluster.history.add(exchange)
        context = RequestContext(self, header)
        fault = node.cluster.faults.match(node.node_id, request, node.topic_name)
        if fault is None:
            response = await self._handle_measured(context, request)
        else:
            response = await self._suffer(fault, context, request, exchange)
        if node.is_frozen:
            await node.until_thawed()
        if response is not None:
            exchange.response = response
            self.stream.write([encode_response(header, response)])
            await self.stream.drain()
        throttle = max(context.throttle_ms, getattr(response, "throttle_time_ms", 0))
        if throttle:
            await self._mute(throttle / 1000)

    async def _mute(self, seconds: float) -> None:
        """A throttled client is not read from for as long as it was told to wait (KIP-219)."""
        with anyio.CancelScope() as self._parked:
            await asyncio.sleep(seconds)
        self._parked = None

    def _refuse_version(self, header: RequestHeader) -> None:
        if header.api_key != ApiVersionsRequest.api_key:
            raise ProtocolError(f"{header.name} version {header.version} is not spoken here")
        self.stream.write([encode_unsupported_api_versions(header, self.node.unsupported_api_versions())])

    async def _handle_measured(self, context: RequestContext, request: Request[Any]) -> Response | None:
        """Handle a request and count the work towards the client's share, if it has one."""
        quotas = self.node.quotas
        if not quotas.limits_requests(context):
            return await self._handle(context, request)
        began = time.thread_time()
        response = await self._handle(context, request)
        context.throttle_ms = quotas.record_request(context, time.thread_time() - began)
        if response is not None and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, context.throttle_ms)
        return response

    async def _handle(self, context: RequestContext, request: Request[Any]) -> Response | None:
        """Run the handler; what it raises by mistake is answered with UNKNOWN_SERVER_ERROR, as Kafka does."""
        try:
            return await self._parking(self.node.handlers[request.api_key](context, request))
        except (CloseConnection, KafkaError):
            raise
        except Exception:
            logger.exception("%r: %s failed", self, context.header.name)
            failure = error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, context.version)
            if failure is None:
                raise CloseConnection from None
            return failure

    async def _parking(self, answer: Response | Awaitable[Response | None] | None) -> Response | None:
        """An answer, now or when it comes; None once there is nobody to give it to."""
        if not inspect.isawaitable(answer):
            return answer
        response: Response | None = None
        with anyio.CancelScope() as self._parked:
            if self._gone:
                self._parked.cancel()
            response = await answer
        self._parked = None
        return response

    async def _suffer(
        self, fault: Fault, context: RequestContext, request: Request[Any], exchange: Exchange
    ) -> Response | None:
        """Do to a request what a fault says."""
        if fault.wait:
            await self._mute(fault.wait)
        match fault.outcome:
            case Outcome.HANDLE:
                return await self._handle_measured(context, request)
            case Outcome.FAIL:
                return await self._fail(fault, context, request)
            case Outcome.ANSWER:
                assert fault.function is not None
                return await self._parking(fault.function(request))
            case Outcome.DROP:
                return None
            case Outcome.DISCONNECT:
                self.reset()
                raise ConnectionLost("a fault reset the connection", sent=False)
            case Outcome.APPLY_THEN_DISCONNECT:
                exchange.response = await self._handle_measured(context, request)
                self.reset()
                raise ConnectionLost("a fault reset the connection after the request was handled", sent=True)
            case Outcome.REPLY_BYTES:
                self.stream.write([fault.bytes])
                return None
            case Outcome.TRUNCATE:
                exchange.response = await self._handle_measured(context, request)
                if exchange.response is not None:
                    self.stream.write([encode_response(context.header, exchange.response)[: fault.size]])
                raise CloseConnection

    async def _fail(self, fault: Fault, context: RequestContext, request: Request[Any]) -> Response | None:
        hit, rest = split_request(request, fault.is_about, self.node.topic_name)
        failed = error_response(hit, fault.code, context.version)
        if rest is None:
            if failed is None:
                raise CloseConnection  # acks=0: the only way to tell
            return failed
        handled = await self._handle_measured(context, rest)
        if failed is None or handled is None:
            raise CloseConnection
        return merge_responses(failed, handled)
