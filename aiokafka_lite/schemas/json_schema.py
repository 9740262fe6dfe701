"""Keys and values as JSON that a JSON Schema of a registry describes. Needs the extra ``json-schema``."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urljoin

from ..arguments import must_be, shown
from ..errors import ConfigurationError
from ..extras import extra
from ..types import Header
from .client import SchemaRegistryClient
from .json_values import check_json
from .schema import Schema, SubjectStrategy, topic_name
from .serializing import (
    IdIn,
    Read,
    Resolve,
    SchemaDeserializer,
    SchemaSerializer,
    T,
    Write,
    check_type,
    given_schema,
    referenced,
)
from .wire import find_header, read_name

GivenJsonSchema = str | Mapping[str, Any] | Schema
"""A JSON Schema: JSON text, a dict, or a ``Schema``, which may have references."""

logger = logging.getLogger(__name__)

_DRAFT = re.compile(r"https?://json-schema\.org/(draft-0[34679]|draft/20\d\d-\d\d)/schema#?")
_DRAFTS = {
    "draft-03": "Draft3",
    "draft-04": "Draft4",
    "draft-06": "Draft6",
    "draft-07": "Draft7",
    "draft/2019-09": "Draft201909",
    "draft/2020-12": "Draft202012",
}
"""The drafts by their place in the URI, as jsonschema names its validators."""
_SPECIFICATIONS = {
    **{f"Draft{number}": f"DRAFT{number}" for number in (3, 4, 6, 7)},
    "Draft201909": "DRAFT201909",
    "Draft202012": "DRAFT202012",
}
"""The same drafts, as the package referencing names them."""

Check = Callable[[object], None]
"""A function that raises ValueError for an object that the schema does not allow."""


class JsonSchemaSerializer(SchemaSerializer[T]):
    """Writes JSON in Confluent's wire format, checked against a JSON Schema. Needs the extra ``json-schema``.

    ``schema`` is JSON text, a dict, or a ``Schema`` with references; its ``title`` is the name of the record type.
    ``to_dict`` converts objects to dicts and other values that JSON has: a Decimal, a datetime, NaN and a key that is
    no str are refused. ``validate=False`` skips the check against the schema, which takes most of the time. The other
    arguments are the same as for ``AvroSerializer``.

    The constructor raises ConfigurationError. A send raises SerializationError, whose cause is the error of the
    registry or of the data.
    """

    def __init__(
        self,
        registry: SchemaRegistryClient,
        schema: GivenJsonSchema | None = None,
        *,
        to_dict: Callable[[T], object] | None = None,
        validate: bool = True,
        subject: SubjectStrategy = topic_name,
        resolve: Resolve = "register",
        normalize: bool = False,
        id_in: IdIn = "prefix",
    ) -> None:
        super().__init__(registry, subject=subject, resolve=resolve, normalize=normalize, id_in=id_in, to_dict=to_dict)
        extra("jsonschema", "json-schema")
        if schema is None and resolve != "latest":
            raise ConfigurationError("schema is required, unless resolve is 'latest'")
        self._schema = None if schema is None else _checked(schema)
        self._name = "" if self._schema is None else json.loads(self._schema.text).get("title", "")
        if subject is not topic_name and not self._name:
            raise ConfigurationError("subject requires a schema with a title: the subject is named after the title")
        self._validate = validate
        self._encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

    async def _writer(self, schema: Schema) -> Write:
        check_type(schema, "JSON", "JsonSchemaSerializer")
        check = await json_check(self._registry, schema) if self._validate else None
        encode = self._encode

        def write(data: object) -> bytes:
            check_json(data)
            if check is not None:
                check(data)
            return encode(data).encode()

        return write


class JsonSchemaDeserializer(SchemaDeserializer[T]):
    """Reads JSON in Confluent's wire format, checked against the schema that it was written with.

    ``schema`` is another schema to check against, as for ``JsonSchemaSerializer``. ``validate=False`` skips the check,
    and then the registry is not asked. ``from_dict`` makes an object of each result. Needs the extra ``json-schema``.

    The constructor raises ConfigurationError. A read raises DeserializationError, whose cause is the error of the
    registry or of the data.
    """

    def __init__(
        self,
        registry: SchemaRegistryClient,
        schema: GivenJsonSchema | None = None,
        *,
        from_dict: Callable[[Any], T] | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(registry, from_dict=from_dict)
        extra("jsonschema", "json-schema")
        self._schema = None if schema is None else _checked(schema)
        self._validate = validate

    def deserialize(self, topic: str, data: bytes, headers: tuple[Header, ...]) -> T | Awaitable[T]:
        """Return the object; a coroutine until the schema is known. Raises ValueError for bytes without an id."""
        if self._validate:
            return super().deserialize(topic, data, headers)
        start = read_name(data).end if find_header(self.part, headers) is None else 0
        return self._read(_read, data, start)

    async def _reader(self, schema: Schema) -> Read:
        check_type(schema, "JSON", "JsonSchemaDeserializer")
        check = await json_check(self._registry, schema if self._schema is None else self._schema)

        def read(data: bytes, start: int) -> object:
            value = _read(data, start)
            check(value)
            return value

        return read


def _read(data: bytes, start: int) -> object:
    return json.loads(data[start:])


def _checked(argument: GivenJsonSchema) -> Schema:
    """Parse the schema. Raises ConfigurationError if it is not a JSON Schema."""
    schema, parsed = given_schema(argument, "JSON", (Mapping,), "JSON text, a dict or a Schema")
    if not isinstance(parsed, dict):
        raise ConfigurationError(must_be("schema", "a JSON object", parsed))
    try:
        _validator(parsed).check_schema(parsed)
    except extra("jsonschema", "json-schema").SchemaError as error:
        raise ConfigurationError(f"schema must be a JSON Schema: {error.message} at {error.json_path}") from None
    return schema


def _validator(schema: dict[str, Any]) -> Any:
    """Return the validator of the draft that the schema names. By default draft 7, as Confluent's registry assumes."""
    jsonschema = extra("jsonschema", "json-schema")
    return getattr(jsonschema, f"{_draft(schema) or 'Draft7'}Validator")


