"""What must be right about TLS and SASL settings before anything is connected, and text that is never shown.

A secret is a ``Secret`` from the moment it is given: whatever prints it prints three stars. Certificates are read here,
once, when the settings are checked; so a wrong path is an error of the constructor and not of some later connection.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Self

from .errors import ConfigurationError

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

TokenProvider = Callable[[], str | Awaitable[str]]
"""Gives the token to log in with, each time when one is needed. A sync one runs in a thread, as it may well block."""

_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.+?)-----END \1-----", re.DOTALL)
_PEM_LINE = 64


class Secret(str):
    """Text that shows itself as ``***`` wherever it is printed or formatted. ``encode()`` gives the text as it is."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        return text if isinstance(text, cls) else super().__new__(cls, text)

    def __repr__(self) -> str:
        return "'***'"

    def __str__(self) -> str:
        return "***"

    def __format__(self, spec: str) -> str:
        return format("***", spec)


def is_pem(text: str) -> bool:
    """Whether this is PEM itself rather than the path of a file."""
    return "-----BEGIN " in text


def tls_context(
    *, cafile: str | None, certfile: str | None, keyfile: str | None, key_password: str | None, check_hostname: bool
) -> ssl.SSLContext:
    """The context for these settings: whom to trust (None: whom the system trusts), and who we are, if we say so.

    Raises ConfigurationError that names the setting, and quotes no content.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = check_hostname
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cafile is None:
        context.load_default_certs()
    else:
        _trust(context, cafile)
    if certfile is not None:
        _identify(context, certfile, keyfile, key_password)
    return context


def _trust(context: ssl.SSLContext, cafile: str) -> None:
    certificates = _lines(_read("ssl_cafile", cafile))
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(
            f"ssl_cafile{_named(cafile)}: no PEM certificates can be read from it{_cause(error)}"
        ) from None


def _identify(context: ssl.SSLContext, certfile: str, keyfile: str | None, password: str | None) -> None:
    def give_password() -> str:
        # Without this OpenSSL would ask at the terminal.
        if password is None:
            raise ConfigurationError("ssl_key_password: the private key is encrypted, so it is needed")
        return password

    chain = _read("ssl_certfile", certfile)
    key = chain if keyfile is None else _read("ssl_keyfile", keyfile)
    if "PRIVATE KEY-----" not in key:
        setting = f"ssl_certfile{_named(certfile)}" if keyfile is None else f"ssl_keyfile{_named(keyfile)}"
        missing = "; set ssl_keyfile" if keyfile is None else ""
        raise ConfigurationError(f"{setting}: there is no private key in PEM form in it{missing}")
    with _as_file(certfile) as chain_path, _as_file(keyfile or certfile) as key_path:
        try:
            context.load_cert_chain(chain_path, key_path, give_password)
        except ConfigurationError:
            raise
        except (ssl.SSLError, ValueError) as error:
            wrong = " (is ssl_key_password right?)" if password is not None else ""
            raise ConfigurationError(
                f"ssl_certfile{_named(certfile)}: not a PEM certificate that belongs to the key{wrong}{_cause(error)}"
            ) from None


def _read(setting: str, source: str) -> str:
    if is_pem(source):
        return source
    try:
        content = Path(source).read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{setting}={source!r}: cannot be read: {_reason(error)}") from None
    if content[:4] == b"\xfe\xed\xfe\xed":
        raise ConfigurationError(f"{setting}={source!r}: a Java key store; {CONVERT_JKS}")
    if b"-----BEGIN " not in content:
        raise ConfigurationError(f"{setting}={source!r}: not in PEM form; if it is PKCS#12, {CONVERT_PKCS12}")
    return content.decode("latin-1")


CONVERT_PKCS12 = "convert it: openssl pkcs12 -in store.p12 -nodes -out store.pem"
CONVERT_JKS = (
    "convert it: keytool -importkeystore -srckeystore store.jks -destkeystore store.p12 -deststoretype PKCS12, "
    "then openssl pkcs12 -in store.p12 -nodes -out store.pem"
)


def _lines(text: str) -> str:
    """PEM whose line breaks were lost, as in a properties file, with line breaks again. Other text around it goes."""
    blocks = []
    for label, body in _PEM.findall(text):
        if ":" not in body:  # else it has headers of its own, which need their lines
            encoded = "".join(body.split())
            body = "\n" + "".join(
                encoded[start : start + _PEM_LINE] + "\n" for start in range(0, len(encoded), _PEM_LINE)
            )
        blocks.append(f"-----BEGIN {label}-----{body}-----END {label}-----\n")
    return "".join(blocks)


@contextlib.contextmanager
def _as_file(source: str) -> Iterator[str]:
    """The path of what has to be a file for OpenSSL: text is in one that only we can read, for as long as it takes."""
    if not is_pem(source):
        yield source
        return
    import tempfile  # takes half as long to import as all settings, and few need it

    descriptor, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "w", encoding="ascii", errors="replace") as file:
            file.write(_lines(source))
        yield path
    finally:
        os.unlink(path)


def _named(source: str) -> str:
    return "" if is_pem(source) else f"={source!r}"


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _cause(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return f" ({reason.lower().replace('_', ' ')})" if reason else ""
