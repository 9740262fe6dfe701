"""Unusual requests of admin tools, groups and followers get the answers of Apache Kafka 4.3.1."""

from __future__ import annotations

import time
from typing import Any

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol import messages as m
from aiokafka_lite.protocol.schema import ZERO_UUID
from tests.embedded.broker.raw_client import Peer, fetch_request, produce_request
from tests.pure.embedded.batches import produced

NONE, INVALID, TIMED_OUT = ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.REQUEST_TIMED_OUT


def new_topic(name: str, partitions: int = 1, **configs: str) -> m.CreatableTopic:
    settings = [m.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return m.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=settings
    )


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_a_request_to_the_controller_without_time_has_timed_out(one: EmbeddedCluster, timeout_ms: int) -> None:
    more = m.CreatePartitionsTopic(name="t", count=2, assignments=None)
    moved = m.ReassignableTopic(name="t", partitions=[m.ReassignablePartition(partition_index=0, replicas=[1])])
    async with Peer(one) as peer:
        created = await peer.ask(m.CreateTopicsRequest(topics=[new_topic("t")], timeout_ms=timeout_ms))
        deleted = await peer.ask(m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=timeout_ms), 5)
        grown = await peer.ask(m.CreatePartitionsRequest(topics=[more], timeout_ms=timeout_ms, validate_only=True))
        elected = await peer.ask(m.ElectLeadersRequest(topic_partitions=None, timeout_ms=timeout_ms))
        begun = await peer.ask(m.AlterPartitionReassignmentsRequest(topics=[moved], timeout_ms=timeout_ms))
    codes = [created.topics[0], deleted.responses[0], grown.results[0], elected, begun]
    assert [code.error_code for code in codes] == [TIMED_OUT] * 5
    assert "t" not in one.nodes[1].metadata.topics


@pytest.mark.parametrize(
    "topics, codes",
    [
        ([new_topic("a", 6_000), new_topic("b", 4_001)], {ErrorCode.POLICY_VIOLATION}),
        ([new_topic("a", 2**31 - 1)], {ErrorCode.POLICY_VIOLATION}),
        ([new_topic("a", 10_001), new_topic("b", -5_000)], {ErrorCode.POLICY_VIOLATION}),
        ([new_topic("a", 10_000)], {ErrorCode.POLICY_VIOLATION}),
        ([new_topic("a", 9_999)], {NONE}),
        ([new_topic("a", 9_999, retention_ms="1")], {ErrorCode.POLICY_VIOLATION}),
        ([new_topic("a", 9_998), new_topic("b")], {ErrorCode.POLICY_VIOLATION}),
        ([new_topic("a", 9_999), new_topic("b/c")], {NONE, ErrorCode.INVALID_TOPIC_EXCEPTION}),
        ([new_topic("a", 9_000), new_topic("b", 6_000), new_topic("b", 6_000)], {NONE, INVALID}),
        ([new_topic("__cluster_metadata")], {INVALID}),
        ([new_topic("a", retention_ms="1_000")], {ErrorCode.INVALID_CONFIG}),
    ],
)
async def test_topics_are_created_within_kafkas_limits(
    one: EmbeddedCluster, topics: list[m.CreatableTopic], codes: set[ErrorCode]
) -> None:
    async with Peer(one) as peer:
        answer = await peer.ask(m.CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=True))
        assert {topic.error_code for topic in answer.topics} == codes


