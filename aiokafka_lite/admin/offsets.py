"""Offsets of partitions: where they begin and end, by time, by every special name, and by leader epoch.

Each partition's leader is asked, by metadata that is fresh.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from ..errors import ConfigurationError, ErrorCode, KafkaError, UnsupportedVersion, error_for
from ..protocol.messages import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
)
from ..types import IsolationLevel, TopicPartition
from . import arguments
from .calls import Calls, Deadline, Peer
from .results import Results

NO_REPLICA = -1


class OffsetSpec(IntEnum):
    """Offsets that have a name. Any number from 0 up is a time instead, in milliseconds since the epoch."""

    LATEST = -1
    """The end: the high watermark, or for read_committed the last stable offset."""
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    """The record with the greatest timestamp (Kafka 3.0)."""
    EARLIEST_LOCAL = -4
    """The first that is on the broker's own disk (Kafka 3.4)."""
    LATEST_TIERED = -5
    """The last that is in tiered storage (Kafka 3.9)."""
    EARLIEST_PENDING_UPLOAD = -6
    """The first that is to go there (Kafka 4.2)."""


_SINCE = {
    OffsetSpec.MAX_TIMESTAMP: (7, "3.0"),
    OffsetSpec.EARLIEST_LOCAL: (8, "3.4"),
    OffsetSpec.LATEST_TIERED: (9, "3.9"),
    OffsetSpec.EARLIEST_PENDING_UPLOAD: (11, "4.2"),
}


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """An offset. ``timestamp`` is its record's in milliseconds where the lookup was by time, else None."""

    offset: int
    timestamp: int | None
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """Where a leader epoch ended: the offset after its last record. ``leader_epoch`` is the one asked for, or the
    last before it that the log knows."""

    leader_epoch: int
    end_offset: int


class OffsetsOfPartitions:
    """What ``admin.offsets`` does."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def list(
        self,
        wanted: Mapping[TopicPartition, OffsetSpec | int],
        *,
        isolation_level: str | IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        timeout: float | None = None,
    ) -> Results[TopicPartition, FoundOffset | None]:
        """The offset that each partition is asked for: a special one, or of the first record not older than a time.

        None where there is no such offset: nothing is that young, or nothing is in tiered storage.
        """
        asked = {
            each: arguments.whole("offset or time", spec, -6, arguments.INT64_MAX)
            for each, spec in arguments.by_partition(wanted).items()
        }
        return await self.look_up(asked, _isolation(isolation_level), self._calls.deadline(timeout))

    async def look_up(
        self, asked: Mapping[TopicPartition, int], isolation: IsolationLevel, deadline: Deadline
    ) -> Results[TopicPartition, FoundOffset | None]:
        """As ``list``, for arguments that were checked, and within a call that goes on."""

        async def ask(
            peer: Peer, items: list[TopicPartition]
        ) -> Mapping[TopicPartition, FoundOffset | KafkaError | None]:
            return await self._ask(peer, {item: asked[item] for item in items}, isolation)

        return await self._calls.settle("listing offsets", asked, self._calls.leaders, ask, deadline)

    async def _ask(
        self, peer: Peer, asked: Mapping[TopicPartition, int], isolation: IsolationLevel
    ) -> dict[TopicPartition, FoundOffset | KafkaError | None]:
        answers: dict[TopicPartition, FoundOffset | KafkaError | None] = {}
        for item, timestamp in asked.items():
            version, since = _SINCE.get(OffsetSpec(timestamp), (0, "")) if timestamp < 0 else (0, "")
            try:
                peer.require(ListOffsetsRequest, version, f"the offset {timestamp} ({_name(timestamp)})", since)
            except UnsupportedVersion as error:
                answers[item] = error
        sendable = [item for item in asked if item not in answers]
        if not sendable:
            return answers
        view = self._calls.client.view
        topics = []
        for name, numbers in arguments.by_topic(sendable).items():
            wanted = []
            for number in numbers:
                item = TopicPartition(name, number)
                known = view.partition(item)
                epoch = None if known is None else known.leader_epoch
                wanted.append(
                    ListOffsetsRequestPartition(
                        partition_index=number,
                        current_leader_epoch=-1 if epoch is None else epoch,
                        timestamp=asked[item],
                    )
                )
            topics.append(ListOffsetsRequestTopic(name=name, partitions=wanted))
        request = ListOffsetsRequest(
            replica_id=NO_REPLICA, isolation_level=int(isolation), topics=topics, timeout_ms=peer.timeout_ms
        )
        for topic in (await peer.send(request)).topics:
            for each in topic.partitions:
                item = TopicPartition(topic.name, each.partition_index)
                if each.error_code:
                    answers[item] = error_for(each.error_code, f"listing an offset of {item}")
                elif each.offset < 0:
                    answers[item] = None
                else:
                    answers[item] = FoundOffset(
                        each.offset,
                        each.timestamp if each.timestamp >= 0 else None,
                        each.leader_epoch if each.leader_epoch >= 0 else None,
                    )
        return answers

    async def ends_of_epochs(
        self, epochs: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> Results[TopicPartition, EpochEnd | None]:
        """Where leader epochs ended; None for one that the log does not know. Since Kafka 2.1."""
        asked = {
            each: arguments.whole("leader epoch", epoch, 0, arguments.INT32_MAX)
            for each, epoch in arguments.by_partition(epochs).items()
        }

        async def ask(peer: Peer, items: list[TopicPartition]) -> Mapping[TopicPartition, EpochEnd | KafkaError | None]:
            peer.require(OffsetForLeaderEpochRequest, 2, "asking for the end of a leader epoch", "2.1")
            request = OffsetForLeaderEpochRequest(
                replica_id=NO_REPLICA,
                topics=[
                    OffsetForLeaderEpochRequestTopic(
                        topic=name,
                        partitions=[
                            OffsetForLeaderEpochRequestPartition(
                                partition=number, leader_epoch=asked[TopicPartition(name, number)]
                            )
                            for number in numbers
                        ],
                    )
                    for name, numbers in arguments.by_topic(items).items()
                ],
            )
            answers: dict[TopicPartition, EpochEnd | KafkaError | None] = {}
            for topic in (await peer.send(request)).topics:
                for each in topic.partitions:
                    item = TopicPartition(topic.topic, each.partition)
                    if each.error_code:
                        answers[item] = error_for(each.error_code, f"the end of an epoch of {item}")
                    else:
                        known = each.end_offset >= 0
                        answers[item] = EpochEnd(each.leader_epoch, each.end_offset) if known else None
            return answers

        deadline = self._calls.deadline(timeout)
        final = (ErrorCode.UNKNOWN_LEADER_EPOCH,)
        return await self._calls.settle(
            "asking for ends of epochs", asked, self._calls.leaders, ask, deadline, final=final
        )


def _name(timestamp: int) -> str:
    return OffsetSpec(timestamp).name.lower().replace("_", " ") if timestamp < 0 else "a time"


def _isolation(given: str | IsolationLevel) -> IsolationLevel:
    try:
        return IsolationLevel[given.upper()] if isinstance(given, str) else IsolationLevel(given)
    except (KeyError, ValueError):
        text = f"isolation_level={given!r}: use read_committed or read_uncommitted"
        raise ConfigurationError(text) from None
