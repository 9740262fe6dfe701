"""The interface of partitioners, which users implement, and of the load that they may ask for.

It is a separate module that is not compiled, because a Python class cannot inherit from a compiled protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from ...cluster.metadata import ClusterView

Chooser: TypeAlias = Callable[[bytes | None, bytes | None], int]
"""Returns the partition for a key and a value."""


class Partitioner(Protocol):
    """Chooses partitions for records that name none. Runs in the event loop, so it must not block.

    Each producer needs its own partitioner. If ``partition`` raises a KafkaError, the send raises it unchanged. If
    ``partition`` raises another error, the send raises an IllegalStateError with this cause. An error of
    ``on_new_batch`` is logged once per type, and does not affect records.

    Two more methods are optional. A producer calls them if the partitioner has them:

     - ``use_load(load: BrokerLoad)``, when the producer starts: ``load`` reports how busy brokers are.
     - ``on_topic_removed(topic: str)``, when the producer drops a topic that was idle for an hour: the partitioner can
       drop its data about the topic.
    """

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: ClusterView) -> int:
        """Return the partition for a record, from 0 up to the topic's count in ``view``."""
        ...

    def on_new_batch(self, topic: str, partition: int, size: int, view: ClusterView) -> None:
        """Record that a batch of that partition, of ``size`` bytes, was sealed.

        The next record of the partition begins a new batch. The producer calls this method before it calls
        ``partition`` again. It also reports batches that were sealed because they were sent.
        """
        ...


class BrokerLoad(Protocol):
    """The load of brokers, as measured by this producer."""

    def queued(self, node_id: int) -> int:
        """Return the bytes of sealed batches that wait for the broker, or for its answer."""
        ...

    def is_reachable(self, node_id: int) -> bool:
        """Return False while connections to the broker fail."""
        ...
