"""Decodes the keys and values of batches through a schema registry.

What cannot be decoded stays as it is, and is reported on stderr: bytes without the id of a schema, an id that the
registry does not know, and bytes that their schema does not describe. A registry that does not answer ends the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import NamedTuple

from ...consumer.columns import Batch
from ...errors import ConfigurationError, SchemaRegistryError
from ...schemas import SchemaRegistryClient
from ...schemas.json_forms import JsonForms, schema_name
from ...schemas.json_values import on_one_line
from ...schemas.schema import Part
from ...types import Header
from .run import say

MOST_NOTES = 10
"""Problems that are reported with a line of their own."""


class Decoded(NamedTuple):
    """A key or value as an object that JSON can hold, with the id or the GUID of its schema."""

    value: object
    schema: int | str

    def as_text(self) -> bytes:
        """Return the JSON on one line."""
        return on_one_line(self.value)


Cell = Decoded | bytes | None


class Columns(NamedTuple):
    """The keys and values of a batch, decoded where that was possible."""

    keys: Sequence[Cell]
    values: Sequence[Cell]


class Decoder:
    """Decodes batches. Owner: the command."""

    def __init__(self, registry: SchemaRegistryClient) -> None:
        self._forms = JsonForms(registry)
        self._notes: dict[str, int] = {}

    async def decode(self, batch: Batch) -> Columns:
        """Return the decoded keys and values of a batch. Raises KafkaError if the registry does not answer."""
        return Columns(await self._column(batch, "key", batch.keys), await self._column(batch, "value", batch.values))

    async def _column(self, batch: Batch, part: Part, column: Sequence[bytes | None]) -> list[Cell]:
        cells: list[Cell] = []
        for index, data in enumerate(column):
            cells.append(data if data is None else await self._cell(batch, part, data, index, batch.headers[index]))
        return cells

    async def _cell(self, batch: Batch, part: Part, data: bytes, index: int, headers: tuple[Header, ...]) -> Cell:
        try:
            name = schema_name(part, data, headers)
        except ValueError:
            if part == "value":  # keys are often plain text beside values with schemas
                self._note("values", "has no id of a schema", batch, part, index)
            return data
        try:
            return Decoded(await self._forms.read(batch.topic, part, data, headers), name)
        except SchemaRegistryError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            self._note(f"{part}s", f"has the unknown schema {name}", batch, part, index)
        except (ConfigurationError, ValueError) as error:
            self._note(f"{part}s", f"has the schema {name}, and cannot be decoded: {error}", batch, part, index)
        return data

    def _note(self, parts: str, problem: str, batch: Batch, part: Part, index: int) -> None:
        key = f"{parts}: {problem}"
        count = self._notes[key] = self._notes.get(key, 0) + 1
        if count == 1 and len(self._notes) <= MOST_NOTES:
            place = f"{batch.topic}-{batch.partition} at offset {batch.offsets[index]}"
            say(f"the {part} of {place} {problem}; it is printed as it is")

    def report(self) -> None:
        """Print how many keys and values were not decoded, after the line for the first one of each kind."""
        more = sum(self._notes.values()) - min(len(self._notes), MOST_NOTES)
        if more:
            say(f"{more} more keys or values were printed as they are, for these reasons or others")


def as_text(column: Sequence[Cell]) -> list[bytes | None]:
    """Return the column with each decoded cell as JSON on one line."""
    return [cell.as_text() if isinstance(cell, Decoded) else cell for cell in column]
