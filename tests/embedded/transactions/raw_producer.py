"""A transactional producer that sends single requests and returns their error codes."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any, Self

from aiokafka_lite.arguments import by_topic
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.coordinators.groups.records import partition_of
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol import messages as m
from aiokafka_lite.protocol.records import encode_batch, split_batches
from aiokafka_lite.protocol.schema import Request
from tests.embedded.broker.raw_client import Peer, fetch_request

STATE = "__transaction_state"
OFFSETS = "__consumer_offsets"
RETRIED = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


class TransactionalPeer:
    """One transactional id with its producer id and epoch, over raw connections to all brokers.

    ``generation`` chooses the versions of the requests, as a client does by ``transaction.version``.
    """

    def __init__(self, cluster: EmbeddedCluster, transactional_id: str, *, generation: int = 2) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.generation = generation
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}
        self._peers: dict[int, Peer] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for peer in self._peers.values():
            await peer.__aexit__(kind, error, traceback)

    async def ask(self, node: int, request: Request[Any], version: int) -> Any:
        if node not in self._peers or self._peers[node].stream.gone:
            self._peers[node] = await Peer(self.cluster, node).__aenter__()
        return await self._peers[node].ask(request, version)

    # Where things are.

    async def find(self, key: str, key_type: int) -> int:
        """Return the node that coordinates a group (0) or a transactional id (1)."""
        node = next(node_id for node_id, broker in self.cluster.nodes.items() if broker.is_running)
        request = m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        coordinator = (await self.ask(node, request, 6)).coordinators[0]
        assert coordinator.error_code == 0, ErrorCode.of(coordinator.error_code)
        return int(coordinator.node_id)

    @property
    def state_partition(self) -> int:
        """The partition of ``__transaction_state`` that has the transactional id."""
        return partition_of(self.transactional_id, len(self.cluster.controller.topics[STATE].partitions))

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    async def to_coordinator(self, request: Request[Any], version: int) -> Any:
        return await self.ask(await self.find(self.transactional_id, 1), request, version)

    # Requests.

    async def initialize(
        self, *, timeout_ms: int = 60_000, old: tuple[int, int] = (-1, -1), version: int = 5, attempts: int = 50
    ) -> ErrorCode:
        """Send InitProducerId, again while the coordinator aborts an open transaction."""
        request = m.InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=old[0],
            producer_epoch=old[1],
        )
        for _ in range(attempts):
            answer = await self.to_coordinator(request, version)
            error = ErrorCode.of(answer.error_code)
            if error not in RETRIED:
                break
            await asyncio.sleep(0.1)
        if error is ErrorCode.NONE:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return error

    async def add(self, *partitions: tuple[str, int], version: int = 3) -> list[ErrorCode]:
        """Send AddPartitionsToTxn."""
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                m.AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in by_topic(partitions).items()
            ],
        )
        answer = await self.to_coordinator(request, version)
        return [
            ErrorCode.of(result.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        ]

    async def produce(
        self,
        topic: str,
        *values: bytes,
        partition: int = 0,
        transactional: bool = True,
        sequence: int | None = None,
        version: int | None = None,
    ) -> ErrorCode:
        """Produce to the leader of a partition. It does not add the partition to a transaction of generation 1."""
        key = (topic, partition)
        first = self.sequences.get(key, 0) if sequence is None else sequence
        data = encode_batch(
            [(int(time.time() * 1000), b"k", value, ()) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=first,
            transactional=transactional,
        )
        request = m.ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                m.ProduceRequestTopic(
                    name=topic, partition_data=[m.ProduceRequestPartition(index=partition, records=data)]
                )
            ],
        )
        newest = 12 if self.generation == 2 else 11
        leader = self.cluster.leader_of(topic, partition)
        answer = await self.ask(leader, request, newest if version is None else version)
        error = ErrorCode.of(answer.responses[0].partition_responses[0].error_code)
        if error is ErrorCode.NONE:
            self.sequences[key] = first + len(values)
        return error

    async def write(self, topic: str, *values: bytes, partition: int = 0) -> ErrorCode:
        """Write records in the transaction; in generation 1 add the partition before."""
        error = ErrorCode.NONE
        for _ in range(50):
            if self.generation == 1:
                [error] = await self.add((topic, partition))
            error = error or await self.produce(topic, *values, partition=partition)
            if error not in RETRIED:
                break
            await asyncio.sleep(0.05)
        return error

    async def commit_offsets(self, group: str, topic: str, offset: int, **member: Any) -> ErrorCode:
        """Commit an offset of partition 0 in the transaction."""
        coordinator = await self.find(group, 0)
        for _ in range(50):
            error = ErrorCode.NONE
            if self.generation == 1:
                request = m.AddOffsetsToTxnRequest(group_id=group, **self.identity)
                error = ErrorCode.of((await self.to_coordinator(request, 3)).error_code)
            if error is ErrorCode.NONE:
                partition = m.TxnOffsetCommitRequestPartition(
                    partition_index=0, committed_offset=offset, committed_metadata=""
                )
                commit = m.TxnOffsetCommitRequest(
                    group_id=group,
                    topics=[m.TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
                    **self.identity,
                    **member,
                )
                answer = await self.ask(coordinator, commit, 5 if self.generation == 2 else 4)
                error = ErrorCode.of(answer.topics[0].partitions[0].error_code)
            if error not in RETRIED:
                break
            await asyncio.sleep(0.05)
        return error

    async def committed(self, group: str, topic: str, *, stable: bool = False) -> tuple[int, ErrorCode]:
        """Return the committed offset of partition 0, and the error."""
        coordinator = await self.find(group, 0)
        request = m.OffsetFetchRequest(
            groups=[
                m.OffsetFetchRequestGroup(
                    group_id=group, topics=[m.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
                )
            ],
            require_stable=stable,
        )
        offset = (await self.ask(coordinator, request, 9)).groups[0].topics[0].partitions[0]
        return offset.committed_offset, ErrorCode.of(offset.error_code)

    async def end(self, *, commit: bool, version: int | None = None) -> ErrorCode:
        """Send EndTxn, once."""
        newest = 5 if self.generation == 2 else 4
        answer = await self.to_coordinator(
            m.EndTxnRequest(committed=commit, **self.identity), newest if version is None else version
        )
        error = ErrorCode.of(answer.error_code)
        if error is ErrorCode.NONE and answer.producer_id >= 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return error

    async def commit(self) -> ErrorCode:
        return await self.end(commit=True)

    async def abort(self) -> ErrorCode:
        return await self.end(commit=False)

    # What readers and administrators see.

    async def describe(self) -> m.DescribedTransaction:
        request = m.DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        description: m.DescribedTransaction = (await self.to_coordinator(request, 0)).transaction_states[0]
        return description

    async def until_complete(self) -> str:
        """Wait until all markers are written. Returns the state."""
        async with asyncio.timeout(600):
            while (state := (await self.describe()).transaction_state).startswith(("Prepare", "Ongoing")):
                await asyncio.sleep(0.01)
        return state

    async def fetch(self, topic: str, *, partition: int = 0, committed: bool = True, node: int | None = None) -> Any:
        leader = self.cluster.leader_of(topic, partition) if node is None else node
        request = fetch_request(topic, 0, partition=partition, isolation_level=int(committed))
        return (await self.ask(leader, request, 12)).responses[0].partitions[0]

    async def read(self, topic: str, *, partition: int = 0, committed: bool = True) -> list[bytes]:
        """Return the values that a consumer returns, which skips markers and aborted transactions."""
        answer = await self.fetch(topic, partition=partition, committed=committed)
        aborted = sorted(answer.aborted_transactions or (), key=lambda transaction: transaction.first_offset)
        skipped: set[int] = set()
        values: list[bytes] = []
        for batch in split_batches(answer.records or b""):
            while aborted and aborted[0].first_offset <= batch.last_offset:
                skipped.add(aborted.pop(0).producer_id)
            if batch.is_control:
                skipped.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in skipped):
                values += [bytes(value or b"") for value in batch.columns().values]
        return values
