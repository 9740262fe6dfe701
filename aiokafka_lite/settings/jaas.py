"""The property ``sasl.jaas.config`` of Java's clients: a login module with options, as one line of text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..errors import ConfigurationError

JAAS = "sasl.jaas.config"
JAAS_EXPECTED = 'as in ...ScramLoginModule required username="alice" password="...";'

_TOKENS = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s=;"']+)|([=;]))""", re.DOTALL)


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Return the login module without its package, and its options. No error quotes the text, because it has a
    password.
    """
    tokens = list(_tokens(text))
    form = "".join(token if isinstance(token, _Mark) else "x" for token in tokens)
    if not re.fullmatch(r"xx(x=x)*;", form):
        what = "a login module, options as name=value, and a semicolon"
        raise ConfigurationError(f"{JAAS} must be {what}, {JAAS_EXPECTED}")
    return tokens[0].rpartition(".")[2], dict(zip(tokens[2:-1:3], tokens[4:-1:3]))


class _Mark(str):
    """An unquoted ``=`` or ``;``."""

    __slots__ = ()


def _tokens(text: str) -> Iterator[str]:
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKENS.match(text, position)
        if match is None:
            raise ConfigurationError(f"{JAAS} has an unclosed quotation mark")
        quoted = match[1] if match[1] is not None else match[2]
        yield re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if quoted is not None else match[3] or _Mark(match[4])
        position = match.end()
