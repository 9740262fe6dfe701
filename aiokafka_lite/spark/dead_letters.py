"""Finds the rows that a topic cannot take, and makes dead letters of them (option ``deadLetterTopic``).

Rows are checked before they are sent. If a broker refused one, it would be too late for a transaction, which could only
be aborted. So a task asks once for the partitions and the limits of each topic.

A dead letter has the key, value and headers of the row, and says in headers why it was refused and where it came from.
The names of these headers are those of ``Workers``, so ``redrive`` can send dead letters back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
import pyarrow
import pyarrow.compute as compute

from ..admin import Admin, ConfigResource, ConfigResourceType
from ..arguments import plural
from ..errors import AuthorizationError, InvalidTopic, KafkaError, UnknownTopic, UnsupportedVersion
from ..processing.failed_records import LEFT_OUT, MESSAGE_LIMIT
from ..producer import Producer
from ..producer.record import largest_record, too_large
from ..protocol.records import HEADER_SIZE
from ..protocol.records.columns import Rows
from ..protocol.records.compression import compress
from ..types import Compression
from .options import with_option_names
from .routing import ORIGIN, REASON, TOPIC, by_topic, records_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Mask = NDArray[numpy.bool_]
    Sizes = NDArray[numpy.int64]

_Header = dict[str, Any]

ORIGIN_FIELDS = ("topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class _Rules:
    """What a topic takes. ``max_bytes`` is the limit of a batch after compression, None if it is not known."""

    partitions: int
    needs_key: bool = False
    max_bytes: int | None = None


class _Refused(NamedTuple):
    """Rows with all their columns, and the reason of each."""

    rows: pyarrow.RecordBatch
    error: str
    reasons: Sequence[str]


class DeadLetters:
    """Divides the rows of one task. Belongs to the loop.

    ``topic`` is the topic of all rows, None if the column ``topic`` names it.
    """

    def __init__(self, producer: Producer, admin: Admin, topic: str | None, dead_letter_topic: str) -> None:
        self._producer = producer
        self._admin = admin
        self._topic = topic
        self._dead_letter_topic = dead_letter_topic
        self._rules: dict[str, _Rules | KafkaError] = {}
        self._counted_again: set[str] = set()

    async def divide(self, rows: pyarrow.RecordBatch) -> list[tuple[str, pyarrow.RecordBatch]]:
        """Return the rows by topic; those that their topic refuses are records for the dead-letter topic.

        Raises UnknownTopic for the topic of all rows, AuthorizationError, and KafkaError for a dead letter that is too
        large even without its value.
        """
        refused: list[_Refused] = []
        rows = self._without_wrong_rows(rows, refused)
        divided: list[tuple[str, pyarrow.RecordBatch]] = []
        if rows.num_rows:
            parts = list(by_topic(self._topic, rows))
            rules = await asyncio.gather(*(self._rules_of(topic) for topic, _ in parts))
            for (topic, part), rule in zip(parts, rules, strict=True):
                accepted_rows = await self._accepted(topic, part, rule, refused)
                if accepted_rows.num_rows:
                    divided.append((topic, accepted_rows))
        if refused:
            divided += [(self._dead_letter_topic, await self._letters(part)) for part in refused]
        return divided

    def _without_wrong_rows(self, rows: pyarrow.RecordBatch, refused: list[_Refused]) -> pyarrow.RecordBatch:
        """Remove the rows that no topic takes."""
        if REASON in rows.schema.names:
            marked = rows.column(REASON).is_valid()
            rows = _split(rows, marked, refused, "MarkedByQuery", lambda letters: letters.column(REASON).to_pylist())
        if self._topic is None:
            absent = rows.column(TOPIC).is_null()
            rows = _split(rows, absent, refused, "SerializationError", _same("column topic is null"))
        if "headers" in rows.schema.names:
            text = "a header, or the key of a header, is null"
            rows = _split(rows, _wrong_headers(rows), refused, "SerializationError", _same(text))
        return rows

    async def _accepted(
        self, topic: str, rows: pyarrow.RecordBatch, rules: _Rules | KafkaError, refused: list[_Refused]
    ) -> pyarrow.RecordBatch:
        """Remove the rows that this topic refuses."""
        if isinstance(rules, KafkaError):
            return _split(rows, _all(rows), refused, type(rules).__name__, _same(str(rules)))
        if "partition" in rows.schema.names and _unknown(rows, rules.partitions).any():
            rules = await self._counted(topic, rules)
            last = rules.partitions - 1
            text = f"topic {topic!r} has partitions 0 to {last}, got partition="
            rows = _split(
                *(rows, _unknown(rows, rules.partitions), refused, "UnknownTopic"),
                lambda unknown: [f"{text}{number}" for number in unknown.column("partition").to_pylist()],
            )
        if rules.needs_key:
            keyless = rows.column("key").is_null() if "key" in rows.schema.names else _all(rows)
            text = f"topic {topic!r} is compacted, and the row has no key"
            rows = _split(rows, keyless, refused, "BrokerError", _same(text))
        return self._fitting(topic, rows, rules, refused) if rows.num_rows else rows

    def _fitting(
        self, topic: str, rows: pyarrow.RecordBatch, rules: _Rules, refused: list[_Refused]
    ) -> pyarrow.RecordBatch:
        """Remove the rows that are too large for the producer or for this topic."""
        sizes, mask = self._too_large(topic, records_of(rows), rules.max_bytes)
        texts = [self._complaint(topic, size, rules.max_bytes) for size in sizes[mask].tolist()]
        return _split(rows, mask, refused, "RecordTooLarge", lambda _: texts)

    def _too_large(self, topic: str, records: pyarrow.RecordBatch, max_bytes: int | None) -> tuple[Sizes, Mask]:
        """Return the bytes of records, and which of them are too large for the producer or for their topic.

        The producer's limits are before compression. ``max_bytes``, the limit of the topic, is after it.
        """
        sizes: Sizes = Rows(topic, records, 0).sizes()
        mask: Mask = sizes > largest_record(self._producer.config)
        if max_bytes is not None:
            for index in numpy.flatnonzero((sizes + HEADER_SIZE > max_bytes) & ~mask):
                stored = self._stored_size(topic, records.slice(int(index), 1), int(sizes[index]))
                mask[index] = HEADER_SIZE + stored > max_bytes
        return sizes, mask

    def _stored_size(self, topic: str, record: pyarrow.RecordBatch, size: int) -> int:
        """Return the bytes of a record after compression."""
        compression = self._producer.config.compression
        assert isinstance(compression, Compression), "the settings have converted its name"
        if compression is Compression.NONE:
            return size
        encoded = Rows(topic, record, 0).encode(0, 1)
        return len(compress(compression, encoded.records, self._producer.config.compression_level))

    def _complaint(self, topic: str, size: int, max_bytes: int | None) -> str:
        """Return why a record of this size is too large."""
        if size > largest_record(self._producer.config):
            return with_option_names(str(too_large(self._producer.config, topic, size)))
        return f"a record of {size + HEADER_SIZE} bytes for topic {topic!r} is above its max.message.bytes={max_bytes}"

    # Topics.

    async def _rules_of(self, topic: str) -> _Rules | KafkaError:
        """Look up what a topic takes, once for each task. A topic that does not exist is the error to report."""
        if topic not in self._rules:
            self._rules[topic] = await self._look_up(topic)
        return self._rules[topic]

    async def _look_up(self, topic: str) -> _Rules | KafkaError:
        try:
            partitions = len(await self._producer.partitions_for(topic))
        except (UnknownTopic, InvalidTopic) as error:
            if topic in (self._topic, self._dead_letter_topic):
                raise  # a wrong option, and no wrong row
            return error
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        try:
            answer = await self._admin.configs.describe(resource, names=("cleanup.policy", "max.message.bytes"))
            settings = answer[resource]
        except (AuthorizationError, UnsupportedVersion):
            return _Rules(partitions)  # a broker refuses a row that breaks a rule, and the task fails
        values = {name: setting.value or "" for name, setting in settings.items()}
        limit = values.get("max.message.bytes")
        return _Rules(partitions, "compact" in values.get("cleanup.policy", ""), int(limit) if limit else None)

    async def _counted(self, topic: str, rules: _Rules) -> _Rules:
        """Count the partitions of a topic again, once for each task: it may have got more."""
        if topic not in self._counted_again:
            self._counted_again.add(topic)
            description = (await self._admin.topics.describe(topic))[topic]
            rules = _Rules(max(rules.partitions, len(description.partitions)), rules.needs_key, rules.max_bytes)
            self._rules[topic] = rules
        return rules

    # Dead letters.

    async def _letters(self, refused: _Refused) -> pyarrow.RecordBatch:
        """Make the records for the dead-letter topic. A value that is too large for it is left out."""
        rules = await self._rules_of(self._dead_letter_topic)
        assert isinstance(rules, _Rules), "a missing dead-letter topic is an error"
        letters = _records(refused, self._topic is not None)
        _, mask = self._too_large(self._dead_letter_topic, letters, rules.max_bytes)
        if not mask.any():
            return letters
        records = letters.to_pylist()
        for index in numpy.flatnonzero(mask).tolist():
            record = records[index]
            value = plural(len(record["value"] or b""), "byte")
            record["headers"].append({"key": LEFT_OUT, "value": f"value of {value}".encode()})
            record["value"] = None
        shortened = pyarrow.RecordBatch.from_pylist(records, letters.schema)
        sizes, mask = self._too_large(self._dead_letter_topic, shortened, rules.max_bytes)
        if mask.any():
            complaint = self._complaint(self._dead_letter_topic, int(sizes[mask].max()), rules.max_bytes)
            raise KafkaError(
                f"a dead letter is too large for the dead-letter topic {self._dead_letter_topic!r}, even without its "
                f"value: {complaint}; increase this limit ({refused.reasons[0]})"
            )
        return shortened


_RECORDS = pyarrow.schema(
    [
        ("key", pyarrow.binary()),
        ("value", pyarrow.binary()),
        ("headers", pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))),
    ]
)


def _records(refused: _Refused, has_own_topic: bool) -> pyarrow.RecordBatch:
    """Return the records of refused rows, with their reason and their origin in headers."""
    columns = {
        name: refused.rows.column(name).to_pylist() for name in refused.rows.schema.names if name in _RECORDS.names
    }
    nothing = [None] * refused.rows.num_rows
    headers = [
        _with_reason(row_headers or (), refused.error, reason, origin)
        for row_headers, reason, origin in zip(
            columns.get("headers", nothing), refused.reasons, _origins(refused.rows, has_own_topic), strict=True
        )
    ]
    keys, values = (map(_as_bytes, columns.get(name, nothing)) for name in ("key", "value"))
    return pyarrow.record_batch([list(keys), list(values), headers], schema=_RECORDS)


def _with_reason(
    headers: Sequence[_Header | None], error: str, reason: str, origin: Mapping[str, object]
) -> list[_Header]:
    present = [header for header in headers if header is not None and header["key"] is not None]
    text = reason if len(reason) <= MESSAGE_LIMIT else f"{reason[:MESSAGE_LIMIT]}…"
    added = {"error.class": error, "error.message": text}
    # A row that has been a dead letter before keeps its first origin.
    if not any(header["key"] == "origin.topic" for header in present):
        added |= {f"origin.{name}": str(value) for name, value in origin.items() if value is not None}
    kept = [header for header in present if header["key"] not in added]
    return kept + [{"key": name, "value": value.encode(errors="backslashreplace")} for name, value in added.items()]


def _origins(rows: pyarrow.RecordBatch, has_own_topic: bool) -> list[dict[str, object]]:
    """Return the place that each row comes from.

    Without the column ``ORIGIN``, the source's own columns have it, if they do not name the topic to write to.
    """
    names = rows.schema.names
    if ORIGIN in names:
        column = rows.column(ORIGIN)
        fields = {
            name: compute.struct_field(column, name) for name in ORIGIN_FIELDS if column.type.get_field_index(name) >= 0
        }
    elif has_own_topic and {TOPIC, "partition", "offset"}.issubset(names):
        fields = {name: rows.column(name) for name in ORIGIN_FIELDS if name in names}
    else:
        return [{}] * rows.num_rows
    if "timestamp" in fields:
        times = fields["timestamp"]
        fields["timestamp"] = (
            compute.floor_temporal(times, unit="millisecond")
            .cast(pyarrow.timestamp("ms", times.type.tz))
            .cast(pyarrow.int64())
        )
    places: list[dict[str, object]] = pyarrow.record_batch(fields).to_pylist()
    return places


def _as_bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


# Masks of rows.


def _split(
    rows: pyarrow.RecordBatch,
    mask: Any,
    refused: list[_Refused],
    error: str,
    reasons: Callable[[pyarrow.RecordBatch], Sequence[str]],
) -> pyarrow.RecordBatch:
    """Move the rows of a mask to ``refused``, and return the others."""
    mask = pyarrow.array(mask)
    if compute.any(mask).as_py() is not True:
        return rows
    moved = rows.filter(mask)
    refused.append(_Refused(moved, error, reasons(moved)))
    return rows.filter(compute.invert(mask))


def _same(text: str) -> Callable[[pyarrow.RecordBatch], Sequence[str]]:
    return lambda rows: [text] * rows.num_rows


def _all(rows: pyarrow.RecordBatch) -> Mask:
    return numpy.ones(rows.num_rows, bool)


def _unknown(rows: pyarrow.RecordBatch, partitions: int) -> Mask:
    numbers = rows.column("partition").fill_null(0).to_numpy(zero_copy_only=False)
    unknown: Mask = (numbers < 0) | (numbers >= partitions)
    return unknown


def _wrong_headers(rows: pyarrow.RecordBatch) -> Mask:
    column = rows.column("headers")
    wrong = numpy.zeros(rows.num_rows, bool)
    headers = column.flatten()
    keys = compute.struct_field(headers, "key")  # null where the header is
    if keys.null_count:
        is_wrong = keys.is_null()
        wrong[compute.list_parent_indices(column).filter(is_wrong).to_numpy(zero_copy_only=False)] = True
    return wrong
