"""Kafka as a data source of PySpark, without a jar: ``spark.read.format("kafka-lite")``, and the same for streams.

``register(spark)`` registers the format with a session. Spark also finds the format without this call if its Python has
the package installed. This module imports nothing of Spark or Arrow, because every Python worker imports it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .. import lazy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .data_source import KafkaLiteDataSource as KafkaLiteDataSource
    from .listener import LagListener as LagListener
else:  # with a __getattr__, a type checker would accept every name
    __all__, __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            ".data_source": "KafkaLiteDataSource",
            ".listener": "LagListener",
        },
    )
    __all__ += ["FORMAT", "register"]

FORMAT = "kafka-lite"
"""The name to give to ``format()``."""


def register(spark: SparkSession) -> None:
    """Register ``format("kafka-lite")`` with a session, classic or Spark Connect. Registering twice is allowed.

    The workers of a local session get this interpreter, unless ``PYSPARK_PYTHON`` or ``spark.pyspark.python`` names
    another one. Spark itself would use the first ``python3`` of the PATH, which may not have this package.
    """
    from .data_source import KafkaLiteDataSource

    _give_workers_this_python(spark)
    spark.dataSource.register(KafkaLiteDataSource)


def _give_workers_this_python(spark: SparkSession) -> None:
    context = getattr(spark, "_sc", None)  # Spark Connect has none; its server chooses the Python of its workers
    if context is None or not context.master.startswith("local"):
        return
    if "PYSPARK_PYTHON" not in os.environ and context.getConf().get("spark.pyspark.python") is None:
        from .interpreter import worker_python

        context.pythonExec = worker_python()
