"""The reference has every public name, and each has a docstring."""

from __future__ import annotations

import importlib
import inspect
import re
from types import ModuleType
from typing import Any

import pytest

import aiokafka_lite
import aiokafka_lite.admin
import aiokafka_lite.consumer
import aiokafka_lite.errors
import aiokafka_lite.group
import aiokafka_lite.producer
import aiokafka_lite.testing.plugin
from tests.pure.documents import ROOT, code_spans, rows

PAGES = sorted((ROOT / "docs").glob("reference-*.md"))


def public(module: ModuleType) -> dict[str, Any]:
    """Return the classes and functions in ``__all__`` of a module; without ``__all__``, all that it defines."""
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    values = {name: getattr(module, name) for name in names}
    classes_and_functions = {
        name: value for name, value in values.items() if inspect.isclass(value) or inspect.isfunction(value)
    }
    if hasattr(module, "__all__"):
        return classes_and_functions
    return {name: value for name, value in classes_and_functions.items() if value.__module__ == module.__name__}


def at(identifier: str) -> Any:
    """Return the object that mkdocstrings shows for a name: a module or a name in a module."""
    try:
        return importlib.import_module(identifier)
    except ModuleNotFoundError:
        home, _, name = identifier.rpartition(".")
        return getattr(importlib.import_module(home), name)


def printed() -> set[Any]:
    """Return the classes and functions on the pages. A module on a page stands for the names that it defines."""
    things: set[Any] = set()
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for identifier in re.findall(r"^::: (\S+)$", text, re.MULTILINE):
        thing = at(identifier)
        if not inspect.ismodule(thing):
            things.add(thing)
            continue
        values = (value for name, value in vars(thing).items() if not name.startswith("_"))
        things |= {value for value in values if getattr(value, "__module__", None) == thing.__name__}
    return things


MODULES = [
    aiokafka_lite,
    aiokafka_lite.admin,
    aiokafka_lite.consumer,
    aiokafka_lite.errors,
    aiokafka_lite.group,
    aiokafka_lite.producer,
]
each_module = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)


@each_module
def test_every_public_name_is_on_a_page(module: ModuleType) -> None:
    there = printed()
    assert sorted(name for name, value in public(module).items() if value not in there) == []


@pytest.mark.skipif(aiokafka_lite.compiled.COMPILED, reason="a compiled class has no docstring, its source has")
@each_module
def test_every_public_name_and_what_can_be_called_of_it_has_a_docstring(module: ModuleType) -> None:
    silent = {name for name, value in public(module).items() if not value.__doc__}
    for name, value in public(module).items():
        silent |= {f"{name}.{method}" for method in methods_of(value) if method not in DOCUMENTED_ELSEWHERE}
    assert sorted(silent) == []


def methods_of(thing: object) -> dict[str, Any]:
    """Return the public functions that a class defines."""
    members = vars(thing).items() if inspect.isclass(thing) else ()
    return {name: member for name, member in members if not name.startswith("_") and inspect.isfunction(member)}


DOCUMENTED_ELSEWHERE = {
    name
    for module in MODULES
    for value in public(module).values()
    for name, method in methods_of(value).items()
    if inspect.getdoc(method)
}
"""Methods whose docstring is in the interface that they implement."""


def test_every_fixture_is_on_the_page_about_testing() -> None:
    plugin = aiokafka_lite.testing.plugin
    fixtures = {name for name, value in vars(plugin).items() if "fixture" in type(value).__name__.lower()}
    fixtures = {name for name in fixtures if not name.startswith("_")}
    named = {span for row in rows(ROOT / "docs" / "testing.md") for span in code_spans(row.cells.get("fixture", ""))}
    assert fixtures
    assert named == fixtures
