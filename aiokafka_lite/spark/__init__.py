"""Kafka as a data source of PySpark, without a jar: ``spark.read.format("kafka-lite")``, and the same for streams.

``register(spark)`` makes the format known to a session; where the package is installed, Spark finds it by itself too.
Nothing of Spark or Arrow is imported before it is used, as every Python worker imports this module.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from .. import lazy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .data_source import KafkaLiteDataSource
    from .listener import LagListener

FORMAT = "kafka-lite"
"""The name to give to ``format()``."""

_HOMES = {"data_source": ("KafkaLiteDataSource",), "listener": ("LagListener",)}

__all__ = ["FORMAT", "KafkaLiteDataSource", "LagListener", "register"]


def register(spark: SparkSession) -> None:
    """Make ``format("kafka-lite")`` known to a session, classic or Spark Connect. Registering twice is allowed.

    A local session whose Python nobody chose (``PYSPARK_PYTHON``, ``spark.pyspark.python``) gets this interpreter for
    its workers: Spark takes the first ``python3`` of the PATH, which may be one without this package.
    """
    from .data_source import KafkaLiteDataSource

    _give_workers_this_python(spark)
    spark.dataSource.register(KafkaLiteDataSource)


def _give_workers_this_python(spark: SparkSession) -> None:
    context = getattr(spark, "_sc", None)  # Spark Connect has none, and its server's workers are no business of ours
    if context is None or not context.master.startswith("local"):
        return
    if "PYSPARK_PYTHON" not in os.environ and context.getConf().get("spark.pyspark.python") is None:
        context.pythonExec = sys.executable


if not TYPE_CHECKING:  # a checker would take any name whatever for one of ours
    __getattr__ = lazy.attributes(__name__, _HOMES)
