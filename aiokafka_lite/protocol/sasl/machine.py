"""What all mechanisms have in common: how they are driven, and what they may ask their driver to do."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Protocol

from ...errors import harmless


@dataclass(frozen=True, slots=True)
class Derivation:
    """A key to be made of a password by PBKDF2, which costs as much time as ``iterations`` says."""

    hash_name: str
    password: bytes = field(repr=False)
    salt: bytes
    iterations: int


def derive(derivation: Derivation) -> bytes:
    """The key; a millisecond for some thousand iterations. It may be run in a thread, as it lets others run."""
    return hashlib.pbkdf2_hmac(derivation.hash_name, derivation.password, derivation.salt, derivation.iterations)


Step = bytes | Derivation | None
"""Say these bytes and hear the answer; derive a key and hand it in; or None: all is said, and the broker is accepted,
once it has accepted us."""


class Exchange(Protocol):
    """One login by one mechanism, for one use. Each call returns the next step; AuthenticationError ends it."""

    @property
    def objection(self) -> str:
        """What the broker had against us, in its own words made harmless; empty as long as it said nothing."""

    def begin(self) -> Step:
        """The first step."""

    def received(self, message: bytes) -> Step:
        """The step after the broker's answer to what was said last."""

    def derived(self, key: bytes) -> Step:
        """The step after the key that was asked for."""


LONGEST_QUOTE = 200


def quoted(text: str) -> str:
    """A broker's words in a login."""
    return harmless(text, LONGEST_QUOTE)
