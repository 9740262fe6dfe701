"""Handing out records with keys and values that deserializers made.

A record counts as delivered when both of its parts are there, not before: a cancelled read loses nothing, and a record
that cannot be deserialized stays the next one until the user has said what is to become of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol

from ..errors import ConfigurationError, DeserializationError
from ..types import Header, Record
from .columns import records_of
from .deserializer import Deserializer, as_deserializer, is_async
from .fetched import Chunk
from .partition import PartitionState

logger = logging.getLogger(__name__)

AHEAD = 100
"""Records whose keys and values are made at once for a reader that takes them one by one."""

AnyRecord = Record[Any, Any]
OnDeserializationError = (
    Literal["raise", "skip", "raw"]
    | Callable[[DeserializationError, Record], AnyRecord | None]
    | Callable[[DeserializationError, Record], Awaitable[AnyRecord | None]]
)
"""What becomes of a record that cannot be deserialized.

``"raise"`` raises DeserializationError, again with each read, until the user seeks past it; ``"skip"`` leaves the
record out, with a warning; ``"raw"`` hands it out as bytes. A function gets the error and the record as bytes, and
returns the record to hand out, or None to leave it out; it may be async, and what it raises comes out of the read.
"""


class Source(Protocol):
    """Where records come from: a ``Reader``, or a ``Claim``."""

    def peek(self) -> tuple[PartitionState, Chunk] | None:
        """What comes next and whose it is, without taking it; None if nothing is there. Raises what is in the way."""

    def iterate_with(self, chunk: Chunk, keys: Sequence[object], values: Sequence[object]) -> None:
        """Hand out the next records of what was just peeked at, with these keys and values."""

    def deliver(self, state: PartitionState, chunk: Chunk, start: int, count: int) -> bool:
        """Count records of a peeked chunk as delivered; False if they are not what comes next any longer."""

    def refuse(self, state: PartitionState) -> None:
        """The user cannot have the next record of a partition: it is left alone for a moment."""


class Deserializing:
    """Takes records from a source and runs deserializers over them. It keeps nothing: many sources may share it."""

    def __init__(
        self,
        key: object,
        value: object,
        on_error: OnDeserializationError,
    ) -> None:
        if not callable(on_error) and on_error not in ("raise", "skip", "raw"):
            raise ConfigurationError(
                f"on_deserialization_error={on_error!r}: 'raise', 'skip', 'raw', or a function of error and record"
            )
        self._key = None if key is None else as_deserializer("key_deserializer", key)
        self._value = None if value is None else as_deserializer("value_deserializer", value)
        self._key_is_async = self._key is not None and is_async(self._key)
        self._value_is_async = self._value is not None and is_async(self._value)
        self.is_async = self._key_is_async or self._value_is_async
        self._on_error = on_error
        self._skipped = 0

    def iterate(self, source: Source) -> bool:
        """Make the source iterate over what comes next; False if that takes ``take``.

        That is: nothing is there, a deserializer is async, or the next record cannot be deserialized.
        """
        if self.is_async or (found := source.peek()) is None:
            return False
        _, chunk = found
        keys, values = self._ahead(chunk, AHEAD)
        if values:
            source.iterate_with(chunk, keys, values)
        return bool(values)

    async def take(
        self, source: Source, max_records: int, *, deadline: float | None = None, skip: int = 0
    ) -> list[AnyRecord]:
        """Up to ``max_records`` of one partition; none if nothing is there. Raises what stands in the way.

        When the loop's time is ``deadline``, what async deserializers have made by then is returned, if anything: with
        a list that takes longer than the timeout, starting over in each call would never get anywhere. Nor are records
        left out any longer then, but ``skip`` of them at least.
        """
        while (found := source.peek()) is not None:
            state, chunk = found
            start = chunk.index
            records, used, failure = await self._read(chunk, max_records, deadline)
            if not source.deliver(state, chunk, start, used):
                continue  # another task has read, sought or paused meanwhile
            if records:
                return records
            if failure is not None:
                source.refuse(state)
                raise failure
            await asyncio.sleep(0)  # a log full of records to skip must not keep the event loop from its work
            skip -= used
            if (skip < 0 or not used) and deadline is not None and asyncio.get_running_loop().time() >= deadline:
                break
        return []

    async def _read(
        self, chunk: Chunk, max_records: int, deadline: float | None
    ) -> tuple[list[AnyRecord], int, Exception | None]:
        """The next records, how many of the chunk's that takes, and what ended it before that."""
        if not self.is_async:
            keys, values = self._ahead(chunk, max_records)
            if values:
                return list(records_of(chunk, keys, values)), len(values), None
            max_records = 1  # it begins with one that needs a decision
        records: list[AnyRecord] = []
        used = 0
        some = slice(chunk.index, chunk.index + max_records)
        try:
            async with asyncio.timeout_at(deadline) as scope:
                for raw in records_of(chunk, chunk.keys[some], chunk.values[some]):
                    try:
                        record = await self._deserialize(raw)
                    except DeserializationError as error:
                        try:
                            record = await self._decide(error, raw)
                        except Exception as failure:  # noqa: BLE001 - it is raised once what lies before is handed out
                            return records, used, failure
                    used += 1
                    if record is not None:
                        records.append(record)
        except TimeoutError:
            if not scope.expired():
                raise
        return records, used, None

    def _ahead(self, chunk: Chunk, max_records: int) -> tuple[Sequence[object], Sequence[object]]:
        """What deserializers that are not async make of the next keys and values, up to one that they refuse.

        Whole columns: a call and an exception handler for each record took twice as long as parsing small JSON.
        """
        some = slice(chunk.index, chunk.index + max_records)
        headers = chunk.headers[some]
        keys = _made(self._key, chunk.topic, chunk.keys[some], headers)
        values = _made(self._value, chunk.topic, chunk.values[some], headers)
        count = min(len(keys), len(values))
        return keys[:count], values[:count]

    async def _deserialize(self, raw: Record) -> AnyRecord | None:
        key: object = raw.key
        value: object = raw.value
        part = "key"
        try:
            if raw.key is not None and self._key is not None:
                key = self._key.deserialize(raw.topic, raw.key, raw.headers)
                if self._key_is_async and isinstance(key, Awaitable):
                    key = await key
            part = "value"
            if raw.value is not None and self._value is not None:
                value = self._value.deserialize(raw.topic, raw.value, raw.headers)
                if self._value_is_async and isinstance(value, Awaitable):
                    value = await value
        except Exception as error:  # a user's deserializer may raise anything, and the reader is told all of it
            raise DeserializationError(
                f"the {part} of {raw.topic}-{raw.partition} at offset {raw.offset} cannot be deserialized: {error!r}; "
                f"seek to {raw.offset + 1} to skip the record, or set on_deserialization_error",
                topic=raw.topic,
                partition=raw.partition,
                offset=raw.offset,
            ) from error
        decoded: AnyRecord = raw
        return decoded._replace(key=key, value=value)

    async def _decide(self, error: DeserializationError, raw: Record) -> AnyRecord | None:
        if callable(self._on_error):
            decided = self._on_error(error, raw)
            return await decided if isinstance(decided, Awaitable) else decided
        if self._on_error == "raise":
            raise error
        if self._on_error == "raw":
            return raw
        self._skipped += 1
        if str(self._skipped).rstrip("0") == "1":  # a topic full of them would fill the log
            logger.warning(
                "%s-%s: the record at offset %s is skipped, %d so far: %r",
                *(raw.topic, raw.partition, raw.offset, self._skipped),
                error.__cause__,
            )
        return None


def _made(
    deserializer: Deserializer[object] | None,
    topic: str,
    column: Sequence[bytes | None],
    headers: Sequence[tuple[Header, ...]],
) -> Sequence[object]:
    if deserializer is None:
        return column
    made: list[object] = []
    deserialize = deserializer.deserialize
    try:
        for data, of_record in zip(column, headers):
            made.append(None if data is None else deserialize(topic, data, of_record))
    except Exception:  # noqa: BLE001 - when its turn comes, it is called again, and what it raises is told
        pass
    return made
