"""The plan of one fetcher: the requested partitions, and the small cost of an update of the plan."""

from __future__ import annotations

import gc
import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite.cluster.metadata import ClusterView, PartitionView, TopicView
from aiokafka_lite.consumer.fetch.plan import FetchPlan, FetchPlanner
from aiokafka_lite.consumer.partition import AssignedPartition, FetchSource
from aiokafka_lite.consumer.position import ResetStrategy
from aiokafka_lite.consumer.subscription import Subscription, SubscriptionObserver
from aiokafka_lite.errors import error_for
from aiokafka_lite.protocol.records import encode_batch, split_batches
from aiokafka_lite.protocol.schema import ZERO_UUID
from aiokafka_lite.types import TopicPartition

TOPIC_ID, OTHER_ID = bytes(range(16)), bytes(range(16, 32))
FETCH_SIZE, FETCH_MAX = 1_000, 10_000
OTHER_BROKER = FetchSource(9, lambda: None)


def view(count: int, topic_id: bytes = TOPIC_ID, epoch: int = 5) -> ClusterView:
    """Return the topic "orders" with so many partitions; the leader epoch of each is its number more than ``epoch``."""
    partitions = tuple(PartitionView(number, 1, epoch + number) for number in range(count))
    return ClusterView(nodes={}, topics={"orders": TopicView("orders", topic_id, partitions=partitions)})


class Fetched:
    """Partitions of "orders", read from 100 times their number on, and the plan of their broker."""

    def __init__(self, count: int, node_id: int = 1) -> None:
        self.subscription = Subscription(ResetStrategy.EARLIEST, FETCH_SIZE, SubscriptionObserver())
        self.planner = FetchPlanner(node_id, FETCH_MAX)
        self.view = view(count)
        self.subscription.assign(TopicPartition("orders", number) for number in range(count))
        self.states = list(self.subscription)
        for number, state in enumerate(self.states):
            state.seek(100 * number)
            state.fetch_from(self.planner.source)

    def plan(self, now: float = 0.0) -> FetchPlan:
        return self.planner.plan(self.view, now)

    def asked(self, now: float = 0.0) -> list[int]:
        return [key.partition for key in self.plan(now).targets]

    def give(self, state: AssignedPartition, size: int) -> None:
        """Put a batch of about this many bytes into the buffer, as an answer does."""
        state.add(split_batches(encode_batch([(0, None, b"x" * size, ())], base_offset=state.buffer.end)), None)
        self.subscription.update_ready(state)

    def pause(self, state: AssignedPartition, paused: bool = True) -> None:
        self.subscription.change([state], lambda assigned: assigned.pause(paused))


def test_a_broker_is_asked_for_its_own_partitions_from_their_fetch_offsets() -> None:
    fetched = Fetched(3)
    fetched.states[1].fetch_from(OTHER_BROKER)
    plan = fetched.plan()
    assert {key.partition: target.offset for key, target in plan.targets.items()} == {0: 0, 2: 200}
    assert [target.current_leader_epoch for target in plan.targets.values()] == [5, 7]
    assert (plan.count, plan.max_bytes, plan.has_full_buffers, plan.by_name) == (2, FETCH_MAX, False, False)


def test_a_partition_that_moves_to_another_broker_leaves_the_plan() -> None:
    fetched, other = Fetched(2), FetchPlanner(2, FETCH_MAX)
    fetched.plan()
    fetched.states[0].fetch_from(other.source)
    assert (fetched.asked(), fetched.plan().count) == ([1], 1)
    assert [key.partition for key in other.plan(fetched.view, 0.0).targets] == [0]


def test_partitions_with_enough_data_are_left_out_until_half_is_read() -> None:
    fetched = Fetched(2)
    fetched.give(fetched.states[0], 300)
    assert fetched.asked() == [0, 1]
    fetched.give(fetched.states[0], 300)
    plan = fetched.plan()
    assert [key.partition for key in plan.targets] == [1]
    assert plan.has_full_buffers
    fetched.pause(fetched.states[0])
    assert not fetched.plan().has_full_buffers  # it is not read, so it needs no data soon
    fetched.pause(fetched.states[0], paused=False)
    while fetched.states[0].next_chunk(check_crc=True, max_size=10_000) is not None:
        fetched.states[0].buffer.chunk = None
    assert fetched.asked() == [1, 0]


