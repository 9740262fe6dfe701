"""Nothing momentary is final: logins and certificates that are refused for three seconds, under each client at work.

The broker is restarted, so that all connections are opened again while it refuses the client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import pytest

from aiokafka_lite.consumer import Consumer
from aiokafka_lite.embedded import EmbeddedCluster, Security
from aiokafka_lite.errors import AuthenticationError, ErrorCode
from aiokafka_lite.group import MemberState
from aiokafka_lite.producer import Producer
from aiokafka_lite.protocol.messages import (
    HeartbeatRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from tests.embedded.momentary.clients import TOPIC, WORKLOADS, Idempotent, Member, Workload
from tests.waiting import until

LASTS = 3.0
"""Seconds for which connections are refused."""

RECOVERS = 60.0
"""Seconds after which the client must work again."""


class Access:
    """A connector and a token provider that work, or raise ``error`` or ``provider_error``."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.error: Exception | None = None
        self.provider_error: Exception | None = None
        self._settings = cluster.client_settings()
        self._connector = cluster.connector

    @property
    def settings(self) -> dict[str, Any]:
        return {**self._settings, "connector": self, "sasl_oauth_token_provider": self._token}

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], Any]) -> tuple[Any, Any]:
        if self.error is not None:
            raise self.error
        assert self._connector is not None
        return await self._connector.connect(host, port, protocol_factory)

    async def _token(self) -> str:
        if self.provider_error is not None:
            raise self.provider_error
        token: str = self._settings["sasl_oauth_token_provider"]()
        return token


Trouble = Callable[[EmbeddedCluster, Access], AbstractContextManager[object]]


def refused_login(cluster: EmbeddedCluster, access: Access) -> AbstractContextManager[object]:
    """Refuse a login as Amazon MSK does when a client connects too often."""

    def busy(request: object) -> SaslAuthenticateResponse:
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        return SaslAuthenticateResponse(error_code=code, error_message="Too many connects", auth_bytes=b"")

    return cluster.on(SaslAuthenticateRequest, times=None).answer(busy)


def failed_login(cluster: EmbeddedCluster, access: Access) -> AbstractContextManager[object]:
    return cluster.on(SaslAuthenticateRequest, times=None).fail(ErrorCode.UNKNOWN_SERVER_ERROR)


def missing_mechanism(cluster: EmbeddedCluster, access: Access) -> AbstractContextManager[object]:
    return cluster.on(SaslHandshakeRequest, times=None).fail(ErrorCode.UNSUPPORTED_SASL_MECHANISM)


def no_login_on_this_port(cluster: EmbeddedCluster, access: Access) -> AbstractContextManager[object]:
    return cluster.on(SaslHandshakeRequest, times=None).fail(ErrorCode.ILLEGAL_SASL_STATE)


@contextmanager
def expired_certificate(cluster: EmbeddedCluster, access: Access) -> Iterator[None]:
    """Let the connector raise what a failed TLS handshake raises."""
    access.error = AuthenticationError("the certificate of kafka:9092 cannot be trusted: certificate has expired")
    yield
    access.error = None


@contextmanager
def silent_identity_provider(cluster: EmbeddedCluster, access: Access) -> Iterator[None]:
    access.provider_error = OSError("HTTP status 503")
    yield
    access.provider_error = None


@contextmanager
def refusing_identity_provider(cluster: EmbeddedCluster, access: Access) -> Iterator[None]:
    access.provider_error = AuthenticationError("invalid_client")
    yield
    access.provider_error = None


TROUBLES: tuple[Trouble, ...] = (
    refused_login,
    failed_login,
    missing_mechanism,
    no_login_on_this_port,
    expired_certificate,
    silent_identity_provider,
    refusing_identity_provider,
)
REFUSALS: tuple[Trouble, ...] = tuple(
    trouble for trouble in TROUBLES if trouble not in (failed_login, silent_identity_provider)
)

SECURITY = Security("SASL_PLAINTEXT", mechanisms=["OAUTHBEARER"])


def secure_cluster(**configs: str) -> EmbeddedCluster:
    return EmbeddedCluster(
        tcp=False,
        seed=1,
        brokers=1,
        security=SECURITY,
        configs={key.replace("_", "."): configs[key] for key in configs},
    )


each_workload = pytest.mark.parametrize("kind", WORKLOADS, ids=lambda kind: kind.__name__)


