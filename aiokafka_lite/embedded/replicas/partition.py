"""One replica of a partition on one node: its log, its role, and, if it is the leader, the state of its followers.

It never waits. Its callers wake others: the ReplicaManager completes waiting requests, and the ReplicaFetcher copies
batches.

Invariants:

 1. The high watermark of a leader never moves back while it is the leader.
 2. It never passes the end of an in-sync replica's log.
 3. It does not move while fewer replicas are in sync than ``min.insync.replicas`` (KIP-966).
 4. ``must_truncate`` is set from a new leader epoch until the follower has compared its log with the leader's. If the
    follower copied before that, it would keep records that the new leader does not have.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from ...errors import ErrorCode
from ...protocol.codec import Buffer
from ...protocol.records import RecordBatch, encode_batch, max_timestamp_of, rewrite_header
from ...types import Header
from ..log.compaction import compact, is_due
from ..log.files import BrokenLog, LogFiles
from ..log.log import EpochEnd, Log, StoredBatch
from ..log.producer_state import Marker, ProducerStates, Verification, marker_row
from ..log.transaction_index import TransactionIndexEntry
from ..log.validator import RecordsRejected, Validation
from ..metadata.topics import PartitionKey, PartitionRegistration
from ..settings.configs import TopicConfig

logger = logging.getLogger(__name__)

NO_TIMESTAMP = -1
NO_EPOCH = -1


class LogAppendInfo(NamedTuple):
    """The offsets of an appended batch, and the append time in milliseconds."""

    first_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int

    @property
    def required_offset(self) -> int:
        """Every in-sync replica has the batch when the high watermark reaches this offset."""
        return self.last_offset + 1


class NotLeader(Exception):
    """The replica is not the leader in the epoch of the request; ``code`` is Kafka's error code."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Follower:
    """The leader's knowledge of a follower, from its fetches. ``caught_up_at`` is the loop's time."""

    __slots__ = ("caught_up_at", "end_offset")

    def __init__(self, now: float) -> None:
        self.end_offset: int = -1  # unknown until its first fetch in this epoch
        self.caught_up_at: float = now


