"""The schema registry of a command: its option and properties, and its client."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .connection import has_user
from .registry_properties import CA, TOKEN, URL, USER

if TYPE_CHECKING:
    from ...schemas import Schema, SchemaRegistryClient
    from .connection import ConnectionOptions

_VARIABLE = "AIOKAFKA_LITE_SCHEMA_REGISTRY_URL"

RegistryOption = Annotated[
    str | None,
    typer.Option(
        "--registry",
        metavar="URL",
        envvar=_VARIABLE,
        help="Schema registry; by default the property schema.registry.url.",
    ),
]

Raw = Annotated[
    bool, typer.Option("--raw", help="Print keys and values as they are, although a schema registry is given.")
]
ValueSchema = Annotated[
    str | None,
    typer.Option(
        metavar="SCHEMA",
        help="Lines are JSON, and are written with this schema: latest (the newest of the subject), an id, or a file"
        " (.avsc, .json, .proto), which is registered.",
    ),
]
KeySchema = Annotated[
    str | None, typer.Option(metavar="SCHEMA", help="Schema of the keys, which are JSON; as for --value-schema.")
]
Message = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Message of a Protobuf schema for values; by default the first of the file."),
]


SCHEMA_TYPES = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
"""The type of a schema by the ending of its file."""


def read_schema(path: Path, schema_type: str | None, references: Iterable[str] = ()) -> Schema:
    """Read the schema of a file; its type is given, or is that of the ending. Raises ConfigurationError.

    ``references`` are given as ``NAME=SUBJECT:VERSION``.
    """
    from ... import disclosure
    from ...arguments import must_be
    from ...errors import ConfigurationError
    from ...schemas import Schema, SchemaReference

    kind = schema_type or SCHEMA_TYPES.get(path.suffix)
    if kind is None:
        raise ConfigurationError(must_be("the file of a schema", "an .avsc, .json or .proto file", str(path)))
    parsed = []
    for text in references:
        name, equals, place = text.partition("=")
        subject, colon, version = place.rpartition(":")
        if not (name and equals and subject and colon and version.isdecimal()):
            raise ConfigurationError(must_be("--reference", "NAME=SUBJECT:VERSION", text))
        parsed.append(SchemaReference(name, subject, int(version)))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigurationError(f"cannot read the schema {disclosure.path(path)}: {reason}") from None
    return Schema(text, kind, tuple(parsed))  # type: ignore[arg-type]


def has_registry(connection: ConnectionOptions, url: str | None) -> bool:
    """Return whether the option or the properties name a registry."""
    return bool(url or connection.registry_properties().get(URL))


def new_registry(connection: ConnectionOptions, url: str | None) -> SchemaRegistryClient:
    """Make a client of the registry, to be used in ``async with``. Raises ConfigurationError."""
    import ssl

    from ... import disclosure
    from ...errors import ConfigurationError
    from ...schemas import SchemaRegistryClient
    from ...settings.property_files import resolve

    if url and has_user(url) and url != os.environ.get(_VARIABLE):
        raise ConfigurationError(
            "--registry must have no user and password: every user of this machine can read the arguments; use"
            f" {_VARIABLE}, or {USER} in a --config file"
        )
    properties = {name: resolve(name, value) for name, value in connection.registry_properties().items()}
    url = url or properties.get(URL)
    if not url:
        raise ConfigurationError(f"no schema registry is given: use --registry URL, or the property {URL}")
    name, colon, password = properties.get(USER, "").partition(":")
    if USER in properties and not colon:
        raise ConfigurationError(f"{USER} must be USER:PASSWORD")
    context = None
    if CA in properties:
        try:
            context = ssl.create_default_context(cafile=properties[CA])
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{CA}={disclosure.path(properties[CA])} must be a PEM file: {error}") from None
    timeout = connection.timeout or 10.0
    return SchemaRegistryClient(
        [address.strip() for address in url.split(",")],
        username=name or None,
        password=password if colon else None,
        token=properties.get(TOKEN),
        ssl_context=context,
        timeout=timeout,
        request_timeout=timeout,
    )
