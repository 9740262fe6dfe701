"""A broker that closes a connection logs why, and quotes no secret."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable

import pytest

from aiokafka_lite.embedded import EmbeddedCluster, Security
from aiokafka_lite.errors import ConnectionLost
from aiokafka_lite.protocol.messages import (
    MetadataRequest,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.embedded.broker.raw_client import Peer
from tests.pure.embedded.batches import produced

USERS = {"alice": "alice-secret"}
OPEN, CLOSED = "PLAINTEXT", "SASL_PLAINTEXT"


async def send_a_wrong_password(peer: Peer) -> None:
    await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    await peer.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0hunter2-secret"), 2)


async def send_a_wrong_mechanism(peer: Peer) -> None:
    await peer.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)


async def send_a_request_before_the_login(peer: Peer) -> None:
    peer.send(MetadataRequest(topics=None), 9)


async def send_a_version_that_does_not_exist(peer: Peer) -> None:
    peer.stream.write([(17).to_bytes(4, "big"), b"\0\3\0\x63\0\0\0\1\0\5admin\0\0"])


async def send_a_request_of_http(peer: Peer) -> None:
    peer.stream.write([b"GET / HTTP/1.1\r\n\r\n"])


async def send_acks_0_to_a_missing_topic(peer: Peer) -> None:
    data = ProduceRequestPartition(index=0, records=produced(b"v"))
    topic = ProduceRequestTopic(name="missing", partition_data=[data])
    peer.send(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[topic]), 9, answered=False)


CASES: list[tuple[str, Callable[[Peer], Awaitable[None]], str]] = [
    (CLOSED, send_a_wrong_password, "its login was refused: "),
    (CLOSED, send_a_wrong_mechanism, "its login was refused: the mechanism 'GSSAPI' is not offered"),
    (CLOSED, send_a_request_before_the_login, "a request of API key 3 came before the login"),
    (OPEN, send_a_version_that_does_not_exist, "Metadata version 99 is not supported"),
    (OPEN, send_a_request_of_http, "a client does not speak Kafka: it sent an HTTP request"),
    (OPEN, send_acks_0_to_a_missing_topic, "Produce with acks=0 to missing-0 failed: UNKNOWN_TOPIC_OR_PARTITION"),
]


@pytest.mark.parametrize(("protocol", "act", "reason"), CASES)
async def test_the_log_says_why_a_connection_was_closed(
    caplog: pytest.LogCaptureFixture, protocol: str, act: Callable[[Peer], Awaitable[None]], reason: str
) -> None:
    security = Security(protocol, users=USERS if protocol == CLOSED else {}, mechanisms=None)
    configs = {"auto.create.topics.enable": "false", "connection.failed.authentication.delay.ms": "0"}
    async with (
        EmbeddedCluster(brokers=1, tcp=False, security=security, configs=configs) as cluster,
        Peer(cluster) as peer,
    ):
        await act(peer)
        with contextlib.suppress(ConnectionLost):
            while await peer.receive() is not None:
                pass
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == 1, lines
    assert lines[0].startswith("node 1 closed the connection of client ")
    assert f" ({protocol}): {reason}" in lines[0]
    assert "hunter2" not in caplog.text


async def test_the_log_says_that_a_tls_handshake_failed(caplog: pytest.LogCaptureFixture) -> None:
    async with EmbeddedCluster(brokers=1, security="SSL") as cluster:
        host, _, port = cluster.bootstrap_servers.partition(":")
        with pytest.raises((ssl.SSLError, OSError)):
            await asyncio.open_connection(host, int(port), ssl=ssl.create_default_context())
        async with asyncio.timeout(10):
            while "the TLS handshake failed" not in caplog.text:
                await asyncio.sleep(0.01)
    assert "node 1 closed the connection of client ('127.0.0.1'" in caplog.text


async def test_an_orderly_client_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster, Peer(cluster) as peer:
        await peer.ask(MetadataRequest(topics=None), 9)
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []
