"""The clients run in programs that also have the package sniffio, as older releases of httpx and anyio require.

anyio then recognizes asyncio only inside a task. In a callback of the event loop it cannot make a cancel scope.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SNIFFIO = """
import asyncio
from contextvars import ContextVar

current_async_library_cvar = ContextVar("current_async_library", default=None)


class AsyncLibraryNotFoundError(RuntimeError):
    pass


def current_async_library():
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    if task is None:
        raise AsyncLibraryNotFoundError
    return "asyncio"
"""
"""The part of the package that anyio uses."""

SEND_AND_READ = """
import asyncio
from aiokafka_lite import Consumer, EmbeddedCluster, Producer


async def main():
    async with EmbeddedCluster() as cluster:
        await cluster.create_topic("orders", 1)
        async with Producer(**cluster.client_settings()) as producer:
            await producer.send("orders", b"two coffees")
        async with Consumer(**cluster.client_settings(), topics=["orders"], group_id="billing") as consumer:
            print((await anext(consumer)).value.decode())


asyncio.run(main())
"""

REPEAT = """
import asyncio
from aiokafka_lite import ConsumerGroup, EmbeddedCluster, Producer, Workers
from aiokafka_lite.processing import retry


async def main():
    attempts = []

    async def bill(record):
        attempts.append(record.value.decode())
        if len(attempts) == 1:
            raise ConnectionError("the shop is closed")
        billed.set()

    async with EmbeddedCluster() as cluster:
        await cluster.create_topic("orders", 1)
        async with Producer(**cluster.client_settings()) as producer:
            await producer.send("orders", b"two coffees")
        async with ConsumerGroup(**cluster.client_settings(), group_id="billing") as group:
            billed = asyncio.Event()
            rules = [retry(Exception, attempts=2, backoff=0.001)]
            consuming = asyncio.create_task(group.consume(["orders"], Workers(bill, rules=rules)))
            async with asyncio.timeout(10):
                await billed.wait()
        await consuming
    print(*attempts, sep=", ")


asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("program", "output"),
    [
        pytest.param(SEND_AND_READ, "two coffees\n", id="a producer and a member of a group"),
        pytest.param(REPEAT, "two coffees, two coffees\n", id="Workers that repeat a record"),
    ],
)
def test_clients_run_beside_sniffio(program: str, output: str, tmp_path: Path) -> None:
    (tmp_path / "sniffio.py").write_text(SNIFFIO)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, output), run.stderr
