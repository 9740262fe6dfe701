"""The commands that are not in a group, with their options. Each command's work is in the module of its name.

A command imports that module when it runs, so that ``--help`` is fast.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import Annotated, Any

import typer

from . import (
    acls,
    broker,
    clusters,
    configs,
    groups,
    leaders,
    log_dirs,
    offsets,
    quotas,
    records,
    redrive,
    schemas,
    share_groups,
    sql,
    topics,
    transactions,
    users,
)
from .terminal import completion
from .terminal.arguments import Isolation, unescape
from .terminal.clusters import ClusterOption
from .terminal.formats import Format, Line, parse_format
from .terminal.options import Shared, command, plain_command
from .terminal.registry import KeySchema, Message, Raw, RegistryOption, ValueSchema
from .terminal.run import INTERRUPTED, NAME, WRONG, say

application = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
NARROW = 60
"""Columns of a terminal below which options and their descriptions do not fit side by side."""


class Acks(StrEnum):
    """The values of ``--acks``."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


def _formats(incomplete: str) -> list[str]:
    return [name.value for name in Format if name.value.startswith(incomplete)]


def _codecs(incomplete: str) -> list[str]:
    from ..types import Compression

    return [codec.name.lower() for codec in Compression if codec.name.lower().startswith(incomplete)]


CompressionOption = Annotated[
    str | None,
    typer.Option(metavar="CODEC", autocompletion=_codecs, help="Codec of the batches, as in lz4; none by default."),
]
AcksOption = Annotated[
    Acks | None, typer.Option(help="Replicas that must have a record: none, the leader, or all in-sync (default).")
]


def _producer_settings(compression: str | None, acks: Acks | None) -> dict[str, object]:
    """Return the producer's settings that the options name; the properties may have others."""
    settings: dict[str, object] = {}
    if compression is not None:
        settings["compression"] = compression
    if acks is not None:
        settings["acks"] = acks.value if acks is Acks.ALL else int(acks.value)
    return settings


def main() -> None:
    """Run the command that the arguments name, and exit with its status."""
    is_bash = os.environ.get("_AIOKAFKA_LITE_COMPLETE") == "complete_bash"
    # UsageError, the base class of all errors in arguments. A Typer with a click of its own does not export it.
    wrong_usage: type[Exception] = typer.BadParameter.__mro__[1]
    try:
        with completion.pieces_of_bash(os.environ) if is_bash else nullcontext():
            status = application(prog_name=NAME, standalone_mode=False, terminal_width=_help_width())
    except typer.Abort:
        status = INTERRUPTED
    except wrong_usage as error:
        status = _explain(error)
    sys.exit(status)


