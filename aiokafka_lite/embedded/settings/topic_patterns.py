"""Regular expressions of clients, for names of topics and transactional ids, in RE2's syntax as at Kafka's brokers.

Python's ``re`` tries one way to match after another, and some patterns would take years. Here, as in RE2, all ways
advance together by one character of the name. So the time for a name is at most its length times ``MAX_SIZE``. For many
names that is still too long for an event loop, so ``select`` has a bound on its work.

``_Parser`` turns the text into nodes, ``_Program`` the nodes into steps. A pattern must match the whole name. So groups
that capture, and lazy repetitions, make no difference. Names of topics have one line, so the flags for lines have no
effect. Names of topics are ASCII; a transactional id or a client id may have other characters. The characters beyond
ASCII in a pattern divide all others into ranges: ``_Alphabet`` has one character for each range.
"""

from __future__ import annotations

import re
import string
import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

MAX_SIZE = 5_000
"""The largest number of steps of a pattern, in which ``a{100}`` is 100 steps."""
MAX_KEPT = 50_000
"""The steps that a pattern keeps in memory for the next names."""
MAX_WORK = 500_000
"""The largest number of steps for all names of a search, at 0.3 µs each. ``orders.*`` needs a few for each prefix."""
MAX_REPEAT = 1000
MAX_DEPTH = 100

MAX_BEYOND_ASCII = 64
"""The largest number of characters beyond ASCII in a pattern, because each class has a set of them."""

Characters = frozenset[str]
_Move = tuple[frozenset[int], str, str]

_ASCII = frozenset(map(chr, range(128)))
_DIGITS = frozenset(string.digits)
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_ESCAPED_CLASSES = {"d": _DIGITS, "w": _WORD, "s": frozenset("\t\n\f\r ")}
_NAMED_CLASSES = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": _ASCII,
    "blank": frozenset("\t "),
    "cntrl": frozenset(map(chr, range(32))) | {"\x7f"},
    "digit": _DIGITS,
    "graph": frozenset(map(chr, range(33, 127))),
    "lower": frozenset(string.ascii_lowercase),
    "print": frozenset(map(chr, range(32, 127))),
    "punct": frozenset(string.punctuation),
    "space": frozenset(string.whitespace),
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROLS = dict(zip("afnrtv", "\a\f\n\r\t\v", strict=True))
_REPEAT = re.compile(r"\{(0|[1-9]\d*)(,(0|[1-9]\d*)?)?\}", re.ASCII)
_NAME = re.compile(r"\(\?P?<(\w+)>", re.ASCII)
_FLAGS = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_HEX = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]+)\})")
_OCTAL = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")
_ESCAPED_CODE = re.compile(rf"\\(?:(?P<octal>{_OCTAL.pattern})|{_HEX.pattern})")
_CATEGORY = re.compile(r"([pP])(?:([A-Z])|\{(\^?)(\w+)\})", re.ASCII)
_WORDS = re.compile(r"\w+", re.ASCII)
_CATEGORIES = frozenset(
    _WORDS.findall(
        "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs"
    )
)
_SCRIPTS = dict.fromkeys(
    _WORDS.findall(
        "Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid "
        "Canadian_Aboriginal Carian Cham Cherokee Coptic Cuneiform Cypriot Cyrillic Deseret Devanagari "
        "Egyptian_Hieroglyphs Ethiopic Georgian Glagolitic Gothic Greek Gujarati Gurmukhi Han Hangul Hanunoo Hebrew "
        "Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada "
        "Katakana Kayah_Li Kharoshthi Khmer Lao Lepcha Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic "
        "Meetei_Mayek Mongolian Myanmar New_Tai_Lue Nko Ogham Ol_Chiki Old_Italic Old_Persian Old_South_Arabian "
        "Old_Turkic Oriya Osmanya Phags_Pa Phoenician Rejang Runic Samaritan Saurashtra Shavian Sinhala Sundanese "
        "Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Tamil Telugu Thaana Thai Tibetan Tifinagh "
        "Ugaritic Unknown Vai Yi"
    ),
    frozenset[str](),
) | {"Latin": frozenset(string.ascii_letters), "Common": _ASCII - frozenset(string.ascii_letters)}
"""The ASCII characters of each script. Python does not know the scripts of other characters."""


class InvalidPattern(ValueError):
    """The pattern is not valid in RE2's syntax. The text is RE2's description of the error."""


class TooMuchWork(InvalidPattern):
    """The search in many names would take too long."""


