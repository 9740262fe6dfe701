"""The Spark queries of ``pipeline.py``, which copy or aggregate a topic to files and to another topic.

A row is an unchanged record, the fields of its JSON, or a window of event time, aggregated from the JSON. A window is
written when the watermark has passed its end.

Each destination is a query with its own checkpoint and its own guarantee. Files have every row exactly once. A topic
has every row at least once, or in transactions exactly once.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import functions

from aiokafka_lite.spark import FORMAT, LagListener
from aiokafka_lite.spark.listener import lags_of
from aiokafka_lite.spark.options import AT_LEAST_ONCE, EXACTLY_ONCE, KAFKA_PREFIX
from aiokafka_lite.spark.pausable import PAUSE, PausableDataSource
from aiokafka_lite.spark.routing import ORIGIN, REASON

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent
    from pyspark.sql.streaming.query import StreamingQuery

AVAILABLE_NOW = "available-now"
"""The trigger of a pipeline that ends when it has read everything."""

COLUMNS_PARSED = "value binary, timestamp timestamp"
COLUMNS_COPIED = "key binary, value binary, headers array<struct<key:string,value:binary>>"
COLUMNS_WITH_ORIGIN = f"{COLUMNS_COPIED}, topic string, partition int, offset bigint, timestamp timestamp"

TEXT_FORMATS = ("csv", "json", "xml")
"""Formats of files that cannot contain bytes. Keys and values are written as text."""

RESTARTS = 10
"""The maximum number of restarts of queries that Spark could not begin."""

_TOO_SLOW = "Python worker failed to connect back"
"""The error of a query that Spark could not begin. Spark waits 10 seconds for the Python process of a source. A busy
machine may need more, and no setting changes the limit."""

POLL_INTERVAL = 0.1
"""Seconds between two checks of the queries."""

LAST_EVENTS = 10.0
"""Seconds in which Spark must deliver the events of a query that has ended."""

DEAD_LETTER_TOPIC = "deadLetterTopic"
_EVENT_TIME = "_event_time"
_MALFORMED = "_malformed"
_UNUSABLE = "_unusable"
_PARSING = "parsing"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The settings of a pipeline. ``options`` are the options of the source. The sink also gets the options named
    ``kafka.*``.

    With a ``window``, which requires a ``schema``, both destinations get windows. Otherwise the topic gets the
    unchanged records, and the files get the fields of the ``schema``, or all columns of the source.

    ``event_time`` is a column of the JSON, or None for the timestamp of the record. ``window``, ``slide``,
    ``watermark`` and ``trigger`` are durations of Spark ("30 seconds"); ``trigger`` may be ``AVAILABLE_NOW``.
    ``aggregates`` are expressions of SQL. ``form`` is Spark's name for the format of the files. ``exactly_once`` is the
    delivery to ``to_topic`` and to ``dead_letter_topic``, which gets the records that cannot be used or written.
    """

    options: Mapping[str, str]
    checkpoint: str
    schema: str | None = None
    window: str | None = None
    slide: str | None = None
    watermark: str = "10 seconds"
    event_time: str | None = None
    group_by: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ("count(*) AS records",)
    to_files: str | None = None
    form: str = "parquet"
    to_topic: str | None = None
    exactly_once: bool = False
    dead_letter_topic: str | None = None
    trigger: str = "10 seconds"


def fields(records: DataFrame, plan: Plan) -> DataFrame:
    """Return the JSON fields of ``records``, which have the columns ``COLUMNS_PARSED``. With windows, also the event
    time.

    Rows that are not JSON of the schema, or have no event time, are dropped and counted.
    """
    rows = checked(records, plan)
    event_time = [] if plan.window is None else [_EVENT_TIME]
    dropped = functions.count(_UNUSABLE).alias("dropped")
    usable = rows.observe(_PARSING, dropped).where(functions.col(_UNUSABLE).isNull())
    return usable.select("parsed.*", *event_time).drop(_MALFORMED)


def dead_letters(records: DataFrame, plan: Plan) -> DataFrame:
    """Return the rows that ``fields`` drops, as dead letters for the sink: they name no topic, but a reason."""
    rows = checked(records, plan).where(functions.col(_UNUSABLE).isNotNull())
    no_topic = functions.lit(None).cast("string").alias("topic")
    return rows.select("key", "value", "headers", _origin(), no_topic, functions.col(_UNUSABLE).alias(REASON))


