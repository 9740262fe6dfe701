"""A program: a parent with clients and an embedded cluster forks in several ways, and goes on.

Prints one line of JSON for each fact. The first argument is the name of the scenario.
"""

# ruff: noqa: T201 - the test reads what these programs print

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import os
import sys
import time
import warnings
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from aiokafka_lite import Consumer, EmbeddedCluster, Producer
from aiokafka_lite.testing.server import EmbeddedKafkaServer

PARENT = os.getpid()
INHERITED_LOOP = 2.5
"""Seconds for which a child runs its parent's loop: more than a heartbeat, a commit and a measurement of the loop."""


async def an_inherited_loop() -> None:
    """Run the loop in a child, on a clock that is a minute ahead: all timers of the parent are due, also those of a
    session, an idle connection and a delivery, which are long enough for a busy machine.
    """
    loop: Any = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + 60.0
    await asyncio.sleep(INHERITED_LOOP)


def report(*facts: object) -> None:
    print(json.dumps(facts), flush=True)


def run_child(loop: asyncio.AbstractEventLoop, exit_by: str, body: Any) -> None:
    """Fork, run ``body()`` in the child, and end it. Its result is printed. The parent's loop runs meanwhile."""
    child = os.fork()
    if child == 0:
        try:
            report("child", body())
        except BaseException as error:  # noqa: BLE001 - any error is a fact to print
            report("child", f"{type(error).__name__}: {error}")
        if exit_by == "os._exit":
            os._exit(0)
        sys.exit(0)
    report("exit", loop.run_until_complete(asyncio.to_thread(os.waitpid, child, 0))[1])


