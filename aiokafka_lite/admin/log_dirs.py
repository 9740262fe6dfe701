"""Directories of logs: what is on the disks of brokers. Each broker tells of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import ErrorCode, KafkaError, error_for
from ..protocol.messages import DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResult
from ..types import TopicPartition
from . import arguments
from .calls import Calls, Peer
from .results import Results


@dataclass(frozen=True, slots=True)
class ReplicaOnDisk:
    """A replica. ``size`` is in bytes; ``lag`` is how many records it is behind.

    ``is_future`` marks one that is being moved here from another directory of the same broker.
    """

    partition: TopicPartition
    size: int
    lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """A directory; sizes in bytes are those of its volume, None before Kafka 3.3. ``error`` is why it is offline."""

    path: str
    error: KafkaError | None
    replicas: tuple[ReplicaOnDisk, ...]
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool

    @property
    def size(self) -> int:
        """What the replicas take up, in bytes."""
        return sum(replica.size for replica in self.replicas)


class LogDirs:
    """What ``admin.log_dirs`` does."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def describe(
        self,
        brokers: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout: float | None = None,
    ) -> Results[int, tuple[LogDir, ...]]:
        """The directories of brokers, or of all, with the replicas of the partitions, or of all. Since Kafka 2.0.

        Before Kafka 3.2 a client that may not see them is told of none instead of getting an error.
        """
        wanted = None if brokers is None else arguments.brokers(brokers)
        topics = None
        if partitions is not None:
            topics = [
                DescribableLogDirTopic(topic=name, partitions=numbers)
                for name, numbers in arguments.by_topic(arguments.partitions(partitions)).items()
            ]

        async def ask(peer: Peer, items: list[int]) -> Mapping[int, tuple[LogDir, ...] | KafkaError]:
            peer.require(DescribeLogDirsRequest, 1, "describing log directories the way this client asks", "2.0")
            answer = await peer.send(DescribeLogDirsRequest(topics=topics))
            if answer.error_code:
                raise error_for(answer.error_code, f"log directories of broker {peer.node_id}")
            return {peer.node_id: tuple(_log_dir(each) for each in answer.results)}

        deadline = self._calls.deadline(timeout)
        nodes = await self._calls.all_brokers(deadline) if wanted is None else wanted
        return await self._calls.settle("describing log directories", nodes, self._calls.brokers, ask, deadline)


def _log_dir(given: DescribeLogDirsResult) -> LogDir:
    return LogDir(
        path=given.log_dir,
        error=None if given.error_code == ErrorCode.NONE else error_for(given.error_code, given.log_dir),
        replicas=tuple(
            ReplicaOnDisk(
                TopicPartition(topic.name, each.partition_index),
                each.partition_size,
                each.offset_lag,
                each.is_future_key,
            )
            for topic in given.topics
            for each in topic.partitions
        ),
        total_bytes=given.total_bytes if given.total_bytes >= 0 else None,
        usable_bytes=given.usable_bytes if given.usable_bytes >= 0 else None,
        is_cordoned=given.is_cordoned,
    )
