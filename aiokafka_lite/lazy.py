"""Makes a package import a name at its first use (PEP 562), so that a program imports only the modules that it needs.

Type checkers and the documentation read the imports under ``TYPE_CHECKING`` in the same file. They accept a name as
public only in the form ``from .claim import Claim as Claim``. A test compares these imports with ``homes``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def exports(
    package: str, homes: Mapping[str, str]
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return the ``__all__``, ``__getattr__`` and ``__dir__`` of ``package``.

    ``homes`` maps each module, relative to the package as in an import, to its public names, separated by blanks.
    ``__getattr__`` stores a name in the package, so it runs once for each name.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}
    public = list(home_of)

    def find(name: str) -> object:
        home = home_of.get(name)
        if home is None:
            text = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(text, name=name, obj=sys.modules[package])  # for "Did you mean" of Python
        value: object = getattr(import_module(home, package), name)
        setattr(sys.modules[package], name, value)
        return value

    return public, find, lambda: list(public)
