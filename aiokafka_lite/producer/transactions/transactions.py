"""The transactions of one producer: begin, offsets, commit, abort.

Rule 1: ``TransactionMachine`` decides what is possible. Only ``_happened`` moves it, and sets the error with which new
  records are refused.

Rule 2: a task of the producer ends a transaction (``_end``), not the task of the caller. If the caller is cancelled, or
  its timeout ends, the task continues until the coordinator has answered. So the outcome is always determined, and the
  next transaction begins only afterwards.

Rule 3: EndTxn is sent when no other request of the transaction is in progress. In generation 1, this includes the
  Produce requests. A batch that a broker appends behind the marker of an abort would belong to the next transaction.

Rule 4: EndTxn is not sent before all records are flushed. If a commit fails before that, the transaction is certainly
  not committed.

Rule 5: a transaction of generation 2 does not begin before the markers of the previous one are written
(``CoordinatorClient.wait_markers``). If the request of a partition leader reaches the coordinator earlier, the
leader gets CONCURRENT_TRANSACTIONS. The leader repeats its request after 20 ms, and the Produce request waits for this
time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import anyio

from ...aio.deadline import deadline
from ...aio.light_event import LightEvent
from ...aio.service import Service
from ...arguments import check_timeout, must_be, plural, text, whole
from ...arguments import offsets as checked_offsets
from ...cluster.client import Client
from ...errors import ErrorCode, IllegalStateError, KafkaError, ProducerFenced, TransactionAborted
from ...settings.producer import ProducerConfig
from ...types import GroupMetadata, OffsetAndMetadata, TopicPartition
from ..accumulator import Accumulator, Spawn
from ..admission import Admission
from ..batch import ProducerBatch
from ..delivery import FailureLog
from ..dispatch import Dispatcher
from ..failures import FailureStreams
from ..metrics import TransactionMetrics
from ..outcome import frees_numbers
from ..producer_ids import NO_SEQUENCE
from ..sender import Senders
from ..settle import Settlement
from ..timers import Timers
from ..transactional_ids import TransactionalIds
from .coordinator import CoordinatorClient
from .detached_transaction import DetachedTransaction
from .parts import TransactionParts
from .requests import is_fatal, is_fatal_for_partitions
from .state import ProducerTransactionEvent, ProducerTransactionState, TransactionMachine

logger = logging.getLogger(__name__)

_S, _E = ProducerTransactionState, ProducerTransactionEvent


class _Ending:
    """A commit or an abort in progress. ``error`` is set before ``done``."""

    __slots__ = ("committed", "done", "error")

    def __init__(self, committed: bool) -> None:
        self.committed = committed
        self.done = LightEvent()
        self.error: KafkaError | None = None


class _Counts:
    """The ended transactions, and the loop's time at which the last one began."""

    __slots__ = ("aborted", "begun_at", "committed")

    def __init__(self) -> None:
        self.begun_at = 0.0
        self.committed = 0
        self.aborted = 0


