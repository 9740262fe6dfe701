"""Commands in this process, on an embedded cluster in memory and in virtual time."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.virtual import virtual_loops

pytest_asyncio_loop_factories = virtual_loops


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Three brokers without topics."""
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1) as cluster:
        yield cluster


@dataclass(frozen=True)
class CommandLine:
    """Runs commands in this process, on a server in a thread."""

    server: EmbeddedKafkaServer
    monkeypatch: pytest.MonkeyPatch
    capfd: pytest.CaptureFixture[str]

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Return the exit status, the output and the errors of a command."""
        from aiokafka_lite.cli import main

        self.monkeypatch.setattr(sys, "argv", ["aiokafka-lite", *arguments])
        self.monkeypatch.setenv("AIOKAFKA_LITE_BOOTSTRAP_SERVER", self.server.bootstrap_servers)
        self.capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = self.capfd.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, printed.out, printed.err

    def ask(self, *arguments: str) -> str:
        """Return the output of a command that succeeds."""
        status, output, errors = self.run(*arguments)
        assert status == 0, errors
        return output

    def rows(self, *arguments: str) -> list[list[str]]:
        """Return the rows of a table, without its headings."""
        return [line.split("\t") for line in self.ask(*arguments, "--no-headings").splitlines()]

    def objects(self, *arguments: str) -> Any:
        """Return the JSON that a command prints."""
        return json.loads(self.ask(*arguments, "--json"))

    def fails(self, *arguments: str, status: int = 1) -> str:
        """Return the errors of a command that fails; there is one line."""
        ended, _, errors = self.run(*arguments)
        assert (ended, errors.count("\n")) == (status, 1), errors
        return errors


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedKafkaServer]:
    """A cluster of three brokers in a thread."""
    with EmbeddedKafkaServer(3) as server:
        yield server


@pytest.fixture
def cli(server: EmbeddedKafkaServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line, connected to the server."""
    return CommandLine(server, monkeypatch, capfd)
