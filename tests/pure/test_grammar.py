"""The checks of ``grammar.py`` on one-line examples."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from tests.grammar import (
    MAX_ATTRIBUTES,
    MAX_PARAMETERS,
    VERBS,
    begins_with_verb,
    docstring_findings,
    main,
    name_findings,
    size_findings,
)

ACCEPTED = [
    "Return the latency at each quantile, in seconds; None without samples.",
    "Returns the pieces.",
    "Raises KafkaError.",
    "Applies a response.",
    "Fetches the records.",
    "Pushes the response.",
    "Acknowledge.",
    "Connect, agree on versions and log in.",
    "Close: the other side sees the end.",
    "Read and return the header.",
    "Connect, and as a member of a group wait for partitions.",
    "Copy or aggregate a topic.",
    "Returns small numbers at once.",
    "Never mark the records that the user has now.",
    "Neither read nor write in a forked process.",
    "Asynchronously commit the offsets.",
    "Do not handle the request.",
    "Does nothing: the choice does not depend on batches.",
    "Record an error code.",
    "Records the offset.",
    "Calls ``handler`` once.",
    "Count partitions that were created.",
    "Request new metadata.",
    "Time the candidates.",
    "Apply the member state.",
]

REFUSED = [
    "The result of every broker.",
    "A set of names.",
    "Whether a transaction is open.",
    "If the broker is gone, return None.",
    "When all requests are done, close.",
    "Records of the batch.",
    "Records that were lost.",
    "Calls that change nothing.",
    "Names for a message.",
    "Start of the range.",
    "Count of records.",
    "Name and value: the name ends at the first ``=``.",
    "Mostly the known epoch.",
    "Only the beginning of another batch may follow.",
    "``count`` records by time.",
    "Up to ``max_records`` records.",
    "Called before the commit.",
    "SIGTERM: the node ends.",
    "Never",
    "(count, first offset) of each range.",
]


@pytest.mark.parametrize("docstring", ACCEPTED)
def test_verb_is_accepted(docstring: str) -> None:
    assert begins_with_verb(docstring)


@pytest.mark.parametrize("docstring", REFUSED)
def test_other_beginning_is_refused(docstring: str) -> None:
    assert not begins_with_verb(docstring)


def test_verbs_are_lower_case_base_forms() -> None:
    assert all(verb.isalpha() and verb.islower() for verb in VERBS)


@pytest.mark.parametrize(
    "code, count",
    [
        ('def size() -> int:\n    "The size."', 1),
        ('async def size() -> int:\n    "The size."', 1),
        ('class A:\n    "A class."\n    def _size(self) -> int:\n        "The size."', 1),
        ('def size() -> int:\n    "Return the size."', 0),
        ("def size() -> int: ...", 0),
        ('def test_size() -> None:\n    "The size is right."', 0),
        ('def __init__(self) -> None:\n    "The size."', 0),
        ('@property\ndef size(self) -> int:\n    "The size."', 0),
        ('@functools.cached_property\ndef size(self) -> int:\n    "The size."', 0),
        ('@size.setter\ndef size(self, size: int) -> None:\n    "The size."', 0),
        ('@overload\ndef size() -> int:\n    "The size."', 0),
        ('@pytest.fixture(scope="module")\ndef size() -> int:\n    "The size."', 0),
    ],
)
def test_docstrings_of_functions_are_checked(code: str, count: int) -> None:
    assert len([*docstring_findings(ast.parse(code), "a.py")]) == count


def test_message_says_what_to_do() -> None:
    (finding,) = docstring_findings(ast.parse('\ndef size() -> int:\n    "The size."'), "a.py")
    assert str(finding) == (
        'a.py:2: docstring of size begins with "The": begin with a verb ("Return ..."); '
        "is it a verb? add it to VERBS in tests/grammar.py"
    )


@pytest.mark.parametrize(
    "statement",
    [
        "each = 1",
        "_each = 1",
        "each: int = 1",
        "a, (each, *b) = c",
        "a, *each = c",
        "for each in a: pass",
        "for a, each in b: pass",
        "with a as each: pass",
        "if (each := a): pass",
        "[each for each in a]",
        "lambda each: 1",
        "def f(each): pass",
        "def f(*each): pass",
        "def f(*, each=1): pass",
        "def f(**each): pass",
        "try: pass\nexcept A as each: pass",
        "match a:\n    case [each]: pass",
        "match a:\n    case [*each]: pass",
        "match a:\n    case {**each}: pass",
        "match a:\n    case B() as each: pass",
    ],
)
def test_stand_in_is_refused_in_each_binding(statement: str) -> None:
    code = "def outer():\n" + "\n".join(f"    {line}" for line in statement.split("\n"))
    assert len([*name_findings(ast.parse(code), "a.py")]) == 1


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    partition = 1",
        "def f():\n    bytes_left = 1",
        "def f(self):\n    self.left = 1",
        "def f():\n    g(left=1)",
        "def f():\n    print(each)",
        "def found(): pass",
        "KNOWN = _held = 1",
        "known: int = 1",
        "class A:\n    left: int\n    held = 1",
        "def f():\n    left += 1",
    ],
)
def test_other_names_are_accepted(code: str) -> None:
    assert not [*name_findings(ast.parse(code), "a.py")]


def _class(count: int, decorator: str = "") -> str:
    fields = "".join(f"    field_{number}: int\n" for number in range(count))
    return f"{decorator}\nclass A:\n{fields}"


def _actor(count: int) -> str:
    lines = "".join(f"        self.part_{number} = self.part_{number} = 1\n" for number in range(count))
    return f"class A:\n    def __init__(self):\n{lines}"


def _function(count: int, name: str = "f", first: str = "self, ", rest: str = "") -> str:
    parameters = ", ".join(f"parameter_{number}" for number in range(count))
    return f"def {name}({first}*, {parameters}{rest}): pass"


@pytest.mark.parametrize(
    "code, path, kinds",
    [
        (_actor(MAX_ATTRIBUTES), "a.py", []),
        (_actor(MAX_ATTRIBUTES + 1), "a.py", ["attributes"]),
        (_class(MAX_ATTRIBUTES + 1), "a.py", []),
        (_class(MAX_ATTRIBUTES + 1, "@dataclass"), "a.py", ["attributes"]),
        (_class(MAX_ATTRIBUTES + 1, "@dataclass(slots=True)"), "a.py", ["attributes"]),
        (_class(MAX_ATTRIBUTES + 1, "@dataclass(frozen=True)"), "a.py", []),
        (f"class A:\n    __slots__ = {tuple(map(str, range(MAX_ATTRIBUTES + 1)))}", "a.py", ["attributes"]),
        (_function(MAX_PARAMETERS), "a.py", []),
        (_function(MAX_PARAMETERS + 1), "a.py", ["parameters"]),
        (_function(MAX_PARAMETERS, first="extra, "), "a.py", ["parameters"]),
        (_function(MAX_PARAMETERS + 1, "__init__"), "a.py", []),
        (_function(MAX_PARAMETERS + 1, rest=", **settings: Unpack[Settings]"), "a.py", []),
        (_function(MAX_PARAMETERS + 1), "aiokafka_lite/cli/a.py", []),
        (f"@overload\n{_function(MAX_PARAMETERS + 1)}", "a.py", []),
    ],
)
def test_sizes_are_limited(code: str, path: str, kinds: list[str]) -> None:
    assert [finding.kind for finding in size_findings(ast.parse(code), path)] == kinds


def test_findings_are_sorted_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b.py").write_text("lambda each: 1\n")
    (tmp_path / "a.py").write_text(
        dedent('''
        def f(left):
            """The size."""
            for each in left:
                pass
    ''')
    )
    assert main([str(tmp_path)]) == 1
    lines = capsys.readouterr().out.replace(f"{tmp_path.as_posix()}/", "").splitlines()
    assert [line.split(": ")[0] for line in lines] == ["a.py:2", "a.py:2", "a.py:4", "b.py:1", "docstring", "name"]
    assert lines[-2:] == ["docstring: 1", "name: 3"]
    assert main([]) == 0
