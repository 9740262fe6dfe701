"""A query into a topic, killed at random moments and with failing tasks: no row is lost, or each row is there once.

Each row is either in the copy, or a dead letter with its reason and origin.

``SPARK_KILLS`` is the number of kills of each query, else each has one, of a kind that ``test_kills.py`` does not have.
``make kill-spark`` kills a query on real Kafka, whose executors are processes of their own.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from pathlib import Path

import pyspark
import pytest

from aiokafka_lite import EmbeddedCluster, Producer, RecordMetadata
from aiokafka_lite.spark.jvm import use_java
from tests.end_to_end.conftest import Kafka
from tests.spark.test_dead_letters import headers_of, records_in
from tests.spark.test_exactly_once import PARTITIONS, values_in
from tests.spark.test_kills import count, run_with_kills, victims

pytestmark = pytest.mark.long

PER_BATCH = 600
ONE_PROCESS, EXECUTORS = "local[2,4]", "local-cluster[2,1,1024]"
"""Masters of Spark: the JVM of the driver runs the tasks, or two executors of their own."""

ON_EXECUTORS = ("executor", "worker", "driver", "executor", "worker", "jvm", "executor", "all")
"""The kinds of processes to kill, in turn, where executors have processes of their own."""


def spark_home(directory: Path) -> Path:
    """Return a home of Spark whose executors keep their files in ``directory``, and not in the installed package."""
    home = directory / "spark"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (home / entry.name).symlink_to(entry)
    return home


async def written(servers: str, topic: str, records: int) -> set[str]:
    """Fill a topic. Returns its rows, as the query writes them."""
    async with Producer(servers) as producer:
        sent = await producer.send_many(topic, [b"%d" % number for number in range(records)])
    return {f"{metadata.partition}:{metadata.offset}" for metadata in sent if isinstance(metadata, RecordMetadata)}


def divided(rows: set[str]) -> tuple[set[str], set[str]]:
    """Return the rows that the query copies, and its dead letters."""
    dead = {row for row in rows if row_number(row) % 5 < 2}
    return rows - dead, dead


def row_number(row: str) -> int:
    return int(row.partition(":")[2])


async def letters_in(cluster: EmbeddedCluster | Kafka, topic: str) -> list[str]:
    """Return the rows of dead letters. Each has the reason and the origin of its row."""
    rows = []
    for letter in await records_in(cluster, topic):
        row, headers = (letter.value or b"").decode(), headers_of(letter)
        assert f"{headers['origin.partition']}:{headers['origin.offset']}" == row
        assert headers["error.class"] == ("UnknownTopic" if row_number(row) % 5 else "MarkedByQuery")
        rows.append(row)
    return rows


@pytest.mark.parametrize("delivery, victim", [("at-least-once", "jvm"), ("exactly-once", "driver")])
async def test_a_killed_query_writes_every_row_as_its_delivery_says(
    cluster: EmbeddedCluster, tmp_path: Path, delivery: str, victim: str
) -> None:
    if delivery == "exactly-once" and "SPARK_KILLS" not in os.environ:
        pytest.skip("test_exactly_once_kills kills such queries; SPARK_KILLS runs this test too")
    use_java()
    chosen = victims(victim)
    records = PER_BATCH * (2 + 4 * len(chosen))  # at most three batches come between two kills
    for topic in ("killed", "killed-copied", "killed-dead"):
        await cluster.create_topic(topic, partitions=PARTITIONS)
    expected = await written(cluster.bootstrap_servers, "killed", records)
    assert len(expected) == records
    arguments = ("killed_sink.py", cluster.bootstrap_servers, "killed", str(tmp_path), str(PER_BATCH), delivery)
    killed = await run_with_kills(chosen, tmp_path, *arguments, ONE_PROCESS)
    values = await values_in(cluster.bootstrap_servers, "killed-copied")
    letters = await letters_in(cluster, "killed-dead")
    assert (set(values), set(letters)) == divided(expected)
    if delivery == "exactly-once":
        assert len(values) + len(letters) == len(expected)
    assert killed == chosen
    assert list(tmp_path.glob("failed-in-batch-*")), "no task has failed by itself"


async def test_each_row_is_on_kafka_once_when_executors_and_drivers_are_killed(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_java()
    monkeypatch.setenv("SPARK_HOME", str(spark_home(tmp_path)))
    chosen = victims("executor", kinds=ON_EXECUTORS)
    records = PER_BATCH * (2 + 4 * len(chosen))
    servers, topic = kafka.bootstrap_servers, await kafka.create_topic(partitions=PARTITIONS)
    copy, dead = [await kafka.create_topic(f"{topic}-{end}", partitions=PARTITIONS) for end in ("copied", "dead")]
    expected = await written(servers, topic, records)
    began = time.monotonic()
    arguments = ("killed_sink.py", servers, topic, str(tmp_path), str(PER_BATCH), "exactly-once", EXECUTORS)
    killed = await run_with_kills(chosen, tmp_path, *arguments)
    values, letters = await values_in(servers, copy), await letters_in(kafka, dead)
    uncommitted = await values_in(servers, copy, "read_uncommitted")
    kinds = ", ".join(f"{number} {kind}" for kind, number in Counter(killed).items())
    sys.stdout.write(  # make kill-spark shows it
        f"{len(killed)} kills ({kinds}) in {time.monotonic() - began:.0f} s, {count(tmp_path, 'commits')} batches,"
        f" {len(list(tmp_path.glob('failed-in-batch-*')))} tasks that failed by themselves, {len(values)} rows,"
        f" {len(letters)} dead letters, {len(uncommitted) - len(values)} rows of aborted transactions\n"
    )
    copied, refused = divided(expected)
    assert (sorted(values), sorted(letters)) == (sorted(copied), sorted(refused))
    assert len(expected) == records
    assert killed == chosen
