"""Decides what an error, a log line or a repr may print of a value that may hold a secret.

Users pass secrets in the wrong place and in the wrong shape: a private key as a path, a connection string as an
address, a password as a list. So the rule is not "hide what is a secret", but "print only what certainly is none".

- An address is printed as scheme, host and port. User, path, query and everything that is not understood are left out.
- A path is printed if it exists, or if it looks like the path of a file. Of other texts only the length is printed.
- The value of a setting whose name speaks of security is printed only if it resembles one of the allowed words.

An exception keeps the exceptions that were handled when it was raised (``__context__``). One of them may have the value
in its text, so code here and elsewhere leaves the ``except`` block before it raises its own error.
"""

from __future__ import annotations

import base64
import os
import re

_SECURITY = re.compile(
    r"password|passwd|secret|token|credential|jaas|ssl|sasl|secur|keystore|truststore|private|api[._-]?key|users|auth"
    r"|mechanism|protocol",
    re.IGNORECASE,
)

_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9.])?|\[[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9]+)?\])"
_URL = re.compile(rf"(https?)://(?:[^/?#]*@)?({_HOST}(?::\d{{1,5}})?)(?=[/?#]|$)(.*)", re.IGNORECASE | re.DOTALL)
_SCHEME = r"(?:(?:kafka|https?|tcp|ssl|PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?"
_ADDRESS = re.compile(
    rf"{_SCHEME}(?:"
    rf"{_HOST}:\w{{0,5}}"  # with a port, or with a word in its place
    r"|[a-z0-9.-]{1,100}"  # a host name alone; a secret mostly has capital letters
    r"|\[?[0-9A-Fa-f:.%]*:[0-9A-Fa-f:.]*"  # IPv6 without its brackets
    r"|:\d{1,5}"
    r"|\[[a-z.]+\]:\d{1,5}"
    r")/?"
)
_START = re.compile(rf"{_HOST}:\d{{1,5}}(?![\w.-])")

_SUFFIX = re.compile(
    r"\.(?:pem|crt|cer|key|p12|pfx|jks|keytab|token|jwt|txt|json|properties|toml|conf|cfg|ini|avsc|proto)",
    re.IGNORECASE,
)
_LONGEST_PATH = 200
_LONGEST_PART = 64

_OWN_PATH = re.compile(r"(?:/[a-z0-9_.-]{1,64}){2,12}")
"""An absolute path in small letters. A text of base64 may begin with a slash too, but has capital letters."""

_PROPERTY = re.compile(r"[a-z]+(?:[._-][a-z0-9]{1,20})*|[a-z]{2,12}(?:[A-Z][a-z]{1,12}){1,3}")
_LONGEST_NAME = 80

_WORDS = frozenset(
    re.findall(
        r"\S+", "NONE TLS KERBEROS OAUTH SCRAM PLAIN PLAINTEXT SSL SASL AWS_MSK_IAM DIGEST-MD5 REQUIRED REQUESTED"
    )
).union(("TRUE", "FALSE", "YES", "NO", "ON", "OFF"))
"""Words that users write for a protocol or a mechanism."""
_SIMILAR = 0.7

_NO_SECRET = 2
"""A value of so few characters cannot be a secret."""


def may_hold_secret(name: str) -> bool:
    """Return whether the value of a setting or an argument with this name may be a secret."""
    return _SECURITY.search(name) is not None


def kind(value: object) -> str:
    """Say what a value is, without the value: ``a string of 12 characters``, ``bytes``, ``list``."""
    if isinstance(value, str):
        return "an empty string" if not value else f"a string of {len(value)} characters"
    return type(value).__name__


def resembles(value: object, allowed: str) -> bool:
    """Return whether a value is, or nearly is, one of the words in ``allowed``, such as a protocol in lower case."""
    if value is None or isinstance(value, bool) or (isinstance(value, int | str) and len(str(value)) <= _NO_SECRET):
        return True
    if not isinstance(value, str) or len(value) > _LONGEST_PART:
        return False
    from difflib import get_close_matches  # imported here, because most programs do not need it

    words = {word.upper() for word in re.findall(r"[A-Za-z0-9_.-]{2,}", allowed)} | _WORDS
    return bool(get_close_matches(value.upper(), words, 1, _SIMILAR))


def url(text: object) -> str:
    """Shorten an http address to scheme, host and port. ``/…`` stands for the rest."""
    if _is_port(text):
        return repr(text)
    match = _URL.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return kind(text)
    return f"{match[1].lower()}://{match[2]}" + ("/…" if match[3] not in ("", "/") else "")


