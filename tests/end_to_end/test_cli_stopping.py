"""Commands that are stopped: by Ctrl-C, by a signal, by a closed pipe, or by the loss of the broker."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from aiokafka_lite import Consumer, Producer, TopicPartition
from aiokafka_lite.admin import Admin
from aiokafka_lite.testing.ports import free_port
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.terminal import DEADLINE, broker, embedded_kafka, run, started, terminal

MANY = 45_123  # not a multiple of a batch


@pytest.fixture
async def embedded() -> AsyncIterator[Kafka]:
    async with embedded_kafka() as kafka:
        yield kafka


@pytest.fixture
async def filled(embedded: Kafka) -> str:
    """A topic of one partition with more records than pipes can hold."""
    topic = await embedded.create_topic(partitions=1)
    async with Producer(embedded.bootstrap_servers) as producer:
        await producer.send_many(topic, [b"%060d" % number for number in range(MANY)])
    return topic


async def end_of(kafka: Kafka, topic: str) -> int:
    async with Consumer(kafka.bootstrap_servers) as consumer:
        partition = TopicPartition(topic, 0)
        return (await consumer.end_offsets([partition]))[partition]


async def ended(process: asyncio.subprocess.Process) -> tuple[int, bytes, str]:
    async with asyncio.timeout(DEADLINE):
        output, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output, errors.decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_stopped_member_has_committed_what_it_printed_and_left(
    embedded: Kafka, filled: str, number: signal.Signals
) -> None:
    arguments = ("consume", filled, "--group", "g", "-b", embedded.bootstrap_servers)
    async with started(*arguments) as process:
        assert process.stdout is not None
        printed = await process.stdout.readline()
        process.send_signal(number)
        status, rest, errors = await ended(process)
    assert (status, errors) == (128 + number, "")
    printed += rest
    assert printed.endswith(b"\n")
    lines = printed.count(b"\n")
    async with Admin(embedded.bootstrap_servers) as admin:
        offsets = (await admin.groups.offsets("g"))["g"]
        assert {partition: offset.offset for partition, offset in offsets.items()} == {TopicPartition(filled, 0): lines}
        assert (await admin.groups.describe("g"))["g"].members == ()
    if lines < MANY:
        rest = (await run(*arguments, "--until", "end")).output
        assert rest.splitlines()[0] == b"%060d" % lines


async def test_records_that_arrive_while_reading_to_the_end_are_for_the_next_run(embedded: Kafka) -> None:
    topic = await embedded.create_topic(partitions=2)
    arguments = ("consume", topic, "-g", "ends", "--until", "end", "-b", embedded.bootstrap_servers)
    async with Producer(embedded.bootstrap_servers) as producer:
        for partition, count in ((0, 20_001), (1, 25_003)):  # not multiples of a batch
            await producer.send_many(topic, [b"%060d" % number for number in range(count)], partition=partition)
        async with started(*arguments) as process:
            assert process.stdout is not None
            await process.stdout.readline()  # only one line: the pipe fills up, and the ends are known
            for partition in (0, 1):
                await producer.send_many(topic, [b"late"] * 10, partition=partition)
            status, rest, errors = await ended(process)
    assert (status, errors) == (0, "")
    assert b"late" not in rest
    assert rest.count(b"\n") == 20_001 + 25_003 - 1
    assert (await run(*arguments)).output == b"late\n" * 20


async def test_a_reader_that_a_full_pipe_blocks_can_be_stopped(embedded: Kafka, filled: str) -> None:
    ours, theirs = os.pipe()
    try:
        async with started(
            "consume", filled, "-g", "stuck", "-b", embedded.bootstrap_servers, stdout=theirs
        ) as process:
            await asyncio.to_thread(os.read, ours, 1)  # the remaining records do not fit into the pipe
            process.send_signal(signal.SIGTERM)
            status, _, errors = await ended(process)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (status, errors) == (128 + signal.SIGTERM, "")
    async with Admin(embedded.bootstrap_servers) as admin:
        assert (await admin.groups.describe("stuck"))["stuck"].members == ()


async def test_ctrl_c_in_a_terminal_ends_a_reader(embedded: Kafka) -> None:
    topic = await embedded.create_topic(partitions=1)
    async with (
        Producer(embedded.bootstrap_servers) as producer,
        terminal("consume", topic, "-b", embedded.bootstrap_servers) as person,
    ):
        await producer.send(topic, b"hello")
        await person.until(lambda screen: "hello" in screen)
        person.type("\x03")
        assert await person.ended() == 130
        assert "Traceback" not in person.screen


async def test_ctrl_c_sends_the_typed_lines_and_stops(embedded: Kafka) -> None:
    topic = await embedded.create_topic(partitions=1)
    async with (
        Consumer(embedded.bootstrap_servers, topics=[topic]) as consumer,
        terminal("produce", topic, "-b", embedded.bootstrap_servers) as person,
    ):
        person.type("one\ntwo\n")
        records = [await anext(consumer), await anext(consumer)]
        assert [record.value for record in records] == [b"one", b"two"]
        person.type("\x03")
        assert await person.ended() == 130
        assert "stopped after line 2; acknowledged: 2 records" in person.screen
        assert "Traceback" not in person.screen


async def test_a_stopped_writer_reports_the_records_that_it_has_written(embedded: Kafka) -> None:
    topic = await embedded.create_topic(partitions=1)
    async with started("produce", topic, "-b", embedded.bootstrap_servers) as process:
        assert process.stdin is not None

        async def type_on() -> None:
            while True:
                process.stdin.write(b"x" * 99 + b"\n")
                await process.stdin.drain()
                await asyncio.sleep(0)

        typing = asyncio.create_task(type_on())
        while await end_of(embedded, topic) < 1000:
            pass
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(DEADLINE):
            assert await process.wait() == 130
        typing.cancel()
        await asyncio.wait([typing])
        assert process.stderr is not None
        errors = (await process.stderr.read()).decode()
    written = await end_of(embedded, topic)
    assert errors == (f"aiokafka-lite: stopped after line {written}; acknowledged: {written} records\n")


@pytest.mark.parametrize("arguments", [("consume", "TOPIC"), ("consume", "TOPIC", "--until", "end", "-g", "heads")])
async def test_a_closed_pipe_ends_a_reader_silently(embedded: Kafka, filled: str, arguments: tuple[str, ...]) -> None:
    named = [filled if argument == "TOPIC" else argument for argument in arguments]
    async with started(*named, "-b", embedded.bootstrap_servers) as process:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"%060d\n" % 0
        process.stdout._transport.close()  # type: ignore[attr-defined]
        async with asyncio.timeout(DEADLINE):
            assert await process.wait() == 0
        assert process.stderr is not None
        assert await process.stderr.read() == b""


async def test_a_writer_that_loses_its_broker_fails_with_one_line() -> None:
    async with (
        broker("--port", "0", "--topic", "orders") as (server, servers),
        started("produce", "orders", "-b", servers, "--timeout", "5") as process,
    ):
        assert process.stdin is not None
        process.stdin.write(b"before\n")
        async with asyncio.timeout(DEADLINE), Consumer(servers, topics=["orders"]) as consumer:
            assert (await anext(consumer)).value == b"before"
        server.kill()
        await server.wait()
        process.stdin.write(b"after\n")
        status, output, errors = await ended(process)
    assert (status, output) == (1, b"")
    assert "Traceback" not in errors
    lines = [
        line for line in errors.splitlines() if "stopped after" in line or line.startswith("aiokafka-lite: line 2")
    ]
    assert len(lines) == 2, errors
    assert "aiokafka-lite: stopped after line 2; acknowledged: 1 record\n" in errors


async def test_a_reader_continues_when_its_broker_restarts_and_can_be_stopped_while_it_is_down() -> None:
    port = str(free_port())  # no other process gets it while the broker is down
    async with (
        broker("--port", port, "--topic", "orders") as (server, servers),
        started("consume", "orders", "--from", "0", "-b", servers) as process,
    ):
        assert process.stdout is not None
        async with Producer(servers) as producer:
            await producer.send("orders", b"first")
        async with asyncio.timeout(DEADLINE):
            assert await process.stdout.readline() == b"first\n"
        server.kill()
        await server.wait()
        async with broker("--port", port, "--topic", "orders") as (again, _):
            async with Producer(servers) as producer:
                await producer.send_many("orders", [b"second", b"third"])
            async with asyncio.timeout(DEADLINE):
                while await process.stdout.readline() != b"third\n":
                    pass
            again.kill()
            await again.wait()
            process.send_signal(signal.SIGINT)
            status, _, errors = await ended(process)
    assert status == 130
    assert "Traceback" not in errors