class Partition:
    """A replica. Owner: its node's ReplicaManager."""

    def __init__(
        self,
        key: PartitionKey,
        topic_id: bytes,
        node_id: int,
        config: TopicConfig,
        files: LogFiles | None = None,
    ) -> None:
        self.key = key
        self.topic_id = topic_id
        self.node_id = node_id
        self.config = config
        self.log: Log = Log(config.segment_bytes, files)
        self.producers: ProducerStates = ProducerStates()
        self._files = files
        self._unflushed = 0
        self._flushed_at = -inf  # the loop's time
        if files is not None:
            files.open(self.log)
            self._load_producers()
        self.state: PartitionRegistration = PartitionRegistration(
            replicas=(), isr=(), leader=-1, leader_epoch=-1, partition_epoch=-1
        )
        self.followers: dict[int, Follower] = {}
        self.epoch_start: int = 0
        self.must_truncate: bool = False
        self.offline: bool = False

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else "follower"
        name, index = self.key
        return f"<Partition {name}-{index} node={self.node_id} {role} epoch={self.state.leader_epoch} {self.log!r}>"

    @property
    def is_leader(self) -> bool:
        return self.state.leader == self.node_id

    @property
    def last_stable_offset(self) -> int:
        """The end of the records that belong to no open transaction."""
        high_watermark = self.log.high_watermark
        offset = max(self.log.start_offset, self.producers.transactions.last_stable_offset(high_watermark))
        assert offset <= high_watermark, "log start <= last stable offset <= high watermark"
        return offset

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.state.isr) < min(self.config.min_insync_replicas, len(self.state.replicas))

    # Roles.

    def become(self, state: PartitionRegistration, now: float) -> bool:
        """Apply a state from the controller. True if the leader epoch is new."""
        # States may arrive late, and an older one must not undo a newer one.
        if state.partition_epoch < self.state.partition_epoch:
            return False
        assert state.leader_epoch >= self.state.leader_epoch, "a leader epoch only grows"
        elected = state.leader_epoch > self.state.leader_epoch
        self.state = state
        if not elected:
            self._keep_followers(now)
            if self.is_leader:
                self.try_advance_high_watermark()
            return False
        # The ends of the followers' logs are unknown in another epoch, because the followers may truncate their logs.
        self.followers.clear()
        if self.is_leader:
            assert self.log.last_epoch <= state.leader_epoch, "no record is from a later epoch than the leader's"
            self.epoch_start = self.log.end_offset
            self.must_truncate = False
            self.log.assign_epoch(state.leader_epoch, self.log.end_offset)
            self._keep_followers(now)
            self.try_advance_high_watermark()
        else:
            self.must_truncate = True
        return True

    def _keep_followers(self, now: float) -> None:
        if self.is_leader:
            nodes = [node for node in self.state.replicas if node != self.node_id]
            self.followers = {node: self.followers.get(node) or Follower(now) for node in nodes}

    def require_leader(self, current_leader_epoch: int = -1) -> None:
        """Raise NotLeader unless this is the leader, in the client's leader epoch (-1 is any epoch)."""
        self.check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise NotLeader(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {self.node_id} is not the leader of {self.key}")

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Raise NotLeader if the client has another leader epoch than this replica (KIP-320)."""
        if current_leader_epoch in (NO_EPOCH, self.state.leader_epoch):
            return
        stale = current_leader_epoch < self.state.leader_epoch
        code = ErrorCode.FENCED_LEADER_EPOCH if stale else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise NotLeader(code, f"the leader epoch is {self.state.leader_epoch}, got {current_leader_epoch}")

    # Writing.

    def append_records_to_leader(
        self,
        batch: RecordBatch,
        records: Buffer,
        required_acks: int,
        now: float,
        now_ms: int,
        *,
        from_client: bool = True,
        verification: Verification | None = None,
        validation: Validation | None = None,
    ) -> LogAppendInfo:
        """Validate a batch and append it. A retry returns the offsets of the original batch.

        The batches of a coordinator, which are not ``from_client``, have no sequences. A ``validation`` from before
        counts if it used the present settings. Raises NotLeader, RecordsRejected or SequenceRejected.
        """
        self._require_appendable(required_acks)
        # The settings may have changed while the steps of the validation ran: then all checks are made again.
        if validation is None or validation.config is not self.config:
            validation = Validation(batch, records, self.config, now_ms, from_client=from_client)
        records = validation.result()
        duplicate = self.producers.check(batch, verification, from_client=from_client)
        log = self.log
        if duplicate is not None:
            return LogAppendInfo(duplicate.first_offset, duplicate.last_offset, duplicate.timestamp, log.start_offset)
        first, epoch = log.end_offset, self.state.leader_epoch
        append_time = now_ms if self.config.log_append_time else NO_TIMESTAMP
        if append_time >= 0:
            data = bytes(rewrite_header(records, first, epoch, log_append_time=append_time))
            max_timestamp = append_time
        else:
            data = bytes(rewrite_header(records, first, epoch))
            max_timestamp = max_timestamp_of(records)  # the validation may have replaced the client's
        last = first + batch.last_offset_delta
        self._append(StoredBatch(first, last, max_timestamp, epoch, data), batch, now)
        return LogAppendInfo(first, last, append_time, log.start_offset)

    def append_marker(self, marker: Marker, now: float, now_ms: int) -> LogAppendInfo:
        """Append the marker that ends a producer's transaction here.

        Raises NotLeader, RecordsRejected or SequenceRejected; then nothing is appended.
        """
        # Markers are written with acks=all.
        self._require_appendable(-1)
        self.producers.check_marker(marker)
        no_headers: tuple[Header, ...] = ()
        first, epoch = self.log.end_offset, self.state.leader_epoch
        data = encode_batch(
            [(now_ms, *marker_row(marker), no_headers)],
            base_offset=first,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transactional=True,
            control=True,
            leader_epoch=epoch,
        )
        stored = StoredBatch(first, first, now_ms, epoch, data)
        self._append(stored, stored.view(), now)
        return LogAppendInfo(first, first, NO_TIMESTAMP, self.log.start_offset)

    def _require_appendable(self, required_acks: int) -> None:
        self.require_leader()
        if required_acks == -1 and self.is_under_min_isr:
            raise RecordsRejected(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"in-sync replicas must be >= min.insync.replicas={self.config.min_insync_replicas}, "
                f"got {len(self.state.isr)}",
            )

    def _append(self, stored: StoredBatch, batch: RecordBatch, now: float) -> None:
        # A follower at the end of the log was caught up until this batch. Without this, the first batch after a long
        # idle time would make all followers count as lagging.
        for follower in self.followers.values():
            if follower.end_offset == stored.base_offset:
                follower.caught_up_at = now
        try:
            self.log.append(stored)
        except BrokenLog:
            self.offline = True
            raise
        if batch.producer_id >= 0:
            self.producers.record(batch, stored.base_offset, stored.last_offset, stored.max_timestamp)
        self._flush_if_due(stored)

    def _flush_if_due(self, stored: StoredBatch) -> None:
        self._unflushed += stored.next_offset - stored.base_offset
        if self._unflushed >= self.config.flush_messages:
            self._flush()

    def flush_if_old(self, now: float) -> None:
        """Flush new records if this method has not flushed for at least ``flush.ms``. Raises OSError."""
        if self._unflushed and now - self._flushed_at >= self.config.flush_ms / 1000:
            self._flushed_at = now
            self._flush()

    def _flush(self) -> None:
        self._unflushed = 0
        try:
            self.log.flush()
        except OSError:
            self.offline = True  # the next flush may succeed although pages were dropped
            raise

    def append_as_follower(self, batches: Iterable[StoredBatch]) -> None:
        """Append batches of the leader, and update the producer state."""
        assert not self.must_truncate, "a follower compares its log with the leader's before it copies"
        try:
            for batch in batches:
                # A fetch may repeat batches that an earlier answer has brought.
                if batch.base_offset < self.log.end_offset:
                    continue
                self.log.append(batch)
                self._record_producer(batch)
                self._flush_if_due(batch)
        except OSError:
            self.offline = True  # a follower cannot refuse a batch of its leader
            raise

    def _record_producer(self, stored: StoredBatch) -> None:
        if stored.has_producer:
            self.producers.record(stored.view(), stored.base_offset, stored.last_offset, stored.max_timestamp)

    def truncate_to(self, offset: int) -> None:
        """Delete the records that a new leader does not have, and rebuild the producer state."""
        try:
            is_shorter = self.log.truncate_to(offset)
        except OSError:
            self.offline = True
            raise
        if is_shorter:
            self.producers.clear()
            self._load_producers()

    def _load_producers(self) -> None:
        for batch in self.log.batches():
            self._record_producer(batch)

    def delete_log(self) -> None:
        """Delete the files, if there are any: the replica has left this node."""
        if self._files is not None:
            self._files.delete(self.log)

    def checkpoint(self, *, is_flushed: bool) -> None:
        """Write the high watermark next to the log, and at an orderly end the sizes after a flush."""
        if self._files is not None and not self.offline:
            try:
                self._files.checkpoint(self.log, self.state.partition_epoch, is_flushed=is_flushed)
            except OSError as error:
                logger.error("%r failed to write its high watermark: %s", self, error)

    def aborted_in(self, offset: int, size: int) -> list[TransactionIndexEntry]:
        """Return the aborted transactions of a read of ``size`` bytes from ``offset`` on."""
        transactions = self.producers.transactions
        if not transactions.aborted:
            return []
        end = offset
        for batch in self.log.batches_from(offset):
            end = batch.next_offset
            size -= batch.size
            if size <= 0:
                break
        return transactions.aborted_between(offset, end)

    def clean_up(self, now_ms: int, producer_expiration_ms: int) -> bool:
        """Apply retention and compaction, and drop expired producers. True if records were deleted."""
        log, config = self.log, self.config
        self.producers.expire(now_ms - producer_expiration_ms)
        self.producers.transactions.delete_before(log.start_offset)
        changed = self.compact(now_ms)
        if config.deleted:
            changed = log.apply_retention(now_ms, config.retention_ms, config.retention_bytes) or changed
        return changed

    def compact(self, now_ms: int) -> bool:
        """Close the active segment if it is old, and compact the log if that is due. True if records were deleted."""
        log, config = self.log, self.config
        active = log.segments[-1]
        # Only closed segments are compacted, so max.compaction.lag.ms closes the active one, too (KIP-354).
        max_age = min(config.segment_ms, config.max_compaction_lag_ms) if config.compacted else config.segment_ms
        if active.batches and now_ms - active.batches[0].max_timestamp >= max_age:
            log.roll()
        stable, is_aborted = self.last_stable_offset, self.producers.transactions.is_aborted
        if not config.compacted or not is_due(log, stable, now_ms, config):
            return False
        return compact(log, stable, now_ms, config.delete_retention_ms, config.min_compaction_lag_ms, is_aborted)

    # The leader's state of its followers.

    def update_follower(self, node_id: int, fetch_offset: int, now: float) -> bool:
        """Record that a follower has all records before ``fetch_offset``. True if the high watermark moved."""
        follower = self.followers.get(node_id)
        if follower is None:
            return False
        follower.end_offset = fetch_offset
        if fetch_offset >= self.log.end_offset:
            follower.caught_up_at = now
        return self.try_advance_high_watermark()

    def try_advance_high_watermark(self) -> bool:
        """Move the high watermark to the smallest end of an in-sync replica's log. True if it moved."""
        if not self.is_leader or self.is_under_min_isr:
            return False
        end = self.log.end_offset
        for node in self.state.isr:
            if node != self.node_id:
                # An in-sync replica that has not fetched in this epoch holds the high watermark back.
                follower = self.followers.get(node)
                end = min(end, follower.end_offset if follower is not None else -1)
        return self.log.advance_high_watermark(end)

    def may_join_isr(self, node_id: int) -> bool:
        """Return whether a follower has caught up with the high watermark and with the start of this epoch."""
        follower = self.followers.get(node_id)
        if follower is None or node_id in self.state.isr:
            return False
        # The high watermark of a new leader may be behind committed records. So the start of the epoch counts as well,
        # or a follower without these records could become the leader (KAFKA-7128).
        return follower.end_offset >= max(self.log.high_watermark, self.epoch_start)

    def lagging(self, now: float, lag_max: float) -> list[int]:
        """Return the in-sync followers that have not been at the end of the log for ``lag_max`` seconds."""
        return [node for node, follower in self._behind() if now - follower.caught_up_at >= lag_max]

    @property
    def is_behind(self) -> bool:
        """Whether an in-sync follower is behind the end of the log."""
        return bool(self._behind())

    def _behind(self) -> list[tuple[int, Follower]]:
        """Return the in-sync followers whose logs are shorter than this log."""
        end = self.log.end_offset
        in_sync = [(node, self.followers.get(node)) for node in self.state.isr]
        return [(node, follower) for node, follower in in_sync if follower is not None and follower.end_offset < end]

    # Epochs.

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Return the end of ``epoch`` here. The epoch of the present leader ends at the end of its log."""
        if self.is_leader and epoch == self.state.leader_epoch:
            return EpochEnd(epoch, self.log.end_offset)
        return self.log.end_of_epoch(epoch)

    def diverging_epoch(self, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """Return the point at which the reader's log diverges from this log (KIP-595); None if they do not diverge.

        The offset is -1 if the point is unknown.
        """
        if last_fetched_epoch < 0:
            return None
        end = self.end_of_epoch(last_fetched_epoch)
        # The epoch of the reader's last record does not exist here, or ends here before the reader's offset.
        if end.epoch < last_fetched_epoch or end.end_offset < fetch_offset:
            return end
        return None
