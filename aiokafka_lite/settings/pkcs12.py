"""Reads PKCS#12 stores, as keytool and openssl make them, by the library cryptography: OpenSSL reads only PEM here.

A key store has a private key, its certificate and the chain of issuers; a trust store has certificates alone. Both
become PEM text. No error quotes the password or the content.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..errors import ConfigurationError
from ..extras import extra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate


class KeyStore(NamedTuple):
    """PEM text with the key, encrypted with ``password``, its certificate, and the chain of issuers."""

    pem: str
    password: str


def read_key_store(subject: str, content: bytes, password: str | None, password_setting: str) -> KeyStore:
    """Read a key and its certificates. ``subject`` names the setting and the file in errors.

    Raises ConfigurationError for a wrong password, and for a store without a key and its certificate.
    """
    store = _load(subject, content, password, password_setting)
    if store.key is None or store.cert is None:
        missing = "no private key" if store.key is None else "no certificate for its private key"
        raise ConfigurationError(f"{subject} has {missing}; a store with trusted certificates alone is for ssl_cafile")
    serialization = extra("cryptography.hazmat.primitives.serialization", "pkcs12")
    own = secrets.token_urlsafe(24)  # the text goes to a file for a moment
    encryption = serialization.BestAvailableEncryption(own.encode())
    private = serialization.PrivateFormat.PKCS8
    key = store.key.private_bytes(serialization.Encoding.PEM, private, encryption).decode()
    chain = _chain(store.cert.certificate, [friendly.certificate for friendly in store.additional_certs])
    return KeyStore(key + _pem(chain), own)


def read_trust_store(subject: str, content: bytes, password: str | None, password_setting: str) -> str:
    """Return the certificates of a trust store as PEM text. Raises ConfigurationError as ``read_key_store``."""
    store = _load(subject, content, password, password_setting)
    certificates = [friendly.certificate for friendly in (store.cert, *store.additional_certs) if friendly is not None]
    if not certificates:
        raise ConfigurationError(f"{subject} has no certificates")
    return _pem(certificates)


def _load(subject: str, content: bytes, password: str | None, password_setting: str) -> PKCS12KeyAndCertificates:
    pkcs12 = extra("cryptography.hazmat.primitives.serialization.pkcs12", "pkcs12")
    try:
        store: PKCS12KeyAndCertificates = pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except Exception:  # noqa: BLE001 - a ValueError, or an error of the library for an algorithm that it lacks
        pass
    else:
        return store
    reason = f"{password_setting} is not set" if password is None else f"{password_setting} may be wrong"
    raise ConfigurationError(f"{subject} cannot be read as PKCS#12: {reason}, or the file is not whole")


def _chain(leaf: Certificate, others: Sequence[Certificate]) -> list[Certificate]:
    """Return the certificate and its issuers in order, as TLS sends them. A store has them in any order."""
    chain = [leaf]
    by_subject = {certificate.subject: certificate for certificate in others}
    while chain[-1].issuer != chain[-1].subject and chain[-1].issuer in by_subject:
        chain.append(by_subject.pop(chain[-1].issuer))
    return chain


def _pem(certificates: Sequence[Certificate]) -> str:
    encoding = extra("cryptography.hazmat.primitives.serialization", "pkcs12").Encoding.PEM
    return "".join(certificate.public_bytes(encoding).decode() for certificate in certificates)