def address(text: object) -> str:
    """Shorten a server's address for an error. ``…`` stands for what is no part of a host and a port."""
    if not isinstance(text, str):
        return repr(text) if _is_port(text) else kind(text)
    rest = text.rpartition("@")[2]
    hidden = "…@" if rest != text else ""
    if _ADDRESS.fullmatch(rest):
        return repr(hidden + rest)
    start = _START.match(rest)
    if start is not None:
        return repr(f"{hidden}{start[0]}…")
    return kind(text)


def _is_port(value: object) -> bool:
    return value is None or (isinstance(value, int) and value < 1 << 16)


def is_scheme(text: str) -> bool:
    """Return whether a text is the scheme of an address, or the name of a listener."""
    return re.fullmatch(_SCHEME, f"{text}://") is not None


def addresses(value: object) -> str:
    """Shorten one or several addresses for an error."""
    if value in ([], ()) or (isinstance(value, str) and not value.strip(" ,")):
        return repr(value)
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",")]
        return address(value) if len(parts) == 1 else f"[{', '.join(map(address, parts))}]"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(address, value))}]"
    return repr(value) if value is None or isinstance(value, int | float) else kind(value)


def path(text: object) -> str:
    """Quote a path for an error, or describe a text that may be something else."""
    if isinstance(text, os.PathLike):
        text = os.fspath(text)
    if not isinstance(text, str):
        return kind(text)
    return repr(text) if is_path(text) else f"{kind(text)} that is no path of a file"


def is_path(text: str) -> bool:
    """Return whether a text certainly is the path of a file, and not a secret."""
    if not text.isprintable() or not 0 < len(text) <= _LONGEST_PATH:
        return False
    if max(map(len, re.split(r"[/\\]", text))) > _LONGEST_PART:
        return False
    if os.path.exists(text) or _SUFFIX.fullmatch(os.path.splitext(text)[1]):
        return True
    if _OWN_PATH.fullmatch(text):
        return True
    directory = os.path.dirname(text)
    return os.path.isabs(text) and directory not in ("", "/") and os.path.isdir(directory)


def setting(name: str) -> str:
    """Return the name of a property for an error. A line of a secret of several lines may be taken for a name."""
    is_name = len(name) <= _LONGEST_NAME and _PROPERTY.fullmatch(name) is not None
    return name if is_name else f"{kind(name)}, not shown because it may be part of a value,"


def value_of(name: str, allowed: str, value: object, shown: str) -> str:
    """Return ``shown``, the text of a wrong value; only its kind if the name speaks of security."""
    return kind(value) if may_hold_secret(name) and not resembles(value, allowed) else shown


HIDDEN = "***"

SHORTEST_RUN = 8
"""A run of this number of characters of a longer secret is hidden."""

_SEARCHED_LENGTH = 1024
"""The number of characters of a text that are searched. The rest is dropped. An error shows fewer characters."""

_SHORTEST_FORM = 4
"""The length of the shortest base64 form, in characters. A shorter form would hide parts of ordinary words."""


class SecretTexts:
    """Hides secrets in the texts of a peer that knows them, such as an error that repeats a request."""

    __slots__ = ("_forms",)

    def __init__(self, *secrets: str) -> None:
        from urllib.parse import quote, quote_plus  # imported here, because most clients have no secret

        # A Secret formats as stars; its bytes are the real text.
        plain = [secret.encode().decode() for secret in secrets if secret]
        written = dict.fromkeys(
            form for secret in plain for form in (secret, quote(secret, safe=""), quote_plus(secret))
        )
        self._forms = [*written, *(form for secret in plain for form in _base64_forms(secret.encode()))]

    def __repr__(self) -> str:
        return "<SecretTexts>"

    def hide(self, text: str) -> str:
        """Return the beginning of the text, with ``***`` in place of secrets."""
        text = text[:_SEARCHED_LENGTH]
        hidden = bytearray(len(text))
        for form in self._forms:
            length = min(len(form), SHORTEST_RUN)
            for start in range(len(text) - length + 1):
                if text[start : start + length] in form:
                    hidden[start : start + length] = b"\1" * length
        return _with_stars(text, hidden)


def _with_stars(text: str, hidden: bytearray) -> str:
    pieces = []
    for position, character in enumerate(text):
        if not hidden[position]:
            pieces.append(character)
        elif position == 0 or not hidden[position - 1]:
            pieces.append(HIDDEN)
    return "".join(pieces)


def _base64_forms(secret: bytes) -> list[str]:
    """Return the base64 of the secret at each of its three places in a longer message, in both alphabets.

    Characters that also depend on the bytes before or after the secret are left out.
    """
    forms: list[str] = []
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + secret).decode().rstrip("=")
        first = -(-before * 8 // 6)
        last = (before + len(secret)) * 8 // 6
        form = encoded[first:last]
        if len(form) >= _SHORTEST_FORM:
            forms += {form, form.translate(str.maketrans("+/", "-_"))}
    return forms
