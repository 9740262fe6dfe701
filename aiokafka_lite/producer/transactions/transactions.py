"""The transactions of one producer: begin, offsets, commit, abort.

Rule 1: ``TransactionMachine`` decides what is possible. Only ``_happened`` moves it, and sets the error with which new
  records are refused.

Rule 2: the producer ends a transaction, not the task of the caller: the answer to EndTxn is handled where it is read,
  and after a failure a task goes on (``_end``). If the caller is cancelled, or its timeout ends, this continues until
  the coordinator has answered. So the outcome is always determined, and the next transaction begins only afterwards.

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
import math
from collections.abc import Callable, Mapping
from functools import partial

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
from ..delivery import BatchResult, FailureLog
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
from .prepared_transaction import commit_prepared, prepared_text
from .requests import is_fatal, is_fatal_for_partitions
from .state import ProducerTransactionEvent, ProducerTransactionState, TransactionMachine

logger = logging.getLogger(__name__)

_S, _E = ProducerTransactionState, ProducerTransactionEvent


class _Ending:
    """A commit or an abort in progress. ``error`` is set before ``done``.

    ``was_prepared``: only the user ends the transaction, so a failed commit must not lead to an abort.
    """

    __slots__ = ("committed", "done", "error", "was_prepared")

    def __init__(self, committed: bool, was_prepared: bool) -> None:
        self.committed = committed
        self.was_prepared = was_prepared
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
    """Owns the state of a producer's transactions.

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
        self._spawn = spawn
        self._machine = TransactionMachine()
        self.open_number: int = 0
        """The number of the transaction that the coordinator has not ended; 0 if there is none."""
        self._coordinator_client = CoordinatorClient(
            client,
            config.transactional_id,
            config.transaction_timeout,
            ids,
            two_phase_commit=config.two_phase_commit,
        )
        self._stored = config.prepared_transaction
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
        self._flushed = LightEvent()  # the commit has nothing to wait for: all records are settled, or one has failed
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
        is_open = state in (_S.IN_TRANSACTION, _S.PREPARED, _S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR)
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
        bound = self._client.config.api_timeout if self._service.start_timeout is None else math.inf
        end = self._timers.now() + bound
        self._happened(_E.INITIALIZE)
        if self._stored:
            await commit_prepared(self._client, self.transactional_id, self._stored, bound)
        with deadline.at(end, lambda: self._late(f"transactional_id {self.transactional_id!r} was not initialized")):
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
                await self._until_ended(end)
            await self._coordinator_client.wait_markers(bound)
            if self._idle.is_set():
                break
            # Another task has begun a transaction meanwhile, which is being committed or aborted now.
        self._service.check()
        if self._machine.state is _S.IN_TRANSACTION:
            raise IllegalStateError("a transaction is open: commit or abort it before the next one begins")
        if self._machine.state is _S.PREPARED:
            self._raise_refusal()
        if self._machine.has_failed:
            self._raise_refusal()
        self._ids.begin(self._coordinator_client.channel.generation)
        self._coordinator_client.begin()
        self._ending = None
        self._counts.begun_at = self._timers.now()
        self._defer = defer
        self._happened(_E.BEGIN)
        return self._machine.number

    async def _until_ended(self, end: float) -> None:
        """Wait until no commit or abort is in progress, at most until the loop's time ``end``."""

        def describe() -> str:
            return self._late("no transaction was begun")

        await self._service.while_running(self._idle.wait(), until=end, describe=describe)
        # No caller waited for the outcome of a commit. It is known now: the coordinator requires an abort.
        if self._ending is not None and self.state is _S.ABORTABLE_ERROR:
            await self._outcome(self._start_ending(committed=False), end, describe)

    async def commit(self, timeout: float | None) -> None:
        """Flush and commit. After a KafkaTimeout, another call waits for the outcome of the first one."""
        bound = self._bound(timeout)
        end = self._timers.now() + bound
        ending = self._ending
        if self.state is _S.PREPARED:  # also after a commit that has failed
            self._happened(_E.COMMIT)
            ending = self._start_ending(committed=True, was_prepared=True)
        elif ending is None or not ending.committed:
            await self._write_all(end)
            ending = self._start_ending(committed=True)

        def describe() -> str:
            return self._late(
                f"the outcome of the commit is not known after {bound:g} s, and the producer continues to ask for it;"
                " call commit_transaction() again to wait, or begin the next transaction, which waits too"
            )

        await self._outcome(ending, end, describe)

    async def _write_all(self, end: float) -> None:
        """Flush the open transaction, at most until the loop's time ``end``."""
        self._check_open()
        if self.parts.sends_offsets:
            raise IllegalStateError("send_offsets has not returned yet: await it before the commit")
        await self._flush_before(end)

    async def prepare(self, timeout: float | None) -> str:
        """Flush, and return what identifies the transaction; empty if the coordinator has nothing to commit."""
        if not self._coordinator_client.two_phase_commit:
            raise IllegalStateError("prepare_transaction requires Producer(..., two_phase_commit=True)")
        await self._write_all(self._timers.now() + self._bound(timeout))
        self._happened(_E.PREPARE)
        self._idle.set()  # close() has nothing to wait for, and leaves the transaction open
        assert self._ids.newest is not None, "the producer is initialized"
        if not self._coordinator_client.is_known:
            return ""
        return prepared_text(self.transactional_id, self._ids.newest)

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
            if self.state not in (_S.ABORTABLE_ERROR, _S.PREPARED):
                self._check_open()
            ending = self._start_ending(committed=False)

        def describe() -> str:
            return self._late(
                f"the transaction was not aborted within {bound:g} s; the abort continues, and the next transaction"
                " waits for it"
            )

        await self._outcome(ending, self._timers.now() + bound, describe)

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
        """End the open transaction: a commit continues, otherwise the transaction is aborted.

        A failed abort is no error of the caller, who has not committed: the transaction has ended without it, or the
        coordinator aborts it after the transaction timeout.
        """
        if self.can_abort:
            try:
                await self.abort(None)
            except KafkaError as error:
                if self.state is not _S.FATAL_ERROR:  # then the error is in the log already
                    logger.warning(
                        "the producer closes with an open transaction of %r: %s", self.transactional_id, error
                    )
        else:
            await self._idle.wait()

    # Commit and abort.

    async def _flush_before(self, end: float) -> None:
        """Refuse new records, and wait until all accepted ones are written. If they are not, nothing is committed."""
        self._happened(_E.COMMIT)
        self._idle.clear()
        self._flushed.clear()
        number = self._machine.number

        def describe() -> str:
            batches = plural(len(self._settlement.unsettled), "batch")
            return f"the transaction was not committed: {batches} had no acknowledgement in time; abort it"

        try:
            self._accumulator.flush()
            self._look_for_unsettled()
            await self._service.while_running(self._flushed.wait(), until=end, describe=describe)
        except BaseException as error:
            if number == self._machine.number:
                cancelled = TransactionAborted("the commit was cancelled before EndTxn was sent")
                self._fail(error if isinstance(error, Exception) else cancelled)
            raise
        finally:
            if self.state is not _S.COMMITTING:
                self._idle.set()
        if self.state is not _S.COMMITTING:
            self._raise_refusal()

    def _look_for_unsettled(self, settled: BatchResult | None = None) -> None:
        """Follow the oldest unsettled records, if there are any, until all are settled. ``settled`` has just been."""
        if settled is not None and settled.moved is not None:
            self._accumulator.flush()  # the records are in other batches now, which must not linger either
        for unsettled in self._settlement.unsettled:
            unsettled.follow(partial(self._look_for_unsettled, unsettled))
            return
        self._flushed.set()

    def _start_ending(self, *, committed: bool, was_prepared: bool = False) -> _Ending:
        if not committed:
            cause = self._machine.cause or "the caller aborts it"
            logger.info("aborting transaction %d of %r: %s", self._machine.number, self.transactional_id, cause)
            self._happened(_E.ABORT)
        self._idle.clear()
        ending = self._ending = _Ending(committed, was_prepared)

        def answered(failure: Exception | None) -> None:
            self._timers.run(self._commit_answered, ending, failure)

        # Nearly every commit succeeds at once. A task for it would take a quarter of the time of a small transaction.
        if not (committed and self.parts.is_quiet and self._coordinator_client.commit_at_once(answered)):
            self._spawn(partial(self._end, ending), "end of transaction")
        return ending

    def _commit_answered(self, ending: _Ending, failure: Exception | None) -> None:
        """Handle the first answer to a commit. After a failure, a task goes on."""
        if failure is None:
            self._ended(ending)
        elif isinstance(failure, KafkaError):
            self._spawn(partial(self._end, ending, failure), "end of transaction")
        else:
            raise failure  # a bug, with which ``Timers.run`` ends the producer

    async def _outcome(self, ending: _Ending, end: float, describe: Callable[[], str]) -> None:
        """Wait for the outcome, at most until the loop's time ``end``. Raises the error of the ending."""
        await self._service.while_running(ending.done.wait(), until=end, describe=describe)
        if self._ending is ending:
            self._ending = None
        if ending.error is not None:
            raise ending.error.with_traceback(None)

    async def _end(self, ending: _Ending, failure: KafkaError | None = None) -> None:
        """End a transaction, as a task of the producer (rule 2). ``failure`` is that of the first attempt."""
        cause = self._machine.cause
        try:
            if not ending.committed:
                await self._drop_records(cause)
            await self.parts.wait_quiet()
            assert self.parts.is_quiet, (
                "EndTxn is sent when no other request of the transaction is in progress (rule 3)"
            )
            await self._coordinator_client.end(committed=ending.committed, failure=failure)
        except KafkaError as error:
            ending.error = error
            # After a failed commit, an abort is possible unless the error is fatal. Any other failure is final.
            if not ending.committed or is_fatal(error):
                self._happened(_E.REFUSED, error)
            elif ending.was_prepared:
                self._happened(_E.NOT_ENDED)
                # The caller may no longer wait for the outcome.
                advice = "the transaction stays prepared; call commit_transaction() again"
                logger.warning("could not commit a transaction of %r: %s; %s", self.transactional_id, error, advice)
            else:
                self._happened(_E.FAILED, error)
            ending.done.set()
            self._idle.set()
        else:
            self._ended(ending)

    def _ended(self, ending: _Ending) -> None:
        """Handle the success of a commit or an abort. Its caller does not wait for a new epoch."""
        self._counts.committed += ending.committed
        self._counts.aborted += not ending.committed
        self._happened(_E.ENDED)
        ending.done.set()
        if self._ids.needs_new_epoch:
            self._happened(_E.INITIALIZE)
            self._spawn(self._take_new_epoch, "end of transaction")
        else:
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
        self._idle.set()

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
        machine = self._machine
        machine.happened(event, cause)
        state, refusal, defer = machine.state, machine.refusal(), self._defer
        if state not in (_S.IN_TRANSACTION, _S.COMMITTING):
            self._ids.close()
        is_deferred = state is _S.ABORTABLE_ERROR and defer is not None and refusal is not None and defer(refusal)
        self._admission.follow(machine.number, refusal, is_deferred=is_deferred)
        self.open_number = 0 if state in (_S.READY, _S.INITIALIZING) else machine.number
        if not machine.has_failed:
            return
        self._flushed.set()
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
