"""Wrong settings raise an error in the constructor."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.settings import checks as setting_checks
from aiokafka_lite.settings.client import ClientConfig
from aiokafka_lite.settings.consumer import ConsumerConfig
from aiokafka_lite.settings.group import GroupConfig
from aiokafka_lite.settings.producer import ProducerConfig
from aiokafka_lite.types import Compression


@pytest.mark.parametrize(
    ("config", "settings", "name"),
    [
        (ClientConfig, {"bootstrap_servers": ""}, "bootstrap_servers"),
        (ClientConfig, {"bootstrap_servers": []}, "bootstrap_servers"),
        (ClientConfig, {"bootstrap_servers": [1]}, "bootstrap_servers"),
        (ClientConfig, {"bootstrap_servers": "a:1", "request_timeout": 0}, "request_timeout"),
        (ClientConfig, {"bootstrap_servers": "a:1", "api_timeout": float("nan")}, "api_timeout"),
        (ClientConfig, {"bootstrap_servers": "a:1", "response_memory": 128 * 1024 * 1024 - 1}, "response_memory"),
        (ClientConfig, {"bootstrap_servers": "a:1", "retry_backoff": -1}, "retry_backoff"),
        (ClientConfig, {"bootstrap_servers": None}, "bootstrap_servers"),
        (ClientConfig, {"bootstrap_servers": 9092}, "bootstrap_servers"),
        (ClientConfig, {"bootstrap_servers": b"a:1"}, "bootstrap_servers"),
        (ClientConfig, {"bootstrap_servers": " , "}, "bootstrap_servers"),
        (ClientConfig, {"bootstrap_servers": ["a:1", 2]}, "bootstrap_servers"),
        (ClientConfig, {"bootstrap_servers": "a:1", "retry_backoff": 0}, "retry_backoff"),
        (ClientConfig, {"bootstrap_servers": "a:1", "retry_backoff_max": 0.0}, "retry_backoff_max"),
        (ClientConfig, {"bootstrap_servers": "a:1", "reconnect_backoff": 0.0001}, "reconnect_backoff"),
        (ClientConfig, {"bootstrap_servers": "a:1", "reconnect_backoff": 30.0}, "reconnect_backoff"),
        (ClientConfig, {"bootstrap_servers": "a:1", "retry_backoff": 1.5}, "retry_backoff"),
        (ClientConfig, {"bootstrap_servers": "a:1", "client_id": 7}, "client_id"),
        (ClientConfig, {"bootstrap_servers": "a:1", "client_id": "é" * 20_000}, "client_id"),
        (ClientConfig, {"bootstrap_servers": "a:1", "client_rack": "r" * 32_768}, "client_rack"),
        (GroupConfig, {"group_id": "g" * 32_768}, "group_id"),
        (ProducerConfig, {"acks": 2}, "acks"),
        (ProducerConfig, {"acks": True}, "acks"),
        (ProducerConfig, {"acks": 1.0}, "acks"),
        (ProducerConfig, {"acks": []}, "acks"),
        (ProducerConfig, {"idempotence": 1}, "idempotence"),
        (ProducerConfig, {"compression": True}, "compression"),
        (ProducerConfig, {"compression": 1.0}, "compression"),
        (ProducerConfig, {"compression": None}, "compression"),
        (ProducerConfig, {"linger": 2.0, "delivery_timeout": 2.0}, "linger"),
        (ProducerConfig, {"compression": "brotli"}, "compression"),
        (ProducerConfig, {"acks": 1, "idempotence": True}, "idempotence"),
        (ProducerConfig, {"transactional_id": ""}, "transactional_id"),
        (ProducerConfig, {"transactional_id": 7}, "transactional_id"),
        (ProducerConfig, {"transaction_timeout": 0}, "transaction_timeout"),
        (ProducerConfig, {"transaction_timeout": 60_000_000}, "transaction_timeout"),
        (ProducerConfig, {"max_in_flight_requests_per_connection": 6}, "max_in_flight_requests_per_connection"),
        (ProducerConfig, {"batch_size": 0}, "batch_size"),
        (ProducerConfig, {"linger": "5"}, "linger"),
        (ConsumerConfig, {"auto_offset_reset": "smallest"}, "auto_offset_reset"),
        (ConsumerConfig, {"auto_offset_reset": "by_duration:"}, "auto_offset_reset"),
        (ConsumerConfig, {"auto_offset_reset": "by_duration:P"}, "auto_offset_reset"),
        (ConsumerConfig, {"auto_offset_reset": "by_duration:P1DT"}, "auto_offset_reset"),
        (ConsumerConfig, {"auto_offset_reset": "by_duration:-PT1H"}, "auto_offset_reset"),
        (ConsumerConfig, {"auto_offset_reset": "by_duration:P1Y"}, "auto_offset_reset"),
        (ConsumerConfig, {"auto_offset_reset": f"by_duration:P{'9' * 400}D"}, "auto_offset_reset"),
        (ConsumerConfig, {"auto_offset_reset": timedelta(seconds=-1)}, "auto_offset_reset"),
        (ConsumerConfig, {"isolation_level": "serializable"}, "isolation_level"),
        (ConsumerConfig, {"check_crcs": 1}, "check_crcs"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(config: type[Any], settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^{name}\b") as caught:
        config(**settings)
    # Bytes are not quoted, because a secret often comes as bytes.
    quoted = "bytes" if isinstance(settings[name], bytes) else repr(settings[name])[:5]
    assert quoted in str(caught.value)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (ClientConfig, "request_timeout"),
        (ClientConfig, "api_timeout"),
        (ProducerConfig, "delivery_timeout"),
        (ConsumerConfig, "fetch_max_wait"),
        (GroupConfig, "session_timeout"),
        (GroupConfig, "heartbeat_interval"),
        (GroupConfig, "max_poll_interval"),
        (GroupConfig, "rebalance_timeout"),
        (GroupConfig, "auto_commit_interval"),
    ],
)
def test_a_duration_that_no_request_can_carry_is_refused(config: type[Any], name: str) -> None:
    needed = {ClientConfig: {"bootstrap_servers": "a:1"}, GroupConfig: {"group_id": "g"}}.get(config, {})
    needed |= {"session_timeout": 2_147_483.647} if name == "heartbeat_interval" else {}
    with pytest.raises(ConfigurationError) as caught:
        config(**{**needed, name: 86_400_000})
    assert str(caught.value) == f"{name} must be at most 2,147,483 seconds, got 86400000; is it in milliseconds?"
    if name != "heartbeat_interval":
        assert round(getattr(config(**{**needed, name: 2_147_483.647}), name) * 1000) == 2**31 - 1


@pytest.mark.parametrize(
    ("config", "name", "value", "words"),
    [
        (ProducerConfig, "delivery_timeout", 30_000, "delivery_timeout=30000 is 8.33 hours"),
        (ProducerConfig, "linger", 50, "linger=50 is 50 seconds"),
        (ClientConfig, "request_timeout", 30_000.0, "request_timeout=30000 is 8.33 hours"),
        (ClientConfig, "metadata_max_age", 300_000, "metadata_max_age=300000 is 3.47 days"),
        (GroupConfig, "session_timeout", 10_000, "session_timeout=10000 is 2.78 hours"),
        (GroupConfig, "max_poll_interval", 300_000, "max_poll_interval=300000 is 3.47 days"),
        (ClientConfig, "retry_backoff_max", 1000, "retry_backoff_max=1000 is 16.7 minutes"),
        (ClientConfig, "reconnect_backoff_max", 1000, "reconnect_backoff_max=1000 is 16.7 minutes"),
    ],
)
def test_a_duration_that_is_probably_in_milliseconds_is_logged_once(
    caplog: pytest.LogCaptureFixture, config: type[Any], name: str, value: float, words: str
) -> None:
    setting_checks.log_unusual.cache_clear()
    needed = {ClientConfig: {"bootstrap_servers": "a:1"}, GroupConfig: {"group_id": "g"}}.get(config, {})
    for _ in range(2):
        config(**needed, **{name: value})
    text = f"{words}, because times are in seconds; if milliseconds are meant, set {name}={value / 1000:g}"
    assert caplog.messages == [text]


def test_long_durations_of_real_programs_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    ProducerConfig(linger=5.0, delivery_timeout=3600.0, transaction_timeout=900.0)
    ClientConfig(bootstrap_servers="a:1", metadata_max_age=86_400.0, connections_max_idle=86_400.0)
    GroupConfig(group_id="g", session_timeout=1800.0, max_poll_interval=86_400.0)
    assert not caplog.messages


def test_a_duration_that_only_timers_use_may_be_as_long_as_javas() -> None:
    longest = (2**63 - 1) / 1000
    assert ClientConfig(bootstrap_servers="a:1", connections_max_idle=longest).connections_max_idle == longest
    assert ProducerConfig(max_block=longest).max_block == longest
    with pytest.raises(ConfigurationError, match=r"metadata_max_age must be at most 9,223,372,036,854,776 seconds"):
        ClientConfig(bootstrap_servers="a:1", metadata_max_age=1e17)


def test_servers_may_be_one_string_or_a_list() -> None:
    assert ClientConfig(bootstrap_servers="a:1, b:2").servers == ("a:1", "b:2")
    assert ClientConfig(bootstrap_servers=["a:1", "b:2"]).servers == ("a:1", "b:2")
    assert ClientConfig(bootstrap_servers=iter(["a:1,b:2", ",c:3 ,"])).servers == ("a:1", "b:2", "c:3")


def test_strings_may_have_the_longest_size_of_the_protocol() -> None:
    assert len(ClientConfig(bootstrap_servers="a:1", client_id="c" * 32_767).client_id) == 32_767


def test_an_error_says_what_is_wrong_and_what_was_given() -> None:
    with pytest.raises(ConfigurationError, match=r"^linger must be a number of seconds >= 0, got '5'$"):
        ProducerConfig(linger="5")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"^compression must be one of 'none', .*'zstd', got 'brotli'$"):
        ProducerConfig(compression="brotli")
    with pytest.raises(ConfigurationError, match=r"^settings must be keyword arguments, got a dict"):
        ClientConfig(bootstrap_servers={"client_id": "x"})


def test_a_string_that_utf8_cannot_encode_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"client_id must be a string that UTF-8 can encode"):
        ClientConfig(bootstrap_servers="a:1", client_id="\ud800")


def test_a_backoff_may_be_constant() -> None:
    assert ClientConfig(bootstrap_servers="a:1", retry_backoff=0.001, retry_backoff_max=0.001).retry_backoff == 0.001


def test_idempotence_follows_acks_by_default() -> None:
    assert ProducerConfig().idempotence is True
    assert ProducerConfig(acks=1).idempotence is False
    assert ProducerConfig(idempotence=False, max_in_flight_requests_per_connection=50).idempotence is False


def test_acks_all_is_minus_one_on_the_wire() -> None:
    assert [ProducerConfig(acks=acks).required_acks for acks in (0, 1, -1, "all")] == [0, 1, -1, -1]


def test_compression_has_kafkas_names() -> None:
    assert ProducerConfig(compression="zstd").compression is Compression.ZSTD
    assert ProducerConfig(compression=Compression.LZ4).compression is Compression.LZ4


@pytest.mark.parametrize(
    "written, seconds",
    [
        ("by_duration:PT1H", 3600.0),
        ("by_duration:P1D", 86400.0),
        ("by_duration:P1DT2H3M4.5S", 93784.5),
        ("by_duration:pt0s", 0.0),
        (timedelta(minutes=2), 120.0),
        ("earliest", None),
    ],
)
def test_a_duration_is_read_in_javas_form(written: str | timedelta, seconds: float | None) -> None:
    assert ConsumerConfig(auto_offset_reset=written).reset_duration == seconds


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("acks", 1, 'requires acks="all", got acks=1'),
        ("idempotence", False, "requires idempotence=True or None, got False"),
        ("retries", 0, "requires retries >= 1, got retries=0"),
    ],
)
def test_transactions_imply_idempotence_and_all_acknowledgements(setting: str, value: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^transactional_id {says}$"):
        ProducerConfig(transactional_id="orders-1", **{setting: value})
    config = ProducerConfig(transactional_id="orders-1")
    assert config.idempotence is True
    assert config.waits_for_all


def test_without_retries_idempotence_is_off() -> None:
    assert ProducerConfig().idempotence
    assert not ProducerConfig(retries=0).idempotence
    assert ProducerConfig(retries=1).idempotence
    with pytest.raises(ConfigurationError, match="idempotence=True requires retries >= 1, got retries=0"):
        ProducerConfig(retries=0, idempotence=True)
    for wrong in (-1, 1.5, True, "3", 2**31):
        with pytest.raises(ConfigurationError, match="retries must be a whole number from 0 to 2147483647"):
            ProducerConfig(retries=wrong)  # type: ignore[arg-type]
