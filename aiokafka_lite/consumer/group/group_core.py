"""One call of ``ConsumerGroup.consume``: the membership, and its sessions one after the other.

A session begins when a generation has assigned partitions: ``setup``, then one task per claim. It ends when partitions
are about to be revoked. Then the claims' iterations end, and the claims have time to finish. Late claims are cancelled,
``cleanup`` runs, and the membership commits the marked offsets.

Invariants that once broke:

- ``SessionRun.over`` is set exactly once per session, also if ``setup`` fails or the session is cancelled during it:
  the membership waits for it.
- A claim is not read again without end. If a member stays in its generation while all transactions of the claim are
  refused, a rebalance is not the reason (``RefusedTransactions``).
- A handler's exception never escapes into the tasks of the membership: it ends the run, and the first one is raised.

``claim_positions`` has the offsets at which claims continue, ``session_run`` the tasks of one session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from ...aio.component import Component
from ...aio.gradual import GradualCalls, GradualEvent
from ...aio.light_event import LightEvent
from ...aio.service import Service
from ...cluster.standstill import Check
from ...errors import KafkaError
from ...group.finished_offsets import is_annotation
from ...group.member_runner import MemberRunner
from ...group.strategies import AssignmentStrategy
from ...group.topic_watcher import Topics
from ...types import OffsetAndMetadata, TopicPartition
from ..partition import AssignedPartition
from ..position import PauseReason, ResetReason
from ..reading_core import ReadingCore
from ..settings import ReadingOptions
from .callbacks import call
from .claim import Claim, ClaimReader
from .claim_positions import ClaimPositions
from .group_pause import GroupPause
from .handler import ConsumerGroupHandler
from .handler_watch import HandlerWatch
from .participation import begin_offsets
from .session import ConsumerGroupSession
from .session_run import RefusedTransactions, SessionRun

if TYPE_CHECKING:
    from ...cluster.health import Health
    from ..metrics import GroupMetrics

logger = logging.getLogger(__name__)

_CLAIM: ContextVar[asyncio.Task[Any] | None] = ContextVar("claim", default=None)
"""The task of the claim whose code runs. Tasks that the code starts inherit it."""

CLOSING_TIME = 1.5
"""Seconds for the claims to finish when the group is closed, and then the same time for ``cleanup``. After that, they
are cancelled."""

CLAIMS_PER_ITERATION = 100
"""The claims that begin, or wake, in one iteration of the event loop. Each claim costs up to 0.2 ms, and a member of
10,000 partitions must not hold the loop for a second."""


class GroupCore(ReadingCore):
    """Reads for one ``consume``, and implements the ``Reading`` of its membership.

    ``on_handler_error`` is called with an exception of the handler, ``on_error`` with a failure that is retried.
    """

    def __init__(
        self,
        service: Service,
        options: ReadingOptions,
        handler: ConsumerGroupHandler[Any, Any],
        pause: GroupPause,
        *,
        strategies: Sequence[AssignmentStrategy | str],
        on_handler_error: Callable[[Exception], None],
        on_error: Callable[[KafkaError], None],
    ) -> None:
        super().__init__(service, options)
        assert options.group is not None
        self._config = options.group
        self._handler = handler
        self._pause = pause
        self._on_handler_error = on_handler_error
        self._backoff = self.client.retry_backoff()
        self._run: SessionRun | None = None
        self._claim_tasks: set[asyncio.Task[Any] | None] = set()
        self._wakes = GradualCalls(CLAIMS_PER_ITERATION)
        self._commits_in_transactions = False
        self._was_assigned = False
        self.client.outages.on_refusal = self._refused
        self.subscription.waits_out_refusals = True
        self._watch = HandlerWatch(handler, self._running_readers)
        self._runner = MemberRunner(
            self.client,
            options.group,
            strategies=strategies,
            reading=self,
            spawn=service.start_child,
            on_error=on_error,
        )
        self._claim_positions = ClaimPositions(self.subscription, self._runner.offsets)

    @property
    def member_runner(self) -> MemberRunner:
        return self._runner

    async def start(self) -> None:
        await super().start()
        self._pause.watch(self._apply_pause)

    async def close(self) -> None:
        self._pause.unwatch(self._apply_pause)
        await super().close()

    def _apply_pause(self) -> None:
        is_paused = self._pause.is_paused
        self.subscription.change(list(self.subscription), lambda assigned: assigned.pause(is_paused))

    # The observer of the subscription.

    def settle(self) -> None:
        for reader in self._readers():
            reader.settle()

    def on_removed(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self.client.outages.forget(str(partition))

    def on_ready(self) -> None:
        if self._run is not None:
            readers = self._run.readers
            for partition in self.subscription.ready:
                reader = readers.get(partition)
                if reader is not None:
                    reader.notice()

    def on_moved(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self._runner.offsets.may_go_back(partition)
        self._forget_passed(partitions)

    def on_reset(self, partition: TopicPartition, old: int, new: int, reason: ResetReason) -> None:
        self._claim_positions.record_reset(partition, new)
        self._forget_passed([partition])
        super().on_reset(partition, old, new, reason)

    def _forget_passed(self, partitions: Sequence[TopicPartition]) -> None:
        for reader in self._readers():
            if reader.assigned.partition in partitions:
                reader.moved()

    def on_callback_error(self, error: Exception) -> None:
        self._on_handler_error(error)

    def _refused(self, place: str, error: KafkaError) -> None:
        # At the start, ``consume`` raises a refusal at once. Later the member tries again, and the handler continues.
        if not self._was_assigned:
            self._on_handler_error(error)

    def _readers(self) -> Iterable[ClaimReader]:
        return () if self._run is None else self._run.readers.values()

    def _running_readers(self) -> list[ClaimReader]:
        run = self._run
        return [] if run is None else [run.readers[partition] for partition in run.tasks]

    # The calls of the ``MemberRunner``.

    def stop(self, partitions: Sequence[TopicPartition]) -> None:
        revoking = self.subscription.select(partitions)
        self.subscription.change(revoking, lambda assigned: assigned.pause_for(PauseReason.REVOKING))
        if self._run is not None:
            self._run.cancel()

    def suspend(self) -> None:
        self.subscription.replace_pause(PauseReason.NONE, PauseReason.CONFIRMING)

    def resume(self) -> None:
        self.subscription.replace_pause(PauseReason.CONFIRMING, PauseReason.NONE)

    async def wait_until_done(self, partitions: Sequence[TopicPartition]) -> None:
        if self._run is not None:
            await self._run.over.wait()

    async def finish(self, partitions: Sequence[TopicPartition], *, closing: bool) -> None:
        if closing:
            await self._end_session(CLOSING_TIME, CLOSING_TIME)
        else:
            await self._end_session(0.0, self._config.time_to_rebalance)  # the claims have already had time to finish

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._drop(partitions)

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        await self._end_session(self._config.time_to_revoke, self._config.time_to_rebalance)
        self._drop(partitions)

    async def assigned(
        self, added: dict[TopicPartition, OffsetAndMetadata | None], owned: frozenset[TopicPartition]
    ) -> None:
        self._was_assigned = True
        before = self._run
        if before is not None and not before.session.cancelled:
            if not added:
                return  # the session continues in the next generation
            # A session keeps its partitions from its begin to its end, so added partitions need another session.
            before.cancel()
            await self._end_session(self._config.time_to_revoke, self._config.time_to_rebalance)

        def prepare(assigned: AssignedPartition) -> None:
            assigned.paused = self._pause.is_paused
            committed = added[assigned.partition]
            if committed is not None:
                assigned.seek(committed.offset, committed.leader_epoch)

        self.subscription.extend(added, prepare)
        limit = self._lookup_timeout
        owned_before = owned.difference(added)
        if owned_before and self._commits_in_transactions:
            try:
                offsets = await self._runner.offsets.fetch(sorted(owned_before), timeout=limit)
                self._claim_positions.move_to_committed(offsets)
            except KafkaError as error:  # without the offsets, records of a committed transaction would repeat
                self._on_handler_error(error)
                return
        await self.positions.until_announced(list(added), limit)
        begin_offsets(self._runner.offsets, self.subscription, self.subscription.select(added))
        await self._begin_session(owned)

    def collect_marks(self) -> None:
        """Move the mark of a last record behind the transaction markers that follow it.

        A handler marks records itself. Without this, the group would have a lag that no record ends.
        """
        offsets = self._runner.offsets
        for reader in self._readers():
            assigned = reader.assigned
            if assigned.partition in offsets.moved:
                continue  # the next mark is the handler's, and may move back
            marked = offsets.last_marked(assigned.partition)
            position = None if marked is None else reader.passed(marked.offset)
            if marked is not None and position is not None:
                epoch = assigned.buffer.next_epoch
                # Finished offsets are counted from the mark, and there are none behind it.
                metadata = "" if is_annotation(marked.metadata) else marked.metadata
                offsets.mark(assigned.partition, position, metadata, leader_epoch=epoch)
        if self._run is not None:
            try:
                self._handler.before_commit(self._run.session)
            except Exception:  # a handler may raise anything, and its marks are committed nevertheless
                logger.exception("%r: before_commit() failed", self._run.session)

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if self.options.interceptors is not None:
            self.options.interceptors.on_commit(offsets)

    def marked(self, partition: TopicPartition, offset: int) -> None:
        pass  # a session ends when its claims return

    def idle_for(self, now: float) -> float:
        return 0.0  # a claim may work on one record without a bound; heartbeats show that the process is alive

    def _group_metrics(self) -> GroupMetrics:
        from ...cluster.metrics import loop_time
        from ..metrics import group_metrics

        now = loop_time()
        busy = self._watch.longest(now)
        working_for = 0.0 if busy is None else now - busy.since
        return group_metrics(self._config.group_id, self._runner.offsets, self._runner, working_for)

    def _checks(self) -> Sequence[Check]:
        now = asyncio.get_running_loop().time
        return (*super()._checks(), self._runner.waits, lambda: self._watch.waits(now()))

    def _why_paused(self) -> str:
        return self._pause.text

    def health(self, max_silence: float, max_poll_ago: float | None) -> Health:
        health = super().health(max_silence, max_poll_ago)
        is_ready = health.is_ready and not any(cause.is_problem for cause in self._pause.causes)
        # After a while, they are among the texts about a client that stands still.
        new = [cause.text for cause in self._pause.causes if not any(cause.text in text for text in health.problems)]
        return replace(health, is_ready=is_ready, problems=(*health.problems, *new))

    def _late_program(self) -> str | None:
        now = asyncio.get_running_loop().time()
        busy = self._watch.longest(now)
        return None if busy is None else busy.describe(now)

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        self._claim_positions.forget(partitions)
        self._run = None
        self.subscription.remove(partitions)

    # Sessions.

    async def _begin_session(self, owned: frozenset[TopicPartition]) -> None:
        readers = [
            ClaimReader(
                assigned,
                self.subscription,
                self.options.consumer,
                self._backoff,
                check_process=self.service.check_process,
                interceptors=self.options.interceptors,
                wakes=self._wakes,
            )
            for assigned in self.subscription.select(sorted(owned))
        ]
        self._runner.offsets.drop_refused()  # marks belong to a session
        cancelled = GradualEvent(self._wakes)
        session = ConsumerGroupSession(
            [reader.assigned.partition for reader in readers],
            *(self._runner, cancelled, self._is_current, self._pause, self.options.interceptors),
        )
        run = self._run = SessionRun(session, cancelled, readers)
        try:
            await call("setup()", partial(self._handler.setup, session), self._config.time_to_rebalance)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything, and consume() raises it
            run.cancel()
            # ``cleanup`` runs only after a complete ``setup``. The membership waits for ``over`` in any case.
            run.needs_cleanup = False
            run.over.set()
            self._on_handler_error(error)
            return
        # The partitions are being revoked already. ``setup`` has run, so ``cleanup`` still runs.
        if session.cancelled:
            run.over.set()
            return
        try:
            for number, (partition, reader) in enumerate(run.readers.items(), 1):
                run.tasks[partition] = self.service.start_child(
                    self._run_claim, run, reader, name=f"claim of {partition}"
                )
                if number % CLAIMS_PER_ITERATION == 0:
                    await asyncio.sleep(0)
                    if cancelled.is_set():
                        break
        finally:  # the membership waits for the end of the session, also if this is cancelled
            run.all_begun()

    def _is_current(self, session: ConsumerGroupSession) -> bool:
        return self._run is not None and self._run.session is session

    @property
    def is_in_claim(self) -> bool:
        """Whether code of a running claim has started the current task. The claim may wait for it, as ``wait_for``."""
        return _CLAIM.get() in self._claim_tasks

    async def _run_claim(self, run: SessionRun, reader: ClaimReader) -> None:
        session, partition = run.session, reader.assigned.partition
        task = asyncio.current_task()
        _CLAIM.set(task)
        self._claim_tasks.add(task)
        pauses = self.client.retry_backoff()
        refusals = RefusedTransactions(session, self._config.session_timeout, pauses)
        try:
            while True:
                claim: Claim[Any, Any] = Claim(reader, self.options.deserializing)
                refusals.begin(reader.assigned.offset)
                try:
                    await call(f"consume_claim() of {partition}", partial(self._handler.consume_claim, session, claim))
                    return
                except KafkaError as error:
                    if not session.has_outdated(error) or not refusals.add(error):
                        raise
                    # A rebalance refuses the open transaction of each claim once, so only a repetition is a warning.
                    level = logging.INFO if refusals.count == 1 else logging.WARNING
                    text = "%r: %s is read again from the last commit after %d refused transactions in a row: %s"
                    logger.log(level, text, session, partition, refusals.count, error)
                # The end of the session ends the pause, because its partitions may belong to another member soon.
                if not await session.wait_cancelled(timeout=pauses.next()):
                    await self._rewind(run, reader)
                if session.cancelled:
                    return  # the next session begins at the last commit
        except Exception as error:  # noqa: BLE001 - a handler may raise anything, and consume() raises it
            self._on_handler_error(error)
        finally:
            self._claim_tasks.discard(task)
            run.claim_ended(partition)

    async def _rewind(self, run: SessionRun, reader: ClaimReader) -> None:
        """Move to the last commit, unless the session ends before the commit is known."""
        partition, scope = reader.assigned.partition, anyio.CancelScope()
        run.lookups.add(scope)
        try:
            with scope:
                offsets = await self._runner.offsets.fetch([partition], timeout=self._lookup_timeout)
                # The reader first returns to the marks, because ``move_to_committed`` only moves forward.
                self._claim_positions.return_to_marks([reader])
                self._claim_positions.move_to_committed(offsets)
        except KafkaError:
            if not run.session.cancelled:
                raise
        finally:
            run.lookups.discard(scope)

    @property
    def _lookup_timeout(self) -> float:
        return min(self.options.client.api_timeout, self._config.time_to_revoke)

    async def _end_session(self, timeout: float, cleanup_timeout: float) -> None:
        """End the present session: wait ``timeout`` seconds for the claims, then clean up."""
        run = self._run
        if run is None:
            return
        run.cancel()
        await run.wait_for_claims(timeout)
        if run.needs_cleanup:
            run.needs_cleanup = False
            try:
                await call("cleanup()", partial(self._handler.cleanup, run.session), cleanup_timeout)
            except Exception as error:  # noqa: BLE001 - a handler may raise anything, and consume() raises it
                self._on_handler_error(error)
            self._claim_positions.return_to_marks(run.readers.values())
            # The program needs the group's metadata only to commit in a transaction.
            self._commits_in_transactions |= run.session.gave_metadata


class GroupRun(Component):
    """One call of ``consume``. Owner: the ``ConsumerGroup``."""

    def __init__(
        self,
        options: ReadingOptions,
        topics: Topics,
        handler: ConsumerGroupHandler[Any, Any],
        pause: GroupPause,
        *,
        strategies: Sequence[AssignmentStrategy | str],
        on_error: Callable[[KafkaError], None],
    ) -> None:
        super().__init__()
        self._topics = topics
        self._finished = LightEvent()
        self.handler_error: Exception | None = None
        self.core: GroupCore = GroupCore(
            self._service,
            options,
            handler,
            pause,
            strategies=strategies,
            on_handler_error=self._fail_by_handler,
            on_error=on_error,
        )
        self._is_static = options.group is not None and options.group.group_instance_id is not None

    def __repr__(self) -> str:
        return f"<GroupRun {self.state.name} {self.core.member_runner.member!r}>"

    async def _on_start(self) -> None:
        await self.core.start()
        self.core.member_runner.start(self._topics)

    async def _on_close(self) -> None:
        await self.core.close()
        await self.core.member_runner.close(leave=not self._is_static)

    async def wait(self) -> None:
        """Wait until ``finish``. Raises the first exception of the handler, or the failure of the membership."""
        await self._service.while_running(self._finished.wait())
        # Raised before the close, whose KafkaTimeout would replace it if another claim resists its cancellation.
        if self.handler_error is not None:
            raise self.handler_error

    def finish(self) -> None:
        """Make ``consume`` return."""
        self._finished.set()

    @property
    def is_own_task(self) -> bool:
        """Whether the caller runs in a task of this component, such as a claim, or in a task that a claim started."""
        return self._service.is_own_task or self.core.is_in_claim

    def _fail_by_handler(self, error: Exception) -> None:
        if self.handler_error is None:
            self.handler_error = error
        elif repr(error) != repr(self.handler_error):  # many claims often raise the same exception
            logger.warning("%r failed with %r; a later error is ignored: %r", self, self.handler_error, error)
        self.finish()
