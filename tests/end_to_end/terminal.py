"""The command line as processes: with pipes, and in terminals."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiokafka_lite import EmbeddedCluster
from tests.end_to_end.conftest import Kafka
from tests.real.releases import NEWEST
from tests.waiting import DEADLINE

COMMAND = (sys.executable, "-W", "error", "-c", "from aiokafka_lite.cli import main; main()")
WIDTH, HEIGHT = 160, 50

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Outcome:
    """How a process ended, and what it wrote."""

    status: int
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        return self.output.decode()

    @property
    def rows(self) -> list[list[str]]:
        """Lines of plain text, split at tabs."""
        return [line.split("\t") for line in self.text.splitlines()]


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment, without the variables that configure a command."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIOKAFKA_LITE_")}
    return inherited | {"TERM": "xterm", "COLUMNS": str(WIDTH)} | more


@asynccontextmanager
async def started(
    *arguments: str,
    stdin: int | None = asyncio.subprocess.PIPE,
    stdout: int | None = asyncio.subprocess.PIPE,
    variables: dict[str, str] | None = None,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a command. If it still runs at the end of the block, it is killed."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdin=stdin,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
        env=environment(**(variables or {})),
        limit=1 << 16,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def run(*arguments: str, stdin: bytes = b"", variables: dict[str, str] | None = None) -> Outcome:
    """Run a command to its end, with pipes."""
    async with started(*arguments, variables=variables) as process, asyncio.timeout(DEADLINE):
        output, errors = await process.communicate(stdin)
        assert process.returncode is not None
        return Outcome(process.returncode, output, errors.decode())


async def run_with_files(*arguments: str, stdin: Path | None = None, stdout: Path | None = None) -> Outcome:
    """Run a command to its end whose input and output are files."""
    with open(stdin or os.devnull, "rb") as source, open(stdout or os.devnull, "wb") as target:
        async with (
            started(*arguments, stdin=source.fileno(), stdout=target.fileno()) as process,
            asyncio.timeout(DEADLINE),
        ):
            _, errors = await process.communicate()
            assert process.returncode is not None
            return Outcome(process.returncode, b"", errors.decode())


class Terminal:
    """A process whose stdin, stdout and stderr are a terminal, and the user of that terminal."""

    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self.process = process
        self._master = master
        self._read = bytearray()
        self._more = asyncio.Event()
        self._over = False
        asyncio.get_running_loop().add_reader(master, self._receive)

    @property
    def screen(self) -> str:
        """Everything that was written so far, without colours and cursor movements."""
        return _ESCAPE.sub("", self._read.decode(errors="replace")).replace("\r\n", "\n")

    def _receive(self) -> None:
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # Linux: the other side is closed
            data = b""
        if not data:
            self._over = True
            asyncio.get_running_loop().remove_reader(self._master)
        self._read += data
        self._more.set()

    async def until(self, condition: Callable[[str], bool]) -> str:
        """Return the screen once the condition holds; AssertionError if the process ends before."""
        async with asyncio.timeout(DEADLINE):
            while not condition(self.screen):
                assert not self._over, self.screen
                self._more.clear()
                await self._more.wait()
        return self.screen

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def ended(self) -> int:
        """Return the exit status, once all output has been read."""
        async with asyncio.timeout(DEADLINE):
            status = await self.process.wait()
            while not self._over:
                self._more.clear()
                await self._more.wait()
        return status

    def close(self) -> None:
        if not self._over:
            asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)


@asynccontextmanager
async def terminal(*arguments: str, stdout: int | None = None) -> AsyncIterator[Terminal]:
    """Run a command in a terminal of its own, where Ctrl-C is a key. Its output may be redirected."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdin=slave,
        stdout=slave if stdout is None else stdout,
        stderr=slave,
        env=environment(),
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    opened = Terminal(process, master)
    try:
        yield opened
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        opened.close()


@asynccontextmanager
async def broker(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Run ``aiokafka-lite broker``; yields it and the bootstrap servers that it printed."""
    async with started("broker", *arguments) as process:
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE):
            line = (await process.stdout.readline()).decode()
        assert line.startswith("bootstrap servers: "), line
        yield process, line.removeprefix("bootstrap servers: ").strip()


@asynccontextmanager
async def embedded_kafka() -> AsyncIterator[Kafka]:
    """Run an embedded cluster, for tests that do not depend on the broker."""
    async with EmbeddedCluster(brokers=1) as cluster:
        yield Kafka("embedded", NEWEST, cluster.bootstrap_servers)
