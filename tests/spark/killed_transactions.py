"""The tasks and the driver of a query, without Spark, in one process that a test kills: it writes batches to their end.

Like Spark, it adds a batch to a commit log when the batch is committed, and begins after the last batch of this log.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow

from aiokafka_lite.spark import exactly_once
from aiokafka_lite.spark.exactly_once import Place
from aiokafka_lite.spark.options import Properties
from aiokafka_lite.spark.writing import Target

TASKS = 3
ROWS = 20


def main(servers: str, log: str, batches: int) -> None:
    target = Target(properties=Properties({"bootstrap.servers": servers}), topic="target", freeze_gc=False)
    commits = Path(log)
    for batch in range(len(commits.read_text().split()), batches):
        prepared = []
        for task in range(TASKS):
            values = [f"{batch}:{task}:{row}" for row in range(ROWS)]
            rows = [pyarrow.record_batch({"value": values[:5]}), pyarrow.record_batch({"value": values[5:]})]
            prepared.append(exactly_once.write_rows(target, Place("query", task, batch), rows))
        exactly_once.commit(target, batch, prepared)
        with commits.open("a") as line:
            line.write(f"{batch}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
