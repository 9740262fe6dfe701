"""The coordinators of groups and transactional ids: looked up, and cached until an answer shows that they are wrong.

Owns the cache and the lookups in progress. A lookup is a task of the client: many callers share the task, and a
cancelled caller does not stop it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from ..aio.hedged import hedged
from ..aio.light_event import LightEvent
from ..aio.outages import Outages
from ..aio.retry import is_refusal
from ..errors import (
    AuthenticationError,
    ConnectionLost,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    KafkaTimeout,
    ProtocolError,
    error_for,
)
from ..net.broker import Broker
from ..types import Node
from .checks import check_endpoint

if TYPE_CHECKING:
    from ..protocol.messages import FindCoordinatorResponse, FindCoordinatorResponseCoordinator

logger = logging.getLogger(__name__)


class CoordinatorKind(IntEnum):
    """The kind of a coordinator's key, by its number in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1

    __hash__ = int.__hash__  # that of an Enum runs in Python, for each lookup


class CoordinatorKey(NamedTuple):
    """A group id or a transactional id."""

    kind: CoordinatorKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {self.name!r}"


class _Lookup:
    """A lookup in progress. ``node`` or ``error`` is set before ``done``."""

    __slots__ = ("done", "error", "node")

    def __init__(self) -> None:
        self.done: LightEvent = LightEvent()
        self.node: Node | None = None
        self.error: Exception | None = None


