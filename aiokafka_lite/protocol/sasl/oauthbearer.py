"""OAUTHBEARER (RFC 7628): a token that somebody else issued, handed over as it is.

A broker that does not want the token answers with JSON that says why, and goes on only after one more byte from us; its
refusal comes after that (section 3.2.3).
"""

from __future__ import annotations

import json
import re

from ...errors import AuthenticationError
from .machine import Step, quoted

_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""RFC 6750, section 2.1. Anything else could end the field early and add others."""

_ACKNOWLEDGED = b"\x01"


class OAuthBearerExchange:
    """One message with the token, and the broker's consent or its reasons."""

    def __init__(self, token: str) -> None:
        if not _TOKEN.fullmatch(token):
            raise AuthenticationError(
                "the token has characters that no bearer token has: letters, digits, -._~+/ and = at its end"
            )
        self._message = b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"
        self.objection = ""

    def __repr__(self) -> str:
        return "<OAuthBearerExchange>"

    def begin(self) -> Step:
        return self._message

    def received(self, message: bytes) -> Step:
        if self.objection:
            raise AuthenticationError(f"the token is refused: {self.objection}")
        if not message:
            return None
        self.objection = _reason(message)
        return _ACKNOWLEDGED

    def derived(self, key: bytes) -> Step:
        raise AuthenticationError("OAUTHBEARER derives no key")


def _reason(message: bytes) -> str:
    """What ``{"status": "invalid_token", ...}`` says, or all of it where it is something else."""
    text = message.decode("utf-8", "replace")
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = None
    status = said.get("status") if isinstance(said, dict) else None
    return quoted(status if isinstance(status, str) and status else text)
