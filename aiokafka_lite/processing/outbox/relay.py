"""Sends the rows of an outbox to Kafka, and deletes those that are acknowledged.

Rules of this file:

Rule 1: A row is deleted only after its acknowledgement, so none is lost. It may be sent again: after a crash between
        the two, or when the connection to the database is lost while the row is in flight.
Rule 2: A row is sent only if no row of its lane (key and topic) before it is in flight or waits for another attempt.
        ``RowSender`` and the statement that reads see to that. If a row fails after the next rows of its lane were
        written all the same, they are sent again behind it.
Rule 3: What is known about rows (in flight, or acknowledged and not yet deleted) outlives a session of the database.
        So a restart of the database repeats no row that this relay has sent, unless another relay was faster.
Rule 4: No wait for brokers is longer than a second. A row whose broker does not answer keeps its lane only, and this
        relay counts the others in time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import AsyncExitStack
from typing import Any

import anyio

from ...aio import forks
from ...aio.retry import Backoff, is_momentary, is_retriable
from ...arguments import must_be, plural, text, whole
from ...errors import ConfigurationError, IllegalStateError, UnknownTopic
from ...producer import Producer
from .postgres import Attempt, OutboxSession, PostgresOutbox
from .rows import FailedRow, OutboxRow, Outcome
from .sender import PATIENCE, RowSender

logger = logging.getLogger(__name__)

POLL_INTERVAL = 1.0
"""Seconds between two looks at the table without a notification, and between two looks at the other relays."""

FIRST = 100
"""Rows of the first read, whose size is not known yet."""

READ_BYTES = 8 << 20
"""The bytes of one read, estimated from the rows of the read before it."""

MOST_IN_FLIGHT = 20_000
"""Rows in flight above which nothing is read. They are that many only if brokers do not answer."""

SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a row is tried again after a failure. The pause doubles with each failure of the row."""

REFUSED_PAUSE = 5.0
"""Seconds before a row is tried again after a refusal that does not count, such as a missing permission."""

CONNECT_TIMEOUT = 10.0
"""Seconds for getting a connection of the pool, which may have none left."""

STATEMENT_TIMEOUT = 60.0
"""Seconds after which a connection to the database counts as lost."""

CLOSE_TIMEOUT = 5.0
"""Seconds that a cancelled relay waits for the acknowledgements of rows in flight."""

ERROR_LENGTH = 1000
"""The characters of an error that are written to the table."""


