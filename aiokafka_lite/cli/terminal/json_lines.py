"""Records as lines of JSON: ``consume --json`` prints them, and ``produce --json-in`` reads them. Pure.

Bytes that are UTF-8 are text. Other bytes are base64, in a member whose name ends with ``_base64``. When records are
read from lines, a key or a value may also be an object, a list or a number: its JSON is written. Headers may also be an
object of names and values.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ...arguments import must_be
from ...errors import SerializationError
from ...schemas.json_values import on_one_line
from ...types import Header

if TYPE_CHECKING:
    from ...consumer.columns import Batch
    from .decoding import Columns, Decoded

_WRITTEN = ("key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp")
_MEMBERS = {*_WRITTEN, "topic", "offset", "timestamp_type", "key_schema", "value_schema"}
"""The members of a record. The last five belong to the record that was read, and are not written."""


class JsonRecord(NamedTuple):
    """A record to write. Without a partition, the partitioner chooses. Without a timestamp, the send sets it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    partition: int | None
    timestamp: int | None


def to_json_lines(batch: Batch, decoded: Columns | None = None) -> bytes:
    """Write the records of a batch as JSON, each as an object on a line of its own.

    ``decoded`` has the keys and values that a registry has decoded.
    """
    keys, values = (batch.keys, batch.values) if decoded is None else decoded
    return b"".join(
        on_one_line(
            {
                "topic": batch.topic,
                "partition": batch.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "timestamp_type": batch.timestamp_type.name.lower(),
                **_member("key", key),
                **_member("value", value),
                "headers": [{"key": header.key, **_text("value", header.value)} for header in record.headers],
            }
        )
        + b"\n"
        for record, key, value in zip(batch, keys, values)
    )


def _member(name: str, cell: Decoded | bytes | None) -> dict[str, object]:
    """Return a key or value; a decoded one as it is, with the id of its schema."""
    if cell is None or isinstance(cell, bytes):
        return {**_text(name, cell)}
    return {name: cell.value, f"{name}_schema": cell.schema}


def _text(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return ``name`` with the text, or ``name_base64`` if the bytes are not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}


def from_json_line(line: bytes, as_json: Container[str] = ()) -> JsonRecord:
    """Parse the record of a line. A text of ``key`` or ``value`` stays JSON if ``as_json`` has this name.

    Raises SerializationError for a line that is not a record.
    """
    try:
        record = json.loads(line.decode("utf-8-sig"))  # json guesses the encoding of bytes
    except json.JSONDecodeError as error:
        raise SerializationError(f"must be a JSON object; character {error.pos + 1}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"must be a JSON object: {error}") from None
    if not isinstance(record, dict):
        raise SerializationError(must_be("a line", "a JSON object", record))
    unknown = record.keys() - _MEMBERS
    if unknown:
        raise SerializationError(f"has the unknown member {min(unknown)!r}; it may have {', '.join(_WRITTEN)}")
    timestamp = _number(record, "timestamp")
    return JsonRecord(
        _bytes(record, "key", as_json="key" in as_json),
        _required(record, "a record", as_json="value" in as_json),
        tuple(map(_header, _headers(record))),
        _number(record, "partition"),
        None if timestamp == -1 else timestamp,
    )


def _headers(record: Mapping[str, object]) -> list[object]:
    headers = record.get("headers") or []
    if isinstance(headers, dict):
        return [{"key": name, "value": value} for name, value in headers.items()]
    if not isinstance(headers, list):
        raise SerializationError(must_be("headers", "an object, or a list of objects with key and value", headers))
    return headers


def _header(header: object) -> Header:
    name = header.get("key") if isinstance(header, dict) else None
    if not isinstance(header, dict) or not isinstance(name, str):
        raise SerializationError(must_be("a header", "an object with key and value", header))
    return Header(name, _required(header, "a header"))


def _required(members: Mapping[str, object], what: str, *, as_json: bool = False) -> bytes | None:
    if "value" not in members and "value_base64" not in members:
        raise SerializationError(f'{what} requires value or value_base64; write "value":null for a null')
    return _bytes(members, "value", as_json=as_json)


def _bytes(members: Mapping[str, object], name: str, *, as_json: bool = False) -> bytes | None:
    encoded = members.get(f"{name}_base64")
    text = members.get(name)
    if encoded is None:
        if text is None:
            return None
        return _encoded(name, text if isinstance(text, str) and not as_json else _json(name, text))
    if text is not None or not isinstance(encoded, str):
        raise SerializationError(must_be(f"{name}_base64", f"a string, without {name}", encoded))
    try:
        return b64decode(encoded, validate=True)
    except ValueError:
        raise SerializationError(must_be(f"{name}_base64", "base64", encoded)) from None


def _json(name: str, value: object) -> str:
    """Return the JSON of a value that is not text: an object, a list, a number or a boolean."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        raise SerializationError(f"{name} must have numbers that JSON allows, without NaN and Infinity") from None


def _encoded(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise SerializationError(must_be(name, "text without lone surrogates", text)) from None


def _number(members: Mapping[str, object], name: str) -> int | None:
    number = members.get(name)
    if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
        raise SerializationError(must_be(name, "a whole number", number))
    return number
