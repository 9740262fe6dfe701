"""Deserialized keys and values for the records of a share consumer.

A record that cannot be deserialized is acknowledged at once, so that it does not stop the records behind it:
``"raise"`` releases it and raises, as Java's share consumer does. After the group's limit of deliveries, the brokers
archive it. ``"reject"`` rejects it and logs a warning. ``"raw"`` returns it as bytes. An error without relation to the
record is always raised, for example if a schema registry does not answer.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Literal

from ..arguments import must_be
from ..errors import ConfigurationError, DeserializationError
from ..serialization.deserializer import RecordDeserializing, concerns_record
from ..types import ShareRecord

logger = logging.getLogger(__name__)

OnShareDeserializationError = Literal["raise", "reject", "raw"]
"""What to do with a record that cannot be deserialized."""


@dataclass(frozen=True, slots=True)
class Deserialized:
    """The result for some records: each deserialized record (None if it is rejected), up to the first failure."""

    records: list[ShareRecord[Any, Any] | None]
    failure: DeserializationError | None = None


class ShareDeserializing(RecordDeserializing):
    """Runs the deserializers of one share consumer."""

    ADVICE = "set on_deserialization_error to reject such records or to get their bytes"

    def __init__(self, key: object, value: object, on_error: OnShareDeserializationError) -> None:
        if on_error not in ("raise", "reject", "raw"):
            raise ConfigurationError(must_be("on_deserialization_error", "'raise', 'reject' or 'raw'", on_error))
        super().__init__(key, value)
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
                results.append(await self._deserialize(record))
            except DeserializationError as error:
                if self._on_error == "raise" or not concerns_record(error.__cause__ or error):
                    return Deserialized(results, error)
                if self._on_error == "reject":
                    logger.warning("rejected a record: %s", error)
                results.append(record if self._on_error == "raw" else None)
        return Deserialized(results)
