"""The command line as a user meets it: a process, its output and its exit status."""

from __future__ import annotations

import asyncio
import signal
import socket
from contextlib import suppress

import pytest

from aiokafka_lite import Producer
from aiokafka_lite.testing.ports import free_port
from tests.end_to_end import terminal
from tests.end_to_end.terminal import DEADLINE, broker


async def run(*arguments: str) -> tuple[int, str]:
    """Return the exit status, and all that was printed."""
    outcome = await terminal.run(*arguments)
    return outcome.status, outcome.text + outcome.errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_broker_serves_until_a_signal_stops_it(number: signal.Signals) -> None:
    async with broker("--port", "0", "--brokers", "3") as (process, servers):
        assert len(servers.split(",")) == 3
        async with Producer(servers) as producer:
            assert (await producer.send("orders", b"value")).offset == 0
        process.send_signal(number)
        async with asyncio.timeout(DEADLINE):
            assert await process.wait() == 0
        assert process.stdout is not None
        assert (await process.stdout.read()).decode() == "stopped\n"


def free_port_before_another() -> int:
    while True:
        port = free_port()
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port + 1))
            return port


async def test_further_brokers_take_the_following_ports() -> None:
    port = free_port_before_another()
    async with broker("--port", str(port), "--brokers", "2") as (_, servers):
        assert servers == f"127.0.0.1:{port},127.0.0.1:{port + 1}"


async def test_a_port_in_use_is_one_line() -> None:
    async with broker("--port", "0") as (_, servers):
        status, output = await run("broker", "--port", servers.rpartition(":")[2])
    assert status == 1
    assert "in use" in output
    assert "Errno" not in output
    assert "Traceback" not in output


async def test_the_version_is_printed() -> None:
    status, output = await run("--version")
    assert (status, output.split()[0]) == (0, "aiokafka-lite")


async def test_a_wrong_option_is_named() -> None:
    status, output = await run("broker", "--prot", "1")
    assert status == 2
    assert "--prot" in output


async def test_controllers_and_brokers_exclude_each_other() -> None:
    status, output = await run("cluster", "-b", "127.0.0.1:1", "--bootstrap-controller", "127.0.0.1:2")
    assert (status, "give either --bootstrap-server or --bootstrap-controller" in output) == (2, True)
    status, output = await run("topics", "list", "--bootstrap-controller", "127.0.0.1:2")
    assert (status, "No such option" in output) == (2, True)
    status, output = await run("cluster", "--bootstrap-controller", "controller")
    assert (status, output.count("\n")) == (2, 1)
    assert "bootstrap_controllers" in output
    assert "the port is missing" in output
