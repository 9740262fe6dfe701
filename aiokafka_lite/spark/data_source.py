"""The class that Spark knows: it says what rows look like, checks options, and makes readers and writers.

Its instance is pickled with the user's options and sent to every process of the query, so nothing may be in it that
cannot travel; and it is made in a planner worker at ``load()``, so that whatever is wrong is told there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from . import FORMAT, options

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceReader, DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType

    from .source import StreamReader

COLUMNS: Mapping[str, str] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""The columns of Spark's own Kafka connector, and their types in DDL. Headers come by an option, as there."""


class KafkaLiteDataSource(DataSource):
    """Topics of Kafka as tables and streams; see the page on Spark in the documentation for all options."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._check()

    def __repr__(self) -> str:
        return f"<KafkaLiteDataSource {' '.join(sorted(self._options))}>"

    def _check(self) -> None:
        if options.is_read(self._options):
            read = options.check_read(self._options)
            from .connection import consumer_config
            from .planning import check_topics

            consumer_config(read.properties)  # what only tasks need is told now, too
            check_topics(read)

    @classmethod
    def name(cls) -> str:
        """What ``format()`` takes."""
        return FORMAT

    def schema(self) -> str:
        """All columns; who needs fewer gives a schema with some of them, and the others are not even decoded."""
        read = options.check_read(self._options)
        names = [name for name in COLUMNS if name != "headers" or read.include_headers]
        return ", ".join(f"{name} {COLUMNS[name]}" for name in names)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        from .source import batch_reader

        return batch_reader(options.batch_read(self._options), schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 — Spark's name
        """For ``spark.readStream``."""
        from .source import StreamReader

        return StreamReader(options.stream_read(self._options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """For ``df.write``."""
        from .sink import batch_writer

        return batch_writer(options.write(self._options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """For ``df.writeStream``. ``overwrite`` is true in complete output mode."""
        from .sink import stream_writer

        return stream_writer(options.write(self._options), schema, overwrite=overwrite)
