"""Regular expressions of subscriptions: RE2's syntax, in which whole names match."""

from __future__ import annotations

import pytest

from aiokafka_lite.embedded.topic_patterns import InvalidPattern, topic_pattern


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ("orders.*", ["orders", "orders-eu"], ["my-orders"]),
        ("^orders$", ["orders"], ["orders-eu"]),
        (r"a\+*|b\(\?=c", ["a+++", "b(?=c"], ["aa"]),
        (r"[*+]+|\\\\1", ["*+", r"\\1"], ["a"]),
        ("(?i)Orders", ["ORDERS"], ["order"]),
        ("(?P<kind>a|b){1,2}?", ["ab"], ["aba"]),
        ("[[:alpha:]_]+[[:digit:]]", ["t_1"], ["t_", "1"]),
        ("[[:punct:]a]+", ["a._-"], ["b"]),
        ("[[a]+", ["[a"], ["b"]),
    ],
)
def test_whole_names_match(pattern: str, matches: list[str], others: list[str]) -> None:
    compiled = topic_pattern(pattern)
    assert all(compiled.fullmatch(name) for name in matches)
    assert not any(compiled.fullmatch(name) for name in others)


@pytest.mark.parametrize("pattern", ["(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", "(?>a)", r"(a)\1", "a*+", "a{2}+", r"a\Z"])
def test_what_re2_lacks_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        topic_pattern(pattern)


@pytest.mark.parametrize("pattern", ["a{2,1}", "a{99999999999}", "(" * 3000 + ")" * 3000], ids=len)
def test_what_no_parser_takes_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        topic_pattern(pattern)
