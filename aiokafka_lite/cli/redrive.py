"""``aiokafka-lite redrive``: sends the records of a dead-letter topic back to their origins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .terminal import completion
from .terminal.arguments import name_value
from .terminal.options import Shared
from .terminal.output import Table, show_changes
from .terminal.run import say

if TYPE_CHECKING:
    from ..types import Record

EXAMPLES = """
    aiokafka-lite redrive orders.dead --dry-run
    aiokafka-lite redrive orders.dead --header error.class=ConnectionError
    aiokafka-lite redrive orders.dead --header origin.topic=orders --from-beginning
    aiokafka-lite redrive orders.dead --to orders.repaired --group repair
    """


async def redrive(
    shared: Shared,
    topic: Annotated[str, typer.Argument(autocompletion=completion.topics, help="The dead-letter topic.")],
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Send only records with this header. May be repeated: all must match."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC", autocompletion=completion.topics, help="Send all records here, and not to their origins."
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            autocompletion=completion.groups,
            help="Continue where this group ended, and commit in it.  [default: TOPIC.redrive]",
        ),
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Do not continue where the group ended.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show how many records would be sent, to which topics.")
    ] = False,
) -> int:
    """Send the records of a dead-letter topic back to their origins.

    The headers that Workers have added name the origin. The records that the topic has now are sent once: the next
    command continues behind them. Records that --header leaves out are passed too; --from-beginning reads all again.
    """
    from ..processing import redrive as run_redrive
    from .terminal.topic_names import check_topics

    # Pairs, because a record and the options may repeat a name.
    wanted_headers = {(name, value.encode()) for name, value in (name_value("header", text) for text in header or ())}

    def matches(record: Record[bytes, bytes]) -> bool:
        return wanted_headers <= {(name, value) for name, value in record.headers}

    await check_topics(shared.connection, [topic, *([to] if to else [])], may_create=False)
    with shared.connection.client_settings() as settings:
        result = await run_redrive(
            settings.pop("bootstrap_servers"),
            topic,
            select=matches if wanted_headers else None,
            to=to,
            group_id=group,
            from_beginning=from_beginning,
            dry_run=dry_run,
            **settings,
        )
    rows = [(target, error or None, count) for (target, error), count in sorted(result.records.items())]
    table = Table(("TOPIC", "ERROR", "RECORDS"), rows)
    note = "nothing was sent; remove --dry-run to send these records" if dry_run else ""
    status = show_changes(shared.output, table, {}, as_table=True, dry_run=note)
    if not rows:
        say(f"no record of {topic} {'would be' if dry_run else 'was'} sent")
    if result.left_out:
        say(f"{result.left_out} without the headers were left out")
    if result.without_origin:
        advice = "leave them out with --header, or send all to a topic with --to"
        say(f"{result.without_origin} have no header origin.topic: {advice}")
    return status
