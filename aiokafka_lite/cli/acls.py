"""``aiokafka-lite acls``: list, add and remove access control lists."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from .terminal import completion
from .terminal.arguments import principal_of
from .terminal.confirm import Yes, confirmed
from .terminal.options import Shared, command
from .terminal.output import Cell, Table, show_changes
from .terminal.run import FAILED

if TYPE_CHECKING:
    from ..admin import AclBinding, AclFilter

application = typer.Typer(no_args_is_help=True, help="List, add and remove access control lists (ACLs).")

HEADINGS = ("TYPE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION")


class AclTarget(StrEnum):
    """The types of resources that have ACLs."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional-id"
    DELEGATION_TOKEN = "delegation-token"
    USER = "user"


class Permitted(StrEnum):
    """The operations of ACLs."""

    ALL = "all"
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster-action"
    DESCRIBE_CONFIGS = "describe-configs"
    ALTER_CONFIGS = "alter-configs"
    IDEMPOTENT_WRITE = "idempotent-write"
    CREATE_TOKENS = "create-tokens"
    DESCRIBE_TOKENS = "describe-tokens"
    TWO_PHASE_COMMIT = "two-phase-commit"


KindArgument = Annotated[AclTarget, typer.Argument(help="Type of the resource.")]
NameArgument = Annotated[
    str | None,
    typer.Argument(
        autocompletion=completion.resources,
        help="Name of the resource; * for all of the type. The cluster needs no name.",
    ),
]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="Names that begin with the given name.")]
Principals = Annotated[
    list[str] | None,
    typer.Option("--principal", "-p", metavar="USER", help="A user, such as alice or User:alice. May be repeated."),
]
Operations = Annotated[
    list[Permitted] | None,
    typer.Option(
        "--operation",
        "-o",
        metavar="OPERATION",
        help=f"One of {', '.join(Permitted)}. May be repeated.",
    ),
]
Host = Annotated[str | None, typer.Option(metavar="ADDRESS", help="IP address of the client; * for any.")]
Deny = Annotated[bool, typer.Option("--deny", help="Deny the operations; by default the ACL allows them.")]


@command(
    application,
    "list",
    examples="""
    aiokafka-lite acls list
    aiokafka-lite acls list topic orders --matching
    aiokafka-lite acls list --principal alice --json
    """,
    asks_controllers=True,
)
async def list_(
    shared: Shared,
    kind: Annotated[AclTarget | None, typer.Argument(help="Type of the resource; all types by default.")] = None,
    name: NameArgument = None,
    matching: Annotated[
        bool, typer.Option("--matching", help="List all ACLs that apply to the named resource: also prefixes and *.")
    ] = False,
    principal: Principals = None,
) -> int:
    """List all ACLs, or the ACLs of a resource or of users."""
    from ..admin import AclFilter, AclPatternType, AclResourceType

    if matching and name is None:
        raise ValueError("--matching requires the name of a resource")
    acl_filter = AclFilter(
        AclResourceType.ANY if kind is None else AclResourceType[_member(kind)],
        None if kind is None else _name(kind, name, required=False),
        pattern_type=AclPatternType.MATCH if matching else AclPatternType.ANY,
    )
    users = set(map(principal_of, principal or ()))
    async with shared.connection.admin() as admin:
        acls = await admin.acls.describe(acl_filter)
    shared.output.show(_table(acl for acl in acls if not users or acl.principal in users))
    return 0


