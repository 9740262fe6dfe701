"""Connects a transport to an address: no other module of the client uses sockets.

A connector is any object with the ``connect`` method of ``TcpConnector``. The embedded cluster has a connector
that connects in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Protocol, TypeAlias, TypeVar

import anyio

from ..aio import forks
from ..arguments import check_methods
from ..errors import ConnectionLost
from ..types import printable

logger = logging.getLogger(__name__)

P = TypeVar("P", bound=asyncio.BaseProtocol)

SocketAddress: TypeAlias = tuple[socket.AddressFamily, tuple[object, ...]]


class Connector(Protocol):
    """Connects transports.

    A connector with a method ``handshake_ended`` is told whether each connection became ready, like TcpConnector.
    """

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], P]) -> tuple[asyncio.BaseTransport, P]:
        """Connect a new protocol to an address. Raises ConnectionLost or OSError. May be cancelled."""


default_connector: ContextVar[Connector | None] = ContextVar("default_connector", default=None)
"""The connector of clients that are created without one; None is TCP. A simulation sets it around a service."""


def check_connector(connector: object) -> None:
    """Raise ConfigurationError unless the value is a connector, or None for the default."""
    if connector is not None:
        check_methods("connector", connector, "connect")


def format_address(host: str, port: int) -> str:
    """Return ``host:port``, with an IPv6 address in brackets."""
    host = printable(host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


ADDRESS_ERRORS = (OSError, OverflowError, ValueError)
"""The exceptions that sockets and the resolver raise for an address. OverflowError: a port outside the range.
ValueError: a NUL in the name, or a label of more than 63 characters (UnicodeError)."""

HANDSHAKE_RESERVE = 0.1
"""The fraction of the timeout that the TLS handshake, or a proxy, may not use. So it times out before the whole
attempt, and the error names it."""


class TcpConnector:
    """TCP, with TLS if there is an SSL context. Tries each address of a host name until one accepts.

    An address may accept connections although no broker answers behind it: a port forward of a container engine, or a
    load balancer without a target. After such a connection, the next one begins with another address of the name.

    The addresses share ``timeout`` seconds, so that a silent address leaves time for the next one. If no address
    accepts, the error has a reason for each. ``local_address`` is the IP address to connect from, None for any.

    ``ssl_context`` may be a function that returns the context for each connection. The peer's certificate must be for
    the requested host name or address, unless the context skips that check. The client sends the host name by SNI.
    """

    def __init__(
        self,
        timeout: float = 10.0,
        ssl_context: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None,
        local_address: str | None = None,
    ) -> None:
        self._timeout = timeout
        self._ssl_context = ssl_context
        self._local_address = local_address
        self._failed: dict[tuple[str, int], list[str]] = {}
        """The addresses of a name that accepted a connection that was never ready, the oldest failure first."""
        self._last: dict[tuple[str, int], tuple[str, int]] = {}
        """The address that accepted the last connection to a name, and the number of its addresses."""

    def handshake_ended(self, host: str, port: int, transport: asyncio.BaseTransport | None, *, ready: bool) -> None:
        """Remember an address that accepted a connection and failed. Forget it when a connection is ready."""
        peer = None if transport is None else transport.get_extra_info("peername")
        address, count = self._last.get((host, port), ("", 0))
        if peer:
            address = _numeric(peer)
        failed = [failed_address for failed_address in self._failed.pop((host, port), ()) if failed_address != address]
        if not ready and address and count > 1:
            text = (
                "%s has %d addresses, and %s failed before a connection was ready; the next attempt takes another one"
            )
            logger.info(text, format_address(host, port), count, address)
            failed.append(address)
        if failed:
            self._failed[host, port] = failed

    def _in_order(self, host: str, port: int, addresses: list[SocketAddress]) -> list[SocketAddress]:
        """Return the addresses as the resolver gave them, except that those that failed come last."""
        order = {name: place for place, name in enumerate(self._failed.get((host, port), ()), 1)}
        return sorted(addresses, key=lambda address: order.get(_numeric(address[1]), 0)) if order else addresses

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], P]) -> tuple[asyncio.BaseTransport, P]:
        """Connect to the first address that accepts. Raises ConnectionLost, which names the host and the causes.

        Raises IllegalStateError if the server is in another event loop of this thread, so that it cannot answer. With
        TLS it also raises AuthenticationError if one side does not trust the other, and WrongProtocol.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        self._last.pop((host, port), None)
        addresses = self._in_order(host, port, await _resolve(host, port))
        _check_servers(addresses, port)
        failures = []
        for position, (family, address) in enumerate(addresses):
            share = (deadline - loop.time()) / (len(addresses) - position)
            connected = None
            try:
                with anyio.move_on_after(share):
                    connected = await _connect_socket(family, address, self._local_address)
            except ADDRESS_ERRORS as error:
                failures.append(f"{_numeric(address)}: {reason_of(error)}")
                continue
            if connected is None:
                failures.append(f"{_numeric(address)}: no answer")
                continue
            if len(addresses) > 1:
                self._last[host, port] = _numeric(address), len(addresses)
            ends = deadline - self._timeout * HANDSHAKE_RESERVE
            return await open_stream(connected, self._ssl_context, (host, port), protocol_factory, ends)
        target = format_address(host, port)
        reasons = "; ".join(failures).removeprefix(f"{target}: ")  # a host that is an IP address is named once
        raise ConnectionLost(f"cannot connect to {target} ({reasons})", sent=False)


