"""Faults on demand: ``cluster.on(ProduceRequest, topic="t", nth=2).apply_then_disconnect()``.

A fault selects the requests that it hits, and has an effect instead of, or besides, their handling. A connection uses
the first fault that matches a request. Handlers do not know of faults.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Self

from ..arguments import check_function, is_whole, must_be, plural, whole
from ..errors import ErrorCode
from ..protocol.schema import Request, Response
from .request_topics import TopicName, partitions_of

logger = logging.getLogger(__name__)

Answer = Callable[[Any], Response | Awaitable[Response | None] | None]

Alter = Callable[[Any], Response]

HISTORY_BYTES = 64 * 1024 * 1024
"""Bytes of request frames that the history keeps in memory; the oldest exchanges are dropped first."""


class FaultOutcome(Enum):
    """The effect of a fault on a request."""

    HANDLE = "handled as usual"
    FAIL = "not handled; the response has an error code"
    DISCONNECT = "not handled; the connection is reset"
    APPLY_THEN_DISCONNECT = "handled; the connection is reset instead of a response"
    DROP = "not handled, no response; the connection stays open"
    TRUNCATE = "handled; the response is truncated and the connection closed"
    REPLY_BYTES = "not handled; raw bytes, with their size prefix, instead of a response"
    ANSWER = "a function of the test makes the response"
    ALTER = "handled; a function of the test changes the response"


class Fault:
    """One fault: the requests that it hits and its effect. ``EmbeddedCluster.on`` makes it.

    It hits the ``nth`` matching request (counting from 1) and the ``times - 1`` matching requests that follow; with
    ``times=None`` all that follow. ``hits`` counts them. ``remove()`` disables it, as does the end of a ``with`` block.
    A fault that was never hit is logged as a warning when the cluster closes.
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
        if not (isinstance(request, type) and issubclass(request, Request)):
            raise TypeError(must_be("request", "a class of requests, such as ProduceRequest", request))
        self.node = node
        self.topic = topic
        self.partition = partition
        self.nth: int = whole("nth", nth, 1)
        self.times: int | None = _times(times)
        self.of_kind: int = 0
        self.seen: int = 0
        self.hits: int = 0
        self.outcome: FaultOutcome = FaultOutcome.HANDLE
        self.wait: float = 0.0
        self.code: ErrorCode = ErrorCode.NONE
        self.bytes: bytes = b""
        self.size: int = 0
        self.function: Answer | None = None
        self.alteration: Alter | None = None
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
        """Disable this fault."""
        self._remove(self)

    # The effects. ``times`` replaces the ``times`` of ``EmbeddedCluster.on``.

    def fail(self, code: ErrorCode | int, times: int | None = 0) -> Fault:
        """Answer with an error. With a ``topic`` or ``partition`` only that part fails, and the rest is handled."""
        self.code = _error_code(code)
        return self._with(FaultOutcome.FAIL, times)

    def delay(self, seconds: float, times: int | None = 0) -> Fault:
        """Wait this many seconds before the request is handled, or before the fault does anything else."""
        if not isinstance(seconds, int | float) or not seconds >= 0:
            raise TypeError(must_be("seconds", "a number of seconds >= 0", seconds))
        self.wait = seconds
        return self._with(self.outcome, times)

    def disconnect(self, times: int | None = 0) -> Fault:
        """Reset the connection; the request is not handled."""
        return self._with(FaultOutcome.DISCONNECT, times)

    def apply_then_disconnect(self, times: int | None = 0) -> Fault:
        """Handle the request, then reset the connection instead of answering."""
        return self._with(FaultOutcome.APPLY_THEN_DISCONNECT, times)

    def drop(self, times: int | None = 0) -> Fault:
        """Do not handle the request and send no response; the connection stays open."""
        return self._with(FaultOutcome.DROP, times)

    def truncate(self, size: int, times: int | None = 0) -> Fault:
        """Handle the request, send the first ``size`` bytes of the response's frame, and close the connection."""
        self.size = whole("size", size)
        return self._with(FaultOutcome.TRUNCATE, times)

    def reply_bytes(self, data: bytes, times: int | None = 0) -> Fault:
        """Send ``data`` instead of a response, without adding a frame."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(must_be("data", "bytes", data))
        self.bytes = bytes(data)
        return self._with(FaultOutcome.REPLY_BYTES, times)

    def answer(self, function: Answer, times: int | None = 0) -> Fault:
        """Answer with the result of ``function(request)``, which may be a coroutine function; None is no response."""
        check_function("function", function)
        self.function = function
        return self._with(FaultOutcome.ANSWER, times)

    def alter(self, function: Alter, times: int | None = 0) -> Fault:
        """Handle the request and answer with ``function(response)``, which may change the response or make another."""
        check_function("function", function)
        self.alteration = function
        return self._with(FaultOutcome.ALTER, times)

    def _with(self, outcome: FaultOutcome, times: int | None) -> Fault:
        self.outcome = outcome
        if times != 0:
            self.times = _times(times)
        return self

    @property
    def unused(self) -> str:
        """Why this fault was never hit, as the end of a sentence; empty if it was hit."""
        if self.hits:
            return ""
        came = f"{plural(self.of_kind, self.request.__name__)} came"
        if not self.of_kind:
            came = f"no {self.request.__name__} came"
        if self.seen:
            return f"{came}, {self.seen} matched, and nth is {self.nth}"
        return came if not self.of_kind else f"{came}, and none matched"

    # The selection of requests.

    def matches(self, node_id: int, request: Request[Any], topic_name: TopicName) -> bool:
        """Count a request if it matches, and return whether the fault hits it."""
        if type(request) is not self.request:
            return False
        self.of_kind += 1
        if self.node is not None and self.node != node_id:
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
        assert self.times is None or self.hits <= self.times, "a fault hits at most `times` requests"
        return True

    def is_about(self, topic: str | None, partition: int | None) -> bool:
        """Return whether the fault hits this partition, or, with None as the partition, this topic."""
        return (self.topic is None or self.topic == topic) and (
            self.partition is None or partition is None or self.partition == partition
        )


class Faults:
    """The faults of a cluster, in the order in which they were made. Owner: the cluster."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._all: list[Fault] = []  # with removed ones that were never hit

    def add(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        self._all.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        if fault in self._faults:
            self._faults.remove(fault)
        if fault.hits and fault in self._all:
            self._all.remove(fault)

    def match(self, node_id: int, request: Request[Any], topic_name: TopicName) -> Fault | None:
        """Return the first fault that hits this request; None if none does."""
        # A fault does not count the requests that an earlier one hits, so two faults of one kind follow one another.
        for fault in self._faults:
            if fault.matches(node_id, request, topic_name):
                return fault
        return None

    def clear(self) -> None:
        self._faults.clear()
        self._all.clear()

    def raise_for_unused(self) -> None:
        """Raise AssertionError if a fault was never hit: a test that expects its effect has tested nothing."""
        if unused := self._unused():
            raise AssertionError("; ".join(unused))

    def log_unused(self) -> None:
        """Log a warning for each fault that was never hit."""
        for text in self._unused():
            logger.warning("%s", text)

    def _unused(self) -> list[str]:
        return [f"{fault!r} was never hit: {fault.unused}" for fault in self._all if fault.unused]


def _error_code(code: object) -> ErrorCode:
    """Return the error code. Raises TypeError for a name, ValueError for a number that is no code."""
    if isinstance(code, str):
        from difflib import get_close_matches

        near = get_close_matches(code.upper(), ErrorCode.__members__, 1)
        hint = f"; did you mean ErrorCode.{near[0]}?" if near else ""
        raise TypeError(must_be("code", "an ErrorCode or its number", code) + hint)
    if not is_whole(code):
        raise TypeError(must_be("code", "an ErrorCode or its number", code))
    error_code = ErrorCode.of(code)
    if error_code != code:
        raise ValueError(must_be("code", "the number of an ErrorCode", code))
    return error_code


def _times(times: object) -> int | None:
    return None if times is None else whole("times", times, 1)


@dataclass(slots=True)
class Exchange:
    """A request and its response, which is None until it is sent.

    ``at`` is the loop's time when the request came, ``handled_at`` the time when its response was made; ``size`` is in
    bytes.
    """

    node_id: int
    connection_id: int
    client_id: str | None
    version: int
    at: float
    request: Request[Any]
    response: Response | None = None
    size: int = 0
    handled_at: float | None = None


class History:
    """The requests to the cluster with their responses, oldest first. Owner: the cluster.

    A request is added when its checks have ended. So a request with large batches may follow requests that came later.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._exchanges: deque[Exchange] = deque()
        self._size = 0
        self._left_out: str | None = None

    def __len__(self) -> int:
        return len(self._exchanges)

    def __iter__(self) -> Iterator[Exchange]:
        return iter(list(self._exchanges))

    def __getitem__(self, index: int) -> Exchange:
        return self._exchanges[index]

    def leave_out(self, client_id: str) -> None:
        """Keep no requests of this client from now on: one that shows the history must not fill it."""
        self._left_out = client_id

    def add(self, exchange: Exchange) -> None:
        if self._limit <= 0 or (exchange.client_id is not None and exchange.client_id == self._left_out):
            return
        self._exchanges.append(exchange)
        self._size += exchange.size
        while len(self._exchanges) > self._limit or self._size > HISTORY_BYTES:
            self._size -= self._exchanges.popleft().size
        assert self._size >= 0, "the history counts the bytes of its requests"

    def of(self, request: type[Request[Any]], *, node: int | None = None) -> list[Exchange]:
        """Return the exchanges of one kind of request, on one node or on all."""
        return [
            exchange
            for exchange in self._exchanges
            if type(exchange.request) is request and (node is None or exchange.node_id == node)
        ]

    def clear(self) -> None:
        self._exchanges.clear()
        self._size = 0
