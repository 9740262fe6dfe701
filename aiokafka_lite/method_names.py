"""The errors for calls in the form of another client: a method or an argument that a client of this package lacks.

``setting_names`` does the same for settings.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from typing import Any, Never, TypeVar

from .types import TopicPartition

T = TypeVar("T")

PRODUCER = {
    "stop": "close()",
    "send_and_wait": "send(), which returns when the record is acknowledged",
    "send_batch": "send_many()",
    "create_batch": "send_many()",
    "produce": "send_nowait(), put() or send()",
    "poll": "nothing: the event loop delivers results; await the Delivery",
    "list_topics": "partitions_for(topic), or Admin",
    "init_transactions": "start(), which does it if transactional_id is set",
    "bootstrap_connected": "health()",
}
CONSUMER = {
    "stop": "close()",
    "getone": "await anext(consumer), or 'async for record in consumer'",
    "getmany": "poll(max_records=500, timeout=1.0), which returns one list",
    "consume": "poll(max_records=500, timeout=1.0)",
    "last_stable_offset": "lag(), or offsets_for_times()",
    "get_watermark_offsets": "beginning_offsets([partition]) and end_offsets([partition])",
    "store_offsets": "mark(record)",
    "list_topics": "topics(), or Admin",
    "consumer_group_metadata": "group_metadata()",
    "seek_to_committed_offsets": "seek_to_committed()",
    "partitions_for_topic": "partitions_for(topic)",
    "offsets_for_time": "offsets_for_times({partition: milliseconds})",
    "highwater": "high_watermark(partition)",
    "last_poll_timestamp": "metrics().group.last_poll_ago",
    "bootstrap_connected": "health()",
    "memberid": "group_metadata().member_id",
}
ADMIN = {
    "create_topics": "topics.create()",
    "delete_topics": "topics.delete()",
    "list_topics": "topics.list()",
    "describe_topics": "topics.describe()",
    "create_partitions": "topics.add_partitions()",
    "describe_configs": "configs.describe()",
    "alter_configs": "configs.alter()",
    "incremental_alter_configs": "configs.alter()",
    "list_groups": "groups.list()",
    "list_consumer_groups": "groups.list()",
    "describe_consumer_groups": "groups.describe()",
    "delete_consumer_groups": "groups.delete()",
    "list_consumer_group_offsets": "groups.offsets()",
    "alter_consumer_group_offsets": "groups.alter_offsets()",
    "list_offsets": "offsets.list()",
    "delete_records": "records.delete()",
    "describe_cluster": "cluster.describe()",
    "describe_acls": "acls.describe()",
    "create_acls": "acls.create()",
    "delete_acls": "acls.delete()",
}
"""Methods of aiokafka, kafka-python, confluent-kafka and Java's client, and what to use instead."""


class _Missing:
    """Raises the error. A ``__getattr__`` of the class would make each attribute of a client 90 ns slower."""

    def __init__(self, name: str, instead: str) -> None:
        self._name = name
        self._instead = instead

    def __get__(self, client: object, owner: type) -> Never:
        text = f"{owner.__name__!r} object has no attribute {self._name!r}; use {self._instead}"
        raise AttributeError(text, name=self._name, obj=client)


class PropertyPartitions(tuple[TopicPartition, ...]):
    """The partitions that a property returns. In other clients, ``assignment`` and ``paused`` are methods."""

    __slots__ = ()

    def __call__(self) -> Never:
        raise TypeError("assignment and paused are properties; use them without parentheses")


def checks_topics(make: Callable[..., None]) -> Callable[..., None]:
    """Decorate the constructor of a client whose other clients take topics as positional arguments."""

    @wraps(make)
    def construct(client: object, *given: object, **named: object) -> None:
        if len(given) > 1 or (given and "bootstrap_servers" in named):
            servers = named.get("bootstrap_servers", "host:port")
            name = type(client).__name__
            raise TypeError(f"topics must be given by name: use {name}({servers!r}, topics={list(given)!r})")
        make(client, *given, **named)

    return construct


def checks_milliseconds(call: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., Coroutine[Any, Any, T]]:
    """Decorate a method with a ``timeout`` in seconds that other clients have as ``timeout_ms``."""

    @wraps(call)
    async def checked(client: object, *given: object, **named: object) -> T:
        if "timeout_ms" in named:
            raise TypeError(f"timeout_ms is not an argument of {call.__name__}(); use timeout, in seconds")
        return await call(client, *given, **named)

    return checked


def explain(client: type, instead: Mapping[str, str]) -> None:
    """Let a class of clients explain these methods, which it does not have: their use raises AttributeError."""
    for name, use in instead.items():
        setattr(client, name, _Missing(name, use))
