"""Regular expressions of clients match whole names; what RE2 lacks is refused, and what would take too long."""

from __future__ import annotations

from random import Random

import pytest

from aiokafka_lite.embedded.settings.topic_patterns import InvalidPattern, matches, topic_pattern


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("orders.*", ["orders", "orders-eu"], ["my-orders"]),
        ("^orders$", ["orders"], ["orders-eu"]),
        (r"orders\.(eu|us)\.v\d+", ["orders.eu.v1", "orders.us.v22"], ["orders-eu.v1", "orders.eu.v"]),
        ("|a|b", ["", "a", "b"], ["ab"]),
        ("a{2}(b{2}){2}c{2,}", ["aabbbbcc", "aabbbbccc"], ["aabbcc", "aabbbbc"]),
        (r"\bv1\b.*\Bz", ["v1-az"], ["v1-z", "v1a-z"]),
        (r"a\+*|b\(\?=c", ["a+++", "b(?=c"], ["aa"]),
        (r"\x41\103", ["AC"], ["ac"]),
        (r"[*+]+|\\\\1", ["*+", r"\\1"], ["a"]),
        ("(?i)Orders", ["ORDERS"], ["order"]),
        ("a(?i:c)(?-i:e)", ["aCe"], ["aCE"]),
        ("(?P<kind>a|b)?", ["a", ""], ["ab"]),
        (r"[^a-c\d]+", ["xyz"], ["b", "1"]),
        (r"[]-_]+[a-]", ["]_-"], ["[-"]),
        (r"bestellung-.[^é]", ["bestellung-éü"], ["bestellung-éé", "bestellung-é"]),
        ("[a-z]+-(orders|payments)-v[0-9]+(-dlq)?", ["eu-orders-v1", "us-payments-v2-dlq"], ["eu-orders-v"]),
    ],
)
def test_whole_names_match(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = topic_pattern(pattern)
    assert [name for name in matching if not matches(compiled, name)] == []
    assert [name for name in others if matches(compiled, name)] == []


@pytest.mark.parametrize(
    ("pattern", "error"),
    [
        ("(?=a)", "Perl syntax"),
        ("(?<!a)b", "Perl syntax"),
        ("(?>a)", "Perl syntax"),
        ("(a)(?(1)b|c)", "Perl syntax"),
        ("(?x)a", "Perl syntax"),
        ("(?#comment)a", "Perl syntax"),
        (r"(a)\1", "escape sequence"),
        ("(?P<n>a)(?P=n)", "escape sequence"),
        ("a*+", "nested repetition"),
        ("a{1,2}+", "nested repetition"),
        ("[[:alpha:]]", r"\[:alpha:\] are not supported"),
        (r"\p{Greek}", "bad escape"),
        ("(", "unterminated"),
        ("a{2}{3}", "multiple repeat"),
        ("a{99999999999}", "too large"),
        ("(" * 490 + ")" * 490, "recursion"),
        ("a" * 1001, "more than 1000 characters"),
    ],
)
def test_invalid_and_unsupported_patterns_are_refused(pattern: str, error: str) -> None:
    with pytest.raises(InvalidPattern, match=error):
        topic_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+b", "(a|a)*b", "(a|aa)+b", "(.*)*x", "((a?){30}){30}b", "(a{0,99}){0,9}b", "a?" * 30, ".*" * 4 + "x"],
)
def test_a_pattern_that_could_take_years_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern, match=r"repeated group|too many"):
        topic_pattern(pattern)


def test_the_slowest_pattern_ends() -> None:
    assert not matches(topic_pattern(".*a.*a.*a?a?b"), "a" * 249)


def test_a_name_that_is_longer_than_a_topic_can_be_matches_nothing() -> None:
    assert matches(topic_pattern(".*"), "a" * 249)
    assert not matches(topic_pattern(".*"), "a" * 250)


def test_a_usual_pattern_finds_ten_thousand_names() -> None:
    dice = Random(1)
    names = [f"{kind}-{dice.getrandbits(800):0200x}" for kind in ("orders", "Payments") for _ in range(5_000)]
    pattern = topic_pattern("(?i)(orders|payments|refunds)-.*[0-9a-f]{2}")
    assert all(matches(pattern, name) for name in names)
