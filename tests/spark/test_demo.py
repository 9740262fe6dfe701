"""The demo with its Spark part, as ``make demo`` runs it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import EVERY_SPARK, ROOT

pytestmark = pytest.mark.long

pytest.importorskip("matplotlib")

DEMO = ROOT / "examples" / "demo.py"
TIMEOUT = 240.0


async def test_the_demo_ends_with_right_windows_and_a_chart(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(DEMO), "--records", "1000", "--spark", "--output", str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | EVERY_SPARK,
    )
    try:
        async with asyncio.timeout(TIMEOUT):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()  # the demo then ends the pipeline, which has a session of its own
            await process.wait()
    assert process.returncode == 0, output.decode()
    assert b"all 24 sums are right" in output
    (chart,) = tmp_path.glob("*/windows.png")
    assert chart.read_bytes().startswith(b"\x89PNG")
