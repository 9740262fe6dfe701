"""One replica of a partition on one node: its log, its role, and, while it leads, what it knows of its followers.

It decides and keeps books; it waits for nothing. Whoever calls it does the waking: the ReplicaManager completes parked
requests, the ReplicaFetcher copies batches.

Invariants: a leader's high watermark never moves back while it leads, never passes the end of any in-sync replica, and
stands still while fewer replicas are in sync than ``min.insync.replicas`` demands (KIP-966).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..errors import ErrorCode
from ..protocol.codec import Buffer
from ..protocol.records import RecordBatch, rewrite_header
from .compaction import compact
from .configs import TopicConfig
from .log import EpochEnd, Log, StoredBatch
from .producer_state import BatchMetadata, ProducerStates, SequenceRejected
from .topics import PartitionKey, PartitionState
from .validator import RecordsRejected, recompress, validate

NO_TIMESTAMP = -1
NO_EPOCH = -1


class LogAppendInfo(NamedTuple):
    """Where a batch has come to lie."""

    first_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int

    @property
    def required_offset(self) -> int:
        """The high watermark at which every in-sync replica has the batch."""
        return self.last_offset + 1


class NotLeader(Exception):
    """The replica does not lead at the epoch that the request is about."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Follower:
    """What a leader knows of a follower, from what it fetched."""

    __slots__ = ("caught_up_at", "end_offset")

    def __init__(self, now: float) -> None:
        self.end_offset = -1  # not known before its first fetch in this epoch
        self.caught_up_at = now


