"""The pages of the documentation for tests: their blocks of code, and a check that the names in these exist.

Names are looked up in the package: in its modules and classes, and in clients that are made for this and never started.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Never

from aiokafka_lite import (
    Admin,
    Claim,
    Consumer,
    ConsumerGroup,
    ConsumerGroupSession,
    EmbeddedCluster,
    Producer,
    Record,
    ShareConsumer,
)
from aiokafka_lite.consumer import Batch, RebalanceHandle
from aiokafka_lite.settings import keywords
from aiokafka_lite.types import TimestampType

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

UNKNOWN = object()
"""The types of expressions that only a run of the code could tell."""

MADE = {
    Admin: Admin("localhost:9092"),
    Consumer: Consumer("localhost:9092", topics=["orders"], group_id="billing"),
    ConsumerGroup: ConsumerGroup("localhost:9092", group_id="billing"),
    EmbeddedCluster: EmbeddedCluster(ports=9192),
    Producer: Producer("localhost:9092"),
    ShareConsumer: ShareConsumer("localhost:9092", topics=["orders"], group_id="billing"),
}
"""An object of each class whose attributes are set in its constructor."""

PARTS: dict[str, Any] = {
    "admin": MADE[Admin],
    "claim": Claim,
    "cluster": MADE[EmbeddedCluster],
    "consumer": MADE[Consumer],
    "handle": RebalanceHandle,
    "producer": MADE[Producer],
    "queue": MADE[ShareConsumer],
    "record": Record("orders", 0, 0, 0, TimestampType.CREATE_TIME, b"", b""),
    "session": ConsumerGroupSession,
    "batch": Batch,
    "process": UNKNOWN,
    "bill": UNKNOWN,
}
"""The names that a part of a program may use without a definition: clients, and functions of the reader."""


@dataclass(frozen=True)
class Block:
    """A fenced block of Python on a page."""

    page: Path
    line: int
    title: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def is_part(self) -> bool:
        """Whether its title says that it is only a part of a program."""
        return self.title.startswith("part of ")

    @property
    def is_example(self) -> bool:
        """Whether it is a file of docs/examples, which has tests of its own."""
        return self.text.startswith("--8<--")

    @property
    def is_test(self) -> bool:
        return not self.is_part and re.search(r"^(async )?def test_", self.text, re.MULTILINE) is not None

    @property
    def is_program(self) -> bool:
        return not (self.is_part or self.is_example or self.is_test)


_BLOCK = re.compile(r'^```python(?: title="(?P<title>[^"]*)")?\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[Block]:
    """Return the blocks of Python on a page, in their order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, match["title"] or "", match["text"])
        for match in _BLOCK.finditer(text)
    ]


@dataclass(frozen=True)
class Row:
    """A row of a table: its cells, under the table's heads."""

    line: int
    cells: Mapping[str, str]


def rows(page: Path) -> Iterator[Row]:
    """Yield the rows of all tables of a page."""
    heads: list[str] | None = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("|"):
            heads = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if heads is None:
            heads = cells
        elif set("".join(cells)) != {"-"}:
            yield Row(number, dict(zip(heads, cells, strict=True)))


def code_spans(cell: str) -> list[str]:
    """Return the texts between backticks."""
    return re.findall(r"`([^`\n]+)`", cell)


def imported(module: str) -> ModuleType:
    """Return a module. Warnings of other projects about deprecated calls are ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(module)


class Names:
    """Looks up the names of a piece of code. ``problems`` has the names that do not exist.

    ``given`` has names that the code does not define. An argument or a loop's variable with such a name is treated as
    it.
    """

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self.given = definitions
        self.scope: dict[str, Any] = {**vars(builtins), **definitions}
        self.problems: list[str] = []

    def check(self, code: str) -> None:
        """Check a piece of code, which may be a part of a program. Raises SyntaxError if it is not Python."""
        compile(code, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        tree = ast.parse(code)
        self._bind(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute | ast.Call | ast.Name) and not isinstance(
                getattr(node, "ctx", None), ast.Store | ast.Del
            ):
                self._value(node)

    # ---- the definitions in a piece of code

    def _bind(self, tree: ast.AST) -> None:
        for node in ast.walk(tree):
            match node:
                case ast.Import():
                    for alias in node.names:
                        self.scope[alias.asname or alias.name.partition(".")[0]] = imported(alias.name)
                case ast.ImportFrom(module=str(module)):
                    for alias in node.names:
                        self._import(module, alias.name, alias.asname or alias.name)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    self.scope[name] = UNKNOWN
                case ast.arg(arg=name) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                    self._bind_unknown(name)
                case ast.Name(id=name, ctx=ast.Store()):
                    self._bind_unknown(name)
                case _:
                    pass
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                self.scope.update({target.id: UNKNOWN for target in node.targets if isinstance(target, ast.Name)})

    def _bind_unknown(self, name: str) -> None:
        self.scope[name] = self.given.get(name, UNKNOWN)

    def _import(self, module: str, name: str, bound: str) -> None:
        module_or_name = imported(module)
        if not hasattr(module_or_name, name) and hasattr(module_or_name, "__path__"):
            with suppress(ImportError):
                imported(f"{module}.{name}")  # a module of the package, which nothing has imported yet
        if not hasattr(module_or_name, name):
            self._note(f"{module} has no {name}")
        self.scope[bound] = getattr(module_or_name, name, UNKNOWN)

    # ---- the type of an expression

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Name(id=name):
                if name not in self.scope:
                    self._note(f"{name} is not defined")
                return self.scope.get(name, UNKNOWN)
            case ast.Attribute(value=base, attr=name):
                return self._attribute(self._value(base), name)
            case ast.Call():
                return self._called(node)
            case ast.Await(value=inner):
                self._value(inner)
                return UNKNOWN
            case _:
                return UNKNOWN

    def _attribute(self, of: Any, name: str) -> Any:
        if of is UNKNOWN:
            return UNKNOWN
        if not hasattr(of, name):
            self._note(f"{of!r} has no {name}")
            return UNKNOWN
        value = getattr(of, name)
        return UNKNOWN if isinstance(value, property | str | bytes | int) else value

    def _called(self, call: ast.Call) -> Any:
        function = self._value(call.func)
        if function is UNKNOWN or not callable(function) or getattr(function, "__module__", None) in (None, "builtins"):
            return UNKNOWN
        accepted = parameters(function)
        for keyword in call.keywords:
            if accepted is not None and keyword.arg is not None and keyword.arg not in accepted:
                self._note(f"{ast.unparse(call.func)} has no argument {keyword.arg}")
        return MADE.get(function, UNKNOWN) if isinstance(function, type) else UNKNOWN

    def _note(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def parameters(function: Any) -> set[str] | None:
    """Return the keywords that a function takes, also the keywords of an unpacked TypedDict; None if it takes any."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return None
    defined = set()
    for parameter in signature.parameters.values():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            defined.add(parameter.name)
            continue
        if parameter.annotation in (Never, "Never"):  # it takes the names of other clients, for an error that helps
            continue
        unpacked = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
        if unpacked is None:
            return None
        keyword_types = vars(keywords) | vars(sys.modules[function.__module__])
        defined |= set(keyword_types[unpacked[1]].__annotations__)
    return defined
