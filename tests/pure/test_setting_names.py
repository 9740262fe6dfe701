"""Keyword arguments that other clients have: the error names the one to use here, or what to do instead."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka_lite import Admin, Consumer, Producer
from aiokafka_lite.errors import ConfigurationError


@pytest.mark.parametrize(
    ("made", "name", "says"),
    [
        (Producer, "linger_ms", "here it is linger, in seconds"),
        (Producer, "linger.ms", "here it is linger, in seconds"),
        (Producer, "batch.size", "here it is batch_size"),
        (Producer, "compression_type", "here it is compression"),
        (Producer, "enable_idempotence", "here it is idempotence"),
        (Producer, "max_batch_size", "here it is batch_size"),
        (Producer, "request_timeout_ms", "here it is request_timeout, in seconds"),
        (Producer, "sasl_plain_password", "here it is sasl_password"),
        (Producer, "bootstrap.servers", "here it is bootstrap_servers"),
        (Producer, "retries", "until delivery_timeout is over"),
        (Producer, "transactional_id", "transactions are not there"),
        (Producer, "lingr", r"did you mean linger\?"),
        (Consumer, "enable_auto_commit", "here it is auto_commit"),
        (Consumer, "auto_commit_interval_ms", "here it is auto_commit_interval, in seconds"),
        (Consumer, "max_poll_records", "give max_records to the call"),
        (Consumer, "partition_assignment_strategy", "here it is strategies"),
        (Consumer, "topic", "here it is topics"),
        (Consumer, "session.timeout.ms", "here it is session_timeout, in seconds"),
        (Admin, "default_api_timeout_ms", "here it is api_timeout, in seconds"),
        (Admin, "request_timeot", r"did you mean request_timeout\?"),
    ],
)
def test_another_clients_name_for_a_setting_is_translated(made: type[Any], name: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name}: no such setting.*{says}") as caught:
        made("localhost:9092", **{name: "secret"})
    assert "secret" not in str(caught.value)
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(("made", "name"), [(Admin, "linger_ms"), (Producer, "xyz"), (Consumer, "acks")])
def test_what_has_no_counterpart_is_answered_with_what_there_is(made: type[Any], name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name}: no such setting; there are .*api_timeout, "):
        made("localhost:9092", **{name: 1})