class TransactionManager:
    """Owns the state of a producer's transactions. ``flush`` waits until all accepted records are settled.

    Each call raises IllegalStateError if the state does not allow it, and the error that ended the producer.
    """

    def __init__(
        self,
        client: Client,
        config: ProducerConfig,
        ids: TransactionalIds,
        *,
        admission: Admission,
        settlement: Settlement,
        accumulator: Accumulator,
        dispatcher: Dispatcher,
        senders: Senders,
        failures: FailureStreams,
        timers: Timers,
        service: Service,
        flush: Callable[[], Awaitable[None]],
        spawn: Spawn,
    ) -> None:
        assert config.transactional_id is not None
        self.transactional_id: str = config.transactional_id
        self._client = client
        self._ids = ids
        self._admission = admission
        self._settlement = settlement
        self._accumulator = accumulator
        self._senders = senders
        self._timers = timers
        self._service = service
        self._flush = flush
        self._spawn = spawn
        self._machine = TransactionMachine()
        self.open_number: int = 0
        """The number of the transaction that the coordinator has not ended; 0 if there is none."""
        self._coordinator_client = CoordinatorClient(client, config.transactional_id, config.transaction_timeout, ids)
        self.parts: TransactionParts = TransactionParts(
            self._machine,
            self._coordinator_client,
            ids,
            settlement,
            dispatcher,
            spawn,
            fail=lambda error: self._fail(error, fatal=is_fatal_for_partitions(error)),
        )
        self._idle = LightEvent()  # no commit or abort is in progress
        self._flushing: anyio.CancelScope | None = None
        self._ending: _Ending | None = None  # kept until a caller has got its outcome
        self._defer: Callable[[KafkaError], bool] | None = None
        self._counts = _Counts()
        failures.on_failure(self._record_failed)
        admission.follow(0, self._machine.refusal())

    @property
    def state(self) -> ProducerTransactionState:
        return self._machine.state

    @property
    def can_abort(self) -> bool:
        """Whether a transaction is open and is not being committed or aborted."""
        return self._machine.state in (_S.IN_TRANSACTION, _S.ABORTABLE_ERROR)

    def metrics(self) -> TransactionMetrics:
        state = self._machine.state
        is_open = state in (_S.IN_TRANSACTION, _S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR)
        return TransactionMetrics(
            transactional_id=self.transactional_id,
            state=state.name,
            generation=self._ids.generation,
            coordinator=self._coordinator_client.channel.node,
            open_for=self._timers.now() - self._counts.begun_at if is_open else None,
            partitions=self._ids.partitions if is_open else 0,
            committed=self._counts.committed,
            aborted=self._counts.aborted,
        )

    # The calls of the user.

    async def start(self) -> None:
        """Get the producer id. This ends an open transaction of an earlier producer, and fences that producer."""
        bound = self._client.config.api_timeout if self._service.start_timeout is None else None
        self._happened(_E.INITIALIZE)
        with deadline(bound, lambda: self._late(f"transactional_id {self.transactional_id!r} was not initialized")):
            await self._coordinator_client.initialize()
        self._happened(_E.INITIALIZED)
        self._idle.set()

    async def begin(self, timeout: float | None, defer: Callable[[KafkaError], bool] | None = None) -> int:
        """Begin a transaction, and return its number. Waits until the outcome of the previous one is known.

        Sends do not raise the error of a failed transaction if ``defer`` returns True for it.
        """
        bound = self._bound(timeout)
        end = self._timers.now() + bound
        while True:
            if not self._idle.is_set() or self._ending is not None:
                with deadline.at(end, lambda: self._late("no transaction was begun")):
                    await self._until_ended()
            await self._coordinator_client.wait_markers(bound)
            if self._idle.is_set():
                break
            # Another task has begun a transaction meanwhile, which is being committed or aborted now.
        self._service.check()
        if self._machine.state is _S.IN_TRANSACTION:
            raise IllegalStateError("a transaction is open: commit or abort it before the next one begins")
        if self._machine.has_failed:
            self._raise_refusal()
        self._ids.begin(self._coordinator_client.channel.generation)
        self._coordinator_client.begin()
        self._ending = None
        self._counts.begun_at = self._timers.now()
        self._defer = defer
        self._happened(_E.BEGIN)
        return self._machine.number

    async def _until_ended(self) -> None:
        """Wait until no commit or abort is in progress."""
        await self._service.while_running(self._idle.wait())
        # No caller waited for the outcome of a commit. It is known now: the coordinator requires an abort.
        if self._ending is not None and self.state is _S.ABORTABLE_ERROR:
            await self._outcome(self._start_ending(committed=False))

    async def commit(self, timeout: float | None) -> None:
        """Flush and commit. After a KafkaTimeout, another call waits for the outcome of the first one."""
        bound = self._bound(timeout)
        end = self._timers.now() + bound
        ending = self._ending
        if ending is None or not ending.committed:
            self._check_open()
            if self.parts.sends_offsets:
                raise IllegalStateError("send_offsets has not returned yet: await it before the commit")
            await self._flush_before(end)
            ending = self._start_ending(committed=True)

        def describe() -> str:
            return self._late(
                f"the outcome of the commit is not known after {bound:g} s, and the producer continues to ask for it;"
                " call commit_transaction() again to wait, or begin the next transaction, which waits too"
            )

        with deadline.at(end, describe):
            await self._outcome(ending)

    async def detach(self, timeout: float | None) -> DetachedTransaction:
        """Flush, and leave the transaction open for another process to end. Then only ``close`` is possible."""
        self._check_open()
        await self._flush_before(self._timers.now() + self._bound(timeout))
        assert self._ids.newest is not None, "the producer is initialized"
        self._idle.set()  # close() has nothing to wait for
        newest = self._ids.newest
        return DetachedTransaction(
            self.transactional_id,
            newest.producer_id,
            newest.epoch,
            self._ids.generation,
            self._coordinator_client.transaction_timeout,
        )

    async def abort(self, timeout: float | None) -> None:
        """Abort. After a KafkaTimeout, another call waits for the end of the first one."""
        bound, ending = self._bound(timeout), self._ending
        if ending is None or ending.committed:
            if self.state is _S.COMMITTING:
                raise IllegalStateError("the transaction is being committed: await commit_transaction() instead")
            if self.state is not _S.ABORTABLE_ERROR:
                self._check_open()
            ending = self._start_ending(committed=False)

        def describe() -> str:
            return self._late(
                f"the transaction was not aborted within {bound:g} s; the abort continues, and the next transaction"
                " waits for it"
            )

        with deadline(bound, describe):
            await self._outcome(ending)

    def check_number(self, number: int | None) -> None:
        """Raise unless the producer runs, and its open transaction has this number."""
        if number != self.open_number:
            raise IllegalStateError("this transaction is not open: use it inside its 'async with' block")
        self._service.check()

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: GroupMetadata,
        timeout: float | None,
    ) -> None:
        """Commit offsets of a group. After a failure or a cancellation, the transaction can only be aborted.

        Raises TypeError and ValueError for wrong arguments.
        """
        check_timeout(timeout)
        checked = checked_offsets(offsets)
        for offset in checked.values():
            text("metadata", offset.metadata)
        group = _checked_group(group_metadata)
        self._check_open()
        if not checked:
            return
        number = self._machine.number
        try:
            what = f"offsets of group {group.group_id!r} were not added to the transaction"
            with deadline(self._bound(timeout), lambda: self._late(what)):
                await self._service.while_running(self.parts.send_offsets(checked, group))
        except BaseException as error:
            # The call may end after its transaction, for example after an abort. The next transaction must not fail for
            # it.
            if number == self._machine.number:
                self._fail(error if isinstance(error, Exception) else TransactionAborted("send_offsets was cancelled"))
            raise

    def record_refused(self, error: Exception) -> None:
        """Fail the open transaction, because it lacks a record whose error a call returns in a list."""
        self._fail(error, fatal=False)

    async def close(self) -> None:
        """End the open transaction: a commit continues, otherwise the transaction is aborted."""
        if self.can_abort:
            await self.abort(None)
        else:
            await self._idle.wait()

    # Commit and abort.

    async def _flush_before(self, end: float) -> None:
        """Refuse new records, and wait until all accepted ones are written. If they are not, nothing is committed."""
        self._happened(_E.COMMIT)
        self._idle.clear()
        number = self._machine.number

        def describe() -> str:
            batches = plural(len(self._settlement.unsettled), "batch")
            return f"the transaction was not committed: {batches} had no acknowledgement in time; abort it"

        try:
            with deadline.at(end, describe), anyio.CancelScope() as self._flushing:
                await self._service.while_running(self._flush())
        except BaseException as error:
            if number == self._machine.number:
                cancelled = TransactionAborted("the commit was cancelled before EndTxn was sent")
                self._fail(error if isinstance(error, Exception) else cancelled)
            raise
        finally:
            self._flushing = None
            if self.state is not _S.COMMITTING:
                self._idle.set()
        if self.state is not _S.COMMITTING:
            self._raise_refusal()

    def _start_ending(self, *, committed: bool) -> _Ending:
        if not committed:
            cause = self._machine.cause or "the caller aborts it"
            logger.info("aborting transaction %d of %r: %s", self._machine.number, self.transactional_id, cause)
            self._happened(_E.ABORT)
        self._idle.clear()
        ending = self._ending = _Ending(committed)
        self._spawn(partial(self._end, ending), "end of transaction")
        return ending

    async def _outcome(self, ending: _Ending) -> None:
        await self._service.while_running(ending.done.wait())
        if self._ending is ending:
            self._ending = None
        if ending.error is not None:
            raise ending.error.with_traceback(None)

    async def _end(self, ending: _Ending) -> None:
        """End a transaction, as a task of the producer (rule 2)."""
        cause = self._machine.cause
        try:
            if not ending.committed:
                await self._drop_records(cause)
            await self.parts.wait_quiet()
            assert self.parts.is_quiet, (
                "EndTxn is sent when no other request of the transaction is in progress (rule 3)"
            )
            await self._coordinator_client.end(committed=ending.committed)
        except KafkaError as error:
            ending.error = error
            # After a failed commit, an abort is possible unless the error is fatal. Any other failure is final.
            can_abort = ending.committed and not is_fatal(error)
            self._happened(_E.FAILED if can_abort else _E.REFUSED, error)
        else:
            self._counts.committed += ending.committed
            self._counts.aborted += not ending.committed
            self._happened(_E.ENDED)
            if self._ids.needs_new_epoch:
                self._happened(_E.INITIALIZE)
        # Callers continue before the new epoch is requested, because only the next transaction needs the epoch.
        ending.done.set()
        if self.state is _S.INITIALIZING:
            await self._take_new_epoch()
        self._idle.set()

    async def _drop_records(self, cause: Exception | None) -> None:
        """Fail all records, with the ``cause`` of the abort or with TransactionAborted.

        In generation 1, waits for the answers to records in flight (rule 3).
        """
        error = cause or TransactionAborted("the record was not written: its transaction was aborted")
        log = _quiet_log(error)
        self._accumulator.fail_unsent(error, log)
        # A batch that is to be retried is sent again at the earliest in a later iteration of the loop.
        while self._ids.generation < 2 and await self._senders.wait_answered():
            self._settlement.fail_all(error, log=log)
        self._settlement.fail_all(error, log=log)

    async def _take_new_epoch(self) -> None:
        logger.info("taking a new epoch for transactional_id %r: an answer was lost", self.transactional_id)
        try:
            await self._coordinator_client.initialize(self._ids.newest)
        except KafkaError as error:
            self._happened(_E.REFUSED, error)
        else:
            self._happened(_E.INITIALIZED)

    # Failures.

    def _record_failed(self, error: Exception, batch: ProducerBatch | None) -> None:
        """Handle failed records. Runs while a batch is settled, so the abort begins in the loop's next iteration."""
        # The sequence may have a gap now, which in generation 1 only a new epoch repairs. If the leader refused a batch
        # because of its content, the sequence numbers of the batch are free again.
        if (
            batch is not None
            and batch.sequence != NO_SEQUENCE
            and (self.state is _S.ABORTING or not frees_numbers(error, batch))
        ):
            self._ids.sequence_broken()
        # The answer to the abort decides whether an outdated epoch (INVALID_PRODUCER_EPOCH) is final.
        self._fail(error, fatal=isinstance(error, ProducerFenced) and error.code is ErrorCode.PRODUCER_FENCED)

    def _fail(self, error: Exception, *, fatal: bool | None = None) -> None:
        """Record a failure in the open transaction. The first failure counts.

        With ``fatal=None``, the error decides whether it is fatal.
        """
        # After the end has begun, only the answer of the coordinator decides the outcome.
        if self.state not in (_S.IN_TRANSACTION, _S.COMMITTING) or self._ending is not None:
            return
        if fatal is None:
            fatal = isinstance(error, KafkaError) and is_fatal(error)
        self._happened(_E.REFUSED if fatal else _E.FAILED, error)

    def _happened(self, event: ProducerTransactionEvent, cause: Exception | None = None) -> None:
        self._machine.happened(event, cause)
        if self.state not in (_S.IN_TRANSACTION, _S.COMMITTING):
            self._ids.close()
        refusal, defer = self._machine.refusal(), self._defer
        is_deferred = self.state is _S.ABORTABLE_ERROR and defer is not None and refusal is not None and defer(refusal)
        self._admission.follow(self._machine.number, refusal, is_deferred=is_deferred)
        self.open_number = 0 if self.state in (_S.READY, _S.INITIALIZING) else self._machine.number
        if not self._machine.has_failed:
            return
        if self._flushing is not None:
            self._flushing.cancel()
        assert cause is not None
        # Callers may wait for these records in the body of the transaction, and would wait until the delivery timeout.
        if self.state is _S.FATAL_ERROR:
            self._timers.soon(partial(self._settlement.fail_all, cause, fatal=True))
        else:
            self._timers.soon(self._accumulator.fail_unsent, cause, _quiet_log(cause))

    def _check_open(self) -> None:
        if self.state is not _S.IN_TRANSACTION:
            self._raise_refusal()

    def _raise_refusal(self) -> None:
        """Raise the first cause of a failure, or IllegalStateError."""
        refusal = self._machine.refusal()
        assert refusal is not None
        raise refusal.with_traceback(None)

    def _bound(self, timeout: float | None) -> float:
        return self._client.config.api_timeout if timeout is None else timeout

    @property
    def waiting_error(self) -> KafkaError | None:
        """The error of the request to the coordinator that is being repeated; None if the last request succeeded."""
        return self._coordinator_client.channel.last_error

    def _late(self, what: str) -> str:
        last = self.waiting_error
        return what if last is None else f"{what}; the last error was: {last}"


def _quiet_log(error: Exception) -> FailureLog:
    """Return the log for records that fail with their transaction, whose own error and log line report the failure."""
    return FailureLog(error, logging.DEBUG)


def _checked_group(group_metadata: object) -> GroupMetadata:
    if isinstance(group_metadata, GroupMetadata):
        text("group_metadata.group_id", group_metadata.group_id)
        whole("group_metadata.generation_id", group_metadata.generation_id, -1)
        if not isinstance(group_metadata.member_id, str):
            raise TypeError(must_be("group_metadata.member_id", "a string", group_metadata.member_id))
        if group_metadata.group_instance_id is not None:
            text("group_metadata.group_instance_id", group_metadata.group_instance_id)
        return group_metadata
    what = "a GroupMetadata, as consumer.group_metadata() returns it (or GroupMetadata('group') without a member)"
    raise TypeError(must_be("group_metadata", what, group_metadata))
