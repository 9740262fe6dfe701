"""Leader elections, and moving replicas between brokers. The controller does both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from .. import arguments
from ..errors import ErrorCode, KafkaError
from ..protocol.messages import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopic,
    ReassignablePartition,
    ReassignableTopic,
)
from ..types import TopicPartition
from .answers import answer_of, raise_for, results_of
from .calls import Calls
from .peer import Peer
from .results import Results
from .settling import Rules

_FINAL = (
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ErrorCode.ELECTION_NOT_NEEDED,
)


class Election(IntEnum):
    """The replicas that may be elected."""

    PREFERRED = 0
    """The first replica of the assignment, if it is in sync."""
    UNCLEAN = 1
    """Any live replica, for a partition that has no leader. Records may be lost. Requires Kafka 2.4."""


class Leaders:
    """The calls of ``admin.leaders``."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def elect(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        election: Election = Election.PREFERRED,
        timeout: float | None = None,
    ) -> Results[TopicPartition, bool]:
        """Elect leaders of the partitions, or of all partitions that need an election if None. Requires Kafka 2.2.

        The result is True if the partition has a new leader, False if the election was not needed.
        """
        if election not in tuple(Election):
            raise ValueError(arguments.must_be("election", "Election.PREFERRED or Election.UNCLEAN", election))
        deadline = self._calls.deadline(timeout)

        async def ask(peer: Peer, items: list[TopicPartition] | None) -> dict[TopicPartition, bool | KafkaError]:
            peer.require(ElectLeadersRequest.INTRODUCED, "electing leaders")
            if election is not Election.PREFERRED:
                peer.require(ElectLeadersRequest.UNCLEAN, "electing leaders that are not in sync")
            topics = None
            if items is not None:
                topics = [
                    ElectLeadersTopic(topic=name, partitions=numbers)
                    for name, numbers in arguments.by_topic(items).items()
                ]
            request = ElectLeadersRequest(
                election_type=int(election), topic_partitions=topics, timeout_ms=peer.timeout_ms
            )
            return _elected(await peer.send(request))

        if partitions is not None:
            items = arguments.partitions(partitions)
            return await self._calls.settle(
                "electing leaders",
                items,
                self._calls.controller,
                ask,
                deadline,
                Rules(grace=0.0, final=_FINAL),
            )

        async def ask_for_all(peer: Peer) -> Results[TopicPartition, bool]:
            return results_of(await ask(peer, None))

        return await self._calls.one("electing leaders", self._calls.controller, ask_for_all, deadline)


def _elected(answer: ElectLeadersResponse) -> dict[TopicPartition, bool | KafkaError]:
    raise_for(answer.error_code, "electing leaders")
    results: dict[TopicPartition, bool | KafkaError] = {}
    for topic in answer.replica_election_results:
        for result in topic.partition_result:
            item = TopicPartition(topic.topic, result.partition_id)
            if result.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                results[item] = False
            else:
                results[item] = answer_of(result.error_code, f"electing a leader of {item}", True, result.error_message)
    return results


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A move of a partition: the broker ids of all its replicas, of the added and of the removed replicas."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Reassignments:
    """The calls of ``admin.reassignments``. They require Kafka 2.4."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def alter(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Move each partition to its brokers. The first of them is the preferred leader. None cancels a move.

        Returns when the moves have begun. ``allow_replication_factor_change=False`` requires Kafka 4.1.
        """
        new_replicas = {
            partition: None if brokers is None else arguments.broker_ids(brokers)
            for partition, brokers in arguments.by_partition("replicas", replicas, "broker ids").items()
        }

        async def ask(peer: Peer, items: list[TopicPartition]) -> Mapping[TopicPartition, KafkaError | None]:
            peer.require(AlterPartitionReassignmentsRequest.INTRODUCED, "moving replicas")
            if not allow_replication_factor_change:
                peer.require(
                    AlterPartitionReassignmentsRequest.KEEP_REPLICATION_FACTOR, "keeping the replication factor"
                )
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=peer.timeout_ms,
                allow_replication_factor_change=allow_replication_factor_change,
                topics=[
                    ReassignableTopic(
                        name=name,
                        partitions=[
                            ReassignablePartition(
                                partition_index=number, replicas=new_replicas[TopicPartition(name, number)]
                            )
                            for number in numbers
                        ],
                    )
                    for name, numbers in arguments.by_topic(items).items()
                ],
            )
            answer = await peer.send(request)
            raise_for(answer.error_code, "moving replicas", answer.error_message)
            answers: dict[TopicPartition, KafkaError | None] = {}
            for topic in answer.responses:
                for partition in topic.partitions:
                    item = TopicPartition(topic.name, partition.partition_index)
                    answers[item] = answer_of(
                        partition.error_code, f"moving the replicas of {item}", None, partition.error_message
                    )
            return answers

        deadline = self._calls.deadline(timeout)
        return await self._calls.settle(
            "moving replicas", new_replicas, self._calls.controller, ask, deadline, Rules(grace=0.0)
        )

    async def list(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> Mapping[TopicPartition, Reassignment]:
        """List the moves that are in progress, of these partitions or of all. Other partitions are left out."""
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopic(name=name, partition_indexes=numbers)
                for name, numbers in arguments.by_topic(arguments.partitions(partitions)).items()
            ]

        async def ask(peer: Peer) -> Mapping[TopicPartition, Reassignment]:
            peer.require(ListPartitionReassignmentsRequest.INTRODUCED, "listing moves of replicas")
            request = ListPartitionReassignmentsRequest(timeout_ms=peer.timeout_ms, topics=topics)
            answer = await peer.send(request)
            raise_for(answer.error_code, "listing moves", answer.error_message)
            return {
                TopicPartition(topic.name, partition.partition_index): Reassignment(
                    tuple(partition.replicas), tuple(partition.adding_replicas), tuple(partition.removing_replicas)
                )
                for topic in answer.topics
                for partition in topic.partitions
            }

        deadline = self._calls.deadline(timeout)
        return await self._calls.one("listing moves of replicas", self._calls.controller, ask, deadline)
