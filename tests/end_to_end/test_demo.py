"""The demo of examples/ as a user runs it: a process, its output and its exit status."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from aiokafka_lite.testing.ports import free_port
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.terminal import DEADLINE, environment

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


async def run(*arguments: str) -> tuple[int | None, str]:
    """Run the demo. Return the exit status, and all that was printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(DEMO), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment(),
    )
    try:
        async with asyncio.timeout(DEADLINE):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, output.decode()


async def test_the_demo_brings_every_record_back(kafka: Kafka) -> None:
    status, output = await run("--records", "3000", "--bootstrap-server", kafka.bootstrap_servers)
    assert status == 0, output
    assert "all 3,000 records came back exactly once, unchanged, and in order per key" in output
    assert f"{3000:,}" in output
    assert "the group processed all" in output


async def test_the_demo_brings_its_own_cluster() -> None:
    status, output = await run("--records", "1000")
    assert status == 0, output
    assert "embedded cluster of three brokers" in output


async def test_the_demo_says_in_one_line_that_no_broker_is_there() -> None:
    address = f"127.0.0.1:{free_port()}"
    status, output = await run("--bootstrap-server", address)
    assert status == 1
    assert address in output
    assert "Traceback" not in output
