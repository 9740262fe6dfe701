"""Copies or aggregates a topic with Spark, to files, to a topic, or to both: ``python examples/pipeline.py --help``.

Files get the records, or with --schema the fields of their JSON; a topic gets the records. With --window, both get
aggregates over windows of event time. The first Ctrl-C or SIGTERM stops between two batches; the second one stops at
once. It needs the extras cli and spark. The queries are in ``pipeline_queries.py``.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from aiokafka_lite.cli.terminal.arguments import names_and_values
from aiokafka_lite.cli.terminal.connection import DEFAULT_SERVER, ConnectionOptions
from aiokafka_lite.cli.terminal.run import WRONG, log_warnings, run_blocking, say
from aiokafka_lite.errors import ConfigurationError, KafkaError
from aiokafka_lite.extras import extra
from spark_session import SparkCluster, open_session

EXAMPLES = r"""
examples:
  python examples/pipeline.py --topic orders --to-files out/orders --format json --checkpoint out/checkpoint
  python examples/pipeline.py --topic orders --to-topic orders-copied --exactly-once --checkpoint out/checkpoint
  python examples/pipeline.py -b localhost:9092 --topic orders \
    --schema 'city STRING, amount DOUBLE, at TIMESTAMP' \
    --event-time at --window '10 minutes' --group-by city --aggregate 'sum(amount) AS total' \
    --to-files out/orders --to-topic orders-by-city --checkpoint out/checkpoint
