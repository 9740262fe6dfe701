"""Offsets of groups that are a part of a transaction."""

from __future__ import annotations

import asyncio

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.coordinators.groups.records import partition_of
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol import messages as m
from tests.embedded.transactions.raw_producer import OFFSETS, TransactionalPeer

OK = ErrorCode.NONE
NOTHING = (-1, OK)
UNSTABLE = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)


async def test_offsets_count_when_their_transaction_commits(producer: TransactionalPeer) -> None:
    assert await producer.commit_offsets("g", "t", 7) is OK
    assert await producer.committed("g", "t") == NOTHING
    assert await producer.committed("g", "t", stable=True) == UNSTABLE
    assert await producer.commit() is OK
    await producer.until_complete()
    assert await producer.committed("g", "t", stable=True) == (7, OK)


async def test_a_group_can_be_added_before_the_topic_of_offsets_exists(first: TransactionalPeer) -> None:
    """As Apache Kafka 4.3.1 does: the coordinator of transactions only computes the partition of the group."""
    request = m.AddOffsetsToTxnRequest(group_id="g", **first.identity)
    assert ErrorCode.of((await first.to_coordinator(request, 3)).error_code) is OK
    assert (await first.describe()).topics == [
        m.DescribedTransactionTopic(topic=OFFSETS, partitions=[partition_of("g", 3)])
    ]
    assert await first.commit() is OK
    assert await first.until_complete() == "CompleteCommit"


async def test_offsets_of_an_aborted_transaction_never_count(producer: TransactionalPeer) -> None:
    await producer.commit_offsets("g", "t", 7)
    await producer.commit()
    await producer.until_complete()
    await producer.commit_offsets("g", "t", 9)
    assert await producer.committed("g", "t") == (7, OK)
    await producer.abort()
    await producer.until_complete()
    assert await producer.committed("g", "t", stable=True) == (7, OK)


async def test_pending_offsets_move_with_the_coordinator_of_their_group(producer: TransactionalPeer) -> None:
    cluster = producer.cluster
    await producer.commit_offsets("g", "t", 7)
    await cluster.move_leader(OFFSETS, partition_of("g", 3))
    assert await producer.committed("g", "t", stable=True) == UNSTABLE
    await producer.commit()
    await producer.until_complete()
    assert await producer.committed("g", "t", stable=True) == (7, OK)
    await cluster.move_leader(OFFSETS, partition_of("g", 3))
    assert await producer.committed("g", "t", stable=True) == (7, OK)


async def test_the_later_of_two_offsets_counts_also_if_its_transaction_ends_first(
    producer: TransactionalPeer,
) -> None:
    cluster = producer.cluster
    async with TransactionalPeer(cluster, "other") as other:
        await other.initialize()
        await producer.commit_offsets("g", "t", 7)
        await other.commit_offsets("g", "t", 9)
        await other.commit()
        await other.until_complete()
        await producer.commit()
        await producer.until_complete()
        assert await producer.committed("g", "t") == (9, OK)
        await cluster.move_leader(OFFSETS, partition_of("g", 3))
        assert await producer.committed("g", "t") == (9, OK)


async def test_offsets_are_pending_while_their_marker_is_held(producer: TransactionalPeer) -> None:
    await producer.find("g", 0)
    with producer.cluster.hold_markers(OFFSETS, partition_of("g", 3)):
        await producer.commit_offsets("g", "t", 7)
        await producer.commit()
        await asyncio.sleep(1)
        assert await producer.committed("g", "t", stable=True) == UNSTABLE
    await producer.until_complete()
    assert await producer.committed("g", "t", stable=True) == (7, OK)


async def test_a_deleted_offset_does_not_come_back(producer: TransactionalPeer) -> None:
    await producer.commit_offsets("g", "t", 7)
    await producer.commit()
    await producer.until_complete()
    await producer.commit_offsets("g", "t", 9)
    coordinator = await producer.find("g", 0)
    deleted = await producer.ask(coordinator, m.DeleteGroupsRequest(groups_names=["g"]), 2)
    assert deleted.results[0].error_code == 0
    await producer.commit()
    await producer.until_complete()
    assert await producer.committed("g", "t") == NOTHING


