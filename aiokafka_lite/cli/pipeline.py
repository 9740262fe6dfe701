"""``aiokafka-lite pipeline``: the pipeline of ``aiokafka_lite.spark`` as a command."""

from __future__ import annotations

import re
import signal
import tempfile
import threading
from collections.abc import Collection
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .terminal.arguments import names_and_values
from .terminal.connection import DEFAULT_SERVER, ConnectionOptions
from .terminal.options import BootstrapServer, ConfigFile, Properties
from .terminal.run import log_warnings, run_blocking, say

if TYPE_CHECKING:
    from ..spark.session import SparkCluster

EXAMPLES = r"""
aiokafka-lite pipeline --topic orders --to-files out/orders --format json --checkpoint out/checkpoint
aiokafka-lite pipeline --topic orders --to-topic orders-copied --exactly-once --checkpoint out/checkpoint
aiokafka-lite pipeline -b localhost:9092 --topic orders --schema 'city STRING, amount DOUBLE, at TIMESTAMP' \
  --event-time at --window '10 minutes' --group-by city --aggregate 'sum(amount) AS total' \
  --to-files out/orders --to-topic orders-by-city --checkpoint out/checkpoint
"""

_OUR_ERRORS = "aiokafka_lite.errors."
_PYTHON_ERROR = re.compile(r"[\w.]+(Error|Exception|Timeout|Interrupt)\b(: |$)")
"""The last line of a Python traceback."""
_JAVA_ERROR = re.compile(r": [\w.$]+(Error|Exception): ")
"""The line of a py4j error that has the text of the Java exception."""

_duration = partial(typer.Option, metavar="DURATION")
_pairs = partial(typer.Option, metavar="NAME=VALUE")


def pipeline(
    topic: Annotated[str, typer.Option(help="Topics to read, separated by commas.")],
    checkpoint: Annotated[str, typer.Option(metavar="DIR", help="Directory from which a restart continues.")],
    to_files: Annotated[str | None, typer.Option(metavar="DIR", help="Write files.")] = None,
    form: Annotated[
        str,
        typer.Option("--format", metavar="NAME", help="Format of the files, by Spark's name: parquet, json, orc, …"),
    ] = "parquet",
    to_topic: Annotated[str | None, typer.Option(metavar="TOPIC", help="Write to a topic.")] = None,
    exactly_once: Annotated[
        bool, typer.Option("--exactly-once", help="Write to the topic in transactions, each row once.")
    ] = False,
    schema: Annotated[
        str | None, typer.Option(metavar="DDL", help="Fields of the JSON in the topic, as in 'a INT, b STRING'.")
    ] = None,
    window: Annotated[str | None, _duration(help="Aggregate over windows of this length, as in '10 minutes'.")] = None,
    event_time: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Time column of the JSON; by default the record's timestamp.")
    ] = None,
    slide: Annotated[str | None, _duration(help="Distance between the starts of overlapping windows.")] = None,
    watermark: Annotated[
        str | None, _duration(help="How late a row may arrive to be counted.  [default: 10 seconds]")
    ] = None,
    group_by: Annotated[str, typer.Option(metavar="COLUMNS", help="Columns to group by, separated by commas.")] = "",
    aggregate: Annotated[
        list[str] | None,
        typer.Option(metavar="SQL", help="Column of the result. May be repeated.  [default: count(*) AS records]"),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    config: ConfigFile = None,
    properties: Properties = None,
    starting_offsets: Annotated[
        str, typer.Option(metavar="WHERE", help="Where a pipeline without a checkpoint begins.")
    ] = "earliest",
    option: Annotated[list[str] | None, _pairs(help="Option of the source, as in maxOffsetsPerTrigger=1000.")] = None,
    trigger: Annotated[str, _duration(help="Interval of the batches, or available-now.")] = "10 seconds",
    stop_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long the running batch may take after SIGTERM.")
    ] = 60.0,
    master: Annotated[str, typer.Option(metavar="URL", help="Spark master.")] = "local[*]",
    remote: Annotated[str | None, typer.Option(metavar="URL", help="Spark Connect server, as sc://host:15002.")] = None,
    conf: Annotated[list[str] | None, _pairs(help="Setting of Spark. May be repeated.")] = None,
    name: Annotated[str, typer.Option(help="Name of the Spark application.")] = "aiokafka-lite pipeline",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the plan, and write nothing.")
    ] = False,
) -> None:
    """Copy or aggregate a topic with Spark, to files, to a topic, or to both.

    Files get the records, or with --schema the fields of their JSON; a topic gets the records. With --window, both get
    aggregates over windows of event time. Requires the extra spark. The first Ctrl-C or SIGTERM stops between two
    batches; the second one stops at once.
    """

    columns = tuple(column.strip() for column in group_by.split(",") if column.strip())
    of_windows: dict[str, Any] = {"slide": slide, "watermark": watermark, "event_time": event_time}
    of_windows |= {"group_by": columns, "aggregates": tuple(aggregate or ())}
    given = {setting: value for setting, value in of_windows.items() if value}
    plan: dict[str, Any] = {"schema": schema, "window": window, "checkpoint": checkpoint, "trigger": trigger, **given}
    plan |= {"to_files": to_files, "form": form, "to_topic": to_topic, "exactly_once": exactly_once}

    def run() -> int:
        from ..spark.session import SparkCluster

        _check_destinations(plan, given)
        plan["options"] = {
            **client_options(ConnectionOptions(bootstrap_server, config, properties or (), None)),
            "subscribe": topic,
            "startingOffsets": starting_offsets,
            **names_and_values("option", option or ()),
        }
        cluster = SparkCluster(master=master, remote=remote, settings=names_and_values("conf", conf or ()))
        _check_source(plan, cluster)
        return _run(plan, cluster, name, stop_timeout, dry_run=dry_run)

    raise typer.Exit(run_blocking(run))


