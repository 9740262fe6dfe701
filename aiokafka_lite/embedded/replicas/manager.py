"""The replicas of one node: produce and fetch, as in Kafka's ReplicaManager.

Owns the node's partitions and its purgatories. It works on partitions and batches; the handlers translate from and to
the messages of the protocol.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...arguments import must_be
from ...errors import NO_ERROR, ErrorCode
from ...protocol.codec import Buffer
from ...protocol.records import RecordBatch
from ..log.files import LogFiles
from ..log.log import EpochEnd, OffsetOutsideLog
from ..log.producer_state import Marker, SequenceRejected, Verification
from ..log.transaction_index import TransactionIndexEntry
from ..log.validator import RecordError, RecordsRejected, Validation
from ..metadata.topics import INTERNAL_TOPICS, PartitionKey, PartitionRegistration, Topic
from ..settings.configs import TopicConfig
from .broker_counters import BrokerCounters
from .partition import LogAppendInfo, NotLeader, Partition
from .purgatory import DelayedOperation, DelayedOperationPurgatory

ALL_ACKS = -1
_REFUSED_UNSEEN = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""Errors whose response has no log start offset; all other errors have it."""
logger = logging.getLogger(__name__)

UNKNOWN_OFFSET = -1


class ProducedBatch(NamedTuple):
    """A batch to append, and its parsed header.

    ``verification`` is the question to the transaction coordinator, None if the broker does not ask it. ``validation``
    has the checks that were made before the request was handled, None if they are made when the batch is appended.
    """

    records: Buffer
    batch: RecordBatch
    verification: Verification | None = None
    validation: Validation | None = None


@dataclass(slots=True)
class PartitionResponse:
    """The outcome of a produce for one partition."""

    error: ErrorCode = NO_ERROR
    base_offset: int = UNKNOWN_OFFSET
    log_append_time: int = -1
    log_start_offset: int = UNKNOWN_OFFSET
    message: str | None = None
    record_errors: tuple[RecordError, ...] = ()


@dataclass(slots=True)
class ProduceStatus:
    """One partition of a produce request that waits: its response so far, and the offset that it waits for."""

    required_offset: int
    response: PartitionResponse
    acks_pending: bool = False


class DelayedProduce(DelayedOperation[dict[PartitionKey, PartitionResponse]]):
    """A produce request with acks=all. It waits until every in-sync replica has the appended batches."""

    def __init__(self, timeout: float, statuses: dict[PartitionKey, ProduceStatus], manager: ReplicaManager) -> None:
        super().__init__(timeout)
        self.statuses = statuses
        self.manager = manager
        for status in statuses.values():
            if status.response.error is NO_ERROR:
                status.acks_pending = True
                status.response.error = ErrorCode.REQUEST_TIMED_OUT  # unless the replicas answer before the timeout

    def try_complete(self) -> bool:
        pending = False
        for key, status in self.statuses.items():
            if not status.acks_pending:
                continue
            is_over, error = self._check(key, status.required_offset)
            if is_over:
                status.acks_pending = False
                status.response.error = error
            else:
                pending = True
        return not pending and self.force_complete()

    def _check(self, key: PartitionKey, required_offset: int) -> tuple[bool, ErrorCode]:
        """Return whether a partition is done, so that the request does not wait for it; and the partition's error."""
        partition = self.manager.partitions.get(key)
        if partition is None:
            return True, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.offline:
            return True, ErrorCode.KAFKA_STORAGE_ERROR
        if not partition.is_leader:
            return True, ErrorCode.NOT_LEADER_OR_FOLLOWER
        if partition.log.high_watermark >= required_offset:
            enough = not partition.is_under_min_isr
            return True, NO_ERROR if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return False, NO_ERROR

    def result(self) -> dict[PartitionKey, PartitionResponse]:
        return {key: status.response for key, status in self.statuses.items()}


class FetchPartition(NamedTuple):
    """One partition of a fetch request."""

    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


class FetchParameters(NamedTuple):
    """The limits of a fetch request as a whole; sizes in bytes, ``max_wait`` in seconds."""

    max_wait: float
    min_bytes: int
    max_bytes: int
    read_committed: bool = False
    from_any_replica: bool = False
    rack: str = ""


