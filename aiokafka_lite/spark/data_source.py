"""The class that Spark registers: it checks the options, gives the schema, and makes readers and writers.

Spark pickles an instance with the user's options for every process of the query, so it holds nothing else. Spark makes
the instance in a planner worker at ``load()``, so wrong options are errors there, and not in a task.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from ..errors import ConfigurationError
from . import FORMAT, options
from .schema import COLUMNS
from .short_errors import short_errors

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType


logger = logging.getLogger(__name__)


class KafkaLiteDataSource(DataSource):
    """The format ``kafka-lite``: topics as tables and streams. The page about Spark lists all options."""

    @short_errors
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._check()
        self._warn()

    def __repr__(self) -> str:
        return f"<KafkaLiteDataSource {' '.join(sorted(self._options))}>"

    def _check(self) -> None:
        if options.is_read(self._options):
            read = options.check_read(self._options)
            from .connection import consumer_config
            from .planning import check_topics

            consumer_config(read.properties)  # checks now the settings that only tasks use
            check_topics(read)

    def _warn(self) -> None:
        """Warn about options without effect. Spark makes one instance per ``load()``, ``save()`` or ``start()``."""
        dropped = options.without_effect(self._options)
        if dropped:
            logger.warning("ignored options that only Java's clients have: %s", ", ".join(dropped))

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format()``."""
        return FORMAT

    @short_errors
    def schema(self) -> str:
        """Return all columns. Columns that the user's schema lacks are not decoded."""
        read = options.check_read(self._options)
        names = [name for name in COLUMNS if name != "headers" or read.include_headers]
        return ", ".join(f"{name} {COLUMNS[name]}" for name in names)

    @short_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of ``spark.read``."""
        from .source import BatchReader

        return BatchReader(options.batch_read(self._options), schema)

    @short_errors
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 — Spark's name
        """Make the reader of ``spark.readStream``."""
        from .source import RefusedStreamReader, StreamReader

        try:
            return StreamReader(options.stream_read(self._options), schema)
        except ConfigurationError as error:
            return RefusedStreamReader(error)

    @short_errors
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Make the writer of ``df.write``."""
        from .sink import batch_writer

        return batch_writer(options.write(self._options), schema, overwrite=overwrite)

    @short_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Make the writer of ``df.writeStream``. ``overwrite`` is true in the complete output mode."""
        from .sink import stream_writer

        return stream_writer(options.write(self._options), schema, overwrite=overwrite)
