"""The TLS context and the secrets of a client's settings.

Passwords and keys become ``Secret`` when the settings are checked; a ``Secret`` prints as three stars. Certificates are
read once, at the same time, so a wrong path raises an error in the constructor and not at a later connection. Errors
quote paths, and never the content of a file.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Self

from .. import disclosure
from ..errors import ConfigurationError

__all__ = [
    "PasswordProvider",
    "TokenProvider",
]

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

TokenProvider = Callable[[], str | Awaitable[str]]
"""Returns a token for one login. A sync function runs in a thread, because it may block."""

PasswordProvider = Callable[[], str | tuple[str, str] | Awaitable[str | tuple[str, str]]]
"""Returns the password for one login, or the user name and the password. A sync function runs in a thread."""

_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.+?)-----END \1-----", re.DOTALL)
_PEM_LINE = 64

_SEQUENCE = b"\x30"
"""The first byte of every PKCS#12 store: the tag of a sequence in ASN.1."""

_JAVA_STORES = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""The first bytes of the formats of Java, JKS and JCEKS."""

_KEYTAB = b"\x05"
"""The first byte of a keytab: the version of Kerberos."""


class Secret(str):
    """A string that prints and formats as ``***``. ``encode()`` returns the real text."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        return text if isinstance(text, cls) else super().__new__(cls, text)

    def __repr__(self) -> str:
        return "'***'"

    def __str__(self) -> str:
        return "***"

    def __format__(self, spec: str) -> str:
        return format("***", spec)


def is_oauth_extension(name: object, value: object) -> bool:
    """Return whether OAUTHBEARER can carry this pair (RFC 7628, section 3.1). The name ``auth`` is reserved for the
    token.
    """
    if not isinstance(name, str) or not isinstance(value, str) or name == "auth":
        return False
    return re.fullmatch(r"[A-Za-z]+", name) is not None and re.fullmatch(r"[\x21-\x7e \t\r\n]+", value) is not None


def check_keytab(setting: str, path: str) -> None:
    """Raise ConfigurationError unless the file is a keytab of Kerberos."""
    if not _content(setting, path).startswith(_KEYTAB):
        raise ConfigurationError(
            f"{setting}={disclosure.path(path)} must be a keytab, as ktadd of kadmin or ktutil makes it"
        )


def is_pem(text: str) -> bool:
    """Return whether this is PEM text, and not the path of a file."""
    return "-----BEGIN " in text


def tls_context(
    *,
    cafile: str | None,
    ca_password: str | None = None,
    certfile: str | None,
    keyfile: str | None,
    key_password: str | None,
    check_hostname: bool,
) -> ssl.SSLContext:
    """Create the TLS context with the trusted CAs (None: the system's) and, if given, the client's own certificate.

    Files are PEM or PKCS#12. Raises ConfigurationError, which names the setting.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = check_hostname
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cafile is None:
        context.load_default_certs()
    else:
        _trust(context, cafile, ca_password)
    if certfile is not None:
        _identify(context, certfile, keyfile, key_password)
    return context


_UNEXPECTED_MESSAGE = b"\x15\x03\x03\x00\x02\x02\x0a"
"""The alert for bytes that are not TLS. Java sends it, OpenSSL does not."""


class _AlertingHandshake(ssl.SSLObject):
    """A TLS handshake whose alert reaches the client. asyncio closes a failed connection without sending the alert.

    So this class reports the first failure as a wait for more bytes. Before asyncio waits, it sends all pending bytes,
    and the alert is among them. Then the client closes the connection. If the client does not close it, the client's
    next bytes or the handshake timeout end the connection.
    """

    outgoing: ssl.MemoryBIO
    _has_failed = False

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self._has_failed:
                raise
            self._has_failed = True
            if not self.outgoing.pending:
                self.outgoing.write(_UNEXPECTED_MESSAGE)
            raise ssl.SSLWantReadError from None


class _ServerContext(ssl.SSLContext):
    """A context whose handshakes send their alerts."""

    sslobject_class = _AlertingHandshake

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        handshake = super().wrap_bio(incoming, outgoing, *args, **kwargs)
        assert isinstance(handshake, _AlertingHandshake)
        handshake.outgoing = outgoing
        return handshake


def server_tls_context(
    *, certfile: str, keyfile: str | None, key_password: str | None, cafile: str | None, client_auth: ssl.VerifyMode
) -> ssl.SSLContext:
    """Create the TLS context of a listener. ``cafile`` has the authorities that client certificates must come from.

    Raises ConfigurationError, which names the setting.
    """
    context = _ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = client_auth
    if cafile is not None:
        _trust(context, cafile, None)
    _identify(context, certfile, keyfile, key_password)
    return context


def _trust(context: ssl.SSLContext, cafile: str, password: str | None) -> None:
    store = _pkcs12_content("ssl_cafile", cafile)
    if store is not None:
        from .pkcs12 import read_trust_store  # imported here, because few clients have a store

        text = read_trust_store(f"ssl_cafile{_named(cafile)}", store, password, "ssl_ca_password")
    elif password is not None:
        raise ConfigurationError("ssl_ca_password is for a PKCS#12 store; ssl_cafile is PEM, which has no password")
    else:
        text = _read("ssl_cafile", cafile)
    certificates = _lines(text)
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(f"ssl_cafile{_named(cafile)} has no valid PEM certificates{_cause(error)}") from None


def _identify(context: ssl.SSLContext, certfile: str, keyfile: str | None, password: str | None) -> None:
    def give_password() -> str:
        # Without this function OpenSSL prompts for a password on the terminal.
        if password is None:
            raise ConfigurationError("ssl_key_password is required, because the private key is encrypted")
        return password

    store = _pkcs12_content("ssl_certfile", certfile)
    if store is not None:
        if keyfile is not None:
            raise ConfigurationError(f"ssl_keyfile must not be set: the key is in ssl_certfile{_named(certfile)}")
        from .pkcs12 import read_key_store

        subject = f"ssl_certfile{_named(certfile)}"
        certfile, password = read_key_store(subject, store, password, "ssl_key_password")
    chain = _read("ssl_certfile", certfile)
    key = chain if keyfile is None else _read("ssl_keyfile", keyfile)
    if "PRIVATE KEY-----" not in key:
        setting = f"ssl_certfile{_named(certfile)}" if keyfile is None else f"ssl_keyfile{_named(keyfile)}"
        missing = "; set ssl_keyfile" if keyfile is None else ""
        raise ConfigurationError(f"{setting} has no private key in PEM form{missing}")
    with _as_file(certfile) as chain_path, _as_file(keyfile or certfile) as key_path:
        try:
            context.load_cert_chain(chain_path, key_path, give_password)
        except ConfigurationError:
            raise
        except (ssl.SSLError, ValueError) as error:
            wrong = " (is ssl_key_password right?)" if password is not None else ""
            raise ConfigurationError(
                f"ssl_certfile{_named(certfile)} has no valid PEM certificate for the private key{wrong}{_cause(error)}"
            ) from None


def _read(setting: str, source: str) -> str:
    if is_pem(source):
        _check_line_breaks(setting, source, source)
        return source
    content = _content(setting, source)
    subject = f"{setting}{_named(source)}"
    if content[:4] in _JAVA_STORES:
        raise ConfigurationError(f"{subject} must be PEM or PKCS#12, got a Java key store; {CONVERT_JKS}")
    if b"-----BEGIN " not in content:
        raise ConfigurationError(f"{subject} must be PEM{'' if setting == 'ssl_keyfile' else ' or PKCS#12'}")
    text = content.decode("latin-1")
    _check_line_breaks(setting, source, text)
    return text


def _pkcs12_content(setting: str, source: str) -> bytes | None:
    """Return the content of a PKCS#12 store; None for PEM, and for a file that is neither."""
    if is_pem(source):
        return None
    content = _content(setting, source)
    return content if content[:1] == _SEQUENCE and b"-----BEGIN " not in content else None