@command(
    application,
    examples="""
    aiokafka-lite acls add topic orders --principal alice --operation read --operation describe
    aiokafka-lite acls add group billing- --prefixed --principal alice --operation read
    aiokafka-lite acls add cluster --principal alice --operation create --host 10.0.0.7
    aiokafka-lite acls add topic audit --principal '*' --operation delete --deny
    """,
    asks_controllers=True,
)
async def add(
    shared: Shared,
    kind: KindArgument,
    name: NameArgument = None,
    principal: Principals = None,
    operation: Operations = None,
    host: Host = None,
    prefixed: Prefixed = False,
    deny: Deny = False,
) -> int:
    """Allow, or with --deny forbid, operations of users on a resource."""
    from ..admin import AclBinding, AclOperation, AclPatternType, AclPermission, AclResourceType

    if not principal or not operation:
        raise ValueError("acls add requires --principal and --operation")
    acls = [
        AclBinding(
            AclResourceType[_member(kind)],
            _name(kind, name, required=True) or "",
            principal_of(user),
            AclOperation[_member(option)],
            AclPermission.DENY if deny else AclPermission.ALLOW,
            host or "*",
            AclPatternType.PREFIXED if prefixed else AclPatternType.LITERAL,
        )
        for user in principal
        for option in operation
    ]
    async with shared.connection.admin() as admin:
        created = await admin.acls.create(acls)
    failed = {_row(acl): error for acl, error in created.failed.items()}
    return show_changes(shared.output, _table(created.done), failed, as_table=True)


@command(
    application,
    examples="""
    aiokafka-lite acls remove topic orders
    aiokafka-lite acls remove topic orders --principal alice --operation write
    """,
    asks_controllers=True,
)
async def remove(
    shared: Shared,
    kind: KindArgument,
    name: NameArgument = None,
    principal: Principals = None,
    operation: Operations = None,
    host: Host = None,
    prefixed: Prefixed = False,
    yes: Yes = False,
) -> int:
    """Remove the ACLs of a resource, or only those that the options select by user, operation or address.

    The command prints the ACLs that it removed.
    """
    acl_filters = filters(kind, name, principal or [], operation or [], host, prefixed=prefixed)
    which = " that match" if principal or operation or host else ""
    if not await confirmed(f"Remove the ACLs of {kind} {acl_filters[0].resource_name}{which}?", yes):
        return FAILED
    async with shared.connection.admin() as admin:
        deleted = await admin.acls.delete(acl_filters)
    failed = {(kind, name, *_row(acl_filter)[2:6]): error for acl_filter, error in deleted.failed.items()}
    done = _table({acl for acls in deleted.done.values() for acl in acls})
    return show_changes(shared.output, done, failed, as_table=True)


def filters(
    kind: AclTarget,
    name: str | None,
    principals: Iterable[str],
    operations: Iterable[Permitted],
    host: str | None,
    *,
    prefixed: bool,
) -> list[AclFilter]:
    """Return a filter for each user and operation. Raises ValueError if the name is missing."""
    from ..admin import AclFilter, AclOperation, AclPatternType, AclResourceType

    users: list[str | None] = [*map(principal_of, principals)] or [None]
    return [
        AclFilter(
            AclResourceType[_member(kind)],
            _name(kind, name, required=True),
            user,
            operation,
            host=host,
            pattern_type=AclPatternType.PREFIXED if prefixed else AclPatternType.LITERAL,
        )
        for user in users
        for operation in [AclOperation[_member(option)] for option in operations] or [AclOperation.ANY]
    ]


def _name(kind: AclTarget, name: str | None, *, required: bool) -> str | None:
    from ..acls import CLUSTER_NAME

    if kind is AclTarget.CLUSTER:
        if name not in (None, CLUSTER_NAME):
            raise ValueError(f"cluster takes no name, got {name!r}")
        return CLUSTER_NAME
    if name is None and required:
        raise ValueError(f"{kind} requires a name, or '*' for all")
    return name


def _member(option: StrEnum) -> str:
    """Return the name of the member in ``aiokafka_lite.acls``: ``DESCRIBE_CONFIGS`` for describe-configs."""
    return option.value.upper().replace("-", "_")


def _table(acls: Iterable[AclBinding]) -> Table:
    return Table(HEADINGS, sorted(map(_row, acls)))


def _row(acl: AclBinding | AclFilter) -> tuple[Cell, ...]:
    return (
        _option(acl.resource_type.name),
        acl.resource_name,
        _option(acl.pattern_type.name),
        acl.principal,
        acl.host,
        _option(acl.operation.name),
        _option(acl.permission.name),
    )


def _option(member: str) -> str:
    return member.lower().replace("_", "-")
