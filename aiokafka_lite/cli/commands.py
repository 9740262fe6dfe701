"""The commands and their options. What a command does is in a module of its own, imported when the command runs."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from . import config_commands, group_commands, topic_commands
from .options import Shared, command, plain_command
from .running import INTERRUPTED, NAME, WRONG, run, say

application = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
application.add_typer(topic_commands.application, name="topics")
application.add_typer(group_commands.application, name="groups")
application.add_typer(config_commands.application, name="configs")


class Compression(StrEnum):
    """What ``--compression`` takes."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """What ``--acks`` takes."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


class Format(StrEnum):
    """What ``--format`` takes."""

    VALUE = "value"
    KEY_VALUE = "key-value"
    JSON = "json"
    HEX = "hex"
    KEY_VALUE_HEX = "key-value-hex"


class Isolation(StrEnum):
    """What ``--isolation`` takes."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class Until(StrEnum):
    """What ``--until`` takes."""

    END = "end"


CompressionOption = Annotated[Compression | None, typer.Option(help="How batches are compressed; none by default.")]
AcksOption = Annotated[Acks | None, typer.Option(help="Who has to have a record; all in-sync replicas by default.")]


def _writing(compression: Compression | None, acks: Acks | None) -> dict[str, object]:
    """The producer's settings that options name; a file may have the others."""
    settings: dict[str, object] = {}
    if compression is not None:
        settings["compression"] = compression.value
    if acks is not None:
        settings["acks"] = acks.value if acks is Acks.ALL else int(acks.value)
    return settings


def main() -> None:
    """Run the command that the arguments name, and exit with its status."""
    # The base class of errors in arguments is public in click, and not in a Typer that brings its own.
    wrong_usage: type[Exception] = typer.BadParameter.__mro__[1]
    try:
        status = application(prog_name=NAME, standalone_mode=False)
    except typer.Abort:
        status = INTERRUPTED
    except wrong_usage as error:
        status = _explain(error)
    sys.exit(status)