def _check_line_breaks(setting: str, source: str, text: str) -> None:
    """Raise ConfigurationError for the two characters that stand for a line break in JSON or a variable of a shell."""
    if any("\\n" in body for _, body in _PEM.findall(text)):
        raise ConfigurationError(
            f"{setting}{_named(source)} has the two characters \\n in place of line breaks; "
            "replace them: text.replace('\\\\n', '\\n')"
        )


_EXPECTED = dict.fromkeys(
    ("ssl_cafile", "ssl_certfile", "ssl_keyfile"),
    "the path of a file, or PEM text with its lines -----BEGIN ...----- and -----END ...-----",
)


def _content(setting: str, path: str) -> bytes:
    """Read a file. Raises ConfigurationError, which quotes only what certainly is a path."""
    try:
        with open(path, "rb") as file:  # not pathlib, which takes 3 ms to import
            return file.read()
    except (OSError, ValueError) as error:
        reason = _reason(error)
    if not disclosure.is_path(path):
        raise ConfigurationError(
            f"{setting} must be {_EXPECTED.get(setting, 'the path of a file')}, got {disclosure.kind(path)}, which is "
            "not shown because it may be a key"
        )
    raise ConfigurationError(f"cannot read {setting}={path!r}: {reason}")


CONVERT_JKS = "convert it: keytool -importkeystore -srckeystore store.jks -destkeystore store.p12 -deststoretype PKCS12"


def _lines(text: str) -> str:
    """Return the PEM blocks of a text, with the line breaks that a properties file may have removed."""
    blocks = []
    for label, body in _PEM.findall(text):
        if ":" not in body:  # a body with headers keeps its line breaks
            encoded = "".join(body.split())
            body = "\n" + "".join(
                encoded[start : start + _PEM_LINE] + "\n" for start in range(0, len(encoded), _PEM_LINE)
            )
        blocks.append(f"-----BEGIN {label}-----{body}-----END {label}-----\n")
    return "".join(blocks)


@contextlib.contextmanager
def _as_file(source: str) -> Iterator[str]:
    """Yield a path for OpenSSL, which reads only files. PEM text goes to a temporary file of this user alone."""
    if not is_pem(source):
        yield source
        return
    import tempfile  # imported here: it is rarely needed, and takes half as long to import as all settings

    descriptor, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "w", encoding="ascii", errors="replace") as file:
            file.write(_lines(source))
        yield path
    finally:
        os.unlink(path)


def _named(source: str) -> str:
    return "" if is_pem(source) else f"={disclosure.path(source)}"


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _cause(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return f" ({reason.lower().replace('_', ' ')})" if reason else ""
