"""What a schema refers to: the imports of a Protobuf file, and the other documents of a JSON Schema.

A registry refuses a schema whose references do not resolve. It looks them up by the names of the references alone.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urldefrag, urljoin

_GOOGLE_PROTOBUF = (
    *("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type"),
    "wrappers",
)
_GOOGLE_TYPE = (
    *("calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction", "interval"),
    *("latlng", "money", "month", "phone_number", "postal_address", "quaternion", "timeofday"),
)
KNOWN_IMPORTS = frozenset(
    {
        *("confluent/meta.proto", "confluent/type/decimal.proto", "confluent/type/variant.proto"),
        *(f"google/protobuf/{name}.proto" for name in _GOOGLE_PROTOBUF),
        *(f"google/type/{name}.proto" for name in _GOOGLE_TYPE),
    }
)
"""The files that Confluent's registry has itself: ``KNOWN_DEPENDENCIES`` of its ``ProtobufSchema``."""

_COMMENT_OR_STRING = re.compile(r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
_IMPORT = re.compile(r"""\bimport\s+(?:public\s+|weak\s+)?(["'])(.*?)\1""")
_STATEMENTS = ("syntax", "edition", "package", "import", "option", "message", "enum", "service", "extend")
_DEPENDENCY = 3
"""The number of the field ``dependency`` in a FileDescriptorProto."""

_FIRST_DRAFTS = re.compile(r"https?://json-schema\.org/")


def check_imports(text: str, referenced: Iterable[str]) -> None:
    """Raise ValueError for a text that is no Protobuf file, and for an import that no reference has as its name."""
    missing = set(_imports(text)) - set(referenced) - KNOWN_IMPORTS
    if missing:
        raise ValueError(f"{min(missing)} is not found; the schema imports it, and no reference has this name")


def _imports(text: str) -> list[str]:
    try:
        descriptor = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return _imports_of_text(text)
    return [name.decode(errors="replace") for number, name in _fields(descriptor) if number == _DEPENDENCY]


def _imports_of_text(text: str) -> list[str]:
    imports: list[str] = []

    def keep(token: re.Match[str]) -> str:
        return " " if token[0].startswith("/") else token[0]

    without_comments = _COMMENT_OR_STRING.sub(keep, text)
    imports += [name for _, name in _IMPORT.findall(without_comments)]
    plain = _COMMENT_OR_STRING.sub(" ", text)
    if plain.count("{") != plain.count("}"):
        raise ValueError("the braces of the Protobuf file do not match")
    first = re.match(r"[\s;]*(\w*)", plain)
    if first is None or first[1] not in _STATEMENTS:
        raise ValueError("the text is no Protobuf file, and no descriptor in base64")
    return imports


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of a message of Protobuf that have a length. Raises ValueError."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == 0:
            _, at = _varint(message, at)
        elif kind == 2:
            size, at = _varint(message, at)
            if at + size > len(message):
                raise ValueError("the descriptor of the Protobuf file is cut short")
            yield tag >> 3, message[at : at + size]
            at += size
        else:
            raise ValueError("the text is no Protobuf file, and no descriptor in base64")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("the descriptor of the Protobuf file is cut short")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def check_documents(schema: Any, referenced: dict[str, Any]) -> None:
    """Raise ValueError for a ``$ref`` to another document that is no reference. ``referenced`` are all by name."""
    if not isinstance(schema, dict | bool):
        raise ValueError("a JSON Schema must be an object or a boolean")
    base = _id(schema)
    names = set(referenced) | {f"./{name}" for name in referenced}
    names |= {urljoin(base, name) for name in referenced}
    for document in (schema, *referenced.values()):
        names |= set(_ids(document, ""))
    for ref in _refs(schema):
        document = urldefrag(ref).url
        if not document or document in names or urljoin(base, document) in names or _FIRST_DRAFTS.match(document):
            continue
        raise ValueError(f"{document} is not found; a $ref needs it, and no reference has this name")


def _id(schema: Any) -> str:
    value = (schema.get("$id") or schema.get("id")) if isinstance(schema, dict) else None
    return urldefrag(value).url if isinstance(value, str) else ""


def _ids(schema: Any, base: str) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _ids(item, base)
    elif isinstance(schema, dict):
        own = _id(schema)
        if own:
            base = urljoin(base, own)
            yield from (own, base)
        for value in schema.values():
            yield from _ids(value, base)


def _refs(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _refs(item)
    elif isinstance(schema, dict):
        ref = schema.get("$ref")
        if isinstance(ref, str):
            yield ref
        for key, value in schema.items():
            if key not in ("enum", "const", "default", "examples"):
                yield from _refs(value)
