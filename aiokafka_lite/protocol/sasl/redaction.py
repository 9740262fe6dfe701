"""Quotes a peer's text without the secrets that the client has sent: a gateway may echo a password or a token.

A peer may echo a part of the secret, or the base64 form of the message that contained it. So every run of
``SHORTEST_RUN`` characters of a secret is hidden, also in its base64 forms. A shorter secret is hidden only as a whole.
Secrets are hidden before a text is shortened, because a cut secret may be too short to be found.

The broker still knows the secret after the login, so the error texts of all later responses are searched as well.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import cache
from typing import Any

from ..schema import Message
from .machine import quoted

HIDDEN = "***"

SHORTEST_RUN = 8
"""A run of this number of characters of a longer secret is hidden."""

_SEARCHED_LENGTH = 1024
"""The number of characters of a text that are searched. The rest is dropped. An error shows fewer characters."""

MOST_TEXTS = 50
"""The number of different error texts that are searched in one response, each in about a millisecond. Others are
dropped."""

_SHORTEST_FORM = 4
"""The length of the shortest base64 form, in characters. A shorter form would hide parts of ordinary words."""


class Redactor:
    """Quotes texts of one login. ``secrets`` are its password or token."""

    __slots__ = ("_forms",)

    def __init__(self, *secrets: str) -> None:
        # A Secret formats as stars; its bytes are the real text.
        plain = [secret.encode().decode() for secret in secrets if secret]
        self._forms = plain + [form for secret in plain for form in _base64_forms(secret.encode())]

    def __repr__(self) -> str:
        return "<Redactor>"

    def quoted(self, text: str) -> str:
        """Return the text for an error, with ``***`` in place of secrets. Printable and short."""
        return quoted(self.hide(text))

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

    def hide_in(self, response: Message) -> None:
        """Hide the secrets in all error texts of a response."""
        _hide_in(response, self.hide, {})


def _hide_in(message: Any, hide: Callable[[str], str], hidden_texts: dict[str, str]) -> None:
    cls: Any = type(message)
    texts, arrays = _error_texts(cls)
    for name in texts:
        text = getattr(message, name)
        if text:
            if text not in hidden_texts:
                hidden_texts[text] = hide(text) if len(hidden_texts) < MOST_TEXTS else ""
            setattr(message, name, hidden_texts[text])
    for name in arrays:
        for item in getattr(message, name) or ():
            _hide_in(item, hide, hidden_texts)


@cache
def _error_texts(cls: Any) -> tuple[list[str], list[str]]:
    """Return the fields of a message with error texts, and its arrays of structs with such fields."""
    texts = [name for name in cls.specs if name.endswith("error_message")]
    structs = {name: spec.item for name, spec in cls.specs.items() if spec.wire == "array"}
    return texts, [name for name, item in structs.items() if hasattr(item, "specs") and any(_error_texts(item))]


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