class TopicPattern:
    """A pattern that names match as a whole. Raises InvalidPattern.

    ``_moves`` keeps the steps after a character, by the steps before it and by the last two characters: many names
    begin alike. ``_kept`` counts the steps in it.
    """

    def __init__(self, text: str) -> None:
        program = _Program()
        self._alphabet = _Alphabet(text)
        self._start = frozenset({program.add(_Parser(text, self._alphabet).parse(), program.then(_Match()))})
        self._steps = program.steps
        self._moves: dict[_Move, frozenset[int]] = {}
        self._kept = 0
        self._work = 0  # the steps of the current search

    def matches(self, name: str) -> bool:
        """Return whether the whole name matches. Raises TooMuchWork, as ``select`` does."""
        return bool(self.select([name]))

    def select(self, names: Iterable[str]) -> list[str]:
        """Return the names that match. Raises TooMuchWork after ``MAX_WORK`` steps."""
        self._work = 0
        return [name for name in names if self._matches(name)]

    def _matches(self, name: str) -> bool:
        active = self._start
        before = ""
        for character in map(self._alphabet.representative, name):
            move = (active, before, character)
            if move not in self._moves:
                self._keep(move, self._advance(*move))
            active, before = self._moves[move], character
            if not active:
                return False
        return any(isinstance(self._steps[each], _Match) for each in self._reach(active, before, ""))

    def _keep(self, move: _Move, then: frozenset[int]) -> None:
        if self._kept > MAX_KEPT:
            self._moves.clear()
            self._kept = 0
        self._moves[move] = then
        self._kept += len(then)

    def _advance(self, active: Iterable[int], before: str, character: str) -> frozenset[int]:
        """Return the steps after a character, for the steps before it."""
        reached = map(self._steps.__getitem__, self._reach(active, before, character))
        return frozenset(step.then for step in reached if isinstance(step, _Character) and character in step.characters)

    def _reach(self, active: Iterable[int], before: str, after: str) -> set[int]:
        """Return the steps that can be reached without a character, between two characters (empty at an end of the
        name).
        """
        reached: set[int] = set()
        waiting = list(active)
        while waiting:
            index = waiting.pop()
            if index in reached:
                continue
            reached.add(index)
            step = self._steps[index]
            if isinstance(step, _Fork):
                waiting += step.ways
            elif isinstance(step, _Condition) and step.holds(before, after):
                waiting.append(step.then)
        self._work += len(reached)
        if self._work > MAX_WORK:
            raise TooMuchWork(f"the search in the names needs more than {MAX_WORK} steps")
        return reached


@lru_cache(maxsize=64)
def topic_pattern(text: str) -> TopicPattern:
    """Compile a pattern. Raises InvalidPattern."""
    return TopicPattern(text)


class _Alphabet:
    """The characters that a pattern can distinguish: ASCII, its other characters, and one of each range between.

    Raises InvalidPattern.
    """

    def __init__(self, text: str) -> None:
        own = {character for character in text if not character.isascii()}
        for found in _ESCAPED_CODE.finditer(text):
            code = int(found["octal"], 8) if found["octal"] else int(found[2] or found[3], 16)
            own |= {chr(code)} if 128 <= code <= sys.maxunicode else set()
        if len(own) > MAX_BEYOND_ASCII:
            raise InvalidPattern("expression too large")
        own |= {case for each in own for case in (each.lower(), each.upper()) if len(case) == 1 and not case.isascii()}
        after = {chr(ord(each) + 1) for each in own if ord(each) < sys.maxunicode}
        self._beyond_ascii = sorted({chr(128)} | own | after)
        self.characters = _ASCII.union(self._beyond_ascii)

    def representative(self, character: str) -> str:
        """Return the character that stands for this one."""
        return character if character.isascii() else self._beyond_ascii[bisect_right(self._beyond_ascii, character) - 1]


# Steps. Each one names the next by its index.


class _Match(NamedTuple):
    """The pattern ends here."""


class _Character(NamedTuple):
    characters: Characters
    then: int


class _Fork(NamedTuple):
    ways: tuple[int, ...]


class _Condition(NamedTuple):
    """A condition on a place between two characters: the character before, and the character after."""

    holds: Callable[[str, str], bool]
    then: int


_Step = _Match | _Character | _Fork | _Condition


def _at_start(before: str, after: str) -> bool:
    return not before


def _at_end(before: str, after: str) -> bool:
    return not after


def _at_word_boundary(before: str, after: str) -> bool:
    return (before in _WORD) != (after in _WORD)


def _inside_word(before: str, after: str) -> bool:
    return not _at_word_boundary(before, after)


# Nodes.


class _One(NamedTuple):
    """One of these characters."""

    characters: Characters


class _Where(NamedTuple):
    holds: Callable[[str, str], bool]


class _Sequence(NamedTuple):
    nodes: list[_Node]


class _Choice(NamedTuple):
    nodes: list[_Node]


