"""The base of the serializers and deserializers of all formats: subjects, ids, and the place of ids in a record.

Rule 1: once the schema of a topic is known, ``serialize`` and ``deserialize`` are plain functions without I/O. Until
then they return a coroutine, which asks the registry.

Rule 2: a serializer caches only the registry's answer for each topic. If two tasks ask for the same topic at the same
time, the registry's client sends one request for both.
"""

from __future__ import annotations

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Self

from ..arguments import check_function, check_methods, must_be
from ..errors import ConfigurationError, ProtocolError
from ..types import Header, printable
from .client import SchemaRegistryClient
from .schema import Part, RegisteredSchema, Schema, SchemaType, SubjectStrategy
from .wire import find_header, header, prefix, read_name, remove_header

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:  # type variables have defaults since Python 3.13; nothing uses the defaults at run time
    from typing import TypeVar

    T = TypeVar("T")

Resolve = Literal["register", "lookup", "latest"]
IdIn = Literal["prefix", "header"]

DEEPEST_REFERENCE = 50
"""The largest depth of references. A registry could send schemas that refer to each other in a circle."""

MOST_REFERENCED = 1000
"""The largest number of schemas that one schema may refer to, directly or indirectly."""

Write = Callable[[Any], bytes]
"""Serializes an object, without the id of its schema."""

Read = Callable[[bytes, int], Any]
"""Deserializes the bytes that begin at a position."""


class _Resolved(NamedTuple):
    """The resolved schema of a topic. Either ``prefix`` or ``header`` is used."""

    write: Write
    prefix: bytes
    header: Header | None


class SchemaSerializer(ABC, Generic[T]):
    """Writes the schema's id with the bytes. The base of the serializers for Avro, JSON Schema and Protobuf."""

    def __init__(
        self,
        registry: SchemaRegistryClient,
        *,
        subject: SubjectStrategy,
        resolve: Resolve,
        normalize: bool,
        id_in: IdIn,
        to_dict: Callable[[T], object] | None = None,
    ) -> None:
        check_methods("registry", registry, "register", "lookup", "latest")
        check_function("subject", subject)
        if resolve not in ("register", "lookup", "latest"):
            raise ConfigurationError(must_be("resolve", "'register', 'lookup' or 'latest'", resolve))
        if id_in not in ("prefix", "header"):
            raise ConfigurationError(must_be("id_in", "'prefix' or 'header'", id_in))
        if to_dict is not None:
            check_function("to_dict", to_dict)
        self._registry = registry
        self._subject = subject
        self._resolve = resolve
        self._normalize = normalize
        self._id_in = id_in
        self._to_dict = to_dict
        self._schema: Schema | None = None
        self._name = ""  # the full name of the record type, for the subject
        self.part: Part = "value"
        self.of_topic: dict[str, _Resolved] = {}

    def for_part(self, part: Part) -> Self:
        """Return this serializer for keys or for values. The producer calls this; by default it is for values."""
        copied = copy.copy(self)
        copied.part = part
        copied.of_topic = {}
        return copied

    # Hot: runs for each record.
    def serialize(self, topic: str, data: T, headers: list[Header]) -> bytes | Awaitable[bytes]:
        """Serialize the data; returns a coroutine until the schema of the topic is known."""
        resolved = self.of_topic.get(topic)
        if resolved is None:
            return self._serialize_first(topic, data, headers)
        return self._serialize(resolved, data, headers)

    def _serialize(self, resolved: _Resolved, data: T, headers: list[Header]) -> bytes:
        payload = resolved.write(data if self._to_dict is None else self._to_dict(data))
        if headers:
            remove_header(self.part, headers)
        if resolved.header is None:
            return resolved.prefix + payload
        headers.append(resolved.header)
        return payload

    async def _serialize_first(self, topic: str, data: T, headers: list[Header]) -> bytes:
        return self._serialize(await self._look_up(topic), data, headers)

    async def writer(self, topic: str) -> Callable[[T], bytes]:
        """Return the function that serializes data for a topic, with the id in front. Raises KafkaError."""
        resolved = await self._look_up(topic)
        return lambda data: self._serialize(resolved, data, [])

    async def _look_up(self, topic: str) -> _Resolved:
        subject = self._subject(topic, self.part, self._name)
        if not isinstance(subject, str) or not subject:
            raise ConfigurationError(must_be("the result of subject", "the name of a subject", subject))
        if self._resolve == "latest":
            registered = await self._registry.latest(subject)
        else:
            registered = await self.find(subject, await self._schema_to_register())
        resolved = self.of_topic.get(topic)
        if resolved is None:  # otherwise another call that waited for the same answer has set it
            resolved = self.of_topic[topic] = self._resolved(registered, await self._writer(registered.schema))
        return resolved

    async def find(self, subject: str, schema: Schema) -> RegisteredSchema:
        """Register or look up a schema, as ``resolve`` says. Raises KafkaError."""
        ask = self._registry.lookup if self._resolve == "lookup" else self._registry.register
        return await ask(subject, schema, normalize=self._normalize)

    def _resolved(self, registered: RegisteredSchema, write: Write) -> _Resolved:
        indexes = self._indexes(registered.schema)
        if self._id_in == "prefix":
            return _Resolved(write, prefix(registered.schema_id) + indexes, None)
        if registered.guid is None:
            raise ConfigurationError(
                "id_in='header' requires a registry that answers with GUIDs (Confluent Platform 8); use id_in='prefix'"
            )
        return _Resolved(write, b"", header(self.part, registered.guid, indexes))

    async def _schema_to_register(self) -> Schema:
        """Return the schema of this serializer."""
        assert self._schema is not None, "the constructor requires it"
        return self._schema

    @abstractmethod
    async def _writer(self, schema: Schema) -> Write:
        """Return the function that writes with a schema of the registry."""

    def _indexes(self, schema: Schema) -> bytes:
        """Return the bytes after the id: for Protobuf, the path of the message type in the file of the schema."""
        return b""


