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
from ...errors import BrokerError, CommitFailed, ConnectionLost, ErrorCode, KafkaError
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

    async def send(
        self,
        build: Callable[[VersionTable], Request[R]],
        *,
        at_most: int | None = None,
        may_arrive_late: bool = True,
    ) -> tuple[R, int]:
        """Make one attempt. Returns the answer and the id of the node that sent it.

        Stores the versions of the connection, and the level of the feature that it reports. ``may_arrive_late``: the
        request changes the transaction, so after a lost answer the next transaction needs another epoch.
        """

        def built(versions: VersionTable) -> Request[R]:
            self._note(versions)
            return build(versions)

        timeout = self._client.config.request_timeout
        await self._channel.find()  # before the ``try``, because a failed lookup has sent nothing
        try:
            return await self._channel.send(built, purpose=Purpose.OTHER, timeout=timeout, at_most=at_most)
        except KafkaError as error:
            if may_arrive_late and may_arrive(error):
                self._ids.answer_lost()
            raise

    def send_at_once(
        self,
        build: Callable[[VersionTable], Request[R]],
        on_answer: Callable[[R | Exception, int], object],
        *,
        at_most: int | None = None,
        is_bounded: bool = False,
    ) -> bool:
        """Send on the open connection to the known coordinator. Returns False, and sends nothing, if there is none.

        ``on_answer`` is called with the answer, or the error of ``send``, and the id of the node. It must not raise.
        ``is_bounded``: the request changes nothing, and the caller waits for its answer only for a moment.
        """

        def built(versions: VersionTable) -> Request[R]:
            self._note(versions)
            return build(versions)

        def answered(answer: R | Exception, node_id: int) -> None:
            if not is_bounded and isinstance(answer, KafkaError) and may_arrive(answer):
                self._ids.answer_lost()
            on_answer(answer, node_id)

        timeout = self._client.config.request_timeout
        return self._channel.send_at_once(
            built, answered, purpose=Purpose.OTHER, timeout=timeout, at_most=at_most, is_bounded=is_bounded
        )

    def _note(self, versions: VersionTable) -> None:
        if versions is not self._versions:  # the versions of another connection
            # A proxy may limit the versions of a cluster that has finalized generation 2.
            is_possible = all(map(versions.supports, REQUIRED_BY_GENERATION_2))
            self._level = versions.level(FEATURE) if is_possible else 0
            self._versions = versions

    def refusal(self, code: int, node_id: int, what: str) -> BrokerError | None:
        """Return the error of an answer with this code; None for a success. NOT_COORDINATOR drops the cached node."""
        error_code = ErrorCode.of(code)
        self._channel.record((error_code,), node_id)
        return self.error(error_code, what)

    def error(self, code: ErrorCode, what: str) -> BrokerError | None:
        """Return the error of a request of the transaction with this code; None for a success."""
        if code is ErrorCode.NONE:
            return None
        return refused(code, what, self._transactional_id, self._transaction_timeout)

    async def repeat(
        self,
        what: str,
        attempt: Callable[[], Awaitable[BrokerError | None]],
        is_needed: Callable[[], bool],
        *,
        retries: Callable[[KafkaError], bool] = is_retriable,
        on_failed: Callable[[KafkaError], object] | None = None,
    ) -> None:
        """Repeat an attempt until it succeeds, or is no longer needed. Raises an error that a retry cannot fix.

        ``attempt`` returns the refusal of the broker, None for a success, or raises if there is no answer. ``retries``
        returns whether a retry may help after an error. ``on_failed`` gets each such error before the pause.
        """
        backoff = self._client.retry_backoff()
        concurrent = Backoff(CONCURRENT_PAUSE, LONGEST_CONCURRENT_PAUSE, random=self._client.runtime.random)
        outages = self._client.outages
        while is_needed():
            try:
                failure: KafkaError | None = await attempt()
            except CommitFailed:
                raise
            except KafkaError as error:
                failure = error
            if failure is None:
                self.succeeded()
                return
            if not retries(failure):
                raise failure
            self.last_error = failure
            if on_failed is not None:
                on_failed(failure)
            # Normal after a transaction, so it is not an outage.
            if isinstance(failure, BrokerError) and failure.code in _PREVIOUS_IS_OPEN:
                pause = concurrent.next()
                logger.debug("%s; next attempt in %.3f s", failure, pause)
            else:
                pause = backoff.next()
                message, problem = "%s failed: %s; next attempt in %.2f s", f"its transaction waits: {failure}"
                why = str(failure).removeprefix(f"{what}: ")
                outages.report(logger, _PLACE, failure, message, what, why, pause, problem=problem)
            await asyncio.sleep(pause)

    def succeeded(self) -> None:
        """Record that the coordinator has done what was asked of it."""
        self.last_error = None
        self._client.outages.recovered(logger, _PLACE, "the transaction coordinator answers")


def may_arrive(error: KafkaError) -> bool:
    """Return whether a request that failed with this error may reach the broker later: it was written to the socket."""
    return not (isinstance(error, ConnectionLost) and not error.sent)
