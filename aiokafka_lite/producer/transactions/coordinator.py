"""The requests of a transactional producer to its coordinator, each repeated until it has a definite answer.

Rule 1: the outcome of a request is never guessed. A request whose answer was lost is sent again, and the coordinator
  answers the repeated request like the first one.

Rule 2: in generation 1, such a request may still be in flight when its repetition is answered, and could then affect a
later transaction. So it marks the epoch as outdated, and the producer takes a new one before the next transaction
(KIP-360). In generation 2 each EndTxn raises the epoch, which refuses every late request.

Rule 3: no task of a caller waits for the answers: tasks of the producer do, and ``commit_at_once`` has a callback. So
no cancellation makes the producer forget a request that the coordinator may execute. The only exception is the request
of ``wait_markers``, which changes nothing.

Rule 4: a request with offsets whose answer was lost may still arrive later in the same transaction, where no epoch
refuses it. Then no other offset of its partitions is added, because the late request would replace it.

Rule 5: in generation 1, offsets are sent only when all groups of the previous transaction have applied it. Brokers
before Kafka 3.9.1 and 4.0 answer the marker first and apply it later (KAFKA-17507). They apply it to all offsets that
the producer id has sent by then, of each group with the same coordinator. So offsets that are sent too early are
committed or dropped with the previous transaction. If the worker then dies before its commit, the group has committed
offsets of records that were never written. A producer waits without a limit until its group has applied its own
previous transaction. It asks only about the partitions of that transaction: pending offsets of other partitions belong
to another producer. Two waits end after ``LONGEST_STABLE_WAIT``: the wait before the first offsets of a producer, and
the wait for a group that gets no offsets now.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress

from ...aio.alarms import loop_alarms
from ...aio.retry import is_momentary, is_refusal, is_retriable
from ...arguments import plural
from ...cluster.client import Client
from ...cluster.coordinator_channel import CoordinatorChannel
from ...errors import (
    BrokerError,
    ErrorCode,
    KafkaError,
    KafkaTimeout,
    ProtocolError,
    TransactionAborted,
    UnsupportedVersion,
)
from ...net.connection import Purpose
from ...protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
)
from ...protocol.versions import VersionTable
from ...types import GroupMetadata, OffsetAndMetadata, TopicPartition
from ..producer_ids import ProducerIdAndEpoch
from ..transactional_ids import TransactionalIds
from .channel import TransactionChannel, may_arrive
from .requests import (
    LAST_ADD_PARTITIONS,
    LAST_END_OF_GENERATION_1,
    LAST_OFFSETS_OF_GENERATION_1,
    add_partitions_request,
    check_two_phase_commit,
    decisive,
    final_codes,
    init_request,
    offsets_refused,
    offsets_request,
    pending_offsets_request,
    read_added,
    read_offsets,
    read_pending,
    two_phase_commit_refused,
)

logger = logging.getLogger(__name__)

LONGEST_MARKER_WAIT = 0.02
"""The longest time in seconds that a transaction of generation 2 waits for the markers of the previous one. A partition
leader that meets CONCURRENT_TRANSACTIONS waits as long."""

_MARKER_PAUSES = (0.0, 0.0, 0.0, 0.001, 0.002, 0.004, 0.008, 0.016)
"""Seconds between the requests of ``wait_markers``. With 0, only the round trip of a request is between two requests. A
sleep would be longer: event loops round it up to a millisecond."""

LONGEST_STABLE_WAIT = 10.0
"""Seconds that the first offsets of a producer wait for a transaction of its id that another process has left (rule 5).
An offset that is pending for longer usually belongs to another producer, or to a transaction that this process has
taken over."""

_PREPARED = ("PrepareCommit", "PrepareAbort")
"""The states of a transactional id whose markers are being written, in the answer to DescribeTransactions."""


class CoordinatorClient:
    """Sends the requests of one transactional id. ``ids`` contains the identity, which the answers change.

    ``has_started`` is True if the coordinator may have begun the transaction, and has to end it.
    """

    def __init__(
        self,
        client: Client,
        transactional_id: str,
        transaction_timeout: float,
        ids: TransactionalIds,
        *,
        two_phase_commit: bool = False,
    ) -> None:
        self.has_started: bool = False
        self.two_phase_commit: bool = two_phase_commit
        self._markers_until = -math.inf
        self._is_certain = True
        self._has_warned = False
        self._late_offsets: dict[tuple[str, TopicPartition], OffsetAndMetadata] = {}  # requests whose answers were lost
        self._last_offsets: dict[str, set[TopicPartition]] = {}
        """For each group, the partitions of its offsets in this transaction. Before the first offsets, they are from
        the last transaction with offsets."""
        self._stable_groups: set[str] = set()  # groups that have applied the previous transaction (rule 5)
        self._client = client
        self._transactional_id = transactional_id
        self.transaction_timeout = transaction_timeout
        self._longest = math.inf if two_phase_commit else transaction_timeout  # no timeout aborts a prepared one
        self._ids = ids
        self.channel: TransactionChannel = TransactionChannel(client, transactional_id, self._longest, ids)

    def begin(self) -> None:
        """Begin a transaction. The coordinator does not know it yet."""
        self.has_started = False
        self._markers_until = -math.inf
        self._is_certain = True
        # A late request of an earlier transaction is refused by its epoch (rule 2).
        self._late_offsets.clear()
        self._stable_groups.clear()

    # Requests to the coordinator of the transactional id.

    async def initialize(self, present: ProducerIdAndEpoch | None = None) -> None:
        """Get a producer id, or a newer epoch than that of ``present``. This ends an open transaction first."""

        def build(versions: VersionTable) -> InitProducerIdRequest:
            if present is not None and not versions.supports(InitProducerIdRequest.EPOCH_BUMP):
                raise UnsupportedVersion(
                    "the producer needs a new epoch after a lost answer, and brokers before Kafka"
                    f" {InitProducerIdRequest.EPOCH_BUMP.kafka} do not assign one; close this producer and create"
                    " another"
                )
            if self.two_phase_commit:
                check_two_phase_commit(versions)
            request = init_request(self._transactional_id, self.transaction_timeout, present)
            request.enable2_pc = self.two_phase_commit
            return request

        what = f"initializing transactional_id {self._transactional_id!r}"

        async def attempt() -> BrokerError | None:
            answer, node_id = await self.channel.send(build, may_arrive_late=False)
            refusal = self.channel.refusal(answer.error_code, node_id, what)
            if refusal is None:
                self._receive(answer.producer_id, answer.producer_epoch)
            elif self.two_phase_commit and refusal.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                refusal = two_phase_commit_refused(what, self._transactional_id)
            return refusal

        # At the start, the caller gets a refusal at once.
        retries = is_retriable if present is None else is_momentary
        await self.channel.repeat(what, attempt, _always, retries=retries)

    async def add_partitions(self, is_needed: Callable[[], bool], on_failed: Callable[[KafkaError], None]) -> None:
        """Add the waiting partitions while ``is_needed``. ``on_failed`` gets the error of each repeated attempt."""
        ids = self._ids
        what = ""

        async def attempt() -> BrokerError | None:
            # Read in each attempt, so that a repeated request has the partitions that were added to ``waiting``
            # meanwhile.
            partitions = list(ids.waiting)

            def build(versions: VersionTable) -> AddPartitionsToTxnRequest:
                self._starts()
                return add_partitions_request(self._transactional_id, self._identity, partitions)

            answer, node_id = await self.channel.send(build, at_most=LAST_ADD_PARTITIONS)
            codes = read_added(partitions, answer)
            for partition, code in codes.items():
                if code is ErrorCode.NONE:
                    ids.added(partition)
                    self._is_certain = True
            return self.channel.refusal(decisive(codes.values()), node_id, what)

        # Partitions may be added to ``waiting`` while an attempt waits for its answer.
        while ids.waiting and is_needed():
            what = f"adding {plural(len(ids.waiting), 'partition')} to the transaction"
            await self.channel.repeat(what, attempt, is_needed, on_failed=on_failed)

    async def end(self, *, committed: bool, failure: KafkaError | None = None) -> None:
        """Commit or abort, and take the new epoch that generation 2 returns. ``failure``: of an earlier attempt."""
        if not self.is_known:
            return  # the coordinator would refuse to end a transaction that it does not know

        async def attempt() -> BrokerError | None:
            nonlocal failure
            if failure is not None:
                first, failure = failure, None
                raise first
            answer, node_id = await self.channel.send(self._end_request(committed), at_most=self._last_end)
            return self._read_end(answer, node_id, committed)

        # A refusal does not say whether an earlier attempt, whose answer was lost, has ended the transaction (rule 1).
        # After UNKNOWN_SERVER_ERROR, a commit is followed by an abort, as in Java's client, unless it was prepared.
        retries = _may_pass if committed else is_momentary
        await self.channel.repeat(_ending(committed), attempt, _always, retries=retries)

    def commit_at_once(self, on_answer: Callable[[Exception | None], object]) -> bool:
        """Send EndTxn on the open connection. Returns False if there is none, or no transaction: then call ``end``.

        ``on_answer`` gets None after the commit, otherwise the failure of this attempt, with which ``end`` goes on.
        """

        def answered(answer: EndTxnResponse | Exception, node_id: int) -> None:
            if isinstance(answer, Exception):
                on_answer(answer)
                return
            try:
                refusal: KafkaError | None = self._read_end(answer, node_id, committed=True)
            except ProtocolError as error:
                refusal = error
            if refusal is None:
                self.channel.succeeded()
            on_answer(refusal)

        return self.is_known and self.channel.send_at_once(
            self._end_request(committed=True), answered, at_most=self._last_end
        )

    @property
    def is_known(self) -> bool:
        """Whether the coordinator may know the transaction."""
        return self.has_started or self._ids.partitions > 0

    @property
    def _last_end(self) -> int | None:
        """The last version of EndTxn. The next one raises the epoch, which only generation 2 expects."""
        return None if self._ids.generation >= 2 else LAST_END_OF_GENERATION_1

    def _end_request(self, committed: bool) -> Callable[[VersionTable], EndTxnRequest]:
        return lambda _: EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            committed=committed,
        )

    def _read_end(self, answer: EndTxnResponse, node_id: int, committed: bool) -> BrokerError | None:
        """Read the answer to EndTxn. Returns the refusal. Raises ProtocolError."""
        refusal = self.channel.refusal(answer.error_code, node_id, _ending(committed))
        # No earlier request was successful, so the coordinator may not have begun the transaction.
        if answer.error_code == ErrorCode.INVALID_TXN_STATE and not committed and not self._is_certain:
            refusal = None
        elif refusal is None and self._ids.generation >= 2:
            self._receive(answer.producer_id, answer.producer_epoch)
        if refusal is None and self._ids.generation >= 2:
            self._markers_until = asyncio.get_running_loop().time() + LONGEST_MARKER_WAIT
        return refusal

    async def wait_markers(self, timeout: float) -> None:
        """Wait until the markers of the last transaction are written, but not longer than ``LONGEST_MARKER_WAIT`` after
        its end, or ``timeout`` seconds.

        Generation 1 does not wait, because this client itself repeats a request that comes too early.
        """
        now = asyncio.get_running_loop().time
        end = min(self._markers_until, now() + timeout)
        for pause in _MARKER_PAUSES:
            if now() >= end or not await self._writes_markers(end):
                return
            if pause:
                await asyncio.sleep(min(pause, end - now()))

    async def _writes_markers(self, end: float) -> bool:
        """Ask the coordinator whether it still writes the markers. Returns False if it does not say so by ``end``."""
        loop = asyncio.get_running_loop()
        writes: asyncio.Future[bool] = loop.create_future()

        def answered(answer: DescribeTransactionsResponse | Exception, node_id: int) -> None:
            if writes.done():
                return
            if isinstance(answer, Exception):
                logger.debug("could not find the state of transactional_id %r: %s", self._transactional_id, answer)
                writes.set_result(False)
            else:
                writes.set_result(any(state.transaction_state in _PREPARED for state in answer.transaction_states))

        def build(versions: VersionTable) -> DescribeTransactionsRequest:
            return DescribeTransactionsRequest(transactional_ids=[self._transactional_id])

        if not self.channel.send_at_once(build, answered, is_bounded=True):
            return False
        alarm = loop_alarms().at(end, lambda: answered(KafkaTimeout("there was no answer in time"), -1))
        try:
            return await writes
        finally:
            alarm.call_off()

    # Offsets.

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        is_needed: Callable[[], bool],
    ) -> None:
        """Commit offsets in the transaction, unless ``is_needed`` returns False before they are sent."""
        _check_replaceable(offsets, group.group_id, self._late_offsets)
        channel = CoordinatorChannel(self._client, group.group_id)
        generation = self._ids.generation
        if generation < 2:
            await self._prepare_group(group.group_id, offsets, is_needed)
        # The waits above may outlast the transaction.
        if not is_needed():
            return
        if generation < 2:
            self._last_offsets.setdefault(group.group_id, set()).update(offsets)
        # A repeated request has only the offsets that are not accepted yet.
        open_offsets = dict(offsets)
        what = f"committing offsets of group {group.group_id!r} in the transaction"

        def build(versions: VersionTable) -> TxnOffsetCommitRequest:
            self._starts()
            knows_members = versions.supports(TxnOffsetCommitRequest.GROUP_MEMBER)
            if group.member_id and not knows_members:
                self._warn_unchecked(group.group_id)
            return offsets_request(
                self._transactional_id, self._identity, group, open_offsets, knows_members=knows_members
            )

        async def attempt() -> BrokerError | None:
            await channel.find()  # before the ``try``, because a failed lookup has sent nothing
            try:
                answer, node_id = await channel.send(
                    build,
                    purpose=Purpose.OTHER,
                    timeout=self._client.config.request_timeout,
                    at_most=None if generation >= 2 else LAST_OFFSETS_OF_GENERATION_1,
                )
            except KafkaError as error:
                if may_arrive(error):
                    self._ids.answer_lost()
                    late = {(group.group_id, partition): offset for partition, offset in open_offsets.items()}
                    self._late_offsets.update(late)
                raise
            codes = read_offsets(open_offsets, answer)
            channel.record(codes.values(), node_id)
            if final := final_codes(codes):
                failure = offsets_refused(final, group, self._transactional_id, self._longest)
                if self._client.on_event is not None:
                    from ...events import CommitRefused

                    self._client.on_event(CommitRefused(group.group_id, failure.refused))
                raise failure
            self._is_certain = True
            for partition, code in codes.items():
                if code is ErrorCode.NONE:
                    del open_offsets[partition]
            open_offset = next(iter(open_offsets), None)
            return None if open_offset is None else self.channel.error(codes[open_offset], f"{what}: {open_offset}")

        await self.channel.repeat(what, attempt, is_needed)

    def _warn_unchecked(self, group_id: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "brokers before Kafka %s do not check the member that commits offsets of group %r in a transaction, so"
                " records may be processed twice after a rebalance",
                TxnOffsetCommitRequest.GROUP_MEMBER.kafka,
                group_id,
            )

    async def _prepare_group(
        self, group_id: str, offsets: Iterable[TopicPartition], is_needed: Callable[[], bool]
    ) -> None:
        """Add the group to the transaction, and wait for the previous transaction (rule 5): generation 1."""
        await self._add_group(group_id, is_needed)
        # All groups of the previous transaction count, because its marker may be applied to any of their offsets (rule
        # 5).
        for name in dict.fromkeys((*self._last_offsets, group_id)):
            if name not in self._stable_groups:
                await self._wait_stable(name, offsets, is_needed, is_other=name != group_id)

    async def _add_group(self, group_id: str, is_needed: Callable[[], bool]) -> None:
        what = f"adding group {group_id!r} to the transaction"

        def build(versions: VersionTable) -> AddOffsetsToTxnRequest:
            self._starts()
            producer_id, epoch = self._identity
            return AddOffsetsToTxnRequest(
                transactional_id=self._transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                group_id=group_id,
            )

        async def attempt() -> BrokerError | None:
            answer, node_id = await self.channel.send(build)
            refusal = self.channel.refusal(answer.error_code, node_id, what)
            self._is_certain = self._is_certain or refusal is None
            return refusal

        await self.channel.repeat(what, attempt, is_needed)

    async def _wait_stable(
        self, group_id: str, offsets: Iterable[TopicPartition], is_needed: Callable[[], bool], *, is_other: bool
    ) -> None:
        """Wait until the group has no pending offset of the previous transaction (rule 5).

        If the previous transaction had no offsets of the group, the request names ``offsets``, and the wait ends after
        ``LONGEST_STABLE_WAIT``. ``is_other``: the group gets no offsets now. Its coordinator may be down, so this wait
        ends after the same time, and its errors are ignored. Brokers before Kafka 2.5 do not report pending offsets.
        """
        previous = self._last_offsets.get(group_id)
        channel = CoordinatorChannel(self._client, group_id)
        clock = asyncio.get_running_loop().time
        end = math.inf if previous and not is_other else clock() + LONGEST_STABLE_WAIT
        what = f"waiting until group {group_id!r} has applied the previous transaction"

        async def attempt() -> BrokerError | None:
            await channel.find()
            answer, node_id = await channel.send(
                lambda versions: pending_offsets_request(group_id, previous or set(offsets), versions),
                purpose=Purpose.OTHER,
                timeout=self._client.config.request_timeout,
                at_most=OffsetFetchRequest.MANY_GROUPS - 1,
            )
            code = read_pending(answer)
            channel.record((code,), node_id)
            # Only pending offsets delay the transaction. A final error is reported by the commit of the offsets itself.
            return self.channel.error(code, what) if code.retriable else None

        with suppress(KafkaError) if is_other else nullcontext():
            await self.channel.repeat(what, attempt, lambda: is_needed() and clock() < end)
        # This is recorded after the time limit too, so that a transaction waits for a group at most once.
        if is_needed():
            self._last_offsets.pop(group_id, None)
            self._stable_groups.add(group_id)

    # Sending.

    @property
    def _identity(self) -> ProducerIdAndEpoch:
        assert self._ids.newest is not None, "the producer is initialized"
        return self._ids.newest

    def _starts(self) -> None:
        """Record a request that begins the transaction at the coordinator, if its answer is a success."""
        if not self.has_started:
            self.has_started, self._is_certain = True, False

    def _receive(self, producer_id: int, epoch: int) -> None:
        if producer_id < 0 or epoch < 0:
            raise ProtocolError(
                f"the coordinator of transactional_id {self._transactional_id!r} assigned producer id {producer_id} and"
                f" epoch {epoch}; both must be >= 0"
            )
        self._ids.received(ProducerIdAndEpoch(producer_id, epoch))


def _always() -> bool:
    return True


def _ending(committed: bool) -> str:
    return "committing the transaction" if committed else "aborting the transaction"


def _may_pass(error: KafkaError) -> bool:
    """Return whether a commit is sent again: the error is retriable, or an operator can grant the permission."""
    return is_retriable(error) or is_refusal(error)


def _check_replaceable(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group_id: str,
    late: Mapping[tuple[str, TopicPartition], OffsetAndMetadata],
) -> None:
    """Raise TransactionAborted if a late request could replace one of these offsets by an older one (rule 4)."""
    for partition, offset in offsets.items():
        earlier = late.get((group_id, partition), offset)
        if earlier != offset:
            raise TransactionAborted(
                f"offset {offset.offset} of {partition} was not added to the transaction: an earlier request with"
                f" offset {earlier.offset} has no answer and may still arrive later; abort and repeat the transaction"
            )
