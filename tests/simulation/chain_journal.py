"""The history of the stages of a chain, and the check that each record was copied once. It reads no client."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from aiokafka_lite import EmbeddedCluster, TopicPartition
from aiokafka_lite.protocol.messages import OffsetFetchRequest, OffsetFetchResponse

Log = Sequence[tuple[int, bytes]]
"""The offsets and values of the committed records of a partition."""

StableOffset = tuple[float, str, TopicPartition, int]
"""An answer of a coordinator about stable offsets: its time, the group, the partition, and the offset."""


@dataclass(eq=False)
class StageJournal:
    """One stage. ``source`` and ``target`` are topics with the same number of partitions."""

    group_id: str
    source: str
    target: str
    done: defaultdict[TopicPartition, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    """The time at which the loop's body first finished a record, by the record's offset in the source."""
    sent: dict[bytes, float] = field(default_factory=dict)
    """The same, by the value of the record. No transaction with its copy may be committed before that time."""

    def note_done(self, partition: TopicPartition, offset: int, value: bytes, now: float) -> None:
        self.done[partition].setdefault(offset, now)
        self.sent.setdefault(value, now)


def stage_anomalies(
    stage: StageJournal,
    source: Mapping[int, Log],
    target: Mapping[int, Log],
    reads: Iterable[tuple[float, bytes]],
    answers: Iterable[StableOffset],
    committed: Mapping[int, int],
) -> Iterator[str]:
    """Yield whether a stage copied each committed record once, in order, and showed nothing before its commit.

    ``source`` and ``target`` are the logs by partition. ``reads`` are the records that a reader of committed records
    returned from the target, and ``committed`` the last offsets of the group.
    """
    for number, log in source.items():
        originals, copies = [value for _, value in log], [value for _, value in target.get(number, ())]
        if originals != copies:
            missing, extra = _difference(originals, copies), _difference(copies, originals)
            what = f"missing {missing[:5]}, too many {extra[:5]}" if missing or extra else "in another order"
            yield f"{stage.target}-{number} has {len(copies)} of the {len(originals)} records of {stage.source}: {what}"
        if log and committed.get(number, 0) <= log[-1][0]:
            yield f"{stage.group_id} has copied {stage.source}-{number}, its offset is {committed.get(number)}"
    for at, value in reads:
        if at < stage.sent.get(value, math.inf):
            yield f"the copy of {value!r} in {stage.target} was read at {at:.3f} s, before its commit began"
    for at, group_id, partition, offset in answers:
        if group_id != stage.group_id or partition.topic != stage.source:
            continue
        done = stage.done[partition]
        before = [processed for processed, _ in source.get(partition.partition, ()) if processed < offset]
        early = [processed for processed in before if done.get(processed, math.inf) > at]
        if early:
            yield (
                f"{group_id} had the stable offset {offset} of {partition} at {at:.3f} s, "
                f"before the commit of the records {early[:5]} began"
            )


def _difference(first: Sequence[bytes], second: Sequence[bytes]) -> list[bytes]:
    remaining = list(second)
    missing = []
    for value in first:
        if value in remaining:
            remaining.remove(value)
        else:
            missing.append(value)
    return missing


def stable_offsets(cluster: EmbeddedCluster) -> list[StableOffset]:
    """Return the offsets that coordinators returned to requests for stable offsets (KIP-447)."""
    names = {bytes(topic.topic_id): name for name, topic in cluster.controller.topics.items()}
    return [
        (exchange.handled_at or exchange.at, group.group_id, place, partition.committed_offset)
        for exchange in cluster.history.of(OffsetFetchRequest)
        if isinstance(exchange.request, OffsetFetchRequest) and exchange.request.require_stable
        if isinstance(exchange.response, OffsetFetchResponse)
        for group in exchange.response.groups
        for topic in group.topics
        for partition in topic.partitions
        for place in (TopicPartition(topic.name or names.get(bytes(topic.topic_id), ""), partition.partition_index),)
        if not (group.error_code or partition.error_code) and partition.committed_offset >= 0
    ]
