"""Checks that the nodes of a cluster can import this package, and sends it to nodes that lack it.

Spark runs a Python source on the driver, for planning, and on the executors, for reading and writing. All of them use
one path of an interpreter, and need the same version of this package with its dependencies. A look at the executors
costs one small job, which needs a second where executors run.
"""

from __future__ import annotations

import json
import logging
import os
import py_compile
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..compiled import COMPILED
from ..errors import ConfigurationError
from ..version import VERSION

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

PACKAGE = Path(__file__).parents[1]
NEEDED = ("anyio", "crc32c", "lz4", "numpy", "pyarrow", "zstandard")
"""The modules that a node must have installed. They are compiled, so a zip cannot bring them."""

MOST_TASKS = 64
"""The most executors that are looked at. Clusters are made of equal nodes."""

logger = logging.getLogger(__name__)


class Node(NamedTuple):
    """What an executor can import. ``version`` is None where it lacks this package."""

    host: str
    python: str
    missing: tuple[str, ...]
    version: str | None
    compiled: bool


def check_driver_python(context: SparkContext) -> None:
    """Raise ConfigurationError if the driver cannot start the Python of the executors, with which it plans queries."""
    python = context.pythonExec
    if os.sep in python and not Path(python).exists():
        raise ConfigurationError(
            f"spark.pyspark.python is {python}, and the driver has no such file; Spark plans the queries of a Python "
            "source on the driver, so unpack the environment there too, at the same path (mkdir -p environment && "
            "tar -xzf environment.tar.gz -C environment)"
        )


def provide(spark: SparkSession) -> None:
    """Check the executors of a cluster, and send this package to them as a zip if any of them lacks it.

    Raises ConfigurationError, which names the node, if a dependency is missing or the version is another one.
    """
    nodes = _look(spark)
    for node in nodes:
        if node.missing:
            raise ConfigurationError(
                f"the Python of {node.host} ({node.python}) has no {', '.join(node.missing)}; install "
                f"{' '.join(node.missing)} on every node, or set spark.pyspark.python to an interpreter that has them"
            )
        if node.version not in (None, VERSION):
            raise ConfigurationError(
                f"{node.host} ({node.python}) has aiokafka_lite {node.version}, and this program has {VERSION}; "
                "install the same version on every node"
            )
    lacking = sorted({node.host for node in nodes if node.version is None})
    if lacking:
        ship(spark)
        logger.warning(
            "%s has no aiokafka_lite, so the executors get it from this program, as plain Python; install the package "
            "on the nodes for its compiled decoder",
            ", ".join(lacking),
        )
    elif COMPILED and not all(node.compiled for node in nodes):
        plain = sorted({node.host for node in nodes if not node.compiled})
        logger.warning("aiokafka_lite is plain Python on %s, and compiled in this program", ", ".join(plain))


def ship(spark: SparkSession) -> None:
    """Make the executors of a session import this package from a zip. Call it before the format is registered."""
    from ..own_directory import OwnDirectory

    packed = str(pack(OwnDirectory("package").path))
    context = _context(spark)
    if context is None:
        spark.addArtifacts(packed, pyfile=True)
    else:
        context.addPyFile(packed)


def pack(directory: Path) -> Path:
    """Return a zip with the modules of this package, from which Python can import.

    The zip has bytecode too. Otherwise every Python worker would compile the modules, which takes 0.3 s of CPU time.
    Another version of Python ignores the bytecode and uses the source.
    """
    target, compiled = directory / f"{PACKAGE.name}.zip", directory / "module.pyc"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in sorted(PACKAGE.rglob("*.py")):
            name = module.relative_to(PACKAGE.parent)
            archive.write(module, name)
            py_compile.compile(
                str(module),
                cfile=str(compiled),
                dfile=str(name),
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
            archive.write(compiled, name.with_suffix(".pyc"))
    return target


def _context(spark: SparkSession) -> SparkContext | None:
    """Return the context of a classic session; Spark Connect has none."""
    return getattr(spark, "_sc", None)


def _look(spark: SparkSession) -> set[Node]:
    context = _context(spark)
    if context is None:
        described = _look_through_connect(spark)
    else:
        tasks = min(MOST_TASKS, context.defaultParallelism)
        described = context.parallelize(range(tasks), tasks).mapPartitions(_probe(NEEDED)).collect()
    return {Node(host, python, tuple(missing), version, built) for host, python, missing, version, built in described}


def _look_through_connect(spark: SparkSession) -> list[Any]:
    probe = _probe(NEEDED)

    def rows(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for _ in batches:
            pass
        yield pyarrow.RecordBatch.from_pydict({"found": [json.dumps(node) for node in probe(iter(()))]})

    from pyspark.errors import PySparkException

    try:
        answers = spark.range(0, 4, 1, 4).mapInArrow(rows, "found string").collect()
    except PySparkException as error:
        module = re.search(r"No module named '(\w+)'", str(error))
        if module is None:
            raise
        raise ConfigurationError(
            f"the Python of the Spark Connect server has no {module.group(1)}; install {' '.join(NEEDED)} there"
        ) from None
    return [json.loads(row.found) for row in answers]


def _probe(needed: tuple[str, ...]) -> Any:
    """Return the function that describes an executor.

    Spark sends an inner function by value, so it runs where this package is missing. It does not import this package:
    a worker that has imported it would not use a zip that arrives later.
    """

    def look(_: Iterator[Any]) -> Iterator[tuple[str, str, list[str], str | None, bool]]:
        import importlib.util
        import re
        import socket
        import sys
        from pathlib import Path

        missing = [name for name in needed if importlib.util.find_spec(name) is None]
        spec = importlib.util.find_spec("aiokafka_lite")
        version, compiled = None, False
        if spec is not None and spec.origin is not None:
            folder = Path(spec.origin).parent
            source = spec.loader.get_data(str(folder / "version.py"))  # type: ignore[union-attr]  # also of a zip
            written = re.search(rb'VERSION = "([^"]+)"', source)
            version = written.group(1).decode() if written else "unknown"
            compiled = any(folder.glob("**/*.so"))
        yield socket.gethostname(), sys.executable, missing, version, compiled

    return look
