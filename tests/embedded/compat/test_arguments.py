"""Wrong arguments and calls raise aiokafka's exceptions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import pytest

from aiokafka_lite import EmbeddedCluster
from aiokafka_lite.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka_lite.settings.checks import log_unusual


async def outcome(call: Callable[[], Any]) -> str:
    """Return the name of the exception that the call raises, or "none"."""
    try:
        result = call()
        if asyncio.iscoroutine(result):
            await result
    except Exception as error:  # noqa: BLE001 - the tests compare the names
        return type(error).__name__
    return "none"


async def test_wrong_arguments_of_a_consumer(library: Any, cluster: EmbeddedCluster) -> None:
    servers = cluster.bootstrap_servers
    present, strange = library.TopicPartition("orders", 0), library.TopicPartition("orders", 7)
    settings = {"bootstrap_servers": servers, "group_id": "billing"}
    async with (
        library.AIOKafkaConsumer("orders", **settings) as consumer,
        library.AIOKafkaConsumer(**settings) as idle,
    ):
        calls: dict[str, tuple[str, Callable[[], Any]]] = {
            "topics as a string": ("TypeError", lambda: consumer.subscribe("orders")),
            "an object as listener": ("TypeError", lambda: consumer.subscribe(["orders"], listener=object())),
            "no records at a time": ("ValueError", lambda: library.AIOKafkaConsumer(max_poll_records=0)),
            "a number to seek": ("TypeError", lambda: consumer.seek_to_end(1)),
            "seek what is not assigned": ("IllegalStateError", lambda: consumer.seek_to_beginning(strange)),
            "seek to the committed": ("IllegalStateError", lambda: consumer.seek_to_committed(strange)),
            "read a number": ("AssertionError", lambda: consumer.getone(1)),
            "read many of a number": ("AssertionError", lambda: consumer.getmany(1)),
            "the end of a strange partition": ("AssertionError", lambda: consumer.last_stable_offset(strange)),
            "pause a strange partition": ("IllegalStateError", lambda: consumer.pause(strange)),
            "a time before the epoch": ("ValueError", lambda: consumer.offsets_for_times({present: -1})),
            "commit nothing": ("ValueError", lambda: consumer.commit({})),
            "commit a text": ("ValueError", lambda: consumer.commit("offsets")),
            "commit three values": ("ValueError", lambda: consumer.commit({present: (1, "note", 2)})),
            "commit a topic": ("TypeError", lambda: consumer.commit({"orders": 1})),
            "commit a note of bytes": ("TypeError", lambda: consumer.commit({present: (1, b"note")})),
            "commit a strange partition": ("IllegalStateError", lambda: consumer.commit({strange: 1})),
            "commit without a subscription": ("IllegalStateError", lambda: idle.commit()),
            "seek without a subscription": ("AssertionError", lambda: idle.seek_to_end()),
        }
        assert {name: await outcome(call) for name, (_, call) in calls.items()} == {
            name: expected for name, (expected, _) in calls.items()
        }


async def test_wrong_records_of_a_producer(library: Any, cluster: EmbeddedCluster) -> None:
    servers = cluster.bootstrap_servers
    async with library.AIOKafkaProducer(bootstrap_servers=servers, max_request_size=600) as producer:
        batch = producer.create_batch()
        calls: dict[str, tuple[str, Callable[[], Any]]] = {
            "neither key nor value": ("AssertionError", lambda: producer.send("orders")),
            "a text as value": ("TypeError", lambda: producer.send("orders", "soup")),
            "a text as key": ("TypeError", lambda: producer.send("orders", key="soup")),
            "a strange partition": ("AssertionError", lambda: producer.send("orders", b"soup", partition=7)),
            "a batch for one": ("AssertionError", lambda: producer.send_batch(batch, "orders", partition=7)),
            "too large a record": ("MessageSizeTooLargeError", lambda: producer.send("orders", bytes(600))),
            "a text in a header": ("TypeError", lambda: producer.send("orders", b"x", headers=[("trace", "7")])),
            "a text as timestamp": ("TypeError", lambda: producer.send("orders", b"x", timestamp_ms="now")),
            "a text in a batch": ("TypeError", lambda: batch.append(timestamp=None, key=None, value="soup")),
            "a view of bytes": ("none", lambda: producer.send_and_wait("orders", memoryview(b"soup"))),
            "a record that fits": ("none", lambda: producer.send_and_wait("orders", bytes(400))),
        }
        assert {name: await outcome(call) for name, (_, call) in calls.items()} == {
            name: expected for name, (expected, _) in calls.items()
        }
        assert not batch.closed()


class Choice(StrEnum):
    """Settings as frameworks hold them."""

    PLAINTEXT = "PLAINTEXT"
    EARLIEST = "earliest"
    ALL = "all"
    GZIP = "gzip"


async def test_settings_may_be_members_of_an_enum(library: Any, cluster: EmbeddedCluster) -> None:
    settings = {"bootstrap_servers": cluster.bootstrap_servers, "security_protocol": Choice.PLAINTEXT}
    async with library.AIOKafkaProducer(acks=Choice.ALL, compression_type=Choice.GZIP, **settings) as producer:
        await producer.send_and_wait("orders", b"soup")
    async with library.AIOKafkaConsumer("orders", auto_offset_reset=Choice.EARLIEST, **settings) as consumer:
        assert (await consumer.getone()).value == b"soup"


async def test_a_session_that_the_broker_refuses(library: Any, cluster: EmbeddedCluster) -> None:
    settings = {"group_id": "billing", "session_timeout_ms": 200, "heartbeat_interval_ms": 100}
    consumer = library.AIOKafkaConsumer("orders", bootstrap_servers=cluster.bootstrap_servers, **settings)
    with pytest.raises(library.errors.InvalidSessionTimeoutError):
        await consumer.start()
    await consumer.stop()


async def test_a_long_time_in_milliseconds_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    log_unusual.cache_clear()
    AIOKafkaConsumer(group_id="billing", max_poll_interval_ms=2**31 - 1, connections_max_idle_ms=86_400_000 * 30)
    AIOKafkaProducer(request_timeout_ms=86_400_000, metadata_max_age_ms=86_400_000 * 30)
    assert not [message for message in caplog.messages if "milliseconds" in message]