class OutboxRelay:
    """Sends the rows of an outbox to Kafka, in order by key, and deletes each row after its acknowledgement.

    ::

        async with asyncpg.create_pool(dsn) as pool, Producer(servers) as producer:
            await OutboxRelay(producer, PostgresOutbox(pool)).run()

    Several relays may work on one table, in any processes: each takes a share of the keys, and takes over the shares of
    those that end. New rows are seen by LISTEN and NOTIFY, and by a look at the table each second.

    A row that cannot be sent (too large, unknown topic, wrong headers) is tried ``max_attempts`` times, after pauses of
    1 to 60 s, and is then set aside: it stays in the table with ``failed_at`` and ``error``, and an ERROR is logged.
    Until then it blocks the rows of its key in its topic, and no others. Timeouts, lost connections and refused
    permissions never count as attempts.

    Each record has the header ``id_header`` with the id of its row, as decimal text, because rows may be sent again
    after a crash. ``batch_size`` is the most rows of one read. The producer must wait for all replicas and must not be
    transactional; other code may use it as well.

    Raises ConfigurationError for a wrong producer or outbox, and TypeError or ValueError for another wrong argument.
    """

    def __init__(
        self,
        producer: Producer[Any, Any],
        outbox: PostgresOutbox,
        *,
        max_attempts: int = 10,
        batch_size: int = 2000,
        id_header: str = "outbox-id",
    ) -> None:
        if not isinstance(producer, Producer):
            raise ConfigurationError(must_be("producer", "a Producer", producer))
        if not isinstance(outbox, PostgresOutbox):
            raise ConfigurationError(must_be("outbox", "a PostgresOutbox", outbox))
        if producer.config.transactional_id is not None:
            raise ConfigurationError("producer must have no transactional_id: rows are not sent in a transaction")
        if not producer.config.waits_for_all:
            raise ConfigurationError("producer must have acks='all': a row is deleted after its acknowledgement")
        self._outbox = outbox
        self._max_attempts = whole("max_attempts", max_attempts, 1)
        self._batch_size = whole("batch_size", batch_size, 1, MOST_IN_FLIGHT)
        self._sender = RowSender(producer, text("id_header", id_header))
        self._count = min(FIRST, self._batch_size)
        self._sent: dict[int, OutboxRow] = {}  # acknowledged, and perhaps not deleted yet
        self._wake = asyncio.Event()
        self._is_stopped = False
        self._process: int | None = None  # the fork generation of the process that runs
        self._backoff = Backoff(0.05, 5.0)
        self._balanced_at = -math.inf
        self.sent_count = 0
        """Rows that were acknowledged."""
        self.set_aside_count = 0
        """Rows that were set aside after ``max_attempts``."""

    def __repr__(self) -> str:
        in_flight = len(self._sender.in_flight)
        return f"<OutboxRelay {self._outbox!r} sent={self.sent_count} in_flight={in_flight}>"

    # The user's calls.

    async def run(self) -> None:
        """Send rows until ``stop``. A restart of the database or of brokers, and lost connections, do not end it.

        When cancelled, waits at most 5 s for the acknowledgements of rows in flight, so that they are not sent again.
        Raises ConfigurationError if the table is missing, IllegalStateError if the producer is closed or the relay runs
        already, and the errors of the database that do not pass.
        """
        if self._process is not None:
            forks.check_process(self, self._process)
            raise IllegalStateError(f"{self!r} runs already")
        self._process = forks.generation
        failure: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._listen)
                try:
                    await self._work_in_sessions()
                except Exception as error:  # noqa: BLE001 - raised below, and not as a group
                    failure = error
                tasks.cancel_scope.cancel()
        finally:
            self._process = None
        if failure is not None:
            raise failure

    def stop(self) -> None:
        """Read no more rows. ``run`` returns when those in flight are settled, and those that were sent are deleted."""
        if self._process is not None:
            forks.check_process(self, self._process)
        self._is_stopped = True
        self._wake.set()

    # Sessions of the database.

    async def _work_in_sessions(self) -> None:
        while not self._is_finished():
            try:
                await self._work()
            except Exception as error:
                if not self._outbox.is_transient(error):
                    raise
                pause = self._backoff.next()
                logger.warning("%r has no session of the database, and tries again in %.2g s: %r", self, pause, error)
                await asyncio.sleep(pause)

    async def _work(self) -> None:
        """Work in one session of the database, until it ends or the relay is finished."""
        if self._sent:
            async with asyncio.timeout(STATEMENT_TIMEOUT):
                await self._outbox.delete(self._sent.values())
            self._sent.clear()
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                session = await stack.enter_async_context(self._outbox.session())
            self._balanced_at = -math.inf
            try:
                while not self._is_finished():
                    self._wake.clear()
                    if not await self._turn(session):
                        with anyio.move_on_after(PATIENCE if self._sender.in_flight else POLL_INTERVAL):
                            await self._wake.wait()
            except asyncio.CancelledError:
                await self._finish(session)
                raise

    def _is_finished(self) -> bool:
        return self._is_stopped and not self._sender.in_flight and not self._sent

    async def _turn(self, session: OutboxSession) -> bool:
        """Read rows and send them. Returns False if there were none."""
        rows = await self._read(session)
        await self._sender.send(rows)
        outcome = self._sender.take_outcome()
        await self._record(session, outcome)
        if rows:
            size = max(1, sum(row.size for row in rows) // len(rows))
            self._count = max(1, min(self._batch_size, READ_BYTES // size, 2 * self._count))
        if outcome.unsent and not outcome.sent:
            # With the default settings, these rows have waited for brokers for a long time. With ``retries=0``, not.
            await asyncio.sleep(self._backoff.next())
        else:
            self._backoff.reset()
        return bool(rows)

    async def _read(self, session: OutboxSession) -> list[OutboxRow]:
        now = asyncio.get_running_loop().time()
        in_flight = self._sender.in_flight
        async with asyncio.timeout(STATEMENT_TIMEOUT):
            if now >= self._balanced_at + POLL_INTERVAL:
                await session.balance(in_flight.shards())
                self._balanced_at = now
            if self._is_stopped or len(in_flight) >= MOST_IN_FLIGHT:
                return []
            return await session.read(self._count, in_flight.lanes)

    async def _record(self, session: OutboxSession, outcome: Outcome) -> None:
        """Write an outcome to the table: delete rows that were sent, and count attempts."""
        self._keep_sent(outcome)
        attempts = [attempt for failed in outcome.unsent if (attempt := self._attempt(failed)) is not None]
        async with asyncio.timeout(STATEMENT_TIMEOUT):
            if self._sent:
                await session.delete(self._sent.values())
                self._sent.clear()
            if attempts:
                await session.fail(attempts)
                self._log(attempts)

    def _keep_sent(self, outcome: Outcome) -> None:
        self._sent.update((row.id, row) for row in outcome.sent)
        self.sent_count += len(outcome.sent)

    async def _finish(self, session: OutboxSession) -> None:
        """Wait for rows in flight after a cancellation, and delete those that were sent."""
        with anyio.CancelScope(shield=True):
            await self._sender.wait_settled(CLOSE_TIMEOUT)
        self._keep_sent(self._sender.take_outcome())
        if not self._sent:
            return
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            try:
                try:
                    await session.delete(self._sent.values())
                except Exception:  # noqa: BLE001 - a cancelled statement may have ended the connection
                    await self._outbox.delete(self._sent.values())
                self._sent.clear()
            except Exception as error:  # noqa: BLE001 - the rows are sent again
                logger.warning("%r could not delete %s: %r", self, plural(len(self._sent), "sent row"), error)

    async def _listen(self) -> None:
        """Wake ``run`` after notifications. Without them it looks at the table each second."""
        while True:
            try:
                await self._outbox.listen(self._wake.set)
            except Exception as error:  # noqa: BLE001 - if it does not pass, ``run`` raises the same error
                logger.info("%r does not hear of new rows: %r", self, error)
            await asyncio.sleep(POLL_INTERVAL)

    # Failures.

    def _attempt(self, failed: FailedRow) -> Attempt | None:
        """Return what to write about a failed row. None if it may be sent again at once."""
        row, error = failed
        is_unknown = isinstance(error, UnknownTopic)
        if is_retriable(error) and not is_unknown:
            return None
        description = f"{type(error).__name__}: {error}"[:ERROR_LENGTH]
        if is_momentary(error) and not is_unknown:
            return Attempt(row, row.attempts, description, REFUSED_PAUSE)
        number = row.attempts + 1
        pause = min(LONGEST_PAUSE, SHORTEST_PAUSE * 2.0 ** min(number - 1, 10))
        return Attempt(row, number, description, None if number >= self._max_attempts else pause)

    def _log(self, attempts: list[Attempt]) -> None:
        aside = [attempt for attempt in attempts if attempt.pause is None]
        again = [attempt for attempt in attempts if attempt.pause is not None]
        self.set_aside_count += len(aside)
        for some, level, what in ((aside, logging.ERROR, "set aside"), (again, logging.WARNING, "tried again")):
            if some:
                row = some[0].row
                others = f" and {plural(len(some) - 1, 'other row')}" if len(some) > 1 else ""
                logger.log(
                    level,
                    "%r: row %d for topic %r%s: %s after %s: %s",
                    *(self, row.id, row.topic, others, what, plural(some[0].number, "attempt"), some[0].error),
                )
