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


@pytest.mark.skipif(os.name != "posix", reason="the script is one of a POSIX shell")
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
