"""The checks of ``make lint`` beside ruff, mypy and import-linter: plain words, sizes, and import circles.

Run it as ``python -m tests.house_rules``. It prints a line for each finding and exits with 1 if there is any.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "aiokafka_lite"

MAX_FILE_LINES = 600
MAX_CLASS_LINES = 350
MAX_METHODS = 25
"""Methods that only delegate, in one statement, do not count."""

BANNED = {
    r"who(so)?ever|whom": "the caller, the user, the broker, the member",
    r"anew": "again",
    r"patience": "hedge delay, timeout",
    r"bur(y|ies|ied)": "evict, drop",
    r"for ever": "forever, without a bound",
    r"lets? go|letting go": "release, revoke",
    r"gives? up|given up|giving up|gave up": "abandon, expire, evict, stop",
    r"puts? aside|putting aside": "park, mark unreachable",
    r"none the wiser|goes before|has it that|all is well|is well again": "say it directly",
    r"troubles?": "outage, failure",
    r"fates?": "result",
    r"parcels?": "in-flight batch",
    r"verdicts?": "outcome",
    r"judges?": "classify",
    r"spells?": "outage",
    r"doubts?": "truncation check",
    r"attendance": "poll tracker",
    r"forgetful": "on_topic_removed",
    r"hungry|breath": "low buffer, yield budget",
    r"nobody|somebody": "no task, no member, another task",
    r"highwater|high_water_mark": "high_watermark",
}
"""Banned words, as patterns, and the words to write. CONTRIBUTING.md has the glossary."""

_BANNED = re.compile(r"\b(?:" + "|".join(f"(?:{pattern})" for pattern in BANNED) + r")\b", re.IGNORECASE)
_EXEMPT = {"tests/house_rules.py"}
_HIGHWATER_ALLOWED = {
    "aiokafka_lite/compat/aiokafka/positions.py",
    "aiokafka_lite/method_names.py",
    "tests/end_to_end/test_compat_aiokafka.py",
    "tests/pure/test_method_names.py",
}
"""Files with this method of aiokafka."""


def main() -> int:
    found = [*banned_words(), *sizes(), *circles()]
    for line in found:
        print(line)
    return bool(found)


def banned_words() -> Iterator[str]:
    """Lines of code and documentation with a banned word. Names in snake_case and CamelCase count by their parts."""
    for path in sorted(
        [
            *ROOT.glob(f"{PACKAGE}/**/*.py"),
            *ROOT.glob("tests/**/*.py"),
            *ROOT.glob("docs/**/*.md"),
            *ROOT.glob("docs/**/*.py"),
            *ROOT.glob("benchmarks/**/*.py"),
            ROOT / "README.md",
        ]
    ):
        name = path.relative_to(ROOT).as_posix()
        if name in _EXEMPT:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if path.name.startswith("migrating-from-"):
                line = re.sub(r"`[^`]*`", "", line)  # other clients' names
            if name in _HIGHWATER_ALLOWED:
                line = line.replace("highwater", "")
            match = _BANNED.search(line) or _BANNED.search(_parts(line))
            if match:
                yield f"{name}:{number}: banned word {match.group()!r}; write: {_instead(match.group())}"


def _parts(line: str) -> str:
    """The line, with its identifiers split into words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", line).replace("_", " ")


def _instead(word: str) -> str:
    return next(instead for pattern, instead in BANNED.items() if re.fullmatch(pattern, word, re.IGNORECASE))


def sizes() -> Iterator[str]:
    """Files and classes of the package that are above the limits of size."""
    for path in sorted(ROOT.glob(f"{PACKAGE}/**/*.py")):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        lines = text.count("\n")
        if lines > MAX_FILE_LINES:
            yield f"{name}: {lines} lines, at most {MAX_FILE_LINES}"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                own = text.splitlines()[node.lineno - 1 : node.end_lineno]
                length = sum(not line.lstrip().startswith("#") for line in own)  # comments do not count
                methods = sum(_does_more_than_delegate(each) for each in node.body)
                if length > MAX_CLASS_LINES:
                    yield f"{name}:{node.lineno}: class {node.name} has {length} lines, at most {MAX_CLASS_LINES}"
                if methods > MAX_METHODS:
                    yield f"{name}:{node.lineno}: class {node.name} has {methods} methods, at most {MAX_METHODS}"


def _does_more_than_delegate(node: ast.stmt) -> bool:
    """Whether it is a method with more than one statement beside its docstring."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return len(node.body) - (ast.get_docstring(node) is not None) > 1


def circles() -> Iterator[str]:
    """Groups of modules that import one another, imports for types included."""
    for group in _strongly_connected(_imports()):
        if len(group) > 1:
            yield f"import circle: {', '.join(sorted(group))}"


def _imports() -> dict[str, set[str]]:
    modules = {_module(path): path for path in ROOT.glob(f"{PACKAGE}/**/*.py")}
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        targets: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                targets.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                source = ".".join([*base, *([node.module] if node.module else [])])
                # ``from . import x`` means the module x where there is one.
                for alias in node.names:
                    targets.add(f"{source}.{alias.name}" if f"{source}.{alias.name}" in modules else source)
        # An ``__init__`` that only exports names of its modules is not part of a circle.
        is_index = path.name == "__init__.py"
        graph[module] = set() if is_index else {each for each in targets if each in modules and each != module}
    return graph


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _strongly_connected(graph: dict[str, set[str]]) -> list[set[str]]:
    """Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[set[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph[node]:
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            group: set[str] = set()
            while node not in group:
                group.add(stack.pop())
            groups.append(group)

    for node in graph:
        if node not in index:
            visit(node)
    return groups


if __name__ == "__main__":
    sys.exit(main())
