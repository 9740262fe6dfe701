"""OAUTHBEARER (RFC 7628): the client sends a token that an identity provider has issued.

A broker that rejects the token responds with JSON that has the reason. The client must acknowledge it with one byte;
then the broker sends its refusal (section 3.2.3).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from ...errors import AuthenticationError
from .machine import Step
from .redaction import Redactor

_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""The characters of a token (RFC 6750, section 2.1). Other characters could end the field and add more fields."""

_ACKNOWLEDGED = b"\x01"

_LONGEST_REASON = 64 * 1024
"""The number of bytes of the reason that are read. Parsing a long text would block the event loop."""


class OAuthBearerExchange:
    """The client sends one message with the token. The broker accepts it, or answers with the reason of its refusal.

    ``extensions`` are pairs for services that read them (KIP-342). They have been checked.
    """

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        if not _TOKEN.fullmatch(token):
            raise AuthenticationError(
                "the token must consist of letters, digits and -._~+/, with = only at its end, as bearer tokens do"
            )
        redactor = Redactor(token)
        self.quoted, self.hide_secrets = redactor.quoted, redactor.hide_in
        pairs = [f"{name}={value}\x01".encode() for name, value in (extensions or {}).items()]
        self._message = b"n,,\x01auth=Bearer " + token.encode() + b"\x01" + b"".join(pairs) + b"\x01"
        self.objection: str = ""

    def __repr__(self) -> str:
        return "<OAuthBearerExchange>"

    def begin(self) -> Step:
        return self._message

    def received(self, message: bytes) -> Step:
        if self.objection:
            raise AuthenticationError(f"the broker refused the token: {self.objection}")
        if not message:
            return None
        self.objection = self.quoted(_reason(message))
        return _ACKNOWLEDGED

    def derived(self, key: bytes) -> Step:
        raise AuthenticationError("OAUTHBEARER derives no key")


def _reason(message: bytes) -> str:
    """Return the status in ``{"status": "invalid_token", ...}``, or the message itself if it has another form."""
    text = message[:_LONGEST_REASON].decode("utf-8", "replace")
    try:
        status_object = json.loads(text)
    except (ValueError, RecursionError):
        status_object = None
    status = status_object.get("status") if isinstance(status_object, dict) else None
    return status if isinstance(status, str) and status else text