def _explain(error: Exception) -> int:
    """One line for an argument that cannot be right; no arguments at all are a request for help."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()  # type: ignore[attr-defined]
        return WRONG
    path = NAME if context is None else context.command_path
    text: str = error.format_message()  # type: ignore[attr-defined]
    # "Value error" is what typer calls a choice that there is not.
    say(f"{text.rstrip('.').replace('Value error, ', '')}; see {path} --help")
    return WRONG


def _version(wanted: bool) -> None:
    if wanted:
        from aiokafka_lite.version import VERSION

        print(f"{NAME} {VERSION}")
        raise typer.Exit


@application.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """An asyncio-native Kafka client, and an embedded broker.

    \b
    Exit status: 0 done, 1 failed, 2 wrong arguments, 130 stopped by Ctrl-C.
    """


@command(
    application,
    examples="""
    seq 1000 | aiokafka-lite produce numbers
    aiokafka-lite produce orders --file orders.txt --key-separator : --compression zstd
    echo hello | aiokafka-lite produce greetings --header lang=en --partition 0
    """,
    prints_tables=False,
)
async def produce(
    shared: Shared,
    topic: Annotated[str, typer.Argument(help="Where to.")],
    file: Annotated[
        Path | None, typer.Option("--file", "-f", exists=True, dir_okay=False, help="Read lines from here, not stdin.")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-k", metavar="TEXT", help="What stands before it is the key.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header for every record.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="The partition; by key, or in turns, if not given.")
    ] = None,
    compression: CompressionOption = None,
    acks: AcksOption = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, metavar="RECORDS", help="So many each second at most.")
    ] = None,
) -> int:
    """Send lines as records.

    Each line of stdin, or of a file, is the value of a record, without its newline. With --key-separator it is key and
    value. Ends when every record is acknowledged. Ctrl-C sends what was read and stops.
    """
    from .produce import parse_header
    from .produce import produce as run_produce
    from .sending import Wanted

    headers = tuple(map(parse_header, header or ()))
    wanted = Wanted(topic, file, key_separator or None, headers, partition, rate, _writing(compression, acks))
    return await run_produce(shared.connection, shared.output, wanted)


@command(
    application,
    examples="""
    aiokafka-lite consume orders --until end
    aiokafka-lite consume orders --group billing --format json
    aiokafka-lite consume --regex 'orders-.*' --from 2h --timestamps
    aiokafka-lite consume orders --from 2026-01-31T12:00:00Z --max-messages 10
    """,
    prints_tables=False,
)
async def consume(
    shared: Shared,
    topics: Annotated[list[str] | None, typer.Argument(help="Which to read.")] = None,
    regex: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Topics whose whole name matches, in place of names.")
    ] = None,
    partition: Annotated[list[int] | None, typer.Option(min=0, help="Only this one; may be repeated.")] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Be a member: begin where it left off, commit what is printed.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="earliest, latest, an offset, a time (ISO 8601, or @ and milliseconds) or how long ago (90s, 2h, 7d);"
            " earliest by default; for a group, where it has no offset.",
        ),
    ] = None,
    until: Annotated[Until | None, typer.Option(help="Stop at what is the end when reading begins.")] = None,
    max_messages: Annotated[int | None, typer.Option("--max-messages", "-n", min=1, help="Stop after so many.")] = None,
    form: Annotated[
        Format, typer.Option("--format", "-o", help="What to print of a record; a null prints as nothing.")
    ] = Format.VALUE,
    key_separator: Annotated[
        str, typer.Option("--key-separator", "-k", metavar="TEXT", help="Between key and value.")
    ] = "\t",
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Print the time before each record.")] = False,
    offsets: Annotated[bool, typer.Option("--offsets", help="Print topic, partition and offset before each.")] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Print the headers before each record.")] = False,
    isolation: Annotated[
        Isolation | None, typer.Option("--isolation", help="Whether to see transactions that are open or were aborted.")
    ] = None,
) -> int:
    """Print records, a line each.

    Ends at Ctrl-C, or as far as asked for. Those of a partition come in order. With --json, or --format json, each is
    an object on a line of its own.
    """
    from .consume import Wanted
    from .consume import consume as run_consume
    from .formats import Format as Printed
    from .formats import Line

    if bool(topics) == bool(regex):
        raise ValueError("consume needs topics, or --regex; see aiokafka-lite consume --help")
    wanted = Wanted(
        topics=tuple(topics or (regex or "",)),
        is_pattern=regex is not None,
        partitions=tuple(partition or ()),
        group=group,
        start=start,
        until_end=until is not None,
        most=max_messages,
        line=Line(
            Printed.JSON if shared.output.as_json else Printed(form.value), key_separator, timestamps, offsets, headers
        ),
        settings={} if isolation is None else {"isolation_level": isolation.value},
    )
    return await run_consume(shared.connection, wanted)


@command(
    application,
    examples="""
    aiokafka-lite lag
    aiokafka-lite lag billing shipping --watch --every 5
    """,
)
async def lag(
    shared: Shared,
    groups: Annotated[list[str] | None, typer.Argument(help="All groups if none is named.")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often, with --watch.")] = 2.0,
) -> int:
    """Show how far groups are behind, by topic."""
    from .lag import lag as run_lag

    return await run_lag(shared.connection, shared.output, groups or [], every if watch else None)


@command(application, examples="aiokafka-lite cluster --versions --json")
async def cluster(
    shared: Shared,
    versions: Annotated[
        bool, typer.Option("--versions", help="Also which versions of which API brokers speak.")
    ] = False,
) -> int:
    """Show brokers, controller and features."""
    from .cluster import cluster as run_cluster

    return await run_cluster(shared.connection, shared.output, versions)


@command(
    application,
    examples="""
    aiokafka-lite diagnose -b kafka-1:9092,kafka-2:9092
    aiokafka-lite diagnose --group billing --topic orders --json
    """,
)
async def diagnose(
    shared: Shared,
    group: Annotated[str | None, typer.Option("--group", "-g", help="Also the state and lag of this group.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Also the replicas of this topic.")] = None,
) -> int:
    """Find out why a client cannot work here.

    Tries every bootstrap server, and the address that each broker tells clients to use; says in plain words what is
    wrong. Exit status 1 if anything is.
    """
    from .diagnose import diagnose as run_diagnose

    return await run_diagnose(shared.connection, shared.output, group, topic)


@command(
    application,
    examples="""
    aiokafka-lite bench --records 1000000
    aiokafka-lite bench --size 1000 --compression lz4 --acks 1 --json
    """,
)
async def bench(
    shared: Shared,
    records: Annotated[int, typer.Option(min=1, help="How many records.")] = 100_000,
    size: Annotated[int, typer.Option(min=1, metavar="BYTES", help="The size of a value.")] = 100,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of the topic that is made for this.")] = 3,
    replicas: Annotated[int, typer.Option(min=1, help="Its replicas.")] = 1,
    compression: CompressionOption = None,
    acks: AcksOption = None,
) -> int:
    """Measure this client and a cluster.

    Records a second in and out, and how long a single one takes. Makes a topic of its own and deletes it in the end.
    Values are random, and so do not compress.
    """
    from .bench import Load
    from .bench import bench as run_bench

    return await run_bench(
        shared.connection, shared.output, Load(records, size, partitions, replicas, _writing(compression, acks))
    )


@plain_command(application, examples="aiokafka-lite demo --records 1000000")
def demo(
    bootstrap_server: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Any Kafka; an embedded three-node cluster by default.")
    ] = None,
    records: Annotated[int, typer.Option(min=1, help="How many records make the trip.")] = 100_000,
    spark: Annotated[bool, typer.Option("--spark", help="Then the Spark pipeline, too; needs the extra demo.")] = False,
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="For what the pipeline writes: Parquet, a chart, logs.")
    ] = Path("demo-output"),
) -> None:
    """Send records, read them back, check every one.

    Through the whole client into Kafka; without --bootstrap-server into a cluster of its own.
    """
    from aiokafka_lite.cli.demo import demo as run_demo

    raise typer.Exit(run(lambda: run_demo(bootstrap_server, records, output if spark else None)))


@application.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def pipeline(context: typer.Context) -> None:
    """Aggregate the JSON of a topic with Spark.

    Over windows of event time, to Parquet and to a topic. Needs aiokafka_lite[spark]; --help tells its options.
    """
    from .pipeline import pipeline as run_pipeline

    raise typer.Exit(run_pipeline(context.args))


@plain_command(application, examples="aiokafka-lite broker --brokers 3 --topic orders:12:3")
def broker(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the first node; 0 for any.")] = 9092,
    brokers: Annotated[int, typer.Option(min=1, max=64, help="How many nodes, on the following ports.")] = 1,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of a topic that is created by its first use.")] = 1,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:PARTITIONS[:REPLICAS]]", help="A topic to begin with; may be given more than once."
        ),
    ] = None,
    as_kafka: Annotated[
        str | None, typer.Option(metavar="RELEASE", help="Speak the versions of a release of Kafka, such as 2.8.")
    ] = None,
) -> None:
    """Run the embedded cluster until Ctrl-C.

    On the loopback interface; it keeps everything in memory.
    """
    from aiokafka_lite.cli.broker import broker as run_broker

    raise typer.Exit(run(lambda: run_broker(port, brokers, partitions, topic or [], as_kafka)))
