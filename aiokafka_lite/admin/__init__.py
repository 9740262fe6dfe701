"""The admin client: ``Admin``, and a module for each family of calls."""

from __future__ import annotations

from ..acls import AclBinding, AclFilter, AclOperation, AclPatternType, AclPermission, AclResourceType
from .acls import Acls
from .admin import Admin
from .cluster import (
    ApiSupport,
    Cluster,
    ClusterDescription,
    FeatureChange,
    Features,
    Quorum,
    QuorumReplica,
    VersionRange,
)
from .configs import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    Configs,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    Setting,
)
from .group_descriptions import (
    GroupDescription,
    GroupListing,
    GroupState,
    GroupType,
    MemberDescription,
    StreamsTasks,
)
from .groups import GroupLag, Groups, PartitionLag
from .leaders import Election, Leaders, Reassignment, Reassignments
from .log_dirs import LogDir, LogDirs, Replica, ReplicaOnDisk
from .offsets import EpochEnd, FoundOffset, OffsetsOfPartitions, OffsetSpec
from .quotas import Match, QuotaEntity, Quotas
from .records import Records
from .resets import Reset, ResetOffset, read_offsets, write_offsets
from .results import ItemsFailed, Results
from .share_groups import ShareGroupDescription, ShareGroups, ShareMemberDescription, ShareOffset
from .tokens import DelegationToken, Tokens
from .topic_descriptions import PartitionDescription, TopicDescription, TopicListing
from .topic_pages import TopicPages
from .topics import CreatedSetting, CreatedTopic, NewTopic, Topics, create_topic, delete_topics
from .transactions import (
    FencedProducer,
    HangingTransaction,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    Transactions,
    TransactionState,
)
from .users import Users

__all__ = [
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclPatternType",
    "AclPermission",
    "AclResourceType",
    "Acls",
    "Admin",
    "ApiSupport",
    "Cluster",
    "ClusterDescription",
    "ConfigChange",
    "ConfigOperation",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "Configs",
    "CreatedSetting",
    "CreatedTopic",
    "DelegationToken",
    "Election",
    "EpochEnd",
    "FeatureChange",
    "Features",
    "FencedProducer",
    "FoundOffset",
    "GroupDescription",
    "GroupLag",
    "GroupListing",
    "GroupState",
    "GroupType",
    "Groups",
    "HangingTransaction",
    "ItemsFailed",
    "Leaders",
    "LogDir",
    "LogDirs",
    "Match",
    "MemberDescription",
    "NewTopic",
    "OffsetSpec",
    "OffsetsOfPartitions",
    "PartitionDescription",
    "PartitionLag",
    "ProducerState",
    "Quorum",
    "QuorumReplica",
    "QuotaEntity",
    "Quotas",
    "Reassignment",
    "Reassignments",
    "Records",
    "Replica",
    "ReplicaOnDisk",
    "Reset",
    "ResetOffset",
    "Results",
    "Setting",
    "ShareGroupDescription",
    "ShareGroups",
    "ShareMemberDescription",
    "ShareOffset",
    "StreamsTasks",
    "Tokens",
    "TopicDescription",
    "TopicListing",
    "TopicPages",
    "Topics",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
    "Transactions",
    "Users",
    "VersionRange",
    "create_topic",
    "delete_topics",
    "read_offsets",
    "write_offsets",
]
