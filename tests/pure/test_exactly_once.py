"""``ExactlyOnce`` refuses clients with which it could not keep its promise."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka_lite import Consumer, ExactlyOnce, Producer
from aiokafka_lite.errors import ConfigurationError

SERVERS = "localhost:9092"
READING: dict[str, Any] = {"topics": ["orders"], "group_id": "billing", "auto_commit": False}


@pytest.mark.parametrize(
    ("reading", "writing", "settings", "error"),
    [
        ({"auto_commit": True}, {}, {}, "consumer must have auto_commit=False"),
        ({"topics": []}, {}, {}, "consumer must have a group_id and topics"),
        ({}, {"transactional_id": None}, {}, "producer must have a transactional_id"),
        ({}, {}, {"max_records": 0}, "max_records must be a whole number >= 1, got 0"),
        ({}, {}, {"commit_interval": -1}, "commit_interval must be a number of seconds >= 0"),
        ({}, {}, {"commit_interval": "1"}, "commit_interval must be a number of seconds >= 0"),
        ({}, {}, {"commit_interval": True}, "commit_interval must be a number of seconds >= 0"),
        ({}, {"transaction_timeout": 5.0}, {"commit_interval": 5.0}, "less than transaction_timeout=5, got 5.0"),
    ],
)
def test_wrong_clients_and_settings_are_refused(
    reading: dict[str, Any], writing: dict[str, Any], settings: dict[str, Any], error: str
) -> None:
    consumer: Consumer = Consumer(SERVERS, **{**READING, **reading})
    producer = Producer(SERVERS, **{"transactional_id": "billing-1", **writing})
    with pytest.raises((ConfigurationError, ValueError), match=error):
        ExactlyOnce(consumer, producer, **settings)


def test_a_consumer_without_a_group_is_refused() -> None:
    producer = Producer(SERVERS, transactional_id="billing-1")
    with pytest.raises(ConfigurationError, match="consumer must have a group_id and topics"):
        ExactlyOnce(Consumer(SERVERS, topics=["orders"]), producer)


@pytest.mark.parametrize("wrong", ["orders", None])
def test_other_objects_are_refused(wrong: Any) -> None:
    consumer: Consumer = Consumer(SERVERS, **READING)
    with pytest.raises(ConfigurationError, match="producer must be a Producer"):
        ExactlyOnce(consumer, wrong)
    with pytest.raises(ConfigurationError, match="consumer must be a Consumer"):
        ExactlyOnce(wrong, Producer(SERVERS, transactional_id="billing-1"))