@pytest.mark.parametrize(
    "counts, codes",
    [
        ({"a": 10_001}, [NONE]),
        ({"a": 10_002}, [ErrorCode.UNKNOWN_SERVER_ERROR]),
        ({"a": 6_000, "b": 6_000, "c": 2}, [NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR]),
        ({"a": 2**31 - 1, "unknown": 2}, [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
    ],
)
async def test_a_request_adds_at_most_10_000_partitions(
    one: EmbeddedCluster, counts: dict[str, int], codes: list[ErrorCode]
) -> None:
    topics = [m.CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts.items()]
    for name in counts.keys() - {"unknown"}:
        await one.create_topic(name)
    async with Peer(one) as peer:
        answer = await peer.ask(m.CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=True))
    assert [result.error_code for result in answer.results] == codes


async def test_a_wrong_assignment_takes_no_room_from_other_topics(one: EmbeddedCluster) -> None:
    wrong = [m.CreatePartitionsAssignment(broker_ids=[77])]
    topics = [
        m.CreatePartitionsTopic(name=name, count=count, assignments=assignments)
        for name, count, assignments in (
            ("a", 20_000, wrong),
            ("b", 10_001, None),
            ("c", 20_000, wrong),
            ("d", 1, None),
        )
    ]
    for topic in topics:
        await one.create_topic(topic.name)
    async with Peer(one) as peer:
        answer = await peer.ask(m.CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=True))
    wrong_assignment = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    codes = [wrong_assignment, NONE, wrong_assignment, ErrorCode.INVALID_PARTITIONS]
    assert [result.error_code for result in answer.results] == codes


@pytest.mark.parametrize(
    "policy, answer",
    [("", (NONE, 1)), ("compact,delete", (NONE, 1)), ("compact", (ErrorCode.POLICY_VIOLATION, -1))],
)
async def test_records_are_not_deleted_if_the_topic_is_only_compacted(
    one: EmbeddedCluster, policy: str, answer: tuple[ErrorCode, int]
) -> None:
    await one.create_topic("t", configs={"cleanup.policy": policy})
    await one.produce("t", "v", key="k")
    topic_request = m.DeleteRecordsTopic(name="t", partitions=[m.DeleteRecordsPartition(partition_index=0, offset=1)])
    async with Peer(one) as peer:
        (topic,) = (await peer.ask(m.DeleteRecordsRequest(topics=[topic_request], timeout_ms=1000))).topics
    assert [(partition.error_code, partition.low_watermark) for partition in topic.partitions] == [answer]


async def test_records_of_an_internal_topic_are_not_deleted(one: EmbeddedCluster) -> None:
    codes = []
    async with Peer(one) as peer:
        await peer.ask(m.FindCoordinatorRequest(coordinator_keys=["g"]))
        for index in (0, 50):
            partition = m.DeleteRecordsPartition(partition_index=index, offset=0)
            topic = m.DeleteRecordsTopic(name="__consumer_offsets", partitions=[partition])
            answer = await peer.ask(m.DeleteRecordsRequest(topics=[topic], timeout_ms=1000))
            codes.append(answer.topics[0].partitions[0].error_code)
    assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_records_of_an_internal_topic_are_not_deleted_at_a_follower_either(three: EmbeddedCluster) -> None:
    async with Peer(three) as peer:
        await peer.ask(m.FindCoordinatorRequest(coordinator_keys=["g"]))
    topic = m.DeleteRecordsTopic(
        name="__consumer_offsets",
        partitions=[m.DeleteRecordsPartition(partition_index=index, offset=0) for index in range(3)],
    )
    codes = set()
    for node in three.nodes:
        async with Peer(three, node) as peer:
            answer = await peer.ask(m.DeleteRecordsRequest(topics=[topic], timeout_ms=1000))
            codes.update(partition.error_code for partition in answer.topics[0].partitions)
    assert codes == {ErrorCode.INVALID_TOPIC_EXCEPTION}


@pytest.mark.parametrize("producer", [(-1, 0), (7, -1)])
async def test_a_marker_needs_a_producer_and_an_epoch(one: EmbeddedCluster, producer: tuple[int, int]) -> None:
    await one.create_topic("t")
    marker = m.WritableTxnMarker(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=False,
        topics=[m.WritableTxnMarkerTopic(name="t", partition_indexes=[0, 1])],
        coordinator_epoch=0,
    )
    async with Peer(one) as peer:
        (answer,) = (await peer.ask(m.WriteTxnMarkersRequest(markers=[marker]))).markers
    codes = [partition.error_code for partition in answer.topics[0].partitions]
    assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert one.state_of("t", 0).leader == 1
    assert one.nodes[1].replica_manager.partitions["t", 0].log.end_offset == 0


