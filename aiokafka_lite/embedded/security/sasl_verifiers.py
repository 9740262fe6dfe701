"""The broker's side of SASL: one class per mechanism, each a small state machine without I/O.

``received(message)`` returns the response to a message of the client. When ``accepted`` is set, the login is complete.
``LoginRefused`` ends it. The messages and texts equal Kafka's, so that clients show the same errors.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from ...protocol.sasl.scram import HASHES
from .access_tokens import TokenCheck, TokenRefused, accept, unsecured_claims
from .delegation_tokens import DelegationToken, DelegationTokens
from .scram_users import ScramCredential, ScramUsers


class LoginRefused(Exception):
    """The login is refused. The message is for the log of the broker.

    ``shown`` is the text for the client. The default text is the same for a wrong user and a wrong password.
    """

    def __init__(self, reason: str, *, shown: str | None = None) -> None:
        super().__init__(reason)
        self.shown = shown


class Accepted(NamedTuple):
    """A complete login."""

    name: str
    """The name of the principal, without its type."""
    expires: float | None = None
    """The end of the credentials, in seconds since the epoch; None if they do not expire."""
    by_token: bool = False
    """Whether the client has logged in with a delegation token."""


class SaslVerifier(Protocol):
    """One login by one mechanism."""

    accepted: Accepted | None

    def received(self, message: bytes) -> bytes:
        """Answer a message of the client. Raises LoginRefused."""


OTHER_IDENTITY = "Authentication failed: Client requested an authorization id that is different from username"


class PlainVerifier:
    """PLAIN (RFC 4616): the client's message has its name and its password."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self.accepted: Accepted | None = None
        self._passwords = passwords

    def received(self, message: bytes) -> bytes:
        parts = message.decode("utf-8", "replace").split("\0", 3)
        if len(parts) != 3:
            text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            raise LoginRefused("the message must have two names and a password", shown=text)
        identity, name, password = parts
        for what, value in (("username", name), ("password", password)):
            if not value:
                raise LoginRefused(f"the {what} is empty", shown=f"Authentication failed: {what} not specified")
        # An unknown name has the empty password, which is refused above. So its check is the same as for a known name.
        expected = self._passwords.get(name, "")
        if not hmac.compare_digest(expected.encode(), password.encode()):
            text = "Authentication failed: Invalid username or password"
            raise LoginRefused(f"the password of {name!r} is wrong", shown=text)
        if identity not in ("", name):
            raise LoginRefused(f"{name!r} requests to act as {identity!r}", shown=OTHER_IDENTITY)
        self.accepted = Accepted(name)
        return b""


# Possessive: the comma behind a name cannot be a part of it, and a client may send half a megabyte before its login.
_SASLNAME = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]++|=2C|=3D)++"
_EXTENSIONS = rb"((?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+)*)"
_NONCE = rb"[\x21-\x2b\x2d-\x7e]+"
_CLIENT_FIRST = re.compile(
    rb"n,(?:a=(?P<identity>" + _SASLNAME + rb"))?,"
    rb"(?P<bare>(?:m=[\x01-\x2b\x2d-\x7f]+,)?n=(?P<name>" + _SASLNAME + rb"),r=(?P<nonce>" + _NONCE + rb")"
    rb"(?P<extensions>" + _EXTENSIONS + rb"))"
)
_CLIENT_FINAL = re.compile(
    rb"(?P<without_proof>c=[A-Za-z0-9/+=]*,r=(?P<nonce>" + _NONCE + rb")" + _EXTENSIONS + rb"),"
    rb"p=(?P<proof>(?:[A-Za-z0-9/+]{4})*(?:[A-Za-z0-9/+]{3}=|[A-Za-z0-9/+]{2}==)?)"
)


_TOKENAUTH = re.compile(rb",tokenauth=true(?=,|$)", re.IGNORECASE)


