"""Keys and values as messages of Protobuf, with schemas of a registry. Needs the extra ``protobuf``."""

from __future__ import annotations

import base64
import copy
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar, cast

from ..arguments import check_methods, must_be
from ..errors import ConfigurationError
from ..extras import extra
from ..types import Header, printable
from .client import SchemaRegistryClient
from .protobuf_names import message_types
from .schema import Part, Schema, SchemaReference, SubjectStrategy, topic_name
from .serializing import IdIn, Resolve, SchemaSerializer, Write, check_type
from .wire import find_header, read_indexes, read_name, write_indexes

_GOOGLE_PROTOBUF = (
    *("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type"),
    "wrappers",
)
_GOOGLE_TYPE = (
    *("calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction", "interval"),
    *("latlng", "money", "month", "phone_number", "postal_address", "quaternion", "timeofday"),
)
BUILT_IN = frozenset(
    {
        *("confluent/meta.proto", "confluent/type/decimal.proto", "confluent/type/variant.proto"),
        *(f"google/protobuf/{name}.proto" for name in _GOOGLE_PROTOBUF),
        *(f"google/type/{name}.proto" for name in _GOOGLE_TYPE),
    }
)
"""Files that every registry and every reader has: ``KNOWN_DEPENDENCIES`` of Confluent's ``ProtobufSchema``."""


class ProtobufMessage(Protocol):
    """The methods of a message class that ``protoc`` makes."""

    DESCRIPTOR: Any

    def SerializeToString(self) -> bytes:  # noqa: N802 - the name of Google's library
        """Return the bytes of the message."""
        ...

    @classmethod
    def FromString(cls, data: bytes) -> Self:  # noqa: N802
        """Return the message of these bytes."""
        ...


M = TypeVar("M", bound=ProtobufMessage)


class ProtobufSerializer(SchemaSerializer[M]):
    """Writes messages of one type in Confluent's wire format. Needs the extra ``protobuf``.

    The schema is the file of ``message_type``. The files that it imports are registered as well, each under its own
    name as the subject, except those that every registry has: most of google/protobuf and google/type. The other
    arguments are the same as for ``AvroSerializer``.

    The constructor raises ConfigurationError. A send raises SerializationError, whose cause is the error of the
    registry or of the data.
    """

    def __init__(
        self,
        registry: SchemaRegistryClient,
        message_type: type[M],
        *,
        subject: SubjectStrategy = topic_name,
        resolve: Resolve = "register",
        normalize: bool = False,
        id_in: IdIn = "prefix",
    ) -> None:
        super().__init__(registry, subject=subject, resolve=resolve, normalize=normalize, id_in=id_in)
        self._type = _checked(message_type)
        self._descriptor = message_type.DESCRIPTOR
        self._name = str(self._descriptor.full_name)

    def _indexes(self, schema: Schema) -> bytes:
        if self._resolve == "latest":  # the newest file may have its types in another order
            try:
                return write_indexes(message_types(schema.text).path_of(self._name))
            except ValueError as error:
                raise ConfigurationError(
                    f"the newest schema of the subject cannot describe the message: {error}"
                ) from None
        return write_indexes(_path_of(self._descriptor, skips_map_entries=self._normalize))

    async def _schema_to_register(self) -> Schema:
        return await self._schema_of(self._descriptor.file)

    async def _schema_of(self, file: Any) -> Schema:
        """Register the files that a file imports, and return its schema."""
        references = []
        for imported_file in file.dependencies:
            if imported_file.name not in BUILT_IN:
                schema = await self._schema_of(imported_file)
                registered = await self.find(imported_file.name, schema)
                if registered.version is None:  # a registry before Confluent Platform 8 answers with the id alone
                    registered = await self._registry.lookup(imported_file.name, schema, normalize=self._normalize)
                references.append(SchemaReference(imported_file.name, imported_file.name, registered.version or 1))
        text = base64.standard_b64encode(file.serialized_pb).decode()
        return Schema(text, "PROTOBUF", tuple(references))

    async def _writer(self, schema: Schema) -> Write:
        check_type(schema, "PROTOBUF", "ProtobufSerializer")
        message_type = self._type

        def write(data: object) -> bytes:
            if not isinstance(data, message_type):
                raise TypeError(f"the message must be of type {message_type.__name__}, got {type(data).__name__}")
            return data.SerializeToString()

        return write


