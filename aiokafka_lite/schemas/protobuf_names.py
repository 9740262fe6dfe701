"""The message types of a Protobuf file as a registry returns it: the text of the file, or its descriptor in base64.

The wire format names a type by its place: the index of the outer type in the file, then of each nested type. The names
are those of the file that the record was written with, so a place has a meaning only with that file.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..extras import extra

_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)          # comments
    |"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?   # strings
    |[\w.]+|[^\s]                          # words and signs""",
    re.DOTALL | re.VERBOSE,
)
_SKIPPED = ("//", "/*", '"', "'")


class MessageType(NamedTuple):
    """A message type and the types inside it, in the order of the file."""

    name: str
    nested: list[MessageType]
    is_map_entry: bool = False
    """Whether the compiler has made the type for a map. No record is of such a type."""


class MessageTypes(NamedTuple):
    """The message types of a file."""

    package: str
    types: list[MessageType]

    def name_at(self, path: Sequence[int]) -> str:
        """Return the full name of the type at a path. Raises ValueError if there is none.

        The types of maps count in a path, unless the schema of the writer was normalized.
        """
        name = self._name_at(path, skips_map_entries=False) or self._name_at(path, skips_map_entries=True)
        if name is None:
            raise ValueError(f"the schema of the record has no message type at {list(path)}")
        return name

    def _name_at(self, path: Sequence[int], *, skips_map_entries: bool) -> str | None:
        names = [self.package] if self.package else []
        types = self.types
        for index in path:
            if skips_map_entries:
                types = [message_type for message_type in types if not message_type.is_map_entry]
            if not 0 <= index < len(types) or types[index].is_map_entry:
                return None
            names.append(types[index].name)
            types = types[index].nested
        return ".".join(names)

    def path_of(self, name: str) -> list[int]:
        """Return the indexes, outermost first, of the type with this full name. Raises ValueError if there is none."""
        path: list[int] = []
        types = self.types
        rest = name.removeprefix(f"{self.package}.") if self.package else name
        for part in rest.split("."):
            index = next((number for number, message_type in enumerate(types) if message_type.name == part), None)
            if index is None:
                raise ValueError(f"the schema has no message type {name}")
            path.append(index)
            types = types[index].nested
        return path


def message_types(text: str) -> MessageTypes:
    """Return the message types of a schema of a registry."""
    try:
        serialized = base64.b64decode(text, validate=True)
        file = extra("google.protobuf.descriptor_pb2", "protobuf").FileDescriptorProto.FromString(serialized)
    except (binascii.Error, ValueError, extra("google.protobuf.message", "protobuf").DecodeError):
        return _of_text(text)
    return MessageTypes(file.package, list(map(_of_descriptor, file.message_type)))


def _of_descriptor(descriptor: Any) -> MessageType:
    nested = list(map(_of_descriptor, descriptor.nested_type))
    return MessageType(descriptor.name, nested, descriptor.options.map_entry)


def _of_text(text: str) -> MessageTypes:
    """Find the types in a file's text. A block that is no message, such as an enum or an option, has none."""
    tokens = [token for token in _TOKEN.findall(text) if not token.startswith(_SKIPPED)]
    package = ""
    types: list[MessageType] = []
    blocks: list[list[MessageType] | None] = [types]
    for number, token in enumerate(tokens):
        scope = blocks[-1]
        if token == "{":
            # ``message Order {``; a field may be called "message", but no brace follows its name.
            is_message = scope is not None and number >= 2 and tokens[number - 2] == "message"
            if is_message and scope is not None:
                scope.append(MessageType(tokens[number - 1], []))
                blocks.append(scope[-1].nested)
            else:
                blocks.append(None)
        elif token == "}" and len(blocks) > 1:
            blocks.pop()
        elif token == "package" and len(blocks) == 1 and number + 1 < len(tokens):
            package = tokens[number + 1]
    return MessageTypes(package, types)
