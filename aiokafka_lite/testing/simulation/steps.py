"""The faults of a simulation as data: a list of steps, which can be printed, replayed and shrunk.

A step never depends on the outcome of another one. A step that makes no sense when its time comes (start a broker that
runs) does nothing. So any part of a schedule is a schedule, and shrinking only removes steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

NODES = (1, 2, 3)

CODES = {
    "Produce": (
        "NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REQUEST_TIMED_OUT",
        "UNKNOWN_TOPIC_OR_PARTITION", "KAFKA_STORAGE_ERROR", "LEADER_NOT_AVAILABLE",
    ),
    "Fetch": (
        "NOT_LEADER_OR_FOLLOWER", "UNKNOWN_SERVER_ERROR", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH",
        "KAFKA_STORAGE_ERROR", "OFFSET_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID",
    ),
    "Metadata": ("LEADER_NOT_AVAILABLE",),
    "FindCoordinator": ("COORDINATOR_NOT_AVAILABLE",),
    "JoinGroup": ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "UNKNOWN_MEMBER_ID"),
    "ConsumerGroupHeartbeat": (
        "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "UNKNOWN_MEMBER_ID",
        "FENCED_MEMBER_EPOCH",
    ),
    "SyncGroup": ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID"),
    "Heartbeat": ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID"),
    "LeaveGroup": ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"),
    "OffsetCommit": (
        "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "REBALANCE_IN_PROGRESS",
        "REQUEST_TIMED_OUT",
    ),
    "OffsetFetch": ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "UNSTABLE_OFFSET_COMMIT"),
    "ListOffsets": ("LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER", "OFFSET_NOT_AVAILABLE"),
    "InitProducerId": ("COORDINATOR_LOAD_IN_PROGRESS", "CONCURRENT_TRANSACTIONS"),
    "AddPartitionsToTxn": ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS"),
    "AddOffsetsToTxn": ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS"),
    "TxnOffsetCommit": ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"),
    "EndTxn": ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS"),
    "ShareGroupHeartbeat": (
        "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "UNKNOWN_MEMBER_ID",
        "FENCED_MEMBER_EPOCH",
    ),
    "ShareFetch": (
        "SHARE_SESSION_NOT_FOUND", "INVALID_SHARE_SESSION_EPOCH", "SHARE_SESSION_LIMIT_REACHED", "UNKNOWN_SERVER_ERROR",
    ),
    "ShareAcknowledge": ("SHARE_SESSION_NOT_FOUND", "INVALID_SHARE_SESSION_EPOCH"),
    "CreateTopics": ("NOT_CONTROLLER", "REQUEST_TIMED_OUT"),
    "DeleteTopics": ("NOT_CONTROLLER", "REQUEST_TIMED_OUT"),
    "CreatePartitions": ("NOT_CONTROLLER",),
    "DeleteRecords": ("NOT_LEADER_OR_FOLLOWER",),
    "ListGroups": ("COORDINATOR_NOT_AVAILABLE",),
    "ApiVersions": (),
}  # fmt: skip
"""The requests that faults hit, and the error codes that a healthy cluster may answer each with at any time."""


@dataclass(frozen=True, slots=True)
class Step:
    """Wait ``after`` seconds, then do ``kind`` with its arguments.

    With ``nth``, an instance of a service does so many more steps of its work before.
    """

    after: float
    kind: str
    node: int = 0
    partition: int = 0
    request: str = ""
    fault: str = ""
    amount: float = 0.0
    nth: int = 0

    def __str__(self) -> str:
        parts = [f"{name}={value}" for name in ("node", "partition", "request", "fault", "amount", "nth")
                 if (value := getattr(self, name))]  # fmt: skip
        return f"after {self.after:g} s: {self.kind} {' '.join(parts)}".rstrip()


def shrink(
    steps: list[Step], fails: Callable[[list[Step]], bool], without: Callable[[list[Step], int, int], list[Step]]
) -> list[Step]:
    """Remove steps, halves first, as long as the rest still fails.

    ``without(steps, first, end)`` returns the steps except those from ``first`` to before ``end``: ``cut_out`` or
    ``keep_times``.
    """
    size = max(1, len(steps) // 2)
    while size:
        position = 0
        while position < len(steps):
            fewer = without(steps, position, position + size)
            if fails(fewer):
                steps = fewer
            else:
                position += size
        size //= 2
    return steps


def cut_out(steps: list[Step], first: int, end: int) -> list[Step]:
    """Remove steps. The later ones come earlier by their waits."""
    return steps[:first] + steps[end:]


def keep_times(steps: list[Step], first: int, end: int) -> list[Step]:
    """Remove steps. The next one waits for their time as well, so every other step keeps its time."""
    later = steps[end:]
    if later:
        gap = sum(step.after for step in steps[first:end])
        later = [replace(later[0], after=later[0].after + gap), *later[1:]]
    return steps[:first] + later


def times(steps: Sequence[Step]) -> list[float]:
    """Return the time of each step, in seconds since the start of the schedule."""
    total, moments = 0.0, []
    for step in steps:
        total += step.after
        moments.append(total)
    return moments
