"""The work of ``Workers`` on one claim: reads its records, and runs the tasks that process them.

The steps of a record:

1. The claim reads the record and adds it to its ``Progress``. A lane has the records of one key, or of the whole
   partition. If an earlier record of its lane is unfinished, the record waits. Otherwise the record is ready.
2. One of the claim's tasks takes the ready record, or a batch of ready records. There are as many tasks as ready
   records, at most ``concurrency``; a task ends when no record is ready. All claims share slots. A task holds a slot
   while the user's function runs.
3. A record whose attempt failed may be ready again after a pause, if a rule says so. It holds no task and no slot
   during the pause.
4. A processed record is finished in the ``Progress``, which marks the partition up to the first unfinished record. So
   a commit never covers a record that is not processed. Then the next record of the lane is ready.

Rules:

- A record is marked only after the user's function has completed for it, or its rule. A record whose processing has
  not begun when the session ends is dropped: the next owner of the partition reads it again.
- Each attempt runs in a copy of the context in which the claim began, so a context variable that it sets is seen by no
  other record and no other attempt. Functions of the rules run in the context of the attempt that failed.
- A rule is performed inside the lane: a later record of the same key waits until the failed one is settled.
- If a batch fails and no record is named, a retry repeats the whole batch. Any other rule, except stop, decides about
  single records: each record of the batch is processed in a batch of its own first.
- A claim that fails lets the records in progress complete before it raises. The records before the failed one are
  marked.
- A position moves back if the log was truncated or the topic was created again. Records that were read before are not
  marked, because their offsets now belong to other records.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic

import anyio

from ..aio import forks
from ..aio.light_event import LightEvent
from ..aio.user_context import InContext
from ..arguments import plural
from ..consumer import Claim, ConsumerGroupSession
from ..consumer.interceptor import ConsumerInterceptors
from ..errors import DeserializationError, IllegalStateError
from ..group.finished_offsets import decode
from ..serialization.deserializer import concerns_record
from ..types import K, Record, V
from .batch_failure import BatchFailure
from .batches import NO_LANE, Batches
from .breaker import Gate
from .calls import Call, calling
from .failed_records import FailedRecords
from .progress import Item, Pauses, Progress
from .rules import Action, Again, Rules, SendTo, Stop

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The checked arguments of a ``Workers``. ``batch_size`` is None for a function of one record."""

    call: Call
    order: str
    rules: Rules
    failed_records: FailedRecords | None
    timeout: float | None
    max_pending: int
    concurrency: int
    batch_size: int | None
    batch_timeout: float
    clock: Callable[[], float]
    interceptors: ConsumerInterceptors | None = None
    """Who observes the work on each record, or list of records."""


@dataclass(slots=True)
class Shared:
    """The counters of a ``Workers``, its gate, and the slots of its records in progress. All its claims share them."""

    gate: Gate
    slots: asyncio.Semaphore = field(init=False)
    active: int = 0
    processed: int = 0
    retries: int = 0
    failed: int = 0
    skipped: int = 0


