"""Log in on a connection: agree on a mechanism, then pass its messages to and fro (KIP-43, KIP-152).

After a handshake of v0 the mechanism's messages travel without any header; v1 (Kafka 1.0) has them in SaslAuthenticate.
v1 of that tells how long the session lasts (KIP-368), v2 is flexible.
"""

from __future__ import annotations

from ..schema import Request, Response, array, blob, int16, int64, message, since, string


@message(key=17, versions=(0, 1))
class SaslHandshakeResponse(Response):
    """Whether the mechanism may be used, and which ones may."""

    error_code: int = int16()
    mechanisms: list[str] = array(string)


@message(key=17, versions=(0, 1))
class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    """Ask to log in by a mechanism."""

    AUTHENTICATE_REQUESTS = since(1, kafka="1.0")

    mechanism: str = string()


@message(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateResponse(Response):
    """The mechanism's answer, or why the credentials are refused."""

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


# With PLAIN the content is the password.
SaslAuthenticateRequest.__repr__ = _without_content  # type: ignore[method-assign,assignment]
