"""Wrong addresses, wrong names, wrong values, wrong order of calls: an error at the call, that says what is wrong."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafka_lite import ConfigurationError, Consumer, Producer, TopicPartition
from aiokafka_lite.aio import servers
from aiokafka_lite.errors import IllegalStateError, InvalidTopic, RecordTooLarge, SerializationError, UnknownTopic
from aiokafka_lite.testing.ports import free_port
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.read_topic import read
from tests.waiting import DEADLINE, error_of

Use = Callable[[str, float], Awaitable[None]]
"""Work with an address for a time. The timeouts of connections and requests keep their defaults. On a busy machine, a
slow answer would otherwise be a timeout instead of the expected error."""

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def a_server_that(answer: Answer) -> AsyncIterator[str]:
    """Run a server that is not Kafka, on a loopback port, and yield its address."""
    handlers: set[asyncio.Task[Any]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        try:
            await answer(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()
            handlers.discard(task)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        await servers.close(server)
        for task in list(handlers):
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)


async def speaks_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    await writer.drain()


async def speaks_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer as a TLS server to a client that does not begin with a hello: an alert, unexpected message."""
    await reader.read(100)
    writer.write(b"\x15\x03\x03\x00\x02\x02\x0a")
    await writer.drain()


async def says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(1000):
        pass


async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)


async def produce(address: str, timeout: float) -> None:
    async with Producer(address, api_timeout=timeout, max_block=timeout) as producer:
        await producer.send("orders", b"value")


async def consume(address: str, timeout: float) -> None:
    async with Consumer(address, topics=["orders"], api_timeout=timeout) as consumer:
        await consumer.poll(timeout=DEADLINE)


@pytest.mark.parametrize("use", [produce, consume])
@pytest.mark.parametrize(
    "answer, cause",
    [
        (speaks_http, r"HTTP"),
        (speaks_tls, r"TLS"),
        (says_nothing, r"(?i)time|in \d"),
        (hangs_up, r"closed the connection"),
    ],
    ids=["http", "tls", "silent", "hangs-up"],
)
async def test_a_port_of_something_else_is_named_with_the_likely_cause(answer: Answer, cause: str, use: Use) -> None:
    async with a_server_that(answer) as address, asyncio.timeout(DEADLINE):
        error = await error_of(lambda timeout: use(address, timeout), cause)
    assert re.search(cause, str(error))
    assert address in str(error)


@pytest.mark.parametrize("use", [produce, consume])
async def test_a_closed_port_is_named(use: Use) -> None:
    address = f"127.0.0.1:{free_port()}"
    async with asyncio.timeout(DEADLINE):
        error = await error_of(lambda timeout: use(address, timeout), "(?i)refused|connect")
    assert re.search("(?i)refused|connect", str(error))
    assert address in str(error)


