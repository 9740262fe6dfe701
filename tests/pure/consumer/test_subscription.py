"""The subscription, the plan for lookups, and the classification of error codes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aiokafka_lite.cluster.metadata import ClusterView, PartitionView, TopicView
from aiokafka_lite.consumer.fetch.fetchers import new_partitions
from aiokafka_lite.consumer.fetch.lookup_plan import plan_lookups
from aiokafka_lite.consumer.fetch.request import FetchOutcome, classify
from aiokafka_lite.consumer.partition import AssignedPartition
from aiokafka_lite.consumer.position import ResetStrategy
from aiokafka_lite.consumer.subscription import Subscription, SubscriptionObserver
from aiokafka_lite.errors import ErrorCode, IllegalStateError
from aiokafka_lite.protocol.records import encode_batch, split_batches
from aiokafka_lite.types import Node, TopicPartition
from tests.case_notes import case

TOPIC_ID = bytes(range(16))
FETCH_SIZE = 1_000


def view(leaders: list[int | None], topic_id: bytes = TOPIC_ID) -> ClusterView:
    """Return a cluster of brokers 1 to 3 with the topic "orders", whose partitions have these leaders."""
    partitions = tuple(PartitionView(number, leader, 5 + number) for number, leader in enumerate(leaders))
    return ClusterView(
        nodes={node: Node(node, "host", 9000 + node) for node in (1, 2, 3)},
        topics={"orders": TopicView("orders", topic_id, partitions=partitions)},
    )


def subscribed(count: int) -> tuple[Subscription, list[AssignedPartition]]:
    """Return partitions of "orders", read from 100 times their number on."""
    subscription = Subscription(ResetStrategy.EARLIEST, FETCH_SIZE, SubscriptionObserver())
    subscription.assign(TopicPartition("orders", number) for number in range(count))
    for number, state in enumerate(subscription):
        state.seek(100 * number)
    return subscription, list(subscription)


def give(state: AssignedPartition, size: int) -> None:
    """Put a batch of about this many bytes into the buffer."""
    state.buffer.add(split_batches(encode_batch([(0, None, b"x" * size, ())], base_offset=state.buffer.end)), None)


def test_offsets_are_looked_up_at_leaders_and_leaderless_partitions_are_listed() -> None:
    subscription, states = subscribed(4)
    states[0].reset_by(ResetStrategy.EARLIEST)
    states[1].reset_by(ResetStrategy.LATEST)
    states[2].reset_by(ResetStrategy.LATEST)
    states[2].back_off(7.0)
    plan = plan_lookups(subscription, view([2, 3, 1, None]), now=0.0)
    assert plan.by_node == {2: [states[0]], 3: [states[1]]}
    assert (plan.leaderless, plan.retry_at) == ([states[3]], 7.0)
    states[0].position.begin_lookup()
    assert plan_lookups(subscription, view([2, 3, 1, None]), now=0.0).by_node == {3: [states[1]]}


def test_new_partitions_of_a_topic_are_noticed() -> None:
    subscription, _ = subscribed(2)
    added = new_partitions(view([1, 1, 1]), ["orders", "unknown"], subscription.partitions)
    assert added == [TopicPartition("orders", 2)]


def test_readable_partitions_take_turns() -> None:
    subscription, states = subscribed(3)
    for state in states[:2]:
        give(state, 10)
    for state in states:
        subscription.update_ready(state)
    assert list(subscription.ready.values()) == states[:2]
    subscription.end_turn(states[0])
    assert list(subscription.ready.values()) == [states[1], states[0]]
    states[1].paused = True
    subscription.update_ready(states[1])
    subscription.assign([])
    assert subscription.ready == {}
    assert not subscription.holds(states[0])
    with pytest.raises(IllegalStateError, match="orders-0"):
        subscription[TopicPartition("orders", 0)]


def test_every_error_code_is_classified_and_no_retriable_one_is_raised() -> None:
    for code in ErrorCode:
        with case(code):
            outcome = classify(code)
            assert (outcome is FetchOutcome.DATA) == (code is ErrorCode.NONE)
            assert (outcome is FetchOutcome.RESET) == (code is ErrorCode.OFFSET_OUT_OF_RANGE)
            if code.stale_metadata:
                assert outcome is FetchOutcome.REFRESH
            elif code.retriable and code is not ErrorCode.CORRUPT_MESSAGE:
                assert outcome in (FetchOutcome.RETRY, FetchOutcome.REFRESH)


def test_two_codes_are_classified_as_in_javas_consumer_and_not_by_the_shared_rule() -> None:
    assert classify(ErrorCode.UNKNOWN_SERVER_ERROR) is FetchOutcome.RETRY
    assert classify(ErrorCode.CORRUPT_MESSAGE) is FetchOutcome.RAISE


class Recording(SubscriptionObserver):
    """Notes every step that a subscription reports, with the offset of orders-0 at that moment."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, object]] = []
        self.subscription = Subscription(ResetStrategy.EARLIEST, FETCH_SIZE, self)

    def settle(self) -> None:
        assigned = self.subscription.partitions.get(FIRST)
        self.steps.append(("settle", None if assigned is None else assigned.offset))

    def on_moved(self, partitions: Sequence[TopicPartition]) -> None:
        self.steps.append(("moved", list(partitions)))

    def on_removed(self, partitions: Sequence[TopicPartition]) -> None:
        self.steps.append(("removed", list(partitions)))

    def on_change(self, partitions: Sequence[AssignedPartition]) -> None:
        self.steps.append(("change", self.subscription.partitions.keys() & {FIRST, SECOND}))


FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_each_change_settles_then_reports_then_changes_then_notifies() -> None:
    observer = Recording()
    subscription = observer.subscription
    subscription.assign([FIRST, SECOND])
    subscription.change(list(subscription), lambda assigned: assigned.seek(7), moves=True)
    subscription.remove([FIRST])
    assert observer.steps == [
        ("settle", None),
        ("change", {FIRST, SECOND}),
        ("settle", None),
        ("moved", [FIRST, SECOND]),
        ("change", {FIRST, SECOND}),
        ("settle", 7),  # the last moment at which the reader may note its position
        ("removed", [FIRST]),
        ("change", {SECOND}),
    ]


def test_a_change_updates_the_turns_and_skips_partitions_that_were_assigned_again() -> None:
    observer = Recording()
    subscription = observer.subscription
    (old,) = subscription.extend([FIRST])
    subscription.remove([FIRST])
    (new,) = subscription.extend([FIRST], lambda assigned: assigned.seek(0))
    give(new, 10)
    subscription.change([old], lambda assigned: assigned.seek(99))
    assert (old.offset, new.offset) == (None, 0)
    subscription.change([new], lambda assigned: assigned.pause(False))
    assert list(subscription.ready) == [FIRST]
    subscription.change([new], lambda assigned: assigned.pause(True))
    assert list(subscription.ready) == []
