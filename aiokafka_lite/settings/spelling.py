"""Replaces this client's names of settings in errors by the names that the user wrote.

The user wrote properties, options of Spark, or keywords of another client.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager

from ..errors import ConfigurationError
from .properties import MEANINGS

_WORD = re.compile(r"""(?<!\w)b?'(?:\\.|[^'\\])*(?:'|$)|(?<!\w)b?"(?:\\.|[^"\\])*(?:"|$)|\w+""")
"""A quoted value, or a word outside of quotes. An error may cut off a long value before its last quotation mark."""


def property_names(properties: Iterable[str]) -> dict[str, str]:
    """Return the property for each keyword argument: a name in ``properties`` if possible, otherwise the usual name."""
    usual = {MEANINGS[name].setting: name for name in reversed(MEANINGS)}
    by_setting = {MEANINGS[name].setting: name for name in properties if name in MEANINGS}
    return {**usual, "group_id": "group.id", **by_setting}


@contextmanager
def spelled(names: Mapping[str, str], values: Mapping[str, object]) -> Iterator[None]:
    """Raise each ConfigurationError with the user's ``names`` of the settings. ``values`` are by these names.

    A name that ends in ``ms`` is in milliseconds, but the error speaks of seconds. If the user gave such a setting, the
    error begins with it: ``linger.ms=-1 is wrong: linger must be a number of seconds >= 0, got -0.001``.
    """
    try:
        yield
    except ConfigurationError as error:
        text = respelled(str(error), names, values)
        if text == str(error):
            raise
        raise ConfigurationError(text) from None


def respelled(text: str, names: Mapping[str, str], values: Mapping[str, object]) -> str:
    """Replace names in the text of an error by the user's, as in ``spelled``. Quoted values stay as they are."""
    in_milliseconds = {setting: name for setting, name in names.items() if name.endswith(("_ms", ".ms"))}
    for word in _WORD.findall(text):
        name = in_milliseconds.get(word)
        if name is not None and name in values:
            return f"{name}={values[name]} is wrong: {text}"
    return _WORD.sub(lambda word: _name(word[0], names, in_milliseconds), text)


def _name(word: str, names: Mapping[str, str], unchanged: Container[str]) -> str:
    return word if word in unchanged else names.get(word, word)
