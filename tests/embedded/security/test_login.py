"""Logins to the embedded cluster by our own client, and by raw requests."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.admin import Admin
from aiokafka_lite.embedded import EmbeddedCluster, Security
from aiokafka_lite.errors import AuthenticationError, ConfigurationError, ErrorCode
from aiokafka_lite.protocol.messages import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.virtual import in_virtual_time

USERS = {"alice": "alice-secret", "zoe=,": "pass wörd Ⅸ"}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
EVERY = Security("SASL_PLAINTEXT", users=USERS, mechanisms=MECHANISMS)


@pytest.mark.parametrize("tcp", [True, False])
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_client_that_logs_in_writes_and_reads(mechanism: str, user: str, tcp: bool) -> None:
    async with EmbeddedCluster(brokers=2, security=EVERY, tcp=tcp) as cluster:
        settings = cluster.client_settings(user, mechanism=mechanism)
        async with Producer(**settings) as producer:
            await producer.send("orders", b"two coffees")
        async with Consumer(topics=["orders"], group_id="billing", **settings) as consumer:
            assert (await anext(consumer)).value == b"two coffees"
        async with Admin(**settings) as admin:
            assert len((await admin.cluster.describe()).brokers) == 2
        assert {connection.principal for node in cluster.nodes.values() for connection in node.connections} <= {
            f"User:{user}"
        }


@pytest.mark.parametrize(
    "mechanism, says",
    [
        ("PLAIN", "Authentication failed: Invalid username or password"),
        ("SCRAM-SHA-256", "Authentication failed during authentication due to invalid credentials with SASL mechanism"),
        ("SCRAM-SHA-512", "Authentication failed during authentication due to invalid credentials with SASL mechanism"),
    ],
)
@pytest.mark.parametrize("user", ["alice", "mallory"])
async def test_a_wrong_name_or_password_is_refused_in_the_words_of_kafka(mechanism: str, user: str, says: str) -> None:
    async with EmbeddedCluster(brokers=1, security=EVERY) as cluster:
        settings = cluster.client_settings(mechanism=mechanism) | {"sasl_username": user, "sasl_password": "hunter2"}
        admin = Admin(**settings)
        with pytest.raises(AuthenticationError, match=f"refused the login by {mechanism} as '{user}': {says}"):
            await admin.start()


async def test_the_first_user_of_scram_may_come_by_another_listener() -> None:
    security = Security(["PLAINTEXT", "SASL_PLAINTEXT"], mechanisms=["SCRAM-SHA-512"])
    async with EmbeddedCluster(brokers=1, security=security) as cluster, Admin(**cluster.client_settings()) as admin:
        with pytest.raises(ConfigurationError, match="user must be one of no users, got 'alice'"):
            cluster.client_settings("alice", protocol="SASL_PLAINTEXT")
        (await admin.users.set_passwords({"alice": "hunter2"})).raise_for_errors()
        alice = Admin(
            f"127.0.0.1:{cluster.nodes[1].listeners['SASL_PLAINTEXT'].port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username="alice",
            sasl_password="hunter2",
        )
        async with alice:
            assert "User:alice" in {connection.principal for connection in cluster.nodes[1].connections}


@in_virtual_time
async def test_a_login_takes_faults_like_any_other_request() -> None:
    async with EmbeddedCluster(brokers=1, security=EVERY, tcp=False) as cluster:
        cluster.on(SaslHandshakeRequest).delay(5.0)
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with Admin(**cluster.client_settings()):
            assert loop.time() - began >= 5.0
        cluster.on(SaslAuthenticateRequest).fail(ErrorCode.SASL_AUTHENTICATION_FAILED)
        with pytest.raises(AuthenticationError, match="refused the login by PLAIN as 'alice'"):
            await Admin(**cluster.client_settings()).start()
