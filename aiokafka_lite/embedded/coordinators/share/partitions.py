"""The share partitions that a node leads: reading and acquiring records, acknowledging them, and acquisition locks.

Rules of this file:

 1. A share partition is made from the ``ShareState`` of the group, at its first use after an election. It lives as long
    as that object and the leader epoch. Records that members had at the old leader are available again. A leader that
    was replaced without its knowledge is refused: its state is older than the new leader's.
 2. State is saved after each acknowledgement, release and end of a lock, and not after an acquisition: a delivery
    counts when it ends. So a delivery that a leader's end cuts off is not counted, as in Kafka.
 3. Each change that makes records available wakes the fetch requests that wait for the partition.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ....arguments import must_be
from ....errors import ErrorCode
from ...log.log import Log, StoredBatch
from ...metadata.topics import PartitionKey
from ...metadata.view import MetadataView
from ...replicas.manager import ReplicaManager
from ...replicas.partition import NotLeader, Partition
from ...replicas.purgatory import DelayedOperation
from ...settings.resource_configs import DURATION
from ..groups.assignors import TopicIdPartition
from .group import ShareState
from .groups import HostedShareGroups
from .partition import UNINITIALIZED, Acknowledgement, AcquiredRange, BadAcknowledgement, SharePartition

NOT_READ = "This server does not host this topic-partition."
"""The refusal of an acknowledgement for a share partition that no member has read at this leader."""


class ShareKey(NamedTuple):
    """A share partition."""

    group_id: str
    partition: TopicIdPartition


@dataclass(frozen=True, slots=True)
class ShareFetchParameters:
    """The limits of a share fetch; sizes in bytes, ``max_wait`` in seconds. ``strict`` is for ``max_records``.

    ``batch_size`` is the number of records in a range of acquired records, as far as record batches allow.
    """

    member_id: str
    max_wait: float
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    strict: bool


@dataclass(slots=True)
class ShareFetched:
    """One partition of a share fetch."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    records: bytes = b""
    acquired: list[AcquiredRange] = field(default_factory=list)


ShareFetchResult = dict[ShareKey, ShareFetched]


class DelayedShareFetch(DelayedOperation[ShareFetchResult]):
    """A share fetch that waits for ``min_bytes``, for an error in a partition, or for its ``max_wait``."""

    def __init__(self, parameters: ShareFetchParameters, keys: Sequence[ShareKey], shares: SharePartitions) -> None:
        super().__init__(parameters.max_wait)
        self.parameters = parameters
        self.share_keys = keys
        self.shares = shares
        self.fetched: ShareFetchResult = {}

    def try_complete(self) -> bool:
        if self.shares.available_bytes(self.share_keys, self.parameters.min_bytes) < self.parameters.min_bytes:
            return False
        self.fetched = self.shares.acquire(self.parameters, self.share_keys)
        is_ready = any(fetched.acquired or fetched.error is not ErrorCode.NONE for fetched in self.fetched.values())
        return is_ready and self.force_complete()

    def on_expiration(self) -> None:
        self.fetched = self.shares.acquire(self.parameters, self.share_keys)

    def result(self) -> ShareFetchResult:
        return self.fetched


@dataclass(slots=True)
class _Led:
    partition: SharePartition
    state: ShareState
    leader_epoch: int
    timer: asyncio.TimerHandle | None = None


