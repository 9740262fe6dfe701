"""Logging in on a connection: the mechanism's messages in Kafka's requests, and what a refusal means.

The mechanisms themselves are pure and live in ``protocol.sasl``. Here is what they must not do: ask a token provider,
spend time on a key, talk to a broker. Who is refused for what they are gets ``AuthenticationError``, which nobody
retries; a broker that is lost meanwhile, or a token provider that fails, is a ``ConnectionLost`` like any other.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import Awaitable, Callable
from typing import Protocol, Self, TypeVar

from ..config import ClientConfig
from ..errors import AuthenticationError, ConnectionLost, ErrorCode, UnsupportedVersion, error_for
from ..protocol.messages import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest
from ..protocol.sasl import Derivation, Exchange, OAuthBearerExchange, PlainExchange, ScramExchange, derive
from ..protocol.sasl.machine import Step, quoted
from ..protocol.schema import Request
from ..protocol.versions import VersionTable
from ..security import TokenProvider

R = TypeVar("R")

QUICK = 20_000
"""Iterations of a key derivation that the loop is made to wait for, some milliseconds. More are run in a thread."""

_KEYS_KEPT = 16


class Ask(Protocol):
    """Sends a request on the connection that logs in, past those that wait for that."""

    def __call__(self, request: Request[R], /) -> Awaitable[R]: ...


class Login:
    """Who we are, to any broker. Shared by the connections of a client; keys that took long to derive are kept."""

    def __init__(
        self,
        mechanism: str,
        *,
        username: str = "",
        password: str = "",
        token_provider: TokenProvider | None = None,
    ) -> None:
        self.mechanism = mechanism
        self._username = username
        self._password = password
        self._token_provider = token_provider
        self._keys: dict[Derivation, bytes] = {}

    @classmethod
    def of(cls, config: ClientConfig) -> Self:
        """As the settings say, which have been checked."""
        return cls(
            config.sasl_mechanism or "",
            username=config.sasl_username or "",
            password=config.sasl_password or "",
            token_provider=config.sasl_oauth_token_provider,
        )

    def __repr__(self) -> str:
        return f"<Login {self}>"

    def __str__(self) -> str:
        who = f" as {self._username!r}" if self._username else ""
        return f"{self.mechanism}{who}"

    async def exchange(self) -> Exchange:
        """A new exchange of messages, with a new token where there is one.

        Raises ``ConnectionLost`` caused by what the token provider raised, as another time it may give one; and
        AuthenticationError for what is no token, or if the provider raises that itself.
        """
        if self._token_provider is not None:
            return OAuthBearerExchange(await self._token(self._token_provider))
        if self.mechanism == "PLAIN":
            return PlainExchange(self._username, self._password)
        return ScramExchange(self.mechanism, self._username, self._password, secrets.token_urlsafe(24))

    async def show(self, exchange: Exchange, ask: Ask, versions: VersionTable, peer: str) -> float:
        """Pass messages until the broker accepts; the seconds for which it does so, or 0.0 for ever.

        Raises AuthenticationError, ``UnsupportedVersion`` for a broker that is too old, and what ``ask`` raises.
        """
        if not versions.supports(SaslHandshakeRequest, 1) or versions.maximum(SaslAuthenticateRequest) is None:
            raise UnsupportedVersion(f"{peer} offers no login by requests for SASL, which Kafka does since 1.0")
        await _agree(self, ask, peer)
        lifetime_ms = 0
        step = exchange.begin()
        then: Callable[[bytes], Step]
        while step is not None:
            if isinstance(step, Derivation):
                heard, then = await self.key(step), exchange.derived
            else:
                answer = await _say(step, self, exchange, ask, peer)
                heard, then, lifetime_ms = answer.auth_bytes, exchange.received, answer.session_lifetime_ms
            try:
                step = then(heard)
            except AuthenticationError as error:
                raise AuthenticationError(f"login to {peer} by {self}: {error}") from None
        return max(lifetime_ms, 0) / 1000

    async def key(self, derivation: Derivation) -> bytes:
        """What the exchange asked to be derived. A broker gives the same salt again, so most logins find it here."""
        key = self._keys.get(derivation)
        if key is None:
            if derivation.iterations <= QUICK:
                key = derive(derivation)
            else:
                key = await asyncio.to_thread(derive, derivation)
            while len(self._keys) >= _KEYS_KEPT:
                del self._keys[next(iter(self._keys))]
            self._keys[derivation] = key
        return key

    async def _token(self, provider: TokenProvider) -> str:
        try:
            # One that is not known to be async may block. What it returns may be to be awaited all the same.
            given: object = provider() if _is_async(provider) else await asyncio.to_thread(provider)
            if inspect.isawaitable(given):
                given = await given
        except AuthenticationError:
            raise
        except Exception as error:
            raise ConnectionLost(
                f"sasl_oauth_token_provider gave no token: it raised {type(error).__name__}", sent=False
            ) from error
        if not isinstance(given, str):
            kind = type(given).__name__
            raise AuthenticationError(f"sasl_oauth_token_provider must return a str, and returned {kind}")
        return given


def _is_async(provider: TokenProvider) -> bool:
    return inspect.iscoroutinefunction(provider) or inspect.iscoroutinefunction(type(provider).__call__)


async def _agree(login: Login, ask: Ask, peer: str) -> None:
    answer = await ask(SaslHandshakeRequest(mechanism=login.mechanism))
    match ErrorCode.of(answer.error_code):
        case ErrorCode.NONE:
            return
        case ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(map(quoted, answer.mechanisms[:10])) or "none that it names"
            raise AuthenticationError(
                f"{peer} does not offer sasl_mechanism={login.mechanism!r} on this port; it offers {offered}"
            )
        case ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationError(
                f"{peer} wants no login on this port: set security_protocol to PLAINTEXT or SSL, or use the port of "
                "its SASL listener"
            )
        case _:
            raise error_for(answer.error_code, f"{peer} refused to begin a login by {login}")


async def _say(message: bytes, login: Login, exchange: Exchange, ask: Ask, peer: str) -> SaslAuthenticateResponse:
    answer = await ask(SaslAuthenticateRequest(auth_bytes=message))
    if answer.error_code == ErrorCode.NONE:
        return answer
    said = quoted(answer.error_message or "")
    if exchange.objection not in said:
        said = f"{said}; {exchange.objection}" if said else exchange.objection
    if ErrorCode.of(answer.error_code) in (ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.ILLEGAL_SASL_STATE):
        raise AuthenticationError(f"{peer} refused the login by {login}{': ' if said else ''}{said}")
    raise error_for(answer.error_code, f"{peer} broke off the login by {login}: {said}")
