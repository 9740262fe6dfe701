"""The setting ``ssl.principal.mapping.rules`` (KIP-371): the name of a principal from the subject of a certificate.

Rules are separated by commas, and the first rule that matches the whole subject counts. ``DEFAULT`` keeps the subject.
``RULE:pattern/replacement/`` has a regular expression and a replacement, in which ``$1`` is the first group. ``L`` or
``U`` at the end changes the name to lower or upper case. A slash or a backslash in a rule has a backslash before it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ...arguments import must_be
from ...errors import ConfigurationError

MAPPING_RULES = "ssl.principal.mapping.rules"
_RULE = re.compile(r"\s*(?:DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)|)\s*(?:,|$)")
_IN_REPLACEMENT = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


class NoMatchingRule(Exception):
    """No rule matches the subject: the client is disconnected."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    replacement: str
    case: str

    def name(self, subject: str) -> str | None:
        if self.pattern.fullmatch(subject) is None:
            return None
        name = self.pattern.sub(self._replaced, subject)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name

    def _replaced(self, match: re.Match[str]) -> str:
        return _IN_REPLACEMENT.sub(lambda part: part[1] or _group(match, part[2]), self.replacement)


def _group(match: re.Match[str], digits: str) -> str:
    """Return the text for ``$12``: the group 12, or else the group 1 and a 2. Without such a group it stays, as in
    Kafka.
    """
    groups = len(match.groups())
    for end in range(len(digits), 0, -1):
        if int(digits[:end]) <= groups:
            return (match[int(digits[:end])] or "") + digits[end:]
    return f"${digits}"


_DEFAULT = _Rule(re.compile(".*", re.DOTALL), r"$0", "")


class PrincipalMapping:
    """The rules of a cluster. The constructor raises ConfigurationError."""

    def __init__(self, rules: str) -> None:
        self._text = rules
        self._rules: list[_Rule] = []
        position = 0
        while position < len(rules):
            rule = _RULE.match(rules, position)
            if rule is None:
                raise ConfigurationError(must_be(MAPPING_RULES, "DEFAULT or RULE:pattern/replacement/[LU], ...", rules))
            position = rule.end()
            if rule[1] is not None:
                self._rules.append(_Rule(_compiled(rule[1]), rule[2], rule[3]))
            elif "DEFAULT" in rule[0]:
                self._rules.append(_DEFAULT)

    def __repr__(self) -> str:
        return f"<PrincipalMapping {self._text}>"

    def name(self, subject: str) -> str:
        """Return the name of the principal for a subject in the form of RFC 2253. Raises NoMatchingRule."""
        for rule in self._rules:
            name = rule.name(subject)
            if name is not None:
                return name
        raise NoMatchingRule(f"no rule of {MAPPING_RULES} matches {subject!r}")


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(f"{MAPPING_RULES} has the pattern {pattern!r}, which is not valid: {error}") from None