class SharePartitions:
    """Owner: the node."""

    def __init__(
        self,
        metadata: MetadataView,
        replica_manager: ReplicaManager,
        groups: HostedShareGroups,
        now_ms: Callable[[], int],
    ) -> None:
        self._metadata = metadata
        self._replica_manager = replica_manager
        self._groups = groups
        self._now_ms = now_ms
        self._led: dict[ShareKey, _Led] = {}

    def __repr__(self) -> str:
        return f"<SharePartitions {len(self._led)}>"

    def stop(self) -> None:
        """Drop everything, and cancel all timers, because the node stops."""
        for key in list(self._led):
            self._drop(key)

    def _drop(self, key: ShareKey) -> None:
        led = self._led.pop(key)
        if led.timer is not None:
            led.timer.cancel()

    def lock_duration_ms(self, group_id: str) -> int:
        return self._groups.number(group_id, "share.record.lock.duration.ms")

    def _max_deliveries(self, group_id: str) -> int:
        return self._groups.number(group_id, "share.delivery.count.limit")

    # Which share partitions are here.

    def _find(self, key: ShareKey) -> tuple[Partition, SharePartition]:
        """Return a share partition of this leader. Raises NotLeader."""
        replica = self._replica_manager.require(self._place(key))
        replica.require_leader()
        state = self._groups.state(key.group_id, key.partition)
        if state is None:
            raise NotLeader(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"group {key.group_id} has not subscribed to {replica.key[0]}"
            )
        led = self._led.get(key)
        leader_epoch = replica.state.leader_epoch
        # This node does not know yet that it was replaced. Its older state would overwrite the new leader's.
        if leader_epoch < state.leader_epoch:
            raise NotLeader(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{replica.key} has a leader of a newer epoch")
        state.leader_epoch = leader_epoch
        if led is not None and (led.state is not state or led.leader_epoch != leader_epoch):
            self._drop(key)
            led = None
        if led is None:
            start = state.start_offset
            if start == UNINITIALIZED:
                start = self._first_offset(key.group_id, replica)
            # The log may have been truncated below the stored offset.
            share = SharePartition(min(start, replica.log.end_offset), state.batches)
            led = self._led[key] = _Led(share, state, leader_epoch)
        led.partition.delete_before(replica.log.start_offset)
        return replica, led.partition

    def _place(self, key: ShareKey) -> PartitionKey:
        """Return the partition by the name of its topic. Raises NotLeader if it is unknown."""
        topic_id, index = key.partition
        name = self._metadata.topic_name(topic_id)
        if name is None:
            raise NotLeader(ErrorCode.UNKNOWN_TOPIC_ID, f"unknown topic id {topic_id.hex()}")
        if self._metadata.partition_state((name, index)) is None:
            raise NotLeader(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"unknown partition {name}-{index}")
        return name, index

    def _first_offset(self, group_id: str, replica: Partition) -> int:
        """Return the offset at which a group begins to read a partition."""
        reset = self._groups.setting(group_id, "share.auto.offset.reset")
        if reset == "earliest":
            return replica.log.start_offset
        if reset.startswith("by_duration:"):
            record = replica.log.offset_for_time(self._now_ms() - duration_ms(reset.partition(":")[2]))
            if record is not None:
                return min(record.offset, self._end(group_id, replica))
        return self._end(group_id, replica)

    def _end(self, group_id: str, replica: Partition) -> int:
        """Return the end of the records that the group may see."""
        return replica.last_stable_offset if self._reads_committed(group_id) else replica.log.high_watermark

    def _reads_committed(self, group_id: str) -> bool:
        return self._groups.setting(group_id, "share.isolation.level") == "read_committed"

    # Reading.

    async def fetch(self, parameters: ShareFetchParameters, keys: Sequence[ShareKey]) -> ShareFetchResult:
        """Acquire records now, or wait up to ``max_wait`` if there are none."""
        operation = DelayedShareFetch(parameters, keys, self)
        if parameters.max_wait <= 0 or not keys:
            operation.on_expiration()
            return operation.result()
        names = self._metadata.topic_name
        partitions = [(names(topic_id) or "", index) for _, (topic_id, index) in keys]
        return await self._replica_manager.fetch_purgatory.wait(operation, partitions)

    def available_bytes(self, keys: Iterable[ShareKey], enough: int) -> int:
        """Return the bytes from the next records on, up to about ``enough``; ``enough`` if a partition has an error."""
        total = 0
        for key in keys:
            try:
                replica, share = self._find(key)
            except NotLeader:
                return enough
            total += replica.log.bytes_between(share.next_fetch_offset, self._end(key.group_id, replica))
            if total >= enough:
                break
        return total

    def acquire(self, parameters: ShareFetchParameters, keys: Iterable[ShareKey]) -> ShareFetchResult:
        """Acquire records of the partitions in turn, up to the limits."""
        result: ShareFetchResult = {}
        room, records = parameters.max_bytes, parameters.max_records
        for key in keys:
            try:
                fetched = self._acquire(key, parameters, room, records)
            except NotLeader as error:
                fetched = ShareFetched(error.code, str(error))
            result[key] = fetched
            room -= len(fetched.records)
            records -= sum(last - first + 1 for first, last, _ in fetched.acquired)
        return result

    def _acquire(self, key: ShareKey, parameters: ShareFetchParameters, room: int, max_records: int) -> ShareFetched:
        replica, share = self._find(key)
        max_locks = self._groups.number(key.group_id, "share.partition.max.record.locks")
        if room <= 0 or max_records <= 0 or not share.may_acquire(max_locks):
            return ShareFetched()
        end = self._end(key.group_id, replica)
        batches = _read(replica.log, share.next_fetch_offset, end, room)
        if self._reads_committed(key.group_id):
            # Aborted records are archived and not skipped, because the start offset moves only over records in flight.
            # Again, until a batch can be delivered or the log ends.
            while aborted := _aborted(replica, batches):
                share.archive_aborted(aborted)
                if share.next_fetch_offset <= batches[-1].last_offset:
                    break
                batches = _read(replica.log, share.next_fetch_offset, end, room)
        duration = self.lock_duration_ms(key.group_id) / 1000
        until = asyncio.get_running_loop().time() + duration
        acquired = share.acquire(
            parameters.member_id,
            [(batch.base_offset, batch.last_offset) for batch in batches],
            max_records,
            max_locks,
            until,
            strict=parameters.strict,
            batch_size=parameters.batch_size,
        )
        if not acquired:
            return ShareFetched()
        self._expire_at(key, until)
        first, last = acquired[0].first, acquired[-1].last
        data = b"".join(batch.data for batch in batches if batch.last_offset >= first and batch.base_offset <= last)
        return ShareFetched(records=data, acquired=acquired)

    # Acknowledging.

    def acknowledge(self, key: ShareKey, member_id: str, batches: Sequence[Acknowledgement]) -> None:
        """Apply the acknowledgements of a member. Raises NotLeader and BadAcknowledgement."""
        if key not in self._led:
            self._replica_manager.require(self._place(key)).require_leader()
            raise BadAcknowledgement(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_READ)
        _, share = self._find(key)
        until = asyncio.get_running_loop().time() + self.lock_duration_ms(key.group_id) / 1000
        may_renew = self._groups.setting(key.group_id, "share.renew.acknowledge.enable").lower() == "true"
        share.acknowledge(member_id, batches, self._max_deliveries(key.group_id), until, may_renew=may_renew)
        self._save(key, share)

    def release(self, group_id: str, member_id: str, partitions: Iterable[TopicIdPartition]) -> None:
        """Release the records of a member in some partitions, because its session has ended."""
        for key in [ShareKey(group_id, partition) for partition in partitions]:
            share = self._still_led(key) if key in self._led else None
            if share is not None and share.release(member_id, self._max_deliveries(group_id)):
                self._save(key, share)

    def _still_led(self, key: ShareKey) -> SharePartition | None:
        """Return a share partition that this node leads. Drops it and returns None if another node leads it now."""
        try:
            return self._find(key)[1]
        except NotLeader:
            self._drop(key)
            return None

    def _save(self, key: ShareKey, share: SharePartition) -> None:
        state = self._groups.state(key.group_id, key.partition)
        if state is not None:
            state.start_offset = share.start_offset
            state.batches = share.state()
            state.delivery_complete_count = share.delivery_complete_count
            self._groups.save(key.group_id, key.partition)
        # Records that were released may complete a fetch that waits (rule 3).
        self._replica_manager.fetch_purgatory.check_and_complete(self._place(key))

    # Acquisition locks.

    def _expire_at(self, key: ShareKey, when: float) -> None:
        # One timer for each partition: for the lock that ends first. ``_expire`` starts the next one.
        led = self._led[key]
        if led.timer is not None and led.timer.when() > when:  # locks are shorter now
            led.timer.cancel()
            led.timer = None
        if led.timer is None:
            led.timer = asyncio.get_running_loop().call_at(when, self._expire, key)

    def _expire(self, key: ShareKey) -> None:
        self._led[key].timer = None
        share = self._still_led(key)
        if share is None:
            return
        if share.expire(asyncio.get_running_loop().time(), self._max_deliveries(key.group_id)):
            self._save(key, share)
        if share.next_expiry is not None:
            self._expire_at(key, share.next_expiry)


def _read(log: Log, offset: int, end: int, room: int) -> list[StoredBatch]:
    """Return the batches from ``offset`` on that end before ``end``: up to ``room`` bytes, but at least one."""
    batches: list[StoredBatch] = []
    for batch in log.batches_from(offset):
        if batch.last_offset >= end or (batches and batch.size > room):
            break
        batches.append(batch)
        room -= batch.size
    return batches


def _aborted(replica: Partition, batches: Sequence[StoredBatch]) -> list[tuple[int, int]]:
    """Return the first and last offsets of the batches that belong to aborted transactions."""
    is_aborted = replica.producers.transactions.is_aborted
    return [(batch.base_offset, batch.last_offset) for batch in batches if is_aborted(batch.view())]


_UNITS = (86_400, 3_600, 60, 1)


def duration_ms(text: str) -> int:
    """Return an ISO 8601 duration such as ``P1DT2H30M`` in milliseconds. Raises ValueError."""
    match = re.fullmatch(DURATION, text)
    if match is None:
        raise ValueError(must_be("duration", "an ISO 8601 duration such as P1DT12H", text))
    return round(sum(float(part or 0) * unit for part, unit in zip(match.groups(), _UNITS)) * 1000)
