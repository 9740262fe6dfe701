"""GSSAPI with Kerberos 5 (RFC 4752): the client sends a ticket, and the broker proves that it can read it.

Messages go back and forth until the security context is complete on both sides. Then the broker offers security layers,
and the client chooses none: Kafka has TLS for that.
"""

from __future__ import annotations

from typing import Protocol

from ...errors import AuthenticationError
from .machine import Step
from .redaction import Redactor

_NO_LAYER = 1
"""The bit of "no security layer" in the broker's offer."""

_CHOICE = bytes([_NO_LAYER, 0, 0, 0])
"""The client's answer: no security layer, no size of wrapped messages, and no name, because it acts as the ticket's
owner.
"""

_LENGTH_OF_OFFER = 4


class SecurityContext(Protocol):
    """The client's half of a security context. Each call raises AuthenticationError for a message that is not valid."""

    @property
    def complete(self) -> bool:
        """Whether both sides have authenticated each other."""

    def step(self, message: bytes) -> bytes:
        """Return the answer to a message of the broker, empty if there is none."""

    def unwrap(self, message: bytes) -> bytes:
        """Return the content of a message of the complete context."""

    def wrap(self, content: bytes) -> bytes:
        """Return a message of the complete context that is signed and not encrypted."""


class GssapiExchange:
    """``first`` is the first message of ``context``: it has the ticket."""

    objection = ""

    def __init__(self, context: SecurityContext, first: bytes) -> None:
        self._context = context
        self._first = first
        self._has_chosen = False
        redactor = Redactor()  # without secrets to hide: only the broker can read a ticket
        self.quoted = redactor.quoted
        self.hide_secrets = redactor.hide_in

    def __repr__(self) -> str:
        return "<GssapiExchange>"

    def begin(self) -> Step:
        return self._first

    def received(self, message: bytes) -> Step:
        if not self._context.complete:
            return self._context.step(message)  # an empty answer asks for the offer
        if self._has_chosen:
            return None
        offer = self._context.unwrap(message)
        if len(offer) != _LENGTH_OF_OFFER:
            raise AuthenticationError("the broker's offer of security layers does not have four bytes")
        if not offer[0] & _NO_LAYER:
            raise AuthenticationError(
                "the broker requires a security layer of Kerberos, which is not supported; use TLS instead"
            )
        self._has_chosen = True
        return self._context.wrap(_CHOICE)

    def derived(self, key: bytes) -> Step:
        raise AuthenticationError("GSSAPI derives no key")
