"""Regular expressions of subscriptions. Kafka takes RE2's syntax, so what RE2 lacks is refused here too."""

from __future__ import annotations

import re
import warnings
from functools import lru_cache

_MISSING_IN_RE2 = {
    r"\(\?(?:<?[=!]|>|\(|#|P[=>])": "invalid or unsupported Perl syntax",
    r"\\[1-9]": "invalid escape sequence",
    r"\\Z": "invalid escape sequence",
    r"(?:[*+?]|\{\d+(?:,\d*)?\})[*+]": "invalid nested repetition operator",
}
"""Constructs of Python's patterns that RE2 refuses, and its description of the error."""
_LITERALS = re.compile(r"\\\W|\[\^?\]?(?:\\.|[^\]\\])*\]")
_CLASSES = {
    "[:alnum:]": "a-zA-Z0-9",
    "[:alpha:]": "a-zA-Z",
    "[:digit:]": "0-9",
    "[:lower:]": "a-z",
    "[:punct:]": r"._\-",
    "[:upper:]": "A-Z",
    "[:word:]": "a-zA-Z0-9_",
}
"""RE2's names of characters that topics can have. Python takes them for the characters of the name."""
_DESCRIPTIONS = {
    "unterminated character set": "missing closing ]",
    "missing ), unterminated subpattern": "missing closing )",
    "unbalanced parenthesis": "regexp/syntax: internal error",
    "nothing to repeat": "missing argument to repetition operator",
    "multiple repeat": "invalid nested repetition operator",
    "min repeat greater than max repeat": "invalid repeat count",
    "bad escape (end of pattern)": "trailing backslash at end of expression",
}


class InvalidPattern(ValueError):
    """The pattern is not valid in RE2's syntax. The text is RE2's description of the error."""


@lru_cache(maxsize=256)
def topic_pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern. A topic matches if the whole name does. Raises InvalidPattern."""
    for name, characters in _CLASSES.items():
        text = text.replace(name, characters)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # RE2 has no sets in sets, which Python may get
            compiled = re.compile(text)
    except re.error as error:
        raise InvalidPattern(_DESCRIPTIONS.get(error.msg, "invalid escape sequence")) from None
    except OverflowError:
        raise InvalidPattern("invalid repeat count") from None
    except RecursionError:
        raise InvalidPattern("expression nests too deeply") from None
    bare = _LITERALS.sub("-", text)
    for construct, description in _MISSING_IN_RE2.items():
        if re.search(construct, bare):
            raise InvalidPattern(description)
    return compiled