def _check_destinations(plan: dict[str, Any], of_windows: Collection[str]) -> None:
    """Raise ConfigurationError if these options do not go together. ``of_windows`` are options that need a window."""
    from ..errors import ConfigurationError

    problem = ""
    if plan["to_files"] is None and plan["to_topic"] is None:
        problem = "a pipeline requires a destination: --to-files, --to-topic, or both"
    elif plan["exactly_once"] and plan["to_topic"] is None:
        problem = "--exactly-once requires --to-topic; files have each row once anyway"
    elif plan["window"] is None and of_windows:
        names = ", ".join("--" + setting.replace("_", "-").replace("aggregates", "aggregate") for setting in of_windows)
        problem = f"without --window there is nothing to aggregate; leave out {names}"
    elif plan["window"] is not None and plan["schema"] is None:
        problem = "--window requires --schema, the fields of the JSON to aggregate"
    elif plan["schema"] is not None and plan["window"] is None and plan["to_files"] is None:
        problem = "--schema requires --to-files or --window: a topic gets the records as they are"
    if problem:
        raise ConfigurationError(problem)


def _check_source(plan: dict[str, Any], cluster: SparkCluster) -> None:
    """Raise a KafkaError for wrong options and topics, before Java starts."""
    from ..extras import extra

    if plan["exactly_once"]:
        from ..spark.exactly_once import check_transaction_timeout

        check_transaction_timeout(plan["options"], plan["trigger"])
    extra("pyspark.sql", "spark")
    if cluster.remote is None:  # perhaps only the Connect server can reach Kafka
        from ..spark import KafkaLiteDataSource

        KafkaLiteDataSource(plan["options"])


def client_options(connection: ConnectionOptions) -> dict[str, str]:
    """Return the client's properties as options of the source and the sink.

    Spark's workers resolve ``env:`` and ``file:`` themselves. Settings from this process's environment are left out: a
    plan would carry their values, and so secrets, in plain text.
    """
    properties = {"bootstrap.servers": DEFAULT_SERVER, **connection.all_properties(environment={})}
    return {f"kafka.{name}": value for name, value in properties.items()}


def _run(plan: dict[str, Any], cluster: SparkCluster, name: str, stop_timeout: float, *, dry_run: bool) -> int:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from ..errors import KafkaError
    from ..spark.session import open_session

    log_warnings()
    say("starting Java and Spark")
    report = partial(print, flush=True)
    try:
        with open_session(cluster, name) as spark, tempfile.TemporaryDirectory(prefix="aiokafka-lite-") as directory:
            from ..spark.pipeline import Plan, QueryPipeline

            say(f"Spark {spark.version} has started; it plans the queries")
            stop = _stop_on_signals()
            pipeline = QueryPipeline(spark, Plan(**plan), Path(directory) / "pause", report)
            if dry_run:
                report(*pipeline.describe(), sep="\n")
                return 0
            pipeline.run(stop, stop_timeout)
    except (PySparkException, Py4JJavaError) as error:
        raise KafkaError(reason(str(error))) from error
    report("stopped between two batches" if stop.is_set() else "read all records")
    return 0


def _stop_on_signals() -> threading.Event:
    """Return an event that the first SIGINT or SIGTERM sets. The second one ends the process."""
    stop = threading.Event()

    def stop_once(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop_once)
    return stop


def reason(message: str) -> str:
    """Return the cause, as one line of Spark's error. The other lines are traces of Python and Java."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    ours = [line.partition(": ")[2] for line in lines if line.startswith(_OUR_ERRORS)]
    of_python = [line for line in lines if _PYTHON_ERROR.match(line)]
    of_java = [line[found.end() :] for line in lines if (found := _JAVA_ERROR.match(line))]
    return (ours or of_python or of_java or lines[:1] or ["Spark failed without a message"])[-1]
