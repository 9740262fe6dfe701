"""PLAIN (RFC 4616): sends name and password unencrypted. Use it with TLS only, except in a trusted network."""

from __future__ import annotations

from ...errors import AuthenticationError
from .machine import Step
from .redaction import Redactor


class PlainExchange:
    """One message, then the broker's acceptance. Name and password must not contain NUL, which separates them."""

    objection = ""

    def __init__(self, username: str, password: str) -> None:
        redactor = Redactor(password)
        self.quoted, self.hide_secrets = redactor.quoted, redactor.hide_in
        self._message = b"\0" + username.encode() + b"\0" + password.encode()

    def __repr__(self) -> str:
        return "<PlainExchange>"

    def begin(self) -> Step:
        return self._message

    def received(self, message: bytes) -> Step:
        # Kafka's message is empty. A message with content has no meaning here, and is an acceptance too.
        return None

    def derived(self, key: bytes) -> Step:
        raise AuthenticationError("PLAIN derives no key")
