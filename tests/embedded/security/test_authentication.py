"""The answers of a listener with logins, request by request, in virtual time."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable

import pytest

from aiokafka_lite import Producer
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster, Security
from aiokafka_lite.embedded.security.access_tokens import unsecured_token
from aiokafka_lite.errors import ConnectionLost, ErrorCode
from aiokafka_lite.protocol.messages import (
    ApiVersionsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from tests.embedded.broker.raw_client import Peer
from tests.virtual import in_virtual_time

USERS = {"alice": "alice-secret", "bob": "bob-secret"}
ALICE, BOB, WRONG = b"\0alice\0alice-secret", b"\0bob\0bob-secret", b"\0alice\0hunter2"
METADATA = MetadataRequest(topics=None)


def cluster_with_logins(wall_clock: Callable[[], float] = time.time, **configs: str) -> EmbeddedCluster:
    security = Security("SASL_PLAINTEXT", users=USERS, mechanisms=["PLAIN", "OAUTHBEARER"])
    config = ClusterConfig(wall_clock=wall_clock)
    return EmbeddedCluster(brokers=1, tcp=False, security=security, configs=configs, config=config)


def now() -> float:
    return asyncio.get_running_loop().time()


async def log_in(
    peer: Peer, message: bytes = ALICE, mechanism: str = "PLAIN", version: int = 2
) -> SaslAuthenticateResponse:
    handshake = await peer.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
    assert handshake.error_code == ErrorCode.NONE
    return await peer.ask(SaslAuthenticateRequest(auth_bytes=message), version)


async def is_closed(peer: Peer) -> bool:
    """Return whether the node closes the connection next, without a response."""
    try:
        return await peer.receive() is None
    except ConnectionLost:
        return True


# Before the login.


@in_virtual_time
async def test_a_request_before_the_login_closes_the_connection_without_an_answer() -> None:
    async with cluster_with_logins() as cluster:
        for request in (METADATA, SaslAuthenticateRequest(auth_bytes=ALICE)):
            async with Peer(cluster) as peer:
                await peer.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
                peer.send(request, 1)
                assert await is_closed(peer)


@in_virtual_time
async def test_api_versions_are_answered_once_before_the_login() -> None:
    async with cluster_with_logins() as cluster, Peer(cluster) as peer:
        versions = await peer.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
        assert {api_key.api_key for api_key in versions.api_keys} >= {0, 17, 36}
        peer.send(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
        assert await is_closed(peer)


@in_virtual_time
async def test_another_request_during_the_login_is_answered_with_illegal_sasl_state() -> None:
    async with cluster_with_logins() as cluster, Peer(cluster) as peer:
        await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = await peer.ask(MetadataRequest(topics=None), 13)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await is_closed(peer)


@in_virtual_time
async def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are() -> None:
    async with cluster_with_logins() as cluster, Peer(cluster) as peer:
        answer = await peer.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        assert (answer.error_code, answer.mechanisms) == (33, ["PLAIN", "OAUTHBEARER"])
        assert await is_closed(peer)


@in_virtual_time
async def test_a_failed_login_is_answered_after_the_delay_and_closes_the_connection() -> None:
    configs = {"connection.failed.authentication.delay.ms": "700"}
    async with cluster_with_logins(**configs) as cluster, Peer(cluster) as peer:
        began = now()
        answer = await log_in(peer, WRONG)
        assert now() - began == pytest.approx(0.7, abs=1e-3)
        assert (answer.error_code, answer.auth_bytes) == (ErrorCode.SASL_AUTHENTICATION_FAILED, b"")
        assert answer.error_message == "Authentication failed: Invalid username or password"
        assert await is_closed(peer)


@in_virtual_time
async def test_a_frame_before_the_login_has_at_most_512_kib() -> None:
    async with cluster_with_logins() as cluster:
        async with Peer(cluster) as peer:
            peer.stream.write([struct.pack(">i", 512 * 1024 + 1)])
            assert await is_closed(peer)
        async with Peer(cluster) as peer:
            await log_in(peer)
            answer = await peer.produce("t", bytes(600 * 1024))
            assert answer.error_code == ErrorCode.CORRUPT_MESSAGE


@in_virtual_time
async def test_a_client_that_does_not_log_in_is_disconnected_after_30_seconds() -> None:
    async with cluster_with_logins() as cluster, Peer(cluster) as idle, Peer(cluster) as logged_in:
        began = now()
        await log_in(logged_in)
        assert await is_closed(idle)
        assert now() - began == pytest.approx(30.0, abs=1e-3)
        assert (await logged_in.ask(METADATA)).brokers


# The login.


@in_virtual_time
async def test_messages_have_no_header_after_a_handshake_of_version_0() -> None:
    async with cluster_with_logins() as cluster:
        async with Peer(cluster) as peer:
            await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
            peer.stream.write([struct.pack(">i", len(ALICE)) + ALICE])
            # The answer is an empty message, a frame of four zero bytes. The reader of a client takes no empty frame.
            assert await until_principal(cluster) == "User:alice"
        async with Peer(cluster) as peer:
            await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
            peer.stream.write([struct.pack(">i", len(WRONG)) + WRONG])
            assert await is_closed(peer)


async def until_principal(cluster: EmbeddedCluster) -> str:
    while True:
        (connection,) = cluster.nodes[1].connections
        if connection.principal != "User:ANONYMOUS":
            return connection.principal
        await asyncio.sleep(0)


@in_virtual_time
async def test_a_bad_token_is_answered_with_its_status_and_then_refused() -> None:
    async with cluster_with_logins() as cluster, Peer(cluster) as peer:
        token = unsecured_token("carol", issued_at=time.time() - 60.0, lifetime=30.0)
        answer = await log_in(peer, bearer(token), "OAUTHBEARER")
        assert (answer.error_code, answer.auth_bytes) == (ErrorCode.NONE, b'{"status":"invalid_token"}')
        refused = await peer.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
        assert (refused.error_code, refused.error_message) == (58, '{"status":"invalid_token"}')
        assert await is_closed(peer)


def bearer(token: str) -> bytes:
    return b"n,,\x01auth=Bearer " + token.encode() + b"\x01traceId=7\x01\x01"


@in_virtual_time
async def test_a_login_that_is_complete_is_not_repeated() -> None:
    async with cluster_with_logins() as cluster, Peer(cluster) as peer:
        assert (await log_in(peer)).session_lifetime_ms == 0
        handshake = await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert (handshake.error_code, handshake.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        answer = await peer.ask(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert answer.error_message == "SaslAuthenticate request received after successful authentication"


@in_virtual_time
async def test_a_listener_without_logins_refuses_them() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster, Peer(cluster) as peer:
        answer = await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])


# Sessions.

SESSIONS = {"connections.max.reauth.ms": "10000"}


@in_virtual_time
async def test_the_first_request_after_the_end_of_a_session_closes_the_connection() -> None:
    async with cluster_with_logins(**SESSIONS) as cluster, Peer(cluster) as peer:
        assert (await log_in(peer)).session_lifetime_ms == 10_000
        await asyncio.sleep(9.9)
        assert (await peer.ask(METADATA)).brokers
        await asyncio.sleep(0.2)
        peer.send(METADATA, 13)
        assert await is_closed(peer)


@in_virtual_time
async def test_a_session_ends_with_the_token() -> None:
    async with cluster_with_logins(lambda: 1e9, **SESSIONS) as cluster, Peer(cluster) as peer:
        token = unsecured_token("carol", issued_at=1e9, lifetime=5.0)
        answer = await log_in(peer, bearer(token), "OAUTHBEARER")
        assert answer.session_lifetime_ms == 5000


@in_virtual_time
async def test_a_session_is_renewed_by_the_same_mechanism_and_principal_alone() -> None:
    async with cluster_with_logins(**SESSIONS) as cluster:
        async with Peer(cluster) as peer:
            await log_in(peer)
            await asyncio.sleep(9.0)
            assert (await log_in(peer)).error_code == ErrorCode.NONE
            await asyncio.sleep(9.0)
            assert (await peer.ask(METADATA)).brokers
            refused = await log_in(peer, BOB)
            assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            says = "Cannot change principals during re-authentication from User.alice: User.bob"
            assert refused.error_message == says
            assert await is_closed(peer)
        async with Peer(cluster) as peer:
            await log_in(peer)
            await peer.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
            peer.send(SaslAuthenticateRequest(auth_bytes=b""), 2)
            assert await is_closed(peer)


@in_virtual_time
async def test_a_session_is_not_renewed_twice_within_a_second() -> None:
    async with cluster_with_logins(**SESSIONS) as cluster, Peer(cluster) as peer:
        await log_in(peer)
        await log_in(peer)
        handshake = await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE


@in_virtual_time
async def test_our_client_renews_its_sessions_and_keeps_its_connections() -> None:
    async with cluster_with_logins(**SESSIONS) as cluster:
        async with Producer(**cluster.client_settings()) as producer:
            for _ in range(5):
                await producer.send("t", b"value")
                await asyncio.sleep(9.0)
        assert len(cluster.records("t")) == 5
        logins: dict[int, int] = {}
        for exchange in cluster.history.of(SaslAuthenticateRequest):
            logins[exchange.connection_id] = logins.get(exchange.connection_id, 0) + 1
        assert max(logins.values()) >= 4
