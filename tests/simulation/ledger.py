"""The transactions of a simulation, and the check that readers saw each one whole. Pure: reads no cluster."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from aiokafka_lite import TopicPartition


class Outcome(Enum):
    """The end of a transaction, as the caller saw it."""

    ABORTED = "it failed before its commit, or was aborted"
    UNKNOWN = "its commit began and raised"
    COMMITTED = "its commit returned"


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction: the place of each value, of which it has at least one.

    ``offset`` is the offset that it commits for the group, None if it commits none. ``ended_at`` is the time at which
    its commit began; nothing of it may be visible before.
    """

    number: int
    values: dict[bytes, TopicPartition] = field(default_factory=dict)
    outcome: Outcome = Outcome.ABORTED
    offset: int | None = None
    ended_at: float = math.inf

    def __str__(self) -> str:
        return f"transaction {self.number}, {self.outcome.name}"


Seen = Mapping[TopicPartition, Sequence[bytes]]
"""The values that a reader of committed records returned, by partition."""


def ledger_anomalies(
    transactions: Sequence[Transaction], whole: Seen, others: Mapping[str, Seen], committed_offsets: Sequence[int]
) -> Iterator[str]:
    """Check the records that readers saw, and the group's offsets. The reader ``whole`` has read after the end.

    ``committed_offsets`` are the committed offsets that the group had, in order; at least the last, if there is one.
    """
    counts = Counter((partition, value) for partition, values in whole.items() for value in values)
    for transaction in transactions:
        copies = [counts.pop((partition, value), 0) for value, partition in transaction.values.items()]
        if any(count > 1 for count in copies):
            yield f"{transaction} was written twice: {copies}"
        elif transaction.outcome is Outcome.ABORTED and any(copies):
            yield f"{transaction} was read: {copies}"
        elif transaction.outcome is Outcome.COMMITTED and not all(copies):
            yield f"{transaction} lost records: {copies}"
        elif any(copies) and not all(copies):
            yield f"{transaction} was read in part: {copies}"
        elif any(copies):
            transaction.outcome = Outcome.COMMITTED  # the log shows it
    for partition, value in counts:
        yield f"{value!r} of {partition} was never sent"
    for partition, values in whole.items():
        for before, value in pairwise(values):
            if value < before:
                yield f"{partition} is out of order: {value!r} is behind {before!r}"
        for name, seen in others.items():
            if list(seen.get(partition, ())) != list(values):
                yield f"the {name} reader of {partition} saw {seen.get(partition)}, committed is {values}"
    expected = [
        transaction.offset
        for transaction in transactions
        if transaction.outcome is Outcome.COMMITTED and transaction.offset is not None
    ]
    if list(committed_offsets[-1:]) != expected[-1:]:
        yield f"the group's offset is {committed_offsets[-1:]}, the last committed transaction had {expected[-1:]}"
    elif list(committed_offsets) != [offset for offset in expected if offset in committed_offsets]:
        yield f"the group's offsets were {committed_offsets}, those of committed transactions were {expected}"


def early_anomalies(
    transactions: Sequence[Transaction], reads: Iterable[tuple[float, bytes]], offsets: Iterable[tuple[float, int]]
) -> Iterator[str]:
    """Yield the records, and the offsets of the group, that were visible before the commit of their transaction began.

    ``reads`` are the times at which a reader of committed records returned a value. ``offsets`` are the times at which
    a coordinator answered a request for stable offsets. Offsets of transactions are unique.
    """
    of_value = {value: transaction for transaction in transactions for value in transaction.values}
    of_offset = {transaction.offset: transaction for transaction in transactions if transaction.offset is not None}
    for at, value in reads:
        transaction = of_value.get(value)
        if transaction is not None and at < transaction.ended_at:
            yield f"{transaction} was read at {at:.3f} s, and its commit began at {transaction.ended_at:.3f} s"
    for at, offset in offsets:
        transaction = of_offset.get(offset)
        if transaction is not None and at < transaction.ended_at:
            yield f"{transaction}: its offset was read at {at:.3f} s, its commit began at {transaction.ended_at:.3f} s"


def copy_anomalies(originals: Seen, copies: Seen) -> Iterator[str]:
    """Yield whether each original was copied once."""
    expected, actual = (Counter(value for values in logs.values() for value in values) for logs in (originals, copies))
    if missing := sorted(expected - actual):
        yield f"{len(missing)} records were not copied: {missing[:5]}"
    if repeated := sorted(actual - expected):
        yield f"{len(repeated)} copies are of no committed record, or a second time: {repeated[:5]}"
