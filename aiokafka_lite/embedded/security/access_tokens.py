"""Unsecured tokens for OAUTHBEARER (RFC 7515, appendix A.5), which Kafka accepts by default, and their checks.

An unsecured token has no signature, so everyone can make one. It is for tests.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

TokenCheck = Callable[[str], Mapping[str, object]]
"""Returns the claims of a token. If it raises an exception, the token is refused."""


class TokenRefused(Exception):
    """The token is not valid; the message has the reason, for the log of the broker."""


class AcceptedToken(NamedTuple):
    """The content of a valid token that a broker uses."""

    subject: str
    expires: float | None
    """Seconds since the epoch."""


def unsecured_token(subject: str, *, issued_at: float, lifetime: float = 3600.0) -> str:
    """Return an unsecured token for a principal, valid for ``lifetime`` seconds from ``issued_at`` on."""
    claims = {"sub": subject, "iat": issued_at, "exp": issued_at + lifetime}
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def unsecured_claims(token: str) -> Mapping[str, object]:
    """Return the claims of an unsecured token. Raises TokenRefused if it is malformed, or signed."""
    parts = token.split(".")
    if len(parts) != 3 or parts[2]:
        raise TokenRefused("the token does not consist of a header, claims and an empty signature")
    if _decoded(parts[0]).get("alg") != "none":
        raise TokenRefused("the algorithm of an unsecured token must be 'none'")
    return _decoded(parts[1])


def accept(claims: Mapping[str, object], now: float, *, needs_expiry: bool) -> AcceptedToken:
    """Check the subject and the times of claims, as Kafka does. Raises TokenRefused.

    ``now`` is in seconds since the epoch.
    """
    subject, expires, issued = claims.get("sub"), _time(claims, "exp"), _time(claims, "iat")
    if not isinstance(subject, str) or not subject.strip():
        raise TokenRefused("the token has no claim 'sub' with a name")
    if expires is None and needs_expiry:
        raise TokenRefused("the token has no claim 'exp'")
    if expires is not None and expires <= now:
        raise TokenRefused(f"the token expired {now - expires:.3f} s ago")
    if issued is not None and issued > now:
        raise TokenRefused(f"the token is issued {issued - now:.3f} s in the future")
    return AcceptedToken(subject, expires)


def _time(claims: Mapping[str, object], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TokenRefused(f"the claim {name!r} of the token is not a number")
    return float(value)


def _encoded(part: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def _decoded(part: str) -> Mapping[str, object]:
    try:
        decoded = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        raise TokenRefused("a part of the token is not base64 of JSON") from None
    if not isinstance(decoded, dict):
        raise TokenRefused("a part of the token is not a JSON object")
    return decoded
