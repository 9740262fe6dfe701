"""Compare the installed versions with the bounds of pyproject.toml: ``python tests/real/bounds.py``.

In an environment of the lowest versions, each installed version must be the bound. A bound that another requirement
raises was never tested: it is printed, and the exit status is 1.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def declared() -> Iterator[Requirement]:
    """Return the requirements of the package, of its extras and of the group that the tests need."""
    content = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    extras = content["project"]["optional-dependencies"]
    for lines in (content["project"]["dependencies"], *extras.values(), content["dependency-groups"]["test-fast"]):
        for line in lines:
            if isinstance(line, str):  # else a group that another one includes
                yield Requirement(line)


def untested(requirements: Iterator[Requirement]) -> Iterator[str]:
    for requirement in requirements:
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:  # of an extra that is not installed here
            continue
        for bound in requirement.specifier:
            lowest = Version(bound.version).release
            if bound.operator == ">=" and Version(installed).release[: len(lowest)] != lowest:
                yield f"{requirement.name}{bound}: {installed} is installed"


if __name__ == "__main__":
    bounds = sorted(set(untested(declared())))
    sys.stdout.writelines(f"{line}\n" for line in bounds)
    sys.exit(1 if bounds else 0)
