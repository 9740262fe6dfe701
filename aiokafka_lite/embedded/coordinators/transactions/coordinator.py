"""The transactional ids of one node: it leads their partitions of ``__transaction_state``.

``transaction`` decides; this file writes the decision to the log, and then acts on it.

Rules of this file:

 1. The memory of the coordinator is a cache of that partition. When the node becomes the leader, it reads the
    transactional ids from the log, and continues to write the markers of ending transactions. When it is no longer the
    leader, it drops them, and requests that wait get NOT_COORDINATOR.
 2. One change of a transactional id at a time: while ``pending`` is set, other requests get CONCURRENT_TRANSACTIONS.
 3. A change runs in a task of the node. A client that disconnects does not stop it halfway.
 4. EndTxn is answered when the decision is in the log. The markers follow. Until all of them are written, requests for
    the next transaction get CONCURRENT_TRANSACTIONS.
 5. Writing takes time. After it, the transactional id may belong to another node: check again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import anyio

from ....errors import ErrorCode, IllegalStateError
from ...log.producer_state import Marker
from ...metadata.topics import PartitionKey
from ...metadata.view import MetadataView
from ...replicas.manager import ReplicaManager
from ...settings.configs import BrokerSettings
from . import transaction as decisions
from .log import TransactionLog
from .requests import TransactionRequests
from .transaction import GENERATION_2, NO_EPOCH, NO_PRODUCER_ID, NO_TIMEOUT, TransactionMetadata, TransactionRefused
from .transaction import TransactionEvent as Event
from .transaction import TransactionState as State

logger = logging.getLogger(__name__)

WRITE_TIMEOUT = 5.0
"""Seconds that a write of a transactional id waits for the replicas."""
RETRY_PAUSE = 0.1
"""Seconds until a failed write of a completed transaction is repeated."""


class ProducerResult(NamedTuple):
    """The result of a request, with the producer id and epoch that the producer uses from now on."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


@dataclass(slots=True, eq=False)
class _Hosted:
    """A transactional id, the leader epoch in which it was loaded, and the change that is being written.

    ``started`` is the loop's time at which the transaction began, because timeouts use the loop's clock.
    """

    value: TransactionMetadata
    coordinator_epoch: int
    started: float = 0.0
    pending: TransactionMetadata | None = None


