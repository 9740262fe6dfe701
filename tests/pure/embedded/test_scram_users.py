"""SCRAM credentials: stored as keys, not as passwords."""

from __future__ import annotations

import base64
import hashlib

from aiokafka_lite.embedded.security.scram_users import ScramUsers

# The example of RFC 7677: user "user", password "pencil".
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SALTED = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096)


def test_a_salted_password_becomes_the_keys_of_rfc_7677() -> None:
    users = ScramUsers()
    users.set("user", "SCRAM-SHA-256", 4096, SALT, SALTED)
    credential = users.get("user", "SCRAM-SHA-256")
    assert credential is not None
    assert (credential.salt, credential.iterations) == (SALT, 4096)
    assert base64.b64encode(credential.stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert base64.b64encode(credential.server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="


def test_users_are_described_without_their_keys() -> None:
    users = ScramUsers()
    users.set_password("alice", "hunter2")
    users.set("bob", "SCRAM-SHA-512", 8192, b"salt", bytes(64))
    assert users.describe() == {
        "alice": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096},
        "bob": {"SCRAM-SHA-512": 8192},
    }
    credential = users.get("alice", "SCRAM-SHA-512")
    assert credential is not None
    assert str(credential.stored_key) not in repr((users, credential))


def test_a_user_exists_until_the_last_credential_is_removed() -> None:
    users = ScramUsers()
    users.set_password("alice", "hunter2")
    assert users.remove("alice", "SCRAM-SHA-256")
    assert users.describe() == {"alice": {"SCRAM-SHA-512": 4096}}
    assert users.remove("alice", "SCRAM-SHA-512")
    assert not users.remove("alice", "SCRAM-SHA-512")
    assert users.describe() == {}
    assert users.get("alice", "SCRAM-SHA-512") is None
