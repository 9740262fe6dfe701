"""Compare the installed versions with the bounds of pyproject.toml: ``python tests/real/bounds.py``.

In an environment of the lowest versions, each installed version must be the bound. A bound that another requirement
raises was never tested: it is printed, and the exit status is 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement
from packaging.version import Version


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
    found = sorted(set(untested(Requirement(line) for line in requires("aiokafka_lite") or ())))
    sys.stdout.writelines(f"{line}\n" for line in found)
    sys.exit(1 if found else 0)
