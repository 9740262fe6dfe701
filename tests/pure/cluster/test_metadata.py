"""The choice between two contradicting Metadata answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite.cluster.answer import MetadataAnswer
from aiokafka_lite.cluster.metadata import SLICE, ClusterView, merge_leader, merging
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokafka_lite.protocol.schema import ZERO_UUID
from aiokafka_lite.types import Node, TopicPartition
from tests.pure.cluster.metadata_snapshots import merge

ID_A, ID_B = b"a" * 16, b"b" * 16
ORDERS_0 = TopicPartition("orders", 0)


def broker(node_id: int, port: int | None = None) -> MetadataResponseBroker:
    return MetadataResponseBroker(node_id=node_id, host="kafka", port=port or 9090 + node_id, rack=None)


def partition(
    number: int = 0, leader: int = 1, epoch: int = 0, error: int = 0, **more: Any
) -> MetadataResponsePartition:
    fields: dict[str, Any] = {"replica_nodes": [1, 2, 3], "isr_nodes": [1, 2], "offline_replicas": [3], **more}
    return MetadataResponsePartition(
        error_code=error, partition_index=number, leader_id=leader, leader_epoch=epoch, **fields
    )


def topic(
    *partitions: MetadataResponsePartition, name: str = "orders", topic_id: bytes = ID_A, error: int = 0
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error, name=name, topic_id=topic_id, is_internal=False, partitions=list(partitions)
    )


def response(*topics: MetadataResponseTopic, nodes: tuple[int, ...] = (1, 2, 3), **more: Any) -> MetadataResponse:
    fields: dict[str, Any] = {"cluster_id": "c", "controller_id": 1, **more}
    return MetadataResponse(brokers=[broker(node) for node in nodes], topics=list(topics), **fields)


def known(*topics: MetadataResponseTopic) -> ClusterView:
    return merge(ClusterView(), response(*topics), requested=[t.name or "" for t in topics], now=1.0)


def seen(view: ClusterView, number: int = 0) -> tuple[int | None, int | None]:
    present = view.partition(TopicPartition("orders", number))
    assert present is not None
    return present.leader, present.leader_epoch


def test_the_first_answer_becomes_the_snapshot() -> None:
    view = known(topic(partition(leader=2, epoch=4)))
    present = view.partition(ORDERS_0)
    assert present is not None
    assert (present.leader, present.leader_epoch, present.replicas, present.isr, present.offline) == (
        2,
        4,
        (1, 2, 3),
        (1, 2),
        (3,),
    )
    assert view.leader_of(ORDERS_0) == Node(2, "kafka", 9092)
    assert view.controller == Node(1, "kafka", 9091)
    assert view.cluster_id == "c"
    assert view.topic_names == {ID_A: "orders"}
    assert view.age(3.5) == 2.5


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param((1, 5), (2, 6), (2, 6), id="a higher epoch wins"),
        pytest.param((1, 5), (2, 5), (2, 5), id="an equal epoch is the newer answer"),
        pytest.param((1, 5), (2, 4), (1, 5), id="a lower epoch is ignored"),
        pytest.param((1, 5), (-1, 4), (1, 5), id="a lower epoch without leader is ignored"),
        pytest.param((1, 5), (-1, 5), (None, 5), id="the leader went away"),
        pytest.param((1, 5), (2, -1), (2, None), id="an answer without an epoch is taken as it is"),
        pytest.param((1, -1), (2, 0), (2, 0), id="the first epoch is taken"),
    ],
)
def test_leader_epoch_decides(
    old: tuple[int, int], new: tuple[int, int], expected: tuple[int | None, int | None]
) -> None:
    view = known(topic(partition(0, *old)))
    assert seen(merge(view, response(topic(partition(0, *new))), requested=["orders"])) == expected


def test_epochs_before_version_9_are_ignored() -> None:
    view = known(topic(partition(leader=1, epoch=5)))
    merged = merge(view, response(topic(partition(leader=2, epoch=1))), requested=["orders"], epochs_reliable=False)
    assert seen(merged) == (2, None)


def test_lower_epoch_counts_once_the_topic_id_has_changed() -> None:
    view = known(topic(partition(leader=1, epoch=9), partition(1, epoch=9)))
    merged = merge(view, response(topic(partition(leader=3, epoch=0), topic_id=ID_B)), requested=["orders"])
    assert seen(merged) == (3, 0)
    assert merged.topics["orders"].topic_id == ID_B
    assert len(merged.topics["orders"].partitions) == 1, "nothing of the old topic is kept"


def test_broker_without_topic_ids_does_not_reset_a_topic() -> None:
    view = known(topic(partition(leader=1, epoch=9)))
    merged = merge(view, response(topic(partition(leader=3, epoch=2), topic_id=ZERO_UUID)), requested=["orders"])
    assert seen(merged) == (1, 9)
    assert merged.topics["orders"].topic_id == ID_A


def test_a_topic_that_vanishes_briefly_keeps_partitions_and_epochs_but_has_no_leader() -> None:
    view = known(topic(partition(leader=1, epoch=9), partition(1)))
    gone = merge(view, response(topic(topic_id=ZERO_UUID, error=3)), requested=["orders"])
    assert gone.topics["orders"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not gone.topics["orders"].is_usable
    assert len(gone.topics["orders"].partitions) == 2
    assert gone.leader_of(ORDERS_0) is None
    back = merge(gone, response(topic(partition(leader=2, epoch=8), partition(1))), requested=["orders"])
    assert seen(back) == (1, 9), "a stale answer after the pause is still stale"
    assert back.leader_of(ORDERS_0) == Node(1, "kafka", 9091)


def test_a_topic_without_id_starts_from_nothing_after_it_was_gone() -> None:
    view = known(topic(partition(leader=1, epoch=9), topic_id=ZERO_UUID))
    gone = merge(view, response(topic(topic_id=ZERO_UUID, error=3)), requested=["orders"])
    back = merge(gone, response(topic(partition(leader=2, epoch=0), topic_id=ZERO_UUID)), requested=["orders"])
    assert seen(back) == (2, 0)


def test_partition_missing_in_a_lagging_answer_stays() -> None:
    view = known(topic(partition(0), partition(1), partition(2)))
    merged = merge(view, response(topic(partition(1, leader=2, epoch=1))), requested=["orders"])
    assert [p.partition for p in merged.topics["orders"].partitions] == [0, 1, 2]
    assert seen(merged, 1) == (2, 1)


def test_an_answer_that_contradicts_a_newer_one_is_ignored_however_often_it_comes() -> None:
    newer = view = known(topic(partition(0, leader=2, epoch=8), partition(1, leader=2)))
    for minute in range(60):
        older = topic(partition(0, leader=1, epoch=4))
        view = merge(view, response(older), requested=["orders"], keep={"orders"}, now=60.0 * minute)
    assert view.topics is newer.topics


def test_fewer_partitions_without_a_topic_id_are_accepted() -> None:
    view = known(topic(partition(0), partition(1), topic_id=ZERO_UUID))
    merged = merge(view, response(topic(partition(0), topic_id=ZERO_UUID)), requested=["orders"])
    assert len(merged.topics["orders"].partitions) == 1


def test_partitions_are_ordered_and_found_across_gaps() -> None:
    view = known(topic(partition(4, leader=2), partition(0), partition(2, leader=3)))
    assert [p.partition for p in view.topics["orders"].partitions] == [0, 2, 4]
    assert seen(view, 4) == (2, 0)
    assert view.partition(TopicPartition("orders", 1)) is None
    assert view.partition(TopicPartition("orders", -1)) is None


def test_a_leader_that_is_not_listed_is_no_leader() -> None:
    view = merge(ClusterView(), response(topic(partition(leader=7))), requested=["orders"])
    assert view.leader_of(ORDERS_0) is None


def test_leaderless_partitions_and_retriable_errors_are_unsettled() -> None:
    view = known(topic(partition(leader=-1, error=5)), topic(name="gone", error=3), topic(name="secret", error=29))
    assert list(view.unsettled(["orders", "gone", "secret", "never heard of"])) == ["orders", "gone"]
    present = view.partition(ORDERS_0)
    assert present is not None
    assert present.error is ErrorCode.LEADER_NOT_AVAILABLE


NO_ID: dict[str, Any] = {"topic_id": ZERO_UUID}


def older_answers(view: ClusterView, times: list[float], **ids: Any) -> ClusterView:
    for now in times:
        view = merge(view, response(topic(partition(leader=3, epoch=1), **ids)), requested=["orders"], now=now)
    return view


def test_without_topic_ids_lower_epochs_count_after_five_answers_and_five_seconds() -> None:
    view = known(topic(partition(leader=2, epoch=7), **NO_ID))
    view = older_answers(view, [10.0, 11.0, 12.0, 13.0, 14.0, 14.9], **NO_ID)
    assert seen(view) == (2, 7)
    view = older_answers(view, [15.0], **NO_ID)
    assert seen(view) == (3, 1)
    assert seen(older_answers(view, [15.1], **NO_ID)) == (3, 1)


def test_four_older_answers_are_ignored_however_long_they_come() -> None:
    view = known(topic(partition(leader=2, epoch=7), **NO_ID))
    assert seen(older_answers(view, [10.0, 100.0, 1_000.0, 10_000.0, 20_000.0], **NO_ID)) == (2, 7)


def test_an_answer_with_the_known_epoch_ends_the_count_of_older_answers() -> None:
    view = known(topic(partition(leader=2, epoch=7), **NO_ID))
    view = older_answers(view, [10.0, 11.0, 12.0, 13.0, 14.0], **NO_ID)
    view = merge(view, response(topic(partition(leader=2, epoch=7), **NO_ID)), requested=["orders"], now=14.5)
    view = older_answers(view, [15.0, 16.0], **NO_ID)
    assert seen(view) == (2, 7)


def test_with_topic_ids_lower_epochs_never_count() -> None:
    view = known(topic(partition(leader=2, epoch=7)))
    assert seen(older_answers(view, [float(now) for now in range(10, 60)])) == (2, 7)


def test_a_topic_that_was_shown_is_unsettled_while_it_is_refused() -> None:
    view = merge(known(topic(partition(0))), response(topic(error=29)), requested=["orders"])
    assert list(view.unsettled(["orders"])) == ["orders"]
    assert view.topics["orders"].partitions


def test_an_answer_about_some_topics_keeps_the_other_tracked_ones() -> None:
    view = known(topic(partition(0)), topic(partition(0), name="a"), topic(partition(0), name="b"))
    merged = merge(view, response(topic(partition(0, epoch=1))), requested=["orders"], keep={"a", "orders"})
    assert set(merged.topics) == {"orders", "a"}
    assert merged.topics["a"] is view.topics["a"]


def test_an_answer_about_all_topics_marks_the_others_as_gone() -> None:
    view = known(topic(partition(0)), topic(partition(0), name="a"))
    merged = merge(view, response(topic(partition(0))), requested=None, keep={"orders", "a"})
    assert merged.topics["a"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert merged.topics["orders"].error is ErrorCode.NONE


def test_unchanged_parts_are_the_same_objects() -> None:
    view = known(topic(partition(0)), topic(partition(0), name="a", topic_id=ID_B))
    same = merge(
        view,
        response(topic(partition(0)), topic(partition(0), name="a", topic_id=ID_B)),
        requested=["orders", "a"],
        now=2.0,
    )
    assert same.topics is view.topics
    assert same.nodes is view.nodes
    assert same.same_as(view)
    assert same.updated_at == 2.0
    moved = merge(
        view,
        response(topic(partition(0, epoch=1)), topic(partition(0), name="a", topic_id=ID_B)),
        requested=["orders", "a"],
    )
    assert moved.topics["a"] is view.topics["a"]
    assert not moved.same_as(view)


def test_another_cluster_id_replaces_the_snapshot() -> None:
    view = known(topic(partition(leader=1, epoch=9)))
    merged = merge(
        view, response(topic(partition(leader=2, epoch=0)), cluster_id="other"), requested=["orders"], keep={"orders"}
    )
    assert seen(merged) == (2, 0)


def test_snapshot_cannot_be_changed() -> None:
    view = known(topic(partition(0)))
    with pytest.raises(TypeError):
        view.topics["x"] = view.topics["orders"]  # type: ignore[index]


def test_a_hint_moves_the_leader_and_adds_its_address() -> None:
    view = known(topic(partition(0, 1, 5), partition(1, 1, 5)))
    hinted = merge_leader(view, ORDERS_0, 9, 6, [Node(9, "new", 1, "r")])
    assert hinted.leader_of(ORDERS_0) == Node(9, "new", 1, "r")
    assert seen(hinted) == (9, 6)
    assert seen(hinted, 1) == (1, 5)
    stale = merge(hinted, response(topic(partition(0, 1, 5), partition(1, 1, 5))), requested=["orders"])
    assert seen(stale) == (9, 6), "an answer older than the hint does not undo it"


@pytest.mark.parametrize(
    ("where", "leader", "epoch"),
    [
        pytest.param(ORDERS_0, 2, 5, id="an equal epoch says nothing new"),
        pytest.param(ORDERS_0, 2, 4, id="a lower epoch is old"),
        pytest.param(ORDERS_0, -1, 6, id="no leader is no hint"),
        pytest.param(ORDERS_0, 9, 6, id="a broker without an address is of no use"),
        pytest.param(ORDERS_0, 2, -1, id="without epoch it cannot be compared"),
        pytest.param(TopicPartition("orders", 5), 2, 6, id="unknown partition"),
        pytest.param(TopicPartition("other", 0), 2, 6, id="unknown topic"),
    ],
)
def test_a_hint_that_is_not_newer_keeps_the_snapshot(where: TopicPartition, leader: int, epoch: int) -> None:
    view = known(topic(partition(0, 1, 5)))
    assert merge_leader(view, where, leader, epoch) is view


answers = st.lists(
    st.tuples(
        st.integers(-1, 4),  # leader
        st.integers(0, 6),  # epoch
        st.sampled_from([0, 0, 0, 3, 5]),  # error of the topic
        st.booleans(),  # partition 1 is left out
    ),
    max_size=12,
)


@given(answers)
def test_lower_epoch_never_wins_while_the_topic_is_the_same(story: list[tuple[int, int, int, bool]]) -> None:
    view, highest = ClusterView(), -1
    for leader, epoch, error, short in story:
        partitions = [partition(0, leader, epoch)] + ([] if short else [partition(1)])
        answer = topic(topic_id=ZERO_UUID, error=error) if error else topic(*partitions)
        view = merge(view, response(answer), requested=["orders"], keep={"orders"})
        if not error:
            if epoch >= highest:
                assert seen(view) == (None if leader < 0 else leader, epoch)
            highest = max(highest, epoch)
        if highest >= 0:
            assert seen(view)[1] == highest
            assert view.topics["orders"].topic_id == ID_A


@given(answers, st.integers(0, 6))
def test_another_topic_id_always_wins(story: list[tuple[int, int, int, bool]], epoch: int) -> None:
    view = ClusterView()
    for leader, old_epoch, error, _ in story:
        answer = topic(topic_id=ZERO_UUID, error=error) if error else topic(partition(0, leader, old_epoch))
        view = merge(view, response(answer), requested=["orders"], keep={"orders"})
    view = merge(view, response(topic(partition(0, 2, epoch), topic_id=ID_B)), requested=["orders"])
    assert seen(view) == (2, epoch)
    assert len(view.topics["orders"].partitions) == 1


@given(answers)
def test_hints_never_lower_an_epoch(story: list[tuple[int, int, int, bool]]) -> None:
    view = known(topic(partition(0, 1, 3)))
    for leader, epoch, _, whole in story:
        before = seen(view)[1] or 0
        if whole:
            view = merge(view, response(topic(partition(0, leader, epoch))), requested=["orders"])
        else:
            view = merge_leader(view, ORDERS_0, leader, epoch, [Node(4, "h", 1)])
        assert (seen(view)[1] or 0) >= before


@pytest.mark.parametrize("topics, partitions", [(1, 5 * SLICE), (SLICE, 5), (5 * SLICE, 0)])
def test_a_large_answer_is_merged_in_slices(topics: int, partitions: int) -> None:
    """The snapshot comes last, and whole."""
    answer = response(
        *(topic(*map(partition, range(partitions)), name=f"t{number}") for number in range(topics)),
    )
    *slices, view = merging(ClusterView(), MetadataAnswer(answer), requested=None)
    assert len(slices) >= 4
    assert set(slices) == {None}
    assert view is not None
    assert len(view.topics) == topics
    assert sum(len(topic.partitions) for topic in view.topics.values()) == topics * partitions
