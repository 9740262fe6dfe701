"""The first requests of a connection, before any request of a user: the broker's versions, then the SASL login.

The login is repeated on the open connection before the broker's session ends (KIP-368). The connection owns the states
and the transport. A handshake only sends its requests, and explains the likely cause of a failure.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol, TypeVar

from ..errors import ConnectionLost, ErrorCode, error_for
from ..protocol.messages import ApiVersionsRequest
from ..protocol.schema import Message, Request
from ..protocol.versions import VersionTable, version_after_refusal
from ..state_machine import ConnectionState
from ..version import VERSION
from .in_flight import api_name

if TYPE_CHECKING:  # a client without a login does not import its modules
    from ..protocol.sasl import SaslExchange
    from .login import Login

logger = logging.getLogger(__name__)

R = TypeVar("R")

SOFTWARE_NAME = "aiokafka-lite"
"""The name under which the client identifies itself to brokers (KIP-511)."""

_NEEDS_TLS = 'requires TLS (security_protocol="SSL" or "SASL_SSL")'
_NEEDS_SASL = 'if it requires a login, set security_protocol to "SASL_PLAINTEXT" or "SASL_SSL", and sasl_mechanism'
_IS_BLOCKED = (
    "is in another event loop of this process that is blocked (use embedded_kafka_server in synchronous tests)"
)


class Send(Protocol):
    """Sends a request ahead of all held requests. Raises KafkaError, for example if the connection is closed."""

    def __call__(self, request: Request[R], version: int, timeout: float, /) -> Awaitable[R]: ...


class AgreedVersions:
    """The version of each API on one connection."""

    __slots__ = ("_capped", "_picked", "table")

    def __init__(self, table: VersionTable) -> None:
        self.table: VersionTable = table
        self._picked: dict[type[Message], int] = {}
        self._capped: dict[type[Message], int] = {}  # the version that was last used under ``at_most``, for diagnoses

    # Hot: one dictionary lookup per request.
    def pick(self, cls: type[Message], at_most: int | None) -> int:
        """Return the newest version that both sides support, at most ``at_most``. Raises UnsupportedVersion."""
        if at_most is not None:
            capped = self._capped[cls] = self.table.pick(cls, at_most)
            return capped
        version = self._picked.get(cls)
        if version is None:
            version = self._picked[cls] = self.table.pick(cls)
        return version

    def by_api(self) -> dict[str, int]:
        """Return the version of each API that was used, by its name."""
        return {api_name(request): version for request, version in (self._picked | self._capped).items()}


class Handshake:
    """The handshake of one connection. ``peer``, ``address`` and ``uses_tls`` are only for the texts of errors.

    ``oldest_first`` begins with version 0 of ApiVersions, for a peer that closed a connection on a newer version.
    """

    def __init__(
        self,
        peer: str,
        address: tuple[str, int],
        send: Send,
        *,
        login: Login | None,
        request_timeout: float,
        uses_tls: bool,
        oldest_first: bool,
    ) -> None:
        self.login = login
        self._peer = peer
        self._address = address
        self._send = send
        self._request_timeout = request_timeout
        self._uses_tls = uses_tls
        self._oldest_first = oldest_first

    async def api_versions(self) -> VersionTable:
        """Ask for the broker's versions. If the broker refuses the version of the request, an older one is tried.

        Has no timeout of its own. A peer that does not support ApiVersions, or is not Kafka, may close the connection.
        Then this method does not connect again: that would double the load on a broker that is shutting down.
        """
        ours = ApiVersionsRequest.versions
        version = ours.first if self._oldest_first else ours.last
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=VERSION)
        while True:
            response = await self._send(request, version, math.inf)
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION:
                break
            version = version_after_refusal(version, response, self._peer)
        if response.error_code:
            raise error_for(response.error_code, f"{self._peer} refused the ApiVersions request")
        return VersionTable.from_response(response, self._peer)

    async def log_in(self, login: Login, exchange: SaslExchange, versions: VersionTable) -> float:
        """Log in. Return the loop's time at which the session ends, 0.0 if it does not end."""

        def ask(request: Request[R]) -> Awaitable[R]:
            return self._send(request, versions.pick(type(request)), self._request_timeout)

        # The broker starts its session later than this moment, so its session does not end before ours.
        began = asyncio.get_running_loop().time()
        lifetime = await login.log_in(exchange, ask, versions, self._peer)
        logger.debug("logged in to %s by %s", self._peer, login)
        return began + lifetime if lifetime else 0.0

    # The likely causes of failures.

    def timed_out(self, state: ConnectionState, timeout: float) -> str:
        """Return the text of a timeout in this state of the opening."""
        if state is ConnectionState.CONNECTING:
            return f"could not connect to {self._peer} within {timeout:g} s"
        if state is ConnectionState.AUTHENTICATING:
            delay = "" if self.login is None else self.login.delay
            return f"the login to {self._peer} by {self.login} did not end within {timeout:g} s{delay}"
        from ..aio import local_ports  # only for this text

        tls = "" if self._uses_tls else f", or it {_NEEDS_TLS}"
        loop = f", or it {_IS_BLOCKED}" if local_ports.is_in_another_loop(*self._address) else ""
        return (
            f"{self._peer} accepted the connection but did not answer ApiVersions within {timeout:g} s; "
            f"either it hangs, or the port is not Kafka's{tls}{loop}"
        )

    def closed_by_peer(self, state: ConnectionState, *, is_first_unanswered: bool) -> ConnectionLost:
        """Return the error for a connection that the peer closed in this state, between two frames."""
        if state is ConnectionState.CHECKING_API_VERSIONS:
            reason = "" if self._uses_tls else f" {_NEEDS_TLS},"
            text = f"{self._peer} closed the connection on ApiVersions: it is shutting down,{reason} or is not Kafka"
        elif is_first_unanswered and self.login is None:
            # Kafka answers ApiVersions without a login, and closes the connection on the next request.
            text = f"{self._peer} closed the connection at the first request; {_NEEDS_SASL}"
        else:
            text = f"{self._peer} closed the connection"
        return ConnectionLost(text, sent=True)