class SchemaDeserializer(ABC, Generic[T]):
    """A deserializer that finds the schema by the id in a header or in front of the bytes."""

    def __init__(self, registry: SchemaRegistryClient, *, from_dict: Callable[[Any], T] | None) -> None:
        check_methods("registry", registry, "by_id", "by_guid")
        if from_dict is not None:
            check_function("from_dict", from_dict)
        self._registry = registry
        self._from_dict = from_dict
        self.part: Part = "value"
        self._readers: dict[int | str, Read] = {}
        """The readers by the id or GUID of the writer's schema. Keys and values share them."""

    def for_part(self, part: Part) -> Self:
        """Return this deserializer for keys or for values. The consumer calls this; by default it is for values."""
        copied = copy.copy(self)
        copied.part = part
        return copied

    # Hot: runs for each record.
    def deserialize(self, topic: str, data: bytes, headers: tuple[Header, ...]) -> T | Awaitable[T]:
        """Deserialize the data; returns a coroutine while the schema is not known. Raises ValueError without an id."""
        in_header = find_header(self.part, headers) if headers else None
        if in_header is None:
            name, end = read_name(data)
        else:
            name, end = read_name(in_header).name, 0
        read = self._readers.get(name)
        if read is None:
            return self._deserialize_first(name, data, end)
        return self._read(read, data, end)

    async def _deserialize_first(self, name: int | str, data: bytes, start: int) -> T:
        return self._read(await self.reader(name), data, start)

    async def reader(self, name: int | str) -> Read:
        """Return the function that reads bytes of the schema with this id or GUID, without ``from_dict``.

        Raises KafkaError: the registry does not know the schema, or does not answer.
        """
        read = self._readers.get(name)
        if read is None:
            find = self._registry.by_id(name) if isinstance(name, int) else self._registry.by_guid(name)
            read = self._readers[name] = await self._reader(await find)
        return read

    def _read(self, read: Read, data: bytes, start: int) -> T:
        value: T = read(data, start)
        return value if self._from_dict is None else self._from_dict(value)

    @abstractmethod
    async def _reader(self, schema: Schema) -> Read:
        """Return the function that reads bytes of this schema. Raises ConfigurationError for another format."""


def given_schema(argument: object, schema_type: SchemaType, forms: tuple[type, ...], what: str) -> tuple[Schema, Any]:
    """Parse a schema of the user, of a format whose schemas are JSON. Returns it also as parsed JSON.

    ``argument`` may be a Schema, JSON text, or an object of one of the types ``forms``. ``what`` names these types for
    the error. Raises ConfigurationError.
    """
    if isinstance(argument, Schema):
        if argument.type != schema_type:
            raise ConfigurationError(must_be("schema", f"a schema of type {schema_type!r}", argument.type))
        schema = argument
    elif isinstance(argument, str):
        schema = Schema(argument, schema_type)
    elif isinstance(argument, forms):
        schema = Schema(json.dumps(argument), schema_type)
    else:
        raise ConfigurationError(must_be("schema", what, argument))
    try:
        return schema, json.loads(schema.text)
    except ValueError as error:
        raise ConfigurationError(f"schema must be JSON: {error}") from None


async def referenced(registry: SchemaRegistryClient, schema: Schema) -> dict[str, Schema]:
    """Fetch the schemas that a schema refers to, directly or indirectly, by the names in its text.

    A schema comes after the schemas that it uses. Raises ProtocolError for a circle of references, for a name that two
    levels use, and for more than ``MOST_REFERENCED`` schemas.
    """
    schemas: dict[str, Schema] = {}
    await _add_referenced(registry, schema, schemas, ())
    return schemas


async def _add_referenced(
    registry: SchemaRegistryClient, schema: Schema, schemas: dict[str, Schema], path: tuple[str, ...]
) -> None:
    """Add the schemas that a schema refers to to ``schemas``. ``path`` has the names that led to the schema."""
    for reference in schema.references:
        name = reference.name
        if name in schemas:
            continue
        if name in path or len(path) == DEEPEST_REFERENCE:
            names = ", ".join(map(printable, [*path[-3:], name]))
            raise ProtocolError(
                "the schemas of the registry refer to each other in a circle, use a name on two levels, or are more"
                f" than {DEEPEST_REFERENCE} levels deep; the last names are {names}"
            )
        if len(schemas) == MOST_REFERENCED:
            raise ProtocolError(f"the schemas of the registry refer to more than {MOST_REFERENCED} others")
        referenced_schema = (await registry.by_version(reference.subject, reference.version)).schema
        await _add_referenced(registry, referenced_schema, schemas, (*path, name))
        schemas[name] = referenced_schema


def check_type(schema: Schema, schema_type: str, by: str) -> None:
    """Raise ConfigurationError for a schema of another type."""
    if schema.type != schema_type:
        raise ConfigurationError(
            f"{by} requires a schema of type {schema_type}, got type {schema.type} from the registry"
        )