async def join(producer: TransactionalPeer, group: str, *, instance: str | None = None) -> tuple[str, int]:
    """Join a group as its only member. Returns the member's id and the generation."""
    coordinator = await producer.find(group, 0)
    protocols = [m.JoinGroupRequestProtocol(name="range", metadata=b"")]
    request = m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=protocols,
    )
    answer = await producer.ask(coordinator, request, 5)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request.member_id = answer.member_id
        answer = await producer.ask(coordinator, request, 5)
    assert answer.error_code == 0
    member = (answer.member_id, answer.generation_id)
    sync = m.SyncGroupRequest(
        group_id=group,
        generation_id=member[1],
        member_id=member[0],
        group_instance_id=instance,
        assignments=[m.SyncGroupRequestAssignment(member_id=member[0], assignment=b"")],
    )
    assert (await producer.ask(coordinator, sync, 3)).error_code == 0
    return member


async def test_the_group_fences_members_of_another_generation(producer: TransactionalPeer) -> None:
    """KIP-447."""
    member_id, generation = await join(producer, "g")
    old = {"member_id": member_id, "generation_id": generation - 1}
    assert await producer.commit_offsets("g", "t", 1, **old) is ErrorCode.ILLEGAL_GENERATION
    stranger = {"member_id": "stranger", "generation_id": generation}
    assert await producer.commit_offsets("g", "t", 1, **stranger) is ErrorCode.UNKNOWN_MEMBER_ID
    member = {"member_id": member_id, "generation_id": generation}
    assert await producer.commit_offsets("g", "t", 1, **member) is OK


async def test_the_group_fences_a_static_member_that_was_replaced(producer: TransactionalPeer) -> None:
    member_id, generation = await join(producer, "g", instance="i")
    await join(producer, "g", instance="i")
    member = {"member_id": member_id, "generation_id": generation, "group_instance_id": "i"}
    assert await producer.commit_offsets("g", "t", 1, **member) is ErrorCode.FENCED_INSTANCE_ID


async def test_an_old_producer_that_names_no_member_may_commit_for_any_group(producer: TransactionalPeer) -> None:
    await join(producer, "g")
    assert await producer.commit_offsets("g", "t", 1) is OK


async def test_offsets_without_a_transaction_are_refused(first: TransactionalPeer) -> None:
    """Otherwise they would stay pending without an end (KIP-890)."""
    coordinator = await first.find("g", 0)
    partition = m.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topic = m.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
    request = m.TxnOffsetCommitRequest(group_id="g", topics=[topic], **first.identity)
    answer = await first.ask(coordinator, request, 4)
    assert ErrorCode.of(answer.topics[0].partitions[0].error_code) is ErrorCode.TRANSACTION_ABORTABLE


async def test_partitions_that_cannot_be_committed_are_refused_alone(second: TransactionalPeer) -> None:
    coordinator = await second.find("g", 0)
    topics = [
        m.TxnOffsetCommitRequestTopic(
            name=name,
            partitions=[
                m.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=metadata)
            ],
        )
        for name, metadata in (("nowhere", ""), ("u", "x" * 4097), ("t", ""))
    ]
    request = m.TxnOffsetCommitRequest(group_id="g", topics=topics, **second.identity)
    answer = await second.ask(coordinator, request, 5)
    assert [ErrorCode.of(topic.partitions[0].error_code) for topic in answer.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        OK,
    ]


async def test_the_group_of_a_transaction_exists_after_its_commit(
    cluster: EmbeddedCluster, producer: TransactionalPeer
) -> None:
    await producer.commit_offsets("g", "t", 1)
    coordinator = await producer.find("g", 0)
    await producer.commit()
    await producer.until_complete()
    listed = await producer.ask(coordinator, m.ListGroupsRequest(states_filter=[], types_filter=[]), 5)
    assert [group.group_id for group in listed.groups] == ["g"]