async def test_the_markers_of_a_producer_have_one_answer(one: EmbeddedCluster) -> None:
    await one.create_topic("t", partitions=2)
    markers = [
        m.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=0,
            transaction_result=True,
            topics=[m.WritableTxnMarkerTopic(name="t", partition_indexes=[partition]) for partition in partitions],
            coordinator_epoch=0,
        )
        for producer_id, partitions in ((7, [0]), (8, []), (7, [1]), (7, [0]))
    ]
    async with Peer(one) as peer:
        (answer,) = (await peer.ask(m.WriteTxnMarkersRequest(markers=markers))).markers
    (topic,) = answer.topics
    answered = [(partition.partition_index, partition.error_code) for partition in topic.partitions]
    assert (answer.producer_id, answered) == (7, [(0, NONE), (1, NONE)])


async def test_a_topic_that_is_named_by_name_and_by_id_is_not_deleted(one: EmbeddedCluster) -> None:
    topic = await one.create_topic("t")
    async with Peer(one) as peer:
        topics = [m.DeleteTopicState(name="t"), m.DeleteTopicState(name=None, topic_id=topic.topic_id)]
        (answer,) = (await peer.ask(m.DeleteTopicsRequest(topics=topics, timeout_ms=1000))).responses
    assert (answer.name, answer.topic_id, answer.error_code) == ("t", topic.topic_id, INVALID)
    assert "t" in one.nodes[1].metadata.topics


@pytest.mark.parametrize("cursor", [("t", -1), ("", 0)])
async def test_a_cursor_names_a_topic_and_a_partition(one: EmbeddedCluster, cursor: tuple[str, int]) -> None:
    await one.create_topic("t")
    topic = m.DescribeTopicPartitionsRequestTopic(name="t")
    async with Peer(one) as peer:
        place = m.TopicPartitionCursor(topic_name=cursor[0], partition_index=cursor[1])
        answer = await peer.ask(m.DescribeTopicPartitionsRequest(topics=[topic], cursor=place))
    assert [topic.error_code for topic in answer.topics] == [INVALID]


