"""Addresses of brokers with IPv6 are shown in the form in which they can be given as bootstrap servers."""

from __future__ import annotations

from aiokafka_lite import Admin, Consumer
from aiokafka_lite.admin import ConfigResource, ConfigResourceType
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.ui.history import LagHistory
from aiokafka_lite.ui.views import Views
from tests.virtual import virtual_loops

pytest_asyncio_loop_factories = virtual_loops


async def test_an_ipv6_address_has_brackets_before_its_port() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, config=ClusterConfig(host="::1")) as cluster:
        await cluster.create_topic("orders")
        settings = cluster.client_settings()
        async with Admin(**settings) as admin, Consumer(**settings, topics=["orders"], group_id="g") as consumer:
            (broker,) = (await Views(admin, LagHistory(admin)).cluster())["brokers"]
            resource = ConfigResource(ConfigResourceType.BROKER, "1")
            described = (await admin.configs.describe(resource))[resource]
            await consumer.poll(timeout=10)
            diagnosis = consumer.diagnose()
    assert broker["address"] == cluster.bootstrap_servers
    assert broker["address"].startswith("[::1]:")
    assert described["listeners"].value == f"PLAINTEXT://{cluster.bootstrap_servers}"
    assert diagnosis.cluster.brokers == (f"1 at {broker['address']}",)
    assert diagnosis.group is not None
    assert diagnosis.group.coordinator == f"1 at {broker['address']}"