@dataclass(slots=True)
class FetchedPartition:
    """One partition of a fetch response."""

    error: ErrorCode = NO_ERROR
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: bytes = b""
    diverging_epoch: EpochEnd | None = None
    preferred_read_replica: int = -1
    message: str | None = None
    aborted: Sequence[TransactionIndexEntry] | None = None
    """The aborted transactions among the records; None if the reader did not ask for committed records."""


FetchResult = dict[PartitionKey, FetchedPartition]


class DelayedFetch(DelayedOperation[FetchResult]):
    """A fetch request that waits for ``min_bytes``, for an error in a partition, or for its ``max_wait``."""

    def __init__(
        self, parameters: FetchParameters, requested: Mapping[PartitionKey, FetchPartition], manager: ReplicaManager
    ) -> None:
        is_idle = parameters.min_bytes <= 1  # otherwise, records may wait here for others
        super().__init__(parameters.max_wait * (manager.fetch_patience if is_idle else 1.0))
        self.parameters = parameters
        self.requested = requested
        self.manager = manager

    def try_complete(self) -> bool:
        # Each early return is a case of Kafka's DelayedFetch: a longer wait cannot change the answer for this
        # partition.
        available = 0
        for key, requested in self.requested.items():
            partition = self.manager.partitions.get(key)
            if partition is None or partition.offline:
                return self.force_complete()
            try:
                partition.check_epoch(requested.current_leader_epoch)
            except NotLeader:
                return self.force_complete()
            log = partition.log
            end = self.manager.end_for(partition, self.parameters)
            if not log.start_offset <= requested.fetch_offset <= log.end_offset:
                return self.force_complete()
            if partition.diverging_epoch(requested.fetch_offset, requested.last_fetched_epoch) is not None:
                return self.force_complete()
            if not self.manager.may_read(partition, self.parameters):
                return self.force_complete()
            available += min(log.bytes_between(requested.fetch_offset, end), requested.max_bytes)
            if available >= self.parameters.min_bytes:
                return self.force_complete()
        return False

    def result(self) -> FetchResult:
        return self.manager.read_from_log(self.parameters, self.requested)


