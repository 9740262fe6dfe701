"""Log directories: the replicas on the disks of brokers. Each broker describes its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .. import arguments
from ..errors import ErrorCode, KafkaError, error_for
from ..protocol.messages import DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResult
from ..types import TopicPartition
from .calls import Calls, Peer
from .results import Results


@dataclass(frozen=True, slots=True)
class ReplicaOnDisk:
    """A replica. ``size`` is in bytes, ``lag`` in records.

    ``is_future`` marks a replica that moves here from another directory of the same broker.
    """

    partition: TopicPartition
    size: int
    lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """A directory. ``total_bytes`` and ``usable_bytes`` are of its volume, None before Kafka 3.3.

    ``error`` is the reason why it is offline, None if it is online.
    """

    path: str
    error: KafkaError | None
    replicas: tuple[ReplicaOnDisk, ...]
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool

    @property
    def size(self) -> int:
        """The bytes of all its replicas."""
        return sum(replica.size for replica in self.replicas)


class LogDirs:
    """The calls of ``admin.log_dirs``."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def describe(
        self,
        brokers: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout: float | None = None,
    ) -> Results[int, tuple[LogDir, ...]]:
        """The log directories of brokers, with the replicas of these partitions; all if None. Requires Kafka 2.0.

        Before Kafka 3.2 a client without the permission gets no directories instead of an error.
        """
        wanted = None if brokers is None else arguments.broker_ids(brokers)
        topics = None
        if partitions is not None:
            topics = [
                DescribableLogDirTopic(topic=name, partitions=numbers)
                for name, numbers in arguments.by_topic(arguments.partitions(partitions)).items()
            ]

        async def ask(peer: Peer, items: list[int]) -> Mapping[int, tuple[LogDir, ...] | KafkaError]:
            peer.require(DescribeLogDirsRequest.INTRODUCED, "describing log directories")
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
