"""Commands stop when nothing reads their output, also those that wait for records."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aiokafka_lite import Admin, Producer
from aiokafka_lite.admin import ConfigResource
from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.waiting import DEADLINE

DEMO = Path(__file__).parents[3] / "examples" / "demo.py"


@pytest.mark.parametrize("options", [(), ("--group", "readers"), ("--group", "queue", "--share")], ids=" ".join)
def test_consume_ends_when_its_reader_closes_the_pipe(server: EmbeddedKafkaServer, options: tuple[str, ...]) -> None:
    async def write() -> None:
        changes = {ConfigResource.group("queue"): {"share.auto.offset.reset": "earliest"}}
        async with Admin(server.bootstrap_servers) as admin, Producer(server.bootstrap_servers) as producer:
            (await admin.configs.alter(changes)).raise_for_errors()
            await producer.send("pipe", b"one")

    server.call(write)
    servers = ["-b", server.bootstrap_servers]
    command = [sys.executable, "-m", "aiokafka_lite", "consume", "pipe", *servers, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == b"one\n"
            process.stdout.close()
            assert process.wait(DEADLINE) == 0
            assert process.stderr.read() == b""
        finally:
            process.kill()


def test_the_demo_succeeds_when_its_reader_closes_the_pipe() -> None:
    command = [sys.executable, str(DEMO), "--records", "100"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(DEADLINE) == 0
