"""Kafka as a data source of PySpark, without a jar: ``spark.read.format("kafka-lite")``, and the same for streams.

``register(spark)`` registers the format with a session. Spark also finds the format without this call if its Python has
the package installed. This module imports nothing of Spark or Arrow, because every Python worker imports it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .. import lazy

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from .data_source import KafkaLiteDataSource as KafkaLiteDataSource
    from .listener import LagListener as LagListener
    from .registry import from_registry as from_registry
    from .registry import to_registry as to_registry
else:  # with a __getattr__, a type checker would accept every name
    __all__, __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            ".data_source": "KafkaLiteDataSource",
            ".listener": "LagListener",
            ".registry": "from_registry to_registry",
        },
    )
    __all__ += ["FORMAT", "register"]

FORMAT = "kafka-lite"
"""The name to give to ``format()``."""

_SET_BY_SPARK = dict.fromkeys(
    ("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_LOCAL_DIRS", "SPARK_PYTHON_RUNTIME"), ""
)
"""Variables that Spark sets for each Python process that it starts.

All queries share the registered format with its variables, in a map that is not thread-safe. Spark 4.3 adds these when
a stream starts. Two streams that started at the same time damaged the map, and every task failed with
``OptionalDataException``. When the names are there from the start, Spark only replaces their values.
"""


def register(spark: SparkSession, *, check_nodes: bool = True, short_errors: bool = False) -> None:
    """Register ``format("kafka-lite")`` with a session, classic or Spark Connect. Registering twice is allowed.

    The workers get the interpreter that ``PYSPARK_PYTHON`` or ``spark.pyspark.python`` names, otherwise, in a local
    session, this interpreter. Spark would use the first ``python3`` of the PATH, which may not have this package.

    On a cluster, a small job looks whether the executors have this package, in this version, and its dependencies. If
    they have only the dependencies, the package is sent to them as a zip, and is plain Python there.
    ``check_nodes=False`` leaves this out.

    ``short_errors`` hides the Python tracebacks that Spark prints before the text of an error: of this source, and also
    of your own functions. Raises ConfigurationError if a node lacks a dependency, or has another
    version.
    """
    from .data_source import KafkaLiteDataSource

    context = getattr(spark, "_sc", None)  # Spark Connect has none; its server chooses the Python of its workers
    if context is not None:
        _choose_python(context)
        context.environment = _SET_BY_SPARK | context.environment
    if check_nodes and (context is None or not _is_local(context)):
        from . import nodes

        if context is not None:
            nodes.check_driver_python(context)
        nodes.provide(spark)
    if short_errors:
        spark.conf.set("spark.sql.execution.pyspark.udf.hideTraceback.enabled", "true")
    spark.dataSource.register(KafkaLiteDataSource)


def _choose_python(context: SparkContext) -> None:
    if os.environ.get("PYSPARK_PYTHON"):
        return
    # Spark reads the setting only in spark-submit, and not where the program's own builder has set it.
    chosen = context.getConf().get("spark.pyspark.python")
    if chosen is not None:
        context.pythonExec = chosen
    elif _is_local(context):
        from .interpreter import worker_python

        context.pythonExec = worker_python()


def _is_local(context: SparkContext) -> bool:
    """Return whether the workers run on this machine, in the process of the driver; ``local-cluster`` has executors."""
    return str(context.master).partition("[")[0] == "local"
