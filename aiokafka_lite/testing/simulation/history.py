"""What happened in one simulation: the records that were written, the effects, the commits, and the faults."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ...types import Record
from .workload import Message

_WORD = re.compile(r"[\w.-]+")


class Outcome(Enum):
    """How an effect ended."""

    RUNS = "has not ended"
    DONE = "done"
    REPEATED = "repeated, and ignored by its idempotence key"
    FAILED = "failed"
    UNKNOWN = "done, but the answer was lost"

    @property
    def is_applied(self) -> bool:
        """Whether the effect happened."""
        return self in _APPLIED


_APPLIED = (Outcome.DONE, Outcome.UNKNOWN)


@dataclass(slots=True)
class Effect:
    """An effect outside Kafka: ``name`` of the record ``id``, by the process ``process``.

    ``key_used_by`` is the id of another record whose effect had the same idempotence key before, so this one was
    ignored.
    """

    at: float
    process: str
    name: str
    id: str
    outcome: Outcome = Outcome.RUNS
    ended_at: float | None = None
    idempotence_key: str | None = None
    key_used_by: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """A message of the workload, and where and when it was written."""

    message: Message
    at: float
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Commit:
    """An offset that a process committed, or that was refused."""

    at: float
    process: str
    topic: str
    partition: int
    offset: int
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row of the database that a transaction of a process committed; ``row`` is None if it was deleted."""

    at: float
    process: str
    table: str
    key: Any
    row: Any


@dataclass(frozen=True, slots=True)
class Event:
    """A line of the timeline that concerns a process, or the whole cluster."""

    at: float
    text: str


@dataclass(slots=True)
class History:
    """The facts of one run that checks read.

    ``outputs`` are the committed records of the topics that the workload does not write to. ``appended`` says when
    those outside of transactions were acknowledged, by topic, partition and offset. ``rows`` are the changes of the
    database, and ``tables`` its rows at the end, by table and key. ``stops`` are the seconds that each process
    needed after SIGTERM, None if it did not end. ``errors`` are exceptions that no code handled.
    """

    written: dict[str, Written] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    outputs: dict[str, list[Record[bytes, bytes]]] = field(default_factory=dict)
    appended: dict[tuple[str, int, int], float] = field(default_factory=dict)
    rows: list[RowChange] = field(default_factory=list)
    tables: dict[str, dict[Any, Any]] = field(default_factory=dict)
    stops: list[tuple[str, float | None]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)

    def applied(self, name: str | None = None) -> list[Effect]:
        """Return the effects that happened, in order; of one name, or of all."""
        return [effect for effect in self.effects if effect.outcome.is_applied and name in (None, effect.name)]

    def outputs_that_mention(self) -> dict[str, list[tuple[str, Record[bytes, bytes]]]]:
        """Return the output records of each id that is a word of their key or value, with their topics."""
        records_by_id: defaultdict[str, list[tuple[str, Record[bytes, bytes]]]] = defaultdict(list)
        for topic, records in self.outputs.items():
            for record in records:
                for identity in self.mentioned(record):
                    records_by_id[identity].append((topic, record))
        return records_by_id

    def mentioned(self, record: Record[bytes, bytes]) -> list[str]:
        """Return the ids of the workload that are words of a record's key or value, or one of the two."""
        return self.ids_in(*(bytes(part or b"").decode(errors="replace") for part in (record.key, record.value)))

    def ids_in(self, *texts: str) -> list[str]:
        """Return the ids of the workload that are words of texts, or one of the texts."""
        words = dict.fromkeys([*texts, *_WORD.findall(" ".join(texts))])
        return [word for word in words if word in self.written]