class TransactionCoordinator:
    """The transactional ids of a node. Owner: the node.

    ``generation`` returns the finalized level of ``transaction.version``. ``spawn`` runs a coroutine function as a task
    under a name.
    """

    def __init__(
        self,
        node_id: int,
        metadata: MetadataView,
        replica_manager: ReplicaManager,
        settings: BrokerSettings,
        requests: TransactionRequests,
        *,
        now_ms: Callable[[], int],
        generation: Callable[[], int],
        next_producer_id: Callable[[], int],
        spawn: Callable[[Callable[[], Coroutine[Any, Any, None]], str], object],
    ) -> None:
        self._node_id = node_id
        self.log: TransactionLog = TransactionLog(metadata, replica_manager, now_ms)
        self._settings = settings
        self._requests = requests
        self._now_ms = now_ms
        self._generation = generation
        self._next_producer_id = next_producer_id
        self._spawn = spawn
        self._led: dict[int, int] = {}  # partition of the transaction topic → leader epoch at which it was loaded
        self._hosted: dict[str, _Hosted] = {}

    def __repr__(self) -> str:
        return f"<TransactionCoordinator node={self._node_id} partitions={len(self._led)} ids={len(self._hosted)}>"

    # Which transactional ids are here.

    @property
    def largest_producer_id(self) -> int:
        """The largest producer id that a transactional id has or had here; -1 if there is none."""
        values = [hosted.value for hosted in self._hosted.values()]
        return max(
            (max(value.producer_id, value.previous_producer_id, value.next_producer_id) for value in values), default=-1
        )

    def apply(self) -> None:
        """Load the partitions that this node leads after a change of leaders, and drop the others."""
        led = self.log.leader_epochs(self._node_id)
        # A new epoch of this leader loads the ids again, because markers carry the epoch of their coordinator and
        # leaders of partitions refuse an older one.
        for index in [index for index, epoch in self._led.items() if led.get(index) != epoch]:
            del self._led[index]
            self._unload(index)
        for index, epoch in led.items():
            if index not in self._led:
                self._led[index] = epoch
                self._load(index, epoch)

    def check(self, transactional_id: str) -> ErrorCode:
        """Return NONE if this node coordinates a transactional id."""
        is_here = self.log.partition_for(transactional_id) in self._led
        return ErrorCode.NONE if is_here else ErrorCode.NOT_COORDINATOR

    def stop(self) -> None:
        """Drop everything, because the node stops. Tasks that still run find no transactional id, and end."""
        self._led.clear()
        self._hosted.clear()

    def _unload(self, index: int) -> None:
        # None: without the topic, no transactional id belongs to this node.
        for name in [name for name in self._hosted if self.log.partition_for(name) in (index, None)]:
            del self._hosted[name]

    def _load(self, index: int, epoch: int) -> None:
        now, now_ms = asyncio.get_running_loop().time(), self._now_ms()
        for transactional_id, value in self.log.read(index).items():
            # The clocks of loops differ between nodes, so the age of the transaction follows from the time of day.
            started = now - max(0, now_ms - value.started_at) / 1000
            hosted = self._hosted[transactional_id] = _Hosted(value, epoch, started)
            if value.state.is_ending:
                self._start_markers(hosted)

    # Requests of producers.

    @property
    def allows_two_phase_commit(self) -> bool:
        """Whether a producer may have transactions that never time out (KIP-939)."""
        return self._settings.enabled("transaction.two.phase.commit.enable")

    async def initialize(
        self, transactional_id: str, timeout_ms: int | None, old: tuple[int, int] | None
    ) -> ProducerResult:
        """Handle an InitProducerId. ``old`` is the id and epoch of a producer that continues, None for a new one.

        ``timeout_ms`` is None with two-phase commit.
        """
        error = self.check(transactional_id)
        if timeout_ms is None:
            timeout_ms = NO_TIMEOUT
        elif error is ErrorCode.NONE and not 0 < timeout_ms <= self._settings.number("transaction.max.timeout.ms"):
            error = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        if error is not ErrorCode.NONE:
            return ProducerResult(error)
        # A new id is in memory only until its first epoch is in the log. If the write fails, the next request begins
        # with it.
        hosted = self._hosted.get(transactional_id) or self._host(transactional_id, timeout_ms)
        if hosted.pending is not None:
            return ProducerResult(ErrorCode.CONCURRENT_TRANSACTIONS)
        try:
            following = decisions.initialize(hosted.value, timeout_ms, old, self._next_producer_id, self._now_ms())
        except TransactionRefused as refusal:
            return ProducerResult(refusal.code)
        if following.state is State.PREPARE_EPOCH_FENCE:
            # The client asks again when the open transaction is aborted.
            error = await self._change(hosted, self._aborted(following))
            return ProducerResult(error or ErrorCode.CONCURRENT_TRANSACTIONS)
        return await self._result(hosted, following)

    def _host(self, transactional_id: str, timeout_ms: int) -> _Hosted:
        index = self.log.partition_for(transactional_id)
        assert index is not None
        value = TransactionMetadata(
            transactional_id, self._next_producer_id(), NO_EPOCH, timeout_ms, updated_at=self._now_ms()
        )
        hosted = self._hosted[transactional_id] = _Hosted(value, self._led[index])
        return hosted

    async def add_partitions(
        self, transactional_id: str, producer: tuple[int, int], partitions: Collection[PartitionKey], generation: int
    ) -> ErrorCode:
        """Add partitions, for AddPartitionsToTxn, AddOffsetsToTxn or the first batch of a partition in generation 2."""
        hosted, error = self._find_idle(transactional_id)
        if hosted is None:
            return error
        try:
            following = decisions.add_partitions(hosted.value, *producer, partitions, self._now_ms(), generation)
        except TransactionRefused as refusal:
            return refusal.code
        return await self._change(hosted, following)

    async def confirm(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[PartitionKey],
        *,
        verify_only: bool,
    ) -> dict[PartitionKey, ErrorCode]:
        """Add partitions to a transaction of generation 2, or verify those of generation 1, for a leader (KIP-890).

        A partition that generation 1 has not added gets TRANSACTION_ABORTABLE. If the producer itself is refused, all
        partitions get the code of the refusal.
        """
        if not verify_only:
            error = await self.add_partitions(transactional_id, producer, partitions, GENERATION_2)
            return dict.fromkeys(partitions, error)
        hosted, error = self._find(transactional_id)
        if hosted is None:
            return dict.fromkeys(partitions, error)
        try:
            decisions.check_producer(hosted.value, *producer)
        except TransactionRefused as refusal:
            return dict.fromkeys(partitions, refusal.code)
        added = hosted.value.partitions
        return {key: ErrorCode.NONE if key in added else ErrorCode.TRANSACTION_ABORTABLE for key in partitions}

    async def end(
        self, transactional_id: str, producer: tuple[int, int], *, commit: bool, generation: int
    ) -> ProducerResult:
        """Handle an EndTxn. It is answered when the decision is in the log."""
        hosted, error = self._find_idle(transactional_id)
        if hosted is None:
            return ProducerResult(error)
        try:
            following = decisions.end(
                hosted.value,
                *producer,
                commit=commit,
                generation=generation,
                new_producer_id=self._next_producer_id,
                now_ms=self._now_ms(),
            )
        except TransactionRefused as refusal:
            return ProducerResult(refusal.code)
        return await self._result(hosted, following)

    async def _result(self, hosted: _Hosted, following: TransactionMetadata) -> ProducerResult:
        error = await self._change(hosted, following)
        return ProducerResult(error) if error else ProducerResult(error, *following.identity)

    def _find(self, transactional_id: str) -> tuple[_Hosted | None, ErrorCode]:
        error = self.check(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
        if error is not ErrorCode.NONE:
            return None, error
        hosted = self._hosted.get(transactional_id)
        return hosted, ErrorCode.INVALID_PRODUCER_ID_MAPPING if hosted is None else ErrorCode.NONE

    def _find_idle(self, transactional_id: str) -> tuple[_Hosted | None, ErrorCode]:
        """Return a transactional id that no request is changing now."""
        hosted, error = self._find(transactional_id)
        if hosted is not None and hosted.pending is not None:
            return None, ErrorCode.CONCURRENT_TRANSACTIONS
        return hosted, error

    # Administration.

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """Return a transactional id of this node."""
        hosted = self._hosted.get(transactional_id)
        return None if hosted is None else hosted.value

    def all(self) -> Iterator[TransactionMetadata]:
        """Return the transactional ids of this node."""
        return (hosted.value for hosted in list(self._hosted.values()))

    # Housekeeping.

    def abort_timed_out(self) -> None:
        """Abort the transactions that have been open for longer than their timeouts."""
        now = asyncio.get_running_loop().time()
        for hosted in list(self._hosted.values()):
            is_open = hosted.value.state is State.ONGOING and hosted.pending is None
            if (
                is_open
                and hosted.value.timeout_ms != NO_TIMEOUT
                and now - hosted.started > hosted.value.timeout_ms / 1000
            ):
                logger.info(
                    "aborting the transaction of %r: it was open for more than its timeout of %d ms",
                    hosted.value.transactional_id,
                    hosted.value.timeout_ms,
                )
                self._start_change(hosted, self._aborted(decisions.fence(hosted.value, self._now_ms())))

    def remove_expired(self) -> None:
        """Delete the transactional ids that were not used for ``transactional.id.expiration.ms``."""
        now, expiration = self._now_ms(), self._settings.number("transactional.id.expiration.ms")
        for hosted in list(self._hosted.values()):
            if hosted.pending is None and hosted.value.expired(now, expiration):
                self._start_change(hosted, hosted.value.advance(Event.EXPIRE, now))

    # Changes.

    def _aborted(self, fenced: TransactionMetadata) -> TransactionMetadata:
        return decisions.abort_fenced(fenced, self._generation(), self._next_producer_id, self._now_ms())

    async def _change(self, hosted: _Hosted, following: TransactionMetadata) -> ErrorCode:
        """Write a change and wait for it. The same value needs no write."""
        return ErrorCode.NONE if following is hosted.value else await self._start_change(hosted, following)

    def _start_change(self, hosted: _Hosted, following: TransactionMetadata) -> asyncio.Future[ErrorCode]:
        assert hosted.pending is None, "one change of a transactional id at a time (rule 2)"
        hosted.pending = following
        written: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._start(lambda: self._write(hosted, following, written), following.transactional_id)
        return written

    async def _write(self, hosted: _Hosted, following: TransactionMetadata, written: asyncio.Future[ErrorCode]) -> None:
        error = await self.log.write(following, WRITE_TIMEOUT)
        assert hosted.pending is following, "no other change begins during a write (rule 2)"
        # Also after a failed write, so that the client can try again.
        hosted.pending = None
        if not self._has(hosted):
            error = error or ErrorCode.NOT_COORDINATOR
        elif error is ErrorCode.NONE:
            # The timeout of a transaction counts from its first partitions.
            if hosted.value.state is not State.ONGOING:
                hosted.started = asyncio.get_running_loop().time()
            hosted.value = following
            if following.state is State.DEAD:
                del self._hosted[following.transactional_id]
            elif following.state.is_ending:
                self._start_markers(hosted)
        if not written.done():  # the client may have disconnected
            written.set_result(error)

    def _has(self, hosted: _Hosted) -> bool:
        return self._hosted.get(hosted.value.transactional_id) is hosted

    def _start_markers(self, hosted: _Hosted) -> None:
        self._start(lambda: self._write_markers(hosted, hosted.value), hosted.value.transactional_id)

    async def _write_markers(self, hosted: _Hosted, ending: TransactionMetadata) -> None:
        """Write the markers to all partitions of a transaction, then record that it is complete."""
        marker = Marker(
            ending.producer_id,
            ending.producer_epoch,
            ending.state is State.PREPARE_COMMIT,
            hosted.coordinator_epoch,
            ending.generation,
        )

        def is_wanted() -> bool:
            return self._has(hosted) and hosted.value is ending

        async with anyio.create_task_group() as tasks:
            # Sorted, because the order of a set differs between processes, and a simulation would not repeat.
            for key in sorted(ending.partitions):
                tasks.start_soon(self._requests.write_marker, self._node_id, key, marker, is_wanted)
        # The decision is in the log (rule 4), so this goes on until it is completed or another node has the id.
        while is_wanted():
            if await self._change(hosted, decisions.complete(ending, self._now_ms())) is ErrorCode.NONE:
                return
            await asyncio.sleep(RETRY_PAUSE)

    def _start(self, function: Callable[[], Coroutine[Any, Any, None]], transactional_id: str) -> None:
        try:
            self._spawn(function, f"node {self._node_id} transaction {transactional_id}")
        except IllegalStateError:
            logger.debug("stopped the work on transactional id %r: the cluster closes", transactional_id)
