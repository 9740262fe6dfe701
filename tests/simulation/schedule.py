"""The faults of a simulation as data: a list of steps made from a seed, which can be printed, replayed and shrunk.

A step never depends on the outcome of another one. A step that makes no sense when its time comes (start a broker that
runs) does nothing. So any part of a schedule is a schedule, and shrinking only removes steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

NODES = (1, 2, 3)
PARTITIONS = 4

REQUESTS = (
    "Produce", "Fetch", "Metadata", "FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup",
    "OffsetCommit", "OffsetFetch", "ListOffsets", "InitProducerId", "ApiVersions",
)  # fmt: skip

CODES = {
    "Produce": ("NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT", "UNKNOWN_TOPIC_OR_PARTITION"),
    "Fetch": ("NOT_LEADER_OR_FOLLOWER", "UNKNOWN_SERVER_ERROR", "FENCED_LEADER_EPOCH", "KAFKA_STORAGE_ERROR"),
    "FindCoordinator": ("COORDINATOR_NOT_AVAILABLE",),
    "JoinGroup": ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "UNKNOWN_MEMBER_ID"),
    "SyncGroup": ("NOT_COORDINATOR", "REBALANCE_IN_PROGRESS"),
    "Heartbeat": ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "REBALANCE_IN_PROGRESS"),
    "OffsetCommit": ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "REBALANCE_IN_PROGRESS"),
    "OffsetFetch": ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"),
    "ListOffsets": ("LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER"),
    "InitProducerId": ("COORDINATOR_LOAD_IN_PROGRESS", "CONCURRENT_TRANSACTIONS"),
}
"""Error codes that a healthy cluster may answer with at any time."""


@dataclass(frozen=True, slots=True)
class Step:
    """Wait ``after`` seconds, then do ``kind`` with its arguments."""

    after: float
    kind: str
    node: int = 0
    partition: int = 0
    request: str = ""
    fault: str = ""
    amount: float = 0.0

    def __str__(self) -> str:
        parts = [f"{name}={value}" for name in ("node", "partition", "request", "fault", "amount")
                 if (value := getattr(self, name))]  # fmt: skip
        return f"after {self.after:g} s: {self.kind} {' '.join(parts)}"


def schedule(seed: int) -> list[Step]:
    """The steps of a seed. The same seed always gives the same steps."""
    random = Random(seed)
    return [_step(random) for _ in range(random.randrange(4, 24))]


def _step(random: Random) -> Step:
    after = random.choice((0.0, 0.001, 0.05, 0.5, 2.0, 5.0))
    kind = random.choice(_KINDS)
    return Step(after, kind, **_ARGUMENTS.get(kind, _node)(random))


def _node(random: Random) -> dict[str, object]:
    return {"node": random.choice(NODES)}


def _request(random: Random) -> dict[str, object]:
    request = random.choice(REQUESTS)
    fault = random.choice(("disconnect", "apply_then_disconnect", "truncate", "delay", "drop", "fail"))
    if fault == "fail" and request not in CODES:
        fault = "disconnect"
    if fault == "fail":
        fault = random.choice(CODES[request])
    return {"request": request, "fault": fault, "amount": random.choice((0.0, 1.0, 7.0, 30.0))}


_KINDS = (
    *["request"] * 6, "kill", "start", "freeze", "thaw", "move_leader", "move_leader", "move_coordinator", "shrink_isr",
    "cut_network", "heal_network", "skew_clock", "member_joins", "member_leaves", "member_dies", "slow_member",
    "block_loop", "cancel_send", "create_topic",
)  # fmt: skip

_ARGUMENTS: dict[str, Callable[[Random], dict[str, object]]] = {
    "request": _request,
    "move_leader": lambda random: {"partition": random.randrange(PARTITIONS)},
    "shrink_isr": lambda random: {"partition": random.randrange(PARTITIONS)},
    "skew_clock": lambda random: {"node": random.choice(NODES), "amount": random.choice((-3600.0, 3600.0))},
    "slow_member": lambda random: {"node": random.choice((0, 1, 2)), "amount": random.choice((3.0, 12.0))},
    "block_loop": lambda random: {"amount": random.choice((0.2, 3.0, 15.0))},
    "member_joins": lambda random: {"node": random.choice((0, 1, 2))},
    "member_leaves": lambda random: {"node": random.choice((0, 1, 2))},
    "member_dies": lambda random: {"node": random.choice((0, 1, 2))},
}


def shrink(steps: list[Step], fails: Callable[[list[Step]], bool]) -> list[Step]:
    """Remove steps, halves first, as long as the rest still fails."""
    size = max(1, len(steps) // 2)
    while size:
        position = 0
        while position < len(steps):
            fewer = steps[:position] + steps[position + size :]
            if fails(fewer):
                steps = fewer
            else:
                position += size
        size //= 2
    return steps
