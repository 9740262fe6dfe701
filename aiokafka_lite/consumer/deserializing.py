"""Returns records with deserialized keys and values.

A record counts as delivered only when both of its parts are deserialized. So a cancelled read loses nothing. A record
that cannot be deserialized stays the next one until ``on_deserialization_error`` or a seek decides about it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Literal, Protocol

import anyio

from ..arguments import must_be
from ..errors import ConfigurationError, DeserializationError
from ..serialization.deserializer import Deserializer, RecordDeserializing, concerns_record
from ..types import Header, Record, TopicPartition
from .chunk import Chunk
from .columns import records_of
from .partition import AssignedPartition

logger = logging.getLogger(__name__)

AHEAD = 100
"""The number of records that are deserialized ahead for a reader that takes them one by one."""

AnyRecord = Record[Any, Any]
OnDeserializationError = (
    Literal["raise", "skip", "raw"]
    | Callable[[DeserializationError, Record], AnyRecord | None]
    | Callable[[DeserializationError, Record], Awaitable[AnyRecord | None]]
)
"""The treatment of a record that cannot be deserialized.

``"raise"`` raises DeserializationError, again with each read, until the user seeks past the record. ``"skip"`` skips
the record with a warning. ``"raw"`` returns it as bytes. A function gets the error and the record as bytes. It returns
the record for the program, or None to skip it. It may be async, and the read raises its exceptions. Errors that do not
concern the record are raised also with ``"skip"`` and ``"raw"``. Examples are a schema registry that does not answer or
refuses the credentials, and a closed client.
"""


class Source(Protocol):
    """The source of the records: a ``Reader``, or a ``ClaimReader``."""

    def peek(self, only: Collection[TopicPartition] | None = None) -> tuple[AssignedPartition, Chunk] | None:
        """Return the next records, of these partitions if given, without taking them. Raises KafkaError."""

    def iterate_with(self, chunk: Chunk, keys: Sequence[object], values: Sequence[object]) -> None:
        """Iterate over the next records of the peeked chunk, with these keys and values."""

    def deliver(self, assigned: AssignedPartition, chunk: Chunk, start: int, count: int) -> bool:
        """Take ``count`` records of a peeked chunk. False if they are no longer the next records."""

    def refuse(self, assigned: AssignedPartition) -> None:
        """Back off, because the partition's next record cannot be returned."""


