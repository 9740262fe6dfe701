"""The clients run in programs that also have the package sniffio, as older releases of httpx and anyio require.

anyio then recognizes asyncio only inside a task. In a callback of the event loop it cannot make a cancel scope.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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

PROGRAM = """
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


def test_a_producer_and_a_member_of_a_group_run_beside_sniffio(tmp_path: Path) -> None:
    (tmp_path / "sniffio.py").write_text(SNIFFIO)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "two coffees\n"), run.stderr