@pytest.mark.parametrize(
    "hinder",
    [
        lambda fetched: fetched.pause(fetched.states[0]),
        lambda fetched: fetched.states[0].fail(error_for(29)),
        lambda fetched: fetched.states[0].back_off(10.0),
        lambda fetched: fetched.states[0].reset_by(ResetStrategy.LATEST),
        lambda fetched: fetched.subscription.remove([fetched.states[0].partition]),
    ],
    ids=["paused", "failed", "backing off", "without an offset", "not assigned any more"],
)
def test_a_partition_that_cannot_be_read_now_is_not_fetched(hinder) -> None:
    fetched = Fetched(2)
    assert fetched.asked() == [0, 1]
    hinder(fetched)
    assert fetched.asked() == [1]


def test_a_partition_is_fetched_again_at_the_end_of_its_backoff() -> None:
    fetched = Fetched(1)
    fetched.states[0].back_off(10.0)
    plan = fetched.plan(now=9.9)
    assert (plan.targets, plan.retry_at) == ({}, 10.0)
    assert fetched.asked(now=10.0) == [0]
    assert fetched.plan(now=10.0).retry_at is None


def test_a_partition_whose_lookup_ended_is_fetched() -> None:
    fetched = Fetched(1)
    state = fetched.states[0]
    state.reset_by(ResetStrategy.LATEST)
    assert fetched.asked() == []
    state.end_lookup(state.position.begin_lookup(), 7, None)
    assert [target.offset for target in fetched.plan().targets.values()] == [7]


def test_partitions_served_longest_ago_are_fetched_first() -> None:
    fetched = Fetched(3)
    first, second, third = fetched.states
    first.last_served, second.last_served, third.last_served = 9, 3, 6
    assert fetched.asked() == [1, 2, 0]
    fetched.give(second, 10)
    assert fetched.asked() == [2, 0, 1]


def test_buffered_bytes_reduce_the_bytes_that_are_asked_for() -> None:
    fetched = Fetched(3)
    first, second, _ = fetched.states
    fetched.give(first, 4_000)
    fetched.pause(first)
    assert FETCH_MAX - 4_200 < fetched.plan().max_bytes < FETCH_MAX - 4_000
    fetched.give(second, 7_000)
    assert fetched.plan().targets == {}  # no room, and reading continues
    fetched.pause(second)
    plan = fetched.plan()  # no room, and only this partition can continue
    assert ([key.partition for key in plan.targets], plan.max_bytes) == ([2], 1)
    fetched.subscription.assign([])
    plan = fetched.plan()
    assert (plan.count, plan.max_bytes) == (0, FETCH_MAX)


def test_partitions_of_a_preferred_follower_expire_while_they_are_fetched_from_it() -> None:
    fetched = Fetched(3, node_id=2)
    for state, node_id in zip(fetched.states, (2, 2, 1)):
        state.prefer(node_id, until=10.0)
    fetched.plan()
    assert fetched.planner.expired_followers(9.9) == []
    assert fetched.planner.expired_followers(10.0) == fetched.states[:2]
    fetched.states[0].fetch_from(OTHER_BROKER)
    fetched.plan()
    assert fetched.planner.expired_followers(10.0) == [fetched.states[1]]


def test_a_topic_without_an_id_is_fetched_by_name() -> None:
    fetched = Fetched(1)
    fetched.view = view(1, topic_id=ZERO_UUID)
    assert fetched.plan().by_name
    fetched.view = view(1)
    assert not fetched.plan().by_name


def test_answers_are_found_by_name_or_by_topic_id() -> None:
    fetched = Fetched(2)
    fetched.plan()
    find = fetched.planner.find
    for share in (find("orders", ZERO_UUID, 1), find("", TOPIC_ID, 1), find("orders", TOPIC_ID, 1)):
        assert share is not None
        assert (share.assigned, share.version) == (fetched.states[1], fetched.states[1].position.version)
    assert find("orders", ZERO_UUID, 2) is find("", OTHER_ID, 1) is find("other", ZERO_UUID, 1) is None
    fetched.states[1].back_off(1.0)
    fetched.plan()
    assert find("", TOPIC_ID, 1) is None  # not asked for


