"""Topics, settings, elections, reassignments and deletion, requested by a raw client."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsTopic,
    ApiVersionsRequest,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeProducersTopic,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    ElectLeadersRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    ProduceRequest,
    ReassignablePartition,
    ReassignableTopic,
    UnregisterBrokerRequest,
    UpdateFeaturesFeature,
    UpdateFeaturesRequest,
)
from tests.embedded.broker.raw_client import Peer
from tests.pure.embedded.batches import produced
from tests.waiting import DEADLINE, until


def creation(name: str, partitions: int = 1, factor: int = 1, **configs: str) -> CreatableTopic:
    own = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, assignments=[], configs=own)


@pytest.mark.parametrize(
    "topic, code",
    [
        (creation("good", 2, 3), ErrorCode.NONE),
        (creation("default", -1, -1), ErrorCode.NONE),
        (creation("no/slash"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creation(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creation("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creation("few", 0), ErrorCode.INVALID_PARTITIONS),
        (creation("wide", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (creation("none", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (creation("odd", nonsense="1"), ErrorCode.INVALID_CONFIG),
        (creation("bad", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (creation("taken"), ErrorCode.TOPIC_ALREADY_EXISTS),
    ],
    ids=lambda value: value.name[:10],
)
@pytest.mark.parametrize("version", [2, 4, 5, 7])
async def test_topics_are_created_or_refused(
    three: EmbeddedCluster, version: int, topic: CreatableTopic, code: ErrorCode
) -> None:
    await three.create_topic("taken")
    async with Peer(three) as peer:
        response = await peer.ask(CreateTopicsRequest(topics=[topic]), version)
        assert response.topics[0].error_code == code
        if code is ErrorCode.NONE and version >= 5:
            assert response.topics[0].num_partitions == max(1, topic.num_partitions)
            assert {config.name for config in response.topics[0].configs or []} >= {"retention.ms", "cleanup.policy"}


async def test_similar_names_collide_with_older_topics_but_not_in_one_request(one: EmbeddedCluster) -> None:
    async with Peer(one) as peer:
        both = await peer.ask(CreateTopicsRequest(topics=[creation("a.b"), creation("a_b")]))
        assert [topic.error_code for topic in both.topics] == [ErrorCode.NONE, ErrorCode.NONE]
        later = await peer.ask(CreateTopicsRequest(topics=[creation("c.d")]))
        again = await peer.ask(CreateTopicsRequest(topics=[creation("c_d")]))
        assert later.topics[0].error_code == ErrorCode.NONE
        assert again.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        beside = await peer.ask(CreateTopicsRequest(topics=[creation("c.d"), creation("c_d")]))
        assert [topic.error_code for topic in beside.topics] == [
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]


async def test_validate_only_creates_nothing_and_assignments_are_used(three: EmbeddedCluster) -> None:
    async with Peer(three) as peer:
        await peer.ask(CreateTopicsRequest(topics=[creation("t")], validate_only=True))
        assert "t" not in three.controller.topics
        placed = CreatableTopic(
            name="t",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[3, 1])],
            configs=[],
        )
        assert (await peer.ask(CreateTopicsRequest(topics=[placed]))).topics[0].error_code == 0
        assert three.state_of("t", 0).replicas == (3, 1)


async def test_topics_are_deleted_by_name_and_by_id_and_get_a_new_id_when_created_again(one: EmbeddedCluster) -> None:
    topic = await one.create_topic("t")
    async with Peer(one) as peer:
        await peer.produce("t", produced(timestamp=-1))
        by_id = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic.topic_id)], timeout_ms=1)
        assert (await peer.ask(by_id, 6)).responses[0].name == "t"
        gone = await peer.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 3)
        assert gone.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        again = await one.create_topic("t")
        assert again.topic_id != topic.topic_id
        assert (await peer.offset("t", -1)).offset == 0


async def test_partitions_are_added_but_never_removed(three: EmbeddedCluster) -> None:
    await three.create_topic("t", 2, 2)
    async with Peer(three) as peer:
        for count, code in ((4, 0), (3, ErrorCode.INVALID_PARTITIONS), (4, ErrorCode.INVALID_PARTITIONS)):
            topic_request = CreatePartitionsTopic(name="t", count=count, assignments=None)
            request = CreatePartitionsRequest(topics=[topic_request], timeout_ms=1, validate_only=False)
            assert (await peer.ask(request)).results[0].error_code == code
        assert len(three.controller.topics["t"].partitions) == 4


async def test_added_partitions_have_as_many_replicas_as_the_others(three: EmbeddedCluster) -> None:
    await three.create_topic("t", 1, 2)
    async with Peer(three) as peer:
        for replicas, code in (([3], ErrorCode.INVALID_REPLICA_ASSIGNMENT), ([3, 1], 0)):
            placed = CreatePartitionsAssignment(broker_ids=replicas)
            topic_request = CreatePartitionsTopic(name="t", count=2, assignments=[placed])
            request = CreatePartitionsRequest(topics=[topic_request], timeout_ms=1, validate_only=False)
            assert (await peer.ask(request)).results[0].error_code == code
    assert three.state_of("t", 1).replicas == (3, 1)


@pytest.mark.parametrize("version", range(14))
async def test_each_version_of_metadata_describes_the_cluster(three: EmbeddedCluster, version: int) -> None:
    await three.create_topic("t", assignments=[[2, 3]])
    async with Peer(three) as peer:
        response = await peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), version)
        assert [broker.node_id for broker in response.brokers] == [1, 2, 3]
        (topic,) = response.topics
        (partition,) = topic.partitions
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (2, [2, 3], [2, 3])
        everything = await peer.ask(MetadataRequest(topics=[] if version == 0 else None), version)
        assert [topic.name for topic in everything.topics] == ["t"]
        if version > 0:
            assert (await peer.ask(MetadataRequest(topics=[]), version)).topics == []


async def test_a_metadata_request_creates_a_topic_only_if_allowed(one: EmbeddedCluster) -> None:
    async with Peer(one) as peer:
        topics = [MetadataRequestTopic(name="new")]
        refused = await peer.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
        assert refused.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await peer.ask(MetadataRequest(topics=topics), 9)).topics[0].error_code == 0
        bad = await peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name="a b")]), 9)
        assert bad.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    async with EmbeddedCluster(brokers=1, tcp=False, auto_create_topics=False) as strict, Peer(strict) as peer:
        off = await peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name="other")]), 9)
        assert off.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_metadata_request_creates_as_many_topics_as_one_request_may(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    async with Peer(one) as peer:
        # With one partition each, the controller writes two records for a topic, and at most 10,000 for a request.
        many = [MetadataRequestTopic(name=name) for name in ["t", *(f"new-{number}" for number in range(5001))]]
        answer = await peer.ask(MetadataRequest(topics=many), 9)
        assert list(one.controller.topics) == ["t"]
        codes = {topic.name: topic.error_code for topic in answer.topics}
        assert (codes.pop("t"), set(codes.values())) == (0, {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
        assert {topic.error_code for topic in (await peer.ask(MetadataRequest(topics=many[:5]), 9)).topics} == {0}


async def test_a_delay_of_creation_makes_the_first_answers_unknown_topic_as_kafka() -> None:
    config = ClusterConfig(topic_creation_delay=0.05)
    async with EmbeddedCluster(brokers=1, tcp=False, config=config) as cluster, Peer(cluster) as peer:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
        for _ in range(2):
            assert (await peer.ask(request, 9)).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        async with asyncio.timeout(DEADLINE):
            while (await peer.ask(request, 9)).topics[0].error_code:
                await asyncio.sleep(0.01)
        assert list(cluster.controller.topics) == ["new"]


async def test_metadata_is_found_by_topic_id(one: EmbeddedCluster) -> None:
    topic = await one.create_topic("t")
    async with Peer(one) as peer:
        topics = [
            MetadataRequestTopic(topic_id=topic.topic_id, name=None),
            MetadataRequestTopic(topic_id=bytes(15) + b"\1", name=None),
        ]
        response = await peer.ask(MetadataRequest(topics=topics), 12)
        assert [(topic.name, topic.error_code) for topic in response.topics] == [("t", 0), (None, 100)]


async def test_settings_are_changed_incrementally_and_described_with_their_sources(one: EmbeddedCluster) -> None:
    await one.create_topic("t")

    async def change(peer: Peer, name: str, operation: int, value: str | None, resource_type: int = 2) -> int:
        config = IncrementalAlterConfigsRequestConfig(name=name, config_operation=operation, value=value)
        resource = IncrementalAlterConfigsRequestResource(
            resource_type=resource_type, resource_name="t" if resource_type == 2 else "", configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        return (await peer.ask(request)).responses[0].error_code

    async def setting(peer: Peer, name: str) -> tuple[str | None, int]:
        resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=[name])
        response = await peer.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True))
        (config,) = response.results[0].configs
        return config.value, config.config_source

    async with Peer(one) as peer:
        assert await setting(peer, "max.message.bytes") == ("1048588", 5)
        assert await change(peer, "message.max.bytes", 0, "100", resource_type=4) == 0
        assert await setting(peer, "max.message.bytes") == ("100", 3)
        assert (await peer.produce("t", produced(b"x" * 200, timestamp=-1))).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert await change(peer, "max.message.bytes", 0, "1000") == 0
        assert await setting(peer, "max.message.bytes") == ("1000", 1)
        assert (await peer.produce("t", produced(b"x" * 200, timestamp=-1))).error_code == 0
        assert await change(peer, "cleanup.policy", 2, "compact") == 0
        assert await setting(peer, "cleanup.policy") == ("delete,compact", 1)
        assert await change(peer, "cleanup.policy", 3, "delete") == 0
        assert await setting(peer, "cleanup.policy") == ("compact", 1)
        assert await change(peer, "cleanup.policy", 1, None) == 0
        assert await setting(peer, "cleanup.policy") == ("delete", 5)
        assert await change(peer, "max.message.bytes", 0, "many") == ErrorCode.INVALID_CONFIG
        assert await change(peer, "num.partitions", 0, "5", resource_type=4) == ErrorCode.INVALID_REQUEST


async def test_records_are_deleted_up_to_the_high_watermark(three: EmbeddedCluster) -> None:
    await three.create_topic("t", assignments=[[1, 2, 3]])
    async with Peer(three) as peer:
        for _ in range(3):
            await peer.produce("t", produced(timestamp=-1))

        async def delete(offset: int) -> tuple[int, int]:
            partition = DeleteRecordsPartition(partition_index=0, offset=offset)
            topics = [DeleteRecordsTopic(name="t", partitions=[partition])]
            (result,) = (await peer.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1))).topics[0].partitions
            return result.error_code, result.low_watermark

        assert await delete(1) == (0, 1)
        assert (await peer.offset("t", -2)).offset == 1
        assert (await peer.fetch("t", 0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert await delete(4) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(-1) == (0, 3)
        await peer.produce("t", produced(timestamp=-1))
    assert three.nodes[2].replica_manager.partitions["t", 0].log.start_offset == 3


async def test_preferred_replicas_are_elected(three: EmbeddedCluster) -> None:
    await three.create_topic("t", assignments=[[1, 2]])
    await three.move_leader("t", 0, 2)
    async with Peer(three) as peer:
        request = ElectLeadersRequest(topic_partitions=None)
        (topic,) = (await peer.ask(request)).replica_election_results
        assert topic.partition_result[0].error_code == 0
        assert three.leader_of("t", 0) == 1
        assert (await peer.ask(request)).replica_election_results == []


async def test_a_reassignment_adds_replicas_before_it_removes_others(three: EmbeddedCluster) -> None:
    await three.create_topic("t", assignments=[[1, 2]])

    def move(replicas: list[int] | None) -> AlterPartitionReassignmentsRequest:
        partition = ReassignablePartition(partition_index=0, replicas=replicas)
        return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[partition])])

    async with Peer(three) as peer:
        await peer.produce("t", produced(timestamp=-1))
        await three.stop(3)
        await peer.ask(move([3, 2]))
        ongoing = (await peer.ask(ListPartitionReassignmentsRequest())).topics[0].partitions[0]
        assert (ongoing.replicas, ongoing.adding_replicas, ongoing.removing_replicas) == ([3, 2, 1], [3], [1])
        await three.start_node(3)
        await three.until_in_sync("t")
        state = three.state_of("t", 0)
        assert (state.replicas, set(state.isr), state.leader) == ((3, 2), {2, 3}, 3)
        assert ("t", 0) not in three.nodes[1].replica_manager.partitions
        assert three.nodes[3].replica_manager.partitions["t", 0].log.end_offset == 1
        refused = await peer.ask(move(None))
        assert refused.responses[0].partitions[0].error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


async def test_a_second_reassignment_replaces_the_first_one(three: EmbeddedCluster) -> None:
    """The replica that the first one has added, and that is in sync already, leaves the in-sync set."""
    await three.create_topic("t", assignments=[[1]])

    def move(replicas: list[int]) -> AlterPartitionReassignmentsRequest:
        partition = ReassignablePartition(partition_index=0, replicas=replicas)
        return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[partition])])

    async with Peer(three) as peer:
        await peer.produce("t", produced(timestamp=-1))
        await peer.ask(move([2]))
        await until(lambda: 2 in three.state_of("t", 0).isr)
        answer = await peer.ask(move([3]))
        assert answer.responses[0].partitions[0].error_code == 0
        state = three.state_of("t", 0)
        assert (set(state.replicas), state.adding, 2 in state.isr) == ({1, 3}, (3,), False)
        await until(lambda: three.state_of("t", 0).replicas == (3,))
        assert three.state_of("t", 0).isr == (3,)


async def test_a_partition_without_a_replica_in_sync_can_be_reassigned(three: EmbeddedCluster) -> None:
    """Both replicas are down. The new one copies the records when one of them returns (KIP-966)."""
    await three.create_topic("t", assignments=[[1, 2]], configs={"min.insync.replicas": "2"})
    partition = ReassignablePartition(partition_index=0, replicas=[3, 1])
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[partition])])
    await three.stop(1)
    await three.stop(2)
    async with Peer(three, 3) as peer:
        assert (three.state_of("t", 0).isr, three.state_of("t", 0).leader) == ((), -1)
        answer = await peer.ask(request)
        assert answer.responses[0].partitions[0].error_code == 0
        state = three.state_of("t", 0)
        assert (state.replicas, state.isr, state.leader, state.adding) == ((3, 1, 2), (), -1, (3,))
        await three.start_node(1)
        await until(lambda: three.state_of("t", 0).replicas == (3, 1))
        assert set(three.state_of("t", 0).isr) == {1, 3}


async def test_log_dirs_and_producers_are_described(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    records = produced(timestamp=-1, producer_id=5, epoch=2, sequence=0)
    async with Peer(one) as peer:
        await peer.produce("t", records)
        (result,) = (await peer.ask(DescribeLogDirsRequest(topics=None))).results
        assert result.topics[0].partitions[0].partition_size == len(records)
        topic_request = DescribeProducersTopic(name="t", partition_indexes=[0])
        response = await peer.ask(DescribeProducersRequest(topics=[topic_request]))
        (producer,) = response.topics[0].partitions[0].active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (5, 2, 0)


async def test_a_follower_describes_the_producers_of_its_replica(three: EmbeddedCluster) -> None:
    await three.create_topic("t", assignments=[[1, 2], [3, 1]])
    async with Peer(three, node=1) as leader:
        await leader.produce("t", produced(timestamp=-1, producer_id=5, epoch=2, sequence=0))
    async with Peer(three, node=2) as follower:
        topic_request = DescribeProducersTopic(name="t", partition_indexes=[0, 1])
        response = await follower.ask(DescribeProducersRequest(topics=[topic_request]))
        replica, absent = response.topics[0].partitions
        assert [active_producer.producer_id for active_producer in replica.active_producers] == [5]
        assert absent.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_full_log_dir_is_a_storage_error() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, config=ClusterConfig(storage_limit=200)) as cluster:
        await cluster.create_topic("t")
        async with Peer(cluster) as peer:
            codes = [(await peer.produce("t", produced(b"x" * 50, timestamp=-1))).error_code for _ in range(3)]
            assert codes == [0, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR]
            assert (await peer.offset("t", -1)).offset == 1


async def test_retention_deletes_old_records(one: EmbeddedCluster) -> None:
    await one.create_topic("t", configs={"retention.ms": "1000"})
    async with Peer(one) as peer:
        await peer.produce("t", produced(timestamp=1000))
        one.clean_up()
        assert (await peer.offset("t", -2)).offset == 1
        assert one.nodes[1].replica_manager.stored_bytes == 0


async def test_describe_cluster_names_brokers_and_kinds_of_endpoints(three: EmbeddedCluster) -> None:
    await three.stop(3)
    async with Peer(three) as peer:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        response = await peer.ask(request)
        assert [broker.broker_id for broker in response.brokers] == [1, 2]
        assert response.cluster_id == three.cluster_id
        request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2)
        assert (await peer.ask(request)).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


@pytest.mark.parametrize("release, last", [("1.1", 5), ("2.8", 9), ("4.3.1", 13)])
async def test_as_kafka_offers_the_versions_of_a_release(release: str, last: int) -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, as_kafka=release) as cluster:
        async with Peer(cluster) as peer:
            response = await peer.ask(ApiVersionsRequest(), 0)
            ranges = {api_key.api_key: (api_key.min_version, api_key.max_version) for api_key in response.api_keys}
            assert ranges[ProduceRequest.api_key][1] == last
        async with Peer(cluster) as peer:
            await peer.ask(MetadataRequest(topics=[]), 5)
            if release == "1.1":
                peer.send(MetadataRequest(topics=[]), 6)
                with pytest.raises(ConnectionError):
                    assert await peer.receive() is not None
                    raise ConnectionError


async def test_an_unsupported_version_of_api_versions_is_answered_in_version_0(one: EmbeddedCluster) -> None:
    async with Peer(one) as peer:
        peer.stream.write([bytes.fromhex("0000000c 0012 7fff 00000007 ffff 0000")])
        frame = await peer.stream.read_frame()
        assert frame is not None
        assert bytes(frame) == bytes.fromhex("00000007 0023 00000001 0012 0000 0004")
        assert (await peer.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"))).api_keys


@pytest.mark.parametrize("version", range(1, FindCoordinatorRequest.versions.last + 1))
async def test_the_coordinator_of_a_share_partition_is_not_for_clients(cluster: EmbeddedCluster, version: int) -> None:
    """A share group has the coordinator of any other group. After a retriable error, clients would retry for long."""
    async with Peer(cluster) as peer:
        keys = {"coordinator_keys": ["key"]} if version >= 4 else {"key": "key"}
        answer = await peer.ask(FindCoordinatorRequest(key_type=2, **keys), version)
        coordinator = answer.coordinators[0] if version >= 4 else answer
        assert ErrorCode.of(coordinator.error_code) is ErrorCode.INVALID_REQUEST


async def test_settings_of_the_log_cleaner_change_while_a_broker_runs(one: EmbeddedCluster) -> None:
    async with Peer(one) as peer:
        change = IncrementalAlterConfigsRequestConfig(name="log.cleaner.backoff.ms", config_operation=0, value="7")
        resource = IncrementalAlterConfigsRequestResource(resource_type=4, resource_name="1", configs=[change])
        altered = await peer.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        assert altered.responses[0].error_code == 0
        broker = DescribeConfigsResource(
            resource_type=4, resource_name="1", configuration_keys=["log.cleaner.backoff.ms"]
        )
        described = await peer.ask(DescribeConfigsRequest(resources=[broker]))
    assert [setting.value for setting in described.results[0].configs] == ["7"]


async def test_every_setting_has_documentation(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None),
        DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None),
    ]
    async with Peer(one) as peer:
        for has_documentation in (True, False):
            request = DescribeConfigsRequest(resources=resources, include_documentation=has_documentation)
            for version in (3, 4):
                for result in (await peer.ask(request, version)).results:
                    texts = [setting.documentation for setting in result.configs]
                    assert len(texts) > 30
                    assert (
                        all(text is not None and text.endswith(".") for text in texts)
                        if has_documentation
                        else not any(texts)
                    )
        old = await peer.ask(DescribeConfigsRequest(resources=resources), 2)
        assert all(not setting.documentation for result in old.results for setting in result.configs)


async def test_an_old_release_answers_the_first_versions_of_its_apis() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, as_kafka="1.1") as cluster, Peer(cluster) as peer:
        offered = cluster.nodes[1].versions
        assert sorted(key for key, (first, _) in offered.items() if first > 0) == [
            0,
            1,
        ]  # Produce and Fetch need records v2
        created = await peer.ask(CreateTopicsRequest(topics=[creation("t")], timeout_ms=1000), 0)
        assert created.topics[0].error_code == 0
        await peer.produce("t", produced(timestamp=1000), version=5)

        async def listed(timestamp: int, most: int = 10) -> list[int]:
            partition_request = ListOffsetsRequestPartition(
                partition_index=0, timestamp=timestamp, max_num_offsets=most
            )
            topics = [ListOffsetsRequestTopic(name="t", partitions=[partition_request])]
            answer = await peer.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 0)
            return answer.topics[0].partitions[0].old_style_offsets

        assert (await listed(-1), await listed(-1, 1), await listed(-2)) == ([1, 0], [1], [0])
        assert (await listed(1000), await listed(999)) == ([0], [])

        await peer.ask(FindCoordinatorRequest(key="g"), 0)
        offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="m")
        commit = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[offset])])
        for version in (0, 1):
            assert (await peer.ask(commit, version)).topics[0].partitions[0].error_code == 0
        offset_request = OffsetFetchRequest(
            group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
        )
        partitions = (await peer.ask(offset_request, 0)).topics[0].partitions
        assert [(partition.committed_offset, partition.error_code) for partition in partitions] == [(1, 0), (-1, 3)]

        resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=["retention.ms"])
        (setting,) = (await peer.ask(DescribeConfigsRequest(resources=[resource]), 0)).results[0].configs
        assert (setting.value, setting.is_default) == ("604800000", True)
        assert (await peer.ask(DescribeLogDirsRequest(topics=None), 0)).results[0].topics[0].name
        assert (await peer.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 0)).responses[0].error_code == 0


async def test_the_metadata_quorum_is_described(three: EmbeddedCluster) -> None:
    async with Peer(three, node=2) as peer:
        partition_request = DescribeQuorumRequestPartition(partition_index=0)
        topic = DescribeQuorumRequestTopic(topic_name="__cluster_metadata", partitions=[partition_request])
        answer = await peer.ask(DescribeQuorumRequest(topics=[topic]))
        (quorum,) = answer.topics[0].partitions
        assert (quorum.leader_id, [voter.replica_id for voter in quorum.current_voters]) == (1, [1, 2, 3])
        assert [node.listeners[0].port for node in answer.nodes] == [three.nodes[node_id].port for node_id in (1, 2, 3)]
        assert (await peer.ask(DescribeQuorumRequest(topics=[topic]), 1)).topics[0].partitions[0].leader_id == 1
        before = quorum.high_watermark
        await three.create_topic("t")
        after = (await peer.ask(DescribeQuorumRequest(topics=[topic]))).topics[0].partitions[0]
        assert after.high_watermark == before + 1
        topic.topic_name = "t"
        other = (await peer.ask(DescribeQuorumRequest(topics=[topic]))).topics[0].partitions[0]
        assert other.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    "level, upgrade_type, code",
    [
        (2, 1, ErrorCode.NONE),
        (1, 1, ErrorCode.INVALID_UPDATE_VERSION),
        (1, 2, ErrorCode.NONE),
        (1, 3, ErrorCode.NONE),
        (1, 7, ErrorCode.INVALID_UPDATE_VERSION),
        (9, 1, ErrorCode.INVALID_UPDATE_VERSION),
        (-1, 2, ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
async def test_features_are_finalized_or_refused_as_kafka(
    one: EmbeddedCluster, version: int, level: int, upgrade_type: int, code: ErrorCode
) -> None:
    change = UpdateFeaturesFeature(feature="transaction.version", max_version_level=level, upgrade_type=upgrade_type)
    async with Peer(one) as peer:
        answer = await peer.ask(UpdateFeaturesRequest(feature_updates=[change]), version)
        assert answer.error_code == code
        assert len(answer.results) == (1 if version == 1 and code is ErrorCode.NONE else 0)
    assert one.controller.features.level("transaction.version") == (level if code is ErrorCode.NONE else 2)


@pytest.mark.parametrize("upgrade_type", [2, 3])
async def test_metadata_is_not_downgraded_behind_a_level_with_new_contents(
    one: EmbeddedCluster, upgrade_type: int
) -> None:
    change = UpdateFeaturesFeature(feature="metadata.version", max_version_level=29, upgrade_type=upgrade_type)
    async with Peer(one) as peer:
        answer = await peer.ask(UpdateFeaturesRequest(feature_updates=[change]))
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert one.controller.features.level("metadata.version") == 30


async def test_a_release_is_finalized_with_all_its_features(one: EmbeddedCluster) -> None:
    """As ``kafka-features upgrade --release-version 4.3``."""
    levels = {
        "metadata.version": 30, "kraft.version": 1, "transaction.version": 2, "group.version": 1,
        "eligible.leader.replicas.version": 1, "share.version": 1, "streams.version": 1,
    }  # fmt: skip
    changes = [
        UpdateFeaturesFeature(feature=name, max_version_level=level, upgrade_type=1) for name, level in levels.items()
    ]
    async with Peer(one) as peer:
        assert (await peer.ask(UpdateFeaturesRequest(feature_updates=changes))).error_code == ErrorCode.NONE
    assert one.controller.features.finalized == levels


async def test_a_stopped_broker_is_unregistered(three: EmbeddedCluster) -> None:
    await three.stop(3)
    async with Peer(three) as peer:
        for code in (ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED):
            assert (await peer.ask(UnregisterBrokerRequest(broker_id=3))).error_code == code
        request = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
        assert [broker.broker_id for broker in (await peer.ask(request)).brokers] == [1, 2]


async def test_a_replica_stays_in_its_only_directory(three: EmbeddedCluster) -> None:
    await three.create_topic("t", assignments=[[1], [2]])

    async with Peer(three) as peer:
        path = (await peer.ask(DescribeLogDirsRequest(topics=None))).results[0].log_dir
        for directory, name, codes in (
            (path, "t", [ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE]),
            (path, "missing", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2),
            ("/elsewhere", "t", [ErrorCode.LOG_DIR_NOT_FOUND] * 2),
        ):
            topic = AlterReplicaLogDirsTopic(name=name, partitions=[0, 1])
            request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=directory, topics=[topic])])
            answer = await peer.ask(request)
            assert [partition.error_code for partition in answer.results[0].partitions] == codes
