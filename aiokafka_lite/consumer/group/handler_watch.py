"""Detects a handler that hangs: how long the user's code of a ``ConsumerGroup`` works on one record.

A claim returns most records in a hot loop, which must not read the clock. So a look compares two samples: a claim that
does not wait for a record, and whose position has not changed since an earlier look, still works on the same record. A
handler that reads ahead, as ``Workers`` does, knows the times of its records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...cluster.standstill import Wait
from ...types import TopicPartition
from .claim import ClaimReader
from .handler import ConsumerGroupHandler


@dataclass(frozen=True, slots=True)
class Busy:
    """The user's code has worked on this record since the loop's time ``since``."""

    partition: TopicPartition
    offset: int
    since: float

    def describe(self, now: float) -> str:
        """Return the text for ``health()``."""
        return f"the handler has worked on {self.partition} at offset {self.offset} for {now - self.since:.0f} s"


class HandlerWatch:
    """Owner: the ``GroupCore``. ``readers`` returns the readers of the claims that run."""

    def __init__(self, handler: ConsumerGroupHandler[Any, Any], readers: Callable[[], Iterable[ClaimReader]]) -> None:
        self._handler = handler
        self._readers = readers
        self._samples: Mapping[ClaimReader, tuple[int, float]] = {}  # the position, and the time of its first look

    def longest(self, now: float) -> Busy | None:
        """Return the record that the user's code has worked on for the longest time; None if it waits for records."""
        return min(self._busy(now), key=lambda busy: busy.since, default=None)

    def waits(self, now: float) -> Iterator[Wait]:
        """Yield the record that is processed for a long time."""
        busy = self.longest(now)
        if busy is not None:
            text = (
                f"the handler has not finished {busy.partition} at offset {busy.offset}; health() is not live after "
                "max_poll_interval; give what the handler awaits a timeout"
            )
            yield Wait("handler", text, is_partial=True, progress=hash((busy.partition, busy.offset)))

    def _busy(self, now: float) -> Iterator[Busy]:
        in_progress = self._handler.in_progress()
        if in_progress is not None:
            for record, began in in_progress:
                yield Busy(TopicPartition(record.topic, record.partition), record.offset, began)
            return
        samples: dict[ClaimReader, tuple[int, float]] = {}
        for reader in self._readers():
            offset = reader.assigned.offset
            # Before the first record, the claim has not asked yet, or waits in code that runs before its loop.
            if reader.is_waiting or offset is None:
                continue
            position, since = self._samples.get(reader, (-1, now))
            samples[reader] = sample = (offset, since if position == offset else now)
            yield Busy(reader.assigned.partition, max(offset - 1, 0), sample[1])
        self._samples = samples
