"""Transactions as administrators see them, and the end of a hanging one."""

from __future__ import annotations

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ConfigurationError, ErrorCode
from aiokafka_lite.protocol import messages as m
from tests.embedded.broker.raw_client import Peer
from tests.embedded.transactions.raw_producer import TransactionalPeer

OK = ErrorCode.NONE


async def listed(producer: TransactionalPeer, version: int = 2, **filters: object) -> list[tuple[str, str]]:
    """Return the transactional ids of all brokers with their states."""
    fields = {"state_filters": [], "producer_id_filters": [], **filters}
    results = []
    for node in producer.cluster.nodes:
        answer = await producer.ask(node, m.ListTransactionsRequest(**fields), version)  # type: ignore[arg-type]
        assert answer.error_code == 0
        results += [
            (transaction_state.transactional_id, transaction_state.transaction_state)
            for transaction_state in answer.transaction_states
        ]
    return sorted(results)


async def test_transactions_are_listed_by_state_producer_duration_and_name(producer: TransactionalPeer) -> None:
    async with TransactionalPeer(producer.cluster, "other") as other:
        await other.initialize()
        await producer.write("t", b"1")
        assert await listed(producer) == [("id", "Ongoing"), ("other", "Empty")]
        assert await listed(producer, state_filters=["Ongoing"]) == [("id", "Ongoing")]
        assert await listed(producer, producer_id_filters=[other.producer_id]) == [("other", "Empty")]
        assert await listed(producer, duration_filter=3_600_000, state_filters=["Ongoing"]) == []
        assert await listed(producer, transactional_id_pattern="oth.*") == [("other", "Empty")]
        assert await listed(producer, transactional_id_pattern="the") == []


async def test_unknown_states_are_named(producer: TransactionalPeer) -> None:
    request = m.ListTransactionsRequest(state_filters=["Ongoing", "Nonsense"], producer_id_filters=[])
    assert (await producer.ask(1, request, 0)).unknown_state_filters == ["Nonsense"]


@pytest.mark.parametrize("pattern", ["(", "(a+)+b", "(a|aa)+"])
async def test_wrong_and_slow_patterns_are_refused(producer: TransactionalPeer, pattern: str) -> None:
    request = m.ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern)
    assert (await producer.ask(1, request, 2)).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_a_description_has_the_producer_the_timeout_and_the_partitions(producer: TransactionalPeer) -> None:
    await producer.initialize(timeout_ms=12_345)
    await producer.write("t", b"1", partition=1)
    description = await producer.describe()
    assert (description.producer_id, description.producer_epoch) == (producer.producer_id, producer.epoch)
    assert (description.transaction_state, description.transaction_timeout_ms) == ("Ongoing", 12_345)
    assert description.transaction_start_time_ms > 0
    assert [(topic.topic, topic.partitions) for topic in description.topics] == [("t", [1])]


async def producers(producer: TransactionalPeer, topic: str = "t") -> list[m.DescribeProducersState]:
    request = m.DescribeProducersRequest(topics=[m.DescribeProducersTopic(name=topic, partition_indexes=[0])])
    leader = producer.cluster.leader_of(topic, 0)
    states: list[m.DescribeProducersState] = (
        (await producer.ask(leader, request, 0)).topics[0].partitions[0].active_producers
    )
    return states


async def test_producers_of_a_partition_are_described_with_their_transactions(producer: TransactionalPeer) -> None:
    await producer.write("t", b"1", b"2")
    [state] = await producers(producer)
    assert (state.producer_id, state.last_sequence, state.coordinator_epoch) == (producer.producer_id, 1, -1)
    assert state.current_txn_start_offset == 0
    await producer.commit()
    await producer.until_complete()
    [state] = await producers(producer)
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (0, -1)