def _help_width() -> int:
    """Return the width of help texts. In a narrow terminal, also move descriptions below their options."""
    columns = min(get_terminal_size().columns, 80)
    if columns < NARROW:
        context: Any = typer.Context.__mro__[1]  # click's own class, which a Typer with a click of its own hides

        class Narrow(context.formatter_class):  # type: ignore[misc]
            def write_dl(self, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:
                super().write_dl([(self._folded(first), second) for first, second in rows], 2, col_spacing)

            def _folded(self, option: str) -> str:
                """Return an option whose list of values is folded."""
                spaced, indent = option.replace("|", "| "), " " * 6
                folded = fill(spaced, self.width - 4, subsequent_indent=indent, break_on_hyphens=False)
                return folded.replace("| ", "|")

        context.formatter_class = Narrow
    return max(columns - 2, 20)


def _explain(error: Exception) -> int:
    """Print one line for a wrong argument, or the help if there are no arguments at all; return the exit status."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()  # type: ignore[attr-defined]
        return WRONG
    path = NAME if context is None else context.command_path
    from .terminal import wrong_usage

    say(f"{wrong_usage.text_of(error)}; see {path} --help")
    return WRONG


def _version(is_requested: bool) -> None:
    if is_requested:
        from ..compiled import BUILD
        from ..version import VERSION

        print(f"{NAME} {VERSION} ({BUILD})")
        raise typer.Exit


@application.callback(
    help="An asyncio-native Kafka client, and an embedded broker.\n\n"
    "Exit status: 0 success, 1 failure, 2 wrong arguments, 130 stopped by Ctrl-C."
)
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    cluster: ClusterOption = None,
) -> None:
    """Take the options that come before the name of a command."""


@command(
    application,
    examples="""
    seq 1000 | aiokafka-lite produce numbers
    aiokafka-lite produce orders --file orders.txt --key-separator : --compression zstd
    echo hello | aiokafka-lite produce greetings --key en --header lang=en --partition 0
    aiokafka-lite consume orders --until end --json | aiokafka-lite produce copy --json-in
    aiokafka-lite produce orders --file orders.jsonl --value-schema latest --registry http://localhost:8081
    echo 'order-7:' | aiokafka-lite produce orders -k : --null ''
    """,
    prints_tables=False,
)
async def produce(
    shared: Shared,
    topic: Annotated[str, typer.Argument(autocompletion=completion.topics, help="Topic to write to.")],
    file: Annotated[
        Path | None, typer.Option("--file", "-f", exists=True, dir_okay=False, help="Read this file instead of stdin.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-k", metavar="TEXT", help=r"Text between the key and the value, as in : or \t."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="TEXT", help="Key of every record.")] = None,
    null: Annotated[
        str | None,
        typer.Option("--null", metavar="TEXT", help="Write null for a key or value equal to this text, such as ''."),
    ] = None,
    json_in: Annotated[
        bool,
        typer.Option("--json-in", help="Each line is a record in JSON, as consume --json prints it."),
    ] = False,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header of every record. May be repeated."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="Partition to write to; by default the key, or the producer, decides.")
    ] = None,
    compression: CompressionOption = None,
    acks: AcksOption = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, metavar="RECORDS", help="Maximum number of records per second.")
    ] = None,
    registry: RegistryOption = None,
    value_schema: ValueSchema = None,
    key_schema: KeySchema = None,
    value_message: Message = None,
) -> int:
    """Write lines as records.

    Each line of stdin, or of a file, is the value of a record, without its newline. With --key-separator, a line is key
    and value. With --json-in it is a whole record: key, value, headers, partition and timestamp; a value may be an
    object. The command ends when every record is acknowledged. Ctrl-C sends the lines that were read, and stops.
    """
    from .produce import parse_header
    from .produce import produce as run_produce
    from .sending import ProduceJob, SchemaChoice

    if key_separator == "":  # probably a shell variable that is not set; all records would lack their keys
        raise ValueError("--key-separator must be a text that is not empty, got ''")
    if json_in and (key_separator or key is not None or null is not None):
        raise ValueError("--json-in excludes --key, --key-separator and --null: the JSON has the key and its nulls")
    if key is not None and key_separator:
        raise ValueError("--key excludes --key-separator: it is the key of every record")
    if value_message is not None and value_schema is None:  # the lines would be written as they are
        raise ValueError("--value-message requires --value-schema: it chooses a message of that schema")
    headers = tuple(map(parse_header, header or ()))
    settings = _producer_settings(compression, acks)
    separator = unescape(key_separator) if key_separator else None
    null_text = None if null is None else unescape(null)
    job = ProduceJob(
        topic,
        file,
        separator,
        headers,
        partition,
        rate,
        settings,
        null_text,
        json_in,
        None if key is None else unescape(key),
        SchemaChoice(registry, key_schema, value_schema, value_message),
    )
    return await run_produce(shared.connection, shared.output, job)


GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        autocompletion=completion.groups,
        help="Join this group: begin at its offsets, and commit the printed records.",
    ),
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="WHERE",
        help="earliest, latest, an offset, the last records of each partition (-10), a time (ISO 8601, or @ and"
        " milliseconds), or a time ago (90s, 2h, 7d); earliest by default. A group begins there only where it has"
        " no committed offset.",
    ),
]
UntilOption = Annotated[
    str | None,
    typer.Option(
        metavar="WHERE",
        help="Stop before the first record at or after this time. With end, stop at the end that each partition has"
        " when reading begins.",
    ),
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        "-o",
        metavar="FORMAT",
        autocompletion=_formats,
        help="value, key-value, json, hex, key-value-hex, or a format string with kcat's fields: %s value,"
        " %k key, %h headers, %t topic, %p partition, %o offset, %T time in milliseconds, %D time, %S and %K"
        r" sizes; \n is a newline.",
    ),
]
Where = Annotated[
    str | None,
    typer.Option(
        metavar="EXPRESSION",
        help="Only records for which this expression of CEL is true. It may use topic, partition, offset,"
        " timestamp (ms), time, key, value (as JSON, or decoded by the registry) and headers.",
    ),
]
Grep = Annotated[
    str | None, typer.Option(metavar="PATTERN", help="Only records whose key or value matches this regular expression.")
]
WithHeader = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME[=VALUE]", help="Only records with this header. May be repeated: all are required."),
]
ShareOption = Annotated[
    bool,
    typer.Option("--share", help="Read as a member of a share group (a queue), and accept each printed record."),
]


@command(
    application,
    examples="""
    aiokafka-lite consume orders --until end
    aiokafka-lite consume orders --group billing --format json
    aiokafka-lite consume orders --group printers --share
    aiokafka-lite consume --regex 'orders-.*' --from 2h --timestamps
    aiokafka-lite consume orders --from 2026-01-31T12:00:00Z --max-messages 10
    aiokafka-lite consume orders --from -10 --until end
    aiokafka-lite consume orders --registry http://localhost:8081 --json
    aiokafka-lite consume orders --until end --where 'value.amount > 100 && key.startsWith("de")' -n 10
    aiokafka-lite consume orders --from 2h --until end --grep 'order-7\\d' --with-header lang=de
    aiokafka-lite consume orders --from 2h --until 1h --format '%t %p %o %k %s\\n'
    """,
    prints_tables=False,
)
async def consume(
    shared: Shared,
    topics: Annotated[
        list[str] | None, typer.Argument(autocompletion=completion.topics, help="Topics to read.")
    ] = None,
    regex: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Read the topics whose whole name matches.")
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option(min=0, help="Read only this partition. May be repeated.")
    ] = None,
    group: GroupOption = None,
    share: ShareOption = False,
    start: FromOption = None,
    until: UntilOption = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, help="Stop after this number of records.")
    ] = None,
    form: FormatOption = Format.VALUE.value,
    key_separator: Annotated[
        str, typer.Option("--key-separator", "-k", metavar="TEXT", help="Text between key and value.")
    ] = r"\t",
    null: Annotated[str, typer.Option("--null", metavar="TEXT", help="Text for a null; empty by default.")] = "",
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Print the time before each record.")] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Print topic, partition and offset before each record.")
    ] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Print the headers before each record.")] = False,
    isolation: Annotated[
        Isolation | None,
        typer.Option(
            "--isolation-level", "--isolation", help="Whether to read records of open and aborted transactions."
        ),
    ] = None,
    registry: RegistryOption = None,
    raw: Raw = False,
    where: Where = None,
    grep: Grep = None,
    with_header: WithHeader = None,
) -> int:
    """Print records, one per line.

    The command ends at Ctrl-C, at --max-messages, or at --until. Records of a partition are printed in their order.
    With --json or --format json, each record is a JSON object on a line of its own. With a schema registry, keys and
    values of Avro, Protobuf and JSON Schema are printed as JSON.
    """
    from .consume import ConsumeJob
    from .consume import consume as run_consume
    from .consume_share import consume_share
    from .terminal.search import SearchOptions

    line = Line(
        Format.JSON if shared.output.as_json else parse_format(form),
        unescape(key_separator),
        unescape(null),
        timestamps,
        offsets,
        headers,
    )
    job = ConsumeJob(
        topics=tuple(topics or ()),
        regex=regex,
        partitions=tuple(partition or ()),
        group=group,
        start=start,
        until=until,
        max_records=max_messages,
        line=line,
        settings={} if isolation is None else {"isolation_level": isolation.value},
        registry=registry,
        is_raw=raw,
        search=SearchOptions(where, grep, tuple(with_header or ())),
    )
    return await (consume_share if share else run_consume)(shared.connection, job)


@command(
    application,
    examples="""
    aiokafka-lite lag
    aiokafka-lite lag billing shipping --watch --every 5
    aiokafka-lite lag --only-behind --by-lag
    """,
)
async def lag(
    shared: Shared,
    groups: Annotated[
        list[str] | None,
        typer.Argument(autocompletion=completion.groups, help="Names of groups; all groups by default."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Interval of --watch.")] = 2.0,
    only_behind: Annotated[bool, typer.Option("--only-behind", help="Leave out groups without lag.")] = False,
    by_lag: Annotated[bool, typer.Option("--by-lag", help="Show the greatest lag first.")] = False,
    isolation: Annotated[
        Isolation,
        typer.Option("--isolation-level", help="With read_committed, count up to the last stable offset."),
    ] = Isolation.READ_UNCOMMITTED,
) -> int:
    """Show the lag of groups, by topic.

    With --watch, the command also shows by how many records per second the lag grows (negative: it shrinks), and after
    how many seconds it will be 0. Both are measured over the last ten lookups.
    """
    from .lag import View
    from .lag import lag as run_lag

    view = View(groups or (), isolation.value, only_behind, by_lag)
    return await run_lag(shared.connection, shared.output, view, every if watch else None)


@command(application, examples="aiokafka-lite cluster --versions --json", asks_controllers=True)
async def cluster(
    shared: Shared,
    versions: Annotated[bool, typer.Option("--versions", help="Show the API versions of the brokers.")] = False,
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
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", autocompletion=completion.groups, help="Check the state and lag of this group."),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", autocompletion=completion.topics, help="Check the replicas of this topic."),
    ] = None,
) -> int:
    """Find out why a client on this machine cannot work with the cluster.

    The command tries every bootstrap server, and the address that each broker advertises, and explains each failure.
    The exit status is 1 if anything is wrong.
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
    records: Annotated[int, typer.Option(min=1, help="Number of records.")] = 100_000,
    size: Annotated[int, typer.Option(min=1, metavar="BYTES", help="Size of a value.")] = 100,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of the temporary topic.")] = 3,
    replicas: Annotated[int, typer.Option(min=1, help="Replicas of the temporary topic.")] = 1,
    compression: CompressionOption = None,
    acks: AcksOption = None,
) -> int:
    """Measure this client with a cluster.

    The command writes, reads, and sends records one by one, in a temporary topic. The values are random bytes, which do
    not compress.
    """
    from .bench import BenchLoad
    from .bench import bench as run_bench

    load = BenchLoad(records, size, partitions, replicas, _producer_settings(compression, acks))
    return await run_bench(shared.connection, shared.output, load)


