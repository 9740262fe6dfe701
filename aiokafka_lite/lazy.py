"""Packages that import a name when it is first asked for (PEP 562).

Importing a package of many modules then costs what is used of it. Type checkers and documentation read the imports
that stand beside, under ``TYPE_CHECKING``; a test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def attributes(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """The ``__getattr__`` of ``package``, whose names are those of its modules: ``homes`` has them by module.

    What was found is kept in the package, so that each name is looked for once.
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