class Parent:
    """A cluster with TLS and a data directory, a producer and a member of a group, in one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.directory = Path(mkdtemp())
        self.expired: list[str] = []

    async def start(self) -> None:
        configs = {
            "group.min.session.timeout.ms": "100",
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.check.interval.ms": "200",
        }
        self.cluster = EmbeddedCluster(1, security="SSL", data_dir=self.directory / "data", configs=configs, seed=1)
        await self.cluster.start()
        await self.cluster.create_topic("orders")
        settings = self.cluster.client_settings()
        self.certificates = Path(settings["ssl_cafile"])
        self.producer = Producer(**settings, idempotence=True, delivery_timeout=20.0, request_timeout=10.0)
        await self.producer.start()
        self.consumer = Consumer(
            **settings, topics=["orders"], group_id="billing", session_timeout=20.0, heartbeat_interval=0.1,
            auto_commit_interval=0.1,
        )  # fmt: skip
        await self.consumer.start()
        await self.producer.send_many("orders", [b"%d" % number for number in range(5)])
        self.records = aiter(self.consumer)
        self.read = [(await anext(self.records)).value]  # four records stay in the buffer

    async def go_on(self) -> None:
        """Write and read in the parent, after the child has ended."""
        await self.producer.send_many("orders", [b"%d" % number for number in range(5, 10)])
        async with asyncio.timeout(30):
            while len(self.read) < 10:
                self.read.append((await anext(self.records)).value)
        report("read", [str(value, "ascii") for value in self.read])
        report("log", [str(record.value, "ascii") for record in self.cluster.records("orders")])
        coordinator = self.cluster.nodes[1].groups.group("billing")
        assert coordinator is not None
        report("generation", coordinator.generation)
        report("certificates", self.certificates.exists())
        report("connects", self.producer.metrics().client.connects)
        await self.consumer.close()
        await self.producer.close()
        await self.cluster.close()

    async def wait_in_child(self) -> str:
        """Let all tasks, timers and connections of the parent have their turn in the child: its workers of a web server
        inherit the loop, and run it for each request.
        """
        refused = []
        calls = (self.producer.send("orders", b"of the child"), anext(self.records), anext(self.consumer))
        for call in calls:
            try:
                await call
            except Exception as error:  # noqa: BLE001 - any error is a fact to print
                refused.append(type(error).__name__)
        await an_inherited_loop()
        return " ".join(refused)


def in_flight(parent: Parent) -> None:
    """Fork while records are on their way. The child learns nothing about them."""

    async def send() -> None:
        for number in range(3):
            delivery = parent.producer.send_nowait("orders", b"%d" % (5 + number))
            delivery.report(lambda metadata, error: report("reported", os.getpid() == PARENT, error is None))
            parent.delivery = delivery

    async def wait() -> None:
        time.sleep(INHERITED_LOOP)  # a child that blocks the loop starts no thread for the heartbeats of its parent
        await an_inherited_loop()
        await parent.delivery

    parent.loop.run_until_complete(send())
    run_child(parent.loop, "sys.exit", lambda: parent.loop.run_until_complete(wait()))

    async def settle() -> None:
        report("settled", (await parent.delivery).offset)
        report("log", [str(record.value, "ascii") for record in parent.cluster.records("orders")])
        await parent.consumer.close()
        await parent.producer.close()
        await parent.cluster.close()

    parent.loop.run_until_complete(settle())


async def fork_in_a_coroutine(parent: Parent) -> None:
    """Fork in a task; the child continues in the running loop."""
    child = os.fork()
    if child == 0:
        try:
            await parent.producer.send("orders", b"of the child")
        except Exception as error:  # noqa: BLE001 - any error is a fact to print
            report("child", f"{type(error).__name__}: {error}")
        os._exit(0)
    report("exit", (await asyncio.to_thread(os.waitpid, child, 0))[1])


def target(parent: Parent) -> None:
    """Run as a process of ``multiprocessing``. It has a loop of its own."""

    async def send() -> None:
        try:
            await parent.producer.send("orders", b"of the child")
        except Exception as error:  # noqa: BLE001 - any error is a fact to print
            report("child", f"{type(error).__name__}: {error}")
        # A client of its own works, also one that was made before the fork, and not started.
        async with parent.unstarted as producer:
            report("own", (await producer.send("dishes", b"of the child")).topic)

    asyncio.run(send())


async def fork_by_multiprocessing(parent: Parent) -> None:
    await parent.cluster.create_topic("dishes")
    parent.unstarted = Producer(**parent.cluster.client_settings())
    process = multiprocessing.get_context("fork").Process(target=target, args=(parent,))
    process.start()
    await asyncio.to_thread(process.join)
    report("exit", process.exitcode)


def freed(parent: Parent) -> None:
    """Check that a child that lives on keeps no port, no lock and no connection of its parent."""
    child = os.fork()
    if child == 0:
        os.read(0, 1)
        os._exit(0)

    async def start_again() -> None:
        port = parent.cluster.bootstrap_servers
        await parent.consumer.close()
        await parent.producer.close()
        await parent.cluster.close()
        number = int(port.rpartition(":")[2])
        async with EmbeddedCluster(1, data_dir=parent.directory / "data", ports=number) as cluster:
            report("log", [str(record.value, "ascii") for record in cluster.records("orders")])

    parent.loop.run_until_complete(start_again())
    os.kill(child, 9)
    os.waitpid(child, 0)


def server() -> None:
    """Check that a cluster in a thread does not run in a child."""
    with EmbeddedKafkaServer() as cluster:
        servers = cluster.bootstrap_servers
        child = os.fork()
        if child == 0:
            try:
                cluster.create_topic("orders")
            except Exception as error:  # noqa: BLE001 - any error is a fact to print
                report("child", f"{type(error).__name__}: {error}")

            async def use() -> None:
                async with Producer(servers) as producer:
                    report("own", (await producer.send("orders", b"of the child")).topic)

            asyncio.run(use())
            os._exit(0)
        report("exit", os.waitpid(child, 0)[1])
        report("log", [str(record.value, "ascii") for record in cluster.records("orders")])


def main(scenario: str) -> None:
    if scenario == "server":
        server()
        return
    loop = asyncio.new_event_loop()
    parent = Parent(loop)
    loop.run_until_complete(parent.start())
    if scenario == "in flight":
        in_flight(parent)
        return
    if scenario == "freed":
        freed(parent)
        return
    if scenario == "coroutine":
        loop.run_until_complete(fork_in_a_coroutine(parent))
    elif scenario == "multiprocessing":
        loop.run_until_complete(fork_by_multiprocessing(parent))
    else:
        run_child(loop, scenario, lambda: loop.run_until_complete(parent.wait_in_child()))
    loop.run_until_complete(parent.go_on())
    loop.close()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.basicConfig(level=logging.INFO, format=f"%(process)d {PARENT} %(levelname)s %(name)s %(message)s")
    main(sys.argv[1])
