"""A raw client: it sends the given requests in the given versions, and reads the responses."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self, TypeVar

from aiokafka_lite.aio.framed_stream import FramedStreamReader
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.protocol.connection import ClientProtocol
from aiokafka_lite.protocol.messages import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponsePartition,
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponsePartition,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponsePartition,
)
from aiokafka_lite.protocol.schema import Request

R = TypeVar("R")


class Peer:
    """One connection to one node, in memory or over TCP, as the cluster is."""

    def __init__(self, cluster: EmbeddedCluster, node: int = 1) -> None:
        self.cluster = cluster
        self.node = cluster.nodes[node]
        self.protocol: ClientProtocol[None] = ClientProtocol("node")
        self.stream = FramedStreamReader(1 << 30, "node")

    async def __aenter__(self) -> Self:
        if self.cluster.connector is not None:
            await self.cluster.connector.connect(self.node.host, self.node.port, lambda: self.stream)
        else:
            import asyncio

            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: self.stream, self.node.host, self.node.port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stream.abort()
        await self.stream.wait_closed()

    def send(self, request: Request[Any], version: int, *, answered: bool = True) -> None:
        if answered:
            frame = self.protocol.encode_request(request, version, "peer", None)
        else:
            frame = self.protocol.encode_unanswered_request(request, version, "peer")
        self.stream.write([frame])

    async def receive(self) -> Any:
        """Return the next response; None if the node has closed the connection."""
        frame = await self.stream.read_frame()
        return None if frame is None else self.protocol.receive(frame)[1]

    async def ask(self, request: Request[R], version: int | None = None) -> R:
        self.send(request, type(request).versions.last if version is None else version)
        answer: R = await self.receive()
        return answer

    async def produce(
        self,
        topic: str,
        records: bytes | None,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 12,
        timeout_ms: int = 1000,
    ) -> ProduceResponsePartition:
        response = await self.ask(
            produce_request(topic, records, partition=partition, acks=acks, timeout_ms=timeout_ms), version
        )
        return response.responses[0].partition_responses[0]

    async def fetch(
        self, topic: str, offset: int, *, partition: int = 0, version: int = 12, **fields: Any
    ) -> FetchResponsePartition:
        response = await self.ask(fetch_request(topic, offset, partition=partition, **fields), version)
        return response.responses[0].partitions[0]

    async def offset(
        self, topic: str, timestamp: int, *, partition: int = 0, version: int = 9
    ) -> ListOffsetsResponsePartition:
        partition_request = ListOffsetsRequestPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsRequestTopic(name=topic, partitions=[partition_request])]
        )
        return (await self.ask(request, version)).topics[0].partitions[0]


def produce_request(
    topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1, timeout_ms: int = 1000
) -> ProduceRequest:
    data = ProduceRequestPartition(index=partition, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[ProduceRequestTopic(name=topic, partition_data=[data])]
    )


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    partition_max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    rack: str = "",
    **fields: int,
) -> FetchRequest:
    """Return a request for one partition. ``fields`` are fields of the request, such as ``min_bytes``."""
    partition_request = FetchRequestPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
        current_leader_epoch=leader_epoch,
        last_fetched_epoch=last_fetched_epoch,
    )
    return FetchRequest(
        **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0} | fields,
        topics=[FetchRequestTopic(topic=topic, partitions=[partition_request])],
        rack_id=rack,
    )