async def write_marker(producer: TransactionalPeer, *, epoch: int, coordinator_epoch: int) -> ErrorCode:
    marker = m.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=epoch,
        transaction_result=False,
        topics=[m.WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        coordinator_epoch=coordinator_epoch,
    )
    request = m.WriteTxnMarkersRequest(markers=[marker])
    answer = await producer.ask(producer.cluster.leader_of("t", 0), request, 1)
    return ErrorCode.of(answer.markers[0].topics[0].partitions[0].error_code)


async def test_an_administrator_ends_a_hanging_transaction(producer: TransactionalPeer) -> None:
    await producer.write("t", b"1")
    assert await write_marker(producer, epoch=producer.epoch, coordinator_epoch=0) is OK
    assert (await producer.fetch("t")).last_stable_offset == 2
    assert await producer.read("t") == []


async def test_markers_of_an_old_coordinator_or_an_old_producer_are_refused(producer: TransactionalPeer) -> None:
    await producer.initialize()
    await producer.write("t", b"1")
    old_epoch = await write_marker(producer, epoch=producer.epoch - 1, coordinator_epoch=0)
    assert old_epoch is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await write_marker(producer, epoch=producer.epoch, coordinator_epoch=5) is OK
    await producer.write("t", b"2")
    old_coordinator = await write_marker(producer, epoch=producer.epoch, coordinator_epoch=4)
    assert old_coordinator is ErrorCode.TRANSACTION_COORDINATOR_FENCED


async def features(cluster: EmbeddedCluster, version: int = 4) -> m.ApiVersionsResponse:
    async with Peer(cluster) as peer:
        request = m.ApiVersionsRequest(client_software_name="x", client_software_version="1")
        answer: m.ApiVersionsResponse = await peer.ask(request, version)
        return answer


async def test_clients_choose_the_generation_by_the_feature_of_the_cluster(cluster: EmbeddedCluster) -> None:
    answer = await features(cluster)
    assert {
        finalized_feature.name: finalized_feature.max_version_level for finalized_feature in answer.finalized_features
    }["transaction.version"] == 2
    epoch = answer.finalized_features_epoch
    cluster.set_feature("transaction.version", 0)
    answer = await features(cluster)
    assert "transaction.version" not in {finalized_feature.name for finalized_feature in answer.finalized_features}
    assert answer.finalized_features_epoch == epoch + 1
    with pytest.raises(ConfigurationError, match=r"transaction\.version must be a level from 0 to 2, got 3"):
        cluster.set_feature("transaction.version", 3)
    with pytest.raises(ConfigurationError, match="feature must be one of"):
        cluster.set_feature("nonsense", 1)


@pytest.mark.parametrize("release, names", [("2.8", set()), ("3.9", {"metadata.version"})])
async def test_older_releases_have_no_feature_for_transactions(release: str, names: set[str]) -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, as_kafka=release) as cluster:
        answer = await features(cluster, 3)
        assert {finalized_feature.name for finalized_feature in answer.finalized_features} == names


async def test_a_partition_of_brokers_versions_adds_and_verifies(second: TransactionalPeer) -> None:
    """AddPartitionsToTxn v4 and later, which brokers send."""

    async def ask(index: int, *, verify_only: bool, version: int = 5) -> ErrorCode:
        transaction = m.AddPartitionsToTxnTransaction(
            verify_only=verify_only,
            topics=[m.AddPartitionsToTxnTopic(name="t", partitions=[index])],
            **second.identity,
        )
        request = m.AddPartitionsToTxnRequest(transactions=[transaction])
        answer = await second.to_coordinator(request, version)
        [result] = answer.results_by_transaction[0].topic_results[0].results_by_partition
        return ErrorCode.of(result.partition_error_code)

    assert await ask(0, verify_only=True) is ErrorCode.TRANSACTION_ABORTABLE
    assert await ask(0, verify_only=True, version=4) is ErrorCode.TRANSACTION_ABORTABLE
    assert await ask(0, verify_only=False) is OK
    assert await ask(0, verify_only=True) is OK
    assert await ask(1, verify_only=True) is ErrorCode.TRANSACTION_ABORTABLE
