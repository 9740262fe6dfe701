"""For a keyword argument of another client, the error names the setting to use here."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka_lite import Admin, Consumer, Producer
from aiokafka_lite.errors import ConfigurationError


@pytest.mark.parametrize(
    ("client", "name", "says"),
    [
        (Producer, "linger_ms", "use linger, in seconds"),
        (Producer, "linger.ms", "use linger, in seconds"),
        (Producer, "batch.size", "use batch_size"),
        (Producer, "compression_type", "use compression"),
        (Producer, "enable_idempotence", "use idempotence"),
        (Producer, "max_batch_size", "use batch_size"),
        (Producer, "request_timeout_ms", "use delivery_timeout for a send, request_timeout for a request"),
        (Producer, "request.timeout.ms", "use request_timeout, in seconds"),
        (Consumer, "request_timeout_ms", "use request_timeout, in seconds"),
        (Producer, "sasl_plain_password", "use sasl_password"),
        (Producer, "bootstrap.servers", "use bootstrap_servers"),
        (Producer, "transactional.id", "use transactional_id"),
        (Producer, "transaction_timeout_ms", "use transaction_timeout, in seconds"),
        (Producer, "lingr", r"did you mean linger\?"),
        (Consumer, "enable_auto_commit", "use auto_commit"),
        (Consumer, "auto_commit_interval_ms", "use auto_commit_interval, in seconds"),
        (Consumer, "max_poll_records", "pass max_records to the call"),
        (Consumer, "partition_assignment_strategy", "use strategies"),
        (Consumer, "topic", "use topics"),
        (Consumer, "session.timeout.ms", "use session_timeout, in seconds"),
        (Admin, "default_api_timeout_ms", "use api_timeout, in seconds"),
        (Admin, "request_timeot", r"did you mean request_timeout\?"),
    ],
)
def test_another_clients_name_for_a_setting_is_translated(client: type[Any], name: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} is not a setting of this client.*{says}") as caught:
        client("localhost:9092", **{name: "secret"})
    assert "secret" not in str(caught.value)
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(("client", "name"), [(Admin, "linger_ms"), (Producer, "xyz"), (Consumer, "acks")])
def test_an_unknown_name_is_answered_with_all_settings(client: type[Any], name: str) -> None:
    with pytest.raises(
        ConfigurationError, match=f"^{name} is not a setting of this client; settings are .*api_timeout, "
    ):
        client("localhost:9092", **{name: 1})
