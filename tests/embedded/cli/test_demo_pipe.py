"""The demo stops when nothing reads its output."""

from __future__ import annotations

import subprocess
import sys

from tests.waiting import DEADLINE


def test_the_demo_succeeds_when_its_reader_closes_the_pipe() -> None:
    command = [sys.executable, "-m", "aiokafka_lite", "demo", "--records", "100"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(DEADLINE) == 0