class ScramVerifier:
    """SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802): the client proves that it knows the password, and so does the broker.

    The client's first message names the user; the response has the salt. Its second message has the proof. With the
    extension ``tokenauth=true`` the first message has the id of a delegation token, and the principal is its owner
    (KIP-48). As in Kafka, a token that has expired is accepted until it is removed; the session then ends at once.
    """

    def __init__(self, mechanism: str, users: ScramUsers, tokens: DelegationTokens) -> None:
        self.accepted: Accepted | None = None
        self._mechanism = mechanism
        self._hash_name = HASHES[mechanism]
        self._users = users
        self._tokens = tokens
        self._token: DelegationToken | None = None
        self._name = ""
        self._nonce = b""
        self._signed = b""  # the first messages of both sides, which both sign
        self._credential: ScramCredential | None = None

    def received(self, message: bytes) -> bytes:
        return self._challenge(message) if self._credential is None else self._check(self._credential, message)

    def _challenge(self, message: bytes) -> bytes:
        match = _CLIENT_FIRST.fullmatch(message)
        if match is None:
            raise LoginRefused("the first message is malformed")
        self._name = _unescaped(match["name"])
        if _TOKENAUTH.search(match["extensions"]):
            self._token = self._tokens.find(self._name)
            if self._token is None:
                raise LoginRefused(f"there is no delegation token {self._name!r}")
            self._credential = self._tokens.credential(self._token, self._mechanism)
        else:
            self._credential = self._users.get(self._name, self._mechanism)
        if self._credential is None:
            raise LoginRefused(f"there is no user {self._name!r} for {self._mechanism}")
        identity = _unescaped(match["identity"] or b"")
        if identity not in ("", self._name):
            raise LoginRefused(f"{self._name!r} requests to act as {identity!r}", shown=OTHER_IDENTITY)
        self._nonce = match["nonce"] + secrets.token_urlsafe(24).encode()
        salt = base64.b64encode(self._credential.salt)
        challenge = b"r=%s,s=%s,i=%d" % (self._nonce, salt, self._credential.iterations)
        self._signed = match["bare"] + b"," + challenge
        return challenge

    def _check(self, credential: ScramCredential, message: bytes) -> bytes:
        match = _CLIENT_FINAL.fullmatch(message)
        if match is None:
            raise LoginRefused("the second message is malformed")
        if match["nonce"] != self._nonce:
            raise LoginRefused("the second message must repeat the nonce of the first one")
        signed = self._signed + b"," + match["without_proof"]
        signature = hmac.digest(credential.stored_key, signed, self._hash_name)
        client_key = bytes(one ^ other for one, other in zip(base64.b64decode(match["proof"]), signature))
        if not hmac.compare_digest(hashlib.new(self._hash_name, client_key).digest(), credential.stored_key):
            raise LoginRefused(f"the password of {self._name!r} is wrong")
        self.accepted = Accepted(self._name) if self._token is None else _accepted_by(self._token)
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, signed, self._hash_name))


def _accepted_by(token: DelegationToken) -> Accepted:
    return Accepted(token.owner.partition(":")[2], token.expires_at / 1000, by_token=True)


def _unescaped(name: bytes) -> str:
    return name.decode("ascii").replace("=2C", ",").replace("=3D", "=")


_BEARER = re.compile(
    rb"n,(?:a=(?P<identity>" + _SASLNAME + rb"))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH = re.compile(rb"bearer +([-_.a-zA-Z0-9]+)", re.IGNORECASE)
_ACKNOWLEDGED = b"\x01"


class OAuthBearerVerifier:
    """OAUTHBEARER (RFC 7628): the client's message has a token.

    The response to a bad token is its reason as JSON. The client acknowledges it, and only then is the login refused.
    """

    def __init__(self, check: TokenCheck | None, time: Callable[[], float]) -> None:
        self.accepted: Accepted | None = None
        self._check = check
        self._time = time
        self._refusal: LoginRefused | None = None

    def received(self, message: bytes) -> bytes:
        if self._refusal is not None and message == _ACKNOWLEDGED:
            raise self._refusal
        match = _BEARER.fullmatch(message)
        pairs = dict(pair.partition(b"=")[::2] for pair in match["pairs"].split(b"\x01")) if match else {}
        auth = _AUTH.fullmatch(pairs.get(b"auth", b""))
        if match is None or auth is None:
            raise LoginRefused("the first message is malformed, or has no bearer token")
        try:
            token = self._accepted(auth[1].decode("ascii"))
        except TokenRefused as refused:
            answer = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
            self._refusal = LoginRefused(str(refused), shown=answer)
            return answer.encode()
        identity = _unescaped(match["identity"] or b"")
        if identity not in ("", token.name):
            text = (
                f"Authentication failed: Client requested an authorization id ({identity}) that is different from "
                f"the token's principal name ({token.name})"
            )
            raise LoginRefused(f"the token of {token.name!r} requests to act as {identity!r}", shown=text)
        self.accepted = token
        return b""

    def _accepted(self, token: str) -> Accepted:
        if self._check is None:
            claims = unsecured_claims(token)
        else:
            kind = ""
            try:
                claims = self._check(token)
            except Exception as error:  # noqa: BLE001 - a user's function: each of its exceptions refuses the token
                kind = type(error).__name__
            if kind:  # the text of its error may contain the token
                raise TokenRefused(f"check_token raised {kind}")
        content = accept(claims, self._time(), needs_expiry=self._check is None)
        return Accepted(content.subject, content.expires)
