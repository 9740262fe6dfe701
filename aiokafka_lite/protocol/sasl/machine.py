"""The interface of all mechanisms: the exchange and its steps."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Protocol

from ...errors import harmless
from ..schema import Message


@dataclass(frozen=True, slots=True)
class Derivation:
    """A key to derive from a password by PBKDF2. The time grows with ``iterations``."""

    hash_name: str
    password: bytes = field(repr=False)
    salt: bytes
    iterations: int


def derive(derivation: Derivation) -> bytes:
    """Derive the key. Takes about 1 ms per 1,000 iterations; may run in a thread: it releases the GIL."""
    return hashlib.pbkdf2_hmac(derivation.hash_name, derivation.password, derivation.salt, derivation.iterations)


Step = bytes | Derivation | None
"""Bytes to send, a key to derive, or None: the exchange is complete, and the broker is authenticated."""


class SaslExchange(Protocol):
    """One login by one mechanism. Each call returns the next step, or raises AuthenticationError."""

    @property
    def objection(self) -> str:
        """The broker's reason for refusing the login, printable. Empty if it gave none."""

    def quoted(self, text: str) -> str:
        """Return a broker's text for an error, with ``***`` in place of the secrets of this login."""

    def hide_secrets(self, response: Message) -> None:
        """Hide the secrets of this login in the error texts of a later response."""

    def begin(self) -> Step:
        """Return the first step."""

    def received(self, message: bytes) -> Step:
        """Return the step after a message of the broker."""

    def derived(self, key: bytes) -> Step:
        """Return the step after the derived key."""


LONGEST_QUOTE = 200


def quoted(text: str) -> str:
    """Return a broker's text for an error: printable and short. It may still have secrets; see ``redaction``."""
    return harmless(text, LONGEST_QUOTE)
