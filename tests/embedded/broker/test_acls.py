"""ACLs on the embedded broker: creating, describing and deleting them, and what each API answers without permission."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka_lite.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from aiokafka_lite.embedded import EmbeddedCluster, handlers
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol import messages as m
from tests.embedded.broker.raw_client import Peer

ANONYMOUS = "User:ANONYMOUS"
TOPIC, CLUSTER = AclResourceType.TOPIC, AclResourceType.CLUSTER


@pytest.fixture
async def secured() -> AsyncIterator[EmbeddedCluster]:
    """A single node in memory with ACLs; every connection is ``User:ANONYMOUS``, which may do nothing."""
    async with EmbeddedCluster(brokers=1, tcp=False, super_users=["User:admin"]) as cluster:
        yield cluster


def grant(
    cluster: EmbeddedCluster,
    operation: AclOperation,
    kind: AclResourceType = CLUSTER,
    name: str = CLUSTER_NAME,
    pattern: AclPatternType = AclPatternType.LITERAL,
) -> None:
    assert cluster.authorizer.acls is not None
    cluster.authorizer.acls.create(AclBinding(kind, name, ANONYMOUS, operation, pattern_type=pattern))


def creation(**changes: Any) -> m.AclCreation:
    values: dict[str, Any] = {
        "resource_type": TOPIC,
        "resource_name": "orders",
        "principal": "User:alice",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": AclPermission.ALLOW,
    }
    return m.AclCreation(**(values | changes))


EVERY_ACL = m.DescribeAclsRequest(
    resource_type_filter=1,
    resource_name_filter=None,
    pattern_type_filter=1,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)


async def test_acls_are_created_described_by_pattern_and_deleted(secured: EmbeddedCluster) -> None:
    grant(secured, AclOperation.ALL)
    async with Peer(secured) as peer:
        creations = [
            creation(),
            creation(principal="User:bob", operation=AclOperation.WRITE),
            creation(resource_name="ord", resource_pattern_type=AclPatternType.PREFIXED),
            creation(),
        ]
        created = await peer.ask(m.CreateAclsRequest(creations=creations))
        assert [result.error_code for result in created.results] == [0, 0, 0, 0]
        described = await peer.ask(EVERY_ACL)
        assert {
            (resource.resource_name, resource.pattern_type): len(resource.acls) for resource in described.resources
        } == {
            (CLUSTER_NAME, 3): 1,
            ("orders", 3): 2,
            ("ord", 4): 1,
        }
        of_alice = m.DeleteAclsFilter(
            resource_type_filter=TOPIC,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter="User:alice",
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        deleted = await peer.ask(m.DeleteAclsRequest(filters=[of_alice, of_alice]))
        assert [
            {matching_acl.resource_name for matching_acl in result.matching_acls} for result in deleted.filter_results
        ] == [
            {"orders", "ord"},
            {"orders", "ord"},
        ]
    assert secured.authorizer.acls is not None
    assert [acl.principal for acl in secured.authorizer.acls.find(AclFilter(TOPIC))] == ["User:bob"]


async def test_wrong_acls_are_refused_one_by_one(secured: EmbeddedCluster) -> None:
    grant(secured, AclOperation.ALL)
    wrong = [
        creation(resource_type=CLUSTER),
        creation(resource_name=""),
        creation(resource_type=99),
        creation(resource_pattern_type=99),
        creation(operation=99),
        creation(permission_type=99),
        creation(principal="alice"),
    ]
    async with Peer(secured) as peer:
        results = (await peer.ask(m.CreateAclsRequest(creations=[*wrong, creation()]))).results
        assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * len(wrong) + [0]
        assert all(result.error_message for result in results[:-1])


@pytest.mark.parametrize(
    "wrong", [{"resource_type": 1}, {"resource_pattern_type": 2}, {"operation": 1}, {"permission_type": 1}], ids=str
)
async def test_a_value_of_filters_in_one_acl_refuses_all_of_the_request(
    secured: EmbeddedCluster, wrong: dict[str, int]
) -> None:
    grant(secured, AclOperation.ALL)
    async with Peer(secured) as peer:
        created = await peer.ask(m.CreateAclsRequest(creations=[creation(), creation(**wrong)]))
        assert [result.error_code for result in created.results] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert secured.authorizer.acls is not None
    assert secured.authorizer.acls.find(AclFilter(TOPIC)) == []


async def test_without_an_authorizer_there_are_no_acls(one: EmbeddedCluster) -> None:
    async with Peer(one) as peer:
        assert (await peer.ask(EVERY_ACL)).error_code == ErrorCode.SECURITY_DISABLED
        created = await peer.ask(m.CreateAclsRequest(creations=[creation()]))
        assert [result.error_code for result in created.results] == [ErrorCode.SECURITY_DISABLED]


async def test_topics_that_a_client_may_not_describe_are_neither_listed_nor_distinguished(
    secured: EmbeddedCluster,
) -> None:
    await secured.create_topic("mine")
    hidden = await secured.create_topic("hidden")
    grant(secured, AclOperation.READ, TOPIC, "mine")
    async with Peer(secured) as peer:
        every = await peer.ask(m.MetadataRequest(topics=None))
        assert [topic.name for topic in every.topics] == ["mine"]
        named = [m.MetadataRequestTopic(name=name) for name in ("mine", "hidden", "missing")]
        answers = (await peer.ask(m.MetadataRequest(topics=named))).topics
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert {topic.name: topic.error_code for topic in answers} == {"mine": 0, "hidden": denied, "missing": denied}
        by_id = await peer.ask(m.MetadataRequest(topics=[m.MetadataRequestTopic(name=None, topic_id=hidden.topic_id)]))
        assert [(topic.name, topic.error_code) for topic in by_id.topics] == [(None, denied)]
    assert "missing" not in secured.controller.topics


async def test_a_prefixed_acl_creates_topics_with_that_prefix_only(secured: EmbeddedCluster) -> None:
    grant(secured, AclOperation.CREATE, TOPIC, "team-", AclPatternType.PREFIXED)
    grant(secured, AclOperation.DESCRIBE, TOPIC, "*")
    async with Peer(secured) as peer:
        topics = [
            m.CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for name in ("team-orders", "orders")
        ]
        created = {topic.name: topic for topic in (await peer.ask(m.CreateTopicsRequest(topics=topics))).topics}
        assert created["orders"].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = created["team-orders"]
        assert (topic.error_code, topic.num_partitions) == (0, -1)
        assert topic.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        named = [m.MetadataRequestTopic(name=name) for name in ("team-new", "new")]
        seen = (await peer.ask(m.MetadataRequest(topics=named, allow_auto_topic_creation=True))).topics
        assert {topic.name: topic.error_code for topic in seen} == {
            "team-new": 0,
            "new": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        }


async def test_topics_that_a_client_may_not_create_do_not_count_for_the_limit_of_a_metadata_request(
    secured: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handlers.metadata, "MAX_NEW_PARTITIONS", 4)
    grant(secured, AclOperation.CREATE, TOPIC, "team-", AclPatternType.PREFIXED)
    grant(secured, AclOperation.DESCRIBE, TOPIC, "team-", AclPatternType.PREFIXED)
    grant(secured, AclOperation.DESCRIBE, TOPIC, "seen-", AclPatternType.PREFIXED)
    unknown, denied = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED

    async def codes(peer: Peer, *names: str) -> list[int]:
        named = [m.MetadataRequestTopic(name=name) for name in names]
        return [topic.error_code for topic in (await peer.ask(m.MetadataRequest(topics=named))).topics]

    async with Peer(secured) as peer:
        assert await codes(peer, "team-a", "team-b", "seen-a", "hidden") == [0, 0, denied, denied]
        assert await codes(peer, "team-c", "team-d", "team-e", "seen-a") == [unknown, unknown, unknown, denied]
    assert set(secured.controller.topics) == {"team-a", "team-b"}
    assert "refused to create 3 topics of a Metadata request: topics and partitions need 6 records" in caplog.text


async def test_the_allowed_operations_of_topics_and_of_the_cluster_are_those_of_the_acls(
    secured: EmbeddedCluster,
) -> None:
    await secured.create_topic("mine")
    grant(secured, AclOperation.WRITE, TOPIC, "mine")
    async with Peer(secured) as peer:
        metadata_request = m.MetadataRequest(
            topics=[m.MetadataRequestTopic(name="mine")], include_topic_authorized_operations=True
        )
        (topic,) = (await peer.ask(metadata_request)).topics
        assert topic.topic_authorized_operations == 1 << AclOperation.WRITE | 1 << AclOperation.DESCRIBE
        of_cluster = m.DescribeClusterRequest(include_cluster_authorized_operations=True)
        assert (await peer.ask(of_cluster)).cluster_authorized_operations == 0
        grant(secured, AclOperation.ALTER)
        allowed = (await peer.ask(of_cluster)).cluster_authorized_operations
        assert allowed == 1 << AclOperation.ALTER | 1 << AclOperation.DESCRIBE


async def test_groups_are_listed_for_clients_that_may_describe_them_or_the_cluster(secured: EmbeddedCluster) -> None:
    await secured.create_topic("t")
    for kind in (AclResourceType.GROUP, TOPIC):
        grant(secured, AclOperation.READ, kind, "*")
    list_request = m.ListGroupsRequest()
    async with Peer(secured) as peer:
        for group in ("first", "second"):
            await peer.ask(m.FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
            part = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)
            topic = m.OffsetCommitRequestTopic(name="t", partitions=[part])
            await peer.ask(m.OffsetCommitRequest(group_id=group, member_id="", topics=[topic]), 9)
        assert {group.group_id for group in (await peer.ask(list_request)).groups} == {"first", "second"}
        assert secured.authorizer.acls is not None
        secured.authorizer.acls.delete(secured.authorizer.acls.find(AclFilter()))
        assert (await peer.ask(list_request)).groups == []
        grant(secured, AclOperation.DESCRIBE, AclResourceType.GROUP, "first")
        assert [group.group_id for group in (await peer.ask(list_request)).groups] == ["first"]
        grant(secured, AclOperation.DESCRIBE)
        assert {group.group_id for group in (await peer.ask(list_request)).groups} == {"first", "second"}
