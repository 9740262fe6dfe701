"""The pipeline that ships: JSON from a topic, aggregated over windows of event time, to Parquet and to a topic.

Each destination is a query of its own with a checkpoint of its own, so that each keeps the guarantee that it can give:
Parquet has every window exactly once, a topic at least once, under a key that says which window it is. A window is
written when it is complete, which is when the watermark has passed its end.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions
from pyspark.sql.streaming.listener import StreamingQueryListener

from . import FORMAT
from .listener import lags_of
from .options import KAFKA_PREFIX
from .pausable import PAUSE, PausableDataSource

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery

AVAILABLE_NOW = "available-now"

READ = "value binary, timestamp timestamp"
"""The columns that are read; the others are not even decoded."""

POLL = 0.1
"""Seconds between two looks at whether queries have ended."""

_EVENT_TIME = "_event_time"
_MALFORMED = "_malformed"
_PARSING = "parsing"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a pipeline does. ``options`` are those of the source; those that begin with ``kafka.`` are the sink's, too.

    ``event_time`` is a column of the JSON, or None for the timestamp of the record. ``window``, ``slide`` and
    ``watermark`` are durations as Spark has them ("30 seconds"); ``trigger`` is one, too, or `AVAILABLE_NOW`.
    ``aggregates`` are expressions of SQL.
    """

    options: Mapping[str, str]
    schema: str
    window: str
    checkpoint: str
    slide: str | None = None
    watermark: str = "10 seconds"
    event_time: str | None = None
    group_by: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ("count(*) AS records",)
    to_parquet: str | None = None
    to_topic: str | None = None
    trigger: str = "10 seconds"


@dataclass(frozen=True, slots=True)
class Progress:
    """A batch that is done: a line for the user, and what was dropped since it could not be used."""

    text: str
    dropped: int


def windows(records: DataFrame, plan: Plan) -> DataFrame:
    """The aggregated windows of records, which have the columns `READ`.

    Rows that are no JSON of the schema, or have no event time, are counted as dropped and left out.
    """
    parsed = functions.from_json(
        functions.col("value").cast("string"),
        f"{plan.schema}, {_MALFORMED} STRING",
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MALFORMED},
    )
    rows = records.select(parsed.alias("parsed"), "timestamp")
    event_time = functions.col("timestamp" if plan.event_time is None else f"parsed.{_quoted(plan.event_time)}")
    unusable = functions.col("parsed").isNull() | functions.col(f"parsed.{_MALFORMED}").isNotNull()
    rows = rows.select("parsed.*", event_time.cast("timestamp").alias(_EVENT_TIME), unusable.alias("_unusable"))
    unusable = functions.col("_unusable") | functions.col(_EVENT_TIME).isNull()
    rows = rows.observe(_PARSING, functions.count_if(unusable).alias("dropped")).where(~unusable)
    window = functions.window(_EVENT_TIME, plan.window, plan.slide)
    return (
        rows.withWatermark(_EVENT_TIME, plan.watermark)
        .groupBy(window.alias("window"), *map(_column, plan.group_by))
        .agg(*map(functions.expr, plan.aggregates))
        .select(
            functions.col("window.start").alias("window_start"), functions.col("window.end").alias("window_end"), "*"
        )
        .drop("window")
    )


def as_records(rows: DataFrame, plan: Plan) -> DataFrame:
    """Windows as records of Kafka: the window and its groups as the key, everything as the value, both JSON."""
    key = functions.struct("window_start", *map(_column, plan.group_by))
    return rows.select(functions.to_json(key).alias("key"), functions.to_json(functions.struct("*")).alias("value"))


class Pipeline:
    """The queries of a plan. ``report`` is given each batch that is done, on a thread of its own.

    ``pause`` is the path of a file that does not exist, in a directory of the driver.
    """

    def __init__(self, spark: SparkSession, plan: Plan, pause: Path, report: Callable[[Progress], None]) -> None:
        self._spark = spark
        self._plan = plan
        self._pause = pause
        self._listener = ProgressListener(report)
        self._queries: list[StreamingQuery] = []

    def run(self, stop: threading.Event, patience: float) -> None:
        """Run until all is read (`AVAILABLE_NOW`), a query fails, or ``stop`` is set; then stop between two batches.

        A batch that runs at that time has ``patience`` seconds to end. Raises what Spark raises.
        """
        self._spark.dataSource.register(PausableDataSource)
        self._spark.streams.addListener(self._listener)
        try:
            self._start()
            while any(query.isActive for query in self._queries) and not self._failures():
                if stop.wait(POLL):
                    self._stop_between_batches(patience)
                    break
            for query in self._failures():
                query.awaitTermination()  # raises
        finally:
            for query in self._queries:
                query.stop()
            self._spark.streams.removeListener(self._listener)

    def _start(self) -> None:
        if self._plan.to_parquet is not None:
            rows = windows(self._records(), self._plan)
            self._begin("parquet", rows, {"format": "parquet", "path": self._plan.to_parquet})
        if self._plan.to_topic is not None:
            rows = as_records(windows(self._records(), self._plan), self._plan)
            of_kafka = {name: value for name, value in self._plan.options.items() if name.startswith(KAFKA_PREFIX)}
            self._begin("topic", rows, {"format": FORMAT, "topic": self._plan.to_topic, **of_kafka})

    def _records(self) -> DataFrame:
        reader = self._spark.readStream.format(PausableDataSource.name()).schema(READ)
        return reader.options(**self._plan.options, **{PAUSE: str(self._pause)}).load()

    def _begin(self, name: str, rows: DataFrame, target: Mapping[str, str]) -> None:
        trigger: dict[str, Any] = (
            {"availableNow": True} if self._plan.trigger == AVAILABLE_NOW else {"processingTime": self._plan.trigger}
        )
        options = {option: value for option, value in target.items() if option != "format"}
        self._queries.append(
            rows.writeStream.format(target["format"])
            .options(**options, checkpointLocation=f"{self._plan.checkpoint.rstrip('/')}/{name}")
            .queryName(name)
            .outputMode("append")
            .trigger(**trigger)
            .start()
        )

    def _failures(self) -> list[StreamingQuery]:
        return [query for query in self._queries if not query.isActive and query.exception() is not None]

    def _stop_between_batches(self, patience: float) -> None:
        self._pause.touch()
        deadline = time.monotonic() + patience
        waiting = list(self._queries)
        while waiting and time.monotonic() < deadline:
            for query in list(waiting):
                if not query.isActive or not query.status["isTriggerActive"]:
                    query.stop()
                    waiting.remove(query)
            time.sleep(POLL)


@dataclass
class ProgressListener(StreamingQueryListener):
    """Turns what Spark tells of a batch into a line: rows, time, lag, and rows that were dropped."""

    report: Callable[[Progress], None]
    dropped: int = field(default=0, init=False)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing has happened yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """A batch is done."""
        progress = json.loads(event.progress.json)
        dropped = int((progress.get("observedMetrics") or {}).get(_PARSING, {}).get("dropped", 0))
        for lag in lags_of(progress):
            tail = f", {dropped:,} dropped: no JSON of the schema, or no event time" if dropped else ""
            self.report(Progress(f"{lag}{tail}", dropped))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing has come."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """``run`` sees it by itself."""


def _column(name: str) -> Column:
    return functions.col(_quoted(name))


def _quoted(name: str) -> str:
    """A column's name that is taken as it stands, with dots and blanks."""
    return f"`{name.replace('`', '``')}`"
