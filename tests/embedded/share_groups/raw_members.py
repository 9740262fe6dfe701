"""A member of a share group that sends raw requests: to the coordinator, and to the leader of ``orders-0``."""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol import messages as m
from tests.embedded.broker.raw_client import Peer

from .requests import Batch, acquired, heartbeat, share_acknowledge, share_fetch

ACCEPT, RELEASE, REJECT, RENEW, GAP = (1,), (2,), (3,), (4,), (0,)
TOPIC = "orders"


class Member:
    """Joins at the beginning of ``async with``. At its end the connections close, and the member does not leave."""

    def __init__(self, cluster: EmbeddedCluster, name: str = "first", group: str = "workers") -> None:
        self.cluster = cluster
        self.name = name
        self.group = group
        self.epoch = 0
        self.session_epoch = 0
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        await self.join()
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, traceback)

    @property
    def topic_id(self) -> bytes:
        return self.cluster.controller.topics[TOPIC].topic_id

    async def connect(self) -> None:
        """Connect to the present leader, without a share session."""
        self.leader = await self._stack.enter_async_context(Peer(self.cluster, self.cluster.leader_of(TOPIC, 0)))
        self.session_epoch = 0

    async def coordinator(self) -> Peer:
        first = next(number for number, node in self.cluster.nodes.items() if node.is_running)
        async with Peer(self.cluster, first) as peer:
            answer = await peer.ask(m.FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group]))
        return Peer(self.cluster, answer.coordinators[0].node_id)

    async def beat(self, topics: list[str] | None = None) -> m.ShareGroupHeartbeatResponse:
        async with await self.coordinator() as peer:
            answer = await peer.ask(heartbeat(self.group, self.name, self.epoch, topics))
        self.epoch = answer.member_epoch or self.epoch
        return answer

    async def join(self, topics: list[str] | None = None) -> list[int]:
        """Join. Returns the partitions of the only assigned topic."""
        self.epoch = 0
        return partitions_of(await self.beat([TOPIC] if topics is None else topics))

    async def leave(self) -> None:
        self.epoch = -1
        await self.beat()

    async def fetch(self, *batches: Batch, **options: Any) -> list[tuple[int, int, int]]:
        """Acquire records, with acknowledgements. Returns first offsets, last offsets and delivery counts."""
        response = await self.fetch_response(*batches, **options)
        assert {partition.acknowledge_error_code for topic in response.responses for partition in topic.partitions} <= {
            0
        }
        return acquired(response)

    async def fetch_response(self, *batches: Batch, **options: Any) -> m.ShareFetchResponse:
        topic_id = self.topic_id if batches or self.session_epoch == 0 else None
        request = share_fetch(self.group, self.name, self.session_epoch, topic_id, *batches, **options)
        response = await self.leader.ask(request)
        if response.error_code == ErrorCode.NONE:
            self.session_epoch += 1
        return response

    async def acknowledge(self, *batches: Batch, renew: bool = False) -> tuple[ErrorCode, str | None]:
        """Acknowledge. Returns the error of the partition, or of the response."""
        response = await self.leader.ask(
            share_acknowledge(self.group, self.name, self.session_epoch, self.topic_id, *batches, renew=renew)
        )
        if response.error_code != ErrorCode.NONE:
            return ErrorCode.of(response.error_code), response.error_message
        self.session_epoch += 1
        partition = response.responses[0].partitions[0]
        return ErrorCode.of(partition.error_code), partition.error_message

    async def close_session(self) -> None:
        self.session_epoch = -1
        await self.fetch_response()

    async def offsets(self) -> tuple[int, int]:
        """Return the start offset and the lag of ``orders-0`` in this group; -1 if they are unknown."""
        group = m.DescribeShareGroupOffsetsRequestGroup(group_id=self.group, topics=None)
        async with await self.coordinator() as peer:
            answer = await peer.ask(m.DescribeShareGroupOffsetsRequest(groups=[group]))
        partition = answer.groups[0].topics[0].partitions[0]
        return partition.start_offset, partition.lag


def partitions_of(answer: m.ShareGroupHeartbeatResponse) -> list[int]:
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    assert answer.assignment is not None
    return [index for topic_partition in answer.assignment.topic_partitions for index in topic_partition.partitions]


async def write(cluster: EmbeddedCluster, count: int, topic: str = TOPIC) -> None:
    """Write records, each in a batch of its own."""
    for number in range(count):
        await cluster.produce(topic, b"%d" % number, partition=0)


async def set_configs(cluster: EmbeddedCluster, group: str = "workers", **settings: str) -> None:
    """Set settings of a group, by their names with underscores."""
    configs = [
        m.IncrementalAlterConfigsRequestConfig(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in settings.items()
    ]
    resource = m.IncrementalAlterConfigsRequestResource(resource_type=32, resource_name=group, configs=configs)
    async with Peer(cluster) as peer:
        answer = await peer.ask(m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    assert answer.responses[0].error_code == ErrorCode.NONE, answer.responses[0].error_message
