"""The workload of a simulation, as data made from a seed: producers, groups, share groups, and their behaviour."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from tests.end_to_end.send_history import Promises
from tests.simulation.schedule import (
    FIRST_OF_BOTH_PROTOCOLS,
    FIRST_WITH_CHAINS,
    FIRST_WITH_SHARE_GROUPS,
    MIGRATING,
    Theme,
    theme,
)

FIXED = "orders"
"""A topic whose partitions stay the same."""
GROWING = "grown"
"""A topic that gets more partitions during the run."""
SCRATCH = "scratch"
"""The prefix of topics that are created and deleted during the run."""

VOLATILE = (f"{SCRATCH}-a", f"{SCRATCH}-b")
"""Topics that are deleted, grown and created again during the runs of some seeds, while clients use them."""

LEDGER = "ledger"
"""A topic that is written in transactions."""
LEDGER_PARTITIONS = 2
COPIES = ("copies-1", "copies-2", "copies-3")
"""The topics behind the ledger in a chain: each is a copy of the topic before it, partition by partition."""

RECORDS = 110
TRANSACTIONS = 20


@dataclass(frozen=True, slots=True)
class WriterPlan:
    """A producer: its settings, the call it uses, its pauses, and how its user code misbehaves."""

    name: str
    settings: Mapping[str, Any]
    promises: Promises
    call: str
    pauses: tuple[float, ...]
    user_code: str


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A group: its settings, what it subscribes to, how its members read, and how they commit."""

    group_id: str
    settings: Mapping[str, Any]
    topics: tuple[str, ...] | re.Pattern[str]
    reading: str
    committing: str
    is_static: bool
    protocols: tuple[str, ...] = ("classic",)
    """Each member has one of these protocols."""

    @property
    def reads_all(self) -> bool:
        return not isinstance(self.topics, re.Pattern)


@dataclass(frozen=True, slots=True)
class SharePlan:
    """A share group: the settings of its members, what they read and by which call, and its settings at the brokers.

    ``lock`` is the seconds for which a member has a record, ``limit`` the number of deliveries of a record.
    """

    group_id: str
    settings: Mapping[str, Any]
    topics: tuple[str, ...]
    reading: str
    lock: float
    limit: int


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    """A transactional producer: its settings, its pauses, and the generation of the cluster's transactions.

    ``generation`` is the level of ``transaction.version``: 2 is generation 2 of the protocol, 0 and 1 are generation 1.
    ``is_verified`` is whether leaders ask the coordinator before they append, as releases before Kafka 3.6 did not.
    ``is_watched`` is whether a client asks for the stable offset of the group during the run.
    """

    settings: Mapping[str, Any]
    pauses: tuple[float, ...]
    generation: int
    is_verified: bool
    is_watched: bool = False


@dataclass(frozen=True, slots=True)
class StagePlan:
    """A group of exactly-once workers: its topics, the settings of its clients and sessions, and its workers.

    ``protocols`` are the protocols of the members; each process of a worker has one of them.
    """

    group_id: str
    source: str
    target: str
    reading: Mapping[str, Any]
    writing: Mapping[str, Any]
    session: Mapping[str, Any]
    workers: int
    is_static: bool
    protocols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChurnPlan:
    """The settings of the producers that write to numbered partitions of the volatile topics."""

    writers: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """Everything that runs."""

    writers: tuple[WriterPlan, ...]
    groups: tuple[GroupPlan, ...]
    transactions: TransactionPlan | None = None
    share_groups: tuple[SharePlan, ...] = ()
    chain: tuple[StagePlan, ...] = ()
    churn: ChurnPlan | None = None


