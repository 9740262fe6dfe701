"""``aiokafka-lite schemas``: the schemas of a schema registry."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from .terminal.confirm import Yes, confirmed, say_done
from .terminal.options import Shared, command
from .terminal.output import Cell, Facts, Table, show_changes
from .terminal.registry import RegistryOption, new_registry, read_schema
from .terminal.run import FAILED, say

application = typer.Typer(no_args_is_help=True, help="List, show, register, check and delete schemas of a registry.")


class SchemaKind(StrEnum):
    """The types of schemas."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


Subject = Annotated[str, typer.Argument(help="Name of the subject, such as orders-value.")]
SchemaFile = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="File of the schema: .avsc, .json or .proto.")
]
Kind = Annotated[SchemaKind | None, typer.Option("--type", help="Type of the schema; by default by the file's ending.")]
References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="NAME=SUBJECT:VERSION",
        help="A schema that the file refers to by this name. May be repeated.",
    ),
]
Normalize = Annotated[bool, typer.Option("--normalize", help="Compare schemas without regard to their layout.")]


@command(
    application,
    "list",
    examples="""
    aiokafka-lite schemas list --registry http://localhost:8081
    aiokafka-lite schemas list orders- --json
    """,
)
async def list_(
    shared: Shared,
    prefix: Annotated[str, typer.Argument(help="Only subjects that begin with this text.")] = "",
    deleted: Annotated[bool, typer.Option("--deleted", help="List deleted subjects as well.")] = False,
    registry: RegistryOption = None,
) -> int:
    """List subjects with their newest schemas."""
    from ..errors import SchemaRegistryError

    async with new_registry(shared.connection, registry) as client:
        subjects = await client.subjects(prefix, deleted=deleted)
        rows: list[tuple[Cell, ...]] = []
        for subject in sorted(subjects):
            try:
                newest = await client.latest(subject)
            except SchemaRegistryError as error:
                if not deleted:
                    raise
                say(str(error))
                rows.append((subject, None, None, None))
                continue
            rows.append((subject, newest.version, newest.schema_id, newest.schema.type))
    shared.output.show(Table(("SUBJECT", "VERSION", "ID", "TYPE"), rows))
    return 0


@command(
    application,
    examples="""
    aiokafka-lite schemas get orders-value
    aiokafka-lite schemas get orders-value --version 3 --json
    aiokafka-lite schemas get --id 17
    """,
    prints_tables=False,
)
async def get(
    shared: Shared,
    subject: Annotated[str | None, typer.Argument(help="Name of the subject.")] = None,
    version: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=1, help="Version of the subject; the newest by default.")
    ] = None,
    schema_id: Annotated[
        int | None, typer.Option("--id", metavar="ID", min=0, help="Show the schema of an id.")
    ] = None,
    registry: RegistryOption = None,
) -> int:
    """Print the text of a schema; with --json also its id, version, type and references."""
    if (subject is None) == (schema_id is None) or (version is not None and subject is None):
        raise ValueError("schemas get requires a subject, or --id")
    async with new_registry(shared.connection, registry) as client:
        if subject is None:
            facts: dict[str, object] = {"id": schema_id}
            schema = await client.by_id(schema_id or 0)
        else:
            registered = await (client.latest(subject) if version is None else client.by_version(subject, version))
            facts = {
                "subject": subject,
                "version": registered.version,
                "id": registered.schema_id,
                "guid": registered.guid,
            }
            schema = registered.schema
    if shared.output.as_json:
        references = [reference._asdict() for reference in schema.references]
        shared.output.print_json({**facts, "type": schema.type, "references": references, "schema": schema.text})
    else:
        from ..ui.values import indented

        print(indented(schema.text.strip()))
    return 0


@command(
    application,
    examples="""
    aiokafka-lite schemas register orders-value order.avsc
    aiokafka-lite schemas register orders-value order.proto --reference shop/item.proto=items:1
    """,
    prints_tables=False,
)
async def register(
    shared: Shared,
    subject: Subject,
    file: SchemaFile,
    kind: Kind = None,
    reference: References = None,
    normalize: Normalize = False,
    registry: RegistryOption = None,
) -> int:
    """Register a schema as the newest version of a subject, and print its id."""
    schema = read_schema(file, kind, reference or ())
    async with new_registry(shared.connection, registry) as client:
        registered = await client.register(subject, schema, normalize=normalize)
    facts: dict[str, Cell] = {"subject": subject, "version": registered.version, "id": registered.schema_id}
    shared.output.show(Facts({**facts, "type": schema.type}))
    return 0


@command(
    application,
    examples="""
    aiokafka-lite schemas check orders-value order.avsc
    aiokafka-lite schemas check orders-value order.avsc --against 3
    """,
    prints_tables=False,
)
async def check(
    shared: Shared,
    subject: Subject,
    file: SchemaFile,
    kind: Kind = None,
    reference: References = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION", help="Compare with this version or latest; by default as the subject requires."
        ),
    ] = None,
    registry: RegistryOption = None,
) -> int:
    """Check whether a schema may become the next version of a subject. The exit status is 1 if it may not."""
    schema = read_schema(file, kind, reference or ())
    version: int | Literal["latest"] | None = None
    if against == "latest":
        version = "latest"
    elif against is not None:
        if not against.isdecimal():
            raise ValueError(f"--against must be a version or latest, got {against!r}")
        version = int(against)
    async with new_registry(shared.connection, registry) as client:
        answer = await client.check_compatibility(subject, schema, version=version)
    if shared.output.as_json:
        shared.output.print_json({"compatible": answer.is_compatible, "messages": list(answer.messages)})
    elif answer.is_compatible:
        print("compatible")
    if answer.is_compatible:
        return 0
    for message in answer.messages or ("the schema is not compatible",):
        say(message)
    return FAILED


@command(
    application,
    examples="""
    aiokafka-lite schemas delete orders-value --version 3
    aiokafka-lite schemas delete orders-value --permanent --yes
    """,
)
async def delete(
    shared: Shared,
    subject: Subject,
    version: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=1, help="Delete only this version; all by default.")
    ] = None,
    permanent: Annotated[
        bool, typer.Option("--permanent", help="Remove a subject or version that is deleted already, with its ids.")
    ] = False,
    yes: Yes = False,
    registry: RegistryOption = None,
) -> int:
    """Delete a subject, or one version of it. Records keep their schemas unless they are removed with --permanent."""
    what = f"the subject {subject}" if version is None else f"version {version} of the subject {subject}"
    if not await confirmed(f"Delete {what}{' for good' if permanent else ''}?", yes):
        return FAILED
    async with new_registry(shared.connection, registry) as client:
        if version is None:
            versions = await client.delete_subject(subject, permanent=permanent)
        else:
            await client.delete_version(subject, version, permanent=permanent)
            versions = [version]
    say_done([subject], "deleted")
    return show_changes(shared.output, Table(("SUBJECT", "VERSION"), [(subject, number) for number in versions]), {})
