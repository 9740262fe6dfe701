"""Quotes a peer's text without the secrets that the client has sent: a gateway may echo a password or a token.

A peer may echo a part of the secret, or the base64 form of the message that contained it. So every run of
``SHORTEST_RUN`` characters of a secret is hidden, also in its base64 forms. A shorter secret is hidden only as a whole.
Secrets are hidden before a text is shortened, because a cut secret may be too short to be found.

The broker still knows the secret after the login, so the error texts of all later responses are searched as well.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ...disclosure import SecretTexts
from ..schema import Message
from .machine import quoted

MOST_TEXTS = 50
"""The number of different error texts that are searched in one response, each in about a millisecond. Others are
dropped."""


class Redactor(SecretTexts):
    """Quotes texts of one login. ``secrets`` are its password or token."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<Redactor>"

    def quoted(self, text: str) -> str:
        """Return the text for an error, with ``***`` in place of secrets. Printable and short."""
        return quoted(self.hide(text))

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