def checked(records: DataFrame, plan: Plan) -> DataFrame:
    """Return ``records`` with the parsed JSON, the event time of windows, and why a row cannot be used, or null."""
    parsed = functions.from_json(
        functions.col("value").cast("string"),
        f"{plan.schema}, {_MALFORMED} STRING",
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MALFORMED},
    )
    rows = records.withColumn("parsed", parsed)
    malformed = functions.col("parsed").isNull() | functions.col(f"parsed.{_MALFORMED}").isNotNull()
    reason = functions.when(malformed, "not JSON of the schema")
    if plan.window is not None:
        event_time = "timestamp" if plan.event_time is None else f"parsed.{_quoted(plan.event_time)}"
        rows = rows.withColumn(_EVENT_TIME, functions.col(event_time).cast("timestamp"))
        reason = reason.when(functions.col(_EVENT_TIME).isNull(), "without event time")
    return rows.withColumn(_UNUSABLE, reason)


def windows(rows: DataFrame, plan: Plan) -> DataFrame:
    """Return the aggregated windows of ``fields``."""
    assert plan.window is not None
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
    """Return windows as records: the key is JSON of the window and its groups, the value is JSON of the whole row."""
    key = functions.struct("window_start", *map(_column, plan.group_by))
    return rows.select(functions.to_json(key).alias("key"), functions.to_json(functions.struct("*")).alias("value"))


def as_text(records: DataFrame) -> DataFrame:
    """Return all columns of the source, with key and value as text."""
    return records.withColumns({name: functions.col(name).cast("string") for name in ("key", "value")})


class Destination(NamedTuple):
    """A query of a pipeline. ``name`` is the name of the query, and of its folder of the checkpoint."""

    name: str
    rows: DataFrame
    form: str
    options: Mapping[str, str]


