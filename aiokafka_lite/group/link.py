"""The way from a member to its coordinator: one request, one try, and what a failure teaches.

Requests of a member depend on what the coordinator speaks, so they are built when the connection is there. Whoever
calls decides whether to try again; what is learnt here is only that the coordinator has to be looked for anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from ..cluster.client import Client
from ..errors import BrokerError, ConnectionLost, ErrorCode, KafkaError, KafkaTimeout, ProtocolError
from ..net.connection import Purpose
from ..protocol.schema import Request
from ..protocol.versions import VersionTable

R = TypeVar("R")

LOOK_AGAIN = 3.0
"""Seconds without an answer after which others are asked, again and again, who the coordinator is."""

_ELSEWHERE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Link:
    """Sends requests of one group to its coordinator. Holds nothing but the name."""

    def __init__(self, client: Client, group_id: str) -> None:
        self._client = client
        self._group_id = group_id

    async def send(
        self,
        build: Callable[[VersionTable], Request[R]],
        *,
        purpose: Purpose,
        timeout: float,
        at_most: int | None = None,
    ) -> tuple[R, int]:
        """One try; the answer, and the node that gave it. ``timeout`` is for the answer, in seconds.

        Finding the coordinator is bounded by ``api_timeout``. Raises what went wrong on the way; ConnectionLost also
        where another broker has become the coordinator, as one that hangs keeps the connection and never says so.
        """
        broker = await self._client.coordinator(self._group_id)
        node_id = broker.node.node_id
        try:
            connection = await broker.connection(purpose)
            # Nothing is awaited between building and writing, so the request is of a version that this peer speaks.
            answer = connection.send_nowait(build(connection.versions), timeout=timeout, at_most=at_most)
            return await self._unless_moved(answer, node_id), node_id
        except (ConnectionLost, KafkaTimeout, ProtocolError):
            self._client.forget_coordinator(self._group_id, node_id=node_id)
            raise

    async def _unless_moved(self, answer: asyncio.Future[R], node_id: int) -> R:
        # A parked JoinGroup may rightly take minutes, and commits wait for one another: neither may sit out a timeout.
        try:
            while True:
                try:
                    async with asyncio.timeout(LOOK_AGAIN) as scope:
                        return await asyncio.shield(answer)
                except TimeoutError:
                    if not scope.expired():  # a KafkaTimeout is one, too
                        raise
                known = self._client.known_coordinator(self._group_id)
                if known is not None and known.node_id != node_id:
                    moved = f"broker {node_id} kept silent, and group {self._group_id!r} is coordinated by {known} now"
                    raise ConnectionLost(moved, sent=True)
                self._client.refresh_coordinator(self._group_id)
        finally:
            answer.cancel()

    def learn(self, codes: Iterable[ErrorCode], node_id: int) -> None:
        """Look for the coordinator anew if one of the codes says that it is not this node."""
        if any(code in _ELSEWHERE for code in codes):
            self._client.forget_coordinator(self._group_id, node_id=node_id)


def may_pass(code: ErrorCode) -> bool:
    """Whether the same request may be answered well later; so it may by a broker that has failed in an unknown way."""
    return code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR


def is_passing(error: KafkaError) -> bool:
    """Whether a request that failed so may succeed later, on another connection or at another broker."""
    if isinstance(error, BrokerError):
        return may_pass(error.code) or error.code is ErrorCode.BROKER_NOT_AVAILABLE
    return isinstance(error, ConnectionLost | KafkaTimeout | ProtocolError)
