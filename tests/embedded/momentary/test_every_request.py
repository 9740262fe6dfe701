"""Nothing momentary is final: each retriable error and each missing permission, at each request of each client.

A client is at work, and a kind of its requests fails for three seconds. Afterwards the client works as before.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import Any

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    EndTxnRequest,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
    ShareGroupHeartbeatRequest,
    SyncGroupRequest,
)
from aiokafka_lite.protocol.schema import Request
from tests.embedded.momentary.clients import TOPIC, WORKLOADS, Processing, Workload

LASTS = 3.0
"""Seconds for which a kind of request fails after a restart of the broker, and half as long before it."""

_Causes = dict[type[Request[Any]], ErrorCode]

_MOVED: _Causes = dict.fromkeys(
    (
        HeartbeatRequest,
        ConsumerGroupHeartbeatRequest,
        ShareGroupHeartbeatRequest,
        OffsetCommitRequest,
        EndTxnRequest,
    ),
    ErrorCode.NOT_COORDINATOR,
)
_EVICTED: _Causes = {
    HeartbeatRequest: ErrorCode.ILLEGAL_GENERATION,
    ConsumerGroupHeartbeatRequest: ErrorCode.UNKNOWN_MEMBER_ID,
}
CAUSES: dict[type[Request[Any]], _Causes] = {
    FindCoordinatorRequest: _MOVED,
    JoinGroupRequest: _EVICTED,
    SyncGroupRequest: _EVICTED,
    OffsetFetchRequest: _EVICTED,
    InitProducerIdRequest: {ProduceRequest: ErrorCode.INVALID_PRODUCER_EPOCH},
}
"""What makes a client send a request that it does not send in steady state: one refusal of another request."""

RECOVERS = 60.0
"""Seconds after which the client must work again. Pauses grow to ten seconds, and a session may have ended."""

PERMISSIONS = [
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
]
RETRIABLE = [code for code in ErrorCode if code.retriable]
FREQUENT = [
    *PERMISSIONS,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
]

each_workload = pytest.mark.parametrize("kind", WORKLOADS, ids=lambda kind: kind.__name__)


async def refuse_everything(kind: type[Workload], codes: list[ErrorCode], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "aiokafka_lite")
    async with EmbeddedCluster(tcp=False, seed=1, brokers=1) as cluster:
        await cluster.create_topic(TOPIC)
        settings = {"bootstrap_servers": cluster.bootstrap_servers, "connector": cluster.connector}
        async with kind(cluster, settings) as client:
            await client.work(LASTS)
            await client.recover(RECOVERS)
            for request in kind.requests:
                hits = 0
                for code in codes:
                    if request is FetchRequest and code is ErrorCode.CORRUPT_MESSAGE and issubclass(kind, Processing):
                        continue  # the iteration of a handler raises CorruptRecord: only the handler may skip records
                    hits += await refuse_one(client, request, code, caplog)
                assert hits, f"{kind.__name__} never sends {request.__name__}"
            client.check()


async def refuse_one(
    client: Workload, request: type[Request[Any]], code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> int:
    """Returns the number of refused requests."""
    cluster = client.cluster
    case = f"{type(client).__name__}: {request.__name__} fails with {code.name}"
    cluster.faults.clear()
    caplog.clear()
    client.errors.clear()
    client.begin_round()
    for cause, first_error in CAUSES.get(request, {}).items():
        cluster.on(cause, times=1).fail(first_error)
    with cluster.on(request, times=None).fail(code) as fault:
        await client.work(LASTS / 2)
        # New connections, and other lookups than in steady state.
        await cluster.kill(1)
        await cluster.start_node(1)
        await client.work(LASTS)
        if fault.hits and code in PERMISSIONS:
            is_raised = any(code.name in str(error) for error in client.errors)
            problems = client.health().problems
            is_seen = any(code.name in problem for problem in problems) and code.name in caplog.text
            assert is_raised or is_seen, f"{case}, and nobody hears of it: {problems}, {client.errors}, {caplog.text}"
    client.begin_round()
    try:
        await client.recover(RECOVERS)
    except TimeoutError:
        pytest.fail(
            f"{case}, and afterwards it does not recover: {client.owed} {client.health()}, {client.errors[-3:]}"
        )
    assert client.ended is None, f"{case}, and it ends: {client.ended!r}"
    assert client.health().is_live, f"{case}, and it ends: {client.health()}"
    return fault.hits


@pytest.mark.thorough
@each_workload
async def test_a_frequent_error_for_three_seconds_ends_nothing(
    kind: type[Workload], caplog: pytest.LogCaptureFixture
) -> None:
    await refuse_everything(kind, FREQUENT, caplog)


@pytest.mark.long
@each_workload
async def test_any_retriable_error_for_three_seconds_ends_nothing(
    kind: type[Workload], caplog: pytest.LogCaptureFixture
) -> None:
    await refuse_everything(kind, [code for code in RETRIABLE if code not in FREQUENT], caplog)


@each_workload
async def test_three_seconds_without_any_permission_end_nothing(kind: type[Workload]) -> None:
    async with EmbeddedCluster(tcp=False, seed=1, brokers=1) as cluster:
        await cluster.create_topic(TOPIC)
        settings = {"bootstrap_servers": cluster.bootstrap_servers, "connector": cluster.connector}
        async with kind(cluster, settings) as client:
            await client.work(LASTS)
            await client.recover(RECOVERS)
            for code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED):
                with ExitStack() as faults:
                    for request in kind.requests:
                        faults.enter_context(cluster.on(request, times=None).fail(code))
                    await client.work(LASTS)
                client.begin_round()
                await client.recover(RECOVERS)
                assert client.ended is None
            client.check()
