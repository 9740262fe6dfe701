"""Keys and values as messages of Protobuf, with schemas of a registry. Needs the extra ``protobuf``."""

from __future__ import annotations

import base64
import copy
from typing import Any, Generic, Protocol, Self, TypeVar

from ..arguments import must_be
from ..errors import ConfigurationError
from ..extras import extra
from ..types import Header
from .client import SchemaRegistryClient
from .schema import Part, Schema, SchemaReference, SubjectStrategy, topic_name
from .serializing import IdIn, Resolve, SchemaSerializer, Write, check_type
from .wire import find_header, read_indexes, read_name, write_indexes

_BUILT_IN = ("google/", "confluent/")
"""Files that every registry and every reader has."""


class ProtobufMessage(Protocol):
    """The methods of a message class that ``protoc`` makes."""

    DESCRIPTOR: Any

    def SerializeToString(self) -> bytes:  # noqa: N802 - the name of Google's library
        """The bytes of the message."""
        ...

    @classmethod
    def FromString(cls, data: bytes) -> Self:  # noqa: N802
        """The message of these bytes."""
        ...


M = TypeVar("M", bound=ProtobufMessage)


class ProtobufSerializer(SchemaSerializer[M]):
    """Writes messages of one type in Confluent's wire format. Needs the extra ``protobuf``.

    The schema is the file of ``message_type``. The files that it imports are registered as well, each under its own
    name as the subject, except the files of Google and Confluent. The other arguments are the same as for
    ``AvroSerializer``.

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

    def _indexes(self) -> bytes:
        return write_indexes(_path_of(self._descriptor))

    async def _schema_to_register(self) -> Schema:
        return await self._schema_of(self._descriptor.file)

    async def _schema_of(self, file: Any) -> Schema:
        """The schema of a file. The files that it imports are registered first."""
        references = []
        for used in file.dependencies:
            if not used.name.startswith(_BUILT_IN):
                schema = await self._schema_of(used)
                found = await self.find(used.name, schema)
                if found.version is None:  # a registry before Confluent Platform 8 answers with the id alone
                    found = await self._registry.lookup(used.name, schema, normalize=self._normalize)
                references.append(SchemaReference(used.name, used.name, found.version or 1))
        text = base64.standard_b64encode(file.serialized_pb).decode()
        return Schema(text, "PROTOBUF", tuple(references))

    async def _writer(self, schema: Schema) -> Write:
        check_type(schema, "PROTOBUF", "ProtobufSerializer")
        wanted = self._type

        def write(data: object) -> bytes:
            if not isinstance(data, wanted):
                raise TypeError(f"the message must be of type {wanted.__name__}, got {type(data).__name__}")
            return data.SerializeToString()

        return write


class ProtobufDeserializer(Generic[M]):
    """Reads messages of one type in Confluent's wire format. Needs the extra ``protobuf``.

    Messages of Protobuf can be read without the schema that they were written with, so the registry is not asked. The
    constructor raises ConfigurationError. A read raises DeserializationError with the error of the data as its cause.
    """

    def __init__(self, message_type: type[M]) -> None:
        self._parse = _checked(message_type).FromString
        self.part: Part = "value"

    def for_part(self, part: Part) -> Self:
        """Return this deserializer for keys or for values. The consumer calls this; by default it is for values."""
        made = copy.copy(self)
        made.part = part
        return made

    def deserialize(self, topic: str, data: bytes, headers: tuple[Header, ...]) -> M:
        """The message. Raises ValueError for bytes without the id of a schema."""
        in_header = find_header(self.part, headers) if headers else None
        if in_header is not None:
            read_indexes(in_header, read_name(in_header).end)
            return self._parse(data)
        _, end = read_indexes(data, read_name(data).end)
        return self._parse(data[end:])


def _checked(message_type: type[M]) -> type[M]:
    message = extra("google.protobuf.message", "protobuf").Message
    if not isinstance(message_type, type) or not issubclass(message_type, message):
        raise ConfigurationError(must_be("message_type", "a class of messages, made by protoc", message_type))
    return message_type


def _path_of(descriptor: Any) -> list[int]:
    """The path of a message type: the index of the outer type in the file, then of each nested type."""
    outer = descriptor.containing_type
    if outer is None:
        return [list(descriptor.file.message_types_by_name).index(descriptor.name)]
    return [*_path_of(outer), [each.name for each in outer.nested_types].index(descriptor.name)]
