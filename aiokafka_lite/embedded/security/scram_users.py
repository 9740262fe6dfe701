"""The SCRAM credentials of a cluster: for each user and mechanism a salt, a number of iterations, and two keys.

As in Kafka, the controller stores no password. A client sends the salted password, and the two keys derived from it
check a login (RFC 5802, section 3).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from ...protocol.sasl.scram import HASHES

DEFAULT_ITERATIONS = 4096

_SALT_BYTES = 20


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The data with which a broker checks the logins of one user by one mechanism."""

    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def of(cls, mechanism: str, iterations: int, salt: bytes, salted_password: bytes) -> Self:
        """Return the credential for a password that the client has salted: PBKDF2 of the mechanism's hash."""
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
        """Return the credential for a password, with a random salt. Takes about a millisecond."""
        salt = secrets.token_bytes(_SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
        return cls.of(mechanism, iterations, salt, salted)

    def saved(self) -> dict[str, Any]:
        keys = {"salt": self.salt, "stored_key": self.stored_key, "server_key": self.server_key}
        return {"iterations": self.iterations, **{name: key.hex() for name, key in keys.items()}}

    @classmethod
    def restored(cls, values: dict[str, Any]) -> Self:
        keys = {name: bytes.fromhex(values[name]) for name in ("salt", "stored_key", "server_key")}
        return cls(iterations=values["iterations"], **keys)


class ScramUsers:
    """The SCRAM credentials of all users. Owner: the cluster. A mechanism is SCRAM-SHA-256 or SCRAM-SHA-512.

    A client's change of a credential is saved, and overrides the password in the configuration of the cluster.
    """

    def __init__(self) -> None:
        self._users: dict[str, dict[str, ScramCredential]] = {}
        self._changes: dict[tuple[str, str], ScramCredential | None] = {}
        """The changes of clients, by user and mechanism; None for a credential that was removed."""
        self._configured: dict[tuple[str, str], ScramCredential] = {}

    def __repr__(self) -> str:
        return f"<ScramUsers users={len(self._users)}>"

    def set(self, user: str, mechanism: str, iterations: int, salt: bytes, salted_password: bytes) -> None:
        """Add a credential, or replace the user's credential for the mechanism."""
        self._change(user, mechanism, ScramCredential.of(mechanism, iterations, salt, salted_password))

    def set_password(self, user: str, password: str, mechanisms: Iterable[str] = HASHES) -> None:
        """Add the credentials for a password of the cluster's configuration, which is salted here."""
        for mechanism in mechanisms:
            credential = ScramCredential.of_password(mechanism, password)
            self._users.setdefault(user, {})[mechanism] = self._configured[user, mechanism] = credential

    def remove(self, user: str, mechanism: str) -> bool:
        """Remove a credential. False if there is none."""
        if self.get(user, mechanism) is None:
            return False
        self._change(user, mechanism, None)
        return True

    def _change(self, user: str, mechanism: str, credential: ScramCredential | None) -> None:
        self._changes[user, mechanism] = credential
        credentials = self._users.setdefault(user, {})
        if credential is None:
            credentials.pop(mechanism, None)
        else:
            credentials[mechanism] = credential
        if not credentials:
            del self._users[user]

    def saved(self) -> list[list[Any]]:
        return [
            [user, mechanism, None if credential is None else credential.saved()]
            for (user, mechanism), credential in self._changes.items()
        ]

    def restore(self, state: list[list[Any]]) -> None:
        for user, mechanism in list(self._changes):
            self._change(user, mechanism, self._configured.get((user, mechanism)))
        self._changes.clear()
        for user, mechanism, values in state:
            self._change(user, mechanism, None if values is None else ScramCredential.restored(values))

    def get(self, user: str, mechanism: str) -> ScramCredential | None:
        """Return the credential of a user for a mechanism; None if there is none."""
        return self._users.get(user, {}).get(mechanism)

    def describe(self) -> dict[str, dict[str, int]]:
        """Return the number of iterations by user and mechanism: ``{"alice": {"SCRAM-SHA-256": 4096}}``."""
        return {
            user: {mechanism: credential.iterations for mechanism, credential in credentials.items()}
            for user, credentials in self._users.items()
        }
