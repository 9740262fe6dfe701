"""``Workers``: processes many records of a consumer group at once, and marks them in the order of their offsets.

The steps of a record, in the claim of its partition:

1. The claim reads the record and adds it to its ``_Progress``. A lane has the records of one key, or of the whole
   partition. If an earlier record of its lane is unfinished, the record waits. Otherwise the record is ready.
2. One of the claim's tasks takes the ready record. There are as many tasks as ready records, at most ``concurrency``; a
   task ends when no record is ready. All claims share slots. A task holds a slot while the user's function runs.
3. A record whose attempt failed is ready again after a pause. It holds no task and no slot during the pause.
4. A processed record is finished in the ``_Progress``, which marks the partition up to the first unfinished record. So
   a commit never covers a record that is not processed. Then the next record of the lane is ready.

Rules:

- A record is marked only after the user's function, or ``on_failure``, has completed for it. A record whose processing
  has not begun when the session ends is dropped: the next owner of the partition reads it again.
- Each attempt runs in a copy of the context in which the claim began, so a context variable that it sets is seen by no
  other record and no other attempt. ``on_failure`` runs in the context of the last attempt, whose record it settles.
- ``on_failure`` is awaited inside the lane: a later record of the same key waits until the failed one is settled.
- A claim that fails lets the records in progress complete before it raises. The records before the failed one are
  marked.
- A position moves back if the log was truncated or the topic was created again. Records that were read before are not
  marked, because their offsets now belong to other records.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal

import anyio

from ..aio import forks
from ..aio.light_event import LightEvent
from ..aio.retry import Backoff
from ..aio.runtime import wall_clock
from ..aio.user_context import InContext
from ..arguments import check_function, check_timeout, must_be, whole
from ..consumer import Claim, ConsumerGroupHandler, ConsumerGroupSession
from ..consumer.group.callbacks import wait
from ..errors import ConfigurationError, IllegalStateError
from ..snapshot import Counter, Gauge, Snapshot
from ..types import K, Record, V

logger = logging.getLogger(__name__)

ORDERS = ("key", "partition", "none")

Handle = Callable[[Record[K, V]], Awaitable[object]]
OnFailure = Callable[[Record[K, V], Exception], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class WorkersMetrics(Snapshot):
    """Counters of a ``Workers`` since its creation, and the number of records that it processes now."""

    pending: Annotated[int, Gauge("records.pending", "Records that were read and are not finished.")]
    active: Annotated[int, Gauge("records.active", "Records whose function runs now.")]
    processed: Annotated[int, Counter("records.processed", "Records whose function returned.")]
    retries: Annotated[int, Counter("retries", "Attempts after the first one of a record.")]
    failed: Annotated[int, Counter("records.failed", "Records whose last attempt failed.")]


class Workers(ConsumerGroupHandler[K, V]):
    """A handler for ``ConsumerGroup.consume`` that processes up to ``concurrency`` records at once.

    ::

        async def bill(record: Record) -> None: ...

        group = ConsumerGroup(servers, group_id="billing")
        await group.consume(["orders"], Workers(bill, concurrency=64))

    ``order`` says which records wait for one another. With ``"key"``, records with the same key wait; records without a
    key do not. With ``"partition"``, records of the same partition wait. With ``"none"``, no record waits. Offsets are
    committed up to the first record that is not finished. So after a crash or a rebalance a record may be processed
    again, but no record is skipped (at least once).

    An attempt fails if it raises, or takes longer than ``timeout`` seconds. A record has ``attempts`` attempts in all.
    The pause between two attempts is ``backoff`` seconds, doubled each time up to ``max_backoff``. After the last one,
    ``on_failure`` decides. ``"raise"`` ends ``consume`` with the exception, and the record is not committed. ``"skip"``
    logs the exception and continues. An async function of the record and the exception, such as ``FailureTopics``,
    finishes the record when it returns. If the function has an attribute ``delays``, a mapping of topics to seconds,
    records of these topics wait for that time. If it has a method ``forward``, as ``FailureTopics``, that method is
    awaited instead, with the record, the exception, the record as it is in the log, and the name of the group.

    Each attempt begins with a copy of the context variables of ``consume``, so a variable that it sets is seen by no
    other record. ``on_failure`` runs in the context of the last attempt.

    In each partition, at most ``max_pending`` records are read after the first unfinished one. When partitions are
    revoked, no further record begins, and records in progress must end before the rebalance timeout of the group. When
    the group is closed, they have 1.5 seconds: call ``drain()`` before ``close()`` if they need more time.

    Raises ConfigurationError for wrong arguments. One ``Workers`` serves one ``ConsumerGroup`` at a time.
    """

    def __init__(
        self,
        handle: Handle[K, V],
        *,
        concurrency: int = 64,
        order: Literal["key", "partition", "none"] = "key",
        attempts: int = 1,
        backoff: float = 0.1,
        max_backoff: float = 10.0,
        timeout: float | None = None,
        on_failure: Literal["raise", "skip"] | OnFailure[K, V] = "raise",
        max_pending: int = 1000,
        clock: Callable[[], float] = wall_clock,
    ) -> None:
        check_function("handle", handle)
        check_function("clock", clock)
        if order not in ORDERS:
            raise ConfigurationError(must_be("order", "'key', 'partition' or 'none'", order))
        if on_failure not in ("raise", "skip") and (isinstance(on_failure, type) or not callable(on_failure)):
            raise ConfigurationError(must_be("on_failure", "'raise', 'skip' or an async function", on_failure))
        for name, value in (("backoff", backoff), ("max_backoff", max_backoff)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise ConfigurationError(must_be(name, "a number of seconds >= 0", value))
        check_timeout(timeout)
        if timeout is not None and timeout <= 0:
            raise ConfigurationError(must_be("timeout", "a number of seconds > 0, or None", timeout))
        self._plan = _Plan(
            handle=handle,
            order=order,
            attempts=whole("attempts", attempts, 1),
            backoff=Backoff(backoff, max_backoff),
            timeout=timeout,
            on_failure=on_failure,
            max_pending=whole("max_pending", max_pending, 1),
            concurrency=whole("concurrency", concurrency, 1),
            delays=getattr(on_failure, "delays", {}),
            forward=getattr(on_failure, "forward", None),
            check_origin=getattr(on_failure, "check_origin", None),
            clock=clock,
        )
        self._shared = _Shared()
        self._claims: set[_ClaimWork[K, V]] = set()
        self._is_draining = False

    def __repr__(self) -> str:
        name = getattr(self._plan.handle, "__qualname__", self._plan.handle)
        return f"<Workers {name} {self._metrics()}>"

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
        work = _ClaimWork(self._plan, self._shared, session, claim)
        self._claims.add(work)
        try:
            await work.run()
        finally:
            self._claims.discard(work)
            work.ended.set()

    async def drain(self, *, timeout: float | None = None) -> bool:
        """Begin no further record, and wait until the records in progress are finished and marked.

        Close the group afterwards, which commits the marks. Returns False if the records were not finished within
        ``timeout`` seconds. A drained ``Workers`` processes no more records; make a new one for another ``consume``.
        Raises IllegalStateError if ``handle`` or ``on_failure`` calls it, because the function would wait for itself.
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
        return WorkersMetrics(pending, counts.active, counts.processed, counts.retries, counts.failed)

    def _check_process(self) -> None:
        for work in self._claims:
            forks.check_process(self, work.process)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan(Generic[K, V]):
    """The checked arguments of a ``Workers``."""

    handle: Handle[K, V]
    order: str
    attempts: int
    backoff: Backoff
    timeout: float | None
    on_failure: str | OnFailure[K, V]
    max_pending: int
    concurrency: int
    delays: Mapping[str, float]
    forward: Callable[[Record[K, V], Exception, Record | None, str], Awaitable[object]] | None
    check_origin: Callable[[Record[K, V], str], object] | None
    clock: Callable[[], float]


