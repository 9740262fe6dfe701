"""A partitioner that has another partitioner for some topics."""

from __future__ import annotations

from collections.abc import Mapping

from ...arguments import check_methods, must_be
from ...cluster.metadata import ClusterView
from ...compiled import mypyc_attr
from ...errors import ConfigurationError
from .interface import BrokerLoad, Partitioner
from .partitioner import DefaultPartitioner


@mypyc_attr(allow_interpreted_subclasses=True)
class PartitionerByTopic:
    """Chooses by the partitioner of the topic, and by ``default`` for all other topics.

    ``partitioners`` has them by the name of a topic, as in ``{"events": RoundRobinPartitioner()}``. Without ``default``
    it is a DefaultPartitioner. Raises ConfigurationError for a wrong name or an object that is no partitioner.
    """

    def __init__(self, partitioners: Mapping[str, Partitioner], default: Partitioner | None = None) -> None:
        if not isinstance(partitioners, Mapping):
            raise ConfigurationError(must_be("partitioners", "a dict of partitioners by topic", partitioners))
        for topic, partitioner in partitioners.items():
            if not isinstance(topic, str) or not topic:
                raise ConfigurationError(must_be("a topic in partitioners", "a string that is not empty", topic))
            check_methods(f"partitioners[{topic!r}]", partitioner, "partition", "on_new_batch")
        if default is not None:
            check_methods("default", default, "partition", "on_new_batch")
        self._default: Partitioner = DefaultPartitioner() if default is None else default
        self._by_topic = dict(partitioners)

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: ClusterView) -> int:
        return self._of(topic).partition(topic, key, value, view)

    def on_new_batch(self, topic: str, partition: int, size: int, view: ClusterView) -> None:
        self._of(topic).on_new_batch(topic, partition, size, view)

    def use_load(self, load: BrokerLoad) -> None:
        """Pass this load to each partitioner that has a use for it."""
        for partitioner in (self._default, *self._by_topic.values()):
            use_load = getattr(partitioner, "use_load", None)
            if use_load is not None:
                use_load(load)

    def on_topic_removed(self, topic: str) -> None:
        """Notify the partitioner of the topic, if it wants to know."""
        on_topic_removed = getattr(self._of(topic), "on_topic_removed", None)
        if on_topic_removed is not None:
            on_topic_removed(topic)

    def _of(self, topic: str) -> Partitioner:
        return self._by_topic.get(topic, self._default)
