"""A listener of a broker: a port, and the security protocol that clients use there."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from typing import cast

from ...aio import forks, local_ports, servers
from ...errors import ConfigurationError
from ..closing_log import ClosingLog

logger = logging.getLogger(__name__)

PLAINTEXT = "PLAINTEXT"
WITH_TLS = ("SSL", "SASL_SSL")
WITH_SASL = ("SASL_PLAINTEXT", "SASL_SSL")

HANDSHAKE_TIMEOUT = 10
"""Seconds that a client has for its TLS handshake."""

SHUTDOWN_TIMEOUT = 1.0
"""Seconds that a client has to end TLS, after which the connection is reset."""


class _Tls(SSLProtocol):
    """asyncio's TLS with a small buffer for received bytes: its own has 256 KiB, which each connection would hold."""

    max_size = 32 * 1024


class _Handshake(asyncio.Protocol):
    """Accepts a connection with TLS. ``new_stream`` makes its stream, which gets the transport after the handshake.

    asyncio's own server would run the handshake in a task that nothing ends when the cluster closes. So the handshake
    is in ``handshakes`` until it has ended, with the transport below it.
    """

    def __init__(
        self,
        new_stream: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext,
        handshakes: dict[asyncio.Future[None], asyncio.Transport],
        closings: ClosingLog,
        is_open: Callable[[], bool],
    ) -> None:
        self._new_stream = new_stream
        self._context = context
        self._handshakes = handshakes
        self._is_open = is_open
        self._closings = closings

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        accepted = cast(asyncio.Transport, transport)
        if not self._is_open():  # the listener has ended its handshakes, and would leave this one to its timeout
            accepted.abort()
            return
        loop = asyncio.get_running_loop()
        handshake: asyncio.Future[None] = loop.create_future()
        try:
            encrypted = _Tls(
                loop,
                self._new_stream(),
                self._context,
                handshake,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT,
            )
            accepted.set_protocol(encrypted)
            encrypted.connection_made(accepted)
        except Exception:
            # A defect of the embedded broker. It must not end the other connections.
            logger.exception("a TLS handshake with %s failed", accepted.get_extra_info("peername"))
            accepted.abort()
            return
        self._handshakes[handshake] = accepted
        handshake.add_done_callback(self._ended)

    def _ended(self, handshake: asyncio.Future[None]) -> None:
        accepted = self._handshakes.pop(handshake)
        if handshake.cancelled():
            accepted.abort()
        elif error := handshake.exception():
            self._closings.closed(f"client {accepted.get_extra_info('peername')}", f"the TLS handshake failed: {error}")


def _reason(number: int) -> str:
    # The C library of Windows does not know the numbers of its sockets' errors.
    texts: dict[int, str] = getattr(socket, "errorTab", {})
    return (texts.get(number) or os.strerror(number)).lower()


class Listener:
    """A port of one broker. Owner: the node. The name, as in metadata, is the security protocol."""

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name = name
        self.host = host
        self.port: int = port
        self._server: asyncio.Server | None = None
        self._closing: asyncio.Server | None = None  # until the next turn of the event loop
        self._handshakes: dict[asyncio.Future[None], asyncio.Transport] = {}

    def __repr__(self) -> str:
        return f"<Listener {self.name}://{self.host}:{self.port}>"

    @property
    def is_open(self) -> bool:
        """Whether connections are accepted."""
        return self._server is not None

    @property
    def uses_tls(self) -> bool:
        return self.name in WITH_TLS

    @property
    def uses_sasl(self) -> bool:
        return self.name in WITH_SASL

    async def open(
        self,
        new_stream: Callable[[], asyncio.BaseProtocol],
        ssl_context: ssl.SSLContext | None,
        owner: str,
        closings: ClosingLog,
    ) -> None:
        """Accept connections, on the same port as before. Raises ConfigurationError if the port cannot be used."""
        loop = asyncio.get_running_loop()
        if self._closing is not None:
            await asyncio.sleep(0)
        assert self._closing is None, "the port is released before it is used again"
        accept = (
            new_stream
            if ssl_context is None
            else (lambda: _Handshake(new_stream, ssl_context, self._handshakes, closings, lambda: self.is_open))
        )
        try:
            # If this call also started to serve, it would lose the open port when it is cancelled.
            self._server = await loop.create_server(accept, self.host, self.port, backlog=1024, start_serving=False)
        except OSError as error:
            # The text of asyncio repeats the address. A name without an address has no error number.
            reason = _reason(error.errno) if error.errno is not None and error.errno > 0 else error
            raise ConfigurationError(f"{owner} cannot listen on {self.host}:{self.port}: {reason}") from error
        forks.notify(self)
        self.port = self._server.sockets[0].getsockname()[1]
        local_ports.opened(self.host, self.port)
        await self._server.start_serving()

    def forked(self) -> None:
        """Accept nothing in a forked process: the connections are for the parent."""
        for server in (self._server, self._closing):
            if server is not None:
                forks.detach_server(server)

    def close(self) -> None:
        """Accept no more connections, and end the handshakes. The port is free in the next turn of the event loop."""
        if self._server is not None:
            local_ports.closed(self.host, self.port)
            self._closing, self._server = self._server, None
            servers.stop_accepting(self._closing)
            asyncio.get_running_loop().call_soon(self._release_port, self._closing)
        for handshake in list(self._handshakes):
            handshake.cancel()

    def _release_port(self, server: asyncio.Server) -> None:
        server.close()
        self._closing = None