async def test_a_bad_address_among_good_ones_does_not_matter(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with Producer(f"127.0.0.1:{free_port()},{kafka.bootstrap_servers}") as producer:
        await producer.send(topic, b"value")
    assert len(await read(kafka, topic, 1)) == 1


async def test_an_unknown_topic_is_an_error_that_names_it(kafka: Kafka) -> None:
    async def send(timeout: float) -> None:
        settings: dict[str, Any] = {"allow_auto_create_topics": False, "max_block": timeout}
        async with Producer(kafka.bootstrap_servers, **settings) as producer:
            await producer.send("never-created", b"value")

    error = await error_of(send, "UNKNOWN_TOPIC")
    assert isinstance(error, UnknownTopic)
    assert "never-created" in str(error)


@pytest.mark.parametrize("name", ["", ".", "..", "white space", "slash/ed", "x" * 250, "ümlaut"])
async def test_an_invalid_topic_name_is_refused_at_the_call(kafka: Kafka, name: str) -> None:
    async with Producer(kafka.bootstrap_servers) as producer:
        with pytest.raises(InvalidTopic):
            await producer.send(name, b"value")
        with pytest.raises(InvalidTopic):
            producer.send_nowait(name, b"value")


async def test_a_partition_that_is_not_there_is_an_error_that_names_it(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=2)
    says = rf"{topic}.*7|7.*{topic}"

    async def send(timeout: float) -> None:
        async with Producer(kafka.bootstrap_servers, max_block=timeout) as producer:
            await producer.send(topic, b"value", partition=7)

    error = await error_of(send, says)
    assert re.search(says, str(error))


async def test_a_record_over_the_clients_limit_is_refused_at_the_call(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with Producer(kafka.bootstrap_servers, max_request_size=10_000) as producer:
        with pytest.raises(RecordTooLarge, match=topic):
            await producer.send(topic, b"x" * 10_001)
        assert (await producer.send(topic, b"the next one is fine")).offset == 0


async def test_a_record_over_the_topics_limit_fails_alone(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1, max_message_bytes=2_000)
    async with Producer(kafka.bootstrap_servers) as producer:
        small, large, last = (producer.send_nowait(topic, b"x" * size) for size in (10, 5_000, 10))
        await producer.flush()
        assert (await small).offset == 0
        with pytest.raises(RecordTooLarge, match=topic):
            await large
        assert (await last).offset == 1


@pytest.mark.parametrize("part", ["key", "value"])
async def test_a_key_or_value_of_the_wrong_type_is_named(kafka: Kafka, part: str) -> None:
    topic = await kafka.create_topic(partitions=1)
    arguments: dict[str, Any] = {"value": b"value", part: object()}
    async with Producer(kafka.bootstrap_servers) as producer:
        with pytest.raises(SerializationError, match=rf"(?s){part}.*{topic}.*object"):
            await producer.send(topic, **arguments)


async def test_a_producer_works_only_between_start_and_close(kafka: Kafka) -> None:
    producer = Producer(kafka.bootstrap_servers)
    with pytest.raises(IllegalStateError):
        await producer.send("orders", b"value")
    with pytest.raises(IllegalStateError):
        producer.send_nowait("orders", b"value")
    async with producer:
        pass
    with pytest.raises(IllegalStateError):
        await producer.send("orders", b"value")
    with pytest.raises(IllegalStateError):
        await producer.start()
    await producer.close()


async def test_a_consumer_works_only_between_start_and_close(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    consumer = Consumer(kafka.bootstrap_servers, topics=[topic])
    with pytest.raises(IllegalStateError):
        await consumer.poll(timeout=0.1)
    async with consumer:
        pass
    with pytest.raises(IllegalStateError):
        await consumer.poll(timeout=0.1)
    with pytest.raises(IllegalStateError):
        await anext(consumer)
    await consumer.close()


async def test_a_position_is_asked_only_of_assigned_partitions(kafka: Kafka) -> None:
    async with Consumer(kafka.bootstrap_servers) as consumer:
        with pytest.raises(IllegalStateError, match="elsewhere"):
            await consumer.position(TopicPartition("elsewhere", 0))
        with pytest.raises(IllegalStateError, match="elsewhere"):
            consumer.seek(TopicPartition("elsewhere", 0), 1)


@pytest.mark.parametrize(
    "settings, named",
    [
        ({"acks": 2}, "acks must be .* got 2"),
        ({"acks": 1, "idempotence": True}, "idempotence"),
        ({"linger": -1.0}, r"linger must be .* got -1\.0"),
        ({"compression": "zip"}, "compression must be .* got 'zip'"),
        ({"batch_size": 0}, "batch_size must be .* got 0"),
        ({"max_in_flight_requests_per_connection": 6}, "max_in_flight_requests_per_connection must be .* got 6"),
        ({"request_timeout": 0}, "request_timeout must be .* got 0"),
        ({"request_timeout": "soon"}, "request_timeout must be .* got 'soon'"),
        ({"bootstrap_servers": ""}, "bootstrap_servers must be .* got ''"),
        ({"bootstrap_servers": "no-port"}, "no-port"),
        ({"bootstrap_servers": "host:99999"}, "99999"),
    ],
)
def test_a_bad_producer_setting_is_refused_by_the_constructor(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        Producer(**{"bootstrap_servers": "localhost:9092", **settings})


@pytest.mark.parametrize(
    "settings, named",
    [
        ({"auto_offset_reset": "newest"}, "auto_offset_reset must be .* got 'newest'"),
        ({"isolation_level": "serializable"}, "isolation_level must be .* got 'serializable'"),
        ({"fetch_min_bytes": -1}, "fetch_min_bytes must be .* got -1"),
        ({"fetch_max_wait": float("nan")}, "fetch_max_wait must be .* got nan"),
    ],
)
def test_a_bad_consumer_setting_is_refused_by_the_constructor(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        Consumer("localhost:9092", **settings)
