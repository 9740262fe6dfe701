"""Records as lines of JSON: ``consume --json`` prints them, and ``produce --json-in`` reads them. Pure.

Bytes that are UTF-8 are text. Other bytes are base64, in a member whose name ends with ``_base64``.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ...arguments import must_be
from ...errors import SerializationError
from ...types import Header

if TYPE_CHECKING:
    from ...consumer.columns import Batch

_WRITTEN = ("key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp")
_MEMBERS = {*_WRITTEN, "topic", "offset", "timestamp_type"}
"""The members of a record. The last three belong to the record that was read, and are not written."""


class JsonRecord(NamedTuple):
    """A record to write. Without a partition, the partitioner chooses. Without a timestamp, the send sets it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    partition: int | None
    timestamp: int | None


def to_json_lines(batch: Batch) -> bytes:
    """Write the records of a batch as JSON, each as an object on a line of its own."""
    return b"".join(
        json.dumps(
            {
                "topic": batch.topic,
                "partition": batch.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "timestamp_type": batch.timestamp_type.name.lower(),
                **_text("key", record.key),
                **_text("value", record.value),
                "headers": [{"key": header.key, **_text("value", header.value)} for header in record.headers],
            },
            ensure_ascii=False,
            separators=(",", ":"),
        ).encode()
        + b"\n"
        for record in batch
    )


def _text(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return ``name`` with the text, or ``name_base64`` if the bytes are not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}


def from_json_line(line: bytes) -> JsonRecord:
    """Parse the record of a line. Raises SerializationError for a line that is not a record."""
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
        _bytes(record, "key"),
        _required(record, "a record"),
        tuple(map(_header, _headers(record))),
        _number(record, "partition"),
        None if timestamp == -1 else timestamp,
    )


def _headers(record: Mapping[str, object]) -> list[object]:
    headers = record.get("headers") or []
    if not isinstance(headers, list):
        raise SerializationError(must_be("headers", "a list of objects with key and value", headers))
    return headers


def _header(header: object) -> Header:
    name = header.get("key") if isinstance(header, dict) else None
    if not isinstance(header, dict) or not isinstance(name, str):
        raise SerializationError(must_be("a header", "an object with key and value", header))
    return Header(name, _required(header, "a header"))


def _required(members: Mapping[str, object], what: str) -> bytes | None:
    if "value" not in members and "value_base64" not in members:
        raise SerializationError(f'{what} requires value or value_base64; write "value":null for a null')
    return _bytes(members, "value")


def _bytes(members: Mapping[str, object], name: str) -> bytes | None:
    encoded = members.get(f"{name}_base64")
    text = members.get(name)
    if encoded is None:
        if not isinstance(text, str | None):
            raise SerializationError(must_be(name, "a string or null", text))
        return None if text is None else _encoded(name, text)
    if text is not None or not isinstance(encoded, str):
        raise SerializationError(must_be(f"{name}_base64", f"a string, without {name}", encoded))
    try:
        return b64decode(encoded, validate=True)
    except ValueError:
        raise SerializationError(must_be(f"{name}_base64", "base64", encoded)) from None


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
