"""The package for the nodes, and the settings of a session."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from spark_session import PACKAGE, SparkCluster, pack


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


@pytest.mark.parametrize(
    "cluster, local",
    [
        (SparkCluster(), True),
        (SparkCluster(master="local[2]"), True),
        (SparkCluster(master="spark://host:7077"), False),
        (SparkCluster(remote="sc://host"), False),
    ],
)
def test_only_a_local_master_gets_local_settings(cluster: SparkCluster, local: bool) -> None:
    assert cluster.is_local is local
