"""Offsets of partitions: the first and the last, by time, and the ends of leader epochs.

Each partition's leader is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from .. import arguments
from ..cluster.metadata import ClusterView
from ..errors import ConfigurationError, ErrorCode, KafkaError, UnsupportedVersion, error_for
from ..protocol.messages import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
)
from ..types import IsolationLevel, TopicPartition
from .answers import none_if_negative
from .calls import Calls
from .peer import Deadline, Peer
from .results import Results
from .settling import Rules

CONSUMER_REPLICA_ID = -1


class OffsetSpec(IntEnum):
    """Special offsets. A number >= 0 is a time instead, in milliseconds since the epoch."""

    LATEST = -1
    """The end of the partition: the high watermark, or the last stable offset for read_committed."""
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    """The record with the greatest timestamp (Kafka 3.0)."""
    EARLIEST_LOCAL = -4
    """The first offset on the broker's own disk (Kafka 3.4)."""
    LATEST_TIERED = -5
    """The last offset in tiered storage (Kafka 3.9)."""
    EARLIEST_PENDING_UPLOAD = -6
    """The first offset that is not in tiered storage yet (Kafka 4.2)."""


_SINCE = {
    OffsetSpec.MAX_TIMESTAMP: ListOffsetsRequest.MAX_TIMESTAMP,
    OffsetSpec.EARLIEST_LOCAL: ListOffsetsRequest.EARLIEST_LOCAL,
    OffsetSpec.LATEST_TIERED: ListOffsetsRequest.LATEST_TIERED,
    OffsetSpec.EARLIEST_PENDING_UPLOAD: ListOffsetsRequest.EARLIEST_PENDING_UPLOAD,
}


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """An offset. ``timestamp`` is the time of its record in milliseconds, None unless the lookup was by time."""

    offset: int
    timestamp: int | None
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The end of a leader epoch: the offset after its last record. ``leader_epoch`` is the requested epoch, or the last
    one before it that has records.

    ``EpochEnd`` of ``embedded`` is the broker's answer from its log.
    """

    leader_epoch: int
    end_offset: int


class OffsetsOfPartitions:
    """The calls of ``admin.offsets``."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def list(
        self,
        specs: Mapping[TopicPartition, OffsetSpec | int],
        *,
        isolation_level: str | IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        timeout: float | None = None,
    ) -> Results[TopicPartition, FoundOffset | None]:
        """Look up the offset of each partition: a special offset, or that of the first record at a time or later.

        The time is in milliseconds since the epoch. The result is None if there is no such offset: all records are
        older, or tiered storage is empty.
        """
        what = "offset or time, an OffsetSpec such as OffsetSpec.LATEST or milliseconds,"
        timestamps = {
            partition: arguments.whole(what, spec, -6, arguments.INT64_MAX)
            for partition, spec in arguments.by_partition("specs", specs, "OffsetSpec or milliseconds").items()
        }
        return await self.look_up(timestamps, isolation_of(isolation_level), self._calls.deadline(timeout))

    async def look_up(
        self, timestamps: Mapping[TopicPartition, int], isolation: IsolationLevel, deadline: Deadline
    ) -> Results[TopicPartition, FoundOffset | None]:
        """Do the same as ``list`` for another call, which has checked the arguments and passes its deadline."""

        async def ask(
            peer: Peer, items: list[TopicPartition]
        ) -> Mapping[TopicPartition, FoundOffset | KafkaError | None]:
            return await self._ask(peer, {item: timestamps[item] for item in items}, isolation)

        return await self._calls.settle("listing offsets", timestamps, self._calls.leaders, ask, deadline)

    async def _ask(
        self, peer: Peer, timestamps: Mapping[TopicPartition, int], isolation: IsolationLevel
    ) -> dict[TopicPartition, FoundOffset | KafkaError | None]:
        answers: dict[TopicPartition, FoundOffset | KafkaError | None] = {}
        for item, timestamp in timestamps.items():
            feature = _SINCE.get(OffsetSpec(timestamp)) if timestamp < 0 else None
            try:
                if feature is not None:
                    peer.require(feature, f"looking up the {_name(timestamp)} offset")
            except UnsupportedVersion as error:
                answers[item] = error
        sendable = {item: timestamp for item, timestamp in timestamps.items() if item not in answers}
        if sendable:
            request = ListOffsetsRequest(
                replica_id=CONSUMER_REPLICA_ID,
                isolation_level=int(isolation),
                topics=_request_topics(sendable, self._calls.client.view),
                timeout_ms=peer.timeout_ms,
            )
            answers |= _read_offsets(await peer.send(request))
        return answers

    async def ends_of_epochs(
        self, epochs: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> Results[TopicPartition, EpochEnd | None]:
        """Look up the ends of leader epochs; None for an epoch that the log does not have. Requires Kafka 2.1."""
        epoch_of = {
            partition: arguments.whole("leader epoch", epoch)
            for partition, epoch in arguments.by_partition("epochs", epochs, "leader epochs").items()
        }

        async def ask(peer: Peer, items: list[TopicPartition]) -> Mapping[TopicPartition, EpochEnd | KafkaError | None]:
            peer.require(OffsetForLeaderEpochRequest.LEADER_EPOCHS, "asking for the end of a leader epoch")
            request = OffsetForLeaderEpochRequest(
                replica_id=CONSUMER_REPLICA_ID,
                topics=[
                    OffsetForLeaderEpochRequestTopic(
                        topic=name,
                        partitions=[
                            OffsetForLeaderEpochRequestPartition(
                                partition=number, leader_epoch=epoch_of[TopicPartition(name, number)]
                            )
                            for number in numbers
                        ],
                    )
                    for name, numbers in arguments.by_topic(items).items()
                ],
            )
            answers: dict[TopicPartition, EpochEnd | KafkaError | None] = {}
            for topic in (await peer.send(request)).topics:
                for partition in topic.partitions:
                    item = TopicPartition(topic.topic, partition.partition)
                    if partition.error_code:
                        answers[item] = error_for(
                            partition.error_code, f"asking for the end of a leader epoch of {item}"
                        )
                    else:
                        has_end = partition.end_offset >= 0
                        answers[item] = EpochEnd(partition.leader_epoch, partition.end_offset) if has_end else None
            return answers

        deadline = self._calls.deadline(timeout)
        final = (ErrorCode.UNKNOWN_LEADER_EPOCH,)
        return await self._calls.settle(
            "asking for the ends of leader epochs", epoch_of, self._calls.leaders, ask, deadline, Rules(final=final)
        )


def _request_topics(timestamps: Mapping[TopicPartition, int], view: ClusterView) -> list[ListOffsetsRequestTopic]:
    def wanted(item: TopicPartition) -> ListOffsetsRequestPartition:
        partition = view.partition(item)
        epoch = None if partition is None else partition.leader_epoch
        return ListOffsetsRequestPartition(
            partition_index=item.partition,
            current_leader_epoch=-1 if epoch is None else epoch,
            timestamp=timestamps[item],
        )

    return [
        ListOffsetsRequestTopic(name=name, partitions=[wanted(TopicPartition(name, number)) for number in numbers])
        for name, numbers in arguments.by_topic(timestamps).items()
    ]


def _read_offsets(response: ListOffsetsResponse) -> dict[TopicPartition, FoundOffset | KafkaError | None]:
    answers: dict[TopicPartition, FoundOffset | KafkaError | None] = {}
    for topic in response.topics:
        for partition in topic.partitions:
            item = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code:
                answers[item] = error_for(partition.error_code, f"looking up an offset of {item}")
            elif partition.offset < 0:
                answers[item] = None
            else:
                answers[item] = FoundOffset(
                    partition.offset,
                    none_if_negative(partition.timestamp),
                    none_if_negative(partition.leader_epoch),
                )
    return answers


def _name(timestamp: int) -> str:
    return OffsetSpec(timestamp).name.lower().replace("_", " ")


def isolation_of(level: str | IsolationLevel) -> IsolationLevel:
    """Parse an isolation level: an ``IsolationLevel`` or its name. Raises ConfigurationError for any other value."""
    try:
        return IsolationLevel[level.upper()] if isinstance(level, str) else IsolationLevel(level)
    except (KeyError, ValueError):
        what = '"read_committed" or "read_uncommitted"'
        raise ConfigurationError(arguments.must_be("isolation_level", what, level)) from None
