"""SQL on topics: ``to_duckdb`` copies a range of topics into tables of DuckDB. Needs the extra ``sql``.

Records travel as Arrow columns, and DuckDB parses their JSON, on all cores: no Python object is made for a record.
A table has a column for each field of the values, and these columns of the record: ``_key`` and ``_value`` as text
(null if they are not UTF-8), ``_partition``, ``_offset`` and ``_timestamp``. A field with such a name, or with the name
of another field but for its case, has another name as a column, such as ``_offset_1``; a warning is logged.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from .arguments import is_whole, must_be, several, text
from .consumer import Consumer
from .errors import ConfigurationError, KafkaError, harmless
from .extras import extra
from .types import TopicPartition

if TYPE_CHECKING:
    import duckdb
    import pyarrow

    from .schemas.json_forms import JsonForms

logger = logging.getLogger(__name__)

T = TypeVar("T")

Bound = int | datetime | None
"""An offset, a negative number of offsets before the end, or the time of the first record; None for all there is."""

Decode = Callable[[str, Any], Awaitable[Any]]
"""Takes a topic and a record batch of Arrow, and returns it with JSON for keys and values."""

_ROWS = 50_000
_LOOK_AGAIN = 0.1
"""Seconds without records after which positions are compared with the end: the last offsets may have no record."""
_COLUMNS = ("key", "value", "partition", "offset", "timestamp")
_OF_RECORDS = ("_key", "_value", "_partition", "_offset", "_timestamp")
_LONGEST_NAME = 100
_STRUCTURE = """
    select json_structure(to_json(list(example order by place)))->>0
    from (
        select any_value(_json) as example, min(rowid) as place
        from _parsed where _json is not null group by json_structure(_json)
    )