@command(
    application,
    examples="""
    aiokafka-lite ui -b kafka-1:9092
    aiokafka-lite ui --port 8081 --allow-writes
    """,
    prints_tables=False,
)
async def ui(
    shared: Shared,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 for any.")] = 8080,
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Let the page write records, move groups and delete topics.")
    ] = False,
    registry: RegistryOption = None,
) -> int:
    """Serve a page that shows the cluster: topics, records, a live tail, groups with charts of their lag,
    schemas.

    The page answers only on this machine, and only to the address that the command prints, which has a token.
    """
    from .ui import ui as run_ui

    return await run_ui(shared.connection, port, allow_writes, registry)


@command(
    application,
    examples="""
    aiokafka-lite exporter -b kafka-1:9092 --listen 0.0.0.0:9308
    aiokafka-lite exporter --group 'billing.*' --by-partition --every 60 --topic-setting retention.ms
    """,
    prints_tables=False,
)
async def exporter(
    shared: Shared,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address of the page /metrics; port 0 for any.")
    ] = "127.0.0.1:9308",
    every: Annotated[float, typer.Option(min=1.0, metavar="SECONDS", help="Pause between looks.")] = 15.0,
    group: Annotated[str, typer.Option(metavar="REGEX", help="Only groups whose whole name matches.")] = ".*",
    topic: Annotated[str, typer.Option(metavar="REGEX", help="Only topics whose whole name matches.")] = ".*",
    by_partition: Annotated[bool, typer.Option("--by-partition", help="Add lag and offsets of partitions.")] = False,
    internal: Annotated[bool, typer.Option("--internal", help="Export Kafka's own topics as well.")] = False,
    topic_setting: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Label of kafka_topic_info.")] = None,
    max_series: Annotated[int, typer.Option(min=1, help="Limit for each metric; the greatest values stay.")] = 10_000,
) -> int:
    """Export the lag of all groups, and figures of topics and brokers, for Prometheus.

    The lag in seconds is the age of the oldest record after the committed offset, at most the time since the start.
    """
    from . import exporter as exporting

    selection = exporting.Selection(group, topic, internal, by_partition, topic_setting or (), max_series)
    return await exporting.exporter(shared.connection, listen, every, selection)


command(application, examples=offsets.EXAMPLES)(offsets.offsets)
command(application, examples=sql.EXAMPLES)(sql.sql)
command(application, examples=redrive.EXAMPLES)(redrive.redrive)
plain_command(application, examples=broker.EXAMPLES)(broker.broker)
command(application, "log-dirs", examples=log_dirs.EXAMPLES)(log_dirs.log_dirs)
command(application, "elect-leaders", examples=leaders.ELECTION_EXAMPLES)(leaders.elect_leaders)
for _name, _module in {
    "clusters": clusters,
    "topics": topics,
    "groups": groups,
    "share-groups": share_groups,
    "configs": configs,
    "records": records,
    "reassign": leaders,
    "transactions": transactions,
    "quotas": quotas,
    "schemas": schemas,
    "acls": acls,
    "users": users,
}.items():
    # With a short help of its own: Typer would cut the help off at about 45 characters.
    application.add_typer(_module.application, name=_name, short_help=_module.application.info.help)
