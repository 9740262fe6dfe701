"""Brokers, features, records, offsets, leaders, replicas, disks and quotas."""

from __future__ import annotations

import pytest

from aiokafka_lite import BrokerError, Producer, TopicPartition
from aiokafka_lite.admin import (
    Admin,
    Election,
    EpochEnd,
    FeatureChange,
    Match,
    NewTopic,
    OffsetSpec,
    QuotaEntity,
    Replica,
    VersionRange,
)
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode, KafkaTimeout, OffsetOutOfRange, UnknownTopic, UnsupportedVersion
from aiokafka_lite.protocol.messages import DescribeQuorumRequest, DescribeQuorumResponse, ListOffsetsRequest
from aiokafka_lite.types import IsolationLevel

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
MISSING = TopicPartition("missing", 0)


async def with_records(cluster: EmbeddedCluster, admin: Admin) -> None:
    """Write ten records to each of two partitions, a second apart, the sixth the youngest."""
    (await admin.topics.create(NewTopic("orders", assignments=[[1, 2], [2, 3]]))).raise_for_errors()
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        for number in range(10):
            for partition in (0, 1):
                timestamp = 99_000 if number == 5 else 1000 * (number + 1)
                await producer.send("orders", b"x", partition=partition, timestamp=timestamp)


async def test_the_cluster_is_described(admin: Admin, old_admin: Admin, cluster: EmbeddedCluster) -> None:
    for client in (admin, old_admin):
        described = await client.cluster.describe()
        assert [node.node_id for node in described.brokers] == [1, 2, 3]
        assert described.controller in described.brokers
        assert described.cluster_id == cluster.cluster_id
        assert described.fenced is None
    await cluster.stop(3)
    described = await admin.cluster.describe(include_fenced=True)
    assert [node.node_id for node in described.brokers] == [1, 2]
    assert [node.node_id for node in described.fenced or ()] == [3]
    with pytest.raises(UnsupportedVersion, match=r"4\.0"):
        await old_admin.cluster.describe(include_fenced=True)


async def test_api_versions_are_described_per_broker(admin: Admin, cluster: EmbeddedCluster) -> None:
    results = (await admin.cluster.api_versions()).raise_for_errors()
    assert list(results) == [1, 2, 3]
    apis = {api.name: api for api in results[1]}
    assert apis["Metadata"].offered == VersionRange(*cluster.nodes[1].versions[3])
    assert apis["Metadata"].used == apis["Metadata"].offered.last
    with pytest.raises(BrokerError, match="broker 7"):
        (await admin.cluster.api_versions([7])).raise_for_errors()


async def test_features_require_a_newer_broker(admin: Admin, old_admin: Admin) -> None:
    features = await admin.cluster.features()
    assert features.epoch is None or features.finalized is not None
    with pytest.raises(UnsupportedVersion, match=r"2\.7"):
        await old_admin.cluster.features()


async def test_the_metadata_quorum_has_a_leader_and_voters(admin: Admin, old_admin: Admin) -> None:
    quorum = await admin.cluster.quorum()
    assert (quorum.leader, [voter.node_id for voter in quorum.voters]) == (1, [1, 2, 3])
    await admin.topics.create(NewTopic("orders", 1))
    assert (await admin.cluster.quorum()).high_watermark > quorum.high_watermark
    with pytest.raises(UnsupportedVersion, match=r"3\.3"):
        await old_admin.cluster.quorum()


@pytest.mark.parametrize("change", ["topics", "partitions"])
async def test_an_answer_without_the_metadata_quorum_is_named(
    admin: Admin, cluster: EmbeddedCluster, change: str
) -> None:
    def without(response: DescribeQuorumResponse) -> DescribeQuorumResponse:
        setattr(response if change == "topics" else response.topics[0], change, [])
        return response

    cluster.on(DescribeQuorumRequest, times=None).alter(without)
    with pytest.raises(KafkaTimeout, match="the metadata quorum has one partition, and the answer has 0"):
        await admin.cluster.quorum(timeout=3.0)


async def test_features_are_updated_all_or_none(admin: Admin, old_admin: Admin) -> None:
    async def levels() -> tuple[int, int]:
        finalized = (await admin.cluster.features()).finalized
        return finalized["transaction.version"].last, finalized["group.version"].last

    assert await levels() == (2, 1)
    with pytest.raises(BrokerError, match="downgrade") as refused:
        await admin.cluster.update_features({"group.version": 1, "transaction.version": 1})
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
    down = FeatureChange.SAFE_DOWNGRADE
    await admin.cluster.update_features({"transaction.version": 1}, change=down, validate_only=True)
    assert await levels() == (2, 1)
    await admin.cluster.update_features({"transaction.version": 1}, change=down)
    assert await levels() == (1, 1)
    with pytest.raises(UnsupportedVersion, match=r"2\.7"):
        await old_admin.cluster.update_features({"transaction.version": 2})
    with pytest.raises(TypeError, match="FeatureChange"):
        await admin.cluster.update_features({}, change=1)  # type: ignore[arg-type]