class ReplicaManager:
    """All replicas of one node. Owner: the node.

    ``config_of`` gives the settings of a topic on this node, ``files_of`` the directory of a replica, None in memory.
    ``wake_followers`` is called when a leader has something new for its followers. ``preferred_replica`` chooses the
    replica that a reader should use instead of the leader, or -1. ``storage_limit`` is in bytes. A fetch without
    records waits ``fetch_patience`` times its ``max_wait``.
    """

    def __init__(
        self,
        node_id: int,
        *,
        storage_limit: int | None,
        fetch_patience: float,
        config_of: Callable[[Topic], TopicConfig],
        files_of: Callable[[PartitionKey, bytes], LogFiles | None],
        wake_followers: Callable[[Partition], None],
        preferred_replica: Callable[[Partition, FetchParameters, FetchPartition], int],
    ) -> None:
        self.node_id = node_id
        self.storage_limit = storage_limit
        self.fetch_patience = fetch_patience
        self.partitions: dict[PartitionKey, Partition] = {}
        self.produce_purgatory: DelayedOperationPurgatory = DelayedOperationPurgatory()
        self.fetch_purgatory: DelayedOperationPurgatory = DelayedOperationPurgatory()
        self.counters: BrokerCounters = BrokerCounters()
        self._config_of = config_of
        self._files_of = files_of
        self._wake_followers = wake_followers
        self._preferred_replica = preferred_replica

    def __repr__(self) -> str:
        return f"<ReplicaManager node={self.node_id} partitions={len(self.partitions)}>"

    @property
    def stored_bytes(self) -> int:
        """Bytes in all logs. Computed at each call, because retention and compaction change them too."""
        return sum(partition.log.size for partition in self.partitions.values())

    def leading(self) -> Iterator[Partition]:
        return (partition for partition in self.partitions.values() if partition.is_leader)

    # Changes from the controller.

    def apply(self, topic: Topic, now: float) -> None:
        """Apply a topic's states, and complete the waiting requests that they answer."""
        config = self._config_of(topic)
        for index, state in enumerate(topic.partitions):
            key = (topic.name, index)
            partition = self.partitions.get(key)
            # The topic was deleted and created again before this node applied the deletion.
            if partition is not None and partition.topic_id != topic.topic_id:
                self.drop(key)
                partition = None
            if self.node_id not in state.replicas:
                if partition is not None:
                    self.drop(key)
                continue
            if partition is None:
                files = self._files_of(key, topic.topic_id)
                partition = self.partitions[key] = Partition(key, topic.topic_id, self.node_id, config, files)
            self._become(partition, config, state, now)

    def _become(self, partition: Partition, config: TopicConfig, state: PartitionRegistration, now: float) -> None:
        partition.config = config
        partition.log.segment_bytes = config.segment_bytes
        partition.become(state, now)
        # The new role may refuse requests that wait.
        self.complete_delayed(partition.key)
        if partition.is_leader:
            self._wake_followers(partition)

    def drop(self, key: PartitionKey) -> None:
        """Drop a replica: its topic was deleted, or the partition moved to other nodes."""
        partition = self.partitions.pop(key, None)
        if partition is not None:
            partition.delete_log()
            self.complete_delayed(key)

    def checkpoint(self, *, is_flushed: bool) -> None:
        """Write the high watermarks of the logs on disk and, at an orderly end, flush the logs."""
        for partition in self.partitions.values():
            partition.checkpoint(is_flushed=is_flushed)

    def complete_delayed(self, key: PartitionKey) -> None:
        self.produce_purgatory.check_and_complete(key)
        self.fetch_purgatory.check_and_complete(key)

    # Produce.

    async def append_records(
        self,
        timeout: float,
        required_acks: int,
        entries: Mapping[PartitionKey, ProducedBatch],
        now_ms: int,
        *,
        internal_topics_allowed: bool = False,
    ) -> dict[PartitionKey, PartitionResponse]:
        """Append to the leaders' logs. With acks=all, wait up to ``timeout`` seconds for the in-sync replicas."""
        if required_acks not in (-1, 0, 1):
            refusal = must_be("acks", "-1, 0 or 1", required_acks)
            return {key: PartitionResponse(ErrorCode.INVALID_REQUIRED_ACKS, message=refusal) for key in entries}
        statuses = self.append_to_local_log(
            required_acks, entries, now_ms, internal_topics_allowed=internal_topics_allowed
        )
        if not delayed_produce_required(required_acks, statuses):
            return {key: status.response for key, status in statuses.items()}
        return await self.until_replicated(timeout, statuses)

    async def until_replicated(
        self, timeout: float, statuses: dict[PartitionKey, ProduceStatus]
    ) -> dict[PartitionKey, PartitionResponse]:
        """Wait up to ``timeout`` seconds for the in-sync replicas. The timeout starts after the append, as in Kafka."""
        return await self.produce_purgatory.wait(DelayedProduce(timeout, statuses, self), statuses)

    def when_replicated(
        self, timeout: float, statuses: dict[PartitionKey, ProduceStatus]
    ) -> asyncio.Future[dict[PartitionKey, PartitionResponse]]:
        """Return a future with the result of ``until_replicated``. It completes even if the writing request is
        cancelled.
        """
        return self.produce_purgatory.watch(DelayedProduce(timeout, statuses, self), statuses)

    def append_to_local_log(
        self,
        required_acks: int,
        entries: Mapping[PartitionKey, ProducedBatch],
        now_ms: int,
        *,
        internal_topics_allowed: bool = False,
    ) -> dict[PartitionKey, ProduceStatus]:
        """Append every batch that may be appended. Returns one result for each partition."""
        now = asyncio.get_running_loop().time()
        statuses: dict[PartitionKey, ProduceStatus] = {}
        for key, entry in entries.items():
            try:
                if key[0] in INTERNAL_TOPICS and not internal_topics_allowed:
                    raise RecordsRejected(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{key[0]} is an internal topic")
                info = self._append(key, entry, required_acks, now, now_ms, from_client=not internal_topics_allowed)
            except OSError as error:
                logger.error("node %d failed to write to the log of %s-%d: %s", self.node_id, *key, error)
                refused = PartitionResponse(ErrorCode.KAFKA_STORAGE_ERROR, message=f"cannot write to the log: {error}")
                statuses[key] = ProduceStatus(UNKNOWN_OFFSET, refused)
            except (NotLeader, RecordsRejected, SequenceRejected) as error:
                statuses[key] = ProduceStatus(UNKNOWN_OFFSET, self._refusal(key, error))
            else:
                response = PartitionResponse(NO_ERROR, info.first_offset, info.log_append_time, info.log_start_offset)
                statuses[key] = ProduceStatus(info.required_offset, response)
        if not internal_topics_allowed:
            for key, status in statuses.items():
                failed, entry = status.response.error is not NO_ERROR, entries[key]
                self.counters.topics[key[0]].produced(entry.batch.count, len(entry.records), failed=failed)
        return statuses

    def _append(
        self, key: PartitionKey, entry: ProducedBatch, required_acks: int, now: float, now_ms: int, *, from_client: bool
    ) -> LogAppendInfo:
        partition = self.require(key)
        if self.storage_limit is not None and self.stored_bytes + len(entry.records) > self.storage_limit:
            raise RecordsRejected(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of node {self.node_id} is full")
        before = partition.log.end_offset
        info = partition.append_records_to_leader(
            entry.batch,
            entry.records,
            required_acks,
            now,
            now_ms,
            from_client=from_client,
            verification=entry.verification,
            validation=entry.validation,
        )
        # A duplicate appends nothing.
        if partition.log.end_offset > before:
            self._appended(partition)
        return info

    def _appended(self, partition: Partition) -> None:
        # The high watermark comes first: readers that are woken below must see the batch if it is committed already.
        if partition.try_advance_high_watermark():
            self._wake_followers(partition)
            self.produce_purgatory.check_and_complete(partition.key)
        self.fetch_purgatory.check_and_complete(partition.key)
        if partition.followers:
            self._wake_followers(partition)

    async def append_marker(self, key: PartitionKey, marker: Marker, now_ms: int, timeout: float) -> ErrorCode:
        """Append the end of a transaction to a leader's log, and wait up to ``timeout`` seconds for the replicas."""
        try:
            partition = self.require(key)
            info = partition.append_marker(marker, asyncio.get_running_loop().time(), now_ms)
        except (NotLeader, RecordsRejected, SequenceRejected) as error:
            return error.code
        except OSError as failed:  # a new name, because a variable in compiled code has one class
            logger.error("node %d failed to write to the log of %s-%d: %s", self.node_id, *key, failed)
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._appended(partition)
        statuses = {key: ProduceStatus(info.required_offset, PartitionResponse())}
        return (await self.until_replicated(timeout, statuses))[key].error

    def _refusal(self, key: PartitionKey, error: NotLeader | RecordsRejected | SequenceRejected) -> PartitionResponse:
        response = PartitionResponse(error.code, message=str(error))
        if isinstance(error, RecordsRejected):
            response.record_errors = error.record_errors
        partition = self.partitions.get(key)
        if partition is not None and error.code not in _REFUSED_UNSEEN:
            response.log_start_offset = partition.log.start_offset
        return response

    def require(self, key: PartitionKey) -> Partition:
        """Return the replica on this node. Raises NotLeader if there is none, or if its log is offline."""
        partition = self.partitions.get(key)
        if partition is None:
            raise NotLeader(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {self.node_id} has no replica of {key[0]}-{key[1]}"
            )
        if partition.offline:
            raise NotLeader(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {key[0]}-{key[1]} on node {self.node_id} is offline"
            )
        return partition

    def delete_records(self, partition: Partition, offset: int) -> None:
        """Move the start of a leader's log to ``offset``, at most to the high watermark."""
        partition.log.delete_before(offset)
        self.fetch_purgatory.check_and_complete(partition.key)
        self._wake_followers(partition)

    def clean_up(self, now_ms: int, producer_expiration_ms: int) -> None:
        """Apply retention and compaction to every log, and drop the state of expired producers."""
        for partition in list(self.partitions.values()):
            if partition.clean_up(now_ms, producer_expiration_ms):
                self.fetch_purgatory.check_and_complete(partition.key)

    def compact(self, now_ms: int) -> None:
        """Compact every log that is due."""
        for partition in list(self.partitions.values()):
            if partition.compact(now_ms):
                self.fetch_purgatory.check_and_complete(partition.key)

    def flush_old(self, now: float) -> None:
        """Flush each log whose last flush was ``flush.ms`` ago. Raises OSError."""
        for partition in list(self.partitions.values()):
            partition.flush_if_old(now)

    # Fetch.

    async def fetch_messages(
        self, parameters: FetchParameters, requested: Mapping[PartitionKey, FetchPartition]
    ) -> FetchResult:
        """Read now, or wait up to ``max_wait`` if there are fewer than ``min_bytes``."""
        result = self.read_from_log(parameters, requested)
        size = 0
        respond_now = parameters.max_wait <= 0 or not requested
        for fetched in result.values():
            size += len(fetched.records)
            # As in Kafka, news for the reader is not held back until there are enough records.
            if (
                fetched.error is not NO_ERROR
                or fetched.diverging_epoch is not None
                or fetched.preferred_read_replica >= 0
            ):
                respond_now = True
        if respond_now or size >= parameters.min_bytes:
            return result
        return await self.fetch_purgatory.wait(DelayedFetch(parameters, requested, self), requested)

    def read_from_log(
        self, parameters: FetchParameters, requested: Mapping[PartitionKey, FetchPartition]
    ) -> FetchResult:
        """Read the partitions in turn, up to ``max_bytes``. The first batch is returned whatever its size."""
        room = parameters.max_bytes
        result: FetchResult = {}
        has_records = False
        for key, partition_requested in requested.items():
            # The first batch of the response is returned whole (KIP-74). Otherwise a batch above the limits would stop
            # a reader for good.
            fetched = self._read(key, partition_requested, parameters, room, at_least_one=not has_records)
            has_records = has_records or len(fetched.records) > 0
            room = max(0, room - len(fetched.records))
            result[key] = fetched
        return result

    def _read(
        self,
        key: PartitionKey,
        requested: FetchPartition,
        parameters: FetchParameters,
        room: int,
        *,
        at_least_one: bool,
    ) -> FetchedPartition:
        try:
            partition = self.require(key)
            partition.check_epoch(requested.current_leader_epoch)
            if not self.may_read(partition, parameters):
                partition.require_leader()
        except NotLeader as error:
            return FetchedPartition(error.code, message=str(error))
        log = partition.log
        fetched = FetchedPartition(NO_ERROR, log.high_watermark, partition.last_stable_offset, log.start_offset)
        # Before the offset is checked, as in Kafka: if the logs diverge, an offset outside of this log is no error.
        fetched.diverging_epoch = partition.diverging_epoch(requested.fetch_offset, requested.last_fetched_epoch)
        if fetched.diverging_epoch is not None:
            # The reader's epoch is unknown here, so no common offset can be named.
            if fetched.diverging_epoch.end_offset < 0:
                unknown = f"leader epoch {requested.last_fetched_epoch} is unknown"
                return FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE, message=unknown)
            return fetched
        fetched.preferred_read_replica = self._preferred_replica(partition, parameters, requested)
        if fetched.preferred_read_replica >= 0:
            return fetched
        if parameters.read_committed:
            fetched.aborted = []
        size = min(requested.max_bytes, room)
        if size < 0 and log.start_offset <= requested.fetch_offset < self.end_for(partition, parameters):
            return FetchedPartition(ErrorCode.UNKNOWN_SERVER_ERROR, message=must_be("max_bytes", ">= 0", size))
        try:
            fetched.records = log.read(
                requested.fetch_offset,
                size,
                self.end_for(partition, parameters),
                at_least_one=at_least_one,
            )
        except OffsetOutsideLog as outside:  # a new name, because a variable in compiled code has one class
            return FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, -1, message=str(outside))
        if parameters.read_committed and fetched.records:
            fetched.aborted = partition.aborted_in(requested.fetch_offset, len(fetched.records))
        return fetched

    def may_read(self, partition: Partition, parameters: FetchParameters) -> bool:
        """Return whether the reader may use this replica. Some may use any (KIP-392), all others only the leader."""
        return partition.is_leader or (parameters.from_any_replica and partition.state.leader >= 0)

    def end_for(self, partition: Partition, parameters: FetchParameters) -> int:
        """Return the end of the records that the reader may see."""
        return partition.last_stable_offset if parameters.read_committed else partition.log.high_watermark


def delayed_produce_required(required_acks: int, statuses: Mapping[PartitionKey, ProduceStatus]) -> bool:
    """Return whether to wait for replicas: acks=all, and at least one partition appended its batch."""
    return required_acks == ALL_ACKS and any(status.response.error is NO_ERROR for status in statuses.values())
