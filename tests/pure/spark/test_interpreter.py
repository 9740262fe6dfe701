"""The Python of Spark's workers: this interpreter, with the installed PySpark instead of its zip."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyspark

from aiokafka_lite.spark.interpreter import worker_python

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the script is one of a POSIX shell")


def test_a_worker_runs_this_interpreter_with_the_installed_pyspark() -> None:
    (archive,) = Path(pyspark.__path__[0], "python", "lib").glob("pyspark.zip")
    code = "import os, sys, pyspark; print(sys.prefix, pyspark.__file__, os.environ['PYTHONPATH'], *sys.argv[1:])"
    path = os.pathsep.join([str(archive), "/other.zip", "/mine"])
    done = subprocess.run(
        [worker_python(), "-c", code, "an argument"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    expected = f"{sys.prefix} {pyspark.__file__} {os.pathsep.join(['/other.zip', '/mine'])} an argument"
    assert done.stdout.strip() == expected


def imports_of_the_daemon(directory: Path) -> str:
    """Return the names that the daemon of Spark's tasks imports in a working directory, until its input ends."""
    done = subprocess.run(
        [worker_python(), "-m", "pyspark.daemon", "pyspark.worker"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,  # Spark's daemon ends with 1
        cwd=directory,
        env=os.environ | {"PYTHONPROFILEIMPORTTIME": "1"},
    )
    assert len(done.stdout) == 4, "the daemon writes its port"
    return done.stderr.decode()


def test_the_daemon_of_the_workers_imports_what_a_task_needs_and_nothing_with_threads() -> None:
    imported = imports_of_the_daemon(Path.cwd())
    assert "aiokafka_lite.spark.reading" in imported
    assert "aiokafka_lite.cluster.client" in imported
    assert not [name for name in ("numpy", "pyarrow", "pandas") if f" {name}\n" in imported]


def test_the_daemon_is_sparks_own_where_workers_do_not_have_the_package(tmp_path: Path) -> None:
    (tmp_path / "aiokafka_lite.py").write_text("raise ImportError('not here')")
    imported = imports_of_the_daemon(tmp_path)
    assert "aiokafka_lite.cluster.client" not in imported
