"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): both sides prove that they know the password.

The checks that protect the client from a false broker:

1. The broker's nonce must begin with the client's nonce.
2. The number of iterations has a minimum and a maximum. With fewer, the password could be guessed from a recorded
   exchange. With more, a login could take minutes.
3. The last message must have a signature that only a holder of the credentials can make.

The password is used as given, in UTF-8. RFC 5802 requires SASLprep, but Kafka's tools and clients do not apply it. With
SASLprep, a password outside ASCII would differ from the stored password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable

from ...errors import AuthenticationError
from .machine import Derivation, Step
from .redaction import Redactor

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

FEWEST_ITERATIONS = 4096
MOST_ITERATIONS = 1_000_000

_GS2_HEADER = b"n,,"  # no channel binding, no identity but the user's own
_TOKENAUTH = b",tokenauth=true"
_NONCE = re.compile(rb"[\x21-\x2b\x2d-\x7e]+")


class ScramExchange:
    """The client's two messages and the broker's two. ``nonce`` must be unguessable and new for each login.

    With ``tokenauth`` the user name is the id of a delegation token, and the password its HMAC in base64 (KIP-48).
    """

    def __init__(self, mechanism: str, username: str, password: str, nonce: str, *, tokenauth: bool = False) -> None:
        self._hash_name = HASHES[mechanism]
        self._password = password.encode()
        redactor = Redactor(password)
        self.quoted, self.hide_secrets = redactor.quoted, redactor.hide_in
        self._nonce = nonce.encode()
        self._first = b"n=" + _escaped(username) + b",r=" + self._nonce + (_TOKENAUTH if tokenauth else b"")
        self._messages = b""  # all messages without the proof: both sides sign them
        self._without_proof = b""
        self._server_signature: bytes | None = None
        self._verified = False
        self.objection: str = ""

    def __repr__(self) -> str:
        return f"<ScramExchange {self._hash_name}>"

    def begin(self) -> Step:
        return _GS2_HEADER + self._first

    def received(self, message: bytes) -> Step:
        if self._verified:
            raise AuthenticationError("the broker sent a message after its last one")
        return self._challenge(message) if self._server_signature is None else self._server_final(message)

    def _challenge(self, message: bytes) -> Step:
        nonce, salt, iterations = _server_first(message, self.quoted)
        # A nonce without the client's part may come from a recorded login.
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationError("the broker's nonce does not begin with the client's nonce")
        if not FEWEST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise AuthenticationError(
                f"the broker requests {iterations} iterations; {FEWEST_ITERATIONS} to {MOST_ITERATIONS} are accepted"
            )
        self._without_proof = b"c=" + base64.b64encode(_GS2_HEADER) + b",r=" + nonce
        self._messages = b",".join((self._first, message, self._without_proof))
        return Derivation(self._hash_name, self._password, salt, iterations)

    def derived(self, key: bytes) -> Step:
        client_key = self._sign(key, b"Client Key")
        signature = self._sign(hashlib.new(self._hash_name, client_key).digest(), self._messages)
        proof = bytes(one ^ other for one, other in zip(client_key, signature))
        self._server_signature = self._sign(self._sign(key, b"Server Key"), self._messages)
        return self._without_proof + b",p=" + base64.b64encode(proof)

    def _server_final(self, message: bytes) -> Step:
        attribute, _, rest = message.partition(b"=")
        value = rest.split(b",")[0]
        if attribute == b"e":
            self.objection = self.quoted(value.decode("utf-8", "replace"))
            raise AuthenticationError(f"the broker refused the credentials: {self.objection}")
        if attribute != b"v":
            raise AuthenticationError("the broker's last message is neither a signature nor an error")
        assert self._server_signature is not None
        if not hmac.compare_digest(_decoded(value, "signature"), self._server_signature):
            raise AuthenticationError(
                "the broker's signature is wrong: it does not know the password, so it is not the real broker"
            )
        self._verified = True
        return None

    def _sign(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash_name)


def _escaped(username: str) -> bytes:
    return username.replace("=", "=3D").replace(",", "=2C").encode()


def _server_first(message: bytes, quoted: Callable[[str], str]) -> tuple[bytes, bytes, int]:
    """Parse nonce, salt and iterations in ``r=...,s=...,i=...``. Extensions after them are ignored."""
    if message.startswith(b"m="):
        raise AuthenticationError("the broker requires an extension of SCRAM that is not supported")
    parts = message.split(b",", 3)
    if [part[:2] for part in parts[:3]] != [b"r=", b"s=", b"i="]:
        if parts[0].startswith(b"e="):
            reason = quoted(parts[0][2:].decode("utf-8", "replace"))
            raise AuthenticationError(f"the broker refused the login: {reason}")
        raise AuthenticationError("the broker's first message is not r=...,s=...,i=...")
    nonce, salt, iterations = (part[2:] for part in parts[:3])
    if not _NONCE.fullmatch(nonce):
        raise AuthenticationError("the broker's nonce has characters that are not allowed")
    if not re.fullmatch(rb"[1-9][0-9]{0,9}", iterations):
        raise AuthenticationError("the broker's number of iterations is not a number of at most 10 digits")
    decoded = _decoded(salt, "salt")
    if not decoded:
        raise AuthenticationError("the broker's salt is empty")
    return nonce, decoded, int(iterations)


def _decoded(value: bytes, what: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise AuthenticationError(f"the broker's {what} is not base64") from None
