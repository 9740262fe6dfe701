"""A Spark session for the pipeline: with an installed Java, and with aiokafka_lite on every node.

A local session uses this interpreter for its workers (Spark would use any ``python3`` of the PATH), and listens on the
loopback interface only. ``register`` sends the package to the nodes of a cluster; its dependencies must be installed
there.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiokafka_lite.arguments import must_be
from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.extras import extra
from aiokafka_lite.spark import register
from aiokafka_lite.spark.interpreter import worker_python
from aiokafka_lite.spark.jvm import use_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOR_ALL = {"spark.sql.session.timeZone": "UTC"}

# The command prints an error as one line. Spark's log would print it again, with the stacks of Java and Python. So
# would PySpark, in JSON, for an error of SQL or of a DataFrame.
_FOR_DRIVER = {"spark.log.level": "OFF"}
_LOGGERS_OF_ERRORS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")

_FOR_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.python.authenticate.socketTimeout": "120s",  # 15 by default; a busy machine may need more
}


_MASTER = re.compile(r"local(\[(\*|\d+)(,\s*\d+)?\])?|local-cluster\[[^\]]+\]|yarn|[a-z][\w+.-]*://.+")
"""The forms of Spark's masters. For any other form, Spark prints a Java stack trace."""


@dataclass(frozen=True, kw_only=True)
class SparkCluster:
    """The place where Spark runs. ``remote`` is the address of a Spark Connect server, and overrides ``master``.

    ``settings`` are settings of Spark. Raises ConfigurationError for a ``master`` of a wrong form.
    """

    master: str = "local[*]"
    remote: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.remote is None and not _MASTER.fullmatch(self.master):
            what = "local, local[4], local[*], spark://host:port, k8s://address or yarn"
            raise ConfigurationError(must_be("master", what, self.master))

    @property
    def is_local(self) -> bool:
        return self.remote is None and self.master.startswith("local")


@contextmanager
def open_session(cluster: SparkCluster, name: str) -> Iterator[SparkSession]:
    """Open a session with the format registered, and with the package on its nodes. It is stopped at the end.

    If ``settings`` has no ``spark.log.level``, errors are raised and not logged. Raises ConfigurationError if pyspark
    or Java is missing.
    """
    builder = _builder(cluster, name)
    if "spark.log.level" not in cluster.settings:
        _silence_errors()
    if cluster.remote is None:
        use_java()
    spark = builder.getOrCreate()
    try:
        register(spark)
        yield spark
    finally:
        spark.stop()


def _silence_errors() -> None:
    for name in _LOGGERS_OF_ERRORS:
        extra("pyspark.logger", "spark").PySparkLogger.getLogger(name).disabled = True


def _builder(cluster: SparkCluster, name: str) -> SparkSession.Builder:
    builder: SparkSession.Builder = extra("pyspark.sql", "spark").SparkSession.builder.appName(name)
    if cluster.remote is not None:
        builder = builder.remote(cluster.remote)
        defaults = dict(_FOR_ALL)
    else:
        builder = builder.master(cluster.master)
        defaults = {**_FOR_ALL, **_FOR_DRIVER, **(_locally() if cluster.is_local else {})}
    for option, value in {**defaults, **cluster.settings}.items():
        builder = builder.config(option, value)
    return builder


def _locally() -> dict[str, str]:
    os.environ["PYSPARK_PYTHON"] = worker_python()
    # Each batch of a stream writes a state file per shuffle partition. Spark's default is 200 partitions.
    return {
        **_FOR_LOCAL,
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
    }
