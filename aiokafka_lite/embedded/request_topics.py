"""The topics and partitions that a request names, and requests cut in two so that a fault fails only one part."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from ..protocol.messages import FetchRequest, ListOffsetsRequest, MetadataRequest, ProduceRequest
from ..protocol.schema import Request, Response

Q = TypeVar("Q", bound=Request[Any])
IsAbout = Callable[[str | None, int | None], bool]
"""Returns whether a fault concerns a topic and a partition. Each of them is None if it is unknown."""
TopicName = Callable[[bytes], str | None]


class _Shape(NamedTuple):
    """The names of the fields that list topics and partitions. Without ``partitions``, only topics are named."""

    topics: str
    answered_topics: str
    partitions: str = ""
    answered_partitions: str = ""
    number: str = ""


_SHAPES: dict[type[Request[Any]], _Shape] = {
    ProduceRequest: _Shape("topic_data", "responses", "partition_data", "partition_responses", "index"),
    FetchRequest: _Shape("topics", "responses", "partitions", "partitions", "partition"),
    ListOffsetsRequest: _Shape("topics", "topics", "partitions", "partitions", "partition_index"),
    MetadataRequest: _Shape("topics", "topics"),
}
"""The requests that can fail in part. A fault fails any other request as a whole."""


def partitions_of(request: Request[Any], topic_name: TopicName) -> Iterator[tuple[str | None, int | None]]:
    """Yield the topics and partitions that a request names; None as a partition where it names whole topics."""
    shape = _SHAPES.get(type(request), _Shape("topics", "topics"))
    for topic in getattr(request, shape.topics, None) or ():
        name = _name(topic, topic_name)
        if shape.partitions:
            yield from ((name, getattr(part, shape.number)) for part in getattr(topic, shape.partitions))
        else:
            yield (name, None)


def split_request(request: Q, is_about: IsAbout, topic_name: TopicName) -> tuple[Q, Q | None]:
    """Return the part of a request that a fault concerns, and the rest; None if the fault concerns the whole
    request."""
    shape = _SHAPES.get(type(request))
    if shape is None:
        return request, None
    hit: list[Any] = []
    rest: list[Any] = []
    for topic in getattr(request, shape.topics) or ():
        name = _name(topic, topic_name)
        if not shape.partitions:
            (hit if is_about(name, None) else rest).append(topic)
            continue
        hit_parts: list[Any] = []
        rest_parts: list[Any] = []
        for part in getattr(topic, shape.partitions):
            (hit_parts if is_about(name, getattr(part, shape.number)) else rest_parts).append(part)
        for parts, topics in ((hit_parts, hit), (rest_parts, rest)):
            if parts:
                topics.append(dataclasses.replace(topic, **{shape.partitions: parts}))
    if not rest:
        return request, None
    message: Any = request
    return dataclasses.replace(message, **{shape.topics: hit}), dataclasses.replace(message, **{shape.topics: rest})


def merge_responses(request: Request[Any], failed: Response, handled: Response) -> Response:
    """Add the topics of the failed part of ``request`` to the response to the handled part, and return it."""
    shape = _SHAPES[type(request)]
    topics: list[Any] = getattr(handled, shape.answered_topics)
    for topic in getattr(failed, shape.answered_topics):
        twins = [candidate for candidate in topics if shape.partitions and _identity(candidate) == _identity(topic)]
        if twins:
            getattr(twins[0], shape.answered_partitions).extend(getattr(topic, shape.answered_partitions))
        else:
            topics.append(topic)
    return handled


def _name(topic: Any, topic_name: TopicName) -> str | None:
    name, topic_id = _identity(topic)
    return name or (topic_name(topic_id) if topic_id else None)


def _identity(topic: Any) -> tuple[str, bytes]:
    """Return the name and the id of a topic in a request or a response; empty where it has none."""
    name = topic if isinstance(topic, str) else getattr(topic, "name", "") or getattr(topic, "topic", "")
    return name, getattr(topic, "topic_id", b"")