"""

_TIMEOUT_OPTION = "kafka.transaction.timeout.ms"
_OUR_ERRORS = "aiokafka_lite.errors."
_PYTHON_ERROR = re.compile(r"[\w.]+(Error|Exception|Timeout|Interrupt)\b(: |$)")
"""The last line of a Python traceback."""
_JAVA_ERROR = re.compile(r": [\w.$]+(Error|Exception): ")
"""The line of a py4j error that has the text of the Java exception."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as those of the command line."""

    def error(self, message: str) -> NoReturn:
        """Print the message, and end the program."""
        say(message)
        sys.exit(WRONG)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = Parser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--topic", required=True, metavar="TOPICS", help="topics to read, separated by commas")
    add("--checkpoint", required=True, metavar="DIR", help="directory from which a restart continues")
    add("--to-files", metavar="DIR", help="write files")
    add(
        "--format",
        metavar="NAME",
        default="parquet",
        help="format of the files, by Spark's name: parquet, json, orc, …",
    )
    add("--to-topic", metavar="TOPIC", help="write to a topic")
    add("--exactly-once", action="store_true", help="write to the topic in transactions, each row once")
    add("--dead-letter-topic", metavar="TOPIC", help="topic for records that are not JSON or cannot be written")
    add("--schema", metavar="DDL", help="fields of the JSON in the topic, as in 'a INT, b STRING'")
    windows = parser.add_argument_group("windows")
    add = windows.add_argument
    add("--window", metavar="DURATION", help="aggregate over windows of this length, as in '10 minutes'")
    add("--event-time", metavar="COLUMN", help="time column of the JSON; by default the record's timestamp")
    add("--slide", metavar="DURATION", help="distance between the starts of overlapping windows")
    add("--watermark", metavar="DURATION", help="how late a row may arrive to be counted; 10 seconds by default")
    add("--group-by", metavar="COLUMNS", default="", help="columns to group by, separated by commas")
    add("--aggregate", metavar="SQL", action="append", help="column of the result; by default count(*) AS records")
    kafka = parser.add_argument_group("Kafka")
    add = kafka.add_argument
    add(
        *("--bootstrap-server", "-b"),
        metavar="HOST:PORT",
        default=os.environ.get("AIOKAFKA_LITE_BOOTSTRAP_SERVER"),
        help="brokers, separated by commas; localhost:9092 by default",
    )
    add(
        *("--config", "-c"),
        type=Path,
        metavar="FILE",
        default=os.environ.get("AIOKAFKA_LITE_CONFIG"),
        help="a .properties or .toml file with properties of Kafka's own clients, including security",
    )
    add("--property", "-X", metavar="NAME=VALUE", action="append", default=[], help="a property of the client")
    add("--starting-offsets", metavar="WHERE", default="earliest", help="where a pipeline without a checkpoint begins")
    add("--option", metavar="NAME=VALUE", action="append", default=[], help="option of the source: minPartitions=6")
    spark = parser.add_argument_group("Spark")
    add = spark.add_argument
    add("--trigger", metavar="DURATION", default="10 seconds", help="interval of the batches, or available-now")
    add("--stop-timeout", metavar="SECONDS", type=float, default=60.0, help="limit of the running batch after SIGTERM")
    add("--master", metavar="URL", default="local[*]", help="Spark master")
    add("--remote", metavar="URL", help="Spark Connect server, as sc://host:15002")
    add("--conf", metavar="NAME=VALUE", action="append", default=[], help="setting of Spark")
    add("--name", default="aiokafka-lite pipeline", help="name of the Spark application")
    add("--dry-run", action="store_true", help="check everything, print the plan, and write nothing")
    return parser


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the pipeline, with the options of the command line."""
    options = parser().parse_args(arguments)
    sys.exit(run_blocking(lambda: pipeline(options)))


def pipeline(options: argparse.Namespace) -> int:
    """Check the options, and run the pipeline. Return the exit status."""
    columns = tuple(column.strip() for column in options.group_by.split(",") if column.strip())
    of_windows: dict[str, Any] = {
        "slide": options.slide,
        "watermark": options.watermark,
        "event_time": options.event_time,
        "group_by": columns,
        "aggregates": tuple(options.aggregate or ()),
    }
    of_windows = {setting: value for setting, value in of_windows.items() if value}
    copied = ("schema", "window", "checkpoint", "trigger", "to_files", "to_topic", "exactly_once", "dead_letter_topic")
    plan = {setting: getattr(options, setting) for setting in copied} | {"form": options.format} | of_windows
    _check_destinations(plan, of_windows)
    connection = ConnectionOptions(options.bootstrap_server, options.config, options.property, None)
    plan["options"] = {
        **client_options(connection),
        "subscribe": options.topic,
        "startingOffsets": options.starting_offsets,
        **names_and_values("option", options.option),
    }
    cluster = SparkCluster(
        master=options.master, remote=options.remote, settings=names_and_values("conf", options.conf)
    )
    _check_source(plan, cluster)
    return _run(plan, cluster, options)


def _check_destinations(plan: dict[str, Any], of_windows: Collection[str]) -> None:
    """Raise ConfigurationError if these options do not go together. ``of_windows`` are options that need a window."""
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
    elif plan["dead_letter_topic"] is not None and plan["to_topic"] is None and plan["schema"] is None:
        problem = "--dead-letter-topic requires --schema or --to-topic: files take every record"
    if problem:
        raise ConfigurationError(problem)


def _check_source(plan: dict[str, Any], cluster: SparkCluster) -> None:
    """Raise a KafkaError for wrong options and topics, before Java starts."""
    if plan["exactly_once"]:
        check_transaction_timeout(plan["options"], plan["trigger"])
    extra("pyspark.sql", "spark")
    if cluster.remote is None:  # perhaps only the Connect server can reach Kafka
        from aiokafka_lite.spark import KafkaLiteDataSource

        KafkaLiteDataSource(plan["options"])


def check_transaction_timeout(options: Mapping[str, str], trigger: str) -> None:
    """Raise ConfigurationError if the given transaction timeout is below the interval of a trigger.

    ``trigger`` is text such as ``10 seconds``. A batch may take as long as the interval, and its transactions are open
    for that time. Without an interval there is no check. The default timeout is not checked either, because brokers
    refuse a longer one.
    """
    interval = _seconds_of(trigger)
    value = options.get(_TIMEOUT_OPTION, "")
    if interval is None or not value.isdecimal():
        return
    timeout = int(value) / 1000
    if timeout < interval:
        raise ConfigurationError(
            f"{_TIMEOUT_OPTION} must be at least the trigger interval, {interval * 1000:g} ms, got {value}:"
            " the transactions of a batch are open until all its tasks have finished"
        )


_UNITS = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1.0,
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86400.0,
    "week": 604800.0,
}
_PART = r"(\d+(?:\.\d+)?)\s*([a-z]+?)s?"


def _seconds_of(interval: str) -> float | None:
    """Return the seconds of an interval of Spark, such as ``1 minute 30 seconds``. None for any other form."""
    text = interval.strip().lower().removeprefix("interval ").strip()
    if not re.fullmatch(rf"{_PART}(\s+{_PART})*", text):
        return None
    parts = re.findall(rf"{_PART}(?=\s|$)", text)
    if any(unit not in _UNITS for _, unit in parts):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def client_options(connection: ConnectionOptions) -> dict[str, str]:
    """Return the client's properties as options of the source and the sink.

    Spark's workers resolve ``env:`` and ``file:`` themselves. Settings from this process's environment are left out: a
    plan would carry their values, and so secrets, in plain text.
    """
    properties = {"bootstrap.servers": DEFAULT_SERVER, **connection.all_properties(environment={})}
    return {f"kafka.{name}": value for name, value in properties.items()}


def _run(plan: dict[str, Any], cluster: SparkCluster, options: argparse.Namespace) -> int:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    log_warnings()
    say("starting Java and Spark")
    report = partial(print, flush=True)
    try:
        with (
            open_session(cluster, options.name) as spark,
            tempfile.TemporaryDirectory(prefix="aiokafka-lite-") as directory,
        ):
            from pipeline_queries import Plan, QueryPipeline

            say(f"Spark {spark.version} has started; it plans the queries")
            stop = _stop_on_signals()
            queries = QueryPipeline(spark, Plan(**plan), Path(directory) / "pause", report)
            if options.dry_run:
                report(*queries.describe(), sep="\n")
                return 0
            queries.run(stop, options.stop_timeout)
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
    of_java = [line[match.end() :] for line in lines if (match := _JAVA_ERROR.match(line))]
    return (ours or of_python or of_java or lines[:1] or ["Spark failed without a message"])[-1]


if __name__ == "__main__":
    main()
