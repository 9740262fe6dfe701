"""The public API as text, one line for each name and parameter, compared with ``tests/public_api.txt``.

    python -m tests.public_api

rewrites that file, which a release does. It refuses to if the first section of ``CHANGELOG.md`` does not name a
difference in code marks: "`Producer.send(timeout)`" or "`send` has the new parameter `timeout`".
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[1]
SNAPSHOT = ROOT / "tests" / "public_api.txt"
CHANGELOG = ROOT / "CHANGELOG.md"

PUBLIC_MODULES = tuple(
    f"aiokafka_lite{module}"
    for module in (
        *("", ".acls", ".admin", ".blocking", ".config", ".consumer", ".embedded", ".errors", ".events", ".group"),
        *(".instrumentation", ".metrics", ".processing", ".processing.outbox", ".processing.stores", ".producer"),
        *(".schemas", ".share", ".tracing", ".types"),
    )
)
"""What docs/stability.md promises to keep. Each has ``__all__``, or is a module of declarations."""


def current() -> list[str]:
    """Return the lines of the public API of this checkout. The code is read and not executed, but for ``__all__``."""
    package = griffe.load("aiokafka_lite", search_paths=[str(ROOT)], resolve_aliases=True)
    lines: list[str] = []
    listed: dict[str, str] = {}
    for module in PUBLIC_MODULES:
        for name in sorted(names_of(module)):
            public = f"{module}.{name}"
            item = package[public.removeprefix("aiokafka_lite.")]
            target = item.final_target if item.is_alias else item
            if target.path in listed:
                lines.append(f"{public} is {listed[target.path]}")
            else:
                listed[target.path] = public
                lines += described(public, target)
    return lines


def names_of(module: str) -> set[str]:
    loaded = import_module(module)
    if hasattr(loaded, "__all__"):
        return set(loaded.__all__) - {"__version__"}
    return {name for name, value in vars(loaded).items() if getattr(value, "__module__", None) == module} - {
        name for name in vars(loaded) if name.startswith("_")
    }


def described(public: str, item: griffe.Object | griffe.Alias) -> Iterator[str]:
    """Yield the line of an item, and those of its parameters or members."""
    if item.is_class:
        yield f"{public}: class"
        for name, member in sorted(item.all_members.items()):
            if name == "__init__" or not name.startswith("_"):
                yield from described(f"{public}.{name}", member.final_target if member.is_alias else member)
    elif item.is_function:
        yield f"{public}: function"
        for parameter in item.parameters:
            if parameter.name not in {"self", "cls"}:
                default = "" if parameter.default is None else f" = {parameter.default}"
                yield f"{public}({parameter.name}): {parameter.kind.value}{default}"
    else:
        default = "" if getattr(item, "value", None) is None or "property" in item.labels else f" = {item.value}"
        yield f"{public}: attribute{' '.join(default.splitlines())}"


def unannounced(before: list[str], after: list[str], changelog: str) -> list[str]:
    """Return the differences that no item of the first section of the changelog names in code marks."""
    section = changelog.split("\n## ")[1]
    items = [set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", item)))) for item in section.split("\n- ")]
    missing = []
    for sign, line in [*(("-", line) for line in before), *(("+", line) for line in after)]:
        if line in (after if sign == "-" else before):
            continue
        path = line.split(":")[0].split(" is ")[0]
        parts = [part for part in re.split(r"[.()]", path) if part and part != "__init__"]
        words = set(parts[-2:]) if path.endswith(")") else {parts[-1]}
        if not any(words <= item for item in items):
            missing.append(f"{sign} {line}")
    return missing


def main() -> None:
    after = current()
    changelog = CHANGELOG.read_text(encoding="utf-8")
    before = SNAPSHOT.read_text(encoding="utf-8").splitlines() if SNAPSHOT.exists() else after
    missing = unannounced(before, after, changelog)
    # Before the first release there is nobody to whom a change could be announced.
    if missing and changelog.count("\n## ") > 1:
        sys.exit("\n".join(["the first section of CHANGELOG.md names none of these changes:", *missing]))
    SNAPSHOT.write_text("\n".join(after) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
