"""The README's examples, run as they are printed; only the address is the broker's under test."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.end_to_end.conftest import Kafka
from tests.pure.documents import blocks
from tests.waiting import DEADLINE

README = Path(__file__).parents[2] / "README.md"


def example(mark: str) -> str:
    """Return the one Python block that contains the mark."""
    (text,) = [block.text for block in blocks(README) if mark in block.text]
    return text


async def until_it_prints(text: str, *command: str) -> str:
    """Run a program until it has printed that line, or ended. Returns its output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-u", *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    printed = ""
    try:
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE):
            async for line in process.stdout:
                printed += line.decode()
                if text in printed:
                    break
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    return printed


def test_no_example_is_left_out() -> None:
    assert len(blocks(README)) == 4


async def test_produce_and_consume(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=3)

    def here(program: str) -> str:
        return program.replace("localhost:9092", kafka.bootstrap_servers).replace('"orders"', f'"{topic}"')

    assert f"{topic}-" in await until_it_prints("offset 0", "-c", here(example('print(f"{metadata')))
    for mark in ("print(record.partition", 'group_id="billing"'):
        printed = await until_it_prints("two coffees", "-c", here(example(mark)))
        assert "two coffees" in printed, printed


async def test_embedded_cluster_in_a_test(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(example("embedded_kafka"))
    settings = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
    (tmp_path / "pytest.ini").write_text(settings)
    printed = await until_it_prints("1 passed", "-m", "pytest", "-q", "-c", str(tmp_path / "pytest.ini"), str(tmp_path))
    assert "1 passed" in printed, printed
