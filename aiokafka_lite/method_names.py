"""The error for a method that a client lacks, which is usually a method of another client.

``setting_names`` does the same for keyword arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Never

PRODUCER = {
    "stop": "close()",
    "send_and_wait": "send(), which returns when the record is acknowledged",
    "send_batch": "send_many()",
    "create_batch": "send_many()",
    "produce": "send_nowait(), put() or send()",
    "poll": "nothing: the event loop delivers results; await the Delivery",
    "list_topics": "partitions_for(topic), or Admin",
    "init_transactions": "start(), which does it if transactional_id is set",
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


def explain(client: type, instead: Mapping[str, str]) -> None:
    """Let a class of clients explain these methods, which it does not have: their use raises AttributeError."""
    for name, use in instead.items():
        setattr(client, name, _Missing(name, use))
