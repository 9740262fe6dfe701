"""Whether a throttle time in an answer asks the client to pause, or tells what the broker did already (KIP-219).

Up to Kafka 1.1 a broker held the answer back for as long as it wanted to throttle. Since 2.0 it answers at once and
stops reading from the connection instead; the client is asked to stop sending for that long. Versions of that release
on mean the latter.
"""

from __future__ import annotations

from typing import Any

from .schema import Request

_FIRST_VERSIONS = {
    0: 6,  # Produce
    1: 8,  # Fetch
    2: 3,  # ListOffsets
    3: 6,  # Metadata
    8: 4,  # OffsetCommit
    9: 4,  # OffsetFetch
    10: 2,  # FindCoordinator
    11: 3,  # JoinGroup
    12: 2,  # Heartbeat
    13: 2,  # LeaveGroup
    14: 2,  # SyncGroup
    15: 2,  # DescribeGroups
    16: 2,  # ListGroups
    18: 2,  # ApiVersions
    19: 3,  # CreateTopics
    20: 2,  # DeleteTopics
    21: 1,  # DeleteRecords
    22: 1,  # InitProducerId
    24: 1,  # AddPartitionsToTxn
    25: 1,  # AddOffsetsToTxn
    26: 1,  # EndTxn
    28: 1,  # TxnOffsetCommit
    29: 1,  # DescribeAcls
    30: 1,  # CreateAcls
    31: 1,  # DeleteAcls
    32: 2,  # DescribeConfigs
    33: 1,  # AlterConfigs
    35: 1,  # DescribeLogDirs
    37: 1,  # CreatePartitions
    42: 1,  # DeleteGroups
}


def client_throttles(cls: type[Request[Any]], version: int) -> bool:
    """Whether the client itself has to pause for the answer's throttle time. APIs younger than Kafka 2.0 always do."""
    return version >= _FIRST_VERSIONS.get(cls.api_key, 0)
