"""The inner loops of reading in C decide as the Python code does, and access no memory outside of their data."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import build_backend

INPUTS = 600
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1", "-Wall", "-Werror")


@pytest.mark.thorough
def test_c_and_python_read_the_same_under_the_sanitizers_of_the_compiler(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no gcc here")
    runtime = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip("gcc has no address sanitizer here")
    library = tmp_path / "decode.so"
    source = build_backend.ROOT / "aiokafka_lite/protocol/records/decode.c"
    include = sysconfig.get_path("include")
    subprocess.run(
        [compiler, *SANITIZERS, "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(library)], check=True
    )
    environment = {
        **os.environ,
        "AIOKAFKA_LITE_PURE": "1",
        "ASAN_OPTIONS": "detect_leaks=0",  # Python frees little at its end; the program counts memory itself
        "LD_PRELOAD": runtime,
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(build_backend.ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.decoder", str(library), str(INPUTS)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
