"""Deserialized keys and values for the records of a share consumer.

A record that cannot be deserialized is acknowledged at once, so that it does not stop the records behind it:
``"raise"`` releases it and raises, as Java's share consumer does. After the group's limit of deliveries, the brokers
archive it. ``"reject"`` rejects it and logs a warning. ``"raw"`` returns it as bytes. An error without relation to the
record is always raised, for example if a schema registry does not answer.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Literal

from ..arguments import must_be
from ..errors import ConfigurationError, DeserializationError
from ..serialization.deserializer import Deserializer, as_deserializer, concerns_record
from ..types import ShareRecord

logger = logging.getLogger(__name__)

OnShareDeserializationError = Literal["raise", "reject", "raw"]
"""What to do with a record that cannot be deserialized."""


@dataclass(frozen=True, slots=True)
class Deserialized:
    """The result for some records: each deserialized record (None if it is rejected), up to the first failure."""

    records: list[ShareRecord[Any, Any] | None]
    failure: DeserializationError | None = None


class ShareDeserializing:
    """Runs the deserializers of one share consumer. Keeps no records."""

    def __init__(self, key: object, value: object, on_error: OnShareDeserializationError) -> None:
        if on_error not in ("raise", "reject", "raw"):
            raise ConfigurationError(must_be("on_deserialization_error", "'raise', 'reject' or 'raw'", on_error))
        self._key = None if key is None else as_deserializer("key_deserializer", key)
        self._value = None if value is None else as_deserializer("value_deserializer", value)
        self._on_error = on_error

    @classmethod
    def of(cls, key: object, value: object, on_error: OnShareDeserializationError) -> ShareDeserializing | None:
        """Check the arguments. Returns None if records are returned as bytes. Raises ConfigurationError."""
        return None if key is value is None and on_error == "raise" else cls(key, value, on_error)

    async def run(self, records: list[ShareRecord]) -> Deserialized:
        """Deserialize the records in order. Stop at a record whose error must be raised."""
        results: list[ShareRecord[Any, Any] | None] = []
        for record in records:
            try:
                results.append(await self._record(record))
            except DeserializationError as error:
                if self._on_error == "raise" or not concerns_record(error.__cause__ or error):
                    return Deserialized(results, error)
                if self._on_error == "reject":
                    logger.warning("rejected a record: %s", error)
                results.append(record if self._on_error == "raw" else None)
        return Deserialized(results)

    async def _record(self, record: ShareRecord) -> ShareRecord[Any, Any]:
        key = await self._part("key", self._key, record, record.key)
        value = await self._part("value", self._value, record, record.value)
        decoded: ShareRecord[Any, Any] = record
        return decoded._replace(key=key, value=value)

    @staticmethod
    async def _part(
        part: str, deserializer: Deserializer[object] | None, record: ShareRecord, data: bytes | None
    ) -> object:
        if deserializer is None or data is None:
            return data
        try:
            value = deserializer.deserialize(record.topic, data, record.headers)
            return await value if isinstance(value, Awaitable) else value
        except Exception as error:  # a user's deserializer may raise anything
            raise DeserializationError(
                f"the {part} of {record.topic}-{record.partition} at offset {record.offset} cannot be deserialized: "
                f"{error!r}; set on_deserialization_error to reject such records or to get their bytes",
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
            ) from error
