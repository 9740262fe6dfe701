"""Quotes a peer's text without the secrets that the client has sent: a gateway may echo a password or a token.

A peer may cut the secret short, or echo the base64 form of the message that contained it. So every run of
``SHORTEST_RUN`` characters of a secret is hidden (a shorter secret only as a whole), in each base64 form as well. This
is done before a text is shortened, because a cut-off secret would no longer be found.
"""

from __future__ import annotations

import base64

from .machine import quoted

HIDDEN = "***"

SHORTEST_RUN = 8
"""A run of this number of characters of a longer secret is hidden."""

_SEARCHED = 1024
"""Characters of a text that are searched. The rest is dropped; an error shows far fewer."""

_SHORTEST_FORM = 4
"""Characters. A base64 form that is shorter would hide parts of ordinary words."""


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
        """The text for an error, with ``***`` in place of secrets. Printable and short."""
        text = text[:_SEARCHED]
        hidden = bytearray(len(text))
        for form in self._forms:
            length = min(len(form), SHORTEST_RUN)
            for start in range(len(text) - length + 1):
                if text[start : start + length] in form:
                    hidden[start : start + length] = b"\1" * length
        return quoted(_with_stars(text, hidden))


def _with_stars(text: str, hidden: bytearray) -> str:
    pieces = []
    for position, character in enumerate(text):
        if not hidden[position]:
            pieces.append(character)
        elif position == 0 or not hidden[position - 1]:
            pieces.append(HIDDEN)
    return "".join(pieces)


def _base64_forms(secret: bytes) -> list[str]:
    """The base64 of the secret at each of the three places that it can have in a longer message, in both alphabets.

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
