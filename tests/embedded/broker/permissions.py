"""A request of each API, its error without permission, and the ACLs that it needs."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from aiokafka_lite.acls import CLUSTER_NAME, AclOperation, AclResourceType
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol import messages as m
from aiokafka_lite.protocol.schema import Request
from tests.embedded.broker.raw_client import fetch_request, produce_request
from tests.embedded.share_groups.requests import share_fetch
from tests.embedded.share_groups.state_requests import StateRequests
from tests.embedded.streams_groups.requests import join, subtopology, topology
from tests.pure.embedded.batches import produced

TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
TRANSACTION = AclResourceType.TRANSACTIONAL_ID
Op = AclOperation
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NO_TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
NAMES = {TOPIC: "t", GROUP: "g", CLUSTER: CLUSTER_NAME, TRANSACTION: "x"}

DIRECTORY = bytes(range(16))
RAFT_VOTER = m.AddRaftVoterRequest(
    cluster_id=None,
    timeout_ms=1000,
    voter_id=7,
    voter_directory_id=DIRECTORY,
    listeners=[m.AddRaftVoterListener(name="CONTROLLER", host="localhost", port=9093)],
)

SHARE_GROUP, STREAMS_GROUP = "s", "streams"
"""A group id belongs to groups of one type."""

Grant = tuple[AclOperation, AclResourceType]


class Row(NamedTuple):
    """A request, its error without any ACL (None if its response omits items instead), and the ACLs that it needs."""

    request: Request[Any]
    refusal: ErrorCode | None
    needs: tuple[Grant, ...]
    version: int | None = None
    group: str = "g"


def everything(**changes: Any) -> dict[str, Any]:
    values = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return values | changes


def topic_configs(kind: int, name: str) -> m.DescribeConfigsResource:
    return m.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)


def altered(kind: int, name: str) -> m.IncrementalAlterConfigsRequestResource:
    return m.IncrementalAlterConfigsRequestResource(resource_type=kind, resource_name=name, configs=[])


_JOIN = m.JoinGroupRequest(
    group_id="g", session_timeout_ms=10000, rebalance_timeout_ms=10000, member_id="", protocol_type="consumer",
    protocols=[m.JoinGroupRequestProtocol(name="range", metadata=b"")],
)  # fmt: skip
COMMIT = m.OffsetCommitRequest(
    group_id="g",
    member_id="",
    topics=[
        m.OffsetCommitRequestTopic(
            name="t",
            partitions=[m.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)],
        )
    ],
)
_FETCH_OFFSETS = m.OffsetFetchRequest(
    groups=[
        m.OffsetFetchRequestGroup(group_id="g", topics=[m.OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
    ]
)
_TXN_COMMIT = m.TxnOffsetCommitRequest(
    transactional_id="x",
    group_id="g",
    producer_id=0,
    producer_epoch=0,
    topics=[
        m.TxnOffsetCommitRequestTopic(
            name="t",
            partitions=[
                m.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)
            ],
        )
    ],
)
_MARKER = m.WritableTxnMarker(
    producer_id=0, producer_epoch=0, transaction_result=True, coordinator_epoch=0,
    topics=[m.WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
)  # fmt: skip
_ADD = m.AddPartitionsToTxnTransaction(
    transactional_id="x",
    producer_id=0,
    producer_epoch=0,
    verify_only=True,
    topics=[m.AddPartitionsToTxnTopic(name="t", partitions=[0])],
)
_SHARE_TOPIC = m.DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0])
_STATE = StateRequests(SHARE_GROUP, bytes(16))

ROWS = [
    Row(
        produce_request("t", produced(b"a", timestamp=int(time.time() * 1000))),
        NO_TOPIC,
        ((Op.WRITE, TOPIC),),
        version=12,
    ),
    Row(fetch_request("t", 0), NO_TOPIC, ((Op.READ, TOPIC),), version=12),
    Row(
        m.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                m.ListOffsetsRequestTopic(
                    name="t", partitions=[m.ListOffsetsRequestPartition(partition_index=0, timestamp=-1)]
                )
            ],
        ),
        NO_TOPIC,
        ((Op.DESCRIBE, TOPIC),),
    ),
    Row(
        m.OffsetForLeaderEpochRequest(
            topics=[
                m.OffsetForLeaderEpochRequestTopic(
                    topic="t", partitions=[m.OffsetForLeaderEpochRequestPartition(partition=0, leader_epoch=0)]
                )
            ]
        ),
        NO_TOPIC,
        ((Op.DESCRIBE, TOPIC),),
    ),
    Row(m.MetadataRequest(topics=[m.MetadataRequestTopic(name="t")]), NO_TOPIC, ((Op.DESCRIBE, TOPIC),)),
    Row(m.DescribeClusterRequest(include_cluster_authorized_operations=False), None, ()),
    Row(
        m.DescribeTopicPartitionsRequest(
            topics=[m.DescribeTopicPartitionsRequestTopic(name="t")], response_partition_limit=10, cursor=None
        ),
        NO_TOPIC,
        ((Op.DESCRIBE, TOPIC),),
    ),
    Row(m.ApiVersionsRequest(client_software_name="t", client_software_version="1"), None, ()),
    Row(
        m.CreateTopicsRequest(
            validate_only=True,
            topics=[m.CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])],
        ),
        NO_TOPIC,
        ((Op.CREATE, TOPIC),),
    ),
    Row(
        m.CreatePartitionsRequest(
            topics=[m.CreatePartitionsTopic(name="t", count=2, assignments=None)], timeout_ms=5000, validate_only=True
        ),
        NO_TOPIC,
        ((Op.ALTER, TOPIC),),
    ),
    Row(
        m.DeleteRecordsRequest(
            topics=[m.DeleteRecordsTopic(name="t", partitions=[m.DeleteRecordsPartition(partition_index=0, offset=0)])],
            timeout_ms=5000,
        ),
        NO_TOPIC,
        ((Op.DELETE, TOPIC),),
    ),
    Row(
        m.DescribeProducersRequest(topics=[m.DescribeProducersTopic(name="t", partition_indexes=[0])]),
        NO_TOPIC,
        ((Op.READ, TOPIC),),
    ),
    Row(m.DescribeConfigsRequest(resources=[topic_configs(2, "t")]), NO_TOPIC, ((Op.DESCRIBE_CONFIGS, TOPIC),)),
    Row(m.DescribeConfigsRequest(resources=[topic_configs(4, "1")]), NO_CLUSTER, ((Op.DESCRIBE_CONFIGS, CLUSTER),)),
    Row(
        m.IncrementalAlterConfigsRequest(resources=[altered(2, "t")], validate_only=True),
        NO_TOPIC,
        ((Op.ALTER_CONFIGS, TOPIC),),
    ),
    Row(
        m.IncrementalAlterConfigsRequest(resources=[altered(4, "1")], validate_only=True),
        NO_CLUSTER,
        ((Op.ALTER_CONFIGS, CLUSTER),),
    ),
    Row(
        m.AlterConfigsRequest(
            resources=[m.AlterConfigsRequestResource(resource_type=2, resource_name="t", configs=[])],
            validate_only=True,
        ),
        NO_TOPIC,
        ((Op.ALTER_CONFIGS, TOPIC),),
    ),
    Row(m.DescribeLogDirsRequest(topics=None), NO_CLUSTER, ((Op.DESCRIBE, CLUSTER),)),
    Row(
        m.ElectLeadersRequest(topic_partitions=[m.ElectLeadersTopic(topic="t", partitions=[0])], timeout_ms=5000),
        NO_CLUSTER,
        ((Op.ALTER, CLUSTER),),
    ),
    Row(m.AlterPartitionReassignmentsRequest(topics=[], timeout_ms=5000), NO_CLUSTER, ((Op.ALTER, CLUSTER),)),
    Row(m.ListPartitionReassignmentsRequest(topics=None, timeout_ms=5000), NO_CLUSTER, ((Op.DESCRIBE, CLUSTER),)),
    Row(m.DescribeClientQuotasRequest(components=[], strict=False), NO_CLUSTER, ((Op.DESCRIBE_CONFIGS, CLUSTER),)),
    Row(
        m.AlterClientQuotasRequest(
            entries=[
                m.AlterClientQuotasRequestEntry(
                    entity=[m.AlterClientQuotasRequestEntity(entity_type="user", entity_name="a")], ops=[]
                )
            ],
            validate_only=True,
        ),
        NO_CLUSTER,
        ((Op.ALTER_CONFIGS, CLUSTER),),
    ),
    Row(m.DescribeAclsRequest(**everything()), NO_CLUSTER, ((Op.DESCRIBE, CLUSTER),)),
    Row(
        m.CreateAclsRequest(
            creations=[
                m.AclCreation(
                    resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
                )
            ]
        ),
        NO_CLUSTER,
        ((Op.ALTER, CLUSTER),),
    ),
    Row(
        m.DeleteAclsRequest(filters=[m.DeleteAclsFilter(**everything(principal_filter="User:a"))]),
        NO_CLUSTER,
        ((Op.ALTER, CLUSTER),),
    ),
    Row(m.DescribeConfigsRequest(resources=[topic_configs(16, "s")]), NO_CLUSTER, ((Op.DESCRIBE_CONFIGS, CLUSTER),)),
    Row(m.DescribeConfigsRequest(resources=[topic_configs(32, "g")]), NO_GROUP, ((Op.DESCRIBE_CONFIGS, GROUP),)),
    Row(
        m.IncrementalAlterConfigsRequest(resources=[altered(32, "g")], validate_only=True),
        NO_GROUP,
        ((Op.ALTER_CONFIGS, GROUP),),
    ),
    Row(m.DescribeQuorumRequest(topics=[]), NO_CLUSTER, ((Op.DESCRIBE, CLUSTER),)),
    Row(m.UpdateFeaturesRequest(feature_updates=[], validate_only=True), NO_CLUSTER, ((Op.ALTER, CLUSTER),)),
    Row(m.UnregisterBrokerRequest(broker_id=7), NO_CLUSTER, ((Op.ALTER, CLUSTER),)),
    Row(RAFT_VOTER, NO_CLUSTER, ((Op.ALTER, CLUSTER),)),
    Row(
        m.RemoveRaftVoterRequest(cluster_id=None, voter_id=7, voter_directory_id=DIRECTORY),
        NO_CLUSTER,
        ((Op.ALTER, CLUSTER),),
    ),
    Row(m.ListConfigResourcesRequest(), NO_CLUSTER, ((Op.DESCRIBE_CONFIGS, CLUSTER),)),
    Row(
        m.AlterReplicaLogDirsRequest(
            dirs=[m.AlterReplicaLogDir(path="/x", topics=[m.AlterReplicaLogDirsTopic(name="t", partitions=[0])])]
        ),
        NO_CLUSTER,
        ((Op.ALTER, CLUSTER),),
    ),
    Row(m.DescribeUserScramCredentialsRequest(users=None), NO_CLUSTER, ((Op.DESCRIBE, CLUSTER),)),
    Row(
        m.AlterUserScramCredentialsRequest(
            deletions=[m.ScramCredentialDeletion(name="alice", mechanism=1)], upsertions=[]
        ),
        NO_CLUSTER,
        ((Op.ALTER, CLUSTER),),
    ),
    Row(m.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), NO_GROUP, ((Op.DESCRIBE, GROUP),)),
    Row(m.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), NO_TRANSACTION, ((Op.DESCRIBE, TRANSACTION),)),
    Row(_JOIN, NO_GROUP, ((Op.READ, GROUP),)),
    Row(
        m.SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id="m",
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
        ),
        NO_GROUP,
        ((Op.READ, GROUP),),
    ),
    Row(m.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), NO_GROUP, ((Op.READ, GROUP),)),
    Row(m.LeaveGroupRequest(group_id="g", members=[]), NO_GROUP, ((Op.READ, GROUP),)),
    Row(m.DescribeGroupsRequest(groups=["g"]), NO_GROUP, ((Op.DESCRIBE, GROUP),)),
    Row(
        m.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=10000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
        NO_GROUP,
        ((Op.READ, GROUP), (Op.DESCRIBE, TOPIC)),
    ),
    Row(
        m.ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False),
        NO_GROUP,
        ((Op.DESCRIBE, GROUP),),
    ),
    Row(m.ListGroupsRequest(), None, ()),
    Row(
        m.ShareGroupHeartbeatRequest(group_id=SHARE_GROUP, member_id="m", member_epoch=0, subscribed_topic_names=["t"]),
        NO_GROUP,
        ((Op.READ, GROUP), (Op.DESCRIBE, TOPIC)),
        group=SHARE_GROUP,
    ),
    Row(
        m.ShareGroupDescribeRequest(group_ids=[SHARE_GROUP], include_authorized_operations=False),
        NO_GROUP,
        ((Op.DESCRIBE, GROUP),),
        group=SHARE_GROUP,
    ),
    Row(share_fetch(SHARE_GROUP, "m", 0), NO_GROUP, ((Op.READ, GROUP),), group=SHARE_GROUP),
    Row(
        m.ShareAcknowledgeRequest(group_id=SHARE_GROUP, member_id="m", share_session_epoch=1, topics=[]),
        NO_GROUP,
        ((Op.READ, GROUP),),
        group=SHARE_GROUP,
    ),
    Row(
        m.DescribeShareGroupOffsetsRequest(
            groups=[m.DescribeShareGroupOffsetsRequestGroup(group_id=SHARE_GROUP, topics=[_SHARE_TOPIC])]
        ),
        NO_GROUP,
        ((Op.DESCRIBE, GROUP), (Op.DESCRIBE, TOPIC)),
        group=SHARE_GROUP,
    ),
    Row(
        m.AlterShareGroupOffsetsRequest(
            group_id=SHARE_GROUP,
            topics=[
                m.AlterShareGroupOffsetsRequestTopic(
                    topic_name="t",
                    partitions=[m.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)],
                )
            ],
        ),
        NO_GROUP,
        ((Op.READ, GROUP), (Op.READ, TOPIC)),
        group=SHARE_GROUP,
    ),
    *[
        Row(request, NO_CLUSTER, ((Op.CLUSTER_ACTION, CLUSTER),))
        for request in (
            _STATE.initialize(0, 0),
            _STATE.read(0),
            _STATE.write((0, 0), 0),
            _STATE.delete(),
            _STATE.summary(),
        )
    ],
    Row(
        m.DeleteShareGroupOffsetsRequest(
            group_id=SHARE_GROUP, topics=[m.DeleteShareGroupOffsetsRequestTopic(topic_name="t")]
        ),
        NO_GROUP,
        ((Op.DELETE, GROUP), (Op.READ, TOPIC)),
        group=SHARE_GROUP,
    ),
    Row(
        join(STREAMS_GROUP, "m", topology(subtopology("0", ["t"]))),
        NO_GROUP,
        ((Op.READ, GROUP), (Op.DESCRIBE, TOPIC)),
        group=STREAMS_GROUP,
    ),
    Row(
        m.StreamsGroupDescribeRequest(group_ids=[STREAMS_GROUP], include_authorized_operations=False),
        NO_GROUP,
        ((Op.DESCRIBE, GROUP),),
        group=STREAMS_GROUP,
    ),
    Row(m.DeleteGroupsRequest(groups_names=["g"]), NO_GROUP, ((Op.DELETE, GROUP),)),
    Row(COMMIT, NO_GROUP, ((Op.READ, GROUP), (Op.READ, TOPIC)), version=9),
    Row(_FETCH_OFFSETS, NO_GROUP, ((Op.DESCRIBE, GROUP), (Op.DESCRIBE, TOPIC)), version=9),
    Row(
        m.OffsetDeleteRequest(
            group_id="g",
            topics=[
                m.OffsetDeleteRequestTopic(name="t", partitions=[m.OffsetDeleteRequestPartition(partition_index=0)])
            ],
        ),
        NO_GROUP,
        ((Op.DELETE, GROUP), (Op.READ, TOPIC)),
    ),
    Row(
        m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        NO_CLUSTER,
        ((Op.IDEMPOTENT_WRITE, CLUSTER),),
        version=5,
    ),
    Row(
        m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        NO_CLUSTER,
        ((Op.WRITE, TOPIC),),
        version=5,
    ),
    Row(
        m.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000),
        NO_TRANSACTION,
        ((Op.WRITE, TRANSACTION),),
        version=5,
    ),
    Row(
        m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=0,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[m.AddPartitionsToTxnTopic(name="t", partitions=[0])],
        ),
        NO_TRANSACTION,
        ((Op.WRITE, TRANSACTION), (Op.WRITE, TOPIC)),
        version=3,
    ),
    Row(m.AddPartitionsToTxnRequest(transactions=[_ADD]), NO_CLUSTER, ((Op.CLUSTER_ACTION, CLUSTER),)),
    Row(
        m.AddOffsetsToTxnRequest(transactional_id="x", producer_id=0, producer_epoch=0, group_id="g"),
        NO_TRANSACTION,
        ((Op.WRITE, TRANSACTION), (Op.READ, GROUP)),
    ),
    Row(
        m.EndTxnRequest(transactional_id="x", producer_id=0, producer_epoch=0, committed=True),
        NO_TRANSACTION,
        ((Op.WRITE, TRANSACTION),),
    ),
    Row(_TXN_COMMIT, NO_TRANSACTION, ((Op.WRITE, TRANSACTION), (Op.READ, GROUP), (Op.READ, TOPIC))),
    Row(m.WriteTxnMarkersRequest(markers=[_MARKER]), NO_CLUSTER, ((Op.ALTER, CLUSTER),), version=1),
    Row(m.DescribeTransactionsRequest(transactional_ids=["x"]), NO_TRANSACTION, ((Op.DESCRIBE, TRANSACTION),)),
    Row(m.ListTransactionsRequest(state_filters=[], producer_id_filters=[]), None, ()),
    Row(m.DeleteTopicsRequest(topics=[m.DeleteTopicState(name="t")], timeout_ms=5000), NO_TOPIC, ((Op.DELETE, TOPIC),)),
]
"""The last row deletes the topic."""


def name_of(row: Row) -> str:
    """Return the id of a row in the names of tests."""
    return f"{type(row.request).__name__.removesuffix('Request')}-{row.needs[-1][1].name if row.needs else 'open'}"
