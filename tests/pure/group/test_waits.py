"""The text of a pattern without topics."""

from __future__ import annotations

import re
import time

from aiokafka_lite.group.waits import describe_pattern


def test_a_pattern_without_topics_names_the_nearest_ones() -> None:
    names = {"orders", "payments", "orders-old"}
    assert "nearest names are 'orders'" in describe_pattern(re.compile("oders"), names)
    assert "matches a part of topics 'orders', 'orders-old'" in describe_pattern(re.compile("order"), names)
    assert "matches no topic of the 3" in describe_pattern(re.compile("x"), names)


def test_a_pattern_is_compared_with_a_few_of_many_topics() -> None:
    """The event loop would be held for half a second otherwise."""
    names = {f"orders.eu-west-{number:05}.events" for number in range(10_000)} | {"orders-events-1a"}
    began = time.thread_time()
    text = describe_pattern(re.compile("orders-.*events-[0-9]+"), names)
    assert time.thread_time() - began < 0.2
    assert "'orders-events-1a'" in text
