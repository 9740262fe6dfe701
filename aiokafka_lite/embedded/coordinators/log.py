"""An internal topic in which coordinators keep their state: the partition of each name, and reading and writing it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from ...errors import ErrorCode
from ...protocol.codec import Buffer
from ...protocol.records import encode_batch
from ...protocol.records.produced import single_batch
from ...types import Header
from ..log.log import MAX_DECOMPRESSED_SIZE, StoredBatch
from ..log.producer_state import Verification
from ..metadata.topics import PartitionKey
from ..metadata.view import MetadataView
from ..replicas.manager import ALL_ACKS, PartitionResponse, ProducedBatch, ReplicaManager
from .groups.records import partition_of

logger = logging.getLogger(__name__)

Row = tuple[Buffer, Buffer | None]
Rows = Sequence[tuple[bytes, bytes | None]]
"""Keys and values to write; a null value deletes its key."""

WRITE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""The errors of a write, as Kafka translates them for the clients of every coordinator."""


class CoordinatorLog:
    """The partitions of an internal topic on one node. Owner: the coordinator.

    A name is a group id or a transactional id.
    """

    topic: str

    def __init__(self, metadata: MetadataView, replica_manager: ReplicaManager, now_ms: Callable[[], int]) -> None:
        self._metadata = metadata
        self._replica_manager = replica_manager
        self._now_ms = now_ms

    def leader_epochs(self, node_id: int) -> dict[int, int]:
        """Return the partitions that a node leads, with their leader epochs."""
        topic = self._metadata.topics.get(self.topic)
        states = () if topic is None else topic.partitions
        return {index: state.leader_epoch for index, state in enumerate(states) if state.leader == node_id}

    def partition_for(self, name: str) -> int | None:
        """Return the partition of a name; None if the topic does not exist yet."""
        topic = self._metadata.topics.get(self.topic)
        return None if topic is None else partition_of(name, len(topic.partitions))

    def rows(self, index: int) -> Iterator[Row]:
        """Yield the keys and values of a partition, in order. Keys are never null."""
        for stored in self._batches(index):
            batch = stored.view()
            if not batch.is_control:  # a marker of a transaction has a key too, which names no state
                columns = batch.columns(MAX_DECOMPRESSED_SIZE)
                yield from ((key, value) for key, value in zip(columns.keys, columns.values) if key is not None)

    def end_offset(self, name: str) -> int:
        """Return the end offset of the partition of a name; 0 if this node has no replica of the partition."""
        partition = self._replica_manager.partitions.get(self._key(name))
        return 0 if partition is None else partition.log.end_offset

    def is_replicated(self, name: str, end_offset: int) -> bool:
        """Return whether the replicas have all records of the name's partition before ``end_offset``.

        A new leader may have fewer records. The others are lost, so the replicas need only the records of this leader.
        """
        partition = self._replica_manager.partitions.get(self._key(name))
        return partition is None or partition.log.high_watermark >= min(end_offset, partition.log.end_offset)

    def append(self, name: str, rows: Rows) -> None:
        """Write rows. Does not wait for the replicas, and logs an error."""
        key = self._key(name)
        # With acks=1 the write is accepted below min.insync.replicas, too. The change has already happened in memory,
        # and a refusal would not undo it.
        statuses = self._replica_manager.append_to_local_log(
            1, {key: self._batch(rows)}, self._now_ms(), internal_topics_allowed=True
        )
        error = statuses[key].response.error
        if error is not ErrorCode.NONE:
            logger.warning("failed to write the state of %s to %s-%d: %s", name, *key, error.name)

    def _batches(self, index: int) -> Iterable[StoredBatch]:
        partition = self._replica_manager.partitions.get((self.topic, index))
        return () if partition is None else partition.log.batches()

    def _key(self, name: str) -> PartitionKey:
        # Without the topic there is no partition 0 either, so a write gets UNKNOWN_TOPIC_OR_PARTITION.
        return self.topic, self.partition_for(name) or 0

    def _batch(
        self, rows: Rows, producer: tuple[int, int] = (-1, -1), verification: Verification | None = None
    ) -> ProducedBatch:
        now = self._now_ms()
        no_headers: tuple[Header, ...] = ()
        data = encode_batch(
            [(now, key, value, no_headers) for key, value in rows],
            producer_id=producer[0],
            producer_epoch=producer[1],
            transactional=producer[0] >= 0,
        )
        return ProducedBatch(data, single_batch(data), verification)

    async def _append(self, name: str, rows: Rows, timeout: float) -> PartitionResponse:
        """Append to the partition of a name, and wait up to ``timeout`` seconds for the replicas."""
        key = self._key(name)
        responses = await self._replica_manager.append_records(
            timeout, ALL_ACKS, {key: self._batch(rows)}, self._now_ms(), internal_topics_allowed=True
        )
        return responses[key]
