"""A query into a topic, killed at random moments and with failing tasks: no row is lost, or each row is there once.

``SPARK_KILLS`` is the number of kills of each query, else each has one, of a kind that ``test_kills.py`` does not have.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokafka_lite import EmbeddedCluster, Producer, RecordMetadata
from aiokafka_lite.spark.jvm import use_java
from tests.spark.test_exactly_once import values_in
from tests.spark.test_kills import run_with_kills, victims

pytestmark = pytest.mark.long

PARTITIONS = 3
PER_BATCH = 600


@pytest.mark.parametrize("delivery, victim", [("at-least-once", "jvm"), ("exactly-once", "driver")])
async def test_a_killed_query_writes_every_row_as_its_delivery_says(
    cluster: EmbeddedCluster, tmp_path: Path, delivery: str, victim: str
) -> None:
    use_java()
    chosen = victims(victim)
    records = PER_BATCH * (2 + 4 * len(chosen))  # at most three batches come between two kills
    for topic in ("killed", "killed-copied"):
        await cluster.create_topic(topic, partitions=PARTITIONS)
    async with Producer(cluster.bootstrap_servers) as producer:
        sent = await producer.send_many("killed", [b"%d" % number for number in range(records)])
    expected = {f"{each.partition}:{each.offset}" for each in sent if isinstance(each, RecordMetadata)}
    assert len(expected) == records
    arguments = ("killed_sink.py", cluster.bootstrap_servers, "killed", str(tmp_path), str(PER_BATCH), delivery)
    killed = await run_with_kills(chosen, tmp_path, *arguments)
    values = await values_in(cluster.bootstrap_servers, "killed-copied")
    assert set(values) == expected
    if delivery == "exactly-once":
        assert len(values) == len(expected)
    assert killed == chosen
    assert list(tmp_path.glob("failed-in-batch-*")), "no task has failed by itself"