class ClaimWork(Generic[K, V]):
    """The work on one claim. Owner: the ``Workers``."""

    def __init__(self, plan: Plan, shared: Shared, session: ConsumerGroupSession, claim: Claim[K, V]) -> None:
        self.unfinished = 0
        self.active: dict[Item[K, V], float] = {}
        """The records whose function runs now, with the loop's time at which it began."""
        self.process: int = forks.generation
        self.ended = LightEvent()
        self._plan = plan
        self._shared = shared
        self._session = session
        self._claim = claim
        self._progress: Progress[K, V] = Progress(session.mark)
        self._batches: Batches[K, V] = Batches(
            plan.batch_size or 1, plan.batch_timeout > 0, on_ready=self._start_task, on_open=self._wait_to_be_full
        )
        self._pauses = Pauses()
        self._may_begin = LightEvent()
        """Set while a further record may begin, and at the stop."""
        self._tasks = anyio.create_task_group()
        self._task_count = 0
        """The tasks that process records, or are about to begin."""
        self._running: set[asyncio.Task[Any] | None] = set()
        self._has_room = LightEvent()
        self._finished: deque[tuple[int, int]] | None = None
        """The runs of offsets that were finished before this session; None before the first record."""
        self._reading = anyio.CancelScope()
        self._failure: Exception | None = None
        # Copied before the claim is read: an interceptor may set variables while it reads.
        self._context = copy_context()

    def stop(self) -> None:
        """Begin no further record."""
        self._reading.cancel()
        self._may_begin.set()
        self._pauses.stop()

    @property
    def _is_stopping(self) -> bool:
        return self._reading.cancel_called

    def is_own_task(self) -> bool:
        """Return whether the caller is the user's function, or a task that it has started from its thread."""
        return asyncio.current_task() in self._running or calling.get() is self._plan.call

    async def run(self) -> None:
        """Process the claim until its session ends or ``stop`` is called. Raises the first failure."""
        watching = anyio.CancelScope()
        self._gate_changed()
        self._shared.gate.watch(self._gate_changed)
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
            self._shared.gate.unwatch(self._gate_changed)
            self._pauses.cancel()
        if self._failure is not None:
            raise self._failure
        if self._tasks.cancel_scope.cancel_called:  # anyio cancels the scope if one of the tasks was cancelled
            raise IllegalStateError(
                f"{self._claim}: a task that processed records was cancelled from outside, and its record is not "
                f"finished; handle() and the rules must not cancel the task that runs them"
            )

    def _gate_changed(self) -> None:
        if self._shared.gate.may_begin or self._is_stopping:
            self._may_begin.set()
        else:
            self._may_begin.clear()

    async def _watch_session(self, watching: anyio.CancelScope) -> None:
        with watching:
            await self._session.wait_cancelled()
            self.stop()

    def annotate(self) -> None:
        """Let the next commit tell which records are finished ahead of the first unfinished one."""
        progress = self._progress
        if not progress.has_changed or self._session.has_ended:
            return
        partition = self._claim.topic_partition
        marked = self._session.offsets.last_marked(partition)
        if marked is not None and progress.first_unfinished is None and self._finished:
            start, end = self._finished[0]
            if start <= marked.offset < end:  # the rest of this run is not read yet, but it is finished
                self._session.offsets.mark(partition, end, leader_epoch=marked.leader_epoch)
                marked = self._session.offsets.last_marked(partition)
        annotation = progress.annotation(None if marked is None else marked.offset, self._finished or ())
        # Without a mark, a commit of the beginning is needed only if there is something to tell.
        if annotation is not None and (annotation[1] or marked is not None):
            self._session.annotate(partition, *annotation)

    # Reading.

    async def _read(self) -> None:
        max_pending, delay = self._plan.max_pending, self._plan.rules.delays.get(self._claim.topic)
        refused: tuple[int, int] = (-1, 0)  # the offset of the last record that was refused, and its failed attempts
        while True:
            try:
                async for record in self._claim:
                    # Hot: most sessions have nothing that was finished before.
                    if (self._finished is None or self._finished) and self._was_finished(record.offset):
                        self._pass_finished(record)
                    else:
                        if delay is not None:
                            await self._wait_until_due(record, delay)
                        self._batches.add(self._add_to_progress(record, self._lane_of(record), self._raw(record)))
                    if len(self._progress) >= max_pending:
                        await self._wait_for_room()
                return
            except DeserializationError as error:
                attempt = refused[1] + 1 if refused[0] == error.offset else 1
                refused = (error.offset, attempt)
                await self._skip_refused(error, attempt, delay)
                await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        """Wait until fewer than ``max_pending`` records are behind the first unfinished one."""
        while len(self._progress) >= self._plan.max_pending:
            self._has_room.clear()
            await self._has_room.wait()

    def _finished_before(self) -> deque[tuple[int, int]]:
        """Return what the commit at which reading began tells about later offsets."""
        committed = self._session.offsets.last_marked(self._claim.topic_partition)
        if committed is None or committed.offset != self._claim.initial_offset:
            return deque()
        return deque(decode(committed.offset, committed.metadata))

    def _was_finished(self, offset: int) -> bool:
        """Return whether the record was finished before this session. Call it for each record, also a refused one."""
        if self._finished is None:
            self._finished = self._finished_before()
        runs = self._finished
        if runs and offset <= self._progress.last_offset:
            runs.clear()  # the position has moved back: the log may be another one
        while runs and runs[0][1] <= offset:
            runs.popleft()
        return bool(runs) and runs[0][0] <= offset

    def _pass_finished(self, record: Record[K, V]) -> None:
        """Finish a record that was finished before this session."""
        self._finish([self._add_to_progress(record, NO_LANE, None)])
        self._shared.skipped += 1

    def _raw(self, record: Record[K, V]) -> Record | None:
        sender = self._plan.failed_records
        if sender is None:
            return None
        sender.check_origin(record, self._session.group_id)
        return self._claim.raw(record.offset)

    async def _skip_refused(self, error: DeserializationError, attempt: int, delay: float | None) -> None:
        """Apply the rules to a record that a deserializer refuses, when it is due. Returns if the claim may be read on.

        Only ``retry`` may decide about an error that does not concern the record, such as a registry without answer.
        """
        raw = self._claim.raw(error.offset)
        if raw is None:
            raise error
        if self._was_finished(error.offset):
            self._pass_finished(raw)  # type: ignore[arg-type]  # its key and value are bytes
            self._skip(raw)
            return
        if delay is not None and attempt == 1:
            await self._wait_until_due(raw, delay)
        settled: asyncio.Future[float | None] = asyncio.get_running_loop().create_future()
        self._tasks.start_soon(self._settle_refused, raw, error, attempt, settled)
        pause = await settled
        if pause is None:
            self._skip(raw)
            return
        self._shared.retries += 1
        await anyio.sleep(pause)

    async def _settle_refused(
        self, raw: Record, error: DeserializationError, attempt: int, settled: asyncio.Future[float | None]
    ) -> None:
        """Apply the rules in a task of its own, which goes on when reading stops. ``settled`` gets a retry's pause."""
        task = asyncio.current_task()
        self._running.add(task)
        try:
            action = await self._decide(error, raw, attempt, self._context.copy())
            pause = action.seconds if isinstance(action, Again) else None
            if pause is None:
                if not concerns_record(error.__cause__ or error):
                    raise error
                await self._perform(action, raw, error, raw)
                item = self._add_to_progress(raw, NO_LANE, raw)  # type: ignore[arg-type]  # its key and value are bytes
                self._finish([item])
        except Exception as failure:  # noqa: BLE001 - of the user's functions and of the producer: run() raises it
            self._fail(failure)
        else:
            if not settled.done():
                settled.set_result(pause)
        finally:
            self._running.discard(task)

    def _skip(self, raw: Record) -> None:
        """Read on behind a finished record that a deserializer refuses."""
        self._claim.seek(raw.offset + 1)
        # This seek was forward. Without a mark behind it, no commit tells what is finished: the next mark may be lower.
        first, partition = self._progress.first_unfinished, self._claim.topic_partition
        if first is None:
            self._session.offsets.mark(partition, raw.offset + 1, leader_epoch=raw.leader_epoch)
        else:
            marked = self._session.offsets.last_marked(partition)
            epoch = None if marked is None else marked.leader_epoch
            self._session.offsets.mark(partition, first, leader_epoch=epoch)

    def _add_to_progress(self, record: Record[K, V], lane: Hashable, raw: Record | None) -> Item[K, V]:
        if record.offset <= self._progress.last_offset:
            self._progress.retire()
            self._progress = Progress(self._mark_back)
        item = Item(record, lane, self._progress, raw)
        self._progress.add(item)
        self.unfinished += 1
        return item

    def _mark_back(self, record: Record[K, V]) -> None:
        """Let the first mark after the position has moved back be lower than earlier marks."""
        partition = self._claim.topic_partition
        self._session.offsets.reset(partition, record.offset + 1, leader_epoch=record.leader_epoch)
        self._progress.mark_by(self._session.mark)

    def _lane_of(self, record: Record[K, V]) -> Hashable:
        order, key = self._plan.order, record.key
        if order == "partition":
            return None
        if order == "none" or key is None:
            return NO_LANE
        try:
            hash(key)
        except TypeError:
            raise TypeError(
                f"order='key' needs keys that can be hashed, got {type(key).__name__} at offset {record.offset} of "
                f"{self._claim.topic_partition}; use order='partition', or a deserializer that returns such keys"
            ) from None
        return key

    async def _wait_until_due(self, record: Record[Any, Any], delay: float) -> None:
        """Wait until the record is ``delay`` seconds old. Later records are younger, so they wait too.

        The timestamp is from another clock. If that clock is ahead, the wait is still at most ``delay``.
        """
        age = self._plan.clock() - record.timestamp / 1000
        await anyio.sleep(min(delay, max(0.0, delay - age)))

    # Tasks and pauses.

    def _start_task(self) -> None:
        if self._task_count < self._plan.concurrency and not self._is_stopping:
            self._task_count += 1
            self._tasks.start_soon(self._work)

    def _wait_to_be_full(self, batch: list[Item[K, V]]) -> None:
        self._pause(partial(self._batches.end_wait, batch), self._plan.batch_timeout)

    def _pause(self, then: Callable[[], None], seconds: float) -> None:
        """Do something later, unless the claim stops first."""
        if self._is_stopping:
            return
        if not self._pauses.has_been_used:
            self._tasks.start_soon(self._end_pauses)
        self._pauses.begin(then, seconds)

    async def _end_pauses(self) -> None:
        # Not in the callback of the timer: beside the package sniffio, anyio starts a task only from a task.
        while (then := await self._pauses.next()) is not None:
            then()

    # Processing.

    async def _work(self) -> None:
        """Process ready records until there is none."""
        task, time_now = asyncio.current_task(), asyncio.get_running_loop().time
        ready = self._batches.ready
        self._running.add(task)
        try:
            while ready:
                if not self._may_begin.is_set():
                    await self._may_begin.wait()
                    continue
                async with self._shared.slots:
                    # The queue is read again after the wait for a slot, because another task may have taken the record.
                    # In a forked process, the records belong to the parent.
                    is_inherited = self.process != forks.generation
                    if self._is_stopping or not ready or is_inherited:
                        return
                    if not self._may_begin.is_set():
                        continue  # the group was paused meanwhile
                    is_probe = self._shared.gate.begin()
                    batch = self._batches.take()
                    self._shared.active += len(batch)
                    began = time_now()
                    for item in batch:
                        self.active[item] = began
                    try:
                        await self._process(batch, is_probe)
                    finally:
                        for item in batch:
                            del self.active[item]
                        self._shared.active -= len(batch)
        finally:
            self._running.discard(task)
            self._task_count -= 1

    async def _process(self, batch: list[Item[K, V]], is_probe: bool) -> None:
        context = self._context.copy()
        try:
            failure = await self._attempt(batch, context, is_probe)
            if self._shared.gate.end(failure, is_probe=is_probe):
                self._repeat(batch, failure)
            elif failure is None:
                self._finish(batch)
                self._batches.release(batch)
            elif isinstance(failure, BatchFailure) and self._plan.batch_size is not None:
                await self._settle_named(batch, failure, context)
            else:
                await self._settle(batch, failure, context)
        except Exception as error:  # noqa: BLE001 - of the user's functions: run() raises it
            self._fail(error)

    async def _attempt(self, batch: list[Item[K, V]], context: Context, is_probe: bool) -> Exception | None:
        """Call the user's function once. Returns its exception; raises an error that no rule may decide about."""
        first = batch[0].record
        argument = first if self._plan.batch_size is None else [item.record for item in batch]
        offsets = f"offset {first.offset}"
        if len(batch) > 1:
            offsets = f"offsets {first.offset} to {batch[-1].record.offset}"
        what = f"handle() of {offsets} of {self._claim.topic_partition}"
        try:
            if self._plan.interceptors is None:
                failure = await self._plan.call(argument, context, what, self._plan.timeout)
            else:
                failure = await self._observed(self._plan.interceptors, argument, context, what)
        except BaseException:  # it was cancelled, or the error concerns no record
            self._shared.gate.abandon(is_probe=is_probe)
            raise
        if failure is None:
            self._shared.processed += len(batch)
        return failure

    async def _observed(
        self, interceptors: ConsumerInterceptors, argument: Any, context: Context, what: str
    ) -> Exception | None:
        """Call the user's function, and let the interceptors observe its beginning and its end."""
        records = [argument] if self._plan.batch_size is None else argument
        # In the context of the attempt, so that the user's function has the variables that an interceptor sets.
        end = context.run(interceptors.begin, records)
        try:
            failure = await self._plan.call(argument, context, what, self._plan.timeout)
        except BaseException as error:
            end(error)
            raise
        end(failure)
        return failure

    def _finish(self, batch: list[Item[K, V]]) -> None:
        for item in batch:
            self.unfinished -= 1
            assert self.unfinished >= 0, "each record is finished once"
            item.progress.finish(item)
        self._has_room.set()

    # Failures.

    def _repeat(self, batch: list[Item[K, V]], failure: Exception | None) -> None:
        """Make a probe that failed ready again, without an attempt. Records before a named one are finished."""
        done = 0
        if isinstance(failure, BatchFailure) and self._plan.batch_size is not None:
            self._finish_before(batch, failure)
            done = failure.index
        self._shared.retries += len(batch) - done
        if done:
            self._batches.release(batch)
        else:
            self._batches.again(batch)

    def _finish_before(self, batch: list[Item[K, V]], failure: BatchFailure) -> None:
        """Finish the records before the one that a ``BatchFailure`` names."""
        if failure.index >= len(batch):
            raise IndexError(
                f"BatchFailure has index {failure.index}, but the batch has {plural(len(batch), 'record')}"
            ) from failure
        done = batch[: failure.index]
        self._shared.processed += len(done)
        self._finish(done)
        for other in batch[failure.index + 1 :]:
            other.failures = 0

    async def _settle_named(self, batch: list[Item[K, V]], failure: BatchFailure, context: Context) -> None:
        """Apply the rules to the record that a ``BatchFailure`` names. The records before it are finished."""
        self._finish_before(batch, failure)
        item = batch[failure.index]
        paused = None if await self._settle_one(item, failure.error, context) else item
        self._batches.release(batch, paused)

    async def _settle(self, batch: list[Item[K, V]], failure: Exception, context: Context) -> None:
        """Apply the rules to a batch that failed without naming a record, or to a single record."""
        if len(batch) == 1:
            if await self._settle_one(batch[0], failure, context):
                self._batches.release(batch)
            return
        for item in batch:
            item.failures += 1
        action = await self._decide(failure, batch[0].record, batch[0].failures, context)
        if isinstance(action, Again):
            self._shared.retries += len(batch)
            self._pause(partial(self._batches.again, batch), action.seconds)
        elif isinstance(action, Stop):
            self._shared.failed += len(batch)
            raise failure
        else:
            for item in batch:
                item.failures, item.is_alone = 0, True
            self._batches.release(batch)

    async def _settle_one(self, item: Item[K, V], failure: Exception, context: Context) -> bool:
        """Apply the rules to a failed record. Returns whether it is finished; if not, another attempt follows."""
        item.failures += 1
        action = await self._decide(failure, item.record, item.failures, context)
        if isinstance(action, Again):
            self._shared.retries += 1
            self._pause(partial(self._batches.again, [item]), action.seconds)
            return False
        # In the context of the attempt, so that the trace of the record continues in what is sent for it.
        await InContext(self._perform(action, item.record, failure, item.raw), context)
        self._finish([item])
        return True

    async def _decide(self, error: Exception, record: Record[Any, Any], attempt: int, context: Context) -> Action:
        return await InContext(self._plan.rules.decide(error, record, attempt), context)

    async def _perform(self, action: Action, record: Record[Any, Any], error: Exception, raw: Record | None) -> None:
        """Send the record on, or log that it is skipped. Raises the error if the action is to stop."""
        self._shared.failed += 1
        if isinstance(action, SendTo):
            sender = self._plan.failed_records
            if sender is None:
                raise IllegalStateError("a rule returned dead_letter() or retry_topic(): Workers need a producer")
            await sender.send(action, record, error, raw, self._session.group_id)
        elif isinstance(action, Stop):
            raise error
        else:
            logger.error("skipped offset %d of %s: %r", record.offset, self._claim.topic_partition, error)

    def _fail(self, failure: Exception) -> None:
        """End the claim with the first failure."""
        logger.error("%s finishes the records in progress and ends, because of %r", self._claim, failure)
        if self._failure is None:
            self._failure = failure
        self.stop()
