"""Every API refuses a client without permission, and accepts it with the ACLs that Kafka asks for."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator

import pytest

from aiokafka_lite.acls import AclBinding, AclFilter, AclOperation, AclResourceType
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.request_context import HANDLERS
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol import messages as m
from tests.embedded.broker.permissions import (
    COMMIT,
    GROUP,
    NAMES,
    NO_CLUSTER,
    NO_GROUP,
    NO_TOPIC,
    NO_TRANSACTION,
    ROWS,
    SHARE_GROUP,
    TOPIC,
    Row,
    name_of,
)
from tests.embedded.broker.raw_client import Peer
from tests.embedded.share_groups.requests import heartbeat

ANONYMOUS = "User:ANONYMOUS"
REFUSALS = {NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_TRANSACTION}


def refusals(value: object) -> set[ErrorCode]:
    """Return the authorization errors anywhere in a response."""
    return {ErrorCode(code) for code in _codes(value)} & REFUSALS


def _codes(value: object) -> Iterator[int]:
    if isinstance(value, list):
        for element in value:
            yield from _codes(element)
    elif dataclasses.is_dataclass(value):
        for name in (field.name for field in dataclasses.fields(value)):
            if name.endswith("error_code"):
                yield getattr(value, name)
            yield from _codes(getattr(value, name))


@pytest.fixture
async def secured() -> AsyncIterator[EmbeddedCluster]:
    """A single node in memory with ACLs; every connection is ``User:ANONYMOUS``, which may do nothing."""
    configs = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    async with EmbeddedCluster(brokers=1, tcp=False, super_users=["User:admin"], configs=configs) as cluster:
        await cluster.create_topic("t")
        await _make_groups(cluster)
        yield cluster


async def _make_groups(cluster: EmbeddedCluster) -> None:
    """Make a group with offsets and a share group, with ACLs that are deleted again."""
    grant(cluster, AclOperation.ALL, TOPIC, "*")
    grant(cluster, AclOperation.ALL, GROUP, "*")
    async with Peer(cluster) as peer:
        await peer.ask(m.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
        committed = await peer.ask(COMMIT, 9)
        assert (await peer.ask(heartbeat(SHARE_GROUP, "m", 0, ["t"]))).error_code == 0
        assert (await peer.ask(heartbeat(SHARE_GROUP, "m", -1))).error_code == 0
    assert [partition.error_code for partition in committed.topics[0].partitions] == [0]
    assert cluster.authorizer.acls is not None
    cluster.authorizer.acls.delete(cluster.authorizer.acls.find(AclFilter()))


def grant(cluster: EmbeddedCluster, operation: AclOperation, kind: AclResourceType, name: str | None = None) -> None:
    assert cluster.authorizer.acls is not None
    name = NAMES[kind] if name is None else name
    cluster.authorizer.acls.create(AclBinding(kind, name, ANONYMOUS, operation))


@pytest.mark.parametrize("row", ROWS, ids=name_of)
async def test_a_client_needs_exactly_the_acls_that_kafka_asks_for(secured: EmbeddedCluster, row: Row) -> None:
    async with Peer(secured) as peer:
        for operation, kind in row.needs:
            refused = refusals(await peer.ask(row.request, row.version))
            assert len(refused) == 1, f"without {operation.name} on {kind.name}"
            grant(secured, operation, kind, row.group if kind is GROUP else None)
        assert refusals(await peer.ask(row.request, row.version)) == set()


@pytest.mark.parametrize("row", [row for row in ROWS if row.needs], ids=name_of)
async def test_without_acls_the_error_names_the_first_resource(secured: EmbeddedCluster, row: Row) -> None:
    async with Peer(secured) as peer:
        assert refusals(await peer.ask(row.request, row.version)) == {row.refusal}


def test_every_api_has_a_row() -> None:
    logins = {m.SaslHandshakeRequest, m.SaslAuthenticateRequest}  # answered before a client has a principal
    telemetry = {m.GetTelemetrySubscriptionsRequest, m.PushTelemetryRequest}  # for every client
    of_tokens = {  # they need a principal with a name: the tests of ``admin.tokens`` have one
        m.CreateDelegationTokenRequest,
        m.RenewDelegationTokenRequest,
        m.ExpireDelegationTokenRequest,
        m.DescribeDelegationTokenRequest,
    }
    assert {type(row.request) for row in ROWS} == set(HANDLERS) - logins - telemetry - of_tokens
