"""Brokers that start again without their data have no groups: the members of every kind of group join again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite import Admin, Consumer, EmbeddedCluster, ShareConsumer
from aiokafka_lite.admin import ConfigResource
from tests.virtual import in_virtual_time

KINDS: dict[str, dict[str, Any]] = {
    "classic": {"session_timeout": 6.0, "heartbeat_interval": 1.0},
    "static": {"session_timeout": 6.0, "heartbeat_interval": 1.0, "group_instance_id": "one"},
    "consumer": {"group_protocol": "consumer"},
    "static consumer": {"group_protocol": "consumer", "group_instance_id": "one"},
    "share": {},
}


class Replaceable:
    """A connector to the present one of several clusters, all of which have the same addresses."""

    def __init__(self) -> None:
        self.cluster: EmbeddedCluster | None = None

    async def connect(self, host: str, port: int, protocol_factory: Any) -> Any:
        if self.cluster is None or self.cluster.connector is None:
            raise ConnectionRefusedError(f"nothing listens on {host}:{port}")
        return await self.cluster.connector.connect(host, port, protocol_factory)

    async def use(self, cluster: EmbeddedCluster) -> None:
        await cluster.create_topic("t", partitions=1)
        async with Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin:
            await admin.configs.alter({ConfigResource.group("g"): {"share.auto.offset.reset": "earliest"}})
        self.cluster = cluster


def client_of(kind: str, servers: str, connector: Replaceable) -> Consumer | ShareConsumer:
    settings = {"topics": ["t"], "group_id": "g", "connector": connector, **KINDS[kind]}
    return ShareConsumer(servers, **settings) if kind == "share" else Consumer(servers, **settings)


@pytest.mark.parametrize("kind", KINDS)
@in_virtual_time
async def test_a_member_whose_group_the_brokers_lost_joins_again(kind: str) -> None:
    connector = Replaceable()
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1) as first:
        await connector.use(first)
        await first.produce("t", b"old")
        client = client_of(kind, first.bootstrap_servers, connector)
        await client.start()
        assert [record.value for record in await client.poll(timeout=30.0)] == [b"old"]
        connector.cluster = None
    async with EmbeddedCluster(brokers=1, tcp=False, seed=2) as second:
        await connector.use(second)
        await second.produce("t", b"new")
        values: list[bytes | None] = []
        async with asyncio.timeout(60.0):
            while b"new" not in values:
                values += [record.value for record in await client.poll(timeout=1.0)]
        assert client.health().is_ready
        await client.close()