def test_a_topic_that_was_created_again_is_another_key() -> None:
    fetched = Fetched(1)
    fetched.plan()
    fetched.planner.session.next()
    fetched.planner.session.answered(7)
    fetched.view = view(1, topic_id=OTHER_ID)
    fetched.plan()
    request = fetched.planner.session.next()
    assert [key.topic_id for key in request.send] == [OTHER_ID]
    assert [key.topic_id for key in request.forget] == [TOPIC_ID]
    assert fetched.planner.find("", TOPIC_ID, 0) is None


def test_a_topic_that_was_created_again_is_not_fetched_at_offsets_of_the_old_one() -> None:
    fetched = Fetched(1)
    state = fetched.states[0]
    state.topic_id = TOPIC_ID
    assert fetched.asked() == [0]
    fetched.view = view(1, topic_id=ZERO_UUID)  # of a broker that does not know ids
    assert fetched.asked() == [0]
    fetched.view = view(1, topic_id=OTHER_ID)
    assert fetched.asked() == []
    state.topic_id = OTHER_ID
    state.seek(0)
    assert fetched.asked() == [0]


def test_a_partition_that_was_assigned_again_is_another_one() -> None:
    fetched = Fetched(1)
    fetched.plan()
    fetched.subscription.assign([])
    (again,) = fetched.subscription.extend(
        [TopicPartition("orders", 0)], lambda assigned: assigned.fetch_from(fetched.planner.source)
    )
    again.seek(50)
    plan = fetched.plan()
    assert ([target.offset for target in plan.targets.values()], plan.count) == ([50], 1)
    planned = fetched.planner.find("", TOPIC_ID, 0)
    assert planned is not None
    assert planned.assigned is again


def test_an_answer_costs_the_partitions_that_it_concerns_however_many_are_idle() -> None:
    fetched = Fetched(1_500)
    assert fetched.plan().updated == 1_500
    assert fetched.plan().updated == 0
    fetched.give(fetched.states[7], 10)
    fetched.give(fetched.states[8], 2_000)
    assert fetched.plan().updated == 2
    fetched.states[8].next_chunk(check_crc=True, max_size=10_000)
    assert fetched.plan().updated == 1
    fetched.view = view(1_500, epoch=6)
    assert fetched.plan().updated == 1_500  # new metadata


def test_a_plan_of_many_partitions_is_made_in_parts() -> None:
    fetched = Fetched(5_000)
    plans = [fetched.plan() for _ in range(3)]
    assert [(plan.count, plan.is_partial) for plan in plans] == [(2_000, True), (4_000, True), (5_000, False)]
    fetched.subscription.assign([])
    plans = [fetched.plan() for _ in range(3)]
    assert [(plan.count, plan.is_partial) for plan in plans] == [(3_000, True), (1_000, True), (0, False)]


def test_partitions_that_back_off_move_to_another_broker_however_many_they_are() -> None:
    fetched, other = Fetched(4_500), FetchPlanner(2, FETCH_MAX)
    while fetched.plan().is_partial:
        pass
    for state in fetched.states:
        state.back_off(1.0)
    while fetched.plan().is_partial:
        pass
    for state in fetched.states:
        state.fetch_from(other.source)
    fetched.view = view(4_500, epoch=6)
    plans = [fetched.plan(now=2.0) for _ in range(3)]
    assert [(plan.count, plan.is_partial) for plan in plans] == [(2_500, True), (500, True), (0, False)]
    assert [len(other.plan(fetched.view, 2.0).targets) for _ in range(3)] == [2_000, 4_000, 4_500]