async def test_a_broker_that_has_left_is_unregistered(admin: Admin, cluster: EmbeddedCluster) -> None:
    await cluster.stop(3)
    await admin.cluster.unregister_broker(3)
    assert (await admin.cluster.describe(include_fenced=True)).fenced == ()
    with pytest.raises(BrokerError, match="not registered"):
        await admin.cluster.unregister_broker(3)


async def test_replicas_move_to_directories_that_their_brokers_have(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin)
    path = (await admin.log_dirs.describe([1]))[1][0].path
    here, other, elsewhere = Replica(FIRST, 1), Replica(FIRST, 3), Replica(SECOND, 2)
    results = await admin.log_dirs.alter({here: path, other: path, elsewhere: "/missing", Replica(FIRST, 9): path})
    assert list(results.done) == [here]
    codes = {item: error.code for item, error in results.failed.items() if isinstance(error, BrokerError)}
    assert codes == {
        other: ErrorCode.REPLICA_NOT_AVAILABLE,
        elsewhere: ErrorCode.LOG_DIR_NOT_FOUND,
        Replica(FIRST, 9): ErrorCode.BROKER_ID_NOT_REGISTERED,
    }


async def test_records_are_deleted_from_the_start(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin)
    results = await admin.records.delete({FIRST: 4, SECOND: None, MISSING: 1})
    assert results.done == {FIRST: 4, SECOND: 10}
    with pytest.raises(UnknownTopic):
        results[MISSING]
    begin = await admin.offsets.list({FIRST: OffsetSpec.EARLIEST, SECOND: OffsetSpec.EARLIEST})
    assert [offset.offset for offset in begin.raise_for_errors().values() if offset] == [4, 10]
    with pytest.raises(OffsetOutOfRange):
        (await admin.records.delete({FIRST: 99})).raise_for_errors()


async def test_offsets_are_found_by_time_and_by_every_special_offset(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin)

    async def offset(spec: OffsetSpec | int) -> int | None:
        result = (await admin.offsets.list({FIRST: spec}, isolation_level="read_committed"))[FIRST]
        return None if result is None else result.offset

    assert await offset(OffsetSpec.EARLIEST) == 0
    assert await offset(OffsetSpec.LATEST) == 10
    assert await offset(OffsetSpec.MAX_TIMESTAMP) == 5
    assert await offset(OffsetSpec.EARLIEST_LOCAL) == 0
    assert await offset(OffsetSpec.LATEST_TIERED) is None
    assert await offset(OffsetSpec.EARLIEST_PENDING_UPLOAD) in (None, 0)
    assert await offset(2500) == 2
    assert await offset(99_001) is None
    levels = {exchange.request.isolation_level for exchange in cluster.history.of(ListOffsetsRequest)}  # type: ignore[attr-defined]
    assert levels == {IsolationLevel.READ_COMMITTED}
    by_time = (await admin.offsets.list({FIRST: 2500}))[FIRST]
    assert by_time is not None
    assert (by_time.timestamp, by_time.leader_epoch) == (3000, 0)


async def test_old_kafka_has_two_special_offsets(old_admin: Admin, old_cluster: EmbeddedCluster) -> None:
    await with_records(old_cluster, old_admin)
    specs = {FIRST: OffsetSpec.MAX_TIMESTAMP, SECOND: OffsetSpec.LATEST}
    results = await old_admin.offsets.list(specs)
    with pytest.raises(UnsupportedVersion, match=r"max timestamp.*3\.0"):
        results[FIRST]
    second = results[SECOND]
    assert second is not None
    assert second.offset == 10
    with pytest.raises(UnsupportedVersion, match=r"2\.1"):
        (await old_admin.offsets.ends_of_epochs({FIRST: 0})).raise_for_errors()


async def test_the_ends_of_leader_epochs_are_found(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin)
    await cluster.move_leader("orders", 0)
    results = await admin.offsets.ends_of_epochs({FIRST: 0, SECOND: 0, MISSING: 0})
    assert results.done == {FIRST: EpochEnd(0, 10), SECOND: EpochEnd(0, 10)}
    assert list(results.failed) == [MISSING]


async def test_preferred_leaders_are_elected(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin)
    await cluster.move_leader("orders", 0)
    results = await admin.leaders.elect([FIRST, SECOND, MISSING])
    assert results.done == {FIRST: True, SECOND: False}
    with pytest.raises(UnknownTopic):
        results[MISSING]
    await cluster.move_leader("orders", 1)
    assert (await admin.leaders.elect()).raise_for_errors() == {SECOND: True}


