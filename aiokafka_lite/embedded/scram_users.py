"""The SCRAM credentials of a cluster: for each user and mechanism a salt, a number of iterations, and two keys.

As in Kafka, the controller stores no password: a client that sets one sends the salted password, and a login is checked
with the two keys that are derived from it (RFC 5802, section 3).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from ..protocol.sasl.scram import HASHES

DEFAULT_ITERATIONS = 4096

_SALT_BYTES = 20


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a broker stores to check the logins of one user by one mechanism."""

    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def of(cls, mechanism: str, iterations: int, salt: bytes, salted_password: bytes) -> Self:
        """The credential for a password that the client has salted: PBKDF2 of the mechanism's hash."""
        hash_name = HASHES[mechanism]
        client_key = hmac.digest(salted_password, b"Client Key", hash_name)
        return cls(
            salt,
            iterations,
            stored_key=hashlib.new(hash_name, client_key).digest(),
            server_key=hmac.digest(salted_password, b"Server Key", hash_name),
        )

    @classmethod
    def of_password(cls, mechanism: str, password: str, *, iterations: int = DEFAULT_ITERATIONS) -> Self:
        """The credential for a password, with a random salt. Takes about a millisecond."""
        salt = secrets.token_bytes(_SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
        return cls.of(mechanism, iterations, salt, salted)


class ScramUsers:
    """The SCRAM credentials of all users. Owner: the cluster. A mechanism is SCRAM-SHA-256 or SCRAM-SHA-512."""

    def __init__(self) -> None:
        self._users: dict[str, dict[str, ScramCredential]] = {}

    def __repr__(self) -> str:
        return f"<ScramUsers users={len(self._users)}>"

    def set(self, user: str, mechanism: str, iterations: int, salt: bytes, salted_password: bytes) -> None:
        """Add a credential, or replace the one that the user has for the mechanism."""
        credential = ScramCredential.of(mechanism, iterations, salt, salted_password)
        self._users.setdefault(user, {})[mechanism] = credential

    def set_password(self, user: str, password: str, mechanisms: Iterable[str] = HASHES) -> None:
        """The same for a password, which is salted here, and for several mechanisms."""
        for mechanism in mechanisms:
            self._users.setdefault(user, {})[mechanism] = ScramCredential.of_password(mechanism, password)

    def remove(self, user: str, mechanism: str) -> bool:
        """Remove a credential. False if there is none."""
        credentials = self._users.get(user, {})
        was_known = credentials.pop(mechanism, None) is not None
        if not credentials:
            self._users.pop(user, None)
        return was_known

    def get(self, user: str, mechanism: str) -> ScramCredential | None:
        """The credential of a user for a mechanism; None if there is none."""
        return self._users.get(user, {}).get(mechanism)

    def describe(self) -> dict[str, dict[str, int]]:
        """The number of iterations by user and mechanism: ``{"alice": {"SCRAM-SHA-256": 4096}}``."""
        return {
            user: {mechanism: credential.iterations for mechanism, credential in credentials.items()}
            for user, credentials in self._users.items()
        }
