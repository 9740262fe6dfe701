"""All messages, and the requests by their API key. One module per family of APIs.

A family is imported when one of its names is first used. Importing all families takes 30 ms, the two that every client
needs take 4 ms. So this table has the names of each family; type checkers read the families themselves, and a test
compares both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import lazy

if TYPE_CHECKING:
    from .acls import *
    from .api_versions import *
    from .cluster_admin import *
    from .configs import *
    from .consumer_groups import *
    from .consumer_protocol import *
    from .delegation_tokens import *
    from .fetch import *
    from .group_admin import *
    from .group_membership import *
    from .group_offsets import *
    from .leadership import *
    from .logs import *
    from .metadata import *
    from .offsets import *
    from .produce import *
    from .producer_id import *
    from .quotas import *
    from .requests import *
    from .sasl import *
    from .scram_users import *
    from .share_fetch import *
    from .share_groups import *
    from .share_offsets import *
    from .share_state import *
    from .streams_groups import *
    from .telemetry import *
    from .topics import *
    from .transactions import *
else:  # with a __getattr__, a type checker would accept every name
    __all__, __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            ".acls": """
                AclCreation AclCreationResult AclDescription CreateAclsRequest CreateAclsResponse DeleteAclsFilter
                DeleteAclsFilterResult DeleteAclsMatchingAcl DeleteAclsRequest DeleteAclsResponse
                DescribeAclsRequest DescribeAclsResource DescribeAclsResponse
            """,
            ".api_versions": """
                ApiVersion ApiVersionsRequest ApiVersionsResponse FinalizedFeatureKey SupportedFeatureKey
            """,
            ".cluster_admin": """
                AddRaftVoterListener AddRaftVoterRequest AddRaftVoterResponse DescribeQuorumListener
                DescribeQuorumNode DescribeQuorumPartition DescribeQuorumReplica DescribeQuorumRequest
                DescribeQuorumRequestPartition DescribeQuorumRequestTopic DescribeQuorumResponse
                DescribeQuorumResponseTopic RemoveRaftVoterRequest RemoveRaftVoterResponse UnregisterBrokerRequest
                UnregisterBrokerResponse UpdateFeaturesFeature UpdateFeaturesRequest UpdateFeaturesResponse
                UpdateFeaturesResult
            """,
            ".configs": """
                AlterConfigsRequest AlterConfigsRequestConfig AlterConfigsRequestResource AlterConfigsResponse
                AlterConfigsResponseResource DescribeConfigsRequest DescribeConfigsResource
                DescribeConfigsResourceResult DescribeConfigsResponse DescribeConfigsResult DescribeConfigsSynonym
                IncrementalAlterConfigsRequest IncrementalAlterConfigsRequestConfig
                IncrementalAlterConfigsRequestResource IncrementalAlterConfigsResponse
                IncrementalAlterConfigsResponseResource ListConfigResourcesRequest ListConfigResourcesResponse
                ListedConfigResource
            """,
            ".consumer_groups": """
                ConsumerGroupHeartbeatAssignment ConsumerGroupHeartbeatRequest ConsumerGroupHeartbeatResponse
                ConsumerGroupHeartbeatTopicPartitions
            """,
            ".consumer_protocol": """
                ConsumerProtocolAssignment ConsumerProtocolAssignmentTopicPartition ConsumerProtocolSubscription
                ConsumerProtocolSubscriptionTopicPartition
            """,
            ".delegation_tokens": """
                CreatableRenewers CreateDelegationTokenRequest CreateDelegationTokenResponse
                DescribedDelegationToken DescribedDelegationTokenRenewer DescribeDelegationTokenOwner
                DescribeDelegationTokenRequest DescribeDelegationTokenResponse ExpireDelegationTokenRequest
                ExpireDelegationTokenResponse RenewDelegationTokenRequest RenewDelegationTokenResponse
            """,
            ".fetch": """
                INT32_MAX INT64_MAX AbortedTransaction FetchRequest FetchRequestForgottenTopic FetchRequestPartition
                FetchRequestTopic FetchResponse FetchResponseDivergingEpoch FetchResponseLeader
                FetchResponseNodeEndpoint FetchResponsePartition FetchResponseTopic ReplicaState SnapshotId
            """,
            ".group_admin": """
                UNKNOWN_OPERATIONS ConsumerGroupDescribeAssignment ConsumerGroupDescribeGroup
                ConsumerGroupDescribeMember ConsumerGroupDescribeRequest ConsumerGroupDescribeResponse
                ConsumerGroupDescribeTopicPartitions DeletableGroupResult DeleteGroupsRequest DeleteGroupsResponse
                DescribedGroup DescribedGroupMember DescribeGroupsRequest DescribeGroupsResponse ListedGroup
                ListGroupsRequest ListGroupsResponse
            """,
            ".group_membership": """
                FindCoordinatorRequest FindCoordinatorResponse FindCoordinatorResponseCoordinator HeartbeatRequest
                HeartbeatResponse JoinGroupRequest JoinGroupRequestProtocol JoinGroupResponse
                JoinGroupResponseMember LeaveGroupRequest LeaveGroupRequestMember LeaveGroupResponse
                LeaveGroupResponseMember SyncGroupRequest SyncGroupRequestAssignment SyncGroupResponse
            """,
            ".group_offsets": """
                OffsetCommitRequest OffsetCommitRequestPartition OffsetCommitRequestTopic OffsetCommitResponse
                OffsetCommitResponsePartition OffsetCommitResponseTopic OffsetDeleteRequest
                OffsetDeleteRequestPartition OffsetDeleteRequestTopic OffsetDeleteResponse
                OffsetDeleteResponsePartition OffsetDeleteResponseTopic OffsetFetchRequest OffsetFetchRequestGroup
                OffsetFetchRequestTopic OffsetFetchRequestTopics OffsetFetchResponse OffsetFetchResponseGroup
                OffsetFetchResponsePartition OffsetFetchResponsePartitions OffsetFetchResponseTopic
                OffsetFetchResponseTopics
            """,
            ".leadership": """
                AlterPartitionReassignmentsRequest AlterPartitionReassignmentsResponse ElectLeadersPartitionResult
                ElectLeadersRequest ElectLeadersResponse ElectLeadersTopic ElectLeadersTopicResult
                ListPartitionReassignmentsRequest ListPartitionReassignmentsResponse ListPartitionReassignmentsTopic
                OngoingPartitionReassignment OngoingTopicReassignment ReassignablePartition
                ReassignablePartitionResponse ReassignableTopic ReassignableTopicResponse
            """,
            ".logs": """
                AlterReplicaLogDir AlterReplicaLogDirsPartitionResult AlterReplicaLogDirsRequest
                AlterReplicaLogDirsResponse AlterReplicaLogDirsTopic AlterReplicaLogDirsTopicResult
                DeleteRecordsPartition DeleteRecordsPartitionResult DeleteRecordsRequest DeleteRecordsResponse
                DeleteRecordsTopic DeleteRecordsTopicResult DescribableLogDirTopic DescribeLogDirsPartition
                DescribeLogDirsRequest DescribeLogDirsResponse DescribeLogDirsResult DescribeLogDirsTopic
                DescribeProducersPartitionResult DescribeProducersRequest DescribeProducersResponse
                DescribeProducersState DescribeProducersTopic DescribeProducersTopicResult
            """,
            ".metadata": """
                DescribeClusterBroker DescribeClusterRequest DescribeClusterResponse DescribeTopicPartitionsRequest
                DescribeTopicPartitionsRequestTopic DescribeTopicPartitionsResponse
                DescribeTopicPartitionsResponsePartition DescribeTopicPartitionsResponseTopic MetadataRequest
                MetadataRequestTopic MetadataResponse MetadataResponseBroker MetadataResponsePartition
                MetadataResponseTopic TopicPartitionCursor
            """,
            ".offsets": """
                ListOffsetsRequest ListOffsetsRequestPartition ListOffsetsRequestTopic ListOffsetsResponse
                ListOffsetsResponsePartition ListOffsetsResponseTopic OffsetForLeaderEpochRequest
                OffsetForLeaderEpochRequestPartition OffsetForLeaderEpochRequestTopic OffsetForLeaderEpochResponse
                OffsetForLeaderEpochResponsePartition OffsetForLeaderEpochResponseTopic
            """,
            ".produce": """
                ProduceRequest ProduceRequestPartition ProduceRequestTopic ProduceResponse ProduceResponseLeader
                ProduceResponseNodeEndpoint ProduceResponsePartition ProduceResponseRecordError ProduceResponseTopic
            """,
            ".producer_id": "InitProducerIdRequest InitProducerIdResponse",
            ".quotas": """
                AlterClientQuotasOperation AlterClientQuotasRequest AlterClientQuotasRequestEntity
                AlterClientQuotasRequestEntry AlterClientQuotasResponse AlterClientQuotasResponseEntity
                AlterClientQuotasResponseEntry DescribeClientQuotasComponent DescribeClientQuotasEntity
                DescribeClientQuotasEntry DescribeClientQuotasRequest DescribeClientQuotasResponse
                DescribeClientQuotasValue
            """,
            ".requests": "REQUESTS",
            ".sasl": "SaslAuthenticateRequest SaslAuthenticateResponse SaslHandshakeRequest SaslHandshakeResponse",
            ".scram_users": """
                MOST_SCRAM_ITERATIONS SCRAM_MECHANISMS AlterUserScramCredentialsRequest
                AlterUserScramCredentialsResponse AlterUserScramCredentialsResult CredentialInfo
                DescribeUserScramCredentialsRequest DescribeUserScramCredentialsResponse
                DescribeUserScramCredentialsResult ScramCredentialDeletion ScramCredentialUpsertion UserName
            """,
            ".share_fetch": """
                ShareAcknowledgementBatch ShareAcknowledgeRequest ShareAcknowledgeRequestPartition
                ShareAcknowledgeRequestTopic ShareAcknowledgeResponse ShareAcknowledgeResponsePartition
                ShareAcknowledgeResponseTopic ShareAcquiredRecords ShareFetchRequest ShareFetchRequestForgottenTopic
                ShareFetchRequestPartition ShareFetchRequestTopic ShareFetchResponse ShareFetchResponsePartition
                ShareFetchResponseTopic ShareLeader ShareNodeEndpoint
            """,
            ".share_groups": """
                ShareGroupDescribeAssignment ShareGroupDescribeGroup ShareGroupDescribeMember
                ShareGroupDescribeRequest ShareGroupDescribeResponse ShareGroupDescribeTopicPartitions
                ShareGroupHeartbeatAssignment ShareGroupHeartbeatRequest ShareGroupHeartbeatResponse
                ShareGroupHeartbeatTopicPartitions
            """,
            ".share_offsets": """
                AlterShareGroupOffsetsRequest AlterShareGroupOffsetsRequestPartition
                AlterShareGroupOffsetsRequestTopic AlterShareGroupOffsetsResponse
                AlterShareGroupOffsetsResponsePartition AlterShareGroupOffsetsResponseTopic
                DeleteShareGroupOffsetsRequest DeleteShareGroupOffsetsRequestTopic DeleteShareGroupOffsetsResponse
                DeleteShareGroupOffsetsResponseTopic DescribeShareGroupOffsetsRequest
                DescribeShareGroupOffsetsRequestGroup DescribeShareGroupOffsetsRequestTopic
                DescribeShareGroupOffsetsResponse DescribeShareGroupOffsetsResponseGroup
                DescribeShareGroupOffsetsResponsePartition DescribeShareGroupOffsetsResponseTopic
            """,
            ".share_state": """
                DeleteShareGroupStateRequest DeleteShareGroupStateRequestPartition DeleteShareGroupStateRequestTopic
                DeleteShareGroupStateResponse DeleteShareGroupStateResponsePartition DeleteShareGroupStateResponseTopic
                InitializeShareGroupStateRequest InitializeShareGroupStateRequestPartition
                InitializeShareGroupStateRequestTopic InitializeShareGroupStateResponse
                InitializeShareGroupStateResponsePartition InitializeShareGroupStateResponseTopic
                ReadShareGroupStateRequest ReadShareGroupStateRequestPartition ReadShareGroupStateRequestTopic
                ReadShareGroupStateResponse ReadShareGroupStateResponseBatch ReadShareGroupStateResponsePartition
                ReadShareGroupStateResponseTopic ReadShareGroupStateSummaryRequest
                ReadShareGroupStateSummaryRequestPartition ReadShareGroupStateSummaryRequestTopic
                ReadShareGroupStateSummaryResponse ReadShareGroupStateSummaryResponsePartition
                ReadShareGroupStateSummaryResponseTopic WriteShareGroupStateRequest WriteShareGroupStateRequestBatch
                WriteShareGroupStateRequestPartition WriteShareGroupStateRequestTopic WriteShareGroupStateResponse
                WriteShareGroupStateResponsePartition WriteShareGroupStateResponseTopic
            """,
            ".streams_groups": """
                StreamsCopartitionGroup StreamsEndpoint StreamsEndpointPartitions StreamsGroupDescribeAssignment
                StreamsGroupDescribeGroup StreamsGroupDescribeMember StreamsGroupDescribeRequest
                StreamsGroupDescribeResponse StreamsGroupDescribeSubtopology StreamsGroupDescribeTopology
                StreamsGroupHeartbeatRequest StreamsGroupHeartbeatResponse StreamsKeyValue StreamsStatus
                StreamsSubtopology StreamsTaskIds StreamsTaskOffset StreamsTopicInfo StreamsTopicPartitions
                StreamsTopology
            """,
            ".telemetry": """
                GetTelemetrySubscriptionsRequest GetTelemetrySubscriptionsResponse PushTelemetryRequest
                PushTelemetryResponse
            """,
            ".topics": """
                CreatableReplicaAssignment CreatableTopic CreatableTopicConfig CreatableTopicConfigs
                CreatableTopicResult CreatePartitionsAssignment CreatePartitionsRequest CreatePartitionsResponse
                CreatePartitionsTopic CreatePartitionsTopicResult CreateTopicsRequest CreateTopicsResponse
                DeletableTopicResult DeleteTopicsRequest DeleteTopicsResponse DeleteTopicState
            """,
            ".transactions": """
                AddOffsetsToTxnRequest AddOffsetsToTxnResponse AddPartitionsToTxnPartitionResult
                AddPartitionsToTxnRequest AddPartitionsToTxnResponse AddPartitionsToTxnResult
                AddPartitionsToTxnTopic AddPartitionsToTxnTopicResult AddPartitionsToTxnTransaction
                DescribedTransaction DescribedTransactionTopic DescribeTransactionsRequest
                DescribeTransactionsResponse EndTxnRequest EndTxnResponse ListedTransaction ListTransactionsRequest
                ListTransactionsResponse TxnOffsetCommitRequest TxnOffsetCommitRequestPartition
                TxnOffsetCommitRequestTopic TxnOffsetCommitResponse TxnOffsetCommitResponsePartition
                TxnOffsetCommitResponseTopic WritableTxnMarker WritableTxnMarkerPartitionResult
                WritableTxnMarkerResult WritableTxnMarkerTopic WritableTxnMarkerTopicResult WriteTxnMarkersRequest
                WriteTxnMarkersResponse
            """,
        },
    )