@pytest.mark.thorough
@each_workload
async def test_connections_that_are_refused_for_three_seconds_end_nothing(
    kind: type[Workload], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "aiokafka_lite")
    async with secure_cluster() as cluster:
        await cluster.create_topic(TOPIC)
        access = Access(cluster)
        async with kind(cluster, access.settings) as client:
            await client.work(LASTS)
            await client.recover(RECOVERS)
            for trouble in TROUBLES:
                case = f"{kind.__name__} under {trouble.__name__}"
                caplog.clear()
                client.begin_round()
                with trouble(cluster, access):
                    await cluster.kill(1)
                    await cluster.start_node(1)
                    await client.work(LASTS)
                    assert client.health().is_live, case
                    if trouble in REFUSALS:
                        assert not client.health().is_ready, case
                        assert "AuthenticationError" in str(client.health().problems), case
                        assert "WARNING" in caplog.text, case
                client.begin_round()
                await client.recover(RECOVERS)
                assert client.ended is None, f"{case}: {client.ended!r}"
                await asyncio.sleep(15.0)  # so that the next refusal begins with the shortest pause
            client.check()


@pytest.mark.thorough
@each_workload
async def test_renewals_of_logins_that_are_refused_end_nothing(kind: type[Workload]) -> None:
    async with secure_cluster(connections_max_reauth_ms="3000") as cluster:
        await cluster.create_topic(TOPIC)
        access = Access(cluster)
        async with kind(cluster, access.settings) as client:
            await client.work(LASTS)
            for trouble in (refused_login, silent_identity_provider, refusing_identity_provider):
                client.begin_round()
                with trouble(cluster, access):
                    await client.work(2 * LASTS)
                client.begin_round()
                await client.recover(RECOVERS)
                assert client.ended is None
            client.check()


async def test_a_broker_that_refuses_logins_is_asked_some_times_a_minute() -> None:
    async with secure_cluster() as cluster:
        await cluster.create_topic(TOPIC)
        access = Access(cluster)
        async with Member(cluster, access.settings) as client:
            await client.work(LASTS)
            with cluster.on(SaslAuthenticateRequest, times=None).fail(ErrorCode.SASL_AUTHENTICATION_FAILED) as fault:
                await cluster.kill(1)
                await cluster.start_node(1)
                await client.work(120.0)
                # The broker has two addresses for the client: that of its node, and the bootstrap address.
                assert 4 <= fault.hits <= 2 * 2 * 10
            await client.recover(RECOVERS)


@pytest.mark.parametrize("trouble", REFUSALS)
async def test_a_refusal_at_the_start_is_an_error_at_once(trouble: Trouble) -> None:
    async with secure_cluster() as cluster:
        await cluster.create_topic(TOPIC)
        access = Access(cluster)
        loop = asyncio.get_running_loop()
        with trouble(cluster, access):
            for client in (Producer(**access.settings), Consumer(topics=[TOPIC], group_id="g", **access.settings)):
                began = loop.time()
                with pytest.raises(AuthenticationError):
                    await client.start()
                assert loop.time() - began < 1.0


async def test_a_member_keeps_its_membership_while_another_broker_refuses_its_login() -> None:
    async with EmbeddedCluster(tcp=False, seed=1, brokers=3, security=SECURITY) as cluster:
        await cluster.create_topic(TOPIC, assignments=[[1, 2, 3]])
        access = Access(cluster)
        async with Consumer(
            topics=[TOPIC], group_id="g", heartbeat_interval=0.5, session_timeout=10.0, **access.settings
        ) as consumer:
            await consumer.wait_assigned()
            await until(lambda: cluster.history.of(HeartbeatRequest))
            coordinator = cluster.history.of(HeartbeatRequest)[-1].node_id
            other = next(node for node in cluster.nodes if node != coordinator)
            generation = consumer.group_metadata().generation_id
            with cluster.on(SaslAuthenticateRequest, node=other, times=None).fail(ErrorCode.SASL_AUTHENTICATION_FAILED):
                await cluster.kill(other)
                await cluster.start_node(other)
                before = len(cluster.history.of(HeartbeatRequest))
                end = asyncio.get_running_loop().time() + 30.0
                while asyncio.get_running_loop().time() < end:
                    with suppress(AuthenticationError):
                        await consumer.poll(timeout=1.0)
                assert len(cluster.history.of(HeartbeatRequest)) > before + 40
                assert consumer.membership is MemberState.STABLE
                assert consumer.group_metadata().generation_id == generation
            await until(lambda: consumer.health().is_ready)


async def test_records_that_are_sent_during_refused_logins_are_written_once_or_fail() -> None:
    async with secure_cluster() as cluster:
        await cluster.create_topic(TOPIC)
        access = Access(cluster)
        async with Idempotent(cluster, access.settings) as client:
            await client.work(LASTS)
            with refused_login(cluster, access):
                await cluster.kill(1)
                await cluster.start_node(1)
                await client.work(LASTS)
                assert {type(error) for error in client.errors} == {AuthenticationError}
            client.begin_round()
            await client.recover(RECOVERS)
            client.check()
