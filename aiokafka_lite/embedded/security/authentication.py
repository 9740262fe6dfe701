"""SASL on one connection of a broker: which requests are allowed before the login, the login, and the session after it.

The rules, as in Kafka's SaslServerAuthenticator:

1. Before the login, the client may send ApiVersions once, then SaslHandshake, then the messages of the mechanism. Any
   other request before SaslHandshake closes the connection without a response; after it, the response is
   ILLEGAL_SASL_STATE.
2. After SaslHandshake v0 the messages have no header; after v1 each is a SaslAuthenticate request.
3. A refused login is answered after ``connection.failed.authentication.delay.ms``; then the connection closes.
4. The session ends after ``connections.max.reauth.ms``, or with the token if that is earlier. The first request after
   that closes the connection. Before that, a client logs in again, with SaslHandshake v1 on the open connection
   (KIP-368), by the same mechanism and as the same principal.
5. A session without an end cannot be renewed, and no session can be renewed twice within a second. The handlers of
   SaslHandshake and SaslAuthenticate answer such requests with ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from ...errors import ErrorCode, ProtocolError
from ...protocol.messages import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ...protocol.sasl.scram import HASHES
from ...protocol.schema import Request, Response
from ...state_machine import Transitions, next_state
from ..error_responses import error_response
from ..settings.configs import BrokerSettings
from .access_tokens import TokenCheck
from .delegation_tokens import DelegationTokens
from .sasl_verifiers import LoginRefused, OAuthBearerVerifier, PlainVerifier, SaslVerifier, ScramVerifier
from .scram_users import ScramUsers

SHORTEST_SESSION = 1.0
"""The shortest time between the beginnings of two renewals of a session, in seconds."""


class LoginState(Enum):
    """The state of the login of a connection."""

    CONNECTED = "The client may send ApiVersions or SaslHandshake."
    VERSIONS_ANSWERED = "The client must send SaslHandshake."
    EXCHANGING = "The client sends messages of the mechanism."
    WRONG_MECHANISM = "The client named another mechanism for the renewal. Its next message closes the connection."
    COMPLETE = "The client has a principal, and may send any request."


class LoginEvent(Enum):
    """An event of the login of a connection."""

    VERSIONS = "ApiVersions was answered without an error."
    HANDSHAKE = "SaslHandshake named an offered mechanism."
    OTHER_MECHANISM = "SaslHandshake named a mechanism that differs from that of the first login of the session."
    ACCEPTED = "The mechanism accepted the credentials."


TRANSITIONS: Transitions[LoginState, LoginEvent] = {
    LoginState.CONNECTED: {
        LoginEvent.VERSIONS: LoginState.VERSIONS_ANSWERED,
        LoginEvent.HANDSHAKE: LoginState.EXCHANGING,
    },
    LoginState.VERSIONS_ANSWERED: {LoginEvent.HANDSHAKE: LoginState.EXCHANGING},
    LoginState.EXCHANGING: {LoginEvent.ACCEPTED: LoginState.COMPLETE},
    LoginState.WRONG_MECHANISM: {},
    LoginState.COMPLETE: {
        LoginEvent.HANDSHAKE: LoginState.EXCHANGING,
        LoginEvent.OTHER_MECHANISM: LoginState.WRONG_MECHANISM,
    },
}


class LoginFailed(Exception):
    """The login failed. After the delay for failed logins, the connection sends ``response``, if any, and closes."""

    def __init__(self, reason: str, response: Response | None) -> None:
        super().__init__(reason)
        self.response = response


@dataclass(frozen=True, slots=True)
class Credentials:
    """The data with which the brokers of a cluster check logins. Owner: the cluster.

    The brokers offer ``mechanisms``. ``passwords`` are for PLAIN, by user. ``time`` returns seconds since the epoch,
    for the expiry of tokens.
    """

    mechanisms: Sequence[str]
    passwords: Mapping[str, str] = field(repr=False)
    scram_users: ScramUsers
    tokens: DelegationTokens
    check_token: TokenCheck | None
    time: Callable[[], float]

    def verifier(self, mechanism: str) -> SaslVerifier:
        """Return a new login by one of ``mechanisms``."""
        if mechanism in HASHES:
            return ScramVerifier(mechanism, self.scram_users, self.tokens)
        if mechanism == "PLAIN":
            return PlainVerifier(self.passwords)
        return OAuthBearerVerifier(self.check_token, self.time)


class Authentication:
    """The login of one connection. ``settings`` are its listener's; ``clock`` gives the loop's time in seconds."""

    def __init__(self, credentials: Credentials, settings: BrokerSettings, clock: Callable[[], float]) -> None:
        self.state: LoginState = LoginState.CONNECTED
        self.name: str = ""
        """The name of the principal, after the first login."""
        self.by_token: bool = False
        """Whether the last login used a delegation token."""
        self._credentials = credentials
        self._settings = settings
        self._clock = clock
        self._mechanism = ""
        self._verifier: SaslVerifier | None = None
        self._has_headers = True  # whether the messages of the mechanism have headers: rule 2
        self._session_ends: float | None = None  # in the loop's time
        self._renewal_began: float | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the client has a principal, and does not renew its session at the moment."""
        return self.state is LoginState.COMPLETE

    @property
    def expects_bare_message(self) -> bool:
        """Whether the next frame is a message of the mechanism, without a header."""
        return not self._has_headers and self.state is LoginState.EXCHANGING

    def check_api(self, api_key: int) -> None:
        """Raise ProtocolError if the connection must close because of this request (rules 1 and 4)."""
        if self.state is LoginState.COMPLETE:
            is_over = self._session_ends is not None and self._clock() > self._session_ends
            if is_over and api_key != SaslHandshakeRequest.api_key:
                raise ProtocolError(f"the session of {self.name!r} has expired")
            return
        allowed = {
            LoginState.CONNECTED: (ApiVersionsRequest.api_key, SaslHandshakeRequest.api_key),
            LoginState.VERSIONS_ANSWERED: (SaslHandshakeRequest.api_key,),
        }.get(self.state)
        if allowed is not None and api_key not in allowed:
            raise ProtocolError(f"a request of API key {api_key} came before the login")
        if self.state is LoginState.WRONG_MECHANISM:
            raise LoginFailed(f"{self.name!r} must renew the session by {self._mechanism}, got another mechanism", None)

    def versions_answered(self) -> None:
        """Record that ApiVersions was answered without an error."""
        if not self.is_complete:
            self._change(LoginEvent.VERSIONS)

    def answer(self, request: Request[object], version: int) -> Response | None:
        """Answer a request of the login; None for any other request. Raises LoginFailed."""
        if isinstance(request, SaslHandshakeRequest) and self._may_begin():
            return self._handshake(request, version)
        if self.state is not LoginState.EXCHANGING:
            return None
        if isinstance(request, SaslAuthenticateRequest):
            return self._authenticate(request)
        name = type(request).__name__.removesuffix("Request")
        refusal = error_response(request, ErrorCode.ILLEGAL_SASL_STATE, version)
        raise LoginFailed(f"{name} came during the login", refusal)

    def bare_answer(self, message: bytes) -> bytes:
        """Answer a message without a header. Raises LoginFailed."""
        try:
            return self._received(message)[0]
        except LoginRefused as refused:
            raise LoginFailed(str(refused), None) from None

    def _may_begin(self) -> bool:
        if not self.is_complete:
            return self.state is not LoginState.EXCHANGING
        if self._session_ends is None:
            return False
        return self._renewal_began is None or self._clock() - self._renewal_began >= SHORTEST_SESSION

    def _handshake(self, request: SaslHandshakeRequest, version: int) -> Response:
        offered = list(self._credentials.mechanisms)
        if request.mechanism not in offered:
            refusal = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered)
            # Kafka sends no response if the login would have renewed a session.
            answer = None if self.is_complete else refusal
            raise LoginFailed(f"the mechanism {request.mechanism[:50]!r} is not offered", answer)
        if self.is_complete:
            self._renewal_began = self._clock()
        if self._mechanism and request.mechanism != self._mechanism:
            self._change(LoginEvent.OTHER_MECHANISM)
        else:
            self._mechanism = request.mechanism
            self._verifier = self._credentials.verifier(request.mechanism)
            self._has_headers = version >= SaslHandshakeRequest.AUTHENTICATE_REQUESTS
            self._change(LoginEvent.HANDSHAKE)
        return SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=offered)

    def _authenticate(self, request: SaslAuthenticateRequest) -> Response:
        try:
            message, lifetime = self._received(request.auth_bytes)
        except LoginRefused as refused:
            # The text names the mechanism and not the reason, so that a client does not learn which users exist.
            action = "re-authentication" if self.name else "authentication"
            text = f"Authentication failed during {action} due to invalid credentials with SASL mechanism "
            refusal = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=refused.shown or f"{text}{self._mechanism}",
                auth_bytes=b"",
            )
            raise LoginFailed(str(refused), refusal) from None
        return SaslAuthenticateResponse(
            error_code=ErrorCode.NONE, error_message="", auth_bytes=message, session_lifetime_ms=lifetime
        )

    def _received(self, message: bytes) -> tuple[bytes, int]:
        """Pass a message to the mechanism. Return its response, and the length of the session in milliseconds.

        The length is 0 if the session has no end, or has not begun.
        """
        assert self._verifier is not None
        response = self._verifier.received(bytes(message))
        accepted = self._verifier.accepted
        if accepted is None:
            return response, 0
        if self.name and accepted.name != self.name:
            text = f"Cannot change principals during re-authentication from User.{self.name}: User.{accepted.name}"
            raise LoginRefused(f"the session of {self.name!r} is renewed as {accepted.name!r}", shown=text)
        self.name, self.by_token = accepted.name, accepted.by_token
        self._verifier = None
        self._change(LoginEvent.ACCEPTED)
        return response, self._begin_session(accepted.expires)

    def _begin_session(self, expires: float | None) -> int:
        most_ms = int(self._settings.of_mechanism(self._mechanism, "connections.max.reauth.ms"))
        limits = [most_ms] if most_ms > 0 else []
        if expires is not None:
            limits.append(max(0, int((expires - self._credentials.time()) * 1000)))
        if not limits:
            self._session_ends = None
            return 0
        self._session_ends = self._clock() + min(limits) / 1000
        return min(limits)

    def _change(self, event: LoginEvent) -> None:
        self.state = next_state(TRANSITIONS, self.state, event)
