"""Reads one Metadata response topic by topic.

A large response is decoded while it is read, so the event loop can run other tasks between two topics. The decoded
topics never exist all at once, because the garbage collector would need 80 ms for 100,000 partitions. The bytes of each
topic are kept. A topic with the same bytes in the next response is not decoded again, and usually nothing has changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from ..protocol.messages import MetadataResponse, MetadataResponseTopic
from .checks import check_brokers, check_topic

if TYPE_CHECKING:
    from ..protocol.partial import PartialResponse

T = TypeVar("T")


class ReadTopics(NamedTuple, Generic[T]):
    """The kept parts of the last large response: its version, its topics in order, and the merged topics (T)."""

    version: int = -1
    encoded: Sequence[tuple[str, bytes]] = ()
    merged: Mapping[str, T] = MappingProxyType({})


class MetadataAnswer(Generic[T]):
    """A response, and the kept parts of the previous one. The constructor and ``read`` raise ProtocolError."""

    def __init__(self, response: MetadataResponse | PartialResponse, before: ReadTopics[T] | None = None) -> None:
        self._response = response
        self._before = ReadTopics() if before is None else before
        self._encoded: list[tuple[str, bytes]] = []
        check_brokers(self.message)

    @property
    def message(self) -> MetadataResponse:
        """The response. Only a small one has its topics. Fields after the topics are set when all topics were read."""
        if isinstance(self._response, MetadataResponse):
            return self._response
        message: MetadataResponse = self._response.message
        return message

    @property
    def names(self) -> Collection[str | None]:
        """The names of all topics. Call it after all topics were read."""
        if isinstance(self._response, MetadataResponse):
            return [topic.name for topic in self._response.topics]
        return [name for name, _ in self._encoded]

    def kept(self, merged: Mapping[str, T]) -> ReadTopics[T]:
        """Return the parts to keep for the next response. ``merged`` are the topics of the snapshot that this response
        made.

        After a small response, the parts of the large one are kept while the snapshot has at least half of its topics.
        """
        if isinstance(self._response, MetadataResponse):
            return self._before if 2 * len(merged) >= len(self._before.encoded) else ReadTopics()
        last = dict(self._encoded)  # of a topic that is listed twice, the snapshot has the last one
        encoded = self._encoded if len(last) == len(self._encoded) else list(last.items())
        return ReadTopics(self._response.version, encoded, merged)

    def read(
        self, present: Mapping[str, T], requested: Collection[str] | None = None
    ) -> Iterator[MetadataResponseTopic | T]:
        """Read all topics, from the first one. ``present`` has the topics of the present snapshot.

        If the bytes of a topic have not changed, this yields the present topic itself. ``requested`` are topic names,
        None for all topics. The bytes of other topics are not kept, because the caller does not use those topics.
        """
        if isinstance(self._response, MetadataResponse):
            for topic in self._response.topics:
                check_topic(topic)
            yield from self._response.topics
        else:
            yield from self._decode(self._response, present, requested)

    def _decode(
        self, response: PartialResponse, present: Mapping[str, T], requested: Collection[str] | None
    ) -> Iterator[MetadataResponseTopic | T]:
        version, before, merged = self._before
        if version != response.version:
            before = ()
        places = {name: place for place, (name, _) in enumerate(before)}
        place = 0
        self._encoded = []
        response.begin()
        while response.remaining:
            if place < len(before):
                name, encoded = before[place]
                same = present.get(name)
                # The known topic must have been made of these bytes: a hint may have replaced it since.
                if same is not None and same is merged.get(name) and response.skip(encoded):
                    self._encoded.append(before[place])
                    place += 1
                    yield same
                    continue
            start = response.position
            topic: MetadataResponseTopic = response.decode()
            check_topic(topic)
            name = topic.name or ""
            is_asked = requested is None or name in requested
            self._encoded.append((name, response.data[start : response.position] if is_asked else b""))
            # Brokers list the topics in the same order each time, so the next one is probably the next one here.
            place = places.get(name, place - 1) + 1
            yield topic
        response.end()
