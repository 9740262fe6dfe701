"""Kafka as a data source of PySpark, without a jar: ``spark.read.format("kafka-lite")``, and the same for streams.

``register(spark)`` makes the format known to a session; where the package is installed, Spark finds it by itself too.
Nothing of Spark or Arrow is imported before it is used, as every Python worker imports this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .data_source import KafkaLiteDataSource as KafkaLiteDataSource
    from .listener import LagListener as LagListener

FORMAT = "kafka-lite"
"""The name to give to ``format()``."""

__all__ = ["FORMAT", "KafkaLiteDataSource", "LagListener", "register"]

_HOMES = {"KafkaLiteDataSource": "data_source", "LagListener": "listener"}


def register(spark: SparkSession) -> None:
    """Make ``format("kafka-lite")`` known to a session, classic or Spark Connect. Registering twice is allowed."""
    from .data_source import KafkaLiteDataSource

    spark.dataSource.register(KafkaLiteDataSource)


def __getattr__(name: str) -> object:
    """Import what needs pyspark when it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