async def test_a_topic_without_partitions_is_left_out_of_the_answer(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    produce = produce_request("t", b"")
    produce.topic_data[0].partition_data = []
    async with Peer(one) as peer:
        assert (await peer.ask(produce, 12)).responses == []
        listed = m.ListOffsetsRequestTopic(name="t", partitions=[])
        assert (await peer.ask(m.ListOffsetsRequest(replica_id=-1, topics=[listed]))).topics == []
        committed = m.OffsetCommitRequestTopic(name="t", partitions=[])
        assert (await peer.ask(m.OffsetCommitRequest(group_id="g", topics=[committed]), 9)).topics == []


async def test_only_a_broker_with_a_replica_fetches_as_a_follower(three: EmbeddedCluster) -> None:
    await three.create_topic("t", assignments=[[1, 2]])
    codes = {}
    async with Peer(three) as peer:
        await peer.produce("t", produced(b"x", timestamp=-1), acks=1)
        for replica_id in (-1, 1, 2, 3, 55):
            request = fetch_request("t", 0)
            request.replica_id = replica_id
            codes[replica_id] = (await peer.ask(request, 12)).responses[0].partitions[0].error_code
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert codes == {-1: NONE, 1: refused, 2: NONE, 3: refused, 55: refused}


async def test_an_epoch_below_all_of_the_log_ends_where_the_log_begins(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    partitions = [m.OffsetForLeaderEpochRequestPartition(partition=0, leader_epoch=epoch) for epoch in (-5, -1)]
    topic = m.OffsetForLeaderEpochRequestTopic(topic="t", partitions=partitions)
    async with Peer(one) as peer:
        await peer.produce("t", produced(b"x", timestamp=-1))
        answer = await peer.ask(m.OffsetForLeaderEpochRequest(topics=[topic]))
    assert [(partition.leader_epoch, partition.end_offset) for partition in answer.topics[0].partitions] == [
        (-5, 0),
        (-1, -1),
    ]


@pytest.mark.parametrize("version, code", [(3, ErrorCode.TOPIC_AUTHORIZATION_FAILED), (5, None)])
async def test_a_client_adds_no_internal_topic_to_a_transaction(
    one: EmbeddedCluster, version: int, code: ErrorCode | None
) -> None:
    internal = m.AddPartitionsToTxnTopic(name="__consumer_offsets", partitions=[0])
    request = m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[internal],
    )
    if code is None:
        request = m.AddPartitionsToTxnRequest(
            transactions=[m.AddPartitionsToTxnTransaction(transactional_id="x", producer_id=1, topics=[internal])]
        )
    async with Peer(one) as peer:
        answer: Any = await peer.ask(request, version)
    topics = answer.results_by_topic_v3_and_below or answer.results_by_transaction[0].topic_results
    answer_code = topics[0].results_by_partition[0].partition_error_code
    assert answer_code == code if code is not None else answer_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_an_election_of_no_known_kind_is_an_error_of_the_request(one: EmbeddedCluster) -> None:
    async with Peer(one) as peer:
        answer = await peer.ask(m.ElectLeadersRequest(election_type=2, topic_partitions=[], timeout_ms=1000))
    assert answer.error_code == INVALID


# Groups.


async def test_a_group_that_is_named_twice_is_deleted_once(one: EmbeddedCluster) -> None:
    async with Peer(one) as peer:
        await peer.ask(m.FindCoordinatorRequest(coordinator_keys=["g"]))
        answer = await peer.ask(m.DeleteGroupsRequest(groups_names=["g", "g"]))
    assert [result.error_code for result in answer.results] == [ErrorCode.GROUP_ID_NOT_FOUND]


async def test_an_empty_name_of_a_group_is_not_valid(one: EmbeddedCluster) -> None:
    async with Peer(one) as peer:
        described = await peer.ask(m.ConsumerGroupDescribeRequest(group_ids=[""], include_authorized_operations=False))
        altered = await peer.ask(m.AlterShareGroupOffsetsRequest(group_id="", topics=[]))
        deleted = await peer.ask(m.DeleteShareGroupOffsetsRequest(group_id="", topics=[]))
    codes = [result.error_code for result in (described.groups[0], altered, deleted)]
    assert codes == [ErrorCode.INVALID_GROUP_ID] * 3


@pytest.mark.parametrize("length, code", [(0, INVALID), (1, NONE), (36, NONE), (37, INVALID)])
async def test_the_id_of_a_share_member_is_as_long_as_a_uuid(
    one: EmbeddedCluster, length: int, code: ErrorCode
) -> None:
    heartbeat = m.ShareGroupHeartbeatRequest(
        group_id="g", member_id="m" * length, member_epoch=0, subscribed_topic_names=["t"]
    )
    fetch = m.ShareFetchRequest(
        group_id="g",
        member_id="m" * length,
        share_session_epoch=0,
        max_wait_ms=0,
        min_bytes=0,
        max_records=1,
        batch_size=1,
        topics=[],
        forgotten_topics_data=[],
    )
    async with Peer(one) as peer:
        await peer.ask(m.FindCoordinatorRequest(coordinator_keys=["g"]))
        answers: list[Any] = [await peer.ask(heartbeat), await peer.ask(fetch)]
        assert [answer.error_code for answer in answers] == [code, code]


# Quotas.


@pytest.mark.parametrize(
    "components, code",
    [
        ([("user", 0, "a")], NONE),
        ([("user", 1, None), ("client-id", 2, None)], NONE),
        ([("user", 9, "a")], INVALID),
        ([("user", 0, None)], INVALID),
        ([("user", 1, "a")], INVALID),
        ([("user", 2, "a")], INVALID),
        ([("user", 0, "a"), ("user", 0, "b")], INVALID),
        ([("", 0, "a")], INVALID),
        ([("ip", 0, "1.2.3.4"), ("user", 0, "a")], INVALID),
        ([("group", 0, "a")], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_a_filter_of_quotas_has_to_make_sense(
    one: EmbeddedCluster, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    filters = [
        m.DescribeClientQuotasComponent(entity_type=kind, match_type=match, match=name)
        for kind, match, name in components
    ]
    async with Peer(one) as peer:
        assert (await peer.ask(m.DescribeClientQuotasRequest(components=filters, strict=False))).error_code == code


@pytest.mark.parametrize(
    "entity, quotas, code",
    [
        ([("user", "a")], [("producer_byte_rate", 2.0**62)], NONE),
        ([("user", "a")], [("producer_byte_rate", 1e30)], INVALID),
        ([("user", "a")], [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)], INVALID),
        ([("user", "a")], [("connection_creation_rate", 1.0)], INVALID),
        ([("user", "a"), ("user", "b")], [("producer_byte_rate", 1.0)], NONE),
        ([("ip", "1.2.3.4")], [("producer_byte_rate", 1.0)], INVALID),
        ([("ip", "1.2.3.4")], [("connection_creation_rate", 2.0**31 - 1)], NONE),
        ([("ip", "1.2.3.4")], [("connection_creation_rate", 2.0**31)], INVALID),
        ([("ip", "999.1.1.1")], [("connection_creation_rate", 1.0)], INVALID),
        ([("ip", "localhost")], [("connection_creation_rate", 1.0)], NONE),
    ],
)
async def test_a_quota_belongs_to_its_entity_and_has_a_largest_value(
    one: EmbeddedCluster, entity: list[tuple[str, str]], quotas: list[tuple[str, float]], code: ErrorCode
) -> None:
    entry = m.AlterClientQuotasRequestEntry(
        entity=[m.AlterClientQuotasRequestEntity(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[m.AlterClientQuotasOperation(key=key, value=value, remove=False) for key, value in quotas],
    )
    async with Peer(one) as peer:
        (once,) = (await peer.ask(m.AlterClientQuotasRequest(entries=[entry], validate_only=True))).entries
        (twice,) = (await peer.ask(m.AlterClientQuotasRequest(entries=[entry, entry], validate_only=True))).entries
    assert (once.error_code, twice.error_code) == (code, INVALID)
    assert [(part.entity_type, part.entity_name) for part in once.entity] == [entity[-1]]


# Limits of connections.


@pytest.mark.parametrize(
    "broker, name, value, code",
    [
        ("1", "max.connections", "0", INVALID),
        ("1", "max.connections", "1", NONE),
        ("1", "max.connection.creation.rate", "0", INVALID),
        ("", "max.connection.creation.rate", "0", NONE),
        ("", "listener.name.plaintext.max.connections", "0", INVALID),
        ("1", "listener.name.plaintext.max.connection.creation.rate", "0", INVALID),
        ("1", "listener.name.plaintext.max.connection.creation.rate", "5", NONE),
        ("1", "max.connections.per.ip", "0", INVALID),
    ],
)
async def test_a_running_broker_refuses_a_limit_of_no_connections(
    one: EmbeddedCluster, broker: str, name: str, value: str, code: ErrorCode
) -> None:
    change = m.IncrementalAlterConfigsRequestConfig(name=name, config_operation=0, value=value)
    resource = m.IncrementalAlterConfigsRequestResource(resource_type=4, resource_name=broker, configs=[change])
    async with Peer(one) as peer:
        answer = await peer.ask(m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True))
    assert answer.responses[0].error_code == code


PER_IP, OVERRIDES = "max.connections.per.ip", "max.connections.per.ip.overrides"
BOTH = {PER_IP: "0", OVERRIDES: "127.0.0.1:5"}


@pytest.mark.parametrize(
    "before, after, code",
    [
        ({}, BOTH, NONE),
        (BOTH, {PER_IP: "0"}, INVALID),
        (BOTH, {OVERRIDES: "127.0.0.1:5"}, NONE),
        (BOTH, {}, NONE),
        ({OVERRIDES: "127.0.0.1:5"}, {PER_IP: "0"}, INVALID),
    ],
)
@pytest.mark.parametrize("broker", ["", "1"])
async def test_no_connections_for_an_address_requires_overrides_after_the_change(
    one: EmbeddedCluster, broker: str, before: dict[str, str], after: dict[str, str], code: ErrorCode
) -> None:
    values = after if broker else {"min.insync.replicas": "1", **after}
    changes = [m.AlterConfigsRequestConfig(name=name, value=value) for name, value in values.items()]
    resource = m.AlterConfigsRequestResource(resource_type=4, resource_name=broker, configs=changes)
    async with Peer(one) as peer:
        one.controller.settings.replace_dynamic(broker, before)
        answer = await peer.ask(m.AlterConfigsRequest(resources=[resource], validate_only=True))
    assert answer.responses[0].error_code == code


async def test_quotas_of_many_entities_are_checked_in_one_pass(one: EmbeddedCluster) -> None:
    change = m.AlterClientQuotasOperation(key="producer_byte_rate", value=1.0, remove=False)
    entries = [
        m.AlterClientQuotasRequestEntry(
            entity=[m.AlterClientQuotasRequestEntity(entity_type="user", entity_name=f"u{index}")], ops=[change]
        )
        for index in range(5_000)
    ]
    async with Peer(one) as peer:
        began = time.process_time()
        answer = await peer.ask(m.AlterClientQuotasRequest(entries=entries, validate_only=True))
        assert time.process_time() - began < 3  # 0.1 s; with a search for each entity 6 s
    assert [entry.entity[0].entity_name for entry in answer.entries] == [f"u{index}" for index in range(5_000)]


@pytest.mark.parametrize("level", [2, -1])
async def test_an_unknown_isolation_level_is_an_error_of_each_partition(one: EmbeddedCluster, level: int) -> None:
    await one.create_topic("t")
    read = fetch_request("t", 0)
    read.isolation_level = level
    latest = m.ListOffsetsRequestPartition(partition_index=0, timestamp=-1)
    listing = m.ListOffsetsRequest(
        replica_id=-1, isolation_level=level, topics=[m.ListOffsetsRequestTopic(name="t", partitions=[latest])]
    )
    async with Peer(one) as peer:
        fetched, listed = await peer.ask(read, 12), await peer.ask(listing)
    unknown = ErrorCode.UNKNOWN_SERVER_ERROR
    assert (fetched.error_code, fetched.responses[0].partitions[0].error_code) == (unknown, unknown)
    assert listed.topics[0].partitions[0].error_code == unknown


async def test_a_partition_that_is_named_twice_has_one_answer(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    request = produce_request("t", produced(b"first", timestamp=int(time.time() * 1000)))
    last = produce_request("t", produced(b"last", timestamp=int(time.time() * 1000))).topic_data
    request.topic_data += last
    delete = m.DeleteRecordsRequest(
        timeout_ms=1000,
        topics=[
            m.DeleteRecordsTopic(name="t", partitions=[m.DeleteRecordsPartition(partition_index=0, offset=offset)])
            for offset in (1, 0)
        ],
    )
    async with Peer(one) as peer:
        (produced_to,) = (await peer.ask(request, 12)).responses
        (deleted_from,) = (await peer.ask(delete)).topics
    assert [partition_response.base_offset for partition_response in produced_to.partition_responses] == [0]
    assert [record.value for record in one.records("t")] == [b"last"]
    assert [(partition.error_code, partition.low_watermark) for partition in deleted_from.partitions] == [(NONE, 0)]


async def test_a_group_of_another_type_has_no_share_offsets(one: EmbeddedCluster) -> None:
    topic = await one.create_topic("t")
    offset = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    commit = m.OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[m.OffsetCommitRequestTopic(name="t", topic_id=topic.topic_id, partitions=[offset])],
    )
    async with Peer(one) as peer:
        await peer.ask(m.FindCoordinatorRequest(coordinator_keys=["g"]))
        await peer.ask(commit)
        groups = [m.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)]
        (group,) = (await peer.ask(m.DescribeShareGroupOffsetsRequest(groups=groups))).groups
        refused = await peer.ask(m.DeleteShareGroupOffsetsRequest(group_id="g", topics=[]))
    assert (group.error_code, group.topics) == (NONE, [])
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_share_offsets_are_deleted_once(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    start = m.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    alter = m.AlterShareGroupOffsetsRequest(
        group_id="g", topics=[m.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[start])]
    )
    delete = m.DeleteShareGroupOffsetsRequest(
        group_id="g", topics=[m.DeleteShareGroupOffsetsRequestTopic(topic_name="t")]
    )
    async with Peer(one) as peer:
        await peer.ask(m.FindCoordinatorRequest(coordinator_keys=["g"]))
        await peer.ask(alter)
        answers = [(await peer.ask(delete)).responses[0] for _ in range(2)]
    assert [answer.error_code for answer in answers] == [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert answers[1].error_message == "There is no offset information to delete."
    assert answers[1].topic_id == ZERO_UUID


def share_topics(*topics: tuple[str, list[int]]) -> list[m.DescribeShareGroupOffsetsRequestTopic]:
    return [m.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes) for name, indexes in topics]


async def test_the_offset_of_a_share_partition_is_described_once(one: EmbeddedCluster) -> None:
    await one.create_topic("t", partitions=2)
    start = [m.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=5) for index in range(2)]
    alter = m.AlterShareGroupOffsetsRequest(
        group_id="g",
        topics=[m.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition]) for partition in start],
    )
    query = m.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=share_topics(("t", [0, 0]), ("t", [1])))
    async with Peer(one) as peer:
        await peer.ask(m.FindCoordinatorRequest(coordinator_keys=["g"]))
        (altered,) = (await peer.ask(alter)).responses
        (group,) = (await peer.ask(m.DescribeShareGroupOffsetsRequest(groups=[query]))).groups
    assert [partition.partition_index for partition in altered.partitions] == [0, 1]
    (topic,) = group.topics
    assert [(partition.partition_index, partition.start_offset, partition.lag) for partition in topic.partitions] == [
        (0, 5, -5),
        (1, 5, -5),
    ]


