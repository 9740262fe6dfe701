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
    found = {name: getattr(module, name) for name in names}
    classes_and_functions = {
        name: each for name, each in found.items() if inspect.isclass(each) or inspect.isfunction(each)
    }
    if hasattr(module, "__all__"):
        return classes_and_functions
    return {name: each for name, each in classes_and_functions.items() if each.__module__ == module.__name__}


def at(identifier: str) -> Any:
    """Return the object that mkdocstrings shows for a name: a module or a name in a module."""
    try:
        return importlib.import_module(identifier)
    except ModuleNotFoundError:
        home, _, name = identifier.rpartition(".")
        return getattr(importlib.import_module(home), name)


def printed() -> set[Any]:
    """Return the classes and functions on the pages. A module on a page stands for the names that it defines."""
    found: set[Any] = set()
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for identifier in re.findall(r"^::: (\S+)$", text, re.MULTILINE):
        thing = at(identifier)
        if not inspect.ismodule(thing):
            found.add(thing)
            continue
        made = (each for name, each in vars(thing).items() if not name.startswith("_"))
        found |= {each for each in made if getattr(each, "__module__", None) == thing.__name__}
    return found


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
    assert sorted(name for name, each in public(module).items() if each not in there) == []


@pytest.mark.skipif(aiokafka_lite.COMPILED, reason="a compiled class has no docstring, its source has")
@each_module
def test_every_public_name_and_what_can_be_called_of_it_has_a_docstring(module: ModuleType) -> None:
    silent = {name for name, each in public(module).items() if not each.__doc__}
    for name, each in public(module).items():
        silent |= {f"{name}.{method}" for method in methods_of(each) if method not in DOCUMENTED_ELSEWHERE}
    assert sorted(silent) == []


def methods_of(thing: object) -> dict[str, Any]:
    """Return the public functions that a class defines."""
    found = vars(thing).items() if inspect.isclass(thing) else ()
    return {name: each for name, each in found if not name.startswith("_") and inspect.isfunction(each)}


DOCUMENTED_ELSEWHERE = {
    name
    for module in MODULES
    for each in public(module).values()
    for name, method in methods_of(each).items()
    if inspect.getdoc(method)
}
"""Methods whose docstring is in the interface that they implement."""


def test_every_fixture_is_on_the_page_about_testing() -> None:
    plugin = aiokafka_lite.testing.plugin
    fixtures = {name for name, each in vars(plugin).items() if "fixture" in type(each).__name__.lower()}
    fixtures = {name for name in fixtures if not name.startswith("_")}
    named = {span for row in rows(ROOT / "docs" / "testing.md") for span in code_spans(row.cells.get("fixture", ""))}
    assert fixtures
    assert named == fixtures
