"""An admin client that asks the controllers of Apache Kafka (KIP-919)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiokafka_lite import Admin
from aiokafka_lite.admin import ConfigResource, NewTopic
from aiokafka_lite.errors import AuthenticationError, UnsupportedVersion
from tests.end_to_end.conftest import missing
from tests.end_to_end.terminal import run
from tests.real.jvm import JvmKafka, java_problem
from tests.real.releases import NEWEST
from tests.waiting import DEADLINE

pytestmark = pytest.mark.real

LOGIN = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' username="kafka" password="broker" user_kafka="broker" user_alice="secret";'
    ),
}
AS_ALICE: Any = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "secret",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[JvmKafka]:
    if (problem := java_problem()) is not None:
        missing(f"controllers are not tested: {problem}")
    broker = JvmKafka(NEWEST, settings=LOGIN).start()
    yield broker
    broker.stop()


async def test_controllers_answer_an_admin_client_that_logs_in(broker: JvmKafka) -> None:
    address = f"127.0.0.1:{broker.controller_port}"
    async with Admin(bootstrap_controllers=address, **AS_ALICE) as admin:
        cluster = await admin.cluster.describe()
        assert [f"{node.host}:{node.port}" for node in cluster.brokers] == [address]
        assert cluster.controller == cluster.brokers[0]
        assert (await admin.cluster.quorum()).leader == cluster.brokers[0].node_id
        assert "metadata.version" in (await admin.cluster.features()).finalized
        (await admin.topics.create([NewTopic("orders", partitions=1)])).raise_for_errors()
        topic = ConfigResource.topic("orders")
        (await admin.configs.alter({topic: {"retention.ms": "60000"}})).raise_for_errors()
        async with asyncio.timeout(DEADLINE):
            while (await admin.configs.describe(topic))[topic]["retention.ms"].value != "60000":
                await asyncio.sleep(0.05)
        with pytest.raises(UnsupportedVersion, match="does not support ListGroups"):
            await admin.groups.list()
        with pytest.raises(ValueError, match="include_fenced is for brokers"):
            await admin.cluster.describe(include_fenced=True)
        with pytest.raises(UnsupportedVersion, match="describing quotas is for brokers"):
            await admin.quotas.describe()
        with pytest.raises(UnsupportedVersion, match="controllers do not describe users"):
            await admin.users.describe()


async def test_a_controller_is_no_bootstrap_server(broker: JvmKafka) -> None:
    with pytest.raises(UnsupportedVersion, match="is it a controller"):
        await Admin(f"127.0.0.1:{broker.controller_port}", **AS_ALICE).start()


async def test_a_controller_refuses_a_wrong_password(broker: JvmKafka) -> None:
    with pytest.raises(AuthenticationError):
        await Admin(
            bootstrap_controllers=f"127.0.0.1:{broker.controller_port}", **{**AS_ALICE, "sasl_password": "wrong"}
        ).start()


async def test_commands_ask_the_controllers(broker: JvmKafka, tmp_path: Path) -> None:
    login = tmp_path / "alice.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="alice"'
        ' password="secret";\n'
    )
    to_controller = ["--bootstrap-controller", f"127.0.0.1:{broker.controller_port}", "-c", str(login)]
    described = await run("cluster", *to_controller, "--json")
    assert described.status == 0, described.errors
    assert json.loads(described.output)["brokers"][0]["port"] == broker.controller_port
    for command in (
        ["topics", "create", "audit", "-p", "1"],
        ["configs", "alter", "topic", "audit", "--set", "retention.ms=60000"],
        ["configs", "describe", "topic", "audit"],
        ["quotas", "alter", "--user", "alice", "--set", "producer_byte_rate=1048576"],
    ):
        outcome = await run(*command, *to_controller)
        assert outcome.status == 0, outcome.errors
