"""The clients of other languages that ``make bench`` compares with: franz-go (Go), and Kafka's own client (Java).

Their programs are ``go/main.go`` and ``java/Worker.java``. They are built once for a run, into ``build/benchmarks``. Go
gets its modules from the module proxy, and Java its jars from Maven Central. Where one of them is missing, its rows are
left out, and the report says why. Spark's own connector to Kafka comes from Maven Central too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.spark.jvm import find_java
from benchmarks.job import Job
from benchmarks.kafka import java
from tests.real.jvm import SPARK_CONNECTOR, connector_jars, jars
from tests.real.releases import NEWEST

HERE = Path(__file__).parent
BUILT = HERE.parent / "build" / "benchmarks"
BUILD_TIMEOUT = 1800.0

PYTHON, GO, JAVA = "python", "go", "java"
SPARK, CONNECTOR = "spark", "spark's connector"


class PeerMissing(RuntimeError):
    """A program cannot be built here. The text says why."""


class Peers:
    """The programs that could be built, and why the others could not be."""

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}
        self._commands: dict[str, list[str]] = {PYTHON: [sys.executable, "-m", "benchmarks.worker"]}

    def build(self) -> None:
        """Build the programs of other languages. One that cannot be built is in ``problems``."""
        BUILT.mkdir(parents=True, exist_ok=True)
        for program, build in ((GO, build_go), (JAVA, build_java), (SPARK, find_spark), (CONNECTOR, find_connector)):
            try:
                self._commands[program] = build()
            except (PeerMissing, ConfigurationError, OSError, RuntimeError, subprocess.TimeoutExpired) as problem:
                self.problems[program] = (str(problem).strip() or repr(problem)).splitlines()[-1]

    def command(self, program: str, job: Job) -> list[str]:
        """Return the command that does a job. Raises KeyError for a program that could not be built."""
        command = self._commands[program]
        if program == JAVA:
            return [*command, *(f"{name}={_java_text(value)}" for name, value in asdict(job).items())]
        return [*command, json.dumps(asdict(job))]

    def names(self) -> list[str]:
        """Return the names and versions of the clients that could be built."""
        versions = {
            GO: f"franz-go {go_version()}",
            JAVA: f"Java's kafka-clients {NEWEST}",
            SPARK: f"PySpark {_pyspark_version()}",
            CONNECTOR: f"Spark's connector {SPARK_CONNECTOR[0][2]}",
        }
        return [name for program, name in versions.items() if program in self._commands]


def build_go() -> list[str]:
    if shutil.which("go") is None:
        raise PeerMissing("no go is installed")
    program = BUILT / "worker"
    _run(["go", "build", "-o", str(program), "."], HERE / "go")
    return [str(program)]


def build_java() -> list[str]:
    classes = BUILT / "java"
    if shutil.which("javac") is None:
        raise PeerMissing("no javac is installed")
    path = f"{jars(NEWEST)}/*"
    _run(["javac", "-cp", path, "-d", str(classes), str(HERE / "java" / "Worker.java")], HERE)
    return java(f"{classes}:{path}", "Worker")


def find_spark() -> list[str]:
    if _pyspark_version() is None:
        raise PeerMissing("no pyspark is installed")
    find_java(os.environ)
    return [sys.executable, "-m", "benchmarks.spark_worker"]


def find_connector() -> list[str]:
    """Return the command of Spark with its own connector. Its rows are those of Spark too."""
    return [*find_spark(), "--jars", ",".join(map(str, connector_jars()))]


def _pyspark_version() -> str | None:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return None


def go_version() -> str:
    match = re.search(r"twmb/franz-go v(\S+)", (HERE / "go" / "go.mod").read_text())
    assert match is not None
    return match[1]


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=BUILD_TIMEOUT, check=False)
    if done.returncode:
        raise PeerMissing(f"{command[0]} failed: {(done.stderr or done.stdout).strip()}")


def _java_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
