"""Descriptions of topics in pages of a bounded number of partitions, for very large clusters.

Pages use DescribeTopicPartitions (KIP-966) if a broker has it. Otherwise one Metadata response is cut into pages.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import BrokerError, ErrorCode, KafkaError, ProtocolError, error_for
from ..protocol.messages import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopic,
    DescribeTopicPartitionsResponse,
    TopicPartitionCursor,
)
from .calls import Calls
from .peer import Peer
from .topic_descriptions import PartitionDescription, TopicDescription, describe_named, description_of

_DELETED = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class TopicPages:
    """An iterator over pages. A cancelled ``anext`` loses no page: the next call asks for the same page."""

    def __init__(self, calls: Calls, names: Sequence[str] | None, size: int, timeout: float | None) -> None:
        self._calls = calls
        self._names = names
        self._size = size
        self._timeout = timeout
        self._cursor: TopicPartitionCursor | None = None
        # The part of a response that is not returned yet, if the broker does not know pages.
        self._rest: list[TopicDescription] | None = None
        self._over = False

    def __aiter__(self) -> TopicPages:
        return self

    async def __anext__(self) -> tuple[TopicDescription, ...]:
        while not self._over:
            page = await self._next()
            if page:
                return page
        raise StopAsyncIteration

    async def _next(self) -> tuple[TopicDescription, ...]:
        if self._rest:
            return self._cut()
        deadline = self._calls.deadline(self._timeout)
        return await self._calls.one("describing a page of topics", self._calls.any_broker, self._ask, deadline)

    async def _ask(self, peer: Peer) -> tuple[TopicDescription, ...]:
        # An empty list of names would ask for all topics.
        if not peer.speaks(DescribeTopicPartitionsRequest) or self._names == []:
            return await self._ask_for_all(peer)
        cursor = self._cursor
        names = [name for name in self._names or () if cursor is None or name >= cursor.topic_name]
        request = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequestTopic(name=name) for name in names],
            response_partition_limit=self._size,
            cursor=cursor,
        )
        answer = await peer.send(request)
        _check_progress(cursor, answer)
        page = []
        for topic in answer.topics:
            if topic.error_code and not (cursor is not None and topic.error_code in _DELETED):
                raise error_for(topic.error_code, f"describing topic {topic.name!r}")
            if not topic.error_code:
                page.append(description_of(topic))
        self._cursor = answer.next_cursor
        self._over = answer.next_cursor is None
        return tuple(page)

    async def _ask_for_all(self, peer: Peer) -> tuple[TopicDescription, ...]:
        """Ask for all topics in one request, for a broker without pages, and cut the response into pages."""
        answers = await describe_named(peer, self._names)
        topics = []
        for answer in answers.values():
            if not isinstance(answer, KafkaError):
                topics.append(answer)
            elif self._names is not None or not isinstance(answer, BrokerError) or answer.code not in _DELETED:
                raise answer
        # During an upgrade a newer broker may have returned the first pages. Leave out the part before its cursor.
        self._rest = [_from(topic, self._cursor) for topic in sorted(topics, key=lambda topic: topic.name)]
        return self._cut()

    def _cut(self) -> tuple[TopicDescription, ...]:
        page, room = [], self._size
        remaining = self._rest or []
        while remaining and room:
            first = remaining.pop(0)
            page.append(_part(first, first.partitions[:room]))
            if len(first.partitions) > room:
                remaining.insert(0, _part(first, first.partitions[room:]))
            room -= min(room, len(first.partitions))
        assert sum(len(topic.partitions) for topic in page) <= self._size, "a page has at most ``size`` partitions"
        self._over = not remaining
        return tuple(topic for topic in page if topic.partitions)


def _check_progress(cursor: TopicPartitionCursor | None, answer: DescribeTopicPartitionsResponse) -> None:
    """Raise ProtocolError for an empty page, or if the next page does not begin after the start of this page.

    Without this check, the client would ask such a broker for pages without end.
    """
    following = answer.next_cursor
    if following is None:
        return
    begin = ("", -1) if cursor is None else (cursor.topic_name, cursor.partition_index)
    if not answer.topics or (following.topic_name, following.partition_index) <= begin:
        raise ProtocolError(
            f"a page of {len(answer.topics)} topics ends at partition {following.partition_index} of topic"
            f" {following.topic_name!r}, which is not after the start of this page"
        )


def _part(topic: TopicDescription, partitions: tuple[PartitionDescription, ...]) -> TopicDescription:
    return TopicDescription(topic.name, topic.topic_id, topic.is_internal, partitions)


def _from(topic: TopicDescription, cursor: TopicPartitionCursor | None) -> TopicDescription:
    """Return the part of the topic that is not before the cursor."""
    if cursor is None or topic.name > cursor.topic_name:
        return topic
    if topic.name < cursor.topic_name:
        return _part(topic, ())
    return _part(
        topic, tuple(partition for partition in topic.partitions if partition.partition >= cursor.partition_index)
    )