class Deserializing(RecordDeserializing):
    """Takes records from a source and runs deserializers over them."""

    ADVICE = "seek to {next} to skip the record, or set on_deserialization_error"

    def __init__(self, key: object, value: object, on_error: OnDeserializationError) -> None:
        if not callable(on_error) and on_error not in ("raise", "skip", "raw"):
            what = "'raise', 'skip', 'raw', or a function of error and record"
            raise ConfigurationError(must_be("on_deserialization_error", what, on_error))
        super().__init__(key, value)
        self._on_error = on_error
        self._skipped = 0

    @classmethod
    def of(cls, key: object, value: object, on_error: OnDeserializationError) -> Deserializing | None:
        """Check the arguments. Returns None if records are returned as bytes. Raises ConfigurationError."""
        return None if key is value is None and on_error == "raise" else cls(key, value, on_error)

    def iterate(self, source: Source) -> bool:
        """Make the source iterate over the next records. Returns False if ``take`` is needed instead.

        ``take`` is needed if nothing is buffered, a deserializer is async, or the next record cannot be deserialized.
        """
        if self.is_async or (peeked := source.peek()) is None:
            return False
        _, chunk = peeked
        keys, values = self._ahead(chunk, AHEAD)
        if values:
            source.iterate_with(chunk, keys, values)
        return bool(values)

    async def take(
        self,
        source: Source,
        max_records: int,
        only: Collection[TopicPartition] | None = None,
        *,
        deadline: float | None = None,
        skip: int = 0,
    ) -> list[AnyRecord]:
        """Take up to ``max_records`` of one partition; none if nothing is buffered. Raises KafkaError.

        At the loop's time ``deadline``, it returns the records that async deserializers have finished. If each call
        started over, a list that takes longer than the timeout would never be returned. Records may be skipped until
        ``deadline``, and at least ``skip`` of them.
        """
        while (peeked := source.peek(only)) is not None:
            assigned, chunk = peeked
            start = chunk.index
            records, used, failure = await self._read(chunk, max_records, deadline)
            if not source.deliver(assigned, chunk, start, used):
                continue  # another task has called a read, seek or pause in the meantime
            if records:
                return records
            if failure is not None:
                source.refuse(assigned)
                raise failure
            await asyncio.sleep(0)  # skipping a whole log must not block the event loop
            skip -= used
            if (skip < 0 or not used) and deadline is not None and asyncio.get_running_loop().time() >= deadline:
                break
        return []

    async def _read(
        self, chunk: Chunk, max_records: int, deadline: float | None
    ) -> tuple[list[AnyRecord], int, Exception | None]:
        """Deserialize the next records. Returns them, the number of records used, and an error behind them."""
        if not self.is_async:
            keys, values = self._ahead(chunk, max_records)
            if values:
                return list(records_of(chunk, keys, values)), len(values), None
            max_records = 1  # the first record needs a decision
        records: list[AnyRecord] = []
        used = 0
        self.is_async = self._is_always_async  # used until a result has to be awaited
        rows = slice(chunk.index, chunk.index + max_records)
        with anyio.CancelScope(deadline=math.inf if deadline is None else deadline):
            for raw in records_of(chunk, chunk.keys[rows], chunk.values[rows]):
                try:
                    record: AnyRecord | None = await self._deserialize(raw)
                except DeserializationError as error:
                    try:
                        record = await self._decide(error, raw)
                    except Exception as failure:  # noqa: BLE001 - raised when the records before it are handed out
                        return records, used, failure
                used += 1
                if record is not None:
                    records.append(record)
        return records, used, None

    def _ahead(self, chunk: Chunk, max_records: int) -> tuple[Sequence[object], Sequence[object]]:
        """Return the next keys and values, deserialized without awaiting, up to the first one that is refused.

        Whole columns are deserialized at once: a call and an exception handler for each record took twice as long as
        parsing small JSON.
        """
        rows = slice(chunk.index, chunk.index + max_records)
        headers = chunk.headers[rows]
        keys = self._column(self._key, chunk.topic, chunk.keys[rows], headers)
        values = self._column(self._value, chunk.topic, chunk.values[rows], headers)
        count = min(len(keys), len(values))
        return keys[:count], values[:count]

    def _column(
        self,
        deserializer: Deserializer[object] | None,
        topic: str,
        column: Sequence[bytes | None],
        headers: Sequence[tuple[Header, ...]],
    ) -> Sequence[object]:
        """Return the deserialized values of a column, up to the first value that is refused or must be awaited."""
        if deserializer is None:
            return column
        results: list[object] = []
        deserialize = deserializer.deserialize
        rest = zip(column, headers)
        try:
            # Up to the first result that is not None: its type shows whether results have to be awaited.
            for data, of_record in rest:
                results.append(None if data is None else deserialize(topic, data, of_record))
                if data is not None:
                    break
            if not results or not isinstance(results[-1], Awaitable):  # if it is awaitable, ``take`` calls the rest
                for data, of_record in rest:
                    results.append(None if data is None else deserialize(topic, data, of_record))
        except Exception:  # noqa: BLE001 - called again for this record when it is the next one, and raised then
            pass
        # Checked by type, because a check of each value costs as much as parsing it.
        if any(issubclass(kind, Awaitable) for kind in set(map(type, results))):
            self.is_async = True
            first = next(index for index, value in enumerate(results) if isinstance(value, Awaitable))
            for value in results[first:]:
                _dispose(value)
            del results[first:]
        return results

    async def _decide(self, error: DeserializationError, raw: Record) -> AnyRecord | None:
        if callable(self._on_error):
            decision = self._on_error(error, raw)
            return await decision if isinstance(decision, Awaitable) else decision
        if self._on_error == "raise" or not concerns_record(error.__cause__ or error):
            raise error
        if self._on_error == "raw":
            return raw
        self._skipped += 1
        # Logged after 1, 10, 100, … records: a topic full of them would fill the log.
        if str(self._skipped).rstrip("0") == "1":
            logger.warning(
                "%s-%s: skipped the record at offset %s (skipped records so far: %d): %r",
                *(raw.topic, raw.partition, raw.offset, self._skipped),
                error.__cause__,
            )
        return None


def _dispose(result: object) -> None:
    """Drop an awaitable without awaiting it; the deserializer is called again for its record."""
    if inspect.iscoroutine(result):
        result.close()
    elif isinstance(result, asyncio.Future):
        result.cancel()
