"""A Spark session for programs of this package: with a Java that is there, and this package on every node.

Locally, workers get this interpreter (Spark would take any ``python3`` of the PATH), and nothing listens beyond the
loopback interface. On a cluster, nodes get this package as a zip; what it depends on has to be installed there.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigurationError
from . import register
from .jvm import use_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = Path(__file__).parents[1]

_FOR_ALL = {"spark.sql.session.timeZone": "UTC"}

_FOR_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where to run. ``remote`` is the address of a Spark Connect server, and goes before ``master``.

    ``settings`` are Spark's own.
    """

    master: str = "local[*]"
    remote: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        return self.remote is None and self.master.startswith("local")


@contextmanager
def open_session(cluster: Cluster, name: str) -> Iterator[SparkSession]:
    """A session that knows the format and whose nodes have this package; stopped at the end.

    ConfigurationError without pyspark or Java.
    """
    builder = _builder(cluster, name)
    if cluster.remote is None:
        use_java()
    spark = builder.getOrCreate()
    try:
        with tempfile.TemporaryDirectory(prefix="aiokafka-lite-") as directory:
            if not cluster.is_local:
                ship(spark, Path(directory), through_connect=cluster.remote is not None)
            register(spark)
            yield spark
    finally:
        spark.stop()


def ship(spark: SparkSession, directory: Path, *, through_connect: bool) -> None:
    """Have every node import this package from a zip, which is made in ``directory`` and has to stay there."""
    packed = str(pack(directory))
    if through_connect:
        spark.addArtifacts(packed, pyfile=True)
    else:
        spark.sparkContext.addPyFile(packed)


def pack(directory: Path) -> Path:
    """A zip of this package's modules that Python can import from."""
    target = directory / f"{PACKAGE.name}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in sorted(PACKAGE.rglob("*.py")):
            archive.write(module, module.relative_to(PACKAGE.parent))
    return target


def _builder(cluster: Cluster, name: str) -> SparkSession.Builder:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigurationError(f"{error.name} is missing: pip install 'aiokafka_lite[spark]'") from None
    builder = SparkSession.builder.appName(name)
    if cluster.remote is not None:
        builder = builder.remote(cluster.remote)
        defaults = dict(_FOR_ALL)
    else:
        builder = builder.master(cluster.master)
        defaults = {**_FOR_ALL, **(_locally() if cluster.is_local else {})}
    for option, value in {**defaults, **cluster.settings}.items():
        builder = builder.config(option, value)
    return builder


def _locally() -> dict[str, str]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # The state of a stream is kept in as many files as there are partitions, for each batch: 200 by default.
    return {**_FOR_LOCAL, "spark.sql.shuffle.partitions": str(os.cpu_count() or 2)}