async def test_an_unclean_election_restores_a_partition(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin)
    await cluster.set_isr("orders", 0, [1])
    await cluster.kill(1)
    failed = (await admin.leaders.elect([FIRST])).failed[FIRST]
    assert isinstance(failed, BrokerError)
    assert failed.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    (await admin.leaders.elect([FIRST], election=Election.UNCLEAN)).raise_for_errors()
    assert (await admin.topics.describe("orders"))["orders"].partitions[0].leader == 2


async def test_replicas_are_moved(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin)
    await cluster.freeze(3)
    results = await admin.reassignments.alter({FIRST: [3, 1], MISSING: [1]})
    assert list(results.done) == [FIRST]
    assert isinstance(results.failed[MISSING], UnknownTopic)
    moving = await admin.reassignments.list()
    assert list(moving) == [FIRST]
    assert (moving[FIRST].adding, moving[FIRST].removing) == ((3,), (2,))
    assert await admin.reassignments.list([SECOND]) == {}
    await cluster.thaw(3)
    await cluster.until_in_sync("orders")
    assert await admin.reassignments.list() == {}
    assert (await admin.topics.describe("orders"))["orders"].partitions[0].replicas == (3, 1)


async def test_a_move_of_replicas_can_be_listed_before_it_is_over(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin)
    (await admin.reassignments.alter({FIRST: [3, 1]})).raise_for_errors()
    assert list(await admin.reassignments.list()) == [FIRST]
    await cluster.until_in_sync("orders")
    assert await admin.reassignments.list() == {}


async def test_a_move_of_replicas_can_be_cancelled(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin)
    await cluster.freeze(3)
    await admin.reassignments.alter({FIRST: [3]})
    (await admin.reassignments.alter({FIRST: None})).raise_for_errors()
    assert await admin.reassignments.list() == {}
    error = (await admin.reassignments.alter({FIRST: None})).failed[FIRST]
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


async def test_log_directories_are_described_with_their_replicas(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin)
    everything = (await admin.log_dirs.describe()).raise_for_errors()
    on_disk = {node_id: {replica.partition for replica in dirs[0].replicas} for node_id, dirs in everything.items()}
    assert on_disk == {1: {FIRST}, 2: {FIRST, SECOND}, 3: {SECOND}}
    assert all(log_dir.size > 0 and log_dir.error is None for dirs in everything.values() for log_dir in dirs)
    only = (await admin.log_dirs.describe([2], partitions=[SECOND])).raise_for_errors()
    assert [replica.partition for replica in only[2][0].replicas] == [SECOND]


async def test_log_directories_require_kafka_2_0(old_admin: Admin) -> None:
    with pytest.raises(UnsupportedVersion, match=r"2\.0"):
        (await old_admin.log_dirs.describe([1])).raise_for_errors()


async def test_quotas_are_set_found_and_removed(admin: Admin) -> None:
    everybody, ann = QuotaEntity(user=Match.DEFAULT), QuotaEntity(user="ann", client_id="app")
    bad = QuotaEntity(ip="::1", user="x")
    results = await admin.quotas.alter(
        {everybody: {"producer_byte_rate": 1000}, ann: {"consumer_byte_rate": 5.0}, bad: {"consumer_byte_rate": 1}}
    )
    assert list(results.done) == [everybody, ann]
    assert isinstance(results.failed[bad], BrokerError)
    assert await admin.quotas.describe() == {
        everybody: {"producer_byte_rate": 1000.0},
        ann: {"consumer_byte_rate": 5.0},
    }
    assert list(await admin.quotas.describe(user="ann")) == [ann]
    assert list(await admin.quotas.describe(user=Match.ANY, strict=True)) == [everybody]
    assert await admin.quotas.describe(user=Match.DEFAULT, client_id="app") == {}
    (await admin.quotas.alter({ann: {"consumer_byte_rate": None}})).raise_for_errors()
    assert ann not in await admin.quotas.describe()
    with pytest.raises(ValueError, match="ANY"):
        await admin.quotas.alter({QuotaEntity(user=Match.ANY): {"consumer_byte_rate": 1}})


async def test_errors_of_old_kafka_name_the_required_release(old_admin: Admin) -> None:
    await old_admin.topics.create(NewTopic("orders", 1))
    with pytest.raises(UnsupportedVersion, match=r"2\.2"):
        await old_admin.leaders.elect()
    with pytest.raises(UnsupportedVersion, match=r"2\.4"):
        (await old_admin.reassignments.alter({FIRST: [1]})).raise_for_errors()
    with pytest.raises(UnsupportedVersion, match=r"2\.4"):
        await old_admin.reassignments.list()
    with pytest.raises(UnsupportedVersion, match=r"2\.6"):
        await old_admin.quotas.describe()
    with pytest.raises(UnsupportedVersion, match=r"2\.6"):
        (await old_admin.quotas.alter({QuotaEntity(user="a"): {}})).raise_for_errors()
