"""Sends requests to the coordinator of a transactional id, and repeats each until its answer is definite."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...aio.retry import Backoff, is_retriable
from ...cluster.client import Client
from ...cluster.coordinator_channel import CoordinatorChannel
from ...cluster.coordinators import CoordinatorKind
from ...errors import CommitFailed, ConnectionLost, ErrorCode, KafkaError
from ...net.connection import Purpose
from ...protocol.schema import Request
from ...protocol.versions import VersionTable
from ...types import Node
from ..transactional_ids import TransactionalIds
from .requests import FEATURE, REQUIRED_BY_GENERATION_2, refused

logger = logging.getLogger(__name__)

R = TypeVar("R")

CONCURRENT_PAUSE = 0.001
"""Seconds before a request that met CONCURRENT_TRANSACTIONS is sent again. Writing the markers of the previous
transaction takes about a millisecond. With the 20 ms of Java's client, a transaction would wait for most of its time.
The pause doubles, up to ``LONGEST_CONCURRENT_PAUSE``.

If the code stays, for example because a partition of the previous transaction has no leader, the request is sent about
six times a second. The attempts have no other limit: callers wait until their timeouts, and closing the producer ends
the attempts."""

LONGEST_CONCURRENT_PAUSE = 0.2

_PREVIOUS_IS_OPEN = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNSTABLE_OFFSET_COMMIT)
"""The codes of a request that came before the previous transaction was complete."""

_PLACE = "transactions"
"""The name under which failed attempts are counted as an outage."""


class TransactionChannel:
    """Sends the requests of one transactional id. ``ids`` is notified when an answer is lost.

    ``last_error`` is the last error that was retried; None after a success.
    """

    def __init__(
        self, client: Client, transactional_id: str, transaction_timeout: float, ids: TransactionalIds
    ) -> None:
        self.last_error: KafkaError | None = None
        self._client = client
        self._transactional_id = transactional_id
        self._transaction_timeout = transaction_timeout
        self._ids = ids
        self._channel = CoordinatorChannel(client, transactional_id, CoordinatorKind.TRANSACTION)
        self._versions: VersionTable | None = None  # of the last connection
        self._level = 0

    @property
    def generation(self) -> int:
        """The generation of the protocol that the cluster has finalized, as the last connection reported it."""
        return 2 if self._level >= 2 else 1

    @property
    def node(self) -> Node | None:
        """The coordinator, if it is known."""
        return self._client.known_coordinator(self._transactional_id, CoordinatorKind.TRANSACTION)

    async def send(self, build: Callable[[VersionTable], Request[R]], *, at_most: int | None = None) -> tuple[R, int]:
        """Make one attempt. Stores the versions of the connection, and the level of the feature that it reports."""

        def noted(versions: VersionTable) -> Request[R]:
            if versions is not self._versions:  # the versions of another connection
                # A proxy may limit the versions of a cluster that has finalized generation 2.
                is_possible = all(map(versions.supports, REQUIRED_BY_GENERATION_2))
                self._level = versions.level(FEATURE) if is_possible else 0
                self._versions = versions
            return build(versions)

        timeout = self._client.config.request_timeout
        return await self._channel.send(noted, purpose=Purpose.OTHER, timeout=timeout, at_most=at_most)

    def noted(self, code: int, node_id: int) -> ErrorCode:
        """Take note of the code of an answer, which may say that another broker is the coordinator."""
        known = ErrorCode.of(code)
        self._channel.record((known,), node_id)
        return known

    async def repeat(
        self,
        what: str,
        attempt: Callable[[], Awaitable[ErrorCode]],
        is_wanted: Callable[[], bool] = lambda: True,
        *,
        is_outdating: bool = True,
        channel: CoordinatorChannel | None = None,
        on_lost: Callable[[], None] = lambda: None,
        on_failed: Callable[[KafkaError], None] = lambda error: None,
        refused_item: Callable[[], str] = lambda: "",
        waits_out: Callable[[KafkaError], bool] = lambda error: False,
    ) -> None:
        """Repeat an attempt until it succeeds, or is no longer needed. Raises an error if a retry cannot help.

        ``is_outdating``: a lost answer makes the epoch outdated, and calls ``on_lost``. ``channel`` is the channel that
        the attempt uses, by default the channel of the transactional id. ``on_failed`` gets each error before the
        pause. ``refused_item`` names the item with the code that the attempt returned, for the text of the error.
        ``waits_out`` returns whether to retry an error that is not retriable.
        """
        backoff = self._client.retry_backoff()
        concurrent = Backoff(CONCURRENT_PAUSE, LONGEST_CONCURRENT_PAUSE, random=self._client.runtime.random)
        outages = self._client.outages
        while is_wanted():
            pauses = backoff
            is_sent = False
            try:
                await (channel or self._channel).find()  # so that ``attempt`` does not wait for the lookup
                is_sent = True
                code = await attempt()
            except CommitFailed:
                raise
            except KafkaError as error:
                # A request that was never written to the socket cannot arrive late.
                if is_outdating and is_sent and not (isinstance(error, ConnectionLost) and not error.sent):
                    self._ids.is_outdated = True
                    on_lost()
                if not (is_retriable(error) or waits_out(error)):
                    raise
                failure: KafkaError = error
            else:
                if code is ErrorCode.NONE:
                    self.last_error = None
                    outages.recovered(logger, _PLACE, "the transaction coordinator answers")
                    return
                failure = refused(code, what + refused_item(), self._transactional_id, self._transaction_timeout)
                if not (code.retriable or waits_out(failure)):
                    raise failure
                if code in _PREVIOUS_IS_OPEN:
                    pauses = concurrent
            self.last_error = failure
            on_failed(failure)
            pause = pauses.next()
            if pauses is concurrent:  # normal after a transaction, so it is not an outage
                logger.debug("%s; next attempt in %.3f s", failure, pause)
            else:
                message, problem = "%s failed: %s; next attempt in %.2f s", f"its transaction waits: {failure}"
                why = str(failure).removeprefix(f"{what}: ")
                outages.report(logger, _PLACE, failure, message, what, why, pause, problem=problem)
            await asyncio.sleep(pause)