class _Repeat(NamedTuple):
    """``most`` is None without a limit."""

    node: _Node
    least: int
    most: int | None


_Node = _One | _Where | _Sequence | _Choice | _Repeat


class _Program:
    """Turns nodes into steps, from the end of the pattern to its start."""

    def __init__(self) -> None:
        self.steps: list[_Step] = []
        self._size = 0

    def then(self, step: _Step) -> int:
        self.steps.append(step)
        return len(self.steps) - 1

    def add(self, node: _Node, then: int) -> int:
        """Return the first step of a node that is followed by the step ``then``."""
        self._size += 1  # also for nodes without a step: a repetition of nothing may be long too
        if self._size > MAX_SIZE:
            raise InvalidPattern("expression too large")
        if isinstance(node, _One):
            return self.then(_Character(node.characters, then))
        if isinstance(node, _Where):
            return self.then(_Condition(node.holds, then))
        if isinstance(node, _Choice):
            return self.then(_Fork(tuple(self.add(each, then) for each in node.nodes)))
        if isinstance(node, _Sequence):
            for each in reversed(node.nodes):
                then = self.add(each, then)
            return then
        return self._repeat(node, then)

    def _repeat(self, repeat: _Repeat, then: int) -> int:
        node, least = repeat.node, repeat.least
        if repeat.most is None:
            loop = self.then(_Fork(()))
            body = self.add(node, loop)
            self.steps[loop] = _Fork((body, then))
            first, least = (body, least - 1) if least else (loop, 0)
        else:
            first = then
            for _ in range(repeat.most - least):
                first = self.then(_Fork((self.add(node, first), then)))
        for _ in range(least):
            first = self.add(node, first)
        return first