def _draft(schema: object) -> str | None:
    """Return the name of the draft that a schema names, as in the names of jsonschema; None for an unknown one."""
    uri = schema.get("$schema") if isinstance(schema, dict) else None
    if uri is None:
        return "Draft7"
    draft = _DRAFT.fullmatch(uri) if isinstance(uri, str) else None
    return None if draft is None else _DRAFTS.get(draft[1])


async def json_check(registry: SchemaRegistryClient, schema: Schema) -> Check:
    """Return the check for a schema and the schemas that it refers to."""
    parsed = json.loads(schema.text)
    if _draft(parsed) is None:
        logger.warning("the $schema %s is not known; the data is checked as draft 7", shown(parsed["$schema"]))
    documents = {name: json.loads(document.text) for name, document in (await referenced(registry, schema)).items()}
    parsed = _with_definitions(parsed)
    validator = _validator(parsed)(parsed, registry=_registry_of(parsed, documents))
    best_match = extra("jsonschema", "json-schema").exceptions.best_match
    unresolvable = extra("referencing.exceptions", "json-schema").Unresolvable

    def check(data: object) -> None:
        try:
            error = best_match(validator.iter_errors(data))
        except unresolvable as problem:
            raise ValueError(f"the schema refers to {problem.ref!r}, and no reference has this name") from None
        if error is not None:
            raise ValueError(f"{error.message} at {error.json_path}")

    return check


def _registry_of(schema: Any, documents: Mapping[str, Any]) -> Any:
    """Return the documents that a ``$ref`` may name, for the package referencing.

    A reference is found by its name as it is, by its name relative to the ``$id`` of a document that may refer to it,
    and by its own ``$id``. Confluent's registry finds it by the first two, and validators by the last.
    """
    referencing = extra("referencing", "json-schema")
    specifications = extra("referencing.jsonschema", "json-schema")
    usual = _draft(schema) or "Draft7"

    def resource(document: Any) -> Any:
        draft = usual if not isinstance(document, dict) or "$schema" not in document else _draft(document) or usual
        return getattr(specifications, _SPECIFICATIONS[draft]).create_resource(_with_definitions(document))

    resources = {name: resource(document) for name, document in documents.items()}
    bases = {"", "./", *map(_id_of, (schema, *documents.values()))}
    by_uri = {urljoin(base, name) if base != "./" else base + name: name for name in documents for base in bases}

    def retrieve(uri: str) -> Any:
        name = by_uri.get(uri) or by_uri.get(uri.rstrip("#"))
        if name is not None:
            return resources[name]
        try:
            return specifications.SPECIFICATIONS[uri]
        except LookupError:
            raise referencing.exceptions.NoSuchResource(ref=uri) from None

    by_id = [(_id_of(document), resources[name]) for name, document in documents.items() if _id_of(document)]
    return referencing.Registry(retrieve=retrieve).with_resources(by_id).crawl()


def _id_of(schema: Any) -> str:
    value = (schema.get("$id") or schema.get("id")) if isinstance(schema, dict) else None
    return value.rstrip("#") if isinstance(value, str) else ""


def _with_definitions(schema: Any) -> Any:
    """Copy the ``definitions`` of a schema to its ``$defs``: Confluent's registry accepts both names."""
    if not isinstance(schema, dict) or not isinstance(schema.get("definitions"), dict):
        return schema
    return {**schema, "$defs": {**schema["definitions"], **schema.get("$defs", {})}}
