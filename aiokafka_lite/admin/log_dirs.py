"""Log directories: the replicas on the disks of brokers. Each broker describes and changes only its own directories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .. import arguments
from ..errors import ErrorCode, KafkaError, error_for
from ..protocol.messages import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from ..types import TopicPartition
from .answers import answer_of, none_if_negative, raise_for
from .calls import Calls
from .peer import Deadline, Peer, Targets
from .results import Results
from .settling import Rules


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


class Replica(NamedTuple):
    """The replica of a partition on one broker."""

    partition: TopicPartition
    broker: int


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
        """Describe the log directories of brokers, with the replicas of these partitions; all if None.

        Requires Kafka 2.0. Before Kafka 3.2, a client without the permission gets no directories instead of an error.
        """
        broker_ids = None if brokers is None else arguments.broker_ids(brokers)
        topics = None
        if partitions is not None:
            topics = [
                DescribableLogDirTopic(topic=name, partitions=numbers)
                for name, numbers in arguments.by_topic(arguments.partitions(partitions)).items()
            ]

        async def ask(peer: Peer, items: list[int]) -> Mapping[int, tuple[LogDir, ...] | KafkaError]:
            peer.require(DescribeLogDirsRequest.INTRODUCED, "describing log directories")
            answer = await peer.send(DescribeLogDirsRequest(topics=topics))
            raise_for(answer.error_code, f"log directories of broker {peer.node_id}")
            return {peer.node_id: tuple(_log_dir(result) for result in answer.results)}

        deadline = self._calls.deadline(timeout)
        nodes = await self._calls.all_brokers(deadline) if broker_ids is None else broker_ids
        return await self._calls.settle("describing log directories", nodes, self._calls.brokers, ask, deadline)

    async def alter(
        self, directories: Mapping[Replica, str], *, timeout: float | None = None
    ) -> Results[Replica, None]:
        """Move replicas to other directories of their brokers, given by absolute paths. Requires Kafka 1.1.

        The broker copies a replica in the background. Until the end of the copy, ``describe`` shows it with
        ``is_future``. A missing directory fails with BrokerError (LOG_DIR_NOT_FOUND), a missing replica with
        BrokerError (REPLICA_NOT_AVAILABLE).
        """
        arguments.mapping("directories", directories, "Replica to path")
        for replica, path in directories.items():
            if not isinstance(replica, Replica):
                raise TypeError(arguments.must_be("replica", "a Replica(partition, broker)", replica))
            arguments.partitions([replica.partition])
            arguments.whole("broker id", replica.broker)
            arguments.text("directory", path)

        async def find(items: list[Replica], deadline: Deadline) -> Targets:
            by_broker = await self._calls.brokers(list({item.broker for item in items}), deadline)
            targets = Targets()
            for item in items:
                if item.broker in by_broker.by_node:
                    targets.put(item.broker, item)
                else:
                    targets.errors[item] = by_broker.errors[item.broker]
            return targets

        async def ask(peer: Peer, items: list[Replica]) -> Mapping[Replica, KafkaError | None]:
            by_path: dict[str, list[TopicPartition]] = {}
            for item in items:
                by_path.setdefault(directories[item], []).append(item.partition)
            request = AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(
                        path=path,
                        topics=[
                            AlterReplicaLogDirsTopic(name=name, partitions=numbers)
                            for name, numbers in arguments.by_topic(partitions).items()
                        ],
                    )
                    for path, partitions in by_path.items()
                ]
            )
            answers: dict[Replica, KafkaError | None] = {}
            for topic in (await peer.send(request)).results:
                for result in topic.partitions:
                    replica = Replica(TopicPartition(topic.topic_name, result.partition_index), peer.node_id)
                    answers[replica] = answer_of(
                        result.error_code, f"moving {replica.partition} on broker {replica.broker}", None
                    )
            return answers

        deadline = self._calls.deadline(timeout)
        return await self._calls.settle(
            "moving replicas between directories",
            directories,
            find,
            ask,
            deadline,
            Rules(final=[ErrorCode.REPLICA_NOT_AVAILABLE]),  # final as in Java's client, because a retry does not help
        )


def _log_dir(result: DescribeLogDirsResult) -> LogDir:
    return LogDir(
        path=result.log_dir,
        error=None if result.error_code == ErrorCode.NONE else error_for(result.error_code, result.log_dir),
        replicas=tuple(
            ReplicaOnDisk(
                TopicPartition(topic.name, partition.partition_index),
                partition.partition_size,
                partition.offset_lag,
                partition.is_future_key,
            )
            for topic in result.topics
            for partition in topic.partitions
        ),
        total_bytes=none_if_negative(result.total_bytes),
        usable_bytes=none_if_negative(result.usable_bytes),
        is_cordoned=result.is_cordoned,
    )