@pytest.mark.parametrize(
    "group_id, topics, code",
    [
        ("g", share_topics(("t", [])), ErrorCode.UNKNOWN_SERVER_ERROR),
        ("g", share_topics(("t", [0]), ("t", [-1])), ErrorCode.UNKNOWN_SERVER_ERROR),
        ("", share_topics(("t", [0])), ErrorCode.UNKNOWN_SERVER_ERROR),
        ("", share_topics(("unknown", [])), NONE),
        ("g", share_topics(("unknown", [-1])), NONE),
    ],
)
async def test_kafka_fails_to_describe_share_offsets_of_no_partition(
    one: EmbeddedCluster, group_id: str, topics: list[m.DescribeShareGroupOffsetsRequestTopic], code: ErrorCode
) -> None:
    await one.create_topic("t")
    query = m.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)
    async with Peer(one) as peer:
        await peer.ask(m.FindCoordinatorRequest(coordinator_keys=[group_id]))
        (group,) = (await peer.ask(m.DescribeShareGroupOffsetsRequest(groups=[query]))).groups
    assert (group.error_code, len(group.topics)) == (code, 0 if code else 1)


@pytest.mark.parametrize(
    ("key", "version", "code"),
    [
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:0", 6, NONE),
        ("a:b:AAAAAAAAAAAAAAAAAAAAAQ:0", 6, NONE),
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:0", 5, INVALID),
        (":AAAAAAAAAAAAAAAAAAAAAQ:0", 6, INVALID),
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:x", 6, INVALID),
        ("g:x:0", 6, INVALID),
        ("g", 6, INVALID),
    ],
)
async def test_a_share_partition_has_a_coordinator(
    one: EmbeddedCluster, key: str, version: int, code: ErrorCode
) -> None:
    async with Peer(one) as peer:
        request = m.FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
        (coordinator,) = (await peer.ask(request, version)).coordinators
    assert (coordinator.error_code, coordinator.error_message) == (code, "")
    assert (coordinator.node_id == one.nodes[1].node_id) is (code is NONE)
