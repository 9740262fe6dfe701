"""The checks of ``make lint`` beside ruff, mypy and import-linter: import circles, grammar, and long modules.

Run it in the root as ``python -m tests.house_rules``. It prints a line for each finding and exits
with 1 if there is any. A long module is only a warning.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from tests import grammar

ROOT = Path(__file__).parents[1]
PACKAGE = "aiokafka_lite"

CHECKED = (PACKAGE, "tests", "benchmarks", "docs", "examples", "build_backend.py", "pyspark_kafka_lite.py")
"""Where grammar is checked."""

LONG_FILE = 600
"""Lines of a module above which it is worth asking whether it holds two ideas. A warning, not an error."""


def main() -> int:
    for line in long_files():
        print(line)
    findings = [*circles(), *grammar.findings(path for name in CHECKED if (path := Path(name)).exists())]
    for finding in findings:
        print(finding)
    return bool(findings)


def long_files() -> Iterator[str]:
    """Yield a warning for each module of the package that is longer than LONG_FILE."""
    for path in sorted(ROOT.glob(f"{PACKAGE}/**/*.py")):
        lines = path.read_text().count("\n")
        if lines > LONG_FILE:
            name = path.relative_to(ROOT).as_posix()
            yield f"warning: {name} has {lines} lines; does it hold two ideas?"


def circles() -> Iterator[str]:
    """Yield groups of modules that import one another, imports for types included."""
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
        graph[module] = set() if is_index else {target for target in targets if target in modules and target != module}
    return graph


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _strongly_connected(graph: dict[str, set[str]]) -> list[set[str]]:
    """Find the strongly connected groups, by Tarjan's algorithm."""
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
