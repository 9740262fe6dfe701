"""``Workers``: processes many records of a consumer group at once, and marks them in the order of their offsets.

``ClaimWork`` does the work on one partition. This module has what the user sees, and what all partitions share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, overload

import anyio

from ..aio import forks
from ..aio.runtime import wall_clock
from ..arguments import check_function, check_seconds, check_timeout, must_be, whole
from ..consumer import Claim, ConsumerGroupHandler, ConsumerGroupSession
from ..errors import ConfigurationError, IllegalStateError
from ..producer import Producer
from ..snapshot import Counter, Gauge, Snapshot
from ..types import K, Record, V
from .breaker import CircuitBreaker, Gate
from .calls import call_of
from .claim_work import ClaimWork, Plan, Shared
from .failed_records import FailedRecords
from .rules import Decide, Rule, Rules

ORDERS = ("key", "partition", "none")

Handle = Callable[[Record[K, V]], object]
HandleBatch = Callable[[list[Record[K, V]]], object]


@dataclass(frozen=True, slots=True)
class WorkersMetrics(Snapshot):
    """Counters of a ``Workers`` since its creation, and the number of records that it processes now."""

    pending: Annotated[int, Gauge("records.pending", "Records that were read and are not finished.")]
    active: Annotated[int, Gauge("records.active", "Records whose function runs now.")]
    processed: Annotated[int, Counter("records.processed", "Records whose function returned.")]
    retries: Annotated[int, Counter("retries", "Attempts after the first one of a record.")]
    failed: Annotated[int, Counter("records.failed", "Records whose last attempt failed.")]
    finished_before: Annotated[
        int, Counter("records.finished.before", "Records that were finished before this member read them.")
    ]
    paused: Annotated[
        int, Gauge("paused", "1 while no further record begins: the group is paused, or a probe runs. 0 otherwise.")
    ]
    breaker_openings: Annotated[
        int, Counter("breaker.openings", "Times that the circuit breaker has opened, also after a failed probe.")
    ]


class Workers(ConsumerGroupHandler[K, V]):
    """A handler for ``ConsumerGroup.consume`` that processes up to ``concurrency`` records at once.

    ::

        async def bill(record: Record) -> None: ...

        group = ConsumerGroup(servers, group_id="billing")
        rules = [retry(attempts=5), retry_topic(topics={"orders.retry": 60.0}), dead_letter(topic="orders.dead")]
        workers = Workers(bill, concurrency=64, rules=rules, producer=producer)
        await group.consume(["orders", *workers.retry_topics], workers)

    ``order`` says which records wait for one another. With ``"key"``, records with the same key wait; records without a
    key do not. With ``"partition"``, records of the same partition wait. With ``"none"``, no record waits. Offsets are
    committed up to the first record that is not finished. So after a crash or a rebalance a record may be processed
    again, but no record is skipped (at least once).

    With ``batch_size``, ``handle`` gets a list of up to so many records of one partition, in the order of their
    offsets, and ``concurrency`` is the number of lists at once. A list may have several records of a key, and no other
    list has records of this key at the same time. A list that is not full waits ``batch_timeout`` seconds for more
    records. ``handle`` may raise ``BatchFailure(index, error)`` to name the record that failed. After another
    exception, a rule ``retry`` repeats the whole list, and before any other rule except ``stop`` each record is
    processed alone, to find the one that fails.

    An async ``handle`` runs in the event loop. A plain one runs in a thread, or in a process or an interpreter of
    ``executor``, a ``ProcessPoolExecutor`` or ``InterpreterPoolExecutor``: then function, records and exceptions must
    be picklable. Give the executor as many workers as ``concurrency``, and shut it down yourself. Nothing can stop a
    thread or a process. At the ``timeout``, ``anyio.from_thread.check_cancelled()`` raises in the thread, and the
    record waits for the end of the function in any case. With ``executor`` there is no ``timeout``. If the executor
    breaks or is shut down, ``consume`` ends with its error. When time for a rebalance or a close is over, functions
    are left running, and their records are processed again.

    An attempt fails if it raises, or takes longer than ``timeout`` seconds. ``rules`` decide what happens to the
    record: ``retry``, ``retry_topic``, ``dead_letter``, ``skip`` and ``stop`` of ``aiokafka_lite.processing``, or
    functions of the error, the record and the number of its failed attempts that return one of these, or None. The
    first rule that matches and has something left to try decides. Without one, ``consume`` ends with the exception, and
    the record is not committed. Records that a deserializer refuses are subject to the rules too; functions get them as
    bytes. ``producer`` sends the records of ``retry_topic`` and ``dead_letter``, with the key and value that they have
    in the log. If it cannot send one, ``consume`` ends with its error, so no failed record is lost. It must not be
    transactional, and not have ``acks=0``.

    A ``breaker`` pauses the group when what ``handle`` calls is away, and probes with one record: see
    ``CircuitBreaker``. While it is open, or ``ConsumerGroup.pause`` was called, no further record begins.

    Each attempt begins with a copy of the context variables of ``consume``, so a variable that it sets is seen by no
    other record. Functions of ``rules`` run in the context of the attempt that failed.

    In each partition, at most ``max_pending`` records are read after the first unfinished one. When partitions are
    revoked, no further record begins, and records in progress must end before the rebalance timeout of the group. When
    the group is closed, they have 1.5 seconds: call ``drain()`` before ``close()`` if they need more time.

    Raises ConfigurationError for wrong arguments, for conflicting rules, and for a ``handle`` that is no function of
    one argument. One ``Workers`` serves one ``ConsumerGroup`` at a time: ``consume`` of another one raises
    IllegalStateError.
    """

    @overload
    def __init__(
        self,
        handle: Handle[K, V],
        *,
        concurrency: int = 64,
        order: Literal["key", "partition", "none"] = "key",
        executor: Executor | None = None,
        rules: Sequence[Rule | Decide] = (),
        breaker: CircuitBreaker | None = None,
        producer: Producer[Any, Any] | None = None,
        timeout: float | None = None,
        max_pending: int = 1000,
        clock: Callable[[], float] = wall_clock,
    ) -> None: ...

    @overload
    def __init__(
        self,
        handle: HandleBatch[K, V],
        *,
        batch_size: int,
        batch_timeout: float = 0.0,
        concurrency: int = 64,
        order: Literal["key", "partition", "none"] = "key",
        executor: Executor | None = None,
        rules: Sequence[Rule | Decide] = (),
        breaker: CircuitBreaker | None = None,
        producer: Producer[Any, Any] | None = None,
        timeout: float | None = None,
        max_pending: int = 1000,
        clock: Callable[[], float] = wall_clock,
    ) -> None: ...

    def __init__(
        self,
        handle: Handle[K, V] | HandleBatch[K, V],
        *,
        concurrency: int = 64,
        order: Literal["key", "partition", "none"] = "key",
        batch_size: int | None = None,
        batch_timeout: float = 0.0,
        executor: Executor | None = None,
        rules: Sequence[Rule | Decide] = (),
        breaker: CircuitBreaker | None = None,
        producer: Producer[Any, Any] | None = None,
        timeout: float | None = None,
        max_pending: int = 1000,
        clock: Callable[[], float] = wall_clock,
    ) -> None:
        call = call_of(handle, "record" if batch_size is None else "list of records", executor)
        check_function("clock", clock)
        if order not in ORDERS:
            raise ConfigurationError(must_be("order", "'key', 'partition' or 'none'", order))
        check_timeout(timeout)
        if timeout is not None and timeout <= 0:
            raise ConfigurationError(must_be("timeout", "a number of seconds > 0, or None", timeout))
        if timeout is not None and executor is not None:
            raise ConfigurationError(
                "timeout cannot end a function in an executor: leave it out, and give what the function calls a timeout"
            )
        checked = Rules(rules)
        if producer is None and checked.needs_producer:
            raise ConfigurationError("retry_topic() and dead_letter() need a producer: Workers(..., producer=...)")
        if producer is not None and not isinstance(producer, Producer):
            raise ConfigurationError(must_be("producer", "a Producer", producer))
        if producer is not None and producer.config.transactional_id is not None:
            raise ConfigurationError("producer must have no transactional_id: records are not sent on in a transaction")
        if producer is not None and producer.config.acks == 0:
            raise ConfigurationError("producer must not have acks=0: a record is finished after its acknowledgement")
        self._name = getattr(handle, "__qualname__", handle)
        most = whole("max_pending", max_pending, 1)
        if batch_size is not None and whole("batch_size", batch_size, 1) > most:
            raise ConfigurationError(
                f"batch_size={batch_size} must be at most max_pending={most}: no more records of a partition wait at a "
                f"time, so a list would never be full"
            )
        self._plan = Plan(
            call=call,
            order=order,
            rules=checked,
            failed_records=None if producer is None else FailedRecords(producer, checked.delays),
            timeout=timeout,
            max_pending=most,
            concurrency=whole("concurrency", concurrency, 1),
            batch_size=batch_size,
            batch_timeout=_checked_batch_timeout(batch_timeout, batch_size),
            clock=clock,
        )
        if breaker is not None and not isinstance(breaker, CircuitBreaker):
            raise ConfigurationError(must_be("breaker", "a CircuitBreaker", breaker))
        self._shared = Shared(Gate(breaker))
        self._claims: set[ClaimWork[K, V]] = set()
        self._is_draining = False

    def __repr__(self) -> str:
        return f"<Workers {self._name} {self._metrics()}>"

    @property
    def retry_topics(self) -> list[str]:
        """The topics of ``retry_topic`` in the rules. The group must read them too."""
        return list(self._plan.rules.delays)

    async def setup(self, session: ConsumerGroupSession) -> None:
        """Raise ConfigurationError for a group with ``auto_commit=False``, because nothing would commit the marks.

        Override ``setup`` if your program commits the marks with the session.
        """
        if not session.offsets.auto_commit:
            raise ConfigurationError(
                "Workers need a ConsumerGroup with auto_commit=True, otherwise nothing commits the processed records; "
                "no other record is committed"
            )

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim[K, V]) -> None:
        """Process the records of one partition; ``ConsumerGroup`` calls it."""
        if self._is_draining:
            return
        if not self._claims:  # this session may run in another event loop than the last one
            self._shared.slots = asyncio.Semaphore(self._plan.concurrency)
            self._shared.gate.attach(session.group_pause)
        elif not self._shared.gate.is_attached_to(session.group_pause):
            raise IllegalStateError(f"{self!r} serves another ConsumerGroup now: make one Workers for each group")
        work = ClaimWork(replace(self._plan, interceptors=session.interceptors), self._shared, session, claim)
        self._claims.add(work)
        try:
            await work.run()
        finally:
            work.annotate()
            self._claims.discard(work)
            if not self._claims:
                self._shared.gate.detach()
            work.ended.set()

    def before_commit(self, session: ConsumerGroupSession) -> None:
        """Add the offsets that are finished ahead of the first unfinished one; ``ConsumerGroup`` calls it."""
        for work in self._claims:
            work.annotate()

    async def drain(self, *, timeout: float | None = None) -> bool:
        """Begin no further record, and wait until the records in progress are finished and marked.

        Close the group afterwards, which commits the marks. Returns False if the records were not finished within
        ``timeout`` seconds. A drained ``Workers`` processes no more records; make a new one for another ``consume``.
        Raises IllegalStateError if ``handle`` or a rule calls it, because the function would wait for itself.
        """
        check_timeout(timeout)
        self._check_process()
        if any(work.is_own_task() for work in self._claims):
            raise IllegalStateError(f"{self!r}: drain() cannot be called by the function that it waits for")
        self._is_draining = True
        claims = list(self._claims)
        for work in claims:
            work.stop()
        with anyio.move_on_after(timeout):
            for work in claims:
                await work.ended.wait()
        return not self._claims

    def in_progress(self) -> list[tuple[Record[K, V], float]]:
        """Return the records whose function runs now, with the loop's time at which it began."""
        self._check_process()
        return [(item.record, began) for work in self._claims for item, began in work.active.items()]

    def metrics(self) -> WorkersMetrics:
        """Return the present counters."""
        self._check_process()
        return self._metrics()

    def _metrics(self) -> WorkersMetrics:
        counts, claims = self._shared, self._claims
        pending = sum(work.unfinished for work in claims)
        paused = int(bool(claims) and not counts.gate.may_begin)
        return WorkersMetrics(
            *(pending, counts.active, counts.processed, counts.retries, counts.failed, counts.skipped),
            *(paused, counts.gate.openings),
        )

    def _check_process(self) -> None:
        for work in self._claims:
            forks.check_process(self, work.process)


def _checked_batch_timeout(timeout: float, batch_size: int | None) -> float:
    check_seconds("batch_timeout", timeout)
    if timeout and batch_size is None:
        raise ConfigurationError("batch_timeout needs batch_size: without it, handle gets single records at once")
    return timeout
