"""The SASL login on a connection: the mechanism's messages in Kafka's requests, and the errors for a refusal.

The mechanisms are in ``protocol.sasl``, without I/O. This module does their I/O: it calls a token provider, derives
keys in a thread, and sends requests. If the broker refuses the client, the error is AuthenticationError, which is never
retried. If the connection is lost during the login, or a token provider fails, the error is ConnectionLost.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from ..errors import AuthenticationError, ConnectionLost, ErrorCode, UnsupportedVersion, error_for
from ..protocol.messages import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest
from ..protocol.sasl import Derivation, OAuthBearerExchange, PlainExchange, SaslExchange, ScramExchange, derive
from ..protocol.sasl.machine import Step
from ..protocol.schema import Request
from ..protocol.versions import VersionTable
from ..settings.client import ClientConfig
from ..settings.security import TokenProvider

if TYPE_CHECKING:
    from .kerberos import Kerberos

R = TypeVar("R")

MAX_ITERATIONS_ON_LOOP = 20_000
"""The largest number of iterations of a key derivation in the event loop; they take some milliseconds. A longer
derivation runs in a thread."""

_MAX_KEYS = 16


class Ask(Protocol):
    """Sends a request on the connection that logs in, ahead of the requests that are held back."""

    def __call__(self, request: Request[R], /) -> Awaitable[R]: ...


class Login:
    """The SASL credentials that all connections of a client share. It caches keys, which take long to derive."""

    def __init__(
        self,
        mechanism: str,
        *,
        username: str = "",
        password: str = "",
        tokenauth: bool = False,
        token_provider: TokenProvider | None = None,
        extensions: Mapping[str, str] | None = None,
        kerberos: Kerberos | None = None,
    ) -> None:
        self.mechanism = mechanism
        self._username = username
        self._password = password
        self._tokenauth = tokenauth
        self._token_provider = token_provider
        self._extensions = extensions or {}
        self._kerberos = kerberos
        self._keys: dict[Derivation, bytes] = {}

    @classmethod
    def of(cls, config: ClientConfig) -> Self:
        """Return the login that the checked settings describe."""
        return cls(
            config.sasl_mechanism or "",
            username=config.sasl_username or "",
            password=config.sasl_password or "",
            tokenauth=config.sasl_tokenauth,
            token_provider=config.sasl_oauth_token_provider,
            extensions=config.sasl_oauth_extensions,
            kerberos=_kerberos_of(config),
        )

    def __repr__(self) -> str:
        return f"<Login {self}>"

    def __str__(self) -> str:
        name = f" as {self._username!r}" if self._username else ""
        return f"{self.mechanism}{name}"

    async def exchange(self, host: str) -> SaslExchange:
        """Begin an exchange of messages with a broker, with a new token or ticket if the mechanism uses them.

        Raises AuthenticationError if the token provider raises it, or returns a value that is not a string. Raises it
        also if Kerberos has no ticket for the broker. Any other exception of the provider becomes a ConnectionLost,
        because the next token may be valid. An unreachable KDC is a ConnectionLost too.
        """
        if self._kerberos is not None:
            return await self._kerberos.exchange(host)
        if self._token_provider is not None:
            return OAuthBearerExchange(await self._token(self._token_provider), self._extensions)
        if self.mechanism == "PLAIN":
            return PlainExchange(self._username, self._password)
        nonce = secrets.token_urlsafe(24)
        return ScramExchange(self.mechanism, self._username, self._password, nonce, tokenauth=self._tokenauth)

    async def log_in(self, exchange: SaslExchange, ask: Ask, versions: VersionTable, peer: str) -> float:
        """Exchange messages until the broker accepts. Return the session's seconds, 0.0 if it does not expire.

        Raises AuthenticationError, UnsupportedVersion for a broker that is too old, and the errors of ``ask``.
        """
        handshakes = versions.supports(SaslHandshakeRequest.AUTHENTICATE_REQUESTS)
        if not handshakes or versions.maximum(SaslAuthenticateRequest) is None:
            what = f"{peer} does not support SaslAuthenticate requests, which came with Kafka 1.0"
            raise UnsupportedVersion(f"{what}; upgrade the broker")
        await _choose_mechanism(self, exchange, ask, peer)
        lifetime_ms = 0
        step = exchange.begin()
        then: Callable[[bytes], Step]
        while step is not None:
            if isinstance(step, Derivation):
                received, then = await self.key(step), exchange.derived
            else:
                response = await _authenticate(step, self, exchange, ask, peer)
                received, then, lifetime_ms = response.auth_bytes, exchange.received, response.session_lifetime_ms
            try:
                step = then(received)
            except AuthenticationError as error:
                raise AuthenticationError(f"the login to {peer} by {self} failed: {error}") from None
        return max(lifetime_ms, 0) / 1000

    async def key(self, derivation: Derivation) -> bytes:
        """Derive a key, or return the cached one. A broker sends the same salt again, so most logins find it cached."""
        key = self._keys.get(derivation)
        if key is None:
            if derivation.iterations <= MAX_ITERATIONS_ON_LOOP:
                key = derive(derivation)
            else:
                key = await asyncio.to_thread(derive, derivation)
            # A broker that sends another salt at each login must not fill the memory.
            while len(self._keys) >= _MAX_KEYS:
                del self._keys[next(iter(self._keys))]
            self._keys[derivation] = key
        return key

    async def _token(self, provider: TokenProvider) -> str:
        try:
            # A function that is not declared as async may block. It may still return an awaitable.
            # In a copy of the context, as ``to_thread`` calls it: the connection works for many callers.
            context = copy_context()
            token: object = context.run(provider) if _is_async(provider) else await asyncio.to_thread(provider)
            if inspect.isawaitable(token):
                from ..aio.user_context import InContext

                token = await InContext(token, context)
        except (AuthenticationError, ConnectionLost):
            raise
        except Exception as error:
            raise ConnectionLost(
                f"sasl_oauth_token_provider failed: it raised {type(error).__name__}", sent=False
            ) from error
        if not isinstance(token, str):
            kind = type(token).__name__
            raise AuthenticationError(f"sasl_oauth_token_provider must return a str, got {kind}")
        return token


def _kerberos_of(config: ClientConfig) -> Kerberos | None:
    """Return the Kerberos settings, or None. The import is here, because most clients do not use Kerberos."""
    if config.sasl_mechanism != "GSSAPI":
        return None
    from .kerberos import Kerberos

    return Kerberos.of(config)


def _is_async(provider: TokenProvider) -> bool:
    return inspect.iscoroutinefunction(provider) or inspect.iscoroutinefunction(type(provider).__call__)


async def _choose_mechanism(login: Login, exchange: SaslExchange, ask: Ask, peer: str) -> None:
    response = await ask(SaslHandshakeRequest(mechanism=login.mechanism))
    match ErrorCode.of(response.error_code):
        case ErrorCode.NONE:
            return
        case ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(map(exchange.quoted, response.mechanisms[:10])) or "no mechanism"
            raise AuthenticationError(
                f"{peer} does not offer sasl_mechanism={login.mechanism!r} on this port; it offers {offered}"
            )
        case ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationError(
                f"{peer} accepts no login on this port: set security_protocol to PLAINTEXT or SSL, or use the port of "
                "its SASL listener"
            )
        case _:
            raise error_for(response.error_code, f"{peer} refused to begin a login by {login}")


async def _authenticate(
    message: bytes, login: Login, exchange: SaslExchange, ask: Ask, peer: str
) -> SaslAuthenticateResponse:
    response = await ask(SaslAuthenticateRequest(auth_bytes=message))
    if response.error_code == ErrorCode.NONE:
        return response
    reason = exchange.quoted(response.error_message or "")
    if exchange.objection not in reason:
        reason = f"{reason}; {exchange.objection}" if reason else exchange.objection
    if ErrorCode.of(response.error_code) in (ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.ILLEGAL_SASL_STATE):
        raise AuthenticationError(f"{peer} refused the login by {login}{': ' if reason else ''}{reason}")
    raise error_for(response.error_code, f"{peer} failed during the login by {login}: {reason}")
