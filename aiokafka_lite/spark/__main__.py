"""``python -m aiokafka_lite.spark``: the pipeline as a program. ``aiokafka-lite pipeline`` is the same."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from ..errors import ConfigurationError, KafkaError
from ..properties import read_properties
from .options import KAFKA_PREFIX
from .session import Cluster, open_session

_ERROR_PREFIX = "aiokafka_lite.errors."

_EXAMPLE = """example, which counts and sums orders by city, every ten minutes:
  %(prog)s --bootstrap-server localhost:9092 --topic orders \\
    --schema 'city STRING, amount DOUBLE, at TIMESTAMP' --event-time at --window '10 minutes' \\
    --group-by city --aggregate 'count(*) AS orders' --aggregate 'sum(amount) AS total' \\
    --to-parquet out/orders --to-topic orders-by-city --checkpoint out/checkpoint
"""


def main(arguments: Sequence[str] | None = None, *, program: str = "python -m aiokafka_lite.spark") -> int:
    """Run the pipeline that the arguments describe; the exit status, 2 for wrong arguments and 1 for what failed.

    An error is one line on stderr, the last one.
    """
    given = _parser(program).parse_args(arguments)
    try:
        return _run(given)
    except (KafkaError, OSError) as error:
        print(f"{program}:", " ".join(str(error).split()), file=sys.stderr, flush=True)  # noqa: T201
        return 2 if isinstance(error, ConfigurationError) else 1


class _Parser(argparse.ArgumentParser):
    """Tells a wrong argument in one line, where argparse would print how all of them are used before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser(program: str) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=program,
        description="Aggregate the JSON of a topic over windows of event time, with Spark, to Parquet and to a topic.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source = parser.add_argument_group("what is read")
    source.add_argument(
        "-b",
        "--bootstrap-server",
        default=os.environ.get("AIOKAFKA_LITE_BOOTSTRAP_SERVER", "localhost:9092"),
        metavar="HOST:PORT",
        help="or several, separated by commas (default: localhost:9092)",
    )
    source.add_argument("--topic", required=True, help="topics, separated by commas")
    source.add_argument("--schema", required=True, metavar="DDL", help="the fields of the JSON, as 'a INT, b STRING'")
    source.add_argument("--starting-offsets", default="earliest", help="of a new pipeline (default: earliest)")
    source.add_argument("-c", "--config", metavar="FILE", help=".properties or .toml with the names of Kafka's clients")
    source.add_argument(
        "-X",
        "--property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a client property, for reading and writing; secrets as env:VARIABLE or file:PATH, looked up on each node",
    )
    source.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="of the source, as maxOffsetsPerTrigger=9"
    )
    what = parser.add_argument_group("what is made of it")
    what.add_argument("--event-time", metavar="COLUMN", help="of the JSON (default: the record's timestamp)")
    what.add_argument("--watermark", default="10 seconds", help="how late rows may come (default: 10 seconds)")
    what.add_argument("--window", required=True, metavar="DURATION", help="as '10 minutes'")
    what.add_argument("--slide", metavar="DURATION", help="for windows that overlap")
    what.add_argument("--group-by", default="", metavar="COLUMNS", help="separated by commas")
    what.add_argument("--aggregate", action="append", metavar="SQL", help="(default: 'count(*) AS records')")
    target = parser.add_argument_group("where it goes")
    target.add_argument("--to-parquet", metavar="DIR")
    target.add_argument("--to-topic", metavar="TOPIC")
    target.add_argument("--checkpoint", required=True, metavar="DIR", help="what makes it go on where it was")
    how = parser.add_argument_group("how it runs")
    how.add_argument("--trigger", default="10 seconds", help="a duration, or available-now (default: 10 seconds)")
    how.add_argument("--stop-timeout", type=float, default=60.0, metavar="SECONDS", help="for the batch at SIGTERM")
    how.add_argument("--master", default="local[*]", help="(default: local[*])")
    how.add_argument("--remote", metavar="URL", help="a Spark Connect server, as sc://host:15002")
    how.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="settings of Spark")
    how.add_argument("--name", default="aiokafka-lite pipeline", help="of the application")
    return parser


def _run(given: argparse.Namespace) -> int:
    cluster = Cluster(master=given.master, remote=given.remote, settings=_pairs("--conf", given.conf))
    options = _source_options(given)
    if given.to_parquet is None and given.to_topic is None:
        raise ConfigurationError("a pipeline needs a destination: --to-parquet, --to-topic, or both")
    with open_session(cluster, given.name) as spark, tempfile.TemporaryDirectory(prefix="aiokafka-lite-") as directory:
        from pyspark.errors import PySparkException

        from .pipeline import Pipeline, Plan, Progress

        def report(progress: Progress) -> None:
            print(progress.text, flush=True)  # noqa: T201

        plan = Plan(
            options=options,
            schema=given.schema,
            window=given.window,
            slide=given.slide,
            watermark=given.watermark,
            event_time=given.event_time,
            group_by=tuple(name.strip() for name in given.group_by.split(",") if name.strip()),
            aggregates=tuple(given.aggregate or Plan.aggregates),
            to_parquet=given.to_parquet,
            to_topic=given.to_topic,
            checkpoint=given.checkpoint,
            trigger=given.trigger,
        )
        stop = _stop_on_signals()
        try:
            Pipeline(spark, plan, Path(directory) / "pause", report).run(stop, given.stop_timeout)
        except PySparkException as error:
            raise KafkaError(reason(str(error))) from error
    print("stopped between batches" if stop.is_set() else "all that was there is read", flush=True)  # noqa: T201
    return 0


def _source_options(given: argparse.Namespace) -> dict[str, str]:
    properties = {
        "bootstrap.servers": given.bootstrap_server,
        **({} if given.config is None else read_properties(given.config)),
        **_pairs("--property", given.property),
    }
    return {
        **{KAFKA_PREFIX + name: value for name, value in properties.items()},
        "subscribe": given.topic,
        "startingOffsets": given.starting_offsets,
        **_pairs("--option", given.option),
    }


def _pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigurationError(f"{option} takes NAME=VALUE, and {name!r} has no '='")
        pairs[name] = value
    return pairs


def _stop_on_signals() -> threading.Event:
    """Set by the first SIGTERM or SIGINT; a second one ends the process as if nothing had been arranged."""
    stop = threading.Event()

    def asked(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, asked)
    return stop


def reason(message: str) -> str:
    """What went wrong, in one line, out of Spark's account of it, which ends in traces of Python and Java."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    ours = [line.partition(": ")[2] for line in lines if line.startswith(_ERROR_PREFIX)]
    return ours[-1] if ours else lines[0] if lines else "Spark failed, and said nothing"


if __name__ == "__main__":
    sys.exit(main())
