"""Lines in and lines out as processes, against Kafka's console tools and kcat: ``python -m benchmarks command_line``.

A million lines of 100 bytes from a file into a topic of one partition, and from there into a file, each tool with its
own defaults. The program finds Kafka as the tests do (KAFKA_BOOTSTRAP, a container, plain Java). Kafka's tools are
those of the newest release, as Java processes with the heap that their scripts set. kcat is measured if it is
installed. The time includes the start and the end of the process; the CPU is that of the process alone.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiokafka_lite.admin import Admin, NewTopic
from benchmarks.kafka import Timed, apache_kafka, in_rounds
from tests.real.jvm import jars, java_problem
from tests.real.releases import NEWEST

LINES = 1_000_000
ROUNDS = 3
CODE = "from aiokafka_lite.cli import main; main()"
WITHOUT_ARROW = f"import sys; sys.modules['pyarrow'] = None; {CODE}"

Command = Callable[[str, str], list[str]]
"""The words of a command, for servers and a topic."""


def ours(code: str, *words: str) -> Command:
    return lambda servers, topic: [sys.executable, "-c", code, *words, topic, "-b", servers]


def kafkas(main_class: str, *options: str) -> Command:
    def command(servers: str, topic: str) -> list[str]:
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        words = ["java", "-Xmx256M", quiet, "-cp", f"{jars(NEWEST)}/*", f"org.apache.kafka.tools.{main_class}"]
        return [*words, "--bootstrap-server", servers, "--topic", topic, *options]

    return command


def kcat(*options: str) -> Command:
    return lambda servers, topic: ["kcat", *options, "-b", servers, "-t", topic]


def writers() -> dict[str, Command]:
    commands = {"aiokafka-lite produce": ours(CODE, "produce"), "… without pyarrow": ours(WITHOUT_ARROW, "produce")}
    if java_problem() is None:
        commands[f"kafka-console-producer {NEWEST}"] = kafkas("ConsoleProducer")
    if shutil.which("kcat"):
        commands["kcat -P"] = kcat("-P")
    return commands


def readers() -> dict[str, Command]:
    many = str(LINES)
    commands = {"aiokafka-lite consume": ours(CODE, "consume", "--max-messages", many)}
    if java_problem() is None:
        options = ("--from-beginning", "--max-messages", many)
        commands[f"kafka-console-consumer {NEWEST}"] = kafkas("consumer.ConsoleConsumer", *options)
    if shutil.which("kcat"):
        commands["kcat -C"] = kcat("-C", "-q", "-o", "beginning", "-c", many)
    return commands


def timed(command: list[str], source: Path, target: Path) -> Timed:
    """Return wall and CPU seconds of a process, from its start to its end."""
    with source.open("rb") as stdin, target.open("wb") as stdout:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.stderr is not None
        with process.stderr:
            errors = process.stderr.read().decode()
    if process.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {process.returncode}: {errors}")
    return wall, usage.ru_utime + usage.ru_stime


@asynccontextmanager
async def topic_of_one_partition(servers: str) -> AsyncIterator[str]:
    """Create a topic, which is deleted at the end, so that the broker does not keep its records."""
    name = f"bench-{time.time_ns():x}"
    async with Admin(servers) as admin:
        (await admin.topics.create(NewTopic(name, 1, 1))).raise_for_errors()
        while not (await admin.topics.describe(name)).done:
            await asyncio.sleep(0.1)
        yield name
        await admin.topics.delete(name)


def main() -> None:
    with apache_kafka() as (servers, name), tempfile.TemporaryDirectory() as scratch:
        print(f"{name}, {LINES:,} lines of 100 bytes, {ROUNDS} rounds\n")
        measure(servers, Path(scratch))


def measure(servers: str, scratch: Path) -> None:
    lines, printed, nothing = scratch / "lines", scratch / "printed", Path(os.devnull)
    filler = b"x" * 92
    lines.write_bytes(b"".join(b"%08d%b\n" % (number, filler) for number in range(LINES)))

    async def write(command: Command) -> Timed:
        async with topic_of_one_partition(servers) as topic:
            return timed(command(servers, topic), lines, nothing)

    async def read_all() -> None:
        async with topic_of_one_partition(servers) as full:
            timed(ours(CODE, "produce")(servers, full), lines, nothing)

            def read(command: Command) -> Timed:
                times = timed(command(servers, full), nothing, printed)
                assert printed.read_bytes() == lines.read_bytes()
                return times

            print(in_rounds("a million lines out", readers(), read, rounds=ROUNDS, unit="process"), "\n")

    title = "a million lines in"
    print(
        in_rounds(title, writers(), lambda candidate: asyncio.run(write(candidate)), rounds=ROUNDS, unit="process"),
        "\n",
    )
    asyncio.run(read_all())


if __name__ == "__main__":
    main()