def workload(seed: int) -> Workload:
    """Return the workload of a seed. The same seed always gives the same workload."""
    plan = _workload(seed)
    if seed < FIRST_OF_BOTH_PROTOCOLS:
        return plan
    if seed in MIGRATING:
        return replace(plan, groups=tuple(_migrating(group) for group in plan.groups))
    random = Random(seed ^ 0x848)
    migrates = seed >= FIRST_WITH_SHARE_GROUPS and random.random() < 0.2
    change = _migrating if migrates else partial(_with_either_protocol, random)
    return replace(plan, groups=tuple(change(group) for group in plan.groups))


def _workload(seed: int) -> Workload:
    random = Random(seed ^ 0x30B)
    if theme(seed) is Theme.CHAIN:
        transactions = replace(_transactions(random), generation=random.choice((2, 2, 1, 0)), is_watched=True)
        return Workload((), (), transactions, chain=_chain(random))
    if theme(seed) is Theme.CHURN:
        return Workload(
            (_writer(random, "a", _PAUSES),),
            tuple(replace(_group(random, number), topics=(FIXED, *VOLATILE)) for number in range(2)),
            share_groups=(replace(_share_group(random, 0), topics=(FIXED, *VOLATILE)),),
            churn=_churn(random),
        )
    if theme(seed) is Theme.TRANSACTIONS and seed >= FIRST_WITH_CHAINS:
        transactions = replace(_transactions(random), is_watched=True)
        return Workload((_writer(random, "a", _PAUSES),), (_group(random, 0),), transactions)
    if theme(seed) is Theme.TRANSACTIONS:
        return Workload((_writer(random, "a", _PAUSES),), (_group(random, 0),), _transactions(random))
    if theme(seed) is Theme.SHARING:
        writers, groups = (_writer(random, "a", _PAUSES),), (_group(random, 0),)
        return Workload(writers, groups, share_groups=tuple(_share_group(random, number) for number in range(2)))
    pauses = _BURSTS if theme(seed) is Theme.WRITING else _PAUSES
    return Workload(
        tuple(_writer(random, name, pauses) for name in ("a", "b")),
        tuple(_group(random, number) for number in range(3)),
    )


_GUARANTEES: tuple[tuple[dict[str, Any], Promises], ...] = (
    ({}, Promises()),
    ({}, Promises()),
    ({}, Promises()),
    ({"idempotence": False}, Promises(once=False)),
    ({"idempotence": False}, Promises(once=False)),
    ({"idempotence": False, "max_in_flight_requests_per_connection": 1}, Promises(once=False)),
    ({"acks": 1}, Promises(lossless=False, once=False)),
    ({"acks": 0}, Promises(lossless=False, once=False)),
)


_PAUSES: tuple[tuple[float, ...], ...] = ((0.0, 0.01, 0.1, 0.5), (0.0, 0.0, 0.6), (0.05,))
_BURSTS: tuple[tuple[float, ...], ...] = ((*[0.0] * 20, 2.0), (0.01,) * 20 + (2.0,), (0.05,))


def _writer(random: Random, name: str, pauses: Sequence[tuple[float, ...]]) -> WriterPlan:
    settings, promises = random.choice(_GUARANTEES)
    settings = {
        "linger": random.choice((0.0, 0.02)),
        "batch_size": random.choice((100, 200, 5_000)),
        "delivery_timeout": random.choice((6.0, 30.0, 120.0)),
        "compression": random.choice(("none", "none", "gzip")),
        **settings,
    }
    return WriterPlan(
        name=name,
        settings=settings,
        promises=promises,
        call=random.choice(("send", "send", "put", "send_nowait")),
        pauses=random.choice(pauses),
        user_code=random.choice(("", "", "serializer", "callback", "interceptor")),
    )


def _transactions(random: Random) -> TransactionPlan:
    generation, is_verified = random.choice(((2, True), (2, True), (1, True), (1, False), (1, False)))
    return TransactionPlan(
        settings={
            "linger": random.choice((0.0, 0.02)),
            "delivery_timeout": random.choice((6.0, 30.0)),
            "transaction_timeout": random.choice((10.0, 60.0)),
        },
        pauses=random.choice(((0.0, 0.0, 0.0, 3.0), (0.0, 0.3, 2.0))),
        generation=generation,
        is_verified=is_verified,
    )


