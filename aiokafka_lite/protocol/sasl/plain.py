"""PLAIN (RFC 4616): name and password as they are, so over TLS only, unless the network is one's own."""

from __future__ import annotations

from ...errors import AuthenticationError
from .machine import Step


class PlainExchange:
    """One message, and the broker's consent. Neither text may hold NUL, which is what separates them."""

    objection = ""

    def __init__(self, username: str, password: str) -> None:
        self._message = b"\0" + username.encode() + b"\0" + password.encode()

    def __repr__(self) -> str:
        return "<PlainExchange>"

    def begin(self) -> Step:
        return self._message

    def received(self, message: bytes) -> Step:
        # Kafka answers with nothing; whatever else comes has no meaning here, and its consent came with it.
        return None

    def derived(self, key: bytes) -> Step:
        raise AuthenticationError("PLAIN derives no key")
