"""Regular expressions of subscriptions: RE2's syntax, in which whole names match. The errors are RE2/J's errors."""

from __future__ import annotations

from random import Random

import pytest

from aiokafka_lite.embedded.settings.topic_patterns import MAX_WORK, InvalidPattern, TooMuchWork, topic_pattern


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ("orders.*", ["orders", "orders-eu"], ["my-orders"]),
        ("^orders$", ["orders"], ["orders-eu"]),
        (r"orders\.(eu|us)\.v\d+", ["orders.eu.v1", "orders.us.v22"], ["orders-eu.v1", "orders.eu.v"]),
        ("|a|b", ["", "a", "b"], ["ab"]),
        ("(|a)+b?", ["", "aab"], ["bb"]),
        ("(a*)*-(?:b+)+", ["-b", "aa-bb"], ["aa-"]),
        ("a{2}(b{1,2}){2}c{2,}", ["aabbcc", "aabbbbccc"], ["aabcc", "aabbc", "aabbbbbcc"]),
        ("a{0}b{,1}|a{0001}", ["b{,1}", "a{0001}"], ["b", "a"]),
        (r"\bv1\b.*\Bz", ["v1-az"], ["v1-z", "v1a-z"]),
        (r"\Aa\z", ["a"], ["ab"]),
        (r"a\+*|b\(\?=c", ["a+++", "b(?=c"], ["aa"]),
        (r"\Qa.*\Eb", ["a.*b"], ["aab"]),
        (r"\x41\x{42}\103", ["ABC"], ["abc"]),
        (r"[*+]+|\\\\1", ["*+", r"\\1"], ["a"]),
        ("(?i)Orders", ["ORDERS"], ["order"]),
        ("((?i)a)b(?i:c)(?i)d(?-i:e)", ["AbCDe"], ["aBcde", "abcdE"]),
        ("(?P<kind>a|b){1,2}?", ["ab"], ["aba"]),
        ("[[:alpha:]_]+[[:digit:]]", ["t_1"], ["t_", "1"]),
        ("[[:punct:]a]+", ["a._-"], ["b"]),
        ("[[a]+", ["[a"], ["b"]),
        (r"[^a-c\d]+", ["xyz"], ["b", "1"]),
        (r"[]-_]+[a-]", ["]_-"], ["[-"]),
        (r"\pL\P{Lu}[[:^alpha:]]", ["Aa1"], ["AA1", "Aaa"]),
        (r"\p{Latin}+[\P{Common}_]+", ["orders_eu"], ["orders-eu", "1a"]),
        (r"\p{Greek}|\p{^Greek}\p{Any}", ["a1"], ["a"]),
        ("a{|{,2}", ["a{", "{,2}"], ["a"]),
    ],
)
def test_whole_names_match(pattern: str, matches: list[str], others: list[str]) -> None:
    compiled = topic_pattern(pattern)
    assert [name for name in matches if not compiled.matches(name)] == []
    assert [name for name in others if compiled.matches(name)] == []


@pytest.mark.parametrize(
    ("pattern", "error"),
    [
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("(?>a)", "invalid or unsupported Perl syntax"),
        ("(?x)a", "invalid or unsupported Perl syntax"),
        ("(?<!a)b", "invalid named capture"),
        ("(?P<n>a)(?P<n>b)", "duplicate capture group name"),
        (r"(a)\1", "invalid escape sequence"),
        (r"a\Z", "invalid escape sequence"),
        (r"[a-\d]", "invalid escape sequence"),
        (r"\x{110000}", "invalid escape sequence"),
        ("a\\", "trailing backslash at end of expression"),
        ("a*+", "invalid nested repetition operator"),
        ("a{2}{3}", "invalid nested repetition operator"),
        ("a|*", "missing argument to repetition operator"),
        ("(?i)+", "missing argument to repetition operator"),
        ("a{2,1}", "invalid repeat count"),
        ("a{1001}", "invalid repeat count"),
        ("a{%s}" % ("9" * 5000), "invalid repeat count"),
        ("(a", "missing closing )"),
        ("a)", "regexp/syntax: internal error"),
        ("[a", "missing closing ]"),
        ("[b-a]", "invalid character class range"),
        ("[[:foo:]]", "invalid character class range"),
        (r"\p{Nothing}", "invalid character class range"),
        (r"\p{Cn}", "invalid character class range"),
        (r"\pX", "invalid character class range"),
        ("a{{2}", "invalid nested repetition operator"),
        ("{+", "invalid nested repetition operator"),
    ],
)
def test_an_invalid_pattern_has_the_error_of_re2(pattern: str, error: str) -> None:
    with pytest.raises(InvalidPattern) as raised:
        topic_pattern(pattern)
    assert str(raised.value) == error


@pytest.mark.parametrize(
    "pattern", ["(" * 3000 + ")" * 3000, "(a{1000}){1000}", "(" * 9 + "){1000}" * 9, "a" * 5001], ids=len
)
def test_a_pattern_that_is_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern, match=r"nests too deeply|too large"):
        topic_pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a|aa)+b", "(.*)*x", "((a?){30}){30}b", "(a{0,99}){0,9}b"])
def test_a_pattern_that_backtracking_cannot_finish_is_matched(pattern: str) -> None:
    assert not topic_pattern(pattern).matches("a" * 249)


def test_the_work_for_many_names_is_bounded() -> None:
    dice = Random(1)
    names = ["".join(dice.choices("ab", k=249)) for _ in range(1_000)]
    with pytest.raises(TooMuchWork, match=f"needs more than {MAX_WORK} steps"):
        topic_pattern("(a|b)*a(a|b){600}").select(names)


def test_a_usual_pattern_finds_ten_thousand_names() -> None:
    dice = Random(1)
    names = [f"{kind}-{dice.getrandbits(800):0200x}" for kind in ("orders", "Payments") for _ in range(5_000)]
    assert topic_pattern("(?i)(orders|payments|refunds)-.*[0-9a-f]{2}").select(names) == names


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ("bestellung-.[^a]", ["bestellung-éü", "bestellung-éé"], ["bestellung-éa", "bestellung-é"]),
        ("é", ["é"], ["ü", "e"]),
        ("[^é]", ["ü", "e"], ["é"]),
        ("[éü]", ["é", "ü"], ["è", "e"]),
        ("[à-ü]+", ["à", "éü"], ["ß", "a", "ž"]),
        (r"\xe9|\x{17e}|\374", ["é", "ž", "ü"], ["e", "à"]),
        ("(?i)É", ["é", "É"], ["e", "è"]),
        (r"\Qé\E", ["é"], ["è"]),
        (".", ["é", "\x80", "\U0010ffff"], ["éé"]),
    ],
)
def test_a_character_beyond_ascii_is_itself(pattern: str, matches: list[str], others: list[str]) -> None:
    compiled = topic_pattern(pattern)
    assert [name for name in matches if not compiled.matches(name)] == []
    assert [name for name in others if compiled.matches(name)] == []


def test_a_pattern_with_many_characters_beyond_ascii_is_refused() -> None:
    with pytest.raises(InvalidPattern, match="too large"):
        topic_pattern("".join(map(chr, range(1_000, 2_000))))
