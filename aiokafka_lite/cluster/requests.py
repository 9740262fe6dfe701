"""Sends requests to brokers, and retries them with backoff until their deadline.

This module also records the consequences of an answer or a failure: an unreachable broker, stale metadata.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..aio.deadline import deadline
from ..aio.retry import Backoff, is_retriable
from ..errors import (
    AuthenticationError,
    BrokerError,
    ConnectionLost,
    ErrorCode,
    KafkaError,
    KafkaTimeout,
    ProtocolError,
    error_for,
)
from ..net.broker import Broker, Purpose
from ..protocol.schema import Request
from ..types import Node
from .brokers import Brokers
from .coordinators import Coordinators
from .updater import Updater

R = TypeVar("R")


class Requests:
    """Sends the requests of one client. Stateless; ``make_backoff`` makes the backoff of one call."""

    def __init__(
        self,
        brokers: Brokers,
        updater: Updater,
        coordinators: Coordinators,
        make_backoff: Callable[[], Backoff],
        request_timeout: float,
    ) -> None:
        self._brokers = brokers
        self._updater = updater
        self._coordinators = coordinators
        self._make_backoff = make_backoff
        self._request_timeout = request_timeout

    def broker_of(self, node: int | Node | None) -> Broker:
        """Return the broker of a node or a node id; for None, the least loaded broker. Raises BrokerError."""
        view = self._updater.view
        if node is None:
            return self._brokers.by_load(view)[0]
        if isinstance(node, Node):
            return self._brokers.of(node)
        present = view.nodes.get(node)
        if present is None:
            node_ids = ", ".join(str(node_id) for node_id in sorted(view.nodes))
            raise error_for(
                ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node} is not in the cluster, which has {node_ids or 'none'}"
            )
        return self._brokers.of(present)

    async def send(
        self, request: Request[R], node: int | Node | None, purpose: Purpose, timeout: float, retry: bool
    ) -> R:
        """Implement ``Client.send``. No argument has a default here."""
        api = type(request).__name__.removesuffix("Request")
        what = f"{api} to {'any broker' if node is None else f'broker {node}'}"

        async def attempt() -> R:
            return await self._send_once(request, node, purpose, what, retry)

        if retry:
            return await self.repeat(attempt, what, timeout)
        with deadline(timeout, lambda: f"{what}: no answer within {timeout:g} s"):
            return await attempt()

    async def repeat(self, attempt: Callable[[], Awaitable[R]], what: str, timeout: float) -> R:
        """Retry retriable errors with backoff. After ``timeout`` seconds, raise KafkaTimeout with the last error."""
        backoff = self._make_backoff()
        last: KafkaError | None = None

        def describe() -> str:
            cause = "" if last is None else f"; the last error was: {last}"
            return f"{what}: no success within {timeout:g} s{cause}"

        with deadline(timeout, describe):
            while True:
                try:
                    return await attempt()
                except KafkaError as error:
                    if _is_final(error):
                        raise
                    last = error
                await asyncio.sleep(backoff.next())

    def mark_unreachable(self, broker: Broker) -> None:
        """Handle a broker that did not answer: prefer others, look its coordinators up again, refresh the metadata."""
        self._brokers.mark_unreachable(broker)
        self._coordinators.forget_node(broker.node.node_id)
        self._updater.demand()

    async def _send_once(
        self, request: Request[R], node: int | Node | None, purpose: Purpose, what: str, retry: bool
    ) -> R:
        broker = self.broker_of(node)
        try:
            response = await broker.send(request, purpose=purpose, timeout=self._request_timeout)
        except (ConnectionLost, KafkaTimeout, AuthenticationError):
            self.mark_unreachable(broker)
            raise
        self._brokers.mark_reachable(broker)
        # Responses without a top-level error have an error for each item, which only the caller can interpret.
        code = ErrorCode.of(getattr(response, "error_code", 0))
        if code.stale_metadata:
            self._updater.demand()
        if retry and code.retriable:
            raise error_for(code, what)
        return response


def _is_final(error: KafkaError) -> bool:
    """Return whether to raise the error at once, although ``is_retriable`` may call it retriable.

    There are two exceptions. Undecodable bytes are reported at once instead of at the deadline. If the caller names a
    broker that is not in the cluster, a wait would only delay the error.
    """
    if isinstance(error, ProtocolError):
        return True
    if isinstance(error, BrokerError) and error.code is ErrorCode.BROKER_NOT_AVAILABLE:
        return True
    return not is_retriable(error)
