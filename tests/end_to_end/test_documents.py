"""The programs and tests printed in docs/*.md, run as they are printed; only the address is the broker's under test.

The programs of a page run one after the other on a cluster of their own, and each has to end by itself. The README, the
tutorial, and the page about Admin have tests of their own: their programs do not end, or need more than a cluster.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aiokafka_lite import EmbeddedCluster
from tests.end_to_end.test_examples import DEADLINE, Program, started
from tests.pure.documents import PAGES, Block, blocks

TESTED_ELSEWHERE = {"README.md", "admin.md", "tutorial.md"}
TUTORIAL = next(page for page in PAGES if page.name == "tutorial.md")
SETTINGS = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"

# The test on the page about simulation finds a mistake, so it fails on purpose. classic_mistakes.py has its service.
ELSEWHERE = ("README.md", "simulation-testing.md")
TESTS = [block for page in PAGES if page.name not in ELSEWHERE for block in blocks(page) if block.is_test]
MIGRATING = [page for page in PAGES if page.name.startswith("migrating-from-")]


def programs(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.is_program]


WITH_PROGRAMS = [
    page for page in PAGES if page.name not in TESTED_ELSEWHERE and page not in MIGRATING and programs(page)
]


@asynccontextmanager
async def running(block: Block, servers: str) -> AsyncIterator[Program]:
    """Run the program of a block, talking to these servers. Warnings are errors, except warnings of another client."""
    options = "-u" if block.title.startswith("before") else "-uWerror"
    async with started(options, "-c", block.text.replace("localhost:9092", servers)) as program:
        yield program


@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=lambda page: page.name)
async def test_the_programs_of_a_page_run_to_their_end(page: Path) -> None:
    async with EmbeddedCluster(brokers=1) as cluster:
        for block in programs(page):
            async with running(block, cluster.bootstrap_servers) as program:
                status = await program.end()
            assert status == 0, f"{block}\n{program.printed}"
            assert program.printed, f"{block} prints nothing, so it shows nothing"


@pytest.mark.parametrize("page", MIGRATING, ids=lambda page: page.name)
async def test_before_and_after_do_the_same(page: Path) -> None:
    """Run each test on a cluster of its own, so that it begins without records."""
    for block in programs(page):
        async with EmbeddedCluster(brokers=1) as cluster, running(block, cluster.bootstrap_servers) as program:
            status = await program.end()
        assert (status, program.printed) == (0, "written at 0\nbilled b'table-7' b'two coffees'\n"), str(block)


async def test_the_tests_on_the_pages_pass(tmp_path: Path) -> None:
    for number, block in enumerate(TESTS):
        (tmp_path / f"test_{number}_of_{block.page.stem}.py").write_text(block.text)
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    async with started("-m", "pytest", "-q", "-c", str(tmp_path / "pytest.ini"), str(tmp_path)) as program:
        status = await program.end()
    assert status == 0, program.printed
    assert f"{sum(block.text.count('def test_') for block in TESTS)} passed" in program.printed


async def test_the_tutorial_from_its_first_command_to_the_lag() -> None:
    page = TUTORIAL.read_text(encoding="utf-8")
    command, describe = re.findall(r"^aiokafka-lite (.*)$", page, re.MULTILINE)
    cli = "from aiokafka_lite.cli import main; main()"
    write, read, bill, lag = programs(TUTORIAL)
    async with started("-uW", "error", "-c", cli, *command.split(), "--port", "0") as broker:
        printed = await broker.until("bootstrap servers:")
        servers = printed.split("bootstrap servers: ")[1].split()[0]
        for _ in range(2):
            async with running(write, servers) as program:
                assert await program.end() == 0, program.printed
            assert program.printed.count("is in partition") == 12, program.printed

        async with running(read, servers) as program:
            await program.until("coffee 11 ", 2)
            await program.end(signal.SIGINT)
        assert program.printed.startswith("table-"), program.printed

        async with running(bill, servers) as first:
            await first.until("I have [0, 1, 2, 3]")
            await first.until("billed", 24)
            async with running(bill, servers) as second:
                await second.until("I have [")
                async with running(write, servers) as program:
                    assert await program.end() == 0, program.printed
                await until_both_have_billed(first, second, 36)
                await second.end(signal.SIGINT)
            await first.until("I have [0, 1, 2, 3]", 2)
            await first.end(signal.SIGINT)
        for process in (first, second):
            assert len(re.findall(r"^I have \[\d, \d\]$", process.printed, re.MULTILINE)) >= 1, process.printed

        async with running(bill, servers) as third:
            await third.until("I have [0, 1, 2, 3]")
            async with running(write, servers) as program:
                assert await program.end() == 0, program.printed
            await third.until("billed", 12)
            await third.end(signal.SIGINT)
        # A record in progress at a Ctrl-C may come again, and a record in progress now is not processed.
        assert third.printed.count("billed") in (12, 13), third.printed

        async with started("-c", cli, *describe.split(), "--bootstrap-server", servers) as program:
            assert await program.end() == 0, program.printed
        assert len(re.findall(r"^billing\s+orders\s", program.printed, re.MULTILINE)) == 4, program.printed
        async with running(lag, servers) as program:
            assert await program.end() == 0, program.printed
        assert len(re.findall(r"^orders-\d: \d+ of \d+ done, [012] to go$", program.printed, re.MULTILINE)) == 4
        assert await broker.end(signal.SIGTERM) == 0, broker.printed


async def until_both_have_billed(first: Program, second: Program, count: int) -> None:
    """Wait until each order before a Ctrl-C was billed once, by any of the members."""
    async with asyncio.timeout(DEADLINE):
        while first.printed.count("billed") + second.printed.count("billed") < count:
            await asyncio.sleep(0.05)
    assert second.printed.count("billed") > 0, second.printed
