"""The lag of a stream, computed from the offsets that Spark reports after each batch, without a request to Kafka.

Spark has no metrics of Python sources. But its progress has the end of a batch, and the ends of the logs at that time.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from ..arguments import plural
from ..errors import ConfigurationError
from ..types import TopicPartition
from .offsets import from_json

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

logger = logging.getLogger(__name__)

_WORST = 3


@dataclass(frozen=True, slots=True)
class Lag:
    """The progress of one source after a batch: its speed, and how far it is behind the ends of the logs."""

    query: str
    """The query's name, or its id if it has none."""
    batch_id: int
    rows: int
    rows_per_second: float
    """Rows per second that the query processes. Rows that arrive do not count."""
    seconds: float
    """Duration of the whole batch in seconds."""
    behind: Mapping[TopicPartition, int]
    """The number of offsets that are not read yet, by partition."""

    @property
    def total(self) -> int:
        """Unread offsets of all partitions. Some offsets may have no record."""
        return sum(self.behind.values())

    @property
    def largest(self) -> int:
        """Unread offsets of the partition that is furthest behind."""
        return max(self.behind.values(), default=0)

    @property
    def average(self) -> float:
        """Unread offsets per partition."""
        return self.total / len(self.behind) if self.behind else 0.0

    def __str__(self) -> str:
        rate = f"{self.rows:,} rows in {self.seconds:.1f} s ({self.rows_per_second:,.0f}/s)"
        if not self.total:
            return f"{self.query} batch {self.batch_id}: {rate}, no lag in {plural(len(self.behind), 'partition')}"
        worst = sorted(self.behind.items(), key=lambda item: (-item[1], item[0]))[:_WORST]
        furthest = ", ".join(f"{partition} {lag:,}" for partition, lag in worst if lag)
        return f"{self.query} batch {self.batch_id}: {rate}, {self.total:,} behind (most: {furthest})"


def lags_of(progress: StreamingQueryProgress | Mapping[str, Any]) -> list[Lag]:
    """Return the lag of each source of this format in a query's progress, which may be an object or parsed JSON."""
    parsed: Mapping[str, Any] = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    name = parsed.get("name") or str(parsed["id"])
    seconds = (parsed.get("durationMs") or {}).get("triggerExecution", 0) / 1000
    lags: list[Lag] = []
    for source in parsed["sources"]:
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        if latest is None:
            continue
        behind = {partition: max(0, offset - (end or {}).get(partition, 0)) for partition, offset in latest.items()}
        rows, rate = source.get("numInputRows", 0), source.get("processedRowsPerSecond", 0.0)
        lags.append(Lag(name, parsed["batchId"], rows, float(rate or 0.0), seconds, behind))
    return lags


def _offsets(offsets: object) -> dict[TopicPartition, int] | None:
    """Return offsets by partition; None for the offsets of another kind of source."""
    parsed = json.loads(offsets) if isinstance(offsets, str) else offsets
    if not isinstance(parsed, dict):
        return None
    try:
        return from_json(parsed)
    except ConfigurationError:
        return None


class LagListener(StreamingQueryListener):
    """Reports the lag after each batch to ``report``, or to the log as one line.

    Use ``spark.streams.addListener(LagListener())``. ``latest`` has the last lag of each query by its name or id.
    """

    def __init__(self, report: Callable[[Lag], None] | None = None) -> None:
        self.latest: dict[str, Lag] = {}
        self._report = report

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 — Spark's name
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 — Spark's name
        """Report a finished batch."""
        for lag in lags_of(event.progress):
            self.latest[lag.query] = lag
            if self._report is None:
                logger.info("%s", lag)
            else:
                self._report(lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 — Spark's name
        """Do nothing, because the lag has not changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 — Spark's name
        """Do nothing: ``latest`` keeps the last lag."""
