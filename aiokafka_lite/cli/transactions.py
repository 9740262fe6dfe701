"""``aiokafka-lite transactions``: list and describe transactions, find and abort hanging ones, fence producers."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from .terminal import completion
from .terminal.confirm import say_done
from .terminal.options import Shared, command
from .terminal.output import Table, show_changes, show_found
from .terminal.partitions import Partitions, SomePartitions, parse_topics, partitions_of
from .terminal.run import say

application = typer.Typer(no_args_is_help=True, help="List, describe and abort transactions, and fence producers.")

TransactionalIds = Annotated[list[str], typer.Argument(metavar="TRANSACTIONAL_ID...", help="Transactional ids.")]


@command(
    application,
    "list",
    examples="""
    aiokafka-lite transactions list --state ongoing
    aiokafka-lite transactions list --min-duration 60 --pattern 'orders-.*'
    """,
)
async def list_(
    shared: Shared,
    state: Annotated[
        list[str] | None, typer.Option(metavar="STATE", help="Only transactional ids in this state.")
    ] = None,
    producer_id: Annotated[list[int] | None, typer.Option(help="Only this producer id.", min=0)] = None,
    min_duration: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Only transactions that are open for longer (Kafka 3.8).", min=0),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Only transactional ids that fully match this (Kafka 4.1).")
    ] = None,
) -> int:
    """List transactional ids with their states."""
    async with shared.connection.admin() as admin:
        transactions = await admin.transactions.list(
            states=state or (), producer_ids=producer_id or (), min_duration=min_duration, pattern=pattern
        )
    rows = [
        (transaction.transactional_id, transaction.coordinator, transaction.producer_id, transaction.state.value)
        for transaction in transactions
    ]
    shared.output.show(Table(("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE"), rows))
    return 0


@command(application, examples="aiokafka-lite transactions describe orders-1 orders-2")
async def describe(shared: Shared, transactional_ids: TransactionalIds) -> int:
    """Show the state, the producer and the open transaction of transactional ids."""
    async with shared.connection.admin() as admin:
        result = await admin.transactions.describe(transactional_ids)
    now = time.time()
    rows = [
        (
            transaction.transactional_id,
            transaction.coordinator.node_id,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.state.value,
            transaction.timeout,
            transaction.started_at,
            None if transaction.started_at is None else round(max(0.0, now - transaction.started_at / 1000), 3),
            list(map(str, transaction.partitions)),
        )
        for transaction in result.done.values()
    ]
    headings = (
        *("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "PRODUCER-EPOCH", "STATE"),
        *("TIMEOUT", "STARTED-AT-MS", "DURATION", "PARTITIONS"),
    )
    return show_found(shared.output, Table(headings, rows), result.failed.values())


@command(
    application,
    "describe-producers",
    examples="""
    aiokafka-lite transactions describe-producers orders
    aiokafka-lite transactions describe-producers orders:0,1 --broker 2
    """,
)
async def describe_producers(
    shared: Shared,
    partitions: Partitions,
    broker: Annotated[
        int | None, typer.Option(metavar="ID", help="Ask this broker instead of the leaders.", min=0)
    ] = None,
) -> int:
    """Show the producers of partitions, and where their open transactions begin."""
    async with shared.connection.admin() as admin:
        targets = await partitions_of(admin, partitions)
        result = await admin.transactions.describe_producers(targets, broker=broker)
    rows = [
        (
            *partition,
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch,
            producer.last_sequence,
            producer.last_timestamp,
            producer.start_offset,
        )
        for partition, producers in sorted(result.done.items())
        for producer in producers
    ]
    headings = (
        *("TOPIC", "PARTITION", "PRODUCER-ID", "PRODUCER-EPOCH", "COORDINATOR-EPOCH"),
        *("LAST-SEQUENCE", "LAST-TIMESTAMP-MS", "START-OFFSET"),
    )
    return show_found(shared.output, Table(headings, rows), result.failed.values())


@command(
    application,
    "find-hanging",
    examples="""
    aiokafka-lite transactions find-hanging
    aiokafka-lite transactions find-hanging --broker 2 --max-timeout 3600
    aiokafka-lite transactions find-hanging orders:0
    """,
)
async def find_hanging(
    shared: Shared,
    partitions: SomePartitions = None,
    broker: Annotated[
        int | None, typer.Option(metavar="ID", help="Only partitions that this broker leads.", min=0)
    ] = None,
    max_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Skip younger transactions. Give the brokers' transaction.max.timeout.ms.", min=0
        ),
    ] = 900.0,
) -> int:
    """Find transactions that are open in a partition although their coordinator does not have them."""
    async with shared.connection.admin() as admin:
        targets = await partitions_of(admin, partitions) if partitions else None
        hanging = await admin.transactions.find_hanging(
            partitions=targets, broker=broker, max_transaction_timeout=max_timeout
        )
    rows = [
        (
            *transaction.partition,
            transaction.producer.producer_id,
            transaction.producer.producer_epoch,
            transaction.producer.coordinator_epoch,
            transaction.producer.start_offset,
            transaction.producer.last_timestamp,
            round(transaction.duration, 3),
        )
        for transaction in hanging
    ]
    headings = (
        *("TOPIC", "PARTITION", "PRODUCER-ID", "PRODUCER-EPOCH", "COORDINATOR-EPOCH"),
        *("START-OFFSET", "LAST-TIMESTAMP-MS", "DURATION"),
    )
    if not hanging:
        say("no transaction hangs")
    return show_found(shared.output, Table(headings, rows), ())


@command(
    application,
    examples="""
    aiokafka-lite transactions abort orders:0 --start-offset 4217
    aiokafka-lite transactions abort orders:0 --producer-id 1000 --producer-epoch 3 --coordinator-epoch 7
    """,
    prints_tables=False,
)
async def abort(
    shared: Shared,
    partition: Annotated[
        str, typer.Argument(metavar="TOPIC:NUMBER", autocompletion=completion.partitions, help="The partition.")
    ],
    start_offset: Annotated[
        int | None, typer.Option(metavar="OFFSET", help="The first offset of the transaction.", min=0)
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option(metavar="ID", help="The producer of the transaction.", min=0)
    ] = None,
    producer_epoch: Annotated[int | None, typer.Option(metavar="EPOCH", help="Its epoch.", min=0)] = None,
    coordinator_epoch: Annotated[
        int | None, typer.Option(metavar="EPOCH", help="The epoch of the coordinator; 0 by default.", min=0)
    ] = None,
) -> int:
    """Abort a hanging transaction in one partition, as find-hanging shows it."""
    from ..admin import ProducerState

    whole, partitions = parse_topics([partition])
    if whole or len(partitions) != 1:
        raise ValueError(f"partition must be TOPIC:NUMBER, got {partition!r}")
    if (producer_id is None) != (producer_epoch is None) or (start_offset is None) == (producer_id is None):
        raise ValueError("transactions abort requires --start-offset, or --producer-id and --producer-epoch")
    producer = None
    if producer_id is not None and producer_epoch is not None:
        producer = ProducerState(producer_id, producer_epoch, coordinator_epoch)
    async with shared.connection.admin() as admin:
        await admin.transactions.abort(partitions[0], start_offset=start_offset, producer=producer)
    say_done(partitions, "aborted the transaction in")
    return show_changes(shared.output, Table(("TOPIC", "PARTITION"), partitions), {})


@command(application, examples="aiokafka-lite transactions fence orders-1")
async def fence(shared: Shared, transactional_ids: TransactionalIds) -> int:
    """Fence the producers of transactional ids: abort their open transactions, and refuse their requests."""
    async with shared.connection.admin() as admin:
        fenced = await admin.transactions.fence_producers(transactional_ids)
    rows = [(name, producer.producer_id, producer.producer_epoch) for name, producer in fenced.done.items()]
    table = Table(("TRANSACTIONAL-ID", "PRODUCER-ID", "PRODUCER-EPOCH"), rows)
    return show_changes(shared.output, table, fenced.failed, as_table=True)
