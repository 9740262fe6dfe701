"""Regular expressions of clients, for names of topics, transactional ids and clients.

Kafka's brokers match them with RE2, this one with Python's ``re``. It refuses what RE2 does not have. Python's ``re``
tries one way to match after another, so it also refuses the patterns for which that takes exponential time.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache

MAX_LENGTH = 1000
MAX_NAME_LENGTH = 249
"""Characters of a name, as in Kafka's names of topics. A longer transactional id or client id matches no pattern."""
REPETITION = 5
"""The cost of a repetition such as ``.*`` or ``a{1,3}``, which may multiply the time by the length of the name."""
CHOICE = 1
"""The cost of an optional part or of a group with alternatives, which may double the time."""
MAX_COST = 17
"""A pattern with this cost takes some tenths of a second for the worst name, and microseconds for names as they are."""

_TOKEN = re.compile(
    r"""
    (?P<backreference> \\[1-9](?![0-7]{2}) | \(\?P= )
    | (?P<posix> \[\^?\]? (?:\\.|[^]\\])*? \[: )
    | (?P<item> \\. | \[\^?\]? (?:\\.|[^]\\])* \] | \{\d+\} | \(\?[ims]+\) )
    | (?P<open> \((?!\?) | \(\? (?:P<\w+> | [ims]*(?:-[ims]+)?:) )
    | (?P<unsupported> \(\? )
    | (?P<possessive> (?: [*+?] | \{[\d,]+\} )\+ )
    | (?P<close> \) )
    | (?P<alternative> \| )
    | (?P<optional> \?\?? )
    | (?P<repetition> (?: [*+] | \{\d*,\d*\} )\?? )
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_REFUSALS = {
    "backreference": "invalid escape sequence",
    "posix": "character classes such as [:alpha:] are not supported",
    "unsupported": "invalid or unsupported Perl syntax",
    "possessive": "invalid nested repetition operator",
}
"""What Python accepts and this broker does not: lookaround, atomic groups, conditions and others. RE2's texts."""


class InvalidPattern(ValueError):
    """The pattern is not valid, or the broker does not support it. The text says why."""


@lru_cache(maxsize=64)
def topic_pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern. Raises InvalidPattern."""
    if len(text) > MAX_LENGTH:
        raise InvalidPattern(f"it has more than {MAX_LENGTH} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about sets that a later Python may read in another way
            pattern = re.compile(text, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidPattern(str(error)) from None
    _check(text)
    return pattern


def matches(pattern: re.Pattern[str], name: str) -> bool:
    """Return whether a pattern matches the whole name."""
    return len(name) <= MAX_NAME_LENGTH and pattern.fullmatch(name) is not None


def _check(text: str) -> None:
    """Raise InvalidPattern if a pattern that Python accepts has syntax that RE2 lacks, or could take too long."""
    varies = [False]  # of the pattern and each open group: whether there is more than one way to match it
    cost = 0
    atom_varies = False  # of what stands before the token, for a repetition
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind in _REFUSALS:
            raise InvalidPattern(_REFUSALS[kind])
        if atom_varies and (kind == "repetition" or token[0].startswith("{")):
            raise InvalidPattern("a repeated group must not contain repetitions, optional parts or alternatives")
        atom_varies = False
        if kind == "open":
            varies.append(False)
        elif kind == "close":
            atom_varies = varies.pop()
            varies[-1] |= atom_varies
            cost += CHOICE if atom_varies else 0
        elif kind in ("alternative", "optional", "repetition"):
            varies[-1] = True
            cost += {"repetition": REPETITION, "optional": CHOICE}.get(kind, 0)
    if cost > MAX_COST:
        raise InvalidPattern("it has too many repetitions, optional parts and alternatives")
