"""Truncation checks: whether the leader's log still contains the records that were read (KIP-320).

After an unclean election, the new leader's log may lack records that were read, and other records may have their
offsets. Fetch v12 and newer compare logs by themselves: the request names the last fetched epoch, and the answer names
the point where the logs diverge. Older brokers are asked by OffsetForLeaderEpoch, once after each change of the leader,
before anything more is fetched. This module builds these requests and reads the answers. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...cluster.metadata import ClusterView
from ...protocol.messages import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
)
from ...types import TopicPartition
from ..offsets import CONSUMER
from ..partition import AssignedPartition
from ..position import ANY_LEADER
from .plan import FetchPlanner


@dataclass(frozen=True, slots=True)
class TruncationCheck:
    """A partition whose leader must be asked. ``leader`` is its node id and epoch, ``last_epoch`` the last read one."""

    assigned: AssignedPartition
    version: int
    leader: tuple[int, int]
    last_epoch: int


def checks_of(planner: FetchPlanner, view: ClusterView) -> list[TruncationCheck]:
    """Find the partitions of a fetch that were read under another leader than the present one.

    If no record was read yet, for example after a seek, there is nothing to compare with the present leader's log.
    There is no check either if a leader has just named the offset: the check could then repeat without end.
    """
    checks: list[TruncationCheck] = []
    for planned, target in planner.targets():
        assigned = planned.assigned
        node = view.leader_of(assigned.partition)
        leader = (-1 if node is None else node.node_id, target.current_leader_epoch)
        position = assigned.position
        if target.last_fetched_epoch < 0 or position.validated_leader == ANY_LEADER:
            position.validated_leader = leader
        elif position.validated_leader != leader and node is not None:
            checks.append(TruncationCheck(assigned, planned.version, leader, target.last_fetched_epoch))
    return checks


def by_leader(checks: Iterable[TruncationCheck]) -> dict[int, dict[TopicPartition, TruncationCheck]]:
    """Return the checks by the node id of the leader: a follower does not know where epochs end."""
    shares: dict[int, dict[TopicPartition, TruncationCheck]] = {}
    for check in checks:
        shares.setdefault(check.leader[0], {})[check.assigned.partition] = check
    return shares


def epochs_request(checks: Iterable[TruncationCheck]) -> OffsetForLeaderEpochRequest:
    """Return the request for the ends, in the leader's log, of the last epochs that were read."""
    topics: dict[str, OffsetForLeaderEpochRequestTopic] = {}
    for check in checks:
        name, number = check.assigned.partition
        topic = topics.setdefault(name, OffsetForLeaderEpochRequestTopic(topic=name, partitions=[]))
        topic.partitions.append(
            OffsetForLeaderEpochRequestPartition(
                partition=number, current_leader_epoch=check.leader[1], leader_epoch=check.last_epoch
            )
        )
    return OffsetForLeaderEpochRequest(replica_id=CONSUMER, topics=list(topics.values()))


def read_epochs(
    response: OffsetForLeaderEpochResponse,
) -> dict[TopicPartition, OffsetForLeaderEpochResponsePartition]:
    """Read the answer, by partition."""
    return {
        TopicPartition(topic.topic, partition.partition): partition
        for topic in response.topics
        for partition in topic.partitions
    }