"""
"""The structure that all values have in common. ``json_group_structure`` does the same with all values, of which it
makes one document: its memory grows with the topic. Here the document has one value of each structure.
"""


@dataclass(frozen=True, slots=True)
class TopicRange:
    """The part of a topic to copy: from ``start`` to before ``end``, in the given partitions or in all."""

    topic: str
    start: Bound = None
    end: Bound = None
    partitions: Collection[int] | None = None

    def __post_init__(self) -> None:
        text("topic", self.topic)
        for name, bound in (("start", self.start), ("end", self.end)):
            if isinstance(bound, datetime):
                if bound.utcoffset() is None:
                    raise ConfigurationError(must_be(name, "an offset, or a datetime with a time zone", bound))
            elif bound is not None and (not is_whole(bound) or (name == "end" and bound < 0)):
                raise ConfigurationError(must_be(name, "an offset, or a datetime with a time zone", bound))


async def to_duckdb(
    consumer: Consumer[bytes, bytes],
    topics: str | TopicRange | Iterable[str | TopicRange],
    *,
    connection: duckdb.DuckDBPyConnection | None = None,
    decode: Decode | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> duckdb.DuckDBPyConnection:
    """Copy topics into tables with their names, and return the DuckDB that has them.

    ``consumer`` is one of your own that runs, has no group and no deserializers; its assignment changes. The copy ends
    at the end that each partition has when it begins, or before. ``connection`` is a DuckDB of yours; by default a new
    one in memory. A table that exists is replaced. ``decode`` replaces keys and values by JSON; see ``decoded_by``.
    ``progress`` is called with the numbers of offsets that are read, and of all.

    Raises ConfigurationError for wrong arguments, for two ranges of one topic, and without the extra ``sql``,
    UnknownTopic, AuthorizationError, KafkaTimeout, and KafkaError for a table that DuckDB refuses. May be cancelled;
    then tables may be missing.
    """
    duck = extra("duckdb", "sql")
    extra("pyarrow")
    ranges = _ranges([topics] if isinstance(topics, str | TopicRange) else several(topics, "topics"))
    database = duck.connect() if connection is None else connection
    reader = _RangeReader(consumer, progress)
    plans = [await reader.plan(topic_range) for topic_range in ranges]
    # A cursor of its own, because the caller's connection may have a result that is not fetched yet.
    with database.cursor() as cursor:
        for topic, starts, ends in plans:
            table = await reader.read(topic, starts, ends, decode)
            await run_in_thread(cursor, partial(_create, cursor, topic, table))
    return database


def _ranges(topics: Iterable[str | TopicRange]) -> list[TopicRange]:
    """Return one range for each table. Raises ConfigurationError for topics that would be the same table."""
    tables: dict[str, TopicRange] = {}
    for topic in topics:
        topic_range = topic if isinstance(topic, TopicRange) else TopicRange(topic)
        other = tables.setdefault(topic_range.topic.casefold(), topic_range)
        if other.topic != topic_range.topic:
            raise ConfigurationError(
                f"topics {other.topic!r} and {topic_range.topic!r} cannot be copied together: to DuckDB, their names"
                " are one"
            )
        if other != topic_range:
            raise ConfigurationError(
                f"topic {topic_range.topic!r} cannot be copied in two ranges: its table would have only one of them"
            )
    return list(tables.values())


async def run_in_thread(database: duckdb.DuckDBPyConnection, function: Callable[[], T]) -> T:
    """Run a call of DuckDB in a thread. A cancellation interrupts DuckDB. Raises KafkaError for its errors."""
    duck = extra("duckdb", "sql")
    result = asyncio.get_running_loop().run_in_executor(None, function)
    try:
        return await asyncio.shield(result)
    except asyncio.CancelledError:
        database.interrupt()
        await asyncio.wait([result])
        result.exception()  # the caller wants the cancellation, and not the error of the interruption
        raise
    except duck.Error as error:
        raise KafkaError(str(error)) from error


def decoded_by(forms: JsonForms) -> Decode:
    """Return the ``decode`` of ``to_duckdb`` for ``JsonForms``: a registry decodes keys and values.

    What has no schema, or cannot be decoded, stays as it is. Errors of the registry are raised.
    """
    from .errors import SchemaRegistryError

    async def cell(topic: str, part: Any, data: bytes | None) -> bytes | None:
        if data is None or data[:1] not in (b"\0", b"\1"):
            return data
        try:
            return json.dumps(await forms.read(topic, part, data, ()), ensure_ascii=False).encode()
        except SchemaRegistryError as error:
            if error.status != 404:
                raise
            return data
        except (ConfigurationError, ValueError):
            return data

    async def decode(topic: str, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        pa = extra("pyarrow")
        for part in ("key", "value"):
            index = batch.schema.get_field_index(part)
            cells = [await cell(topic, part, data) for data in batch.column(index).to_pylist()]
            batch = batch.set_column(index, part, pa.array(cells, pa.binary()))
        return batch

    return decode


def tables_of(query: str) -> list[str]:
    """Return the tables that a query reads, without those that it defines itself. Raises ConfigurationError.

    The error for a mistake shows its place.
    """
    duck = extra("duckdb", "sql")
    with duck.connect() as database:
        (text,) = database.execute("select json_serialize_sql(?)", [query]).fetchone()
    parsed = json.loads(text)
    if parsed["error"]:
        raise wrong_query(query, parsed)
    return list(dict.fromkeys(_tables(parsed, frozenset())))


def wrong_query(query: str, problem: Mapping[str, Any]) -> ConfigurationError:
    """Return the error for a query that DuckDB cannot parse, with a mark before the place of the mistake."""
    position = problem.get("position")
    place = ""
    if isinstance(position, str) and position.isdecimal():
        content = query.encode()
        at = min(int(position), len(content))
        place = f"; here: {content[:at].decode(errors='replace')} >>>{content[at:].decode(errors='replace')}"
    return ConfigurationError(f"the query is wrong: {problem.get('error_message', 'it cannot be parsed')}{place}")


def _tables(value: object, defined: frozenset[str]) -> Iterator[str]:
    """Yield the tables in a part of a parsed query. ``defined`` are the names that hide tables there."""
    if isinstance(value, list):
        for item in value:
            yield from _tables(item, defined)
    if not isinstance(value, dict):
        return
    if value.get("type") == "BASE_TABLE":
        parts = [value.get("catalog_name"), value.get("schema_name"), value.get("table_name")]
        names = [part for part in parts if part]
        if len(names) != 1 or names[0].lower() not in defined:
            yield ".".join(names)
    if value.get("type") == "RECURSIVE_CTE_NODE":
        defined |= {value["cte_name"].lower()}
    for entry in (value.get("cte_map") or {}).get("map", ()):
        # A definition is hidden from itself and from those before it: there its name is a table.
        yield from _tables(entry["value"], defined)
        defined |= {entry["key"].lower()}
    for name, item in value.items():
        if name != "cte_map":
            yield from _tables(item, defined)


Plan = tuple[str, dict[TopicPartition, int], dict[TopicPartition, int]]
"""A topic, and the offsets where its partitions begin and end."""


class _RangeReader:
    """Reads ranges of topics as Arrow tables. Owner: ``to_duckdb``."""

    def __init__(self, consumer: Consumer[bytes, bytes], progress: Callable[[int, int], object] | None) -> None:
        self._consumer = consumer
        self._progress = progress
        self._total = 0
        self._read = 0

    async def plan(self, topic_range: TopicRange) -> Plan:
        """Look up where the partitions begin and end."""
        consumer, topic = self._consumer, topic_range.topic
        numbers = topic_range.partitions
        if numbers is None:
            numbers = [info.partition for info in await consumer.partitions_for(topic)]
        partitions = [TopicPartition(topic, number) for number in numbers]
        firsts = await consumer.beginning_offsets(partitions)
        lasts = await consumer.end_offsets(partitions)
        starts = {
            partition: max(firsts[partition], offset)
            for partition, offset in (await self._bound(topic_range.start, firsts, lasts)).items()
        }
        ends = {
            partition: min(lasts[partition], offset)
            for partition, offset in (await self._bound(topic_range.end, lasts, lasts)).items()
        }
        self._total += sum(max(0, ends[partition] - starts[partition]) for partition in partitions)
        return topic, starts, ends

    async def _bound(
        self, bound: Bound, default: Mapping[TopicPartition, int], lasts: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        if bound is None:
            return default
        if isinstance(bound, datetime):
            moment = max(0, round(bound.timestamp() * 1000))  # no record is older than the epoch
            times = await self._consumer.offsets_for_times(dict.fromkeys(lasts, moment))
            return {partition: lasts[partition] if at is None else at.offset for partition, at in times.items()}
        return {partition: last + bound if bound < 0 else bound for partition, last in lasts.items()}

    async def read(
        self,
        topic: str,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        decode: Decode | None,
    ) -> pyarrow.Table:
        """Read the records from ``starts`` to before ``ends``."""
        pa = extra("pyarrow")
        consumer = self._consumer
        pending = {partition for partition, end in ends.items() if starts[partition] < end}
        consumer.assign(list(pending))
        consumer.resume(list(pending))  # a partition that was assigned before keeps its pause
        for partition in pending:
            consumer.seek(partition, starts[partition])
        tables: list[pyarrow.Table] = [_empty()]
        batches = consumer.batches(_ROWS).to_arrow(_COLUMNS) if pending else None
        before = self._read
        while pending and batches is not None:
            batch = None
            with anyio.move_on_after(_LOOK_AGAIN):
                batch = await anext(batches)
            if batch is not None:
                batch = _before(batch, topic, ends)
                tables.append(pa.Table.from_batches([batch if decode is None else await decode(topic, batch)]))
            positions = {partition: await consumer.position(partition) for partition in pending}
            for partition, position in positions.items():
                if position >= ends[partition]:
                    consumer.pause([partition])
                    pending.discard(partition)
            self._read = before + sum(
                min(positions.get(partition, end), end) - starts[partition]
                for partition, end in ends.items()
                if starts[partition] < end
            )
            if self._progress is not None:
                self._progress(self._read, self._total)
        return pa.concat_tables(tables)


def _empty() -> pyarrow.Table:
    pa = extra("pyarrow")
    types = (pa.binary(), pa.binary(), pa.int32(), pa.int64(), pa.timestamp("us", tz="UTC"))
    return pa.table({name: pa.array([], kind) for name, kind in zip(_COLUMNS, types)})


def _before(batch: pyarrow.RecordBatch, topic: str, ends: Mapping[TopicPartition, int]) -> pyarrow.RecordBatch:
    """Drop the records at or after the ends of their partitions."""
    np, pa = extra("numpy"), extra("pyarrow")
    partitions = batch.column("partition").to_numpy(zero_copy_only=False)
    offsets = batch.column("offset").to_numpy(zero_copy_only=False)
    kept = np.ones(len(offsets), dtype=bool)
    for number in np.unique(partitions):
        kept &= (partitions != number) | (offsets < ends[TopicPartition(topic, int(number))])
    return batch if kept.all() else batch.filter(pa.array(kept))


def _create(database: duckdb.DuckDBPyConnection, topic: str, table: pyarrow.Table) -> None:
    """Make the table of a topic: a column for each field of the values that are JSON objects."""
    name = _quoted(topic)
    fields = """
        case when json_valid(_value) and json_type(_value) = 'OBJECT' then _value::json end as _json
    """
    database.register("_records", table)
    try:
        database.execute(
            "create or replace temp table _parsed as select *," + fields + "from (select try(decode(key)) as _key,"
            ' try(decode(value)) as _value, partition as _partition, "offset" as _offset, timestamp as _timestamp'
            " from _records)"
        )
        ((structure,),) = database.execute(_STRUCTURE).fetchall()
        rest = ", ".join(_OF_RECORDS)
        create = f"create or replace table {name} as select "
        if structure is None or not structure.startswith("{") or structure == "{}":
            database.execute(f"{create}{rest} from _parsed")
            return
        structures, columns = _fields_of(topic, structure)
        parts = "".join(f"json_transform(_json, $part{number}) as _part{number}, " for number in range(len(structures)))
        selected = "".join(f"{expression}, " for expression in columns)
        database.execute(
            f"{create}{selected}{rest} from (select {parts}{rest} from _parsed)",
            {f"part{number}": text for number, text in enumerate(structures)},
        )
    finally:
        database.unregister("_records")
        database.execute("drop table if exists _parsed")


def _fields_of(topic: str, structure: str) -> tuple[list[str], list[str]]:
    """Return structures for ``json_transform``, and the columns that are made of the results.

    DuckDB does not tell "id" from "ID", but JSON does: what collides is in a structure of its own, and gets another
    name as a column. The columns of the record keep their names.
    """
    try:
        fields = json.loads(structure)
        kinds = {field: _kind(kind) for field, kind in fields.items()}
    except RecursionError:  # DuckDB takes deeper values than Python
        return [structure.replace('"UBIGINT"', '"HUGEINT"')], ["unnest(_part0)"]
    reserved = {_lower(field) for field in fields} | {_lower(column) for column in _OF_RECORDS}
    used = {_lower(column) for column in _OF_RECORDS}
    parts: list[dict[str, Any]] = []
    counts: dict[bytes, int] = {}
    columns: list[str] = []
    for field, kind in kinds.items():
        if not field:
            logger.warning("table %s has no column for the field without a name; _value has it", topic)
            continue
        part = counts.get(_lower(field), 0)
        counts[_lower(field)] = part + 1
        if part == len(parts):
            parts.append({})
        parts[part][field] = kind
        column, suffix = field, 1
        if _lower(field) in used:
            while _lower(column) in reserved:
                column, suffix = f"{field}_{suffix}", suffix + 1
            shown, new = harmless(field, _LONGEST_NAME), harmless(column, _LONGEST_NAME)
            logger.warning("table %s has the field %s as the column %s: the name is in use", topic, shown, new)
        used.add(_lower(column))
        reserved.add(_lower(column))
        text = field.replace("'", "''")
        columns.append(f"struct_extract(_part{part}, '{text}') as {_quoted(column)}")
    return [json.dumps(part, ensure_ascii=False) for part in parts], columns


def _kind(kind: Any) -> Any:
    """Return a type of a structure as it is used. An object with names that DuckDB does not take stays JSON."""
    if isinstance(kind, dict):
        if "" in kind or len({_lower(field) for field in kind}) < len(kind):
            return "JSON"
        return {field: _kind(item) for field, item in kind.items()}
    if isinstance(kind, list):
        return [_kind(item) for item in kind]
    # DuckDB infers unsigned numbers, with which "id - 10" may fail. HUGEINT has a sign, and room for all of them.
    return "HUGEINT" if kind == "UBIGINT" else kind


def _lower(name: str) -> bytes:
    """Return a name in the form by which DuckDB compares: without the case of ASCII letters."""
    return name.encode(errors="surrogatepass").lower()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
