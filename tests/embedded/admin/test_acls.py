"""ACLs are created, described and deleted by the admin client."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka_lite import BrokerError
from aiokafka_lite.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    Admin,
)
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import AuthorizationError, ErrorCode, UnsupportedVersion

ANONYMOUS = "User:ANONYMOUS"
TOPIC = AclResourceType.TOPIC
READ, WRITE = AclOperation.READ, AclOperation.WRITE
ORDERS = AclBinding(TOPIC, "orders", "User:alice", READ)
PREFIXED = AclBinding(
    TOPIC, "ord", "User:bob", WRITE, AclPermission.DENY, "10.0.0.1", pattern_type=AclPatternType.PREFIXED
)


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Three brokers with ACLs; the admin client is a super user."""
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1, super_users=[ANONYMOUS]) as cluster:
        yield cluster


async def test_acls_are_created_found_and_deleted(admin: Admin) -> None:
    (await admin.acls.create([ORDERS, PREFIXED])).raise_for_errors()
    (await admin.acls.create(ORDERS)).raise_for_errors()
    assert set(await admin.acls.describe()) == {ORDERS, PREFIXED}
    assert await admin.acls.describe(AclFilter(principal="User:bob")) == (PREFIXED,)
    about = AclFilter(TOPIC, "orders", pattern_type=AclPatternType.MATCH)
    assert set(await admin.acls.describe(about)) == {ORDERS, PREFIXED}
    nothing = AclFilter(AclResourceType.GROUP)
    deleted = await admin.acls.delete([AclFilter.of(ORDERS), nothing])
    assert deleted.raise_for_errors() == {AclFilter.of(ORDERS): (ORDERS,), nothing: ()}
    assert await admin.acls.describe() == (PREFIXED,)


async def test_each_acl_has_its_own_error(admin: Admin) -> None:
    wrong = AclBinding(AclResourceType.CLUSTER, "another", "User:alice", READ)
    results = await admin.acls.create([wrong, ORDERS])
    assert list(results.done) == [ORDERS]
    with pytest.raises(BrokerError, match=r"ALLOW User:alice from \* READ on CLUSTER another.*kafka-cluster") as caught:
        results[wrong]
    assert caught.value.code is ErrorCode.INVALID_REQUEST


async def test_without_permission_acls_are_neither_shown_nor_changed() -> None:
    async with (
        EmbeddedCluster(brokers=1, tcp=False, super_users=[]) as cluster,
        Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin,
    ):
        with pytest.raises(AuthorizationError, match="describing ACLs"):
            await admin.acls.describe()
        with pytest.raises(AuthorizationError, match="creating the ACL"):
            (await admin.acls.create(ORDERS)).raise_for_errors()


async def test_a_cluster_without_an_authorizer_has_no_acls() -> None:
    async with (
        EmbeddedCluster(brokers=1, tcp=False) as cluster,
        Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin,
    ):
        with pytest.raises(BrokerError, match="SECURITY_DISABLED"):
            await admin.acls.describe()


async def test_an_old_broker_refuses_what_it_cannot_store() -> None:
    of_user = AclBinding(AclResourceType.USER, "alice", "User:bob", AclOperation.CREATE_TOKENS)
    async with (
        EmbeddedCluster(brokers=1, tcp=False, super_users=[ANONYMOUS], as_kafka="2.8") as cluster,
        Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin,
    ):
        results = await admin.acls.create([of_user])
        with pytest.raises(UnsupportedVersion, match=r"users requires Kafka 3\.3"):
            results[of_user]


@pytest.mark.parametrize("wrong", ["orders", [ORDERS, "orders"], None])
async def test_an_object_that_is_not_an_acl_is_refused_at_once(admin: Admin, wrong: object) -> None:
    with pytest.raises(TypeError, match="AclBinding"):
        await admin.acls.create(wrong)  # type: ignore[arg-type]
