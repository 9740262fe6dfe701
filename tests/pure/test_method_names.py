"""For a method of another client, the error names the method to use here."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest

from aiokafka_lite import Admin, Consumer, ConsumerGroup, Delivery, ExactlyOnce, Producer, ShareConsumer, TopicPartition
from aiokafka_lite.method_names import (
    ADMIN,
    CONSUMER,
    CONSUMER_ARGUMENTS,
    CONSUMER_GROUP,
    DELIVERY,
    PRODUCER,
    PRODUCER_ARGUMENTS,
    SCHEMA_REGISTRY,
    SHARE_CONSUMER,
    TRANSACTION,
)
from aiokafka_lite.producer import Transaction
from aiokafka_lite.schemas import SchemaRegistryClient

FAMILIES = [value for name, value in vars(Admin("localhost:9092")).items() if not name.startswith("_")]
CLIENTS = [Admin, Consumer, ConsumerGroup, ExactlyOnce, Producer, SchemaRegistryClient, ShareConsumer]
FOR_EACH_RECORD = {Consumer: {"mark"}, ShareConsumer: {"accept", "reject", "release", "renew"}}


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


def test_a_shell_completes_the_methods_of_a_subclass() -> None:
    class Base:
        def __dir__(self) -> list[str]:
            return [*super().__dir__(), "dynamic"]

    class Renamed(Consumer[Any, Any], Base):
        def getmany(self) -> None:
            """A method that Consumer does not have."""

    assert {"getmany", "poll", "dynamic"} <= {*dir(Renamed("localhost:9092"))}
    assert "highwater" not in dir(Renamed("localhost:9092"))


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


def test_topics_as_the_first_argument_are_answered_with_the_call_to_write() -> None:
    make: Any = Consumer
    with pytest.raises(TypeError, match=r"^topics must be given by name: use Consumer\('h:1', topics=\['a', 'b'\]\)$"):
        make("a", "b", bootstrap_servers="h:1")
    with pytest.raises(TypeError, match=r"use Consumer\('host:port', topics=\['a', 'b'\]\)$"):
        make("a", "b")
    with pytest.raises(TypeError, match=r"use Consumer\('h:1', topics=\['a'\]\)$"):
        make("h:1", "a")
    with pytest.raises(TypeError, match=r"use Consumer\('h:1', topics=\['a', 'b'\]\)$"):
        make("h:1", ["a", "b"])
    assert make(bootstrap_servers="h:1", topics=["a"]).assignment == ()


@pytest.mark.parametrize(
    ("client", "method", "argument", "says"),
    [
        (Producer, "send", "timestamp_ms", "use timestamp, in milliseconds"),
        (Producer, "send", "on_delivery", r"use send_nowait\(\.\.\.\)\.report\(function\)"),
        (Producer, "send_nowait", "on_delivery", r"use send_nowait\(\.\.\.\)\.report\(function\)"),
        (Producer, "put", "callback", r"use send_nowait\(\.\.\.\)\.report\(function\)"),
        (Producer, "send_offsets_to_transaction", "group_id", "use group_metadata"),
        (Consumer, "poll", "timeout_ms", "use timeout, in seconds"),
        (Consumer, "commit", "asynchronous", r"await commit\(\), or make a task of it"),
        (Consumer, "end_offsets", "timeout_ms", "use timeout, in seconds"),
        (Consumer, "subscribe", "listener", "pass listener, a RebalanceListener, to the constructor"),
        (Consumer, "close", "autocommit", r"call commit\(\) before"),
    ],
)
async def test_an_argument_of_another_client_is_answered_with_the_one_to_use(
    client: Any, method: str, argument: str, says: str
) -> None:
    with pytest.raises(TypeError, match=rf"^{argument} is not an argument of {method}\(\); {says}"):
        needed = {"topic": "t"} if method in ("send", "send_nowait", "put") else {}
        answer = getattr(client("localhost:9092"), method)(**needed, **{argument: 1})
        if inspect.isawaitable(answer):
            await answer


@pytest.mark.parametrize("method", ["send", "send_nowait", "put"])
async def test_a_key_by_position_is_answered_with_its_name(method: str) -> None:
    send: Any = getattr(Producer("localhost:9092"), method)
    text = rf"^{method}\(\) takes only topic and value by position; pass other arguments by name, such as key=\.\.\.$"
    with pytest.raises(TypeError, match=text):
        answer = send("t", b"value", b"key")
        if inspect.isawaitable(answer):
            await answer


@pytest.mark.parametrize("method", ["pause", "resume", "seek_to_beginning", "seek_to_end", "committed"])
async def test_partitions_one_by_one_are_answered_with_a_list(method: str) -> None:
    call: Any = getattr(Consumer("localhost:9092"), method)
    with pytest.raises(TypeError, match=rf"^{method}\(\) takes partitions as one list: pass \[partition, \.\.\.\]$"):
        answer = call(TopicPartition("orders", 0), TopicPartition("orders", 1))
        if inspect.isawaitable(answer):
            await answer


async def test_an_argument_that_no_client_has_is_an_ordinary_error() -> None:
    send: Any = Producer("localhost:9092").send
    text = r"^colour is not an argument of send\(\); it takes key, headers, partition, timestamp, timeout$"
    with pytest.raises(TypeError, match=text):
        await send("t", colour="red")


@pytest.mark.parametrize(
    ("family", "method", "argument", "says"),
    [
        ("topics", "list", "timeout_ms", "use timeout, in seconds"),
        ("topics", "create", "dry_run", "use validate_only"),
        ("groups", "reset_offsets", "validate_only", "use dry_run"),
        ("groups", "describe", "group_ids", "use groups"),
        ("groups", "describe", "timeot", r"did you mean timeout\?"),
        ("configs", "describe", "include_synonyms", "use synonyms"),
        ("cluster", "quorum", "colour", "it takes timeout"),
        ("tokens", "renew", "timeout_ms", "use timeout, in seconds"),
    ],
)
async def test_a_call_of_the_admin_client_names_the_argument_to_use(
    family: str, method: str, argument: str, says: str
) -> None:
    call: Any = getattr(getattr(Admin("localhost:9092"), family), method)
    with pytest.raises(TypeError, match=rf"^{argument} is not an argument of {method}\(\); {says}$"):
        await call(**{argument: 1})


@pytest.mark.parametrize("client", [*CLIENTS, *map(type, FAMILIES)])
async def test_each_public_method_explains_an_argument_that_it_does_not_have(client: Any) -> None:
    methods = {
        name: {"topic": "t"} if "topic" in inspect.signature(value).parameters else {}
        for name, value in inspect.getmembers(client, inspect.isfunction)
        if not name.startswith("_") and name not in FOR_EACH_RECORD.get(client, ())
    }
    assert methods
    for name, needed in methods.items():
        with pytest.raises(TypeError, match=rf"^timeout_ms is not an argument of {name}\(\); "):
            answer = getattr(client, name)(None, timeout_ms=1, **needed)
            if inspect.isawaitable(answer):
                await answer


def test_no_argument_in_the_tables_exists_here() -> None:
    tables: list[tuple[Any, dict[str, dict[str, str]]]] = [
        (Producer, PRODUCER_ARGUMENTS),
        (Consumer, CONSUMER_ARGUMENTS),
    ]
    for client, methods in tables:
        for method, names in methods.items():
            parameters = inspect.signature(getattr(client, method)).parameters
            assert not {*names} & {*parameters}, method


def test_a_method_that_explains_arguments_keeps_its_kind_and_signature() -> None:
    poll, pause = Consumer.poll, Consumer.pause
    assert inspect.iscoroutinefunction(poll)
    assert not inspect.iscoroutinefunction(pause)
    assert [*inspect.signature(poll).parameters] == ["self", "max_records", "timeout", "partitions"]
    for send in (Producer.send, Producer.send_nowait, Producer.put):
        assert [*inspect.signature(send).parameters][:4] == ["self", "topic", "value", "key"]
        assert "other" not in inspect.signature(send).parameters


@pytest.mark.parametrize("name", ["assignment", "paused"])
def test_a_property_that_is_a_method_elsewhere_says_so(name: str) -> None:
    consumer = Consumer("localhost:9092")
    consumer.assign([TopicPartition("orders", 0)])
    consumer.pause()
    value: Any = getattr(consumer, name)
    assert value == (TopicPartition("orders", 0),)
    with pytest.raises(TypeError, match="assignment and paused are properties; use them without parentheses"):
        value()