@dataclass(slots=True)
class _Shared:
    """The counters of a ``Workers``, and the slots of its records in progress. All its claims share them."""

    slots: asyncio.Semaphore = field(init=False)
    active: int = 0
    processed: int = 0
    retries: int = 0
    failed: int = 0


_NO_LANE = object()


class _Item(Generic[K, V]):
    """A record that was read: its lane, its failed attempts, and whether it is finished."""

    __slots__ = ("failures", "finished", "lane", "progress", "raw", "record")

    def __init__(self, record: Record[K, V], lane: Hashable, progress: _Progress[K, V], raw: Record | None) -> None:
        self.record = record
        self.raw = raw  # only for an on_failure that forwards
        self.lane = lane
        self.progress = progress
        self.failures = 0
        self.finished = False


class _Progress(Generic[K, V]):
    """The records of one claim, in the order of their offsets, from the first unfinished one on."""

    def __init__(self, mark: Callable[[Record[K, V]], object]) -> None:
        self.last_offset = -1
        self._mark = mark
        self._items: deque[_Item[K, V]] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: _Item[K, V]) -> None:
        self._items.append(item)
        self.last_offset = item.record.offset

    def finish(self, item: _Item[K, V]) -> None:
        """Finish a processed record, and mark the partition up to the first unfinished record."""
        item.finished = True
        last = None
        while self._items and self._items[0].finished:
            last = self._items.popleft()
        if last is not None:
            self._mark(last.record)

    def mark_by(self, mark: Callable[[Record[K, V]], object]) -> None:
        self._mark = mark

    def retire(self) -> None:
        """Mark nothing from now on, because the position has moved back."""
        self._mark = lambda record: None


