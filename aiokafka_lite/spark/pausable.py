"""A stream that can be told to take nothing more, so that a query can be stopped where nothing is half done.

``StreamingQuery.stop()`` interrupts a batch that runs; the batch is done again when the query is started again, and a
topic then has its rows twice. So a pause comes first: while a file exists, the source reports nothing new, the batch
that runs ends, no other begins, and the query may be stopped. The file is looked for on the driver.
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
    """A stream reader that waits while a file exists."""

    def __init__(self, read: options.StreamRead, schema: StructType, pause: Path) -> None:
        super().__init__(read, schema)
        self._pause = pause

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the next batch ends; ``start`` while paused."""
        return start if self._pause.exists() else super().latestOffset(start, limit)


class PausableDataSource(KafkaLiteDataSource):
    """The same format, under another name, for streams that are read with the option `PAUSE`."""

    @classmethod
    def name(cls) -> str:
        """What ``format()`` takes."""
        return f"{super().name()}-pausable"

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        """For ``spark.readStream``."""
        given = {name: value for name, value in self._options.items() if name != PAUSE}
        return PausableStreamReader(options.stream_read(given), schema, Path(self._options[PAUSE]))
