"""``aiokafka-lite log-dirs``: the directories in which brokers keep replicas, and their sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .terminal.options import Shared
from .terminal.output import Cell, Table, show_found
from .terminal.partitions import SomePartitions, partitions_of

if TYPE_CHECKING:
    from ..admin import LogDir

EXAMPLES = """
aiokafka-lite log-dirs
aiokafka-lite log-dirs orders audit:0 --replicas --broker 1 --json
"""

DIRECTORIES = ("BROKER", "DIRECTORY", "REPLICAS", "SIZE", "TOTAL", "USABLE", "ERROR")
REPLICAS = ("BROKER", "DIRECTORY", "TOPIC", "PARTITION", "SIZE", "LAG", "FUTURE")


async def log_dirs(
    shared: Shared,
    partitions: SomePartitions = None,
    broker: Annotated[
        list[int] | None, typer.Option(metavar="ID", min=0, help="Only this broker. May be repeated.")
    ] = None,
    replicas: Annotated[bool, typer.Option("--replicas", help="Show each replica.")] = False,
) -> int:
    """Show the log directories of brokers, with sizes in bytes."""
    async with shared.connection.admin() as admin:
        targets = await partitions_of(admin, partitions) if partitions else None
        result = await admin.log_dirs.describe(broker or None, partitions=targets)
    located = [(node, directory) for node, directories in sorted(result.done.items()) for directory in directories]
    if replicas:
        table = Table(REPLICAS, [row for node, directory in located for row in replica_rows(node, directory)])
    else:
        table = Table(DIRECTORIES, [directory_row(node, directory) for node, directory in located])
    return show_found(shared.output, table, result.failed.values())


def directory_row(node: int, directory: LogDir) -> tuple[Cell, ...]:
    """Return a directory: the number and the bytes of its replicas, and the bytes of its volume."""
    error = None if directory.error is None else str(directory.error)
    return (
        node,
        directory.path,
        len(directory.replicas),
        directory.size,
        directory.total_bytes,
        directory.usable_bytes,
        error,
    )


def replica_rows(node: int, directory: LogDir) -> list[tuple[Cell, ...]]:
    """Return a row for each replica. A replica that moves here from another directory is a future replica."""
    return [
        (node, directory.path, *replica.partition, replica.size, replica.lag, replica.is_future)
        for replica in sorted(directory.replicas, key=lambda replica: replica.partition)
    ]
