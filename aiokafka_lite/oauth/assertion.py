"""Signed JWTs with which a client authenticates at a token endpoint, in place of a client secret (RFC 7523)."""

from __future__ import annotations

import base64
import json
import os
import time
import uuid
from collections.abc import Mapping
from typing import Any

from .. import disclosure
from ..arguments import in_seconds
from ..errors import ConfigurationError, ConnectionLost
from ..extras import extra
from ..settings.security import Secret

_ALGORITHMS = ("RS256", "ES256")
_CLOCK_SKEW = 60
"""Seconds before now from which an assertion is valid, as in Java's client."""
_P256 = 32  # bytes of each number of a signature
_LONGEST = 86_400


class SignedAssertion:
    """Makes a signed JWT for each call: ``ClientCredentials(url, client_id, assertion=SignedAssertion(...))``.

    ``private_key_file`` is the path of a PEM file, which is read again for each JWT; ``key_password`` decrypts it.
    ``audience`` is mostly the address of the token endpoint. ``issuer`` and ``subject`` (by default the issuer) are
    mostly the client id. ``key_id`` tells the identity provider which key signed it. ``lifetime`` is in seconds.
    ``claims`` are further claims, or replace those of this class. Needs the extra ``jwt``.

    The constructor raises ConfigurationError, also for a wrong ``key_password``. A call raises ConnectionLost if the
    file cannot be read, because it may be replaced at that moment.
    """

    def __init__(
        self,
        private_key_file: str | os.PathLike[str],
        *,
        audience: str,
        issuer: str,
        subject: str | None = None,
        algorithm: str = "RS256",
        key_password: str | None = None,
        key_id: str | None = None,
        lifetime: float = 300.0,
        claims: Mapping[str, object] | None = None,
    ) -> None:
        if not isinstance(private_key_file, str | os.PathLike):
            raise ConfigurationError(
                f"private_key_file must be the path of a PEM file, got {disclosure.kind(private_key_file)}"
            )
        for name, value in (("audience", audience), ("issuer", issuer), ("subject", subject or issuer)):
            if not isinstance(value, str) or not value:
                raise ConfigurationError(f"{name} must be a string that is not empty")
        if algorithm not in _ALGORITHMS:
            raise ConfigurationError(f"algorithm must be one of {', '.join(_ALGORITHMS)}")
        if not isinstance(lifetime, int | float) or not 1 <= lifetime <= _LONGEST:
            raise ConfigurationError(f"lifetime must be a number of seconds from 1 to {_LONGEST}, got {lifetime!r}")
        self._path = os.fspath(private_key_file)
        self._password = None if key_password is None else Secret(key_password)
        self._algorithm = algorithm
        self._lifetime = lifetime
        self._header = {"alg": algorithm, "typ": "JWT", **({"kid": key_id} if key_id else {})}
        self._claims: dict[str, object] = {"iss": issuer, "sub": subject or issuer, "aud": audience}
        self._further = dict(claims or {})
        try:
            json.dumps(self._further)
        except (TypeError, ValueError):
            raise ConfigurationError("claims must be a dict that JSON can carry") from None
        problem, _ = self._key()
        if problem:
            raise ConfigurationError(problem)

    def __repr__(self) -> str:
        return f"<SignedAssertion {self._algorithm} {disclosure.path(self._path)} {in_seconds(self._lifetime)}>"

    def __call__(self) -> str:
        problem, key = self._key()
        if problem:
            raise ConnectionLost(problem, sent=False)
        now = int(time.time())
        times = {"iat": now, "nbf": now - _CLOCK_SKEW, "exp": now + int(self._lifetime), "jti": str(uuid.uuid4())}
        signed = f"{_encoded(self._header)}.{_encoded({**self._claims, **times, **self._further})}"
        return Secret(f"{signed}.{_base64(self._sign(key, signed.encode()))}")

    def _sign(self, key: Any, content: bytes) -> bytes:
        sha256 = extra("cryptography.hazmat.primitives.hashes", "jwt").SHA256()
        if self._algorithm == "RS256":
            padding = extra("cryptography.hazmat.primitives.asymmetric.padding", "jwt").PKCS1v15()
            signature: bytes = key.sign(content, padding, sha256)
            return signature
        ecdsa = extra("cryptography.hazmat.primitives.asymmetric.ec", "jwt").ECDSA(sha256)
        decode = extra("cryptography.hazmat.primitives.asymmetric.utils", "jwt").decode_dss_signature
        # RFC 7518: the two numbers, one after the other, and not the ASN.1 of OpenSSL.
        return b"".join(number.to_bytes(_P256, "big") for number in decode(key.sign(content, ecdsa)))

    def _key(self) -> tuple[str, Any]:
        """Read the key. Return what is wrong, or an empty string, and the key."""
        name = f"private_key_file={disclosure.path(self._path)}"
        password = None if self._password is None else self._password.encode()
        try:
            with open(self._path, "rb") as file:
                content = file.read()
        except (OSError, ValueError) as error:
            return f"cannot read {name}: {getattr(error, 'strerror', None) or type(error).__name__}", None
        try:
            key = extra("cryptography.hazmat.primitives.serialization", "jwt").load_pem_private_key(content, password)
        except TypeError:  # the password is missing, or the key is not encrypted
            what = "requires key_password" if password is None else "is not encrypted; remove key_password"
            return f"{name} {what}", None
        except ValueError:
            hint = " (is key_password right?)" if password is not None else ""
            return f"{name} has no valid private key in PEM form{hint}", None
        curve = getattr(getattr(key, "curve", None), "name", None)
        is_rsa = hasattr(key, "key_size") and curve is None and hasattr(key, "decrypt")
        if not (is_rsa if self._algorithm == "RS256" else curve == "secp256r1"):
            kind = "an RSA key" if self._algorithm == "RS256" else "a key of the curve P-256"
            return f"{name} must have {kind} for algorithm={self._algorithm!r}", None
        return "", key


def _encoded(part: Mapping[str, object]) -> str:
    return _base64(json.dumps(part, separators=(",", ":")).encode())


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
