"""JSON of a topic, aggregated over windows of event time, to Parquet and to a topic: ``aiokafka-lite pipeline``.

Each destination is a query with a checkpoint of its own, and so has its own guarantee: Parquet gets every window
exactly once. A topic gets it at least once, with a key that identifies the window, or exactly once, in transactions. A
window is written when the watermark has passed its end.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions

from . import FORMAT
from .listener import LagListener, lags_of
from .options import AT_LEAST_ONCE, EXACTLY_ONCE, KAFKA_PREFIX
from .pausable import PAUSE, PausableDataSource

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.listener import QueryProgressEvent
    from pyspark.sql.streaming.query import StreamingQuery

AVAILABLE_NOW = "available-now"
"""The trigger of a pipeline that ends when it has read everything."""

COLUMNS_READ = "value binary, timestamp timestamp"

POLL_INTERVAL = 0.1
"""Seconds between two checks of the queries."""

_EVENT_TIME = "_event_time"
_MALFORMED = "_malformed"
_PARSING = "parsing"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The settings of a pipeline. ``options`` are those of the source; the sink also gets those named ``kafka.*``.

    ``event_time`` is a column of the JSON, or None for the timestamp of the record. ``window``, ``slide``,
    ``watermark`` and ``trigger`` are durations of Spark ("30 seconds"); ``trigger`` may be ``AVAILABLE_NOW``.
    ``aggregates`` are expressions of SQL. ``exactly_once`` is the delivery to ``to_topic``.
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
    exactly_once: bool = False
    trigger: str = "10 seconds"


def windows(records: DataFrame, plan: Plan) -> DataFrame:
    """The aggregated windows of records with the columns ``COLUMNS_READ``.

    Rows that are not JSON of the schema, or have no event time, are dropped and counted.
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
    bounds = (functions.col(f"window.{end}").alias(f"window_{end}") for end in ("start", "end"))
    return (
        rows.withWatermark(_EVENT_TIME, plan.watermark)
        .groupBy(window.alias("window"), *map(_column, plan.group_by))
        .agg(*map(functions.expr, plan.aggregates))
        .select(*bounds, "*")
        .drop("window")
    )


def as_records(rows: DataFrame, plan: Plan) -> DataFrame:
    """Windows as records: the key is JSON of the window and its groups, the value is JSON of the whole row."""
    key = functions.struct("window_start", *map(_column, plan.group_by))
    return rows.select(functions.to_json(key).alias("key"), functions.to_json(functions.struct("*")).alias("value"))


class Pipeline:
    """The queries of a plan. ``report`` gets a line for each finished batch, on a thread of Spark.

    ``pause`` is the path of a file that does not exist, in a directory of the driver.
    """

    def __init__(self, spark: SparkSession, plan: Plan, pause: Path, report: Callable[[str], None]) -> None:
        self._spark = spark
        self._plan = plan
        self._pause = pause
        self._listener = ProgressListener(report)
        self._queries: list[StreamingQuery] = []

    def run(self, stop: threading.Event, timeout: float) -> None:
        """Run until everything is read (``AVAILABLE_NOW``), a query fails, or ``stop`` is set.

        ``stop`` ends the queries between two batches; a running batch gets ``timeout`` seconds to finish. Raises the
        PySparkException of a failed query.
        """
        plan = self._plan
        self._spark.dataSource.register(PausableDataSource)
        self._spark.streams.addListener(self._listener)
        try:
            if plan.to_parquet is not None:
                self._start("parquet", windows(self._records(), plan), "parquet", {"path": plan.to_parquet})
            if plan.to_topic is not None:
                of_kafka = {name: value for name, value in plan.options.items() if name.startswith(KAFKA_PREFIX)}
                rows = as_records(windows(self._records(), plan), plan)
                delivery = EXACTLY_ONCE if plan.exactly_once else AT_LEAST_ONCE
                self._start("topic", rows, FORMAT, {"topic": plan.to_topic, "delivery": delivery, **of_kafka})
            while any(query.isActive for query in self._queries) and not self._failures():
                if stop.wait(POLL_INTERVAL):
                    self._stop_between_batches(timeout)
                    break
            for query in self._failures():
                query.awaitTermination()  # raises
        finally:
            for query in self._queries:
                query.stop()
            self._spark.streams.removeListener(self._listener)

    def _records(self) -> DataFrame:
        reader = self._spark.readStream.format(PausableDataSource.name()).schema(COLUMNS_READ)
        return reader.options(**self._plan.options, **{PAUSE: str(self._pause)}).load()

    def _start(self, name: str, rows: DataFrame, form: str, options: Mapping[str, str]) -> None:
        now = self._plan.trigger == AVAILABLE_NOW
        trigger: dict[str, Any] = {"availableNow": True} if now else {"processingTime": self._plan.trigger}
        writer = rows.writeStream.format(form).queryName(name).outputMode("append").trigger(**trigger)
        checkpoint = f"{self._plan.checkpoint.rstrip('/')}/{name}"
        self._queries.append(writer.options(**options, checkpointLocation=checkpoint).start())

    def _failures(self) -> list[StreamingQuery]:
        return [query for query in self._queries if not query.isActive and query.exception() is not None]

    def _stop_between_batches(self, timeout: float) -> None:
        self._pause.touch()
        deadline = time.monotonic() + timeout
        running = list(self._queries)
        while running and time.monotonic() < deadline:
            for query in list(running):
                if not query.isActive or not query.status["isTriggerActive"]:
                    query.stop()
                    running.remove(query)
            time.sleep(POLL_INTERVAL)


class ProgressListener(LagListener):
    """Reports a finished batch as a line: rows, time, lag, and the number of dropped rows."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__()
        self._report_line = report

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 — Spark's name
        """Report a finished batch."""
        progress = json.loads(event.progress.json)
        dropped = int((progress.get("observedMetrics") or {}).get(_PARSING, {}).get("dropped", 0))
        for lag in lags_of(progress):
            tail = f", {dropped:,} dropped: not JSON of the schema, or without event time" if dropped else ""
            self._report_line(f"{lag}{tail}")


def _column(name: str) -> Column:
    return functions.col(_quoted(name))


def _quoted(name: str) -> str:
    """A column name in backticks, so that dots and blanks belong to the name."""
    return f"`{name.replace('`', '``')}`"