class Partition:
    """A replica. Owner: its node's ReplicaManager."""

    def __init__(self, key: PartitionKey, topic_id: bytes, node_id: int, config: TopicConfig) -> None:
        self.key = key
        self.topic_id = topic_id
        self.node_id = node_id
        self.config = config
        self.log = Log(config.segment_bytes)
        self.producers = ProducerStates()
        self.state = PartitionState(replicas=(), isr=(), leader=-1, leader_epoch=-1, partition_epoch=-1)
        self.followers: dict[int, Follower] = {}
        self.epoch_start = 0
        self.must_truncate = False
        self.offline = False

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else "follower"
        name, index = self.key
        return f"<Partition {name}-{index} node={self.node_id} {role} epoch={self.state.leader_epoch} {self.log!r}>"

    @property
    def is_leader(self) -> bool:
        return self.state.leader == self.node_id

    @property
    def last_stable_offset(self) -> int:
        """Records before it belong to no open transaction."""
        return self.log.high_watermark

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.state.isr) < min(self.config.min_insync_replicas, len(self.state.replicas))

    # ---- roles

    def become(self, state: PartitionState, now: float) -> bool:
        """Take the role that the controller gives; tell whether leader or epoch changed."""
        if state.partition_epoch < self.state.partition_epoch:
            return False
        elected = state.leader_epoch > self.state.leader_epoch
        self.state = state
        if not elected:
            self._keep_followers(now)
            if self.is_leader:
                self.try_advance_high_watermark()
            return False
        self.followers.clear()
        if self.is_leader:
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
            wanted = [node for node in self.state.replicas if node != self.node_id]
            self.followers = {node: self.followers.get(node) or Follower(now) for node in wanted}

    def require_leader(self, current_leader_epoch: int = -1) -> None:
        """Raise NotLeader unless this replica leads, at the epoch that the client believes in (-1: whichever)."""
        self.check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise NotLeader(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {self.node_id} does not lead {self.key}")

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Raise NotLeader when the client's leader epoch is not ours (KIP-320)."""
        if current_leader_epoch in (NO_EPOCH, self.state.leader_epoch):
            return
        stale = current_leader_epoch < self.state.leader_epoch
        code = ErrorCode.FENCED_LEADER_EPOCH if stale else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise NotLeader(code, f"leader epoch is {self.state.leader_epoch}, the request has {current_leader_epoch}")

    # ---- writing

    def append_records_to_leader(
        self, batch: RecordBatch, records: Buffer, required_acks: int, now: float, now_ms: int
    ) -> LogAppendInfo:
        """Validate a client's batch and append it.

        Raises NotLeader, RecordsRejected or SequenceRejected; then nothing was written.
        """
        self.require_leader()
        if required_acks == -1 and self.is_under_min_isr:
            raise RecordsRejected(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.state.isr)} replicas are in sync, min.insync.replicas is {self.config.min_insync_replicas}",
            )
        validate(batch, self.config, now_ms)
        duplicate = self._check_sequence(batch)
        log = self.log
        if duplicate is not None:
            return LogAppendInfo(duplicate.first_offset, duplicate.last_offset, duplicate.timestamp, log.start_offset)
        if self.config.compression not in (None, batch.compression):
            records = recompress(batch, self.config)
        first = log.end_offset
        append_time = now_ms if self.config.log_append_time else NO_TIMESTAMP
        epoch = self.state.leader_epoch
        if append_time >= 0:
            data = bytes(rewrite_header(records, first, epoch, log_append_time=append_time))
            max_timestamp = append_time
        else:
            data = bytes(rewrite_header(records, first, epoch))
            max_timestamp = batch.max_timestamp
        last = first + batch.last_offset_delta
        for follower in self.followers.values():
            if follower.end_offset == first:
                follower.caught_up_at = now
        log.append(StoredBatch(first, last, max_timestamp, epoch, data))
        if batch.producer_id >= 0:
            self.producers.update(
                batch.producer_id, batch.producer_epoch, batch.base_sequence, first, last, max_timestamp
            )
        return LogAppendInfo(first, last, append_time, log.start_offset)

    def _check_sequence(self, batch: RecordBatch) -> BatchMetadata | None:
        if batch.producer_id < 0:
            return None
        return self.producers.check(batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.count)

    def append_as_follower(self, batches: Iterable[StoredBatch]) -> None:
        """Copy a leader's batches, producer state included."""
        for batch in batches:
            if batch.base_offset < self.log.end_offset:
                continue
            self.log.append(batch)
            self._note_producer(batch)

    def _note_producer(self, batch: StoredBatch) -> None:
        view = batch.view()
        if view.producer_id >= 0 and view.base_sequence >= 0:
            self.producers.update(
                view.producer_id,
                view.producer_epoch,
                view.base_sequence,
                batch.base_offset,
                batch.last_offset,
                batch.max_timestamp,
            )

    def truncate_to(self, offset: int) -> None:
        """Drop what a new leader does not have, and what the producers' windows knew of it."""
        if self.log.truncate_to(offset):
            self.producers.entries.clear()
            for batch in self.log.batches():
                self._note_producer(batch)

    def clean_up(self, now_ms: int, producer_expiration_ms: int) -> bool:
        """Drop what retention and compaction say; tell whether anything went."""
        log, config = self.log, self.config
        active = log.segments[-1]
        if active.batches and now_ms - active.batches[0].max_timestamp >= config.segment_ms:
            log.roll()
        self.producers.expire(now_ms - producer_expiration_ms)
        changed = config.compacted and compact(log, now_ms, config.delete_retention_ms)
        if config.deleted:
            changed = log.apply_retention(now_ms, config.retention_ms, config.retention_bytes) or changed
        return changed

    # ---- replication, seen from the leader

    def update_follower(self, node_id: int, fetch_offset: int, now: float) -> bool:
        """Note that a follower has everything before ``fetch_offset``; tell whether the high watermark moved."""
        follower = self.followers.get(node_id)
        if follower is None:
            return False
        follower.end_offset = fetch_offset
        if fetch_offset >= self.log.end_offset:
            follower.caught_up_at = now
        return self.try_advance_high_watermark()

    def try_advance_high_watermark(self) -> bool:
        """Move the high watermark to the smallest end of the in-sync replicas."""
        if not self.is_leader or self.is_under_min_isr:
            return False
        end = self.log.end_offset
        for node in self.state.isr:
            if node != self.node_id:
                follower = self.followers.get(node)
                end = min(end, follower.end_offset if follower is not None else -1)
        return self.log.advance_high_watermark(end)

    def may_join_isr(self, node_id: int) -> bool:
        """Whether a follower has caught up with the high watermark and with the start of this epoch."""
        follower = self.followers.get(node_id)
        if follower is None or node_id in self.state.isr:
            return False
        return follower.end_offset >= max(self.log.high_watermark, self.epoch_start)

    def lagging(self, now: float, lag_max: float) -> list[int]:
        """In-sync followers that have not been at the end of the log for ``lag_max`` seconds."""
        end = self.log.end_offset
        return [
            node
            for node in self.state.isr
            if (follower := self.followers.get(node)) is not None
            and follower.end_offset < end
            and now - follower.caught_up_at >= lag_max
        ]

    @property
    def is_behind(self) -> bool:
        """Whether an in-sync follower lacks something."""
        end = self.log.end_offset
        return any(
            (follower := self.followers.get(node)) is not None and follower.end_offset < end for node in self.state.isr
        )

    # ---- epochs

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Where ``epoch`` ended here; the present leader's own epoch ends at the end of its log."""
        if self.is_leader and epoch == self.state.leader_epoch:
            return EpochEnd(epoch, self.log.end_offset)
        return self.log.end_of_epoch(epoch)

    def diverging_epoch(self, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """Where a reader's log left ours, if it did (KIP-595); offset -1 when that cannot be told."""
        if last_fetched_epoch < 0:
            return None
        end = self.end_of_epoch(last_fetched_epoch)
        if end.epoch < last_fetched_epoch or end.end_offset < fetch_offset:
            return end
        return None


__all__ = ["Follower", "LogAppendInfo", "NotLeader", "Partition", "SequenceRejected"]