def _group(random: Random, number: int) -> GroupPlan:
    reading = ("iterate", "poll", "handler")[number] if random.random() < 0.7 else "iterate"
    committing = "mark" if reading == "handler" else random.choice(("auto", "auto", "mark", "offsets", "auto_mark"))
    is_static = random.random() < 0.25
    strategy = random.choice(("range", "roundrobin", "sticky", "cooperative-sticky", "cooperative-sticky"))
    topics = random.choice(((FIXED,), (FIXED, GROWING), re.compile(f"{FIXED}|{GROWING}|{SCRATCH}-.*")))
    return GroupPlan(
        group_id=f"{strategy}-{number}",
        settings={
            "strategies": [strategy],
            "auto_commit": committing.startswith("auto"),
            "isolation_level": random.choice(("read_uncommitted", "read_committed")),
        },
        topics=topics,
        reading=reading,
        committing=committing,
        is_static=is_static,
    )


def _share_group(random: Random, number: int) -> SharePlan:
    mode = random.choice(("implicit", "explicit"))
    return SharePlan(
        group_id=f"share-{mode}-{number}",
        settings={
            "acknowledgement_mode": mode,
            "acquire_mode": random.choice(("batch_optimized", "record_limit")),
            "max_fetch_records": random.choice((1, 5, 500)),
        },
        topics=random.choice(((FIXED,), (FIXED, GROWING))),
        reading=random.choice(("iterate", "poll", "poll")),
        lock=random.choice((15.0, 30.0)),
        limit=random.choice((2, 3, 5)),
    )


def _chain(random: Random) -> tuple[StagePlan, ...]:
    return tuple(
        _stage(random, number, source, target)
        for number, (source, target) in enumerate(zip((LEDGER, *COPIES), COPIES, strict=False), 1)
    )


def _churn(random: Random) -> ChurnPlan:
    return ChurnPlan(
        tuple(
            {
                "linger": random.choice((0.0, 0.02)),
                "batch_size": random.choice((100, 5_000)),
                "max_block": random.choice((1.0, 3.0, 10.0)),
                "delivery_timeout": random.choice((6.0, 30.0)),
                **random.choice(({}, {}, {"idempotence": False})),
            }
            for _ in range(2)
        )
    )


def _stage(random: Random, number: int, source: str, target: str) -> StagePlan:
    protocols = random.choice((("classic",), ("consumer",), ("consumer",), ("classic", "consumer")))
    strategy = random.choice(("range", "cooperative-sticky"))
    return StagePlan(
        group_id=f"stage-{number}",
        source=source,
        target=target,
        reading={"strategies": [strategy]},
        writing={
            "linger": random.choice((0.0, 0.02)),
            "delivery_timeout": random.choice((6.0, 30.0)),
            "transaction_timeout": random.choice((10.0, 60.0)),
        },
        session={"max_records": random.choice((2, 5, 500)), "commit_interval": random.choice((0.0, 0.0, 0.7))},
        workers=random.choice((1, 2, 2, 3)),
        is_static=random.random() < 0.25,
        protocols=protocols,
    )


def _with_either_protocol(random: Random, plan: GroupPlan) -> GroupPlan:
    """Give most groups the consumer protocol, in which the coordinator assigns the partitions."""
    if random.random() < 0.3:
        return plan
    settings = {name: value for name, value in plan.settings.items() if name != "strategies"}
    assignor = random.choice((None, "range", "uniform"))
    return replace(
        plan,
        group_id=f"consumer-{plan.group_id}",
        settings={**settings, "group_remote_assignor": assignor},
        protocols=("consumer",),
    )


def _migrating(plan: GroupPlan) -> GroupPlan:
    return replace(plan, group_id=f"migrating-{plan.group_id}", protocols=("classic", "consumer"))