class Coordinators:
    """The cache of coordinators.

    ``candidates`` returns the brokers to ask, at least one, the best first. ``on_unreachable`` is called with a broker
    that did not answer, ``on_found`` with the node of each answer. ``spawn`` starts a task of the client.
    """

    def __init__(
        self,
        candidates: Callable[[], Iterable[Broker]],
        on_unreachable: Callable[[Broker], None],
        spawn: Callable[[Callable[[CoordinatorKey], Coroutine[Any, Any, None]], CoordinatorKey], object],
        request_timeout: float,
        outages: Outages,
        on_found: Callable[[Node], None] = lambda node: None,
    ) -> None:
        self._candidates = candidates
        self._on_found = on_found
        self._on_unreachable = on_unreachable
        self._spawn = spawn
        self._request_timeout = request_timeout
        self._outages = outages
        self._known: dict[CoordinatorKey, Node] = {}
        self._logged: dict[CoordinatorKey, Node] = {}
        self._lookups: dict[CoordinatorKey, _Lookup] = {}

    def known(self, key: CoordinatorKey) -> Node | None:
        """Return the coordinator from the cache, or None."""
        return self._known.get(key)

    async def find(self, key: CoordinatorKey) -> Node:
        """Look the coordinator up once, unless it is in the cache. Raises the lookup's KafkaError.

        Raises ValueError for a name that no request can carry.
        """
        node = self._known.get(key)
        if node is not None:
            return node
        lookup = self.refresh(key)
        await lookup.done.wait()
        if lookup.error is not None:
            raise lookup.error
        assert lookup.node is not None
        return lookup.node

    def refresh(self, key: CoordinatorKey) -> _Lookup:
        """Start a lookup in the background, or join one in progress. The cached node stays until the lookup ends."""
        lookup = self._lookups.get(key)
        if lookup is None:
            lookup = self._lookups[key] = _Lookup()
            self._spawn(self._look_up, key)
        return lookup

    def forget(self, key: CoordinatorKey, node_id: int | None = None) -> None:
        """Drop the coordinator from the cache, because it refused a request or is unreachable.

        With ``node_id``, drop it only if that broker is the cached coordinator, so that a late error does not undo a
        newer answer.
        """
        node = self._known.get(key)
        if node is not None and node_id in (None, node.node_id):
            del self._known[key]
            logger.debug("dropped the coordinator of %s from the cache: %s", key, node)

    def forget_node(self, node_id: int) -> None:
        """Drop every key that this broker coordinates, because the broker is unreachable."""
        for key in [key for key, node in self._known.items() if node.node_id == node_id]:
            self.forget(key)

    async def _look_up(self, key: CoordinatorKey) -> None:
        lookup = self._lookups[key]
        try:
            lookup.node = await self._ask(key)
            self._known[key] = lookup.node
            self._recovered(key)
            self._on_found(lookup.node)
            # If the coordinator is the same as before an outage, nothing is logged.
            if self._logged.get(key) != lookup.node:
                self._logged[key] = lookup.node
                logger.info("the coordinator of %s is %s", key, lookup.node)
        except (KafkaError, ValueError) as error:  # ValueError: a name that no request can carry
            lookup.error = error
            # The caller reports a refusal.
            if isinstance(error, KafkaError) and not is_refusal(error):
                # DEBUG: a caller that waits gets the error. ``Standstill`` logs it if it stays.
                problem = f"the coordinator of {key} is not found: {error}"
                what = "finding the coordinator of %s failed: %s"
                self._outages.report(
                    logger, place_of(key), error, what, key, error, level=logging.DEBUG, problem=problem
                )
        except asyncio.CancelledError:
            # The lookup is a task of the client, so it is cancelled only when the client ends. Its callers must not
            # hang then.
            lookup.error = IllegalStateError("the client was closed during the call")
            raise
        finally:
            assert self._lookups[key] is lookup, "a key has one lookup at a time"
            del self._lookups[key]
            lookup.done.set()

    def _recovered(self, key: CoordinatorKey) -> None:
        is_warned = self._outages.is_warned(place_of(key))
        outage = self._outages.over(place_of(key))
        if is_warned:
            logger.info("found the coordinator of %s after %s", key, outage)

    async def _ask(self, key: CoordinatorKey) -> Node:
        """Ask brokers, and return the first answer or raise the first error.

        A frozen broker does not delay the lookup, because others are asked as well.
        """

        async def ask(broker: Broker) -> Node | KafkaError | ValueError:
            try:
                return await self._ask_broker(broker, key)
            except (KafkaError, ValueError) as error:
                return error

        answer: Node | KafkaError | ValueError | None = await hedged(
            self._candidates(), ask, name=f"find the coordinator of {key}"
        )
        if isinstance(answer, Exception):
            raise answer
        assert answer is not None
        return answer

    async def _ask_broker(self, broker: Broker, key: CoordinatorKey) -> Node:
        from ..protocol.messages import FindCoordinatorRequest  # imported here: most clients have no coordinator

        try:
            connection = await broker.connection()
            many_keys = connection.versions.supports(FindCoordinatorRequest.MANY_KEYS)  # KIP-699
            if many_keys:
                request = FindCoordinatorRequest(key_type=key.kind, coordinator_keys=[key.name])
            else:
                request = FindCoordinatorRequest(key=key.name, key_type=key.kind)
            response = await connection.send(request, timeout=self._request_timeout)
        except (ConnectionLost, KafkaTimeout, AuthenticationError):
            self._on_unreachable(broker)
            raise
        answers = [answer for answer in response.coordinators if answer.key == key.name] if many_keys else [response]
        if not answers:
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the answer does not name the coordinator of {key}")
        return _node(answers[0], key)


def place_of(key: CoordinatorKey) -> str:
    """Return the name under which failed lookups of a coordinator are counted as an outage."""
    return f"coordinator of {key}"


def _node(answer: FindCoordinatorResponse | FindCoordinatorResponseCoordinator, key: CoordinatorKey) -> Node:
    if answer.error_code:
        message = f": {answer.error_message}" if answer.error_message else ""
        raise error_for(answer.error_code, f"cannot find the coordinator of {key}{message}")
    try:
        check_endpoint(answer)
    except ProtocolError as error:
        raise ProtocolError(f"cannot find the coordinator of {key}: {error}") from None
    return Node(answer.node_id, answer.host, answer.port)
