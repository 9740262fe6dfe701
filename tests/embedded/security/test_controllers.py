"""An admin client for controllers whose listener has TLS and a login."""

from __future__ import annotations

import pytest

from aiokafka_lite import Admin
from aiokafka_lite.admin import NewTopic
from aiokafka_lite.embedded import EmbeddedCluster, Security
from aiokafka_lite.errors import AuthenticationError
from aiokafka_lite.protocol.messages import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse


async def test_controllers_behind_tls_and_a_login_are_asked() -> None:
    """The broker stands in for a controller: it answers as Apache Kafka's controllers do."""
    async with EmbeddedCluster(brokers=1, security=Security("SASL_SSL", users={"alice": "secret"})) as cluster:
        settings = cluster.client_settings("alice")
        controllers = settings.pop("bootstrap_servers")
        host, _, port = controllers.rpartition(":")
        node = DescribeClusterBroker(broker_id=1, host=host, port=int(port))
        answer = DescribeClusterResponse(error_code=0, endpoint_type=2, cluster_id="c", controller_id=1, brokers=[node])
        cluster.on(DescribeClusterRequest, times=None).answer(lambda request: answer)
        async with Admin(bootstrap_controllers=controllers, **settings) as admin:
            (await admin.topics.create([NewTopic("orders", partitions=1)])).raise_for_errors()
        with pytest.raises(AuthenticationError):
            await Admin(bootstrap_controllers=controllers, **{**settings, "sasl_password": "wrong"}).start()
