"""The package on Windows and macOS, as far as another interpreter can be made to behave like them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("typer")

from aiokafka_lite.testing.server import EmbeddedKafkaServer

ROOT = Path(__file__).parents[2]
TIMEOUT = 60

START = "from tests.other_platforms import install; install({platform!r}); "
COMMAND = START + "import sys; sys.argv[0] = 'aiokafka-lite'; from aiokafka_lite.cli import main; main()"
EACH_MODULE = (
    START
    + """
import importlib, pkgutil, aiokafka_lite
for module in pkgutil.walk_packages(aiokafka_lite.__path__, "aiokafka_lite."):
    if module.name.startswith(("aiokafka_lite.spark", "aiokafka_lite.__main__")):
        continue
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        if "pip install" not in str(error) and error.name != "numpy":  # of an extra that is not installed
            raise
print("imported")
"""
)


@pytest.fixture(params=["windows", "macos"])
def platform(request: pytest.FixtureRequest) -> str:
    """Name the platform that a process behaves like."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedKafkaServer() as server:
        yield server.bootstrap_servers


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}


def run(platform: str, *arguments: str, text: str | None = None, stdin: Path | None = None) -> str:
    """Run a command, and return its output."""
    with (stdin or Path(os.devnull)).open("rb") as source:
        done = subprocess.run(
            [sys.executable, "-c", COMMAND.format(platform=platform), *arguments],
            **({"stdin": source} if text is None else {"input": text}),  # type: ignore[call-overload]
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            env=_environment(),
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@contextmanager
def started(platform: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command until the end of the block."""
    command = [sys.executable, "-c", COMMAND.format(platform=platform), *arguments]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_each_module_can_be_imported(platform: str) -> None:
    command = [sys.executable, "-c", EACH_MODULE.format(platform=platform)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, env=_environment(), check=False)
    assert done.stdout == "imported\n", done.stderr


def test_records_go_from_a_pipe_and_from_a_file_to_a_pipe(platform: str, servers: str, tmp_path: Path) -> None:
    topic = f"lines-{platform}"
    run(platform, "topics", "create", topic, "-b", servers, "--partitions", "1")
    run(platform, "produce", topic, "-b", servers, text="one\nzwölf\n")
    file = tmp_path / "lines"
    file.write_text("three\n", encoding="utf-8")
    run(platform, "produce", topic, "-b", servers, stdin=file)
    run(platform, "produce", topic, "-b", servers)  # from the null device
    read = run(platform, "consume", topic, "-b", servers, "--from", "earliest", "-n", "3")
    assert read == "one\nzwölf\nthree\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_command_that_waits_for_records_orderly(
    platform: str, servers: str, number: signal.Signals
) -> None:
    topic = f"waiting-{platform}-{number}"
    run(platform, "topics", "create", topic, "-b", servers)
    run(platform, "produce", topic, "-b", servers, text="first\n")
    arguments = ("consume", topic, "-b", servers, "--from", "earliest", "--group", f"group-{topic}")
    with started(platform, *arguments) as process:
        assert line_of(process) == "first\n"
        process.send_signal(number)
        assert process.wait(TIMEOUT) == 128 + number
    (row,) = run(platform, "groups", "describe", f"group-{topic}", "-b", servers).splitlines()[1:]
    assert row.split()[3:] == ["1", "1", "0", "-", "-", "-"], "it committed its record and left its group"


def test_a_signal_ends_a_command_that_waits_for_lines(platform: str, servers: str) -> None:
    topic = f"typed-{platform}"
    run(platform, "topics", "create", topic, "-b", servers)
    with started(platform, "produce", topic, "-b", servers) as process:
        assert process.stdin is not None
        process.stdin.write("typed\n")
        process.stdin.flush()
        assert run(platform, "consume", topic, "-b", servers, "--from", "earliest", "-n", "1") == "typed\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT) == 130
        assert process.stderr is not None
        assert process.stderr.read() == "aiokafka-lite: stopped after line 1; acknowledged: 1 record\n"


def test_a_broker_serves_until_a_signal(platform: str) -> None:
    with started(platform, "broker", "--port", "0", "--topic", "orders") as process:
        name, _, address = line_of(process).strip().partition(": ")
        assert name == "bootstrap servers"
        assert "orders" in run(platform, "topics", "list", "-b", address).split()
        run(platform, "produce", "orders", "-b", address, text="one\n")
        process.send_signal(signal.SIGINT)
        assert line_of(process) == "stopped\n"
        assert process.wait(TIMEOUT) == 0


def test_a_port_in_use_is_named(platform: str, servers: str) -> None:
    port = servers.rpartition(":")[2]
    with started(platform, "broker", "--port", port) as process:
        assert process.stderr is not None
        assert "address already in use" in process.stderr.read()
        assert process.wait(TIMEOUT) == 1
