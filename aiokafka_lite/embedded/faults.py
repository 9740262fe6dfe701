"""Faults on demand: ``cluster.on(ProduceRequest, topic="t", nth=2).apply_then_disconnect()``.

A fault names the requests that it is about and what happens to them instead of, or besides, their handling. The
connection asks for the first fault that matches; the handlers know nothing of faults.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Self

from ..errors import ErrorCode
from ..protocol.messages import FetchRequest, ListOffsetsRequest, ProduceRequest
from ..protocol.schema import Request, Response

Answer = Callable[[Any], Response | Awaitable[Response | None] | None]

HISTORY_BYTES = 64 * 1024 * 1024
"""Frames that the history keeps alive, in bytes; older exchanges are forgotten first."""


class Outcome(Enum):
    """What becomes of a request that a fault has hit."""

    HANDLE = "handled as ever"
    FAIL = "answered with an error code, not handled"
    DISCONNECT = "the connection is reset, the request not handled"
    APPLY_THEN_DISCONNECT = "handled, then the connection is reset in place of the answer"
    DROP = "neither handled nor answered; the connection stays"
    TRUNCATE = "handled; the answer is cut short and the connection closed"
    REPLY_BYTES = "not handled; raw bytes take the place of the answer, size prefix included"
    ANSWER = "a function of the test answers"


class Fault:
    """One fault: whom it hits and what it does. Made by ``EmbeddedCluster.on``.

    It hits the ``nth`` matching request (counting from 1) and the ``times - 1`` matching ones that follow;
    ``times=None`` is for ever. ``hits`` counts, ``remove()`` ends it, and so does leaving it as a context manager.
    """

    def __init__(
        self,
        request: type[Request[Any]],
        *,
        node: int | None,
        topic: str | None,
        partition: int | None,
        nth: int,
        times: int | None,
        remove: Callable[[Fault], None],
    ) -> None:
        self.request = request
        self.node = node
        self.topic = topic
        self.partition = partition
        self.nth = nth
        self.times = times
        self.seen = 0
        self.hits = 0
        self.outcome = Outcome.HANDLE
        self.wait = 0.0
        self.code = ErrorCode.NONE
        self.bytes = b""
        self.size = 0
        self.function: Answer | None = None
        self._remove = remove

    def __repr__(self) -> str:
        where = "".join(
            f" {name}={value}"
            for name, value in (("node", self.node), ("topic", self.topic), ("partition", self.partition))
            if value is not None
        )
        return f"<Fault {self.request.__name__}{where} {self.outcome.name} hits={self.hits}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Hit nothing any more."""
        self._remove(self)

    # ---- what happens

    def fail(self, code: ErrorCode | int, times: int | None = 0) -> Fault:
        """Answer with an error. With a ``topic`` or ``partition``, only there; the rest of the request is handled."""
        self.code = ErrorCode.of(code)
        return self._with(Outcome.FAIL, times)

    def delay(self, seconds: float, times: int | None = 0) -> Fault:
        """Wait before the request is handled, or before whatever else this fault does."""
        self.wait = seconds
        return self._with(self.outcome, times)

    def disconnect(self, times: int | None = 0) -> Fault:
        """Reset the connection; the request is not handled."""
        return self._with(Outcome.DISCONNECT, times)

    def apply_then_disconnect(self, times: int | None = 0) -> Fault:
        """Handle the request, then reset the connection instead of answering."""
        return self._with(Outcome.APPLY_THEN_DISCONNECT, times)

    def drop(self, times: int | None = 0) -> Fault:
        """Neither handle nor answer; the connection stays open."""
        return self._with(Outcome.DROP, times)

    def truncate(self, size: int, times: int | None = 0) -> Fault:
        """Handle the request, send the first ``size`` bytes of the answer's frame, and close."""
        self.size = size
        return self._with(Outcome.TRUNCATE, times)

    def reply_bytes(self, data: bytes, times: int | None = 0) -> Fault:
        """Write ``data`` as it is in place of an answer; it is not framed."""
        self.bytes = data
        return self._with(Outcome.REPLY_BYTES, times)

    def answer(self, function: Answer, times: int | None = 0) -> Fault:
        """Let ``function(request)`` make the answer; it may be a coroutine function, and None is no answer."""
        self.function = function
        return self._with(Outcome.ANSWER, times)

    def _with(self, outcome: Outcome, times: int | None) -> Fault:
        self.outcome = outcome
        if times != 0:
            self.times = times
        return self

    # ---- whom it hits

    def matches(self, node_id: int, request: Request[Any], topic_name: Callable[[bytes], str | None]) -> bool:
        """Whether it hits this request; counts it if it is one that it is about."""
        if type(request) is not self.request or (self.node is not None and self.node != node_id):
            return False
        if (self.topic is not None or self.partition is not None) and not any(
            self.is_about(topic, partition) for topic, partition in partitions_of(request, topic_name)
        ):
            return False
        if self.times is not None and self.hits >= self.times:
            return False
        self.seen += 1
        if self.seen < self.nth:
            return False
        self.hits += 1
        return True

    def is_about(self, topic: str | None, partition: int | None) -> bool:
        return (self.topic is None or self.topic == topic) and (
            self.partition is None or partition is None or self.partition == partition
        )


