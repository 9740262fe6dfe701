"""The outbox relay while brokers fail, on a cluster of three nodes."""

from __future__ import annotations

import itertools

import pytest

from aiokafka_lite.processing.outbox import PostgresOutbox
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.databases import Database
from tests.end_to_end.failing_clusters import BreakableCluster
from tests.end_to_end.test_outbox import Outbox
from tests.real.postgres import Postgres
from tests.real.releases import NEWEST

VICTIM = 2
SAFE = {"min.insync.replicas": "2"}

_numbers = itertools.count(1)


@pytest.fixture
def cluster(breakable: BreakableCluster) -> BreakableCluster:
    return breakable


@pytest.fixture
async def outbox(cluster: BreakableCluster, postgres: Postgres) -> Outbox:
    """An outbox for a topic with three replicas, and mostly the broker that fails as the leader."""
    database = Database(postgres)
    async with database.pool() as pool:
        await database.run_script(PostgresOutbox(pool).ddl)
    topic = f"outbox-{next(_numbers)}"
    await cluster.create_topic(topic, [[VICTIM, 3, 1], [3, VICTIM, 1], [VICTIM, 1, 3]], SAFE)
    return Outbox(Kafka("embedded", NEWEST, cluster.bootstrap_servers), database, topic)


async def test_a_leader_that_is_killed_and_starts_again_loses_and_repeats_nothing(
    cluster: BreakableCluster, outbox: Outbox
) -> None:
    async with outbox.relay(batch_size=20), outbox.relay("psycopg", batch_size=20):
        for _ in range(2):
            await outbox.insert()
            await cluster.kill(VICTIM)
            await outbox.insert()
            await outbox.until_empty()
            await outbox.insert()
            await cluster.start(VICTIM)
            await outbox.until_empty()
    await outbox.check()


async def test_a_leader_that_is_frozen_loses_and_repeats_nothing(cluster: BreakableCluster, outbox: Outbox) -> None:
    async with outbox.relay(batch_size=20):
        await outbox.insert()
        await cluster.freeze(VICTIM)
        await outbox.insert()
        await outbox.until_empty()
        await cluster.thaw(VICTIM)
        await outbox.insert()
        await outbox.until_empty()
    await outbox.check()


async def test_a_partition_without_a_leader_stops_only_its_keys(cluster: BreakableCluster, outbox: Outbox) -> None:
    alone = f"alone-{next(_numbers)}"
    await cluster.create_topic(alone, [[VICTIM]])
    async with outbox.relay(batch_size=100):
        await outbox.add(b"key", b"", topic=alone)
        await outbox.until_empty()
        await cluster.kill(VICTIM)
        for number in range(60):
            if number % 20 == 0:
                await outbox.insert()
            await outbox.add(b"key-%d" % number, b"", topic=alone)
        await outbox.until_empty(f"topic <> '{alone}'")
        stuck = await outbox.rows()
        assert len(stuck) == 60
        assert {row["attempts"] for row in stuck} == {0}
        await cluster.start(VICTIM)
        await outbox.until_empty()
    await outbox.check()
