"""Which partitions ``on_event`` is told: each once, and only those that the program has seen."""

from __future__ import annotations

from aiokafka_lite.events import PartitionsAssigned, PartitionsLost, PartitionsRevoked
from aiokafka_lite.group.partition_events import PartitionEvents
from aiokafka_lite.types import TopicPartition

FIRST, SECOND, THIRD = (TopicPartition("orders", number) for number in range(3))


def test_partitions_that_leave_before_they_were_assigned_are_not_told() -> None:
    told: list[object] = []
    events = PartitionEvents("billing", told.append)
    events.assigned([SECOND, FIRST])
    events.revoked([THIRD, SECOND])
    events.lost([THIRD])
    events.lost([SECOND, FIRST])
    events.assigned([])
    assert told == [
        PartitionsAssigned("billing", (FIRST, SECOND)),
        PartitionsRevoked("billing", (SECOND,)),
        PartitionsLost("billing", (FIRST,)),
    ]


def test_an_assignment_that_replaces_another_is_told_by_its_difference() -> None:
    told: list[object] = []
    events = PartitionEvents("billing", told.append)
    events.replace([FIRST, SECOND])
    events.replace([SECOND, THIRD])
    events.replace([SECOND, THIRD])
    events.replace([], lost=True)
    assert told == [
        PartitionsAssigned("billing", (FIRST, SECOND)),
        PartitionsRevoked("billing", (FIRST,)),
        PartitionsAssigned("billing", (THIRD,)),
        PartitionsLost("billing", (SECOND, THIRD)),
    ]
