"""Spark's daemon of Python workers, with the modules of this package that a worker needs.

Spark forks its workers from a daemon, and ends a worker that is idle for a minute. The imports of this package take
some 100 ms of CPU time in each worker. This daemon imports the modules once, before it forks the workers.

Rule: nothing that is imported here starts a thread, because a process with threads must not be forked. So the daemon
imports neither pyarrow nor numpy. ``aiokafka_lite.spark.interpreter`` starts it in a local session.
"""

from __future__ import annotations

import gc
import sys

from pyspark import daemon

TASKS = "pyspark.worker"
LOOKUP = "pyspark.sql.worker.lookup_data_sources"


def preload(worker: str) -> None:
    """Import the modules that a worker needs. ``worker`` is the module that it runs."""
    if worker != LOOKUP:
        from . import planning  # noqa: F401
    if worker == TASKS:
        from . import reading  # noqa: F401


def main() -> None:
    """Run the daemon. Its first argument is the module that the workers run."""
    preload(sys.argv[1])
    gc.freeze()  # a worker collects after each task, and need not scan these modules
    daemon.manager()
