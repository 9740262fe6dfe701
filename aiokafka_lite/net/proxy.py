"""Connects to brokers through a SOCKS5 or HTTP CONNECT proxy, by the library python-socks.

The proxy gets the host name of each broker and resolves it, so names need not be known on this machine. TLS is between
the client and the broker: the proxy sees encrypted bytes, and the broker's certificate is checked as without a proxy.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import Callable
from typing import Any, TypeVar

import anyio

from ..aio import forks
from ..disclosure import SecretTexts
from ..errors import AuthenticationError, ConnectionLost, KafkaError, harmless
from ..extras import extra
from ..settings.proxy_address import SCHEMES, ProxyAddress
from .connector import HANDSHAKE_RESERVE, format_address, open_stream, reason_of, tune

P = TypeVar("P", bound=asyncio.BaseProtocol)

_HEADERS_END = b"\r\n\r\n"
_LARGEST_REPLY = 64 * 1024
"""Bytes. A proxy that sends more before the connection does not speak HTTP."""
_LONGEST_REASON = 200
_REFUSES_LOGIN = 407
_SOCKS_REFUSALS = ("authentication failure", "No acceptable authentication methods")
"""Words of python-socks for a refused login. It has no codes for them."""


class ProxyConnector:
    """Connects through a proxy. All of it has ``timeout`` seconds, as with ``TcpConnector``.

    ``ssl_context`` and ``local_address`` are those of ``TcpConnector``; the address is for the connection to the proxy.
    """

    def __init__(
        self,
        proxy: ProxyAddress,
        timeout: float = 10.0,
        ssl_context: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None,
        local_address: str | None = None,
    ) -> None:
        self._proxy = proxy
        self._timeout = timeout
        self._ssl_context = ssl_context
        self._local_address = local_address

    def __repr__(self) -> str:
        return f"<ProxyConnector {self._proxy}>"

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], P]) -> tuple[asyncio.BaseTransport, P]:
        """Connect to the broker through the proxy.

        Raises AuthenticationError if the proxy refuses the login, and ConnectionLost, which names the proxy, for any
        other failure before the proxy has connected. With TLS, raises the errors of ``TcpConnector``.
        """
        ends = asyncio.get_running_loop().time() + self._timeout
        connected = await self._tunnel(host, port)
        return await open_stream(connected, self._ssl_context, (host, port), protocol_factory, ends)

    async def _tunnel(self, host: str, port: int) -> socket.socket:
        """Return a socket whose other end is the broker."""
        # A little earlier than the attempt as a whole, so that the error names the proxy.
        seconds = self._timeout * (1 - HANDSHAKE_RESERVE)
        asyncio_proxies = extra("python_socks.async_.asyncio", "proxy")
        sockets = _Sockets(reads_headers=self._proxy.scheme == "http")
        proxy = asyncio_proxies.Proxy(
            getattr(extra("python_socks", "proxy").ProxyType, SCHEMES[self._proxy.scheme]),
            self._proxy.host,
            self._proxy.port,
            username=self._proxy.username.encode().decode() or None,
            password=self._proxy.password.encode().decode() or None,  # the text behind a Secret
            rdns=True,
            loop=sockets,
        )
        local = None if self._local_address is None else (self._local_address, 0)
        tunnel: socket.socket | None = None
        try:
            with anyio.move_on_after(seconds):
                tunnel = await proxy.connect(host, port, timeout=self._timeout, local_addr=local)
        except Exception as error:  # noqa: BLE001 - those of python-socks and of the sockets
            failure = self._failure(error, sockets, format_address(host, port))
        else:
            if tunnel is not None:
                return tunnel
            did = "accepted the connection, but did not answer" if sockets.is_connected else "could not be reached"
            failure = ConnectionLost(f"the proxy {self._proxy} {did} within {seconds:g} s", sent=False)
        raise failure  # outside of the handler: an error of the library may hold the password

    def _failure(self, error: Exception, sockets: _Sockets, target: str) -> KafkaError:
        proxy = f"the proxy {self._proxy}"
        if not sockets.is_connected:
            cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
            return ConnectionLost(f"cannot connect to {proxy}: {reason_of(cause)}", sent=False)
        if isinstance(error, OSError):
            return ConnectionLost(f"{proxy} closed the connection before its answer", sent=False)
        # A proxy may repeat the request, with its login, in the line of its status.
        reason = harmless(SecretTexts(*_secrets_of(self._proxy)).hide(str(error)), _LONGEST_REASON)
        code = getattr(error, "error_code", None)
        if code == _REFUSES_LOGIN or any(words in str(error) for words in _SOCKS_REFUSALS):
            return AuthenticationError(f"{proxy} refuses the login: {reason}; check the user and password of proxy")
        if isinstance(error, extra("python_socks", "proxy").ProxyError):
            return ConnectionLost(f"{proxy} does not connect to {target}: {reason}", sent=False)
        # Such as UnicodeError for a name that SOCKS cannot carry.
        return ConnectionLost(f"{proxy} cannot be asked for {target}: {type(error).__name__}", sent=False)


def _secrets_of(proxy: ProxyAddress) -> tuple[str, ...]:
    """Return the password, also as the header of HTTP has it. The user name is no secret."""
    if not proxy.password:
        return ()
    login = proxy.username.encode() + b":" + proxy.password.encode()  # the bytes behind a Secret
    return proxy.password, base64.b64encode(login).decode()


class _Sockets:
    """The four operations of an event loop that python-socks calls: it takes this object for its loop.

    They prepare the socket as ``TcpConnector`` does. The library takes the bytes of one read for the whole answer of an
    HTTP proxy; here a read ends with the headers, wherever the proxy or the network divides them.
    """

    def __init__(self, *, reads_headers: bool) -> None:
        self.is_connected = False
        self._reads_headers = reads_headers
        self._loop = asyncio.get_running_loop()

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        return await self._loop.getaddrinfo(host, port, **options)

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        forks.guard(sock)
        tune(sock)
        await self._loop.sock_connect(sock, address)
        self.is_connected = True

    async def sock_sendall(self, sock: socket.socket, data: Any) -> None:
        await self._loop.sock_sendall(sock, data)

    async def sock_recv(self, sock: socket.socket, nbytes: int) -> bytes:
        if not self._reads_headers:
            return await self._loop.sock_recv(sock, nbytes)
        headers = bytearray()
        # One byte at a time: a byte behind the headers would belong to the broker.
        while not headers.endswith(_HEADERS_END) and len(headers) < _LARGEST_REPLY:
            byte = await self._loop.sock_recv(sock, 1)
            if not byte:
                raise ConnectionResetError("the proxy closed the connection")
            headers += byte
        return bytes(headers)
