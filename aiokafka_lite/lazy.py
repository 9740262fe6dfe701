"""Packages that import a name when it is first used (PEP 562), so that a program imports only the modules it needs.

Type checkers and the documentation read the imports under ``TYPE_CHECKING`` in the same file; a test compares both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module


def attributes(package: str, homes: Mapping[str, Iterable[str]]) -> Callable[[str], object]:
    """The ``__getattr__`` of ``package``. ``homes`` has the public names of each of its modules.

    A name is set in the package when it is found, so that ``__getattr__`` runs once for each.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def find(name: str) -> object:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{package}.{home}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find