class _Parser:
    """A parser by recursive descent. ``_at`` is the place of the next character; ``_folds`` ignores case."""

    def __init__(self, text: str, alphabet: _Alphabet) -> None:
        self._text = text
        self._all = alphabet.characters
        self._at = 0
        self._folds = False
        self._depth = 0
        self._names: set[str] = set()

    def parse(self) -> _Node:
        node = self._choice()
        if self._at < len(self._text):
            raise InvalidPattern("regexp/syntax: internal error")  # RE2's text for an unmatched )
        return node

    def _next(self, literal: str) -> bool:
        """Read this text if it comes next. Returns whether it did."""
        found = self._text.startswith(literal, self._at)
        self._at += len(literal) if found else 0
        return found

    def _read(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _choice(self) -> _Node:
        nodes = [self._sequence()]
        while self._next("|"):
            nodes.append(self._sequence())
        return nodes[0] if len(nodes) == 1 else _Choice(nodes)

    def _sequence(self) -> _Node:
        nodes: list[_Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if self._next("\\Q"):
                end = self._text.find("\\E", self._at)
                quoted = self._text[self._at : end if end >= 0 else None]
                self._at += len(quoted) + 2
                nodes += [self._one({each}) for each in quoted]
            elif (limits := self._limits()) is not None:
                if not nodes:
                    raise InvalidPattern("missing argument to repetition operator")
                self._next("?")
                if self._limits() is not None:
                    raise InvalidPattern("invalid nested repetition operator")
                nodes[-1] = _Repeat(nodes[-1], *limits)
            else:
                is_brace = self._text[self._at] == "{"
                if (atom := self._atom()) is not None:
                    nodes.append(atom)
                # Here alone, RE2/J treats a literal brace as a repetition operator.
                if is_brace and self._limits() is not None:
                    raise InvalidPattern("invalid nested repetition operator")
        return nodes[0] if len(nodes) == 1 else _Sequence(nodes)

    def _limits(self) -> tuple[int, int | None] | None:
        """Return the limits of a repetition operator, if one comes next."""
        for operator, limits in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._next(operator):
                return limits
        found = self._read(_REPEAT)
        if found is None:
            return None
        if len(found[0]) > len("{1000,1000}"):
            raise InvalidPattern("invalid repeat count")
        least = int(found[1])
        most = least if found[2] is None else int(found[3]) if found[3] else None
        if max(least, most or 0) > MAX_REPEAT or (most is not None and least > most):
            raise InvalidPattern("invalid repeat count")
        return least, most

    def _atom(self) -> _Node | None:
        """Return the next character, class, group or condition; None for flags, which hold until the end of their
        group.
        """
        if self._text.startswith("(", self._at):
            return self._group()
        if self._next("["):
            return self._class()
        if self._next("."):
            return _One(self._all - {"\n"})
        if self._next("^"):
            return _Where(_at_start)
        if self._next("$"):
            return _Where(_at_end)
        if self._next("\\"):
            return self._escaped()
        self._at += 1
        return self._one({self._text[self._at - 1]})

    def _group(self) -> _Node | None:
        folds = self._folds
        if self._text.startswith(("(?P<", "(?<"), self._at):
            name = self._read(_NAME)
            if name is None:
                raise InvalidPattern("invalid named capture")
            if name[1] in self._names:
                raise InvalidPattern("duplicate capture group name")
            self._names.add(name[1])
        elif self._text.startswith("(?", self._at):
            flags = self._read(_FLAGS)
            if flags is None:
                raise InvalidPattern("invalid or unsupported Perl syntax")
            self._folds = (folds or "i" in flags[1]) and "i" not in (flags[2] or "")
            if flags[3] == ")":
                return None
        else:
            self._at += 1
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidPattern("expression nests too deeply")
        node = self._choice()
        if not self._next(")"):
            raise InvalidPattern("missing closing )")
        self._depth -= 1
        self._folds = folds
        return node

    def _escaped(self) -> _Node:
        for character, condition in _CONDITIONS.items():
            if self._next(character):
                return _Where(condition)
        characters = self._escaped_class()
        return self._one({self._escaped_character()}) if characters is None else _One(characters)

    def _escaped_class(self) -> Characters | None:
        """Return the characters of ``d``, ``W`` or ``pL`` after a backslash, if such a class comes next."""
        if self._text.startswith(("p", "P"), self._at):
            return self._category()
        for name, characters in _ESCAPED_CLASSES.items():
            if self._next(name):
                return characters
            if self._next(name.upper()):
                return self._all - characters
        return None

    def _category(self) -> Characters:
        """Return the characters of a category or a script: ``pL``, ``p{Lu}``, ``P{Greek}``, ``p{^L}``."""
        read = self._read(_CATEGORY)
        name = "" if read is None else read[2] or read[4]
        if name in _CATEGORIES:
            found = frozenset(each for each in self._all if unicodedata.category(each).startswith(name))
        elif name in _SCRIPTS:
            found = _SCRIPTS[name]
        elif name == "Any":
            found = self._all
        else:
            raise InvalidPattern("invalid character class range")
        return self._all - found if read is not None and (read[1] == "P") != (read[3] == "^") else found

    def _escaped_character(self) -> str:
        if self._at == len(self._text):
            raise InvalidPattern("trailing backslash at end of expression")
        if found := self._read(_OCTAL):
            return chr(int(found[0], 8))
        if found := self._read(_HEX):
            code = int(found[1] or found[2], 16)
            if code > sys.maxunicode:
                raise InvalidPattern("invalid escape sequence")
            return chr(code)
        character = self._text[self._at]
        self._at += 1
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character.isascii() and character.isalnum():
            raise InvalidPattern("invalid escape sequence")
        return character

    def _class(self) -> _Node:
        negated = self._next("^")
        found: set[str] = set()
        first = True
        while first or not self._next("]"):
            first = False
            if self._text.startswith("[:", self._at) and ":]" in self._text[self._at + 2 :]:
                found |= self._named_class()
            elif (escaped := self._class_after_backslash()) is not None:
                found |= escaped
            else:
                found |= self._range()
        characters = self._one(found).characters
        return _One(self._all - characters if negated else characters)

    def _class_after_backslash(self) -> Characters | None:
        if not self._next("\\"):
            return None
        characters = self._escaped_class()
        if characters is None:
            self._at -= 1
        return characters

    def _named_class(self) -> Characters:
        end = self._text.index(":]", self._at + 2)
        name = self._text[self._at + 2 : end]
        negated = name.startswith("^")
        if name.removeprefix("^") not in _NAMED_CLASSES:
            raise InvalidPattern("invalid character class range")
        self._at = end + 2
        characters = _NAMED_CLASSES[name.removeprefix("^")]
        return self._all - characters if negated else characters

    def _range(self) -> Characters:
        first = last = self._class_character()
        if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
            self._at += 1
            last = self._class_character()
        if last < first:
            raise InvalidPattern("invalid character class range")
        return frozenset(each for each in self._all if first <= each <= last)

    def _class_character(self) -> str:
        if self._next("\\"):
            return self._escaped_character()
        if self._at == len(self._text):
            raise InvalidPattern("missing closing ]")
        self._at += 1
        return self._text[self._at - 1]

    def _one(self, characters: Iterable[str]) -> _One:
        """Return one of the characters, in any case if the pattern ignores case."""
        found = frozenset(characters)
        if self._folds:
            found = frozenset(each.lower() for each in found) | frozenset(each.upper() for each in found)
        return _One(found)


_CONDITIONS = {"A": _at_start, "z": _at_end, "b": _at_word_boundary, "B": _inside_word}