class ProtobufDeserializer(Generic[M]):
    """Reads messages of one type, or of several, in Confluent's wire format. Needs the extra ``protobuf``.

    ``message_type`` is a class; several classes for a topic with records of several types; or a mapping of full names,
    such as ``"shop.Order"``, to classes. A record of any other type is refused.

    Messages of Protobuf can be read without the schema that they were written with, so without ``registry`` no registry
    is asked. Then the place of the type in its file has to be the same for the writer, because the records name only
    this place. With ``registry``, the schema of the record gives the full name of its type, and the name decides.

    The constructor raises ConfigurationError. A read raises DeserializationError, whose cause is the error of the
    registry or of the data.
    """

    def __init__(
        self,
        message_type: type[M] | Iterable[type[M]] | Mapping[str, type[M]],
        *,
        registry: SchemaRegistryClient | None = None,
    ) -> None:
        if registry is not None:
            check_methods("registry", registry, "by_id", "by_guid")
        self._registry = registry
        self._types = _by_name(message_type)
        self._by_path = _by_path(self._types.values()) if registry is None else {}
        if isinstance(message_type, Mapping) and registry is None:
            raise ConfigurationError("a mapping of names to types requires registry: records have no name of the type")
        self.part: Part = "value"
        self._known: dict[tuple[int | str, tuple[int, ...]], type[M]] = {}
        """The types by the id or GUID of the writer's schema, and the path of the type. Keys and values share them."""

    def for_part(self, part: Part) -> Self:
        """Return this deserializer for keys or for values. The consumer calls this; by default it is for values."""
        copied = copy.copy(self)
        copied.part = part
        return copied

    # Hot: runs for each record.
    def deserialize(self, topic: str, data: bytes, headers: tuple[Header, ...]) -> M | Awaitable[M]:
        """Return the message; a coroutine until the schema is known, with a registry.

        Raises ValueError for bytes without the id of a schema, and for a message of another type.
        """
        in_header = find_header(self.part, headers) if headers else None
        if in_header is not None:
            name, end = read_name(in_header)
            path, _ = read_indexes(in_header, end)
            content = data
        else:
            name, end = read_name(data)
            path, end = read_indexes(data, end)
            content = data[end:]
        if self._registry is None:
            return self._of_path(path).FromString(content)
        message_type = self._known.get((name, path))
        if message_type is None:
            return self._deserialize_first(self._registry, name, path, content)
        return message_type.FromString(content)

    def _of_path(self, path: tuple[int, ...]) -> type[M]:
        message_type = self._by_path.get(path)
        if message_type is None:
            raise ValueError(
                f"the record has the message type at {list(path)} of its file, which is not "
                f"{_listed(self._types)}; pass its class as well, or registry, which knows the name of the type"
            )
        return message_type

    async def _deserialize_first(
        self, registry: SchemaRegistryClient, name: int | str, path: tuple[int, ...], content: bytes
    ) -> M:
        schema = await (registry.by_id(name) if isinstance(name, int) else registry.by_guid(name))
        check_type(schema, "PROTOBUF", "ProtobufDeserializer")
        full_name = message_types(schema.text).name_at(path)
        message_type = self._types.get(full_name)
        if message_type is None:
            raise ValueError(f"the record is a {printable(full_name)}, which is not {_listed(self._types)}")
        self._known[name, path] = message_type
        return message_type.FromString(content)


def _by_name(classes: type[M] | Iterable[type[M]] | Mapping[str, type[M]]) -> dict[str, type[M]]:
    """Return the types by their full names. Raises ConfigurationError."""
    if isinstance(classes, Mapping):
        types = {str(name): _checked(message_type) for name, message_type in classes.items()}
    elif isinstance(classes, Iterable) and not isinstance(classes, type | str):
        types = {str(message_type.DESCRIPTOR.full_name): message_type for message_type in map(_checked, classes)}
    else:
        message_type = _checked(cast("type[M]", classes))
        types = {str(message_type.DESCRIPTOR.full_name): message_type}
    if not types:
        raise ConfigurationError(must_be("message_type", "a class of messages, or several of them", classes))
    return types


def _by_path(types: Iterable[type[M]]) -> dict[tuple[int, ...], type[M]]:
    """Return the types by their paths. Raises ConfigurationError if two types have the same path, in different files.

    A type after the type of a map has a second path, that of a normalized schema. It counts if no other type of the
    file has it.
    """
    result: dict[tuple[int, ...], type[M]] = {}
    normalized: dict[tuple[int, ...], type[M]] = {}
    for message_type in types:
        descriptor = message_type.DESCRIPTOR
        path = tuple(_path_of(descriptor))
        first_type = result.setdefault(path, message_type)
        if first_type is not message_type:
            raise ConfigurationError(
                f"{first_type.DESCRIPTOR.full_name} and {descriptor.full_name} have the same place in"
                " their files, and records name only this place; pass registry, which knows the names of the types"
            )
        path = tuple(_path_of(descriptor, skips_map_entries=True))
        if _is_free(path, descriptor.file):
            normalized.setdefault(path, message_type)
    return {**normalized, **result}


def _is_free(path: Sequence[int], file: Any) -> bool:
    """Return whether the file has no type at this path, or only that of a map."""
    types = list(file.message_types_by_name.values())
    for index in path:
        if index >= len(types) or types[index].GetOptions().map_entry:
            return True
        types = types[index].nested_types
    return False


def _listed(types: Mapping[str, object]) -> str:
    return " or ".join(types)


def _checked(message_type: type[M]) -> type[M]:
    message = extra("google.protobuf.message", "protobuf").Message
    if not isinstance(message_type, type) or not issubclass(message_type, message):
        raise ConfigurationError(must_be("message_type", "a class of messages, made by protoc", message_type))
    return message_type


def _path_of(descriptor: Any, *, skips_map_entries: bool = False) -> list[int]:
    """Return the path of a message type: the index of the outer type in the file, then of each nested type.

    The compiler makes a nested type for each map. In a normalized schema it is a map again and does not count.
    """
    outer = descriptor.containing_type
    if outer is None:
        return [list(descriptor.file.message_types_by_name).index(descriptor.name)]
    names = [nested.name for nested in outer.nested_types if not (skips_map_entries and nested.GetOptions().map_entry)]
    return [*_path_of(outer, skips_map_entries=skips_map_entries), names.index(descriptor.name)]
