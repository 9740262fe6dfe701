"""confluent-kafka and kafka-python change ACLs and SCRAM users on the embedded broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka_lite.acls import AclBinding, AclFilter, AclOperation, AclPatternType, AclPermission, AclResourceType
from aiokafka_lite.embedded import EmbeddedCluster
from tests.waiting import DEADLINE

READ_ORDERS = AclBinding(AclResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)
NO_WRITE = AclBinding(
    AclResourceType.GROUP,
    "bill",
    "User:bob",
    AclOperation.WRITE,
    AclPermission.DENY,
    "10.0.0.1",
    AclPatternType.PREFIXED,
)


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Three brokers with ACLs; clients without a login are super users."""
    async with EmbeddedCluster(brokers=3, super_users=["User:ANONYMOUS"]) as cluster:
        yield cluster


def stored(cluster: EmbeddedCluster) -> set[AclBinding]:
    assert cluster.authorizer.acls is not None
    return set(cluster.authorizer.acls.find(AclFilter()))


async def test_librdkafka_changes_acls(cluster: EmbeddedCluster) -> None:
    module = pytest.importorskip("confluent_kafka.admin")
    admin = module.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    kinds, patterns = module.ResourceType, module.ResourcePatternType
    operations, permissions = module.AclOperation, module.AclPermissionType
    bindings = [
        module.AclBinding(
            kinds.TOPIC, "orders", patterns.LITERAL, "User:alice", "*", operations.READ, permissions.ALLOW
        ),
        module.AclBinding(
            kinds.GROUP, "bill", patterns.PREFIXED, "User:bob", "10.0.0.1", operations.WRITE, permissions.DENY
        ),
    ]

    def change() -> tuple[list[Any], list[Any]]:
        for future in admin.create_acls(bindings).values():
            future.result(DEADLINE)
        matching = module.AclBindingFilter(
            kinds.TOPIC, "orders", patterns.MATCH, None, None, operations.ANY, permissions.ANY
        )
        matches = admin.describe_acls(matching).result(DEADLINE)
        (deleted,) = admin.delete_acls([matching]).values()
        return matches, deleted.result(DEADLINE)

    matches, deleted = await asyncio.to_thread(change)
    assert matches == deleted == bindings[:1]
    assert stored(cluster) == {NO_WRITE}


async def test_librdkafka_changes_users(cluster: EmbeddedCluster) -> None:
    module = pytest.importorskip("confluent_kafka.admin")
    admin = module.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    by_sha_512 = module.ScramMechanism.SCRAM_SHA_512

    def change() -> Any:
        info = module.ScramCredentialInfo(by_sha_512, 8192)
        added = admin.alter_user_scram_credentials([module.UserScramCredentialUpsertion("alice", info, b"secret")])
        added["alice"].result(DEADLINE)
        described = admin.describe_user_scram_credentials(["alice"])["alice"].result(DEADLINE)
        deleted = admin.alter_user_scram_credentials([module.UserScramCredentialDeletion("alice", by_sha_512)])
        deleted["alice"].result(DEADLINE)
        return described

    (credential,) = (await asyncio.to_thread(change)).scram_credential_infos
    assert (credential.mechanism, credential.iterations) == (by_sha_512, 8192)


async def test_kafka_python_changes_acls(cluster: EmbeddedCluster) -> None:
    module = pytest.importorskip("kafka.admin")
    orders = module.ResourcePattern(module.ResourceType.TOPIC, "orders")
    prefixed = module.ResourcePattern(
        module.ResourceType.GROUP, "bill", pattern_type=module.ACLResourcePatternType.PREFIXED
    )
    operations, permissions = module.ACLOperation, module.ACLPermissionType
    read = module.ACL("User:alice", "*", operations.READ, permissions.ALLOW, orders)
    write = module.ACL("User:bob", "10.0.0.1", operations.WRITE, permissions.DENY, prefixed)
    of_alice = module.ACLFilter(
        "User:alice",
        None,
        operations.ANY,
        permissions.ANY,
        module.ResourcePatternFilter(module.ResourceType.ANY, None, module.ACLResourcePatternType.ANY),
    )

    def change() -> tuple[set[AclBinding], Any]:
        admin = module.KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        try:
            assert admin.create_acls([read, write])["failed"] == []
            created = stored(cluster)
            bindings, _ = admin.describe_acls(of_alice)
            admin.delete_acls([of_alice])
        finally:
            admin.close()
        return created, bindings

    created, bindings = await asyncio.to_thread(change)
    assert created == {READ_ORDERS, NO_WRITE}
    assert bindings == [read]
    assert stored(cluster) == {NO_WRITE}
