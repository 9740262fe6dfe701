"""Keys and values as JSON that a JSON Schema of a registry describes. Needs the extra ``json-schema``."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ..arguments import must_be
from ..errors import ConfigurationError
from ..extras import extra
from ..types import Header
from .client import SchemaRegistryClient
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

Check = Callable[[object], None]
"""A function that raises ValueError for an object that the schema does not allow."""


class JsonSchemaSerializer(SchemaSerializer[T]):
    """Writes JSON in Confluent's wire format, checked against a JSON Schema. Needs the extra ``json-schema``.

    ``schema`` is JSON text, a dict, or a ``Schema`` with references; its ``title`` is the name of the record type.
    ``to_dict`` converts objects to values that ``json.dumps`` accepts. ``validate=False`` skips the check, which takes
    most of the time. The other arguments are the same as for ``AvroSerializer``.

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
        check = await _check_of(self._registry, schema) if self._validate else None
        encode = self._encode

        def write(data: object) -> bytes:
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
        """The object; a coroutine until the schema is known. Raises ValueError for bytes without an id."""
        if self._validate:
            return super().deserialize(topic, data, headers)
        start = read_name(data).end if find_header(self.part, headers) is None else 0
        return self._read(_read, data, start)

    async def _reader(self, schema: Schema) -> Read:
        check_type(schema, "JSON", "JsonSchemaDeserializer")
        check = await _check_of(self._registry, schema if self._schema is None else self._schema)

        def read(data: bytes, start: int) -> object:
            made = _read(data, start)
            check(made)
            return made

        return read


def _read(data: bytes, start: int) -> object:
    return json.loads(data[start:])


def _checked(given: GivenJsonSchema) -> Schema:
    """The schema as a ``Schema``. Raises ConfigurationError if it is not a JSON Schema."""
    schema, parsed = given_schema(given, "JSON", (Mapping,), "JSON text, a dict or a Schema")
    if not isinstance(parsed, dict):
        raise ConfigurationError(must_be("schema", "a JSON object", parsed))
    try:
        _validator(parsed).check_schema(parsed)
    except extra("jsonschema", "json-schema").SchemaError as error:
        raise ConfigurationError(f"schema must be a JSON Schema: {error.message} at {error.json_path}") from None
    return schema


def _validator(schema: dict[str, Any]) -> Any:
    """The validator of the draft that the schema names. By default draft 7, as Confluent's registry assumes."""
    jsonschema = extra("jsonschema", "json-schema")
    return jsonschema.validators.validator_for(schema, default=jsonschema.Draft7Validator)


async def _check_of(registry: SchemaRegistryClient, schema: Schema) -> Check:
    """The check for a schema and the schemas that it refers to."""
    referencing = extra("referencing", "json-schema")
    draft7 = extra("referencing.jsonschema", "json-schema").DRAFT7
    used = [
        (name, referencing.Resource.from_contents(json.loads(each.text), default_specification=draft7))
        for name, each in (await referenced(registry, schema)).items()
    ]
    parsed = json.loads(schema.text)
    validator = _validator(parsed)(parsed, registry=referencing.Registry().with_resources(used))
    best_match = extra("jsonschema", "json-schema").exceptions.best_match

    def check(data: object) -> None:
        error = best_match(validator.iter_errors(data))
        if error is not None:
            raise ValueError(f"{error.message} at {error.json_path}")

    return check
