"""How a transport to an address is made: the one place where the client touches sockets.

A connector is anything with a ``connect`` like ``TcpConnector``'s. The embedded cluster has one that stays in memory.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

from ..arguments import check_methods
from ..errors import ConnectionLost
from ..types import printable
from .tls import handshake_failure

P = TypeVar("P", bound=asyncio.BaseProtocol)

SocketAddress: TypeAlias = tuple[socket.AddressFamily, tuple[object, ...]]


class Connector(Protocol):
    """Makes transports."""

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], P]) -> tuple[asyncio.BaseTransport, P]:
        """Connect a new protocol to an address. Raises ``ConnectionLost`` or ``OSError``; may be cancelled."""


def check_connector(connector: object) -> None:
    """Raise ConfigurationError unless it is one; None stands for the usual one."""
    if connector is not None:
        check_methods("connector", connector, "connect")


def format_address(host: str, port: int) -> str:
    """``host:port`` as people write it."""
    host = printable(host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


_LEFT_OVER = 0.1
"""Share of the timeout that is left to the rest of opening, so that a handshake that hangs is said to be what hung."""


class TcpConnector:
    """TCP, with TLS if there is a context. Every address of a name is tried in turn until one accepts.

    ``timeout`` seconds are shared by the addresses of a name, so that one that swallows packets leaves time for the
    others. When none accepts, the error says what each of them did. The peer's certificate has to be for the name, or
    the address, that was asked for, unless the context says otherwise; it is also what the peer is asked for by SNI.
    """

    def __init__(self, timeout: float = 10.0, ssl_context: ssl.SSLContext | None = None) -> None:
        self._timeout = timeout
        self._ssl_context = ssl_context

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], P]) -> tuple[asyncio.BaseTransport, P]:
        """Connect to the first address that accepts. Raises ``ConnectionLost``, which names host and causes.

        With TLS also ``AuthenticationError``, when one side does not trust the other, and ``WrongProtocol``.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        addresses = await _resolve(host, port)
        failures = []
        for position, (family, address) in enumerate(addresses):
            share = (deadline - loop.time()) / (len(addresses) - position)
            try:
                async with asyncio.timeout(share):
                    connected = await _connect_socket(family, address)
            except OSError as error:  # a TimeoutError is one, too
                failures.append(f"{_numeric(address)}: {_reason(error)}")
                continue
            if self._ssl_context is None:
                return await loop.create_connection(protocol_factory, sock=connected)
            left = max(deadline - loop.time() - self._timeout * _LEFT_OVER, _LEAST_HANDSHAKE)
            return await _encrypt(connected, self._ssl_context, host, port, protocol_factory, left)
        raise ConnectionLost(f"cannot connect to {format_address(host, port)} ({'; '.join(failures)})", sent=False)


_LEAST_HANDSHAKE = 0.05
_SHUTDOWN = 1.0
"""Seconds that a peer has to end TLS from its side. Whole frames are what counts here, not how a stream ends."""


async def _encrypt(
    connected: socket.socket,
    context: ssl.SSLContext,
    host: str,
    port: int,
    protocol_factory: Callable[[], P],
    timeout: float,
) -> tuple[asyncio.BaseTransport, P]:
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_connection(
            protocol_factory,
            sock=connected,
            ssl=context,
            server_hostname=host.partition("%")[0].removesuffix("."),
            ssl_handshake_timeout=timeout,
            ssl_shutdown_timeout=_SHUTDOWN,
        )
    except (OSError, ValueError) as error:  # a name that is none, as one that begins with a dot, is a ValueError
        if isinstance(error, OSError):
            raise handshake_failure(error, format_address(host, port)) from error
        raise ConnectionLost(f"no certificate can be for {format_address(host, port)}: {error}", sent=False) from error


async def _resolve(host: str, port: int) -> list[SocketAddress]:
    literal = _literal(host, port)
    if literal is not None:
        return [literal]  # spares a thread
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # a label of more than 63 characters fails as UnicodeError
        raise ConnectionLost(f"cannot resolve the host name {host!r}: {_reason(error)}", sent=False) from error
    addresses = [(family, address) for family, _, _, _, address in found]
    if not addresses:
        raise ConnectionLost(f"the host name {host!r} has no address", sent=False)
    return list(dict.fromkeys(addresses))


def _literal(host: str, port: int) -> SocketAddress | None:
    """The address itself, where the host is one. Scoped IPv6 addresses need the resolver for their interface."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.version == 4:
        return socket.AF_INET, (host, port)
    return None if "%" in host else (socket.AF_INET6, (host, port, 0, 0))


async def _connect_socket(family: socket.AddressFamily, address: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await asyncio.get_running_loop().sock_connect(made, address)
    except BaseException:
        made.close()
        raise
    return made


def _numeric(address: tuple[object, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def _reason(error: BaseException) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused, nothing listens there"
    if isinstance(error, TimeoutError) and error.errno is None:
        return "no answer"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
