"""The rows of an outbox, and which of them are on their way to Kafka.

A *lane* is what has an order: the rows of one key in one topic. A row without a key has a lane of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from ...producer.delivery import Delivery

Lane = tuple[str, bytes] | int


class OutboxRow(NamedTuple):
    """A row of the table that is still to be sent. ``headers`` is a JSON object or None."""

    id: int
    shard: int
    topic: str
    key: bytes | None
    value: bytes | None
    headers: str | None
    attempts: int

    @property
    def lane(self) -> Lane:
        """What the row has to wait for: the rows of its key in its topic."""
        return self.id if self.key is None else (self.topic, self.key)

    @property
    def size(self) -> int:
        """The bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


class FailedRow(NamedTuple):
    """A row that could not be sent, and why."""

    row: OutboxRow
    error: Exception


@dataclass(slots=True)
class Outcome:
    """Rows whose outcome is known. Rows of ``unsent`` and the rows behind them in their lanes stay in the table."""

    sent: list[OutboxRow] = field(default_factory=list)
    unsent: list[FailedRow] = field(default_factory=list)


class RowsInFlight:
    """The rows that the producer has, by lane and in order.

    Owner: the ``OutboxRelay``. While a lane is here, no row of it may be read, because the producer would send it twice
    or before a row that fails.
    """

    def __init__(self) -> None:
        self._lanes: dict[Lane, list[tuple[OutboxRow, Delivery]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, lane: Lane) -> bool:
        return lane in self._lanes

    @property
    def lanes(self) -> Collection[Lane]:
        """The lanes that have a row here."""
        return self._lanes.keys()

    def shards(self) -> set[int]:
        """Return the shards that have a row here."""
        return {rows[0][0].shard for rows in self._lanes.values()}

    def add(self, row: OutboxRow, delivery: Delivery) -> None:
        """Add a row that was sent after all others of its lane."""
        self._lanes.setdefault(row.lane, []).append((row, delivery))
        self._count += 1

    def deliveries(self) -> list[Delivery]:
        """Return the promises of all rows."""
        return [delivery for rows in self._lanes.values() for _, delivery in rows]

    def take_settled(self, outcome: Outcome) -> None:
        """Move the rows whose outcome is known to ``outcome``.

        A row that was written after a row of its lane failed belongs to neither list: it is sent again, so that the
        last record of a key is that of its last row. A lane with a failed row stays until all its rows are settled.
        """
        remaining: dict[Lane, list[tuple[OutboxRow, Delivery]]] = {}
        for lane, rows in self._lanes.items():
            place = 0
            while place < len(rows) and rows[place][1].done() and rows[place][1].exception() is None:
                place += 1
            outcome.sent += [row for row, _ in rows[:place]]
            rest = rows[place:]
            if rest and not all(delivery.done() for _, delivery in rest):
                remaining[lane] = rest
            elif rest:
                errors = [delivery.exception() for _, delivery in rest]  # of each, so that none is logged as unseen
                assert errors[0] is not None, "the rows before the first failure were removed"
                outcome.unsent.append(FailedRow(rest[0][0], errors[0]))
        self._lanes = remaining
        self._count = sum(map(len, remaining.values()))
