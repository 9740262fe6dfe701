"""The faults of a simulation as data: a list of steps made from a seed, which can be printed, replayed and shrunk.

A step never depends on the outcome of another one. A step that makes no sense when its time comes (start a broker that
runs) does nothing. So any part of a schedule is a schedule, and shrinking only removes steps.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from random import Random

from aiokafka_lite.testing.simulation.steps import CODES, NODES, Step

PARTITIONS = 4
GROUPS = (0, 1, 2)

FIRST_OF_BOTH_PROTOCOLS = 10_000
"""The groups of this seed and of the later ones have the classic protocol or the consumer protocol (KIP-848)."""

MIGRATING = range(20_000, 30_000)
"""The groups of these seeds have members of both protocols, so that each group is upgraded and downgraded online."""

FIRST_WITH_SHARE_GROUPS = 30_000
"""A third of the seeds from this one on have share groups. A fifth have groups with members of both protocols."""

FIRST_WITH_CHAINS = 50_000
"""Two fifths of the seeds from this one on have a chain of exactly-once workers: three groups, from topic to topic."""

FIRST_WITH_CHURN = 70_000
"""A fifth of the seeds from this one on have topics that are created, deleted, grown and created again."""

_TRANSACTION_REQUESTS = ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")
_SHARE_REQUESTS = ("ShareGroupHeartbeat", "ShareFetch", "ShareAcknowledge")
_CHAIN_REQUESTS = (
    *_TRANSACTION_REQUESTS, "Produce", "InitProducerId", "FindCoordinator", "OffsetFetch", "JoinGroup", "Heartbeat",
    "ConsumerGroupHeartbeat", "Fetch",
)  # fmt: skip
_CHURN_REQUESTS = (
    "Produce", "Produce", "Metadata", "InitProducerId", "Fetch", "ListOffsets", "OffsetFetch", "OffsetCommit",
    "ConsumerGroupHeartbeat", "Heartbeat", "ShareFetch", "ShareGroupHeartbeat", "AddPartitionsToTxn", "EndTxn",
)  # fmt: skip
_RARE_REQUESTS = (*_TRANSACTION_REQUESTS, *_SHARE_REQUESTS, "ConsumerGroupHeartbeat")
_USUAL_REQUESTS = tuple(request for request in CODES if request not in _RARE_REQUESTS)


class Theme(Enum):
    """The kinds of faults of a seed.

    A mixture of all kinds hides some bugs, because one fault ends the state that another fault needs. Few kinds of
    faults on the same requests find these bugs.
    """

    ALL = "all kinds of steps"
    FEW = "a few kinds of steps, chosen by the seed"
    WRITING = "steps that hit producers, which write in bursts"
    TRANSACTIONS = "steps that hit a transactional producer, which only these seeds have"
    SHARING = "steps that hit share groups, which only these seeds have"
    CHURN = "topics that come and go under producers, transactions and groups of all kinds"
    CHAIN = "steps that hit a chain of exactly-once workers behind a transactional producer"


def theme(seed: int) -> Theme:
    """Return the theme of a seed."""
    if seed >= FIRST_WITH_CHURN and Random(seed ^ 0xC4E2).random() < 0.2:
        return Theme.CHURN
    if seed >= FIRST_WITH_CHAINS and Random(seed ^ 0xC4A1).random() < 0.4:
        return Theme.CHAIN
    if Random(seed ^ 0x7A).random() < 0.25:
        return Theme.TRANSACTIONS
    if seed >= FIRST_WITH_SHARE_GROUPS and Random(seed ^ 0x932).random() < 0.45:
        return Theme.SHARING
    return Random(seed ^ 0x7E3E).choice((Theme.ALL, Theme.FEW, Theme.WRITING))


def schedule(seed: int) -> list[Step]:
    """Return the steps of a seed. The same seed always gives the same steps."""
    random = Random(seed)
    kinds = _kinds(random, theme(seed))
    if seed >= FIRST_OF_BOTH_PROTOCOLS:
        kinds += [("request", _heartbeat_request)] * (len(kinds) // 8)
    return [_step(random, *random.choice(kinds)) for _ in range(random.randrange(4, 28))]


def _kinds(random: Random, theme: Theme) -> list[tuple[str, _Arguments]]:
    """Return the kinds of steps of a theme, each as many times as its frequency says."""
    steps = {
        Theme.WRITING: _WRITING_STEPS,
        Theme.TRANSACTIONS: _TRANSACTION_STEPS,
        Theme.SHARING: _SHARING_STEPS,
        Theme.CHAIN: _CHAIN_STEPS,
        Theme.CHURN: _CHURN_STEPS,
    }.get(theme, _STEPS)
    if theme is Theme.FEW:
        steps = random.sample(_STEPS, random.randrange(2, 7))
    return [(kind, arguments) for times, kind, arguments in steps for _ in range(times)]


def _step(random: Random, kind: str, arguments: _Arguments) -> Step:
    after = random.choice((0.0, 0.001, 0.05, 0.5, 2.0, 5.0))
    return Step(after, kind, **arguments(random))


def _nothing(random: Random) -> dict[str, object]:
    return {}


def _node(random: Random) -> dict[str, object]:
    return {"node": random.choice(NODES)}


def _partition(random: Random) -> dict[str, object]:
    return {"partition": random.randrange(PARTITIONS)}


def _member(random: Random) -> dict[str, object]:
    """Return a group, by its number in the workload, and a duration in seconds."""
    return {"node": random.choice(GROUPS), "amount": random.choice((0.5, 3.0, 12.0))}


def _amount(*amounts: float) -> Callable[[Random], dict[str, object]]:
    return lambda random: {"amount": random.choice(amounts)}


def _node_and(*amounts: float) -> Callable[[Random], dict[str, object]]:
    return lambda random: {"node": random.choice(NODES), "amount": random.choice(amounts)}


def _request(random: Random) -> dict[str, object]:
    return _fault_of(random, random.choice(_USUAL_REQUESTS), fails=2)


def _heartbeat_request(random: Random) -> dict[str, object]:
    return _fault_of(random, "ConsumerGroupHeartbeat", fails=4)


def _writing_request(random: Random) -> dict[str, object]:
    return _fault_of(random, random.choice(("Produce", "Produce", "Produce", "InitProducerId", "Metadata")), fails=6)


def _transaction_request(random: Random) -> dict[str, object]:
    others = ("Produce", "InitProducerId", "FindCoordinator")
    return _fault_of(random, random.choice((*_TRANSACTION_REQUESTS, *others)), fails=4)


def _share_request(random: Random) -> dict[str, object]:
    return _fault_of(random, random.choice((*_SHARE_REQUESTS, "ShareFetch", "Metadata")), fails=3)


def _chain_request(random: Random) -> dict[str, object]:
    return _fault_of(random, random.choice(_CHAIN_REQUESTS), fails=3)


def _churn_request(random: Random) -> dict[str, object]:
    return _fault_of(random, random.choice(_CHURN_REQUESTS), fails=3)


def _topic(random: Random) -> dict[str, object]:
    """Return a volatile topic, by its number, and a number of partitions."""
    return {"node": random.randrange(2), "amount": float(random.randrange(1, PARTITIONS + 1))}


def _fault_of(random: Random, request: str, *, fails: int) -> dict[str, object]:
    """Return a fault of a request. ``fails`` of ``fails + 5`` are error codes."""
    fault = random.choice(("disconnect", "apply_then_disconnect", "truncate", "delay", "drop", *["fail"] * fails))
    if fault == "fail":
        fault = random.choice(CODES[request] or ("disconnect",))
    return {"request": request, "fault": fault, "amount": random.choice((0.0, 1.0, 7.0, 30.0))}


_Arguments = Callable[[Random], dict[str, object]]

_STEPS: tuple[tuple[int, str, _Arguments], ...] = (
    # How often, what, and with what arguments.
    (9, "request", _request),
    (2, "cut_connections", _node_and(0, 1, 5, 40, 200, 1000)),
    (1, "repeat_answer", _node),
    (1, "latency", _node_and(0.0, 0.02, 0.3, 2.0)),
    (1, "kill", _node),
    (1, "start", _nothing),
    (1, "freeze", _node),
    (1, "thaw", _nothing),
    (2, "move_leader", _partition),
    (1, "move_coordinator", _nothing),
    (1, "shrink_isr", _partition),
    (1, "cut_network", _node),
    (1, "heal_network", _nothing),
    (1, "skew_clock", _node_and(-3600.0, 3600.0)),
    (1, "jump_clock", _amount(-3600.0, 3600.0)),
    (1, "block_loop", _amount(0.2, 3.0, 15.0)),
    (2, "member_joins", _member),
    (1, "member_leaves", _member),
    (1, "member_dies", _member),
    (1, "member_raises", _member),
    (1, "member_cancelled", _member),
    (2, "member_slow", _member),
    (2, "member_isolated", _member),
    (2, "member_overdue", _member),
    (1, "member_pauses", _member),
    (2, "member_seeks", _member),
    (1, "member_unsubscribes", _member),
    (1, "cancel_send", _nothing),
    (1, "create_topic", _nothing),
    (1, "delete_topic", _nothing),
    (1, "add_partition", _nothing),
    (1, "delete_records", _nothing),
    (1, "look_around", _nothing),
)

_WRITING_STEPS: tuple[tuple[int, str, _Arguments], ...] = (
    (9, "request", _writing_request),
    (2, "cut_connections", _node_and(0, 1, 5, 40, 200, 1000)),
    (1, "repeat_answer", _node),
    (2, "latency", _node_and(0.0, 0.02, 0.3, 2.0)),
    (1, "kill", _node),
    (1, "start", _nothing),
    (1, "freeze", _node),
    (1, "thaw", _nothing),
    (2, "move_leader", _partition),
    (1, "shrink_isr", _partition),
    (1, "block_loop", _amount(0.2, 3.0, 15.0)),
    (1, "cancel_send", _nothing),
    (1, "add_partition", _nothing),
)

_TRANSACTION_STEPS: tuple[tuple[int, str, _Arguments], ...] = (
    (9, "request", _transaction_request),
    (2, "cut_connections", _node_and(0, 1, 5, 40, 200, 1000)),
    (1, "latency", _node_and(0.0, 0.02, 0.3, 2.0)),
    (1, "kill", _node),
    (1, "start", _nothing),
    (1, "freeze", _node),
    (1, "thaw", _nothing),
    (1, "move_leader", _partition),
    (1, "move_coordinator", _nothing),
    (3, "move_transaction_coordinator", _nothing),
    (1, "cut_network", _node),
    (1, "heal_network", _nothing),
    (1, "block_loop", _amount(0.2, 3.0, 15.0)),
    (1, "jump_clock", _amount(-3600.0, 3600.0)),
    (2, "hold_markers", _amount(0.5, 3.0, 12.0)),
    (3, "records_late", _amount(0.5, 2.0)),
    (3, "offsets_late", _amount(0.5, 2.0)),
    (2, "transaction_cancelled", _nothing),
    (2, "transaction_slow", _amount(0.5, 3.0, 12.0)),
    (2, "producer_replaced", _nothing),
)


_SHARING_STEPS: tuple[tuple[int, str, _Arguments], ...] = (
    (9, "request", _share_request),
    (2, "cut_connections", _node_and(0, 1, 5, 40, 200, 1000)),
    (1, "repeat_answer", _node),
    (1, "latency", _node_and(0.0, 0.02, 0.3, 2.0)),
    (1, "kill", _node),
    (1, "start", _nothing),
    (1, "freeze", _node),
    (1, "thaw", _nothing),
    (3, "move_leader", _partition),
    (1, "move_coordinator", _nothing),
    (1, "move_share_coordinator", _nothing),
    (1, "shrink_isr", _partition),
    (2, "cut_network", _node),
    (1, "heal_network", _nothing),
    (1, "jump_clock", _amount(-3600.0, 3600.0)),
    (1, "block_loop", _amount(0.2, 3.0, 15.0)),
    (2, "member_joins", _member),
    (1, "member_leaves", _member),
    (2, "member_dies", _member),
    (1, "member_raises", _member),
    (1, "member_cancelled", _member),
    (2, "member_slow", _member),
    (2, "member_isolated", _member),
    (3, "read_cancelled", _member),
    (1, "add_partition", _nothing),
    (1, "look_around", _nothing),
)

_CHAIN_STEPS: tuple[tuple[int, str, _Arguments], ...] = (
    (6, "request", _chain_request),
    (2, "cut_connections", _node_and(0, 1, 5, 40, 200, 1000)),
    (1, "latency", _node_and(0.0, 0.02, 0.3, 2.0)),
    (2, "kill", _node),
    (1, "start", _nothing),
    (2, "freeze", _node),
    (1, "thaw", _nothing),
    (1, "move_copies", _partition),
    (1, "move_coordinator", _nothing),
    (2, "move_transaction_coordinator", _nothing),
    (1, "cut_network", _node),
    (1, "heal_network", _nothing),
    (1, "block_loop", _amount(0.2, 3.0, 15.0)),
    (1, "jump_clock", _amount(-3600.0, 3600.0)),
    (1, "hold_markers", _amount(0.5, 3.0, 12.0)),
    (2, "hold_offset_markers", _amount(0.5, 3.0, 12.0)),
    (1, "hold_copy_markers", _member),
    (1, "transaction_cancelled", _nothing),
    (1, "transaction_slow", _amount(0.5, 3.0, 12.0)),
    (8, "worker_killed", _member),
    (1, "worker_cancelled", _member),
    (2, "worker_isolated", _member),
    (2, "worker_slow", _member),
    (1, "worker_raises", _member),
    (2, "worker_joins", _member),
)


_CHURN_STEPS: tuple[tuple[int, str, _Arguments], ...] = (
    (6, "topic_recreated", _topic),
    (3, "topic_deleted", _topic),
    (3, "topic_created", _topic),
    (4, "topic_grown", _topic),
    (5, "request", _churn_request),
    (1, "cut_connections", _node_and(0, 1, 5, 40, 200, 1000)),
    (1, "latency", _node_and(0.0, 0.02, 0.3, 2.0)),
    (1, "kill", _node),
    (1, "start", _nothing),
    (1, "freeze", _node),
    (1, "thaw", _nothing),
    (1, "move_leader", _partition),
    (1, "move_coordinator", _nothing),
    (1, "cut_network", _node),
    (1, "heal_network", _nothing),
    (1, "block_loop", _amount(0.2, 3.0, 15.0)),
    (1, "jump_clock", _amount(-3600.0, 3600.0)),
    (1, "member_joins", _member),
    (1, "member_leaves", _member),
    (1, "member_dies", _member),
    (1, "member_slow", _member),
)