class QueryPipeline:
    """The queries of a plan. ``report`` gets a line for each finished batch, on a thread of Spark.

    ``pause`` is the path of a file that does not exist, in a directory of the driver.
    """

    def __init__(self, spark: SparkSession, plan: Plan, pause: Path, report: Callable[[str], None]) -> None:
        self._spark = spark
        self._plan = plan
        self._pause = pause
        self._report = report
        reason = "not JSON of the schema" if plan.window is None else "not JSON of the schema, or without event time"
        where = "dropped" if plan.dead_letter_topic is None else f"to {plan.dead_letter_topic}"
        self._listener = ProgressListener(report, f"{where}: {reason}")
        self._restarts = 0

    def run(self, stop: threading.Event, timeout: float) -> None:
        """Run until everything is read (``AVAILABLE_NOW``), a query fails, or ``stop`` is set.

        ``stop`` ends the queries between two batches; a running batch gets ``timeout`` seconds to finish. Raises the
        PySparkException of a failed query.
        """
        destinations = list(self.destinations())
        running: dict[str, StreamingQuery] = {}
        self._spark.streams.addListener(self._listener)
        try:
            for destination in destinations:
                running[destination.name] = self._start(destination)
            while not all(self._is_complete(destination, running) for destination in destinations):
                if stop.wait(POLL_INTERVAL):
                    self._stop_between_batches(list(running.values()), timeout)
                    break
            for query in running.values():
                if not query.isActive and (failure := query.exception()) is not None:
                    raise failure
        finally:
            for query in running.values():
                query.stop()
            # Spark delivers its events late. Without this wait, the lines of the last batches would be missing.
            self._listener.wait_for_ends([str(query.runId) for query in running.values()], LAST_EVENTS)
            self._spark.streams.removeListener(self._listener)

    def destinations(self) -> Iterator[Destination]:
        """Yield the queries of the plan. Spark checks the plan, and the source looks up its topics. Nothing is
        started."""
        plan = self._plan
        self._spark.dataSource.register(PausableDataSource)
        if plan.to_files is not None:
            if plan.schema is not None:
                rows = self._parsed()
            else:
                rows = as_text(self._records()) if plan.form in TEXT_FORMATS else self._records()
            yield Destination(plan.form, rows, plan.form, {"path": plan.to_files})
        if plan.to_topic is not None:
            if plan.window is not None:
                rows = as_records(self._parsed(), plan)
            else:
                rows = self._copied()
            yield Destination("topic", rows, FORMAT, {"topic": plan.to_topic, **self._sink_options()})
        if plan.dead_letter_topic is not None and plan.schema is not None:
            rows = dead_letters(self._records(COLUMNS_WITH_ORIGIN, includeHeaders="true"), plan)
            yield Destination("dead-letters", rows, FORMAT, self._sink_options())

    def _copied(self) -> DataFrame:
        """Return records to copy. Their key determines the partition, and dead letters have their origin."""
        if self._plan.dead_letter_topic is None:
            return self._records(COLUMNS_COPIED, includeHeaders="true")
        records = self._records(COLUMNS_WITH_ORIGIN, includeHeaders="true")
        return records.select("key", "value", "headers", _origin())

    def _sink_options(self) -> dict[str, str]:
        plan = self._plan
        properties = {name: value for name, value in plan.options.items() if name.startswith(KAFKA_PREFIX)}
        letters = {} if plan.dead_letter_topic is None else {DEAD_LETTER_TOPIC: plan.dead_letter_topic}
        return {"delivery": EXACTLY_ONCE if plan.exactly_once else AT_LEAST_ONCE, **letters, **properties}

    def describe(self) -> Iterator[str]:
        """Yield a description of ``run``: a line for each destination. Nothing is started.

        Raises the PySparkException of a wrong plan.
        """
        how = "once" if self._plan.trigger == AVAILABLE_NOW else f"every {self._plan.trigger}"
        for to in self.destinations():
            self._check_format(to.form)
            columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in to.rows.schema.fields)
            topic = to.options.get("topic") or to.options.get(DEAD_LETTER_TOPIC)
            place = to.options.get("path") or f"topic {topic}, {to.options['delivery']}"
            yield f"{to.name}: {how} to {place}, checkpoint {self._checkpoint(to)}: {columns}"

    def _check_format(self, form: str) -> None:
        try:
            self._spark.read.format(form).schema("value STRING").load()
        except PySparkException as error:  # a known format may refuse to load without files
            if error.getCondition() == "DATA_SOURCE_NOT_FOUND":
                raise

    def _checkpoint(self, to: Destination) -> str:
        return f"{self._plan.checkpoint.rstrip('/')}/{to.name}"

    def _parsed(self) -> DataFrame:
        rows = fields(self._records(COLUMNS_PARSED), self._plan)
        return rows if self._plan.window is None else windows(rows, self._plan)

    def _records(self, columns: str | None = None, **options: str) -> DataFrame:
        reader = self._spark.readStream.format(PausableDataSource.name())
        reader = reader if columns is None else reader.schema(columns)
        return reader.options(**{**self._plan.options, **options, PAUSE: str(self._pause)}).load()

    def _start(self, to: Destination) -> StreamingQuery:
        now = self._plan.trigger == AVAILABLE_NOW
        trigger: dict[str, Any] = {"availableNow": True} if now else {"processingTime": self._plan.trigger}
        writer = to.rows.writeStream.format(to.form).queryName(to.name).outputMode("append").trigger(**trigger)
        return writer.options(**to.options, checkpointLocation=self._checkpoint(to)).start()

    def _is_complete(self, to: Destination, running: dict[str, StreamingQuery]) -> bool:
        """Return whether a query has ended. Starts the query again if Spark could not begin it. Raises its other
        errors.
        """
        query = running[to.name]
        if query.isActive:
            return False
        if (failure := query.exception()) is None:
            return True
        if _TOO_SLOW not in str(failure) or self._restarts == RESTARTS:
            raise failure
        self._restarts += 1
        self._report(f"{to.name}: this machine is too busy for Spark, which could not begin the query; it starts again")
        running[to.name] = self._start(to)
        return False

    def _stop_between_batches(self, queries: list[StreamingQuery], timeout: float) -> None:
        self._pause.touch()
        deadline = time.monotonic() + timeout
        while queries and time.monotonic() < deadline:
            for query in list(queries):
                if not query.isActive or not query.status["isTriggerActive"]:
                    query.stop()
                    queries.remove(query)
            time.sleep(POLL_INTERVAL)


class ProgressListener(LagListener):
    """Reports a finished batch as a line: rows, time, lag, and the number of unusable rows, with the ``reason``."""

    def __init__(self, report: Callable[[str], None], reason: str) -> None:
        super().__init__()
        self._report_line = report
        self._reason = reason
        self._ended: set[str] = set()
        self._changed = threading.Condition()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 — Spark's name
        """Report a finished batch."""
        progress = json.loads(event.progress.json)
        dropped = int((progress.get("observedMetrics") or {}).get(_PARSING, {}).get("dropped", 0))
        for lag in lags_of(progress):
            tail = f", {dropped:,} {self._reason}" if dropped else ""
            self._report_line(f"{lag}{tail}")

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 — Spark's name
        """Note that a query has ended. This is its last event."""
        super().onQueryTerminated(event)
        with self._changed:
            self._ended.add(str(event.runId))
            self._changed.notify_all()

    def wait_for_ends(self, runs: Collection[str], timeout: float) -> None:
        """Wait until the events of the end of these queries have arrived here, at most ``timeout`` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended.issuperset(runs), timeout)


def _origin() -> Column:
    return functions.struct("topic", "partition", "offset", "timestamp").alias(ORIGIN)


def _column(name: str) -> Column:
    return functions.col(_quoted(name))


def _quoted(name: str) -> str:
    """Return a column name in backticks, so that dots and blanks belong to the name."""
    return f"`{name.replace('`', '``')}`"
