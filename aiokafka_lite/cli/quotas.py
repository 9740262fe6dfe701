"""``aiokafka-lite quotas``: lists and alters quotas of users, client ids and IP addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .terminal.arguments import setting_changes
from .terminal.confirm import say_done
from .terminal.options import Shared, ValidateOnly, command
from .terminal.output import VALIDATED, Table, show_changes

if TYPE_CHECKING:
    from ..admin import Match

application = typer.Typer(no_args_is_help=True, help="List and alter quotas of users, client ids and IP addresses.")

DEFAULT = "<default>"
"""The name of the default quota in Kafka's tools, for users, clients or addresses without a quota of their own."""

HEADINGS = ("USER", "CLIENT-ID", "IP")

User = Annotated[str | None, typer.Option(metavar="NAME", help=f"The user; {DEFAULT} for all others.")]
ClientId = Annotated[str | None, typer.Option(metavar="ID", help=f"The client id; {DEFAULT} for all others.")]
Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help=f"The IP address; {DEFAULT} for all others.")]


@command(
    application,
    "list",
    examples="""
    aiokafka-lite quotas list
    aiokafka-lite quotas list --user alice --json
    """,
)
async def list_(shared: Shared, user: User = None, client_id: ClientId = None, ip: Ip = None) -> int:
    """List all quotas, or the quotas of a user, a client id or an address."""
    async with shared.connection.admin() as admin:
        quotas_by_entity = await admin.quotas.describe(user=_part(user), client_id=_part(client_id), ip=_part(ip))
    rows = sorted(
        (_name(entity.user), _name(entity.client_id), _name(entity.ip), name, value)
        for entity, quotas in quotas_by_entity.items()
        for name, value in quotas.items()
    )
    cells = [tuple(None if cell == "" else cell for cell in row) for row in rows]
    shared.output.show(Table((*HEADINGS, "QUOTA", "VALUE"), cells))
    return 0


@command(
    application,
    examples="""
    aiokafka-lite quotas alter --user alice --set producer_byte_rate=1048576
    aiokafka-lite quotas alter --user '<default>' --client-id reports --unset consumer_byte_rate
    """,
    prints_tables=False,
    asks_controllers=True,
)
async def alter(
    shared: Shared,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="QUOTA=NUMBER", help="Set a quota, as in producer_byte_rate=1048576. May be repeated."
        ),
    ] = None,
    unset: Annotated[list[str] | None, typer.Option(metavar="QUOTA", help="Remove a quota. May be repeated.")] = None,
    validate_only: ValidateOnly = False,
) -> int:
    """Set or remove quotas of a user, a client id, both together, or an IP address."""
    from ..admin import QuotaEntity

    entity = QuotaEntity(_part(user), _part(client_id), _part(ip))
    if not entity.parts:
        raise ValueError("quotas alter requires --user, --client-id or --ip")
    changes = parse_quotas(settings or [], unset or [])
    async with shared.connection.admin() as admin:
        altered = await admin.quotas.alter({entity: changes}, validate_only=validate_only)
    if not validate_only:
        say_done(altered.done, "changed the quotas of")
    item = (user, client_id, ip)
    table = Table((*HEADINGS, "QUOTAS"), [(*item, list(changes)) for _ in altered.done])
    errors = dict(zip([item], altered.failed.values()))
    return show_changes(shared.output, table, errors, dry_run=VALIDATED if validate_only else "")


def parse_quotas(settings: list[str], unset: list[str]) -> dict[str, float | None]:
    """Parse the new quotas; None for those to remove. Raises ValueError for a contradiction or a wrong number."""
    changes: dict[str, float | None] = {}
    for name, value in setting_changes(settings, unset).items():
        try:
            changes[name] = None if value is None else float(value)
        except ValueError:
            raise ValueError(f"{name} must be a number, got {value!r}") from None
    if not changes:
        raise ValueError("quotas alter requires --set or --unset")
    return changes


def _part(name: str | None) -> str | Match | None:
    from ..admin import Match

    return Match.DEFAULT if name == DEFAULT else name


def _name(part: str | Match | None) -> str:
    return DEFAULT if part is not None and not isinstance(part, str) else part or ""