def test_an_answer_is_applied_before_new_partitions_are_planned() -> None:
    fetched, memory = Fetched(6_500), 10_000_000
    fetched.planner.max_bytes = memory
    plan = fetched.plan()
    while plan.is_partial:
        for key in list(plan.targets)[:1_500]:
            fetched.give(fetched.states[key.partition], 20)
        plan = fetched.plan()
        assert all(target.offset == fetched.states[key.partition].buffer.end for key, target in plan.targets.items())
        assert plan.max_bytes == memory - sum(state.buffer.bytes for state in fetched.states)
    assert plan.count == 6_500


def test_new_partitions_are_planned_however_many_others_change() -> None:
    fetched = Fetched(4_500)
    for _ in range(2):
        for state in fetched.states[:2_000]:
            state.seek(7)
        fetched.plan()
    assert fetched.plan().count == 4_500


def test_nothing_is_asked_for_while_a_planned_partition_is_out_of_date() -> None:
    fetched = Fetched(2_500)
    while fetched.plan().is_partial:
        pass
    fetched.subscription.change(fetched.states, lambda state: state.seek(7), moves=True)
    plan = fetched.plan()
    assert (plan.targets, plan.is_partial) == ({}, True)
    plan = fetched.plan()
    assert not plan.is_partial
    assert {target.offset for target in plan.targets.values()} == {7}
    assert len(plan.targets) == 2_500


def test_buffered_data_of_a_partition_that_moves_here_counts_before_other_new_partitions_are_planned() -> None:
    fetched = Fetched(2_500)
    fetched.states[-1].fetch_from(OTHER_BROKER)
    fetched.give(fetched.states[-1], 4_000)
    fetched.states[-1].fetch_from(fetched.planner.source)
    assert fetched.plan().max_bytes == FETCH_MAX - fetched.states[-1].buffer.bytes


def test_an_idle_partition_takes_at_most_a_kilobyte() -> None:
    Fetched(10).plan()  # these are made once
    gc.collect()
    tracemalloc.start()
    try:
        fetched = Fetched(2_000)
        of_metadata = sys.getsizeof(fetched.view.topics["orders"].partitions[0]) + 100
        fetched.plan()
        fetched.planner.session.next()
        fetched.planner.session.answered(7)
        gc.collect()
        memory, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert memory / 2_000 - of_metadata < 1_024


STEPS = st.tuples(
    st.sampled_from(
        ["give", "give much", "read", "pause", "resume", "seek", "back off", "fail", "reset", "leave", "come"]
    ),
    st.integers(0, 3),
)


@given(st.lists(STEPS, max_size=40), st.data())
def test_a_kept_plan_is_the_plan_that_would_be_made_again(steps: list[tuple[str, int]], data: st.DataObject) -> None:
    fetched, now = Fetched(4), 0.0
    other = FetchSource(2, lambda: None)
    for step, number in steps:
        now += 1.0
        state = fetched.states[number]
        match step:
            case "give" | "give much" if not state.position.is_known:
                pass
            case "give":
                fetched.give(state, 100)
            case "give much":
                fetched.give(state, 3_000)
            case "read":
                if state.failure is None and state.next_chunk(check_crc=True, max_size=10_000) is not None:
                    state.buffer.chunk = None
            case "pause":
                fetched.pause(state)
            case "resume":
                fetched.pause(state, paused=False)
            case "seek":
                fetched.subscription.change([state], lambda assigned: assigned.seek(50), moves=True)
            case "back off":
                state.back_off(now + 3.0)
            case "fail":
                state.fail(error_for(29))
            case "reset":
                state.reset_by(ResetStrategy.LATEST)
            case "leave":
                state.fetch_from(other)
            case "come":
                if state.source is not fetched.planner.source:
                    state.fetch_from(fetched.planner.source)
        if not data.draw(st.booleans()):
            continue
        kept, again = fetched.plan(now), FetchPlanner(1, FETCH_MAX)
        states = [state for state in fetched.states if state.source is fetched.planner.source]
        for state in states:
            state.source = again.source
            again.source.changed[state] = None
        expected = again.plan(fetched.view, now)
        for state in states:
            state.source = fetched.planner.source
        assert dict(kept.targets) == dict(expected.targets)
        for name in ("count", "max_bytes", "has_full_buffers", "has_backlog", "by_name", "retry_at"):
            assert getattr(kept, name) == getattr(expected, name), name
