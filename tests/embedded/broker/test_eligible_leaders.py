"""Eligible leader replicas (KIP-966): the replicas that may lead a partition without an in-sync one."""

from __future__ import annotations

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.protocol.messages import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopic,
    DescribeTopicPartitionsResponsePartition,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from tests.embedded.broker.raw_client import Peer
from tests.pure.embedded.batches import produced


async def described_partition(peer: Peer, topic: str) -> DescribeTopicPartitionsResponsePartition:
    request = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequestTopic(name=topic)])
    answer: DescribeTopicPartitionsResponsePartition = (await peer.ask(request)).topics[0].partitions[0]
    return answer


async def test_replicas_that_left_below_min_isr_stay_eligible(three: EmbeddedCluster) -> None:
    """KIP-966, as ``kafka-topics --describe`` shows it."""
    await three.create_topic("t", assignments=[[1, 2, 3]], configs={"min.insync.replicas": "2"})
    async with Peer(three, node=1) as peer:
        observations = []
        for stopped in (3, 2):
            await three.stop(stopped)
            partition = await described_partition(peer, "t")
            observations.append((partition.isr_nodes, partition.eligible_leader_replicas, partition.last_known_elr))
        assert observations == [([1, 2], [], []), ([1], [2], [])]
        await three.start_node(2)
        await three.start_node(3)
        await three.until_in_sync("t")
        assert (await described_partition(peer, "t")).eligible_leader_replicas == []


async def test_an_eligible_replica_leads_when_the_last_in_sync_one_is_gone(three: EmbeddedCluster) -> None:
    await three.create_topic("t", assignments=[[1, 2]], configs={"min.insync.replicas": "2"})
    async with Peer(three, node=1) as peer:
        await peer.produce("t", produced(timestamp=-1))
    await three.stop(2)
    await three.stop(1)
    async with Peer(three, node=3) as peer:
        partition = await described_partition(peer, "t")
        assert (partition.leader_id, partition.isr_nodes) == (-1, [])
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([2, 1], [1])
        await three.start_node(2)
        partition = await described_partition(peer, "t")
        assert (partition.leader_id, partition.isr_nodes, partition.eligible_leader_replicas) == (2, [2], [1])
    assert three.nodes[2].replica_manager.partitions["t", 0].log.end_offset == 1


async def test_without_the_feature_the_last_member_stays_in_sync(three: EmbeddedCluster) -> None:
    three.set_feature("eligible.leader.replicas.version", 0)
    await three.create_topic("t", assignments=[[2]])
    await three.stop(2)
    async with Peer(three, node=1) as peer:
        partition = await described_partition(peer, "t")
    assert (partition.leader_id, partition.isr_nodes, partition.eligible_leader_replicas) == (-1, [2], [])


async def test_a_smaller_min_isr_ends_the_eligibility(three: EmbeddedCluster) -> None:
    """From then on only the leader commits records, so the other replica lacks them."""
    await three.create_topic("t", assignments=[[1, 2]], configs={"min.insync.replicas": "2"})
    await three.stop(2)
    async with Peer(three, node=1) as peer:
        assert (await described_partition(peer, "t")).eligible_leader_replicas == [2]
        change = IncrementalAlterConfigsRequestConfig(name="min.insync.replicas", config_operation=0, value="1")
        topic = IncrementalAlterConfigsRequestResource(resource_type=2, resource_name="t", configs=[change])
        await peer.ask(IncrementalAlterConfigsRequest(resources=[topic], validate_only=False))
        assert (await described_partition(peer, "t")).eligible_leader_replicas == []
