"""A listener of a broker: a port, and the security protocol that clients use there."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from typing import Any

from ..errors import ConfigurationError

PLAINTEXT = "PLAINTEXT"
WITH_TLS = ("SSL", "SASL_SSL")
WITH_SASL = ("SASL_PLAINTEXT", "SASL_SSL")

HANDSHAKE_TIMEOUT = 10.0
"""Seconds that a client has for its TLS handshake."""

SHUTDOWN_TIMEOUT = 1.0
"""Seconds that a client has to end TLS, after which the connection is reset."""


class Listener:
    """A port of one broker. Owner: the node. The name, as in metadata, is the security protocol."""

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name = name
        self.host = host
        self.port = port
        self._server: asyncio.Server | None = None

    def __repr__(self) -> str:
        return f"<Listener {self.name}://{self.host}:{self.port}>"

    @property
    def uses_tls(self) -> bool:
        return self.name in WITH_TLS

    @property
    def uses_sasl(self) -> bool:
        return self.name in WITH_SASL

    async def open(
        self, new_stream: Callable[[], asyncio.BaseProtocol], ssl_context: ssl.SSLContext | None, owner: str
    ) -> None:
        """Accept connections, on the same port as before. Raises ConfigurationError if the port cannot be used."""
        loop = asyncio.get_running_loop()
        limits: dict[str, Any] = {}
        if ssl_context is not None:
            limits = {"ssl_handshake_timeout": HANDSHAKE_TIMEOUT, "ssl_shutdown_timeout": SHUTDOWN_TIMEOUT}
        try:
            self._server = await loop.create_server(
                new_stream, self.host, self.port, backlog=1024, ssl=ssl_context, **limits
            )
        except OSError as error:
            # The text of asyncio repeats the address. A name without an address has no error number.
            reason = os.strerror(error.errno).lower() if error.errno is not None and error.errno > 0 else error
            raise ConfigurationError(f"{owner} cannot listen on {self.host}:{self.port}: {reason}") from error
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Accept no more connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
