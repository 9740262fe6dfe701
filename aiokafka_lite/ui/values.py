"""Keys and values as the page shows them, through a schema registry if there is one."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

from ..errors import KafkaError
from ..schemas.json_forms import JsonForms, schema_name
from ..schemas.schema import Part
from ..types import Record

LONGEST = 20_000
"""The most characters of a key or value in a list of records. The page says how many bytes there are."""


def shown(data: bytes | None) -> dict[str, Any]:
    """Return text with its form: ``json`` (indented), ``text``, ``hex`` for other bytes, or ``null``."""
    if data is None:
        return {"form": "null", "text": "null", "bytes": 0}
    form, text = "hex", ""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data[:LONGEST].hex(" ")
    else:
        form, text = _as_json(text, LONGEST)
    return {"form": form, "text": text[:LONGEST], "bytes": len(data), "cut": len(text) > LONGEST}


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')
_INDENT = 2


def _as_json(text: str, most: int) -> tuple[str, str]:
    """Return the form, and JSON with indentation, of which ``most`` characters and a few more are sufficient."""
    if not text[:1] or text[0] not in '{["-0123456789tfn':
        return "text", text
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return "text", text
    pieces: list[str] = []
    size = 0
    for piece in _pieces(text):
        pieces.append(piece)
        size += len(piece)
        if size > most:
            break
    return "json", "".join(pieces)


def _pieces(text: str) -> Iterator[str]:
    """Yield correct JSON with other white space. Python's own values would change numbers and lose repeated names."""
    depth, before = 0, ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in ("}", "]"):
            depth -= 1
        is_empty = before + token in ("{}", "[]")
        if not is_empty and (before in ("{", "[", ",") or token in ("}", "]")):
            yield "\n" + " " * (_INDENT * depth)
        yield ": " if token == ":" else _readable(token)
        if token in ("{", "["):
            depth += 1
        before = token


def _readable(token: str) -> str:
    """Return a token with characters in place of their escapes, except for half a character, which is no text."""
    if "\\u" not in token:
        return token
    text = json.dumps(json.loads(token), ensure_ascii=False)
    return text if _is_text(text) else token


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


async def record_shown(record: Record[bytes, bytes], forms: JsonForms | None) -> dict[str, Any]:
    """Return a record for the page."""
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": await _decoded(record, "key", record.key, forms),
        "value": await _decoded(record, "value", record.value, forms),
        "headers": [{"name": header.key, "value": shown(header.value)} for header in record.headers],
    }


async def _decoded(
    record: Record[bytes, bytes], part: Part, data: bytes | None, forms: JsonForms | None
) -> dict[str, Any]:
    """Return a key or value, decoded if it has the id of a schema, or as it is with the reason if that fails."""
    if forms is None or data is None:
        return shown(data)
    try:
        name = schema_name(part, data, record.headers)
    except ValueError:
        return shown(data)
    try:
        value = await forms.read(record.topic, part, data, record.headers)
    except (KafkaError, ValueError) as error:
        return {**shown(data), "note": f"schema {name}: {error}"}
    text = json.dumps(value, ensure_ascii=False, indent=_INDENT)
    if not _is_text(text):
        text = json.dumps(value, indent=_INDENT)
    form = f"schema {name}"
    return {"form": form, "text": text[:LONGEST], "bytes": len(data), "cut": len(text) > LONGEST, "note": form}


def indented(text: str) -> str:
    """Return the text of a schema, indented if it is JSON."""
    return _as_json(text, sys.maxsize)[1]


def contains(record: Record[bytes, bytes], text: bytes) -> bool:
    """Return whether the key, the value or a header contains the text."""
    parts = (record.key, record.value, *(header.value for header in record.headers))
    return any(part is not None and text in part for part in parts)
