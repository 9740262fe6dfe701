"""For a method of another client, the error names the method to use here."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from aiokafka_lite import Admin, Consumer, ConsumerGroup, Delivery, Producer, ShareConsumer
from aiokafka_lite.method_names import (
    ADMIN,
    CONSUMER,
    CONSUMER_GROUP,
    DELIVERY,
    PRODUCER,
    SCHEMA_REGISTRY,
    SHARE_CONSUMER,
    TRANSACTION,
)
from aiokafka_lite.producer import Transaction
from aiokafka_lite.schemas import SchemaRegistryClient


@pytest.mark.parametrize(
    ("client", "name", "says"),
    [
        (Producer("localhost:9092"), "send_and_wait", r"use send\(\)"),
        (Producer("localhost:9092"), "stop", r"use close\(\)"),
        (Consumer("localhost:9092"), "getmany", r"use poll\("),
        (Consumer("localhost:9092"), "workers", r"use ConsumerGroup\(...\)\.consume\(topics, Workers\(handle\)\)"),
        (Consumer("localhost:9092"), "store_offsets", r"use mark\("),
        (Consumer("localhost:9092"), "highwater", r"use high_watermark\("),
        (Admin("localhost:9092"), "create_topics", r"use topics.create\("),
        (ConsumerGroup("localhost:9092", group_id="g"), "start", r"use consume\(topics, handler\)"),
        (ShareConsumer("localhost:9092", group_id="g", topics=["t"]), "acknowledge", r"use accept\(record\)"),
        (SchemaRegistryClient("http://localhost:8081"), "get_latest_version", r"use latest\(subject\)"),
    ],
)
def test_the_error_names_the_counterpart(client: object, name: str, says: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'; {says}"):
        getattr(client, name)


@pytest.mark.parametrize(
    ("client", "others"),
    [(Consumer("localhost:9092"), CONSUMER), (Producer("localhost:9092"), PRODUCER), (Admin("localhost:9092"), ADMIN)],
)
def test_a_shell_completes_only_names_that_exist(client: object, others: dict[str, str]) -> None:
    assert "close" in dir(client)
    assert not others.keys() & set(dir(client))


def test_a_subclass_may_define_a_name_of_another_client() -> None:
    class Renamed(Consumer[Any, Any]):
        def getmany(self) -> str:
            return "records"

    assert Renamed("localhost:9092").getmany() == "records"


@pytest.mark.parametrize("client", [Admin, Consumer, ConsumerGroup, Producer, SchemaRegistryClient, ShareConsumer])
def test_a_client_is_of_no_kind_that_only_raises(client: type) -> None:
    for kind in (AbstractContextManager, Iterable, Iterator):
        assert not issubclass(client, kind)


def test_an_error_inside_a_property_of_a_subclass_is_raised_itself() -> None:
    class Counting(Producer):
        @property
        def total(self) -> int:
            return self.metrcs().records_delivered  # type: ignore[attr-defined,no-any-return]

    with pytest.raises(AttributeError, match="no attribute 'metrcs'"):
        _ = Counting("localhost:9092").total


def test_any_other_name_is_an_ordinary_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^'Consumer' object has no attribute 'colour'$"):
        _ = Consumer("localhost:9092").colour  # type: ignore[attr-defined]
    assert not hasattr(Producer("localhost:9092"), "__deepcopy__")
    assert copy.copy({"a": Producer}) == {"a": Producer}


def test_no_name_in_the_tables_exists_here() -> None:
    assert [name for name in PRODUCER if hasattr(Producer, name)] == []
    assert [name for name in CONSUMER if hasattr(Consumer, name)] == []
    assert [name for name in ADMIN if hasattr(Admin, name)] == []
    assert [name for name in CONSUMER_GROUP if hasattr(ConsumerGroup, name)] == []
    assert [name for name in SHARE_CONSUMER if hasattr(ShareConsumer, name)] == []
    assert [name for name in SCHEMA_REGISTRY if hasattr(SchemaRegistryClient, name)] == []
    assert [name for name in DELIVERY if hasattr(Delivery, name)] == []
    assert [name for name in TRANSACTION if hasattr(Transaction, name)] == []


@pytest.mark.parametrize("use", SCHEMA_REGISTRY.values())
def test_each_call_of_a_registry_client_that_is_named_exists(use: str) -> None:
    assert callable(getattr(SchemaRegistryClient("http://localhost:8081"), use.partition("(")[0]))


@pytest.mark.parametrize("use", ADMIN.values())
def test_each_call_of_an_admin_that_is_named_exists(use: str) -> None:
    group, method = use.removesuffix("()").split(".")
    assert callable(getattr(getattr(Admin("localhost:9092"), group), method))