class _Pauses(Generic[K, V]):
    """The records of one claim that wait for another attempt. ``has_been_used``: any record has waited here."""

    def __init__(self) -> None:
        self.has_been_used = False
        self._timers: set[asyncio.TimerHandle] = set()
        self._due: asyncio.Queue[_Item[K, V] | None] = asyncio.Queue()
        """The records whose pause has ended, and None at the stop."""

    def begin(self, item: _Item[K, V], seconds: float) -> None:
        """Begin a pause, after which ``next`` returns the record."""
        self.has_been_used = True

        def end() -> None:
            self._timers.discard(timer)
            self._due.put_nowait(item)

        timer = asyncio.get_running_loop().call_later(seconds, end)
        self._timers.add(timer)

    async def next(self) -> _Item[K, V] | None:
        """Wait for a record whose pause has ended, and return it; None at the stop."""
        return await self._due.get()

    def stop(self) -> None:
        """Let ``next`` return None."""
        self._due.put_nowait(None)

    def cancel(self) -> None:
        for timer in self._timers:
            timer.cancel()


class _ClaimWork(Generic[K, V]):
    """The work on one claim: reads its records, and runs the tasks that process them. Owner: the ``Workers``."""

    def __init__(
        self,
        plan: _Plan[K, V],
        shared: _Shared,
        session: ConsumerGroupSession,
        claim: Claim[K, V],
    ) -> None:
        self.unfinished = 0
        self.active: dict[_Item[K, V], float] = {}
        """The records whose function runs now, with the loop's time at which it began."""
        self.process: int = forks.generation
        self.ended = LightEvent()
        self._plan = plan
        self._shared = shared
        self._session = session
        self._claim = claim
        self._progress: _Progress[K, V] = _Progress(session.mark)
        self._lanes: dict[Hashable, deque[_Item[K, V]]] = {}
        """The records that wait for an unfinished record of their lane."""
        self._ready: deque[_Item[K, V]] = deque()
        self._pauses: _Pauses[K, V] = _Pauses()
        self._tasks = anyio.create_task_group()
        self._starting = 0
        self._running: set[asyncio.Task[Any] | None] = set()
        self._has_room = LightEvent()
        self._is_stopping = False
        self._reading = anyio.CancelScope()
        self._failure: Exception | None = None
        # Copied before the claim is read: an interceptor may set variables while it reads.
        self._context = copy_context()

    def stop(self) -> None:
        """Begin no further record."""
        self._is_stopping = True
        self._reading.cancel()
        self._pauses.stop()

    def is_own_task(self) -> bool:
        """Return whether the caller is the user's function."""
        return asyncio.current_task() in self._running

    async def run(self) -> None:
        """Process the claim until its session ends or ``stop`` is called. Raises the first failure."""
        watching = anyio.CancelScope()
        try:
            async with self._tasks:
                self._tasks.start_soon(self._watch_session, watching)
                with self._reading:
                    try:
                        await self._read()
                    except Exception as error:  # noqa: BLE001 - raised when the records in progress are finished
                        self._fail(error)
                self.stop()
                watching.cancel()
        finally:
            self._pauses.cancel()
        if self._failure is not None:
            raise self._failure
        if self._tasks.cancel_scope.cancel_called:  # anyio cancels the scope if one of the tasks was cancelled
            raise IllegalStateError(
                f"{self._claim}: a task that processed records was cancelled from outside, and its record is not "
                f"finished; handle() and on_failure must not cancel the task that runs them"
            )

    async def _watch_session(self, watching: anyio.CancelScope) -> None:
        with watching:
            await self._session.wait_cancelled()
            self.stop()

    # Reading.

    async def _read(self) -> None:
        max_pending, order = self._plan.max_pending, self._plan.order
        delay = self._plan.delays.get(self._claim.topic)
        forwards, check_origin = self._plan.forward is not None, self._plan.check_origin
        async for record in self._claim:
            raw = self._claim.raw(record) if forwards else None
            if check_origin is not None:
                check_origin(record, self._session.group_id)
            if delay is not None:
                await self._wait_until_due(record, delay)
            if order == "partition":
                lane: Hashable = None
            elif order == "key" and record.key is not None:
                lane = self._lane_of(record)
            else:
                lane = _NO_LANE
            if record.offset <= self._progress.last_offset:
                self._progress.retire()
                self._progress = _Progress(self._mark_back)
            self._add(_Item(record, lane, self._progress, raw))
            while len(self._progress) >= max_pending:
                self._has_room.clear()
                await self._has_room.wait()

    def _mark_back(self, record: Record[K, V]) -> None:
        """Let the first mark after the position has moved back be lower than earlier marks."""
        partition = self._claim.topic_partition
        self._session.offsets.reset(partition, record.offset + 1, leader_epoch=record.leader_epoch)
        self._progress.mark_by(self._session.mark)

    def _lane_of(self, record: Record[K, V]) -> Hashable:
        key = record.key
        try:
            hash(key)
        except TypeError:
            raise TypeError(
                f"order='key' needs keys that can be hashed, got {type(key).__name__} at offset {record.offset} of "
                f"{self._claim.topic_partition}; use order='partition', or a deserializer that returns such keys"
            ) from None
        return key

    async def _wait_until_due(self, record: Record[K, V], delay: float) -> None:
        """Wait until the record is ``delay`` seconds old. Later records are younger, so they wait too.

        The timestamp is from another clock. If that clock is ahead, the wait is still at most ``delay``.
        """
        age = self._plan.clock() - record.timestamp / 1000
        await anyio.sleep(min(delay, max(0.0, delay - age)))

    # Which record is processed next.

    def _add(self, item: _Item[K, V]) -> None:
        self._progress.add(item)
        self.unfinished += 1
        if item.lane is not _NO_LANE:
            waiting = self._lanes.get(item.lane)
            if waiting is not None:
                waiting.append(item)
                return
            self._lanes[item.lane] = deque()
        self._make_ready(item)

    def _make_ready(self, item: _Item[K, V]) -> None:
        self._ready.append(item)
        if self._starting + len(self._running) < self._plan.concurrency and not self._is_stopping:
            self._starting += 1
            self._tasks.start_soon(self._work)

    def _finish(self, item: _Item[K, V]) -> None:
        self.unfinished -= 1
        assert self.unfinished >= 0, "each record is finished once"
        item.progress.finish(item)
        self._has_room.set()
        if item.lane is not _NO_LANE:
            waiting = self._lanes[item.lane]
            if waiting:
                self._make_ready(waiting.popleft())
            else:
                del self._lanes[item.lane]

    def _pause(self, item: _Item[K, V]) -> None:
        """Process the record again after the backoff, unless the claim stops first."""
        self._shared.retries += 1
        if self._is_stopping:
            return
        if not self._pauses.has_been_used:
            self._tasks.start_soon(self._end_pauses)
        self._pauses.begin(item, self._plan.backoff.after(item.failures - 1))

    async def _end_pauses(self) -> None:
        # Not in the callback of the timer: beside the package sniffio, anyio starts a task only from a task.
        while (item := await self._pauses.next()) is not None:
            self._make_ready(item)

    # Processing.

    async def _work(self) -> None:
        """Process ready records until there is none."""
        task, time_now = asyncio.current_task(), asyncio.get_running_loop().time
        self._starting -= 1
        self._running.add(task)
        try:
            while self._ready:
                async with self._shared.slots:
                    # The queue is read again after the wait for a slot, because another task may have taken the record.
                    # In a forked process, the records belong to the parent.
                    is_inherited = self.process != forks.generation
                    if self._is_stopping or not self._ready or is_inherited:
                        return
                    self._shared.active += 1
                    assert len(self.active) < self._plan.concurrency, "a task holds a slot while the function runs"
                    item = self._ready.popleft()
                    self.active[item] = time_now()
                    try:
                        await self._process(item)
                    finally:
                        del self.active[item]
                        self._shared.active -= 1
        finally:
            self._running.discard(task)

    async def _process(self, item: _Item[K, V]) -> None:
        context = self._context.copy()
        try:
            failure = await self._attempt(item.record, context)
            if failure is not None:
                item.failures += 1
                if item.failures < self._plan.attempts:
                    self._pause(item)
                    return
                await self._settle(item, failure, context)
        except Exception as error:  # noqa: BLE001 - of the user's functions: run() raises it
            self._fail(error)
        else:
            self._finish(item)

    async def _attempt(self, record: Record[K, V], context: Context) -> Exception | None:
        """Call the user's function once. Returns its exception; raises TypeError if it is not an async function."""
        try:
            awaitable = context.run(self._plan.handle, record)
            if inspect.isawaitable(awaitable):
                what = f"handle() of offset {record.offset} of {self._claim.topic_partition}"
                await wait(what, InContext(awaitable, context), self._plan.timeout)
                self._shared.processed += 1
                return None
        except Exception as error:  # noqa: BLE001 - the user's function may raise anything
            return error
        raise TypeError(f"handle must be an async function, but it returned {awaitable!r:.80}")

    async def _settle(self, item: _Item[K, V], failure: Exception, context: Context) -> None:
        """Handle a record whose last attempt has failed. Returns if the record is finished, otherwise raises."""
        self._shared.failed += 1
        on_failure, record = self._plan.on_failure, item.record
        if on_failure == "raise":
            raise failure
        if on_failure == "skip":
            logger.error("skipped offset %d of %s: %r", record.offset, self._claim.topic_partition, failure)
        else:
            assert callable(on_failure)
            if self._plan.forward is not None:
                awaitable = context.run(self._plan.forward, record, failure, item.raw, self._session.group_id)
            else:
                awaitable = context.run(on_failure, record, failure)
            if not inspect.isawaitable(awaitable):
                raise TypeError(f"on_failure() must be defined by 'async def', but it returned {awaitable!r:.80}")
            await wait("on_failure()", InContext(awaitable, context))

    def _fail(self, failure: Exception) -> None:
        """End the claim with the first failure."""
        logger.error("%s finishes the records in progress and ends, because of %r", self._claim, failure)
        if self._failure is None:
            self._failure = failure
        self.stop()
