"""For a method of another client, the error names the method to use here."""

from __future__ import annotations

import copy

import pytest

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.method_names import CONSUMER, PRODUCER


@pytest.mark.parametrize(
    ("client", "name", "says"),
    [
        (Producer("localhost:9092"), "send_and_wait", r"use send\(\)"),
        (Producer("localhost:9092"), "stop", r"use close\(\)"),
        (Consumer("localhost:9092"), "getmany", r"use poll\("),
        (Consumer("localhost:9092"), "store_offsets", r"use mark\("),
    ],
)
def test_the_error_names_the_counterpart(client: object, name: str, says: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'; {says}"):
        getattr(client, name)


def test_any_other_name_is_an_ordinary_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^'Consumer' object has no attribute 'colour'$"):
        _ = Consumer("localhost:9092").colour  # type: ignore[attr-defined]
    assert not hasattr(Producer("localhost:9092"), "__deepcopy__")
    assert copy.copy({"a": Producer}) == {"a": Producer}


def test_no_name_in_the_tables_exists_here() -> None:
    assert [name for name in PRODUCER if hasattr(Producer, name)] == []
    assert [name for name in CONSUMER if hasattr(Consumer, name)] == []
