"""Which broker coordinates a group, or a transaction: found by asking, remembered until somebody is told otherwise.

Owns the memory and the lookups under way. Each lookup is a task of the client, so that many callers share one and the
cancellation of one of them stops none of the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from enum import IntEnum
from typing import Any, NamedTuple

import anyio

from ..errors import ConnectionLost, ErrorCode, IllegalStateError, KafkaError, KafkaTimeout, error_for
from ..net.broker import Broker
from ..protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse, FindCoordinatorResponseCoordinator
from ..types import Node

logger = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds without an answer until another broker is asked as well; then doubled."""

_BATCHED = 4
"""The version of FindCoordinator from which on one request asks for many keys (KIP-699)."""


class CoordinatorKind(IntEnum):
    """What is coordinated, by the number that FindCoordinator carries."""

    GROUP = 0
    TRANSACTION = 1


class CoordinatorKey(NamedTuple):
    """A group id or a transactional id."""

    kind: CoordinatorKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {self.name!r}"


class _Lookup:
    """One question under way; ``node`` or ``error`` is set when ``done`` is."""

    __slots__ = ("done", "error", "node")

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self.node: Node | None = None
        self.error: Exception | None = None


class Coordinators:
    """The coordinators that are known.

    ``candidates`` gives brokers to ask, at least one, the best first; ``failed`` is told of one that cannot be asked;
    ``spawn`` runs a task of the client.
    """

    def __init__(
        self,
        candidates: Callable[[], Iterable[Broker]],
        failed: Callable[[Broker], None],
        spawn: Callable[[Callable[[CoordinatorKey], Coroutine[Any, Any, None]], CoordinatorKey], object],
        request_timeout: float,
    ) -> None:
        self._candidates = candidates
        self._failed = failed
        self._spawn = spawn
        self._request_timeout = request_timeout
        self._known: dict[CoordinatorKey, Node] = {}
        self._told: dict[CoordinatorKey, Node] = {}  # what was logged last
        self._lookups: dict[CoordinatorKey, _Lookup] = {}

    def known(self, key: CoordinatorKey) -> Node | None:
        """The coordinator from memory alone."""
        return self._known.get(key)

    async def find(self, key: CoordinatorKey) -> Node:
        """The coordinator, from memory or by asking once. Raises what the broker, or the way to it, answered.

        ValueError for a name that no request can carry.
        """
        known = self._known.get(key)
        if known is not None:
            return known
        lookup = self.look_again(key)
        await lookup.done.wait()
        if lookup.error is not None:
            raise lookup.error
        assert lookup.node is not None
        return lookup.node

    def look_again(self, key: CoordinatorKey) -> _Lookup:
        """Ask, in the background, also where an answer is remembered, which holds until there is another one."""
        lookup = self._lookups.get(key)
        if lookup is None:
            lookup = self._lookups[key] = _Lookup()
            self._spawn(self._look_up, key)
        return lookup

    def forget(self, key: CoordinatorKey, node_id: int | None = None) -> None:
        """Ask again next time: it said that it is not the coordinator, or is out of reach.

        With ``node_id`` only if that broker is the one remembered, so that a late error does not undo a newer answer.
        """
        known = self._known.get(key)
        if known is not None and node_id in (None, known.node_id):
            del self._known[key]
            logger.debug("the coordinator of %s is no longer %s", key, known)

    def forget_node(self, node_id: int) -> None:
        """Ask again for everything that this broker coordinated: it is out of reach."""
        for key in [key for key, node in self._known.items() if node.node_id == node_id]:
            self.forget(key)

    async def _look_up(self, key: CoordinatorKey) -> None:
        lookup = self._lookups[key]
        try:
            lookup.node = await self._ask(key)
            self._known[key] = lookup.node
            if self._told.get(key) != lookup.node:  # the same again after an outage is no news
                self._told[key] = lookup.node
                logger.info("the coordinator of %s is %s", key, lookup.node)
        except (KafkaError, ValueError) as error:  # a name that no request can carry is its asker's error alone
            lookup.error = error
        except asyncio.CancelledError:
            lookup.error = IllegalStateError("the client was closed during the call")
            raise
        finally:
            del self._lookups[key]
            lookup.done.set()

    async def _ask(self, key: CoordinatorKey) -> Node:
        """The first answer there is. A broker that keeps silent is waited for, but not alone; frozen ones do so."""
        answers: list[Node | KafkaError | ValueError] = []

        async def attempt(broker: Broker) -> None:
            try:
                answers.append(await self._ask_one(broker, key))
            except (KafkaError, ValueError) as error:
                answers.append(error)
            attempts.cancel_scope.cancel()

        candidates, patience = self._candidates(), PATIENCE
        async with anyio.create_task_group() as attempts:
            for broker in candidates:
                attempts.start_soon(attempt, broker, name=f"{key}: {broker.address}")
                await asyncio.sleep(patience)
                patience *= 2
        answer = answers[0]
        if isinstance(answer, Node):
            return answer
        raise answer

    async def _ask_one(self, broker: Broker, key: CoordinatorKey) -> Node:
        try:
            connection = await broker.connection()
            batched = connection.versions.supports(FindCoordinatorRequest, _BATCHED)
            if batched:
                request = FindCoordinatorRequest(key_type=key.kind, coordinator_keys=[key.name])
            else:
                request = FindCoordinatorRequest(key=key.name, key_type=key.kind)
            response = await connection.send(request, timeout=self._request_timeout)
        except (ConnectionLost, KafkaTimeout):
            self._failed(broker)
            raise
        answers = [answer for answer in response.coordinators if answer.key == key.name] if batched else [response]
        if not answers:
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the answer does not name the coordinator of {key}")
        return _node(answers[0], key)


def _node(answer: FindCoordinatorResponse | FindCoordinatorResponseCoordinator, key: CoordinatorKey) -> Node:
    if answer.error_code:
        said = f": {answer.error_message}" if answer.error_message else ""
        raise error_for(answer.error_code, f"no coordinator of {key}{said}")
    return Node(answer.node_id, answer.host, answer.port)