def partitions_of(
    request: Request[Any], topic_name: Callable[[bytes], str | None]
) -> Iterator[tuple[str | None, int | None]]:
    """The topics and partitions that a request names, as far as it names any."""
    match request:
        case ProduceRequest():
            for produced in request.topic_data:
                name = produced.name or topic_name(produced.topic_id)
                yield from ((name, part.index) for part in produced.partition_data)
        case FetchRequest():
            for fetched in request.topics:
                name = fetched.topic or topic_name(fetched.topic_id)
                yield from ((name, part.partition) for part in fetched.partitions)
        case ListOffsetsRequest():
            for listed in request.topics:
                yield from ((listed.name, part.partition_index) for part in listed.partitions)
        case _:
            for topic in getattr(request, "topics", None) or ():
                name = getattr(topic, "name", None) or getattr(topic, "topic", None)
                topic_id = getattr(topic, "topic_id", None)
                if not name and isinstance(topic_id, bytes):
                    name = topic_name(topic_id)
                yield (name, None)


class Faults:
    """The faults in force, in the order in which they were made. Owner: the cluster."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def on(
        self,
        request: type[Request[Any]],
        *,
        node: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        nth: int = 1,
        times: int | None = 1,
    ) -> Fault:
        fault = Fault(request, node=node, topic=topic, partition=partition, nth=nth, times=times, remove=self._remove)
        self._faults.append(fault)
        return fault

    def _remove(self, fault: Fault) -> None:
        if fault in self._faults:
            self._faults.remove(fault)

    def match(self, node_id: int, request: Request[Any], topic_name: Callable[[bytes], str | None]) -> Fault | None:
        """The fault that hits this request, if any."""
        for fault in self._faults:
            if fault.matches(node_id, request, topic_name):
                return fault
        return None

    def clear(self) -> None:
        self._faults.clear()


@dataclass(slots=True)
class Exchange:
    """A request and what became of it; ``response`` is None until it is answered, and where it never is."""

    node_id: int
    connection_id: int
    client_id: str | None
    version: int
    at: float
    request: Request[Any]
    response: Response | None = None
    size: int = 0


class History:
    """What the cluster was asked and what it answered, oldest first. Owner: the cluster."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._exchanges: deque[Exchange] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._exchanges)

    def __iter__(self) -> Iterator[Exchange]:
        return iter(list(self._exchanges))

    def __getitem__(self, index: int) -> Exchange:
        return self._exchanges[index]

    def add(self, exchange: Exchange) -> None:
        if self._limit <= 0:
            return
        self._exchanges.append(exchange)
        self._size += exchange.size
        while len(self._exchanges) > self._limit or self._size > HISTORY_BYTES:
            self._size -= self._exchanges.popleft().size

    def of(self, request: type[Request[Any]], *, node: int | None = None) -> list[Exchange]:
        """The exchanges of one kind of request, on one node or on all."""
        return [
            exchange
            for exchange in self._exchanges
            if type(exchange.request) is request and (node is None or exchange.node_id == node)
        ]

    def clear(self) -> None:
        self._exchanges.clear()
        self._size = 0
