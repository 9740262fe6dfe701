"""Errors of settings name a setting as the user wrote it."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any

import pytest

from aiokafka_lite import Consumer, Producer, ShareConsumer
from aiokafka_lite.arguments import must_be
from aiokafka_lite.cli.terminal.connection import ConnectionOptions
from aiokafka_lite.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.settings.client import ClientConfig
from aiokafka_lite.settings.consumer import ConsumerConfig
from aiokafka_lite.settings.group import GroupConfig
from aiokafka_lite.settings.producer import ProducerConfig
from aiokafka_lite.settings.share import ShareConfig
from aiokafka_lite.settings.spelling import respelled
from aiokafka_lite.spark.connection import client_config, consumer_config
from aiokafka_lite.spark.options import Properties
from aiokafka_lite.spark.writing import make_producer
from aiokafka_lite.types import Compression

SERVERS = "localhost:9092"


def read_and_connect(properties: Properties) -> object:
    client_config(properties)
    return consumer_config(properties)


@pytest.mark.parametrize(
    "make, name, value, text",
    [
        (make_producer, "max.request.size", "100", "option kafka.max.request.size must be a whole number from 1024 to"),
        (make_producer, "linger.ms", "-1", "option kafka.linger.ms=-1 is wrong: linger must be a number of seconds"),
        (make_producer, "acks", "most", "option kafka.acks must be 0, 1 or all, got 'most'"),
        (make_producer, "linger", "5", "option kafka.linger is not a property of a Kafka client; did you mean linger"),
        (make_producer, "compression.type", "rar", "option kafka.compression.type must be one of 'none', 'gzip'"),
        (make_producer, "delivery.timeout.ms", "0", "option kafka.delivery.timeout.ms=0 is wrong: delivery_timeout"),
        (read_and_connect, "fetch.max.bytes", "0", "option kafka.fetch.max.bytes must be a whole number from 1 to"),
        (read_and_connect, "security.protocol", "TLS", "option kafka.security.protocol must be one of 'PLAINTEXT'"),
        (read_and_connect, "security.protocol", "SASL_SSL", "option kafka.sasl.mechanism is required with kafka.secur"),
        (read_and_connect, "request.timeout.ms", "0", "option kafka.request.timeout.ms=0 is wrong: request_timeout mu"),
        (read_and_connect, "ssl.ca.location", "ca.pem", "option kafka.ssl.ca.location requires kafka.security.proto"),
    ],
)
def test_an_error_of_a_spark_query_names_the_option(
    make: Callable[[Properties], object], name: str, value: str, text: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make(Properties({"bootstrap.servers": SERVERS, name: value}))
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    "name, value, text",
    [
        ("max.request.size", "100", "max.request.size must be a whole number from 1024 to 2147483647, got 100"),
        ("linger.ms", "-1", "linger.ms=-1 is wrong: linger must be a number of seconds >= 0, got -0.001"),
        ("security.protocol", "SASL_SSL", "sasl.mechanism is required with security.protocol='SASL_SSL': one of "),
    ],
)
def test_an_error_of_a_command_names_the_property(name: str, value: str, text: str) -> None:
    connection = ConnectionOptions(None, None, [f"{name}={value}"], None)
    with pytest.raises(ConfigurationError) as caught:
        connection.producer({}, {})
    assert str(caught.value).startswith(text)


def test_an_error_of_a_command_names_the_property_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("fetch.min.bytes=-1\nheartbeat.interval.ms=60000\nretry.backoff.ms=0\n")
    with pytest.raises(ConfigurationError, match=r"^retry\.backoff\.ms=0 is wrong: retry_backoff must be a number"):
        ConnectionOptions(None, file, (), None).admin()
    file.write_text("fetch.min.bytes=-1\n")
    with pytest.raises(ConfigurationError, match=r"^fetch\.min\.bytes must be a whole number from 0 to"):
        ConnectionOptions(None, file, (), None).consumer(None)
    file.write_text("heartbeat.interval.ms=60000\n")
    with pytest.raises(ConfigurationError, match=r"^heartbeat\.interval\.ms=60000 is wrong: heartbeat_interval must"):
        ConnectionOptions(None, file, (), None).consumer("billing")


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"linger_ms": -1}, "linger_ms=-1 is wrong: linger must be a number of seconds >= 0, got -0.001"),
        ({"compression_type": "rar"}, "compression_type must be one of 'none', 'gzip'"),
        ({"max_batch_size": 0}, "max_batch_size must be a whole number from 1 to"),
        ({"request_timeout_ms": 0}, "request_timeout_ms=0 is wrong: request_timeout must be a number of seconds > 0"),
        ({"security_protocol": "SASL_SSL"}, "sasl_plain_username is required for PLAIN"),
    ],
)
def test_an_error_of_a_program_for_aiokafka_has_aiokafka_s_name(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)) as caught:
        AIOKafkaProducer(**settings)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"session_timeout_ms": 1000}, "session_timeout_ms=1000 is wrong: heartbeat_interval must be less than"),
        ({"heartbeat_interval_ms": 20_000.5}, "heartbeat_interval_ms=20000.5 is wrong: heartbeat_interval must be"),
        ({"max_poll_interval_ms": -1234567}, "max_poll_interval_ms=-1234567 is wrong: max_poll_interval must be"),
        ({"session_timeout_ms": 10_000, "retry_backoff_ms": 0}, "retry_backoff_ms=0 is wrong: retry_backoff must be"),
        ({"fetch_max_wait_ms": -1}, "fetch_max_wait_ms=-1 is wrong: fetch_max_wait must be"),
        ({"rebalance_timeout_ms": 0}, "rebalance_timeout_ms=0 is wrong: rebalance_timeout must be"),
    ],
)
def test_an_error_of_a_consumer_for_aiokafka_has_the_value_that_the_program_gave(
    settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(text)) as caught:
        AIOKafkaConsumer("orders", group_id="billing", **settings)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("linger_ms", [10**12, 2**31 - 1, 2**31 - 40_000, float("inf")])
def test_too_long_a_linger_of_a_program_for_aiokafka_is_named(linger_ms: float) -> None:
    with pytest.raises(ValueError, match=f"^linger_ms must be a number of milliseconds .*, got {linger_ms!r}$"):
        AIOKafkaProducer(linger_ms=linger_ms)
    AIOKafkaProducer(linger_ms=2**31 - 1 - 40_000)


class Protocol(Enum):
    SASL = "SASL_PLAINTEXT"


@pytest.mark.parametrize("protocol", [Protocol.SASL, 5])
def test_a_security_protocol_that_is_no_string_is_an_error(protocol: Any) -> None:
    with pytest.raises(ValueError, match=r"^security_protocol must be one of 'PLAINTEXT', .*, got "):
        AIOKafkaProducer(security_protocol=protocol)


@pytest.mark.parametrize("name", ["session_timeout_ms", "request_timeout_ms", "fetch_max_wait_ms"])
def test_a_time_in_another_type_is_named(name: str) -> None:
    with pytest.raises(TypeError, match=f"^{name} must be a number of milliseconds, got '5'$"):
        AIOKafkaConsumer("orders", group_id="billing", **{name: "5"})


class Choice(StrEnum):
    ALL = "all"
    GZIP = "gzip"
    EARLIEST = "earliest"
    UNCOMMITTED = "read_uncommitted"
    PLAINTEXT = "PLAINTEXT"
    CONSUMER = "consumer"
    EXPLICIT = "explicit"
    RECORD_LIMIT = "record_limit"
    GROUP = "billing"


class Old(str, Enum):  # noqa: UP042 - the older form
    """An enum of a program older than StrEnum: it prints as ``Old.ALL``."""

    ALL = "all"
    SHOP = "shop"


def test_settings_may_be_members_of_an_enum_of_strings() -> None:
    producer = Producer(SERVERS, acks=Choice.ALL, compression=Choice.GZIP, security_protocol=Choice.PLAINTEXT)
    assert producer.config.compression is Compression.GZIP
    settings: dict[str, Any] = {"auto_offset_reset": Choice.EARLIEST, "isolation_level": Choice.UNCOMMITTED}
    Consumer(SERVERS, topics=["orders"], group_id=Choice.GROUP, group_protocol=Choice.CONSUMER, **settings)
    share: dict[str, Any] = {"acknowledgement_mode": Choice.EXPLICIT, "acquire_mode": Choice.RECORD_LIMIT}
    ShareConsumer(SERVERS, topics=["orders"], group_id=Choice.GROUP, **share)


@pytest.mark.parametrize(
    "member, name, plain",
    [
        (ProducerConfig(acks=Old.ALL), "acks", "all"),  # type: ignore[arg-type]
        (ClientConfig(bootstrap_servers=SERVERS, client_id=Old.SHOP), "client_id", "shop"),
        (ConsumerConfig(auto_offset_reset=Choice.EARLIEST), "auto_offset_reset", "earliest"),
        (GroupConfig(group_id=Old.SHOP), "group_id", "shop"),
        (ShareConfig(group_id=Old.SHOP), "group_id", "shop"),
    ],
)
def test_a_member_of_an_enum_becomes_a_plain_string(member: object, name: str, plain: str) -> None:
    value = getattr(member, name)
    assert (type(value), value, f"{value}") == (str, plain, plain)


def test_a_quoted_value_in_an_error_stays_as_the_user_wrote_it() -> None:
    path = "/etc/compression/acks.pem"
    connection = ConnectionOptions(None, None, ["security.protocol=SSL", f"ssl.ca.location={path}"], None)
    with pytest.raises(ConfigurationError, match=f"ssl.ca.location='{path}'"):
        connection.producer({}, {})


def test_a_word_in_a_quoted_value_is_not_taken_for_a_setting() -> None:
    pairs = ["linger.ms=5", "security.protocol=SSL", "ssl.ca.location=/etc/linger/ca.pem"]
    with pytest.raises(ConfigurationError, match=r"^cannot read ssl\.ca\.location='/etc/linger/ca\.pem'"):
        ConnectionOptions(None, None, pairs, None).producer({}, {})


@pytest.mark.parametrize("value", ["it's linger", 'say "linger"', 'it\'s a "linger"', b"linger", "linger " * 20])
def test_a_value_in_any_quotes_stays(value: str | bytes) -> None:
    text = must_be("acks", "0, 1 or all, not the user's choice", value)
    assert respelled(text, {"acks": "kafka.acks", "linger": "linger.ms"}, {"linger.ms": "5"}) == f"kafka.{text}"
