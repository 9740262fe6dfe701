"""Requests to the coordinator of a group or a transactional id: one attempt each, and the reactions to a failure.

The caller decides whether to retry. The channel only records that the coordinator has to be looked up again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

import anyio

from ..aio.alarms import Alarm, loop_alarms
from ..errors import AuthenticationError, ConnectionLost, ErrorCode, KafkaError, KafkaTimeout, ProtocolError
from ..net.broker import Broker
from ..net.connection import Connection, Purpose
from ..protocol.schema import Request
from ..protocol.versions import VersionTable
from .client import Client
from .coordinators import CoordinatorKey, CoordinatorKind

R = TypeVar("R")

LOOKUP_INTERVAL = 3.0
"""Seconds without a connection or an answer after which the coordinator is looked up again, repeatedly."""

_NOT_THE_COORDINATOR = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


_UNREACHABLE = (ConnectionLost, KafkaTimeout, ProtocolError, AuthenticationError)
"""The errors after which the coordinator is looked up again."""


class _Watch:
    """Calls ``check`` every ``LOOKUP_INTERVAL`` seconds while a request has no answer, and ``fail`` with its error.

    JoinGroup may wait for minutes, and commits wait for one another, so the request timeout would be too late. This is
    an alarm, because a loop around asyncio.wait costs one more iteration of the event loop.
    """

    __slots__ = ("_alarm", "_check", "_fail")

    def __init__(self, check: Callable[[], None], fail: Callable[[Exception], None]) -> None:
        self._check = check
        self._fail = fail
        self._alarm: Alarm | None = loop_alarms().after(LOOKUP_INTERVAL, self._look)

    def stop(self) -> bool:
        """Stop watching. Returns False if that has happened before."""
        alarm, self._alarm = self._alarm, None
        if alarm is None:
            return False
        alarm.call_off()
        return True

    def _look(self) -> None:
        try:
            self._check()
        except Exception as error:  # noqa: BLE001 - the caller raises it
            self._fail(error)
        else:
            self._alarm = loop_alarms().after(LOOKUP_INTERVAL, self._look)


class CoordinatorChannel:
    """Sends the requests of one group, or of one transactional id, to its coordinator."""

    def __init__(self, client: Client, name: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> None:
        self._client = client
        self._name = name
        self._kind = kind

    async def find(self) -> None:
        """Look the coordinator up once, unless it is known. ``send`` then finds it in the cache.

        Raises the KafkaError of the lookup, even if it is retriable.
        """
        await self._client.coordinator(self._name, self._kind, retry=False)

    async def send(
        self,
        build: Callable[[VersionTable], Request[R]],
        *,
        purpose: Purpose,
        timeout: float,
        at_most: int | None = None,
    ) -> tuple[R, int]:
        """Send a request once. Returns the answer and the id of the node that sent it.

        ``build`` makes the request for the versions of the connection. ``timeout`` in seconds is for the answer; the
        lookup of the coordinator has ``api_timeout``. Raises the KafkaError of the lookup or the connection. Raises
        ConnectionLost if this broker does not answer and the group or transactional id moves to another coordinator. A
        frozen broker keeps its connections, and never answers NOT_COORDINATOR.
        """
        broker = await self._client.coordinator(self._name, self._kind)
        node_id = broker.node.node_id
        try:
            connection = broker.ready_connection(purpose) or await self._connect(broker, purpose, node_id)
            # No await between building and writing, so that the versions belong to the connection that carries the
            # request.
            answer = connection.send_nowait(build(connection.versions), timeout=timeout, at_most=at_most)
            return await self._unless_moved(answer, node_id), node_id
        except _UNREACHABLE:
            self._client.forget_coordinator(self._name, self._kind, node_id=node_id)
            raise

    def send_at_once(
        self,
        build: Callable[[VersionTable], Request[R]],
        on_answer: Callable[[R | Exception, int], object],
        *,
        purpose: Purpose,
        timeout: float,
        at_most: int | None = None,
        is_bounded: bool = False,
    ) -> bool:
        """Send like ``send`` on the open connection. Returns False, and sends nothing, if there is none.

        ``on_answer`` is called with the answer or the error of ``send``, and the id of the node, in the iteration of
        the loop that reads the answer. It must not raise, and may be called before this method returns. With
        ``is_bounded`` the caller waits only for a moment, so the coordinator is not looked up again meanwhile.
        """
        broker = self._client.broker_of_coordinator(self._name, self._kind)
        connection = None if broker is None else broker.ready_connection(purpose)
        if broker is None or connection is None:
            return False
        node_id = broker.node.node_id

        def answered(answer: R | Exception) -> None:
            if watch is not None and not watch.stop():
                return  # the coordinator has moved, and ``on_answer`` has got that error
            if isinstance(answer, _UNREACHABLE):
                self._client.forget_coordinator(self._name, self._kind, node_id=node_id)
            on_answer(answer, node_id)

        watch = None if is_bounded else _Watch(lambda: self._check_not_moved(node_id, sent=True), answered)
        try:
            connection.send_with_callback(build(connection.versions), answered, timeout=timeout, at_most=at_most)
        except KafkaError:  # nothing was sent
            if watch is not None:
                watch.stop()
            return False
        return True

    async def versions(self) -> VersionTable:
        """Connect to the coordinator for groups, and return its versions and the features of its cluster.

        Makes one attempt, and raises the same errors as ``send``.
        """
        broker = await self._client.coordinator(self._name, self._kind)
        node_id = broker.node.node_id
        try:
            return (await self._connect(broker, Purpose.GROUP, node_id)).versions
        except _UNREACHABLE:
            self._client.forget_coordinator(self._name, self._kind, node_id=node_id)
            raise

    async def _connect(self, broker: Broker, purpose: Purpose, node_id: int) -> Connection:
        while True:
            # The attempt continues while this caller looks the coordinator up.
            with anyio.move_on_after(LOOKUP_INTERVAL):
                return await broker.connection(purpose)
            self._check_not_moved(node_id, sent=False)

    async def _unless_moved(self, answer: asyncio.Future[R], node_id: int) -> R:
        def fail(error: Exception) -> None:
            if not answer.done():
                answer.set_exception(error)

        watch = _Watch(lambda: self._check_not_moved(node_id, sent=True), fail)
        try:
            return await answer
        finally:
            watch.stop()

    def _check_not_moved(self, node_id: int, *, sent: bool) -> None:
        """Raise ConnectionLost if another broker is now the coordinator. If not, start a lookup for the next check."""
        coordinator = self._client.known_coordinator(self._name, self._kind)
        if coordinator is not None and coordinator.node_id != node_id:
            raise ConnectionLost(
                f"broker {node_id} did not answer, and {CoordinatorKey(self._kind, self._name)} has moved to "
                f"{coordinator}",
                sent=sent,
            )
        self._client.refresh_coordinator(self._name, self._kind)

    def record(self, codes: Iterable[ErrorCode], node_id: int) -> None:
        """Look the coordinator up again before the next request if the error code says that it has moved."""
        if any(code in _NOT_THE_COORDINATOR for code in codes):
            self._client.forget_coordinator(self._name, self._kind, node_id=node_id)
