"""The topics of the rows of a write. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import SerializationError
from ..protocol.records.columns import by_number

if TYPE_CHECKING:
    import pyarrow

TOPIC = "topic"
RECORD_COLUMNS = ("key", "value", "headers", "partition")
"""The columns that become records. Other columns, also ``timestamp``, are ignored, as in Spark's own connector."""

REASON = "_error"
"""The column in which a query says why a row is a dead letter. It is null in other rows."""

ORIGIN = "origin"
"""The column with the place that a row comes from: a struct of the source's columns that name it."""


def records_of(rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Return only the columns that become records."""
    return rows.select([name for name in RECORD_COLUMNS if name in rows.schema.names])


def written(rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Return only the columns that become records, and the one that names their topic, so that no other is copied."""
    return rows.select([name for name in (*RECORD_COLUMNS, TOPIC) if name in rows.schema.names])


def by_topic(topic: str | None, rows: pyarrow.RecordBatch) -> Iterator[tuple[str, pyarrow.RecordBatch]]:
    """Divide rows by their topic, with all columns. ``topic`` is the topic of all rows, None for the column ``topic``.

    Raises SerializationError if a row has no topic.
    """
    if topic is not None:
        yield topic, rows
        return
    topic_column = rows.column(TOPIC)
    if topic_column.null_count:
        raise SerializationError(
            "column topic must not be null in any row; fill it, or write .option('topic', name) for all rows"
        )
    encoded = topic_column.dictionary_encode()
    topics = encoded.dictionary.to_pylist()
    if len(topics) == 1:
        yield topics[0], rows
        return
    for number, places in by_number(encoded.indices.to_numpy()):
        yield topics[number], rows.take(places)
