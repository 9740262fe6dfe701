"""Clusters by name: a TOML file with a table of properties for each: ``aiokafka-lite --cluster prod topics list``.

A secret is ``file:PATH``, ``env:NAME`` or ``command:PROGRAM ARGUMENT...``, whose first line of output it is. No error
quotes a value, or what a program prints.
"""

from __future__ import annotations

import os
import shlex
import sys
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import typer

ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        envvar="AIOKAFKA_LITE_CLUSTER",
        help="Use the properties of this cluster in ~/.config/aiokafka-lite/clusters.toml.",
    ),
]
VARIABLE = "AIOKAFKA_LITE_CLUSTERS"
"""The variable of the environment with the path of the file."""
_COMMAND = "command:"
_PUBLIC = {"bootstrap.servers", "security.protocol"}
_LONGEST_COMMAND = 60.0
"""Seconds that a program may take to print a secret: a person may have to confirm it."""


def clusters_file() -> Path:
    """Return the path of the file: that of the environment, or the usual place of settings."""
    if path := os.environ.get(VARIABLE):
        return Path(path).expanduser()
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "aiokafka-lite" / "clusters.toml"


def named_clusters(path: Path) -> dict[str, dict[str, str]]:
    """Return the properties of each cluster that are no secrets, without running the programs that the file names."""
    from ...settings.property_files import read_tables

    tables = read_tables(path) if path.is_file() else {}
    return {
        name: {key: _shown(properties[key]) for key in _PUBLIC & properties.keys()}
        for name, properties in tables.items()
    }


def _shown(value: str) -> str:
    return value.partition(" ")[0] + " ..." if value.startswith(_COMMAND) else value


def cluster_properties(name: str) -> dict[str, str]:
    """Return the properties of a cluster. Raises ConfigurationError for an unknown name, with the nearest one."""
    return dict(_read(clusters_file(), name))


@lru_cache(maxsize=8)  # a command reads its properties several times, and a program may ask a person for a password
def _read(path: Path, name: str) -> tuple[tuple[str, str], ...]:
    from difflib import get_close_matches

    from ... import disclosure
    from ...errors import ConfigurationError
    from ...settings.property_files import read_tables

    if not path.is_file():
        raise ConfigurationError(f"--cluster needs the file {disclosure.path(str(path))}, which does not exist")
    tables = read_tables(path)
    if name not in tables:
        near = get_close_matches(name, tables, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(tables) or 'none'}"
        raise ConfigurationError(f"there is no cluster {name!r} in {disclosure.path(str(path))}; {hint}")
    return tuple((key, _resolved(name, key, value)) for key, value in tables[name].items())


def _resolved(cluster: str, name: str, value: str) -> str:
    """Return the value, or what the program prints that it names."""
    import subprocess

    from ...errors import ConfigurationError

    if not value.startswith(_COMMAND):
        return value
    problem = ""
    try:
        words = shlex.split(value.removeprefix(_COMMAND))
        # A person at a terminal may have to answer the program. But a pipe has the records of ``produce``.
        stdin = None if sys.stdin.isatty() else subprocess.DEVNULL
        outcome = subprocess.run(
            words, stdin=stdin, stdout=subprocess.PIPE, timeout=_LONGEST_COMMAND, check=False, text=True
        )
        lines = outcome.stdout.splitlines()
        if outcome.returncode:
            problem = f"ended with status {outcome.returncode}"
        elif not lines or not lines[0]:
            problem = "printed nothing"
        else:
            return lines[0]
    except subprocess.TimeoutExpired:
        problem = f"did not end within {_LONGEST_COMMAND:g} s"
    except (OSError, ValueError, IndexError) as error:
        problem = f"cannot be run: {getattr(error, 'strerror', None) or type(error).__name__}"
    raise ConfigurationError(f"the command for {name} of the cluster {cluster!r} {problem}")
