"""The requests by their API key. It imports every family, so code that needs few requests imports those by name."""

from __future__ import annotations

from typing import Any

from ..schema import Request
from .acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from .api_versions import ApiVersionsRequest
from .cluster_admin import DescribeQuorumRequest, UnregisterBrokerRequest, UpdateFeaturesRequest
from .configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from .consumer_groups import ConsumerGroupHeartbeatRequest
from .delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from .fetch import FetchRequest
from .group_admin import ConsumerGroupDescribeRequest, DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from .group_membership import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from .group_offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from .leadership import AlterPartitionReassignmentsRequest, ElectLeadersRequest, ListPartitionReassignmentsRequest
from .logs import AlterReplicaLogDirsRequest, DeleteRecordsRequest, DescribeLogDirsRequest, DescribeProducersRequest
from .metadata import DescribeClusterRequest, DescribeTopicPartitionsRequest, MetadataRequest
from .offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from .produce import ProduceRequest
from .producer_id import InitProducerIdRequest
from .quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from .sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from .scram_users import AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest
from .share_fetch import ShareAcknowledgeRequest, ShareFetchRequest
from .share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from .share_offsets import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
)
from .telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from .topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from .transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)

_ALL: tuple[type[Request[Any]], ...] = (
    ApiVersionsRequest,
    DescribeConfigsRequest,
    AlterConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
    DescribeQuorumRequest,
    UpdateFeaturesRequest,
    UnregisterBrokerRequest,
    FetchRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    DeleteGroupsRequest,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    SyncGroupRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetDeleteRequest,
    MetadataRequest,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
    InitProducerIdRequest,
    SaslHandshakeRequest,
    SaslAuthenticateRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    CreatePartitionsRequest,
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    DeleteRecordsRequest,
    DescribeLogDirsRequest,
    AlterReplicaLogDirsRequest,
    DescribeProducersRequest,
    ElectLeadersRequest,
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    WriteTxnMarkersRequest,
    TxnOffsetCommitRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    DescribeAclsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeUserScramCredentialsRequest,
    AlterUserScramCredentialsRequest,
    CreateDelegationTokenRequest,
    RenewDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    GetTelemetrySubscriptionsRequest,
    PushTelemetryRequest,
)
REQUESTS: dict[int, type[Request[Any]]] = {request.api_key: request for request in _ALL}
"""The request class of each supported API key."""
