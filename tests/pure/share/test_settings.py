"""The arguments of ``ShareConsumer`` are checked when it is made."""

from __future__ import annotations

import re
from typing import Any

import pytest

from aiokafka_lite import ShareConsumer
from aiokafka_lite.errors import ConfigurationError

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"topics": []}, r'topics are required, as topics=\["orders"\]'),
    ({"topics": "orders"}, r"topics must be a list of names, got 'orders'; pass \['orders'\]"),
    ({"topics": re.compile("o.*")}, "a list of names, because share groups have no patterns"),
    ({"group_id": ""}, "group_id"),
    ({"fetch_max_wait": 40.0}, "fetch_max_wait must be less than request_timeout=30"),
    ({"fetch_wait": 1.0}, "fetch_wait"),
    ({"acknowledgement_mode": "automatic"}, "acknowledgement_mode"),
    ({"max_fetch_records": 10_001}, "max_fetch_records must be a whole number from 1 to 10000, got 10001"),
]


@pytest.mark.parametrize("changes, error", WRONG, ids=[str(changes) for changes, _ in WRONG])
def test_a_wrong_argument_is_refused_by_name(changes: dict[str, Any], error: str) -> None:
    arguments: dict[str, Any] = {"topics": ["orders"], "group_id": "billing", **changes}
    with pytest.raises(ConfigurationError, match=error):
        ShareConsumer("localhost:9092", **arguments)
