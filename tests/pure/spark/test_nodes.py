"""The package for nodes that lack it, and what is said about nodes that cannot run it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.spark import register
from aiokafka_lite.spark.nodes import NEEDED, PACKAGE, pack
from aiokafka_lite.version import VERSION

pytest.importorskip("pyspark")


def run(program: str) -> str:
    """Return the output of a program. The package in the zip is plain Python, so the compiled build is not required
    there.
    """
    environment = {name: value for name, value in os.environ.items() if name != "AIOKAFKA_LITE_PURE"}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    ).stdout


@pytest.mark.thorough
def test_the_package_can_be_imported_from_the_zip(tmp_path: Path) -> None:
    shipped = pack(tmp_path)
    with zipfile.ZipFile(shipped) as archive:
        names = set(archive.namelist())
    modules = {module.relative_to(PACKAGE.parent) for module in PACKAGE.rglob("*.py")}
    assert names == {str(module.with_suffix(suffix)) for module in modules for suffix in (".py", ".pyc")}
    program = f"import sys; sys.path.insert(0, {str(shipped)!r}); import aiokafka_lite as a; print(a.__file__)"
    assert run(program).startswith(str(shipped))


@pytest.mark.thorough
def test_a_worker_compiles_no_module_of_the_zip(tmp_path: Path) -> None:
    """Spark starts several Python processes for a query, and each imports the package from the zip."""
    program = (
        f"import builtins, sys, zipimport; sys.path.insert(0, {str(pack(tmp_path))!r})\n"
        "zipimport._compile_source = None\n"  # its call would be a TypeError
        "import aiokafka_lite.spark.reading as a; print(a.__file__)"
    )
    assert run(program).strip().endswith("reading.pyc")


class Cluster:
    """The parts of a session on a cluster that ``register`` uses. The executors run in this process.

    A real cluster takes a minute to start; ``test_cluster`` has one.
    """

    def __init__(self, python: str = "python3", *, nodes: list[Any] | None = None) -> None:
        self.shipped: list[str] = []
        self.registered: list[str] = []
        self._nodes = nodes
        self._sc = SimpleNamespace(
            master="spark://master:7077",
            pythonExec=python,
            environment={},
            defaultParallelism=2,
            getConf=dict,
            addPyFile=self.shipped.append,
            parallelize=lambda _, tasks: SimpleNamespace(mapPartitions=self._job),
        )
        self.dataSource = SimpleNamespace(register=lambda source: self.registered.append(source.name()))

    def _job(self, task: Callable[[Iterator[int]], Iterable[Any]]) -> Any:
        return SimpleNamespace(collect=lambda: self._nodes or [*task(iter(())), *task(iter(()))])


def test_nodes_that_have_the_package_get_nothing() -> None:
    cluster = Cluster()
    register(cluster)  # type: ignore[arg-type]
    assert cluster.shipped == []
    assert cluster.registered == ["kafka-lite"]


def test_nodes_that_lack_the_package_get_it_as_plain_python(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(nodes=[("node-1", "python3", [], None, False), ("node-2", "python3", [], VERSION, True)])
    with caplog.at_level(logging.WARNING):
        register(cluster)  # type: ignore[arg-type]
    assert [Path(path).name for path in cluster.shipped] == ["aiokafka_lite.zip"]
    assert "node-1 has no aiokafka_lite, so the executors get it from this program, as plain Python" in caplog.text


@pytest.mark.parametrize(
    "node, message",
    [
        (
            ("node-2", "/usr/bin/python3", ["anyio", "lz4"], None, False),
            r"the Python of node-2 \(/usr/bin/python3\) has no anyio, lz4; install anyio lz4 on every node",
        ),
        (
            ("node-2", "/usr/bin/python3", [], "0.0.9", True),
            rf"node-2 \(/usr/bin/python3\) has aiokafka_lite 0.0.9, and this program has {VERSION}",
        ),
    ],
)
def test_a_node_that_cannot_run_the_package_is_an_error(node: Any, message: str) -> None:
    cluster = Cluster(nodes=[("node-1", "python3", [], VERSION, True), node])
    with pytest.raises(ConfigurationError, match=message):
        register(cluster)  # type: ignore[arg-type]
    assert cluster.registered == cluster.shipped == []
    register(cluster, check_nodes=False)  # type: ignore[arg-type]
    assert cluster.registered == ["kafka-lite"]


def test_an_environment_that_the_driver_lacks_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="unpack the environment there too"):
        register(Cluster("./environment/bin/python"))  # type: ignore[arg-type]


def test_the_dependencies_that_nodes_need_are_those_of_the_package() -> None:
    packages = {line.partition(">")[0].strip(' "[]') for line in _dependencies()}
    assert packages | {"numpy", "pyarrow"} == set(NEEDED)


def _dependencies() -> list[str]:
    import tomllib

    project: list[str] = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "dependencies"
    ]
    return project
