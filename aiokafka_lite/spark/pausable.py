"""A stream source that can be paused, so that a query can be stopped between two batches.

``StreamingQuery.stop()`` interrupts the running batch. The restarted query repeats that batch, and a topic then has its
rows twice. So the source is paused first: while a file exists on the driver, the source reports no new records. The
running batch finishes, no other batch begins, and the query can be stopped.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import options
from .data_source import KafkaLiteDataSource
from .source import StreamReader

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

PAUSE = "_pause"
"""The option with the path of the file."""


class PausableStreamReader(StreamReader):
    """A stream reader that reports no new records while a file exists."""

    def __init__(self, read: options.StreamRead, schema: StructType, pause: Path) -> None:
        super().__init__(read, schema)
        self._pause = pause

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offsets at which the next batch ends; ``start`` while the source is paused."""
        return start if self._pause.exists() else super().latestOffset(start, limit)


class PausableDataSource(KafkaLiteDataSource):
    """``KafkaLiteDataSource`` under another name, for streams with the option ``PAUSE``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format()``."""
        return f"{super().name()}-pausable"

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        """Make the reader of ``spark.readStream``."""
        source_options = {name: value for name, value in self._options.items() if name != PAUSE}
        return PausableStreamReader(options.stream_read(source_options), schema, Path(self._options[PAUSE]))
