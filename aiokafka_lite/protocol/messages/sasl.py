"""Log in on a connection: agree on a mechanism, then exchange its messages (KIP-43, KIP-152).

After SaslHandshake v0, the messages of the mechanism have no header. After v1 (Kafka 1.0), each is a SaslAuthenticate
request. SaslAuthenticate v1 returns the lifetime of the session (KIP-368), v2 is flexible.
"""

from __future__ import annotations

from ..schema import Request, Response, array, blob, int16, int64, message, since, string


@message(key=17, versions=(0, 1))
class SaslHandshakeResponse(Response):
    """Whether the broker supports the mechanism, and all mechanisms that it supports."""

    error_code: int = int16()
    mechanisms: list[str] = array(string)


@message(key=17, versions=(0, 1))
class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    """Choose a mechanism."""

    AUTHENTICATE_REQUESTS = since(1, kafka="1.0")

    mechanism: str = string()


@message(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateResponse(Response):
    """The mechanism's next message, or the reason for refusing the credentials."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = blob()
    session_lifetime_ms: int = int64("1+", default=0, ignorable=True)


@message(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateRequest(Request[SaslAuthenticateResponse]):
    """The mechanism's next message."""

    auth_bytes: bytes = blob()


def _without_content(request: SaslAuthenticateRequest) -> str:
    return f"SaslAuthenticateRequest(auth_bytes=<{len(request.auth_bytes)} bytes>)"


# With PLAIN, the content is the password.
SaslAuthenticateRequest.__repr__ = _without_content  # type: ignore[method-assign,assignment]
