"""The SASL login on a connection: the mechanism's messages in Kafka's requests, and the errors for a refusal.

The mechanisms are in ``protocol.sasl``, without I/O. This module does their I/O: it asks the user's function for a
token or a password, derives keys in a thread, and sends requests. If the broker refuses the client, the error is
AuthenticationError, which is never retried. If the connection is lost during the login, or the function fails, the
error is ConnectionLost.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from ..errors import AuthenticationError, ErrorCode, UnsupportedVersion, error_for
from ..protocol.messages import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest
from ..protocol.sasl import Derivation, OAuthBearerExchange, PlainExchange, SaslExchange, ScramExchange, derive
from ..protocol.sasl.machine import Step
from ..protocol.schema import Request
from ..protocol.versions import VersionTable
from ..settings.checks import credential_problem
from ..settings.client import ClientConfig
from ..settings.security import PasswordProvider, Secret, TokenProvider
from .secret_function import SecretFunction

if TYPE_CHECKING:
    from .kerberos import Kerberos

R = TypeVar("R")

MAX_ITERATIONS_ON_LOOP = 20_000
"""The largest number of iterations of a key derivation in the event loop; they take some milliseconds. A longer
derivation runs in a thread."""

_MAX_KEYS = 16

_RETURNS = "a password, or a tuple of a user name and a password"


class Ask(Protocol):
    """Sends a request on the connection that logs in, ahead of the requests that are held back."""

    def __call__(self, request: Request[R], /) -> Awaitable[R]: ...


class Login:
    """The SASL credentials that all connections of a client share. It caches keys, which take long to derive.

    ``asks`` calls the function that returns the secret, instead of ``password`` or ``token_provider``.
    """

    def __init__(
        self,
        mechanism: str,
        *,
        username: str = "",
        password: str | PasswordProvider = "",
        tokenauth: bool = False,
        token_provider: TokenProvider | None = None,
        extensions: Mapping[str, str] | None = None,
        kerberos: Kerberos | None = None,
        asks: SecretFunction | None = None,
    ) -> None:
        self.mechanism = mechanism
        self._username = username
        self._password = password if isinstance(password, str) else ""
        self._asks = asks if isinstance(password, str) else SecretFunction("sasl_password", password)
        self._tokenauth = tokenauth
        if token_provider is not None:
            self._asks = SecretFunction("sasl_oauth_token_provider", token_provider)
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

    @property
    def delay(self) -> str:
        """The words for a login that waited for the user's function in vain; empty if it has returned."""
        return "" if self._asks is None else self._asks.delay

    @property
    def needs_loop(self) -> bool:
        """Whether an async function of the user returns the secret."""
        return self._asks is not None and self._asks.is_async

    def twin(self, home: asyncio.AbstractEventLoop) -> Login:
        """Make a login with the present credentials for connections in another event loop than ``home``, the user's."""
        return Login(
            self.mechanism,
            username=self._username,
            password=self._password,
            tokenauth=self._tokenauth,
            extensions=self._extensions,
            kerberos=self._kerberos,
            asks=None if self._asks is None else self._asks.twin(home),
        )

    def set_credentials(self, username: str, password: str) -> None:
        """Use this checked user name and password in the exchanges that begin from now on."""
        self._username, self._password = username, password

    async def exchange(self, host: str) -> SaslExchange:
        """Begin an exchange of messages with a broker, with a new password, token or ticket if the login asks for one.

        Raises AuthenticationError if the user's function raises it, or returns a wrong value. Raises it also if
        Kerberos has no ticket for the broker. Any other exception of the function becomes a ConnectionLost, because the
        next secret may be valid. An unreachable KDC is a ConnectionLost too.
        """
        if self._kerberos is not None:
            return await self._kerberos.exchange(host)
        secret = None if self._asks is None else await self._asks.call()
        if self.mechanism == "OAUTHBEARER":
            return OAuthBearerExchange(_token(secret), self._extensions)
        username, password = self._username, self._password
        if self._asks is not None:
            username, password = _username_and_password(secret, username)
            self._username = username  # for the texts of errors
        if self.mechanism == "PLAIN":
            return PlainExchange(username, password)
        nonce = secrets.token_urlsafe(24)
        return ScramExchange(self.mechanism, username, password, nonce, tokenauth=self._tokenauth)

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


def _token(token: object) -> str:
    if not isinstance(token, str):
        kind = type(token).__name__
        raise AuthenticationError(f"sasl_oauth_token_provider must return a str, got {kind}")
    return token


def _username_and_password(value: object, username: str) -> tuple[str, str]:
    """Check what the function returned: a password, or a user name and a password. The error does not quote it."""
    pair = value if isinstance(value, tuple) else (username, value)
    if len(pair) != 2:
        raise AuthenticationError(f"sasl_password must return {_RETURNS}, got a tuple of {len(pair)} items")
    if not pair[0] and isinstance(value, str):
        raise AuthenticationError("sasl_password must return (username, password), because sasl_username is not set")
    for name, part in zip(("user name", "password"), pair, strict=True):
        problem = credential_problem(name, part)
        if problem:
            raise AuthenticationError(f"sasl_password must return {_RETURNS}: its {problem}")
    return pair[0], Secret(pair[1])


def _kerberos_of(config: ClientConfig) -> Kerberos | None:
    """Return the Kerberos settings, or None. The import is here, because most clients do not use Kerberos."""
    if config.sasl_mechanism != "GSSAPI":
        return None
    from .kerberos import Kerberos

    return Kerberos.of(config)


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
