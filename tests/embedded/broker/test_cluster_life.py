"""Replication, elections and in-sync sets while brokers stop, die, freeze and are cut off."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

import anyio
import pytest

from aiokafka_lite.aio.virtual_time import run
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster, Refused
from aiokafka_lite.errors import ConfigurationError, ErrorCode, IllegalStateError
from aiokafka_lite.protocol.messages import MetadataRequest, MetadataRequestTopic
from aiokafka_lite.protocol.records import split_batches
from tests.case_notes import seeds
from tests.embedded.broker.raw_client import Peer, produce_request
from tests.pure.embedded.batches import produced
from tests.virtual import in_virtual_time


def batch(*values: bytes, **fields: int) -> bytes:
    return produced(*values, timestamp=int(time.time() * 1000), **fields)  # type: ignore[arg-type]


async def test_acks_all_waits_until_the_in_sync_replicas_have_it(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", assignments=[[1, 2, 3]])
    async with Peer(cluster, 1) as peer:
        assert (await peer.produce("t", batch(b"a"))).error_code == 0
    for node in cluster.nodes.values():
        assert node.replica_manager.partitions["t", 0].log.end_offset == 1


def test_a_cluster_that_is_not_started_says_so_instead_of_addresses() -> None:
    cluster = EmbeddedCluster()
    for addresses in (lambda: cluster.bootstrap_servers, cluster.client_settings):
        with pytest.raises(IllegalStateError, match="it is not started: use it in 'async with'"):
            addresses()
    assert EmbeddedCluster(brokers=1, ports=9192).bootstrap_servers == "127.0.0.1:9192"


async def test_a_stopped_leader_is_followed_by_an_in_sync_replica_with_all_records(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", assignments=[[1, 2, 3]])
    async with Peer(cluster, 1) as peer:
        await peer.produce("t", batch(b"a"))
    await cluster.stop(1)
    assert cluster.leader_of("t", 0) == 2
    async with Peer(cluster, 2) as peer:
        assert (await peer.produce("t", batch(b"b"))).base_offset == 1
        response = await peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
        assert [broker.node_id for broker in response.brokers] == [2, 3]
        (partition,) = response.topics[0].partitions
        assert (partition.leader_id, partition.isr_nodes, partition.offline_replicas) == (2, [2, 3], [1])
    await cluster.start_node(1)
    await cluster.until_in_sync("t")
    assert cluster.nodes[1].replica_manager.partitions["t", 0].log.end_offset == 2


async def test_a_node_restarts_on_another_port_and_metadata_says_so(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", replication_factor=3)
    old = cluster.nodes[2].port
    await cluster.restart(2, port=0 if cluster.tcp else 19092)
    assert cluster.nodes[2].port != old
    async with Peer(cluster, 1) as peer:
        brokers = (await peer.ask(MetadataRequest(topics=[]), 9)).brokers
        assert {broker.node_id: broker.port for broker in brokers}[2] == cluster.nodes[2].port


async def test_without_its_last_in_sync_replica_a_partition_has_no_leader(three: EmbeddedCluster) -> None:
    await three.create_topic("t", assignments=[[1]])
    await three.kill(1)
    assert three.leader_of("t", 0) == -1
    async with Peer(three, 2) as peer:
        response = await peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
        assert response.topics[0].partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    await three.start_node(1)
    assert three.leader_of("t", 0) == 1


async def test_too_few_in_sync_replicas_refuse_and_never_acknowledge(three: EmbeddedCluster) -> None:
    await three.create_topic("t", assignments=[[1, 2]], configs={"min.insync.replicas": "2"})
    await three.stop(2)
    async with Peer(three, 1) as peer:
        assert (await peer.produce("t", batch(b"a"))).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await peer.produce("t", batch(b"b"), acks=1)).error_code == 0
        assert (await peer.fetch("t", 0)).high_watermark == 0


@in_virtual_time
async def test_a_produce_times_out_if_the_in_sync_set_shrinks_below_the_minimum() -> None:
    async with EmbeddedCluster(
        brokers=2,
        tcp=False,
        configs={"replica.lag.time.max.ms": "10000"},
        config=ClusterConfig(broker_session_timeout=1e6),
    ) as cluster:
        await cluster.create_topic("t", assignments=[[1, 2]], configs={"min.insync.replicas": "2"})
        await cluster.freeze(2)
        async with Peer(cluster, 1) as peer:
            answered = await peer.produce("t", batch(b"a"), timeout_ms=60_000)
            assert answered.error_code == ErrorCode.REQUEST_TIMED_OUT
            assert answered.base_offset == 0  # as in Kafka, the record is in the leader's log
            assert cluster.state_of("t", 0).isr == (1,)
        await cluster.thaw(2)
        await cluster.until_in_sync("t")


@in_virtual_time
async def test_a_produce_that_is_not_copied_in_time_times_out() -> None:
    async with EmbeddedCluster(brokers=2, tcp=False, config=ClusterConfig(broker_session_timeout=1e6)) as cluster:
        await cluster.create_topic("t", assignments=[[1, 2]])
        await cluster.freeze(2)
        async with Peer(cluster, 1) as peer:
            loop = asyncio.get_running_loop()
            began = loop.time()
            answered = await peer.produce("t", batch(b"a"), timeout_ms=5000)
            assert answered.error_code == ErrorCode.REQUEST_TIMED_OUT
            assert loop.time() - began == pytest.approx(5.0)


async def test_a_leader_that_moves_answers_the_requests_that_wait(three: EmbeddedCluster) -> None:
    await three.create_topic("t", assignments=[[1, 2]])
    three.replication.delay = 1000.0
    async with Peer(three, 1) as peer:
        peer.send(produce_request("t", batch(b"a"), timeout_ms=60_000), 9)
        while not len(three.nodes[1].replica_manager.produce_purgatory):
            await asyncio.sleep(0)
        await three.move_leader("t", 0, 2)
        answered = (await peer.receive()).responses[0].partition_responses[0]
        assert answered.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_virtual_time
async def test_a_leader_that_is_cut_off_acknowledges_nothing_and_truncates_its_own_records() -> None:
    async with EmbeddedCluster(brokers=3, tcp=False) as cluster:
        await cluster.create_topic("t", assignments=[[1, 2, 3]])
        async with Peer(cluster, 1) as old:
            await old.produce("t", batch(b"kept"))
            await cluster.partition_network({1}, {2, 3})
            refused = await old.produce("t", batch(b"lost"), timeout_ms=20_000)
            assert refused.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert cluster.leader_of("t", 0) == 2
        async with Peer(cluster, 2) as new:
            assert (await new.produce("t", batch(b"second"))).base_offset == 1
            await cluster.heal_network()
            await cluster.until_in_sync("t")
            assert (await new.produce("t", batch(b"third"))).base_offset == 2
        logs = [node.replica_manager.partitions["t", 0].log for node in cluster.nodes.values()]
        assert len({b"".join(batch.data for batch in log.batches()) for log in logs}) == 1
        assert {log.high_watermark for log in logs} == {3}


@in_virtual_time
async def test_a_frozen_broker_loses_its_leadership_when_its_session_ends_and_answers_after_the_thaw() -> None:
    async with EmbeddedCluster(brokers=3, tcp=False, config=ClusterConfig(broker_session_timeout=9.0)) as cluster:
        await cluster.create_topic("t", assignments=[[1, 2, 3]])
        await cluster.freeze(1)
        async with Peer(cluster, 1) as peer:
            peer.send(produce_request("t", batch(b"late"), timeout_ms=1000), 9)
            await asyncio.sleep(8.9)
            assert cluster.leader_of("t", 0) == 1
            await asyncio.sleep(0.2)
            assert cluster.leader_of("t", 0) == 2
            await cluster.thaw(1)
            answered = (await peer.receive()).responses[0].partition_responses[0]
            assert answered.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_virtual_time
async def test_an_unclean_election_happens_only_if_the_topic_allows_it() -> None:
    async with EmbeddedCluster(brokers=2, tcp=False) as cluster:
        await cluster.create_topic("safe", assignments=[[1, 2]])
        await cluster.create_topic("unsafe", assignments=[[1, 2]], configs={"unclean.leader.election.enable": "true"})
        await cluster.stop(2)
        async with Peer(cluster, 1) as peer:
            for topic in ("safe", "unsafe"):
                assert (await peer.produce(topic, batch(b"a"))).error_code == 0
        await cluster.kill(1)
        await cluster.start_node(2)
        assert cluster.leader_of("safe", 0) == -1
        assert cluster.leader_of("unsafe", 0) == 2
        await cluster.start_node(1)
        assert cluster.leader_of("safe", 0) == 1
        await cluster.until_in_sync("unsafe")
        assert cluster.nodes[1].replica_manager.partitions["unsafe", 0].log.end_offset == 0


async def test_a_reader_is_sent_to_the_replica_in_its_rack() -> None:
    async with EmbeddedCluster(brokers=2, tcp=False, config=ClusterConfig(racks=["a", "b"])) as cluster:
        await cluster.create_topic("t", assignments=[[1, 2]])
        async with Peer(cluster, 1) as leader, Peer(cluster, 2) as follower:
            await leader.produce("t", batch(b"a"))
            assert (await leader.fetch("t", 0, rack="b")).preferred_read_replica == 2
            assert (await leader.fetch("t", 0, rack="a")).preferred_read_replica == -1
            from_follower = await follower.fetch("t", 0, rack="b", max_wait_ms=1000)
            assert from_follower.records
            old = await follower.fetch("t", 0, version=10)
            assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_in_sync_sets_and_leaders_can_be_set(three: EmbeddedCluster) -> None:
    await three.create_topic("t", assignments=[[1, 2, 3]])
    await three.set_isr("t", 0, [1])
    assert three.state_of("t", 0).isr == (1,)
    with pytest.raises(Refused):
        await three.move_leader("t", 0, 2)
    assert await three.move_leader("t", 0, 2, unclean=True) == 2
    assert three.state_of("t", 0).isr == (2,)
    with pytest.raises(ConfigurationError):
        await three.set_isr("t", 0, [9])
    with pytest.raises(Refused):
        await three.move_leader("t", 0, 9)


def test_an_hour_in_virtual_time_is_fast_and_repeatable() -> None:
    async def main() -> int:
        async with EmbeddedCluster(
            brokers=3, tcp=False, seed=4, config=ClusterConfig(wall_clock=lambda: 1e9)
        ) as cluster:
            await cluster.create_topic("t", partitions=3, replication_factor=3)
            loop = asyncio.get_running_loop()
            trace: list[object] = []
            async with Peer(cluster, cluster.leader_of("t", 0)) as peer:
                while loop.time() < 3600:
                    answer = await peer.produce("t", produced(b"x"), acks=-1)
                    trace.append((loop.time(), answer.base_offset, answer.error_code))
                    await asyncio.sleep(30)
            return hash(tuple(trace))

    began = time.process_time()
    first = run(main(), seed=1)
    assert time.process_time() - began < 5.0
    assert run(main(), seed=1) == first


@in_virtual_time
async def test_an_idle_connection_is_closed() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster, Peer(cluster) as idle, Peer(cluster) as busy:
        idle.stream.write([b"\0\0"])  # half of a size
        for _ in range(20):
            await asyncio.sleep(60)
            await busy.ask(MetadataRequest(topics=[]))
        assert await idle.stream.read_frame() is None
        assert len(cluster.nodes[1].connections) == 1


class Nemesis:
    """Breaks a cluster of three at random and repairs it; at most one broker is down at a time."""

    def __init__(self, cluster: EmbeddedCluster, dice: random.Random) -> None:
        self.cluster = cluster
        self.dice = dice
        self.over = False

    async def work(self) -> None:
        while not self.over:
            await asyncio.sleep(self.dice.uniform(0, 20))
            node = self.dice.choice([1, 2, 3])
            match self.dice.choice(["kill", "stop", "freeze", "cut", "move", "slow"]):
                case "kill":
                    await self.cluster.kill(node, noticed_after=self.dice.choice([0.0, 5.0]))
                    await asyncio.sleep(self.dice.uniform(0, 30))
                    await self.cluster.start_node(node)
                case "stop":
                    await self.cluster.stop(node)
                    await asyncio.sleep(self.dice.uniform(0, 30))
                    await self.cluster.start_node(node)
                case "freeze":
                    await self.cluster.freeze(node)
                    await asyncio.sleep(self.dice.uniform(0, 60))
                    await self.cluster.thaw(node)
                case "cut":
                    await self.cluster.partition_network({node})
                    await asyncio.sleep(self.dice.uniform(0, 60))
                    await self.cluster.heal_network()
                case "move":
                    with contextlib.suppress(Refused):
                        await self.cluster.move_leader("t", 0)
                case "slow":
                    self.cluster.replication.delay = self.dice.choice([0.0, 0.01, 3.0])


class Writer:
    """An idempotent producer of one record at a time. It retries, at the leader or another node, until it succeeds."""

    def __init__(self, cluster: EmbeddedCluster, dice: random.Random) -> None:
        self.cluster = cluster
        self.dice = dice
        self.acknowledged: list[bytes] = []

    async def work(self, seconds: float) -> None:
        loop, sequence = asyncio.get_running_loop(), 0
        while loop.time() < seconds:
            value = b"%d" % sequence
            records = batch(value, producer_id=1, epoch=0, sequence=sequence)
            while not await self.try_once(records):
                await asyncio.sleep(1)
            self.acknowledged.append(value)
            sequence += 1
            await asyncio.sleep(self.dice.uniform(0, 2))

    async def try_once(self, records: bytes) -> bool:
        leader = self.cluster.leader_of("t", 0)
        node = leader if leader > 0 and self.dice.random() < 0.9 else self.dice.choice([1, 2, 3])
        try:
            async with asyncio.timeout(5), Peer(self.cluster, node) as peer:
                return (await peer.produce("t", records, timeout_ms=3000)).error_code == 0
        except (OSError, TimeoutError, AttributeError):  # refused, frozen, ended in good order
            return False


@pytest.mark.thorough
@pytest.mark.parametrize("seed", seeds(12, usual=4))
def test_acknowledged_records_are_not_lost_repeated_or_reordered_under_faults(seed: int) -> None:
    async def main() -> tuple[list[bytes], list[bytes]]:
        dice = random.Random(seed)
        async with EmbeddedCluster(
            brokers=3, tcp=False, seed=seed, configs={"replica.lag.time.max.ms": "10000"}
        ) as cluster:
            await cluster.create_topic("t", 1, 3, configs={"min.insync.replicas": "2", "retention.ms": "-1"})
            nemesis, writer = Nemesis(cluster, dice), Writer(cluster, dice)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(nemesis.work)
                await writer.work(1800.0)
                nemesis.over = True
            cluster.replication.delay = 0.0
            await cluster.until_in_sync("t", timeout=100.0)
            await asyncio.sleep(10)
            logs = [node.replica_manager.partitions["t", 0].log for node in cluster.nodes.values()]
            contents = [[batch.data for batch in log.batches()] for log in logs]
            assert contents[0] == contents[1] == contents[2]
            assert len({log.high_watermark for log in logs}) == 1
            assert logs[0].high_watermark == logs[0].end_offset
            values = [
                bytes(value or b"")
                for data in contents[0]
                for split_batch in split_batches(data)
                for value in split_batch.columns().values
            ]
            return writer.acknowledged, values

    acknowledged, stored = run(main(), seed=seed)
    assert len(acknowledged) > 100
    assert stored[: len(acknowledged)] == acknowledged
    assert len(stored) - len(acknowledged) <= 1


@in_virtual_time
async def test_a_new_network_partition_replaces_the_old_one() -> None:
    async with EmbeddedCluster(brokers=3, tcp=False, config=ClusterConfig(wall_clock=lambda: 1.0)) as cluster:
        await cluster.create_topic("t", assignments=[[1, 2, 3]])
        await cluster.partition_network([1], [2, 3])
        await asyncio.sleep(1)
        await cluster.create_topic("u", assignments=[[3, 1]])
        await cluster.partition_network([2], [1, 3])
        assert "u" in cluster.nodes[1].metadata.topics
        await asyncio.sleep(60)
        assert cluster.controller.live_brokers() == [1, 3]
        assert set(cluster.state_of("u", 0).isr) == {1, 3}


@in_virtual_time
async def test_a_thaw_does_not_keep_the_session_of_a_broker_that_is_cut_off() -> None:
    async with EmbeddedCluster(brokers=3, tcp=False, config=ClusterConfig(wall_clock=lambda: 1.0)) as cluster:
        await cluster.create_topic("t", assignments=[[1, 2, 3]])
        await cluster.partition_network([1], [2, 3])
        await cluster.freeze(1)
        await asyncio.sleep(1)
        await cluster.thaw(1)
        await asyncio.sleep(60)
        assert cluster.leader_of("t", 0) == 2


@in_virtual_time
async def test_stored_bytes_are_the_size_of_the_logs_after_every_change() -> None:
    async with EmbeddedCluster(brokers=3, tcp=False, config=ClusterConfig(wall_clock=lambda: 1.0)) as cluster:
        await cluster.create_topic("t", assignments=[[1, 2, 3]], configs={"compression.type": "gzip"})
        managers = {node_id: node.replica_manager for node_id, node in cluster.nodes.items()}
        async with Peer(cluster) as peer:
            await peer.produce("t", produced(b"x" * 6_000))
            assert {manager.stored_bytes for manager in managers.values()} == {managers[1].partitions["t", 0].log.size}
            await cluster.partition_network([1], [2, 3])
            await peer.produce("t", produced(b"lost"), acks=1)
            await asyncio.sleep(20)
            await cluster.heal_network()
            await asyncio.sleep(1)
        assert managers[1].stored_bytes == managers[2].stored_bytes
        managers[2].delete_records(managers[2].partitions["t", 0], 1)
        await asyncio.sleep(1)
        assert [manager.stored_bytes for manager in managers.values()] == [0, 0, 0]


@in_virtual_time
async def test_a_skewed_clock_affects_append_times_and_retention() -> None:
    async with EmbeddedCluster(brokers=2, tcp=False, config=ClusterConfig(wall_clock=lambda: 1_000_000.0)) as cluster:
        settings = {"message.timestamp.type": "LogAppendTime", "retention.ms": "60000"}
        await cluster.create_topic("t", assignments=[[1]], configs=settings)
        await cluster.create_topic("u", assignments=[[2]], configs=settings)
        for skew, stamped in ((0.0, 1_000_000_000), (-3_600.0, 996_400_000), (7.5, 1_000_007_500)):
            cluster.skew_clock(1, skew)
            async with Peer(cluster, 1) as peer:
                assert (await peer.produce("t", produced(b"v"))).log_append_time_ms == stamped
            async with Peer(cluster, 2) as peer:
                assert (await peer.produce("u", produced(b"v"))).log_append_time_ms == 1_000_000_000
        cluster.skew_clock(1, 68.0)
        cluster.clean_up()
        starts = [
            cluster.nodes[n].replica_manager.partitions[key].log.start_offset
            for n, key in ((1, ("t", 0)), (2, ("u", 0)))
        ]
        assert starts == [3, 0]


@in_virtual_time
async def test_a_slow_clock_rejects_records_from_its_future() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, config=ClusterConfig(wall_clock=lambda: 1_000_000.0)) as cluster:
        await cluster.create_topic("t", configs={"message.timestamp.after.max.ms": "1000"})
        records = produced(b"v", timestamp=1_000_000_000)
        async with Peer(cluster, 1) as peer:
            assert (await peer.produce("t", records)).error_code == 0
            cluster.skew_clock(1, -2.0)
            assert (await peer.produce("t", records)).error_code == ErrorCode.INVALID_TIMESTAMP