def _check_servers(addresses: Sequence[SocketAddress], port: int) -> None:
    """Raise IllegalStateError for a server of this process that cannot answer while this event loop runs."""
    from ..aio import local_ports  # imported here, because few programs have a server too

    for _, address in addresses:
        local_ports.check(str(address[0]), port)


_MIN_HANDSHAKE = 0.05
"""The shortest timeout of a TLS handshake, in seconds."""

_SHUTDOWN = 1.0
"""Seconds that a peer has to end TLS. An unclean end does no harm, because each frame has a length."""


async def open_stream(
    connected: socket.socket,
    ssl_context: ssl.SSLContext | Callable[[], ssl.SSLContext] | None,
    target: tuple[str, int],
    protocol_factory: Callable[[], P],
    ends: float,
) -> tuple[asyncio.BaseTransport, P]:
    """Make a transport of a connected socket, with TLS if there is a context. The handshake ends at ``ends``.

    ``ends`` is a time of the loop. Raises the errors of ``TcpConnector.connect`` for TLS.
    """
    loop = asyncio.get_running_loop()
    context = ssl_context() if callable(ssl_context) else ssl_context
    if context is None:
        return await loop.create_connection(protocol_factory, sock=connected)
    seconds_left = max(ends - loop.time(), _MIN_HANDSHAKE)
    return await _encrypt(connected, context, *target, protocol_factory, seconds_left)


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
            # A certificate has neither the scope of an IPv6 address nor the dot at the end of a name.
            server_hostname=host.partition("%")[0].removesuffix("."),
            ssl_handshake_timeout=timeout,
            ssl_shutdown_timeout=_SHUTDOWN,
        )
    except (OSError, ValueError) as error:  # ValueError: not a host name, for example one that begins with a dot
        if isinstance(error, OSError):
            from .tls import handshake_failure

            raise handshake_failure(error, format_address(host, port)) from error
        raise ConnectionLost(
            f"{format_address(host, port)} is not a host name that TLS can check: {error}", sent=False
        ) from error


async def _resolve(host: str, port: int) -> list[SocketAddress]:
    literal = _literal(host, port)
    if literal is not None:
        return [literal]  # an IP address needs no resolver thread
    try:
        answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ADDRESS_ERRORS as error:
        raise ConnectionLost(f"cannot resolve the host name {host!r}: {reason_of(error)}", sent=False) from error
    addresses = [(family, address) for family, _, _, _, address in answers]
    if not addresses:
        raise ConnectionLost(f"the host name {host!r} has no address", sent=False)
    return list(dict.fromkeys(addresses))


def _literal(host: str, port: int) -> SocketAddress | None:
    """Return the address, if the host is an IP address. An IPv6 address with a scope needs the resolver for its
    interface.
    """
    # Not the module ``ipaddress``: its import takes 2 ms of each program's start.
    for family, address in ((socket.AF_INET, (host, port)), (socket.AF_INET6, (host, port, 0, 0))):
        with contextlib.suppress(OSError, ValueError):
            socket.inet_pton(family, host)
            return family, address
    return None


async def _connect_socket(
    family: socket.AddressFamily, address: tuple[object, ...], local_address: str | None
) -> socket.socket:
    created = socket.socket(family, socket.SOCK_STREAM)
    forks.guard(created)
    try:
        if local_address is not None:
            _bind(created, local_address)
        created.setblocking(False)
        tune(created)
        await asyncio.get_running_loop().sock_connect(created, address)
    except BaseException:
        created.close()
        raise
    return created


def tune(created: socket.socket) -> None:
    """Set the options of TCP."""
    # A frame is written as a whole, so a delay by Nagle's algorithm would only cost time.
    created.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A broker that has vanished is detected even while no request is in flight.
    created.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _bind(created: socket.socket, local_address: str) -> None:
    try:
        created.bind((local_address, 0))
    except OSError as error:
        raise OSError(error.errno, f"cannot connect from local_address={local_address}: {reason_of(error)}") from error


def _numeric(address: tuple[object, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def reason_of(error: BaseException) -> str:
    """Return the words of the system for a failed connection."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused, nothing listens there"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
