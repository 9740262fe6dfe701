"""Decides whether the hot modules run compiled, or as plain Python from the same files.

A compiled build has an extension module beside the source of each hot module, and Python prefers the extension module.
With ``AIOKAFKA_LITE_PURE=1`` in the environment, Python first asks a finder that finds only source files.
``AIOKAFKA_LITE_PURE=0`` requires the compiled build.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:
    # mypyc reads this attribute in the source, so this package does not need mypy at run time.
    T = TypeVar("T")

    def mypyc_attr(**attributes: object) -> Callable[[T], T]:
        return lambda decorated: decorated


SHARED_LIBRARY = "compiled__mypyc"
"""The extension module that has the code of all compiled modules."""


class SourceFinder:
    """Finds the modules of one package as source files, also where extension modules are beside them."""

    def __init__(self, package: str) -> None:
        self._prefix = f"{package}."
        self._directories: dict[str, FileFinder] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(self._prefix):
            return None
        for directory in path or ():
            finder = self._directories.get(directory)
            if finder is None:
                finder = self._directories[directory] = FileFinder(directory, (SourceFileLoader, SOURCE_SUFFIXES))
            spec = finder.find_spec(name)
            if spec is not None:
                return spec
        return None

    def invalidate_caches(self) -> None:
        """Read the directories again, because source files may have changed."""
        self._directories.clear()


def _choose(package: str, path: Sequence[str]) -> bool:
    """Decide which build of ``package`` runs, before its modules are imported. Returns True for the compiled build.

    Raises ImportError if the environment requires the compiled build and there is none.
    """
    pure = os.environ.get("AIOKAFKA_LITE_PURE", "")
    if pure not in ("", "0", "1"):
        raise ImportError(f"AIOKAFKA_LITE_PURE must be 1 or 0, got {pure!r}")
    if pure == "1":
        sys.meta_path.insert(0, SourceFinder(package))
        return False
    is_compiled = PathFinder.find_spec(f"{package}.{SHARED_LIBRARY}", path) is not None
    if pure == "0" and not is_compiled:
        raise ImportError(
            f"{package} is installed as plain Python, and AIOKAFKA_LITE_PURE=0 requires the compiled build;"
            " install a wheel, or install from source with AIOKAFKA_LITE_PURE=0, which needs a C compiler"
        )
    return is_compiled


COMPILED = _choose(__package__, [os.path.dirname(__file__)])
"""Whether the hot modules run compiled."""

BUILD = "compiled" if COMPILED else "plain Python"
"""The name of the build, for people to read."""
