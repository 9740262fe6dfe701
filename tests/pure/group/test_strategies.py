"""Assignment strategies: each partition is assigned once and evenly, with few moves, as other clients do it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.group.strategies import (
    BY_NAME,
    AssignmentStrategy,
    CooperativeStickyStrategy,
    GroupMember,
    RangeStrategy,
    RoundRobinStrategy,
    StickyStrategy,
    TopicRacks,
    checked_strategies,
)
from aiokafka_lite.types import TopicPartition

ALL: list[AssignmentStrategy] = [strategy() for strategy in BY_NAME.values()]
EVEN: list[AssignmentStrategy] = [strategy for strategy in ALL if not isinstance(strategy, RangeStrategy)]
ANYWHERE: frozenset[str] = frozenset()


def topics(**counts: int) -> TopicRacks:
    return {name: [ANYWHERE] * count for name, count in counts.items()}


def member(name: str, *subscribed: str, **more: object) -> GroupMember:
    return GroupMember(name, subscribed, **more)  # type: ignore[arg-type]


def partitions(*names: str) -> list[TopicPartition]:
    return [TopicPartition(name[:-1], int(name[-1])) for name in names]


def rejoin(
    strategy: AssignmentStrategy,
    assignment: dict[str, list[TopicPartition]],
    members: list[GroupMember],
    generation: int,
) -> list[GroupMember]:
    """Return the members as they join again after an assignment."""
    return [
        replace(
            member,
            owned=tuple(assignment.get(member.member_id, ())) if strategy.cooperative else (),
            user_data=strategy.user_data(assignment.get(member.member_id, ()), generation),
        )
        for member in members
    ]


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[GroupMember], TopicRacks]:
    names = [f"t{number}" for number in range(draw(st.integers(1, 4)))]
    existing = topics(**{name: draw(st.integers(1, 7)) for name in names})
    members = [
        member(
            f"m{number}",
            *draw(st.lists(st.sampled_from([*names, "gone"]), max_size=5)),
            instance_id=draw(st.sampled_from([None, f"i{number}"])),
        )
        for number in range(draw(st.integers(1, 7)))
    ]
    return members, existing


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: strategy.name)
@given(group=groups())
def test_each_partition_goes_to_one_subscriber_in_any_order_of_members(
    strategy: AssignmentStrategy, group: tuple[list[GroupMember], TopicRacks]
) -> None:
    members, existing = group
    assignment = strategy.assign(members, existing)
    topics = {topic for member in members for topic in member.topics} & set(existing)
    given_out = sorted(partition for got in assignment.values() for partition in got)
    assert given_out == sorted(TopicPartition(t, n) for t in topics for n in range(len(existing[t])))
    for member in members:
        assert {partition.topic for partition in assignment[member.member_id]} <= set(member.topics)
    assert strategy.assign(list(reversed(members)), existing) == assignment


@pytest.mark.parametrize("strategy", EVEN, ids=lambda strategy: strategy.name)
@given(count=st.integers(1, 6), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_members_with_equal_subscriptions_differ_by_one_partition_at_most(
    strategy: AssignmentStrategy, count: int, sizes: list[int]
) -> None:
    existing = topics(**{f"t{number}": size for number, size in enumerate(sizes)})
    assignment = strategy.assign([member(f"m{number}", *existing) for number in range(count)], existing)
    loads = [len(got) for got in assignment.values()]
    assert max(loads) - min(loads) <= 1


@given(group=groups())
def test_sticky_leaves_no_member_two_partitions_behind_if_it_could_take_one(
    group: tuple[list[GroupMember], TopicRacks],
) -> None:
    members, existing = group
    assignment = StickyStrategy().assign(members, existing)
    for poor in members:
        for got in assignment.values():
            if any(partition.topic in poor.topics for partition in got):
                assert len(got) - len(assignment[poor.member_id]) <= 1


@pytest.mark.parametrize("strategy", [StickyStrategy(), CooperativeStickyStrategy()], ids=attrgetter("name"))
@given(group=groups())
def test_sticky_moves_nothing_if_nothing_changed(
    strategy: AssignmentStrategy, group: tuple[list[GroupMember], TopicRacks]
) -> None:
    members, existing = group
    before = strategy.assign(members, existing)
    assert strategy.assign(rejoin(strategy, before, members, 1), existing) == before


@given(count=st.integers(2, 6), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_sticky_moves_only_partitions_that_a_new_member_needs(count: int, sizes: list[int]) -> None:
    strategy = StickyStrategy()
    existing = topics(**{f"t{number}": size for number, size in enumerate(sizes)})
    members = [member(f"m{number}", *existing) for number in range(count)]
    before = strategy.assign(members[:-1], existing)
    after = strategy.assign([*rejoin(strategy, before, members[:-1], 1), members[-1]], existing)
    for old in members[:-1]:
        assert set(after[old.member_id]) <= set(before[old.member_id])


@given(group=groups(), joined=st.integers(0, 3))
def test_cooperative_assigns_no_owned_partition_and_is_stable_after_a_few_rounds(
    group: tuple[list[GroupMember], TopicRacks], joined: int
) -> None:
    strategy = CooperativeStickyStrategy()
    members, existing = group
    topics = {topic for member in members for topic in member.topics} & set(existing)
    owned = strategy.assign(members[: max(1, len(members) - joined)], existing)
    for generation in range(1, 5):
        assignment = strategy.assign(rejoin(strategy, owned, members, generation), existing)
        owner = {partition: name for name, got in owned.items() for partition in got}
        for name, got in assignment.items():
            assert all(owner.get(partition, name) == name for partition in got)
        owned = assignment
    assert sum(map(len, owned.values())) == sum(len(existing[topic]) for topic in topics)
    assert strategy.assign(rejoin(strategy, owned, members, 5), existing) == owned


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: strategy.name)
def test_the_work_grows_with_the_input_and_not_with_the_square_of_the_partitions(strategy: AssignmentStrategy) -> None:
    """A group is scaled out from one member, and its members subscribe to different topics."""
    names = [f"t{number}" for number in range(100)]
    existing: TopicRacks = {name: [ANYWHERE] * 10 for name in names}
    owned = tuple(TopicPartition(name, number) for name in names for number in range(10))
    members = [member("first", *names, owned=owned, generation=1), *(member(f"all{n}", *names) for n in range(9))]
    members += [member(f"half{number}", *names[:50]) for number in range(100)]
    size = len(members) * len(names) + len(owned)
    assert _count_calls(lambda: strategy.assign(members, existing)) < 25 * size


def _count_calls(function: Callable[[], object]) -> int:
    """Return how many functions are called, builtin ones included."""
    count = 0

    def profile(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def test_a_partition_that_two_members_of_one_generation_claim_is_first_assigned_to_neither() -> None:
    claimed = tuple(partitions("t0"))
    members = [member(name, "t", owned=claimed, generation=3) for name in ("a", "b")]
    assert CooperativeStickyStrategy().assign(members, topics(t=1)) == {"a": [], "b": []}


def test_the_claim_of_the_later_generation_wins() -> None:
    claimed = tuple(partitions("t0"))
    members = [member("a", "t", owned=claimed, generation=3), member("b", "t", owned=claimed, generation=4)]
    assert CooperativeStickyStrategy().assign(members, topics(t=1)) == {"a": [], "b": partitions("t0")}


def test_range_divides_topics_of_equal_size_at_the_same_places() -> None:
    assignment = RangeStrategy().assign([member("b", "t", "u"), member("a", "t", "u")], topics(t=3, u=3))
    assert assignment == {"a": partitions("t0", "t1", "u0", "u1"), "b": partitions("t2", "u2")}


def test_range_prefers_partitions_with_a_replica_in_the_members_rack() -> None:
    racks = {"t": [frozenset("x"), frozenset("y"), frozenset("x"), frozenset("y")]}
    members = [member("a", "t", rack="y"), member("b", "t", rack="x")]
    assert RangeStrategy().assign(members, racks) == {"a": partitions("t1", "t3"), "b": partitions("t0", "t2")}


def test_range_keeps_the_shares_even_if_all_replicas_are_in_one_rack() -> None:
    members = [member("a", "t", rack="x"), member("b", "t", rack="y")]
    assignment = RangeStrategy().assign(members, {"t": [frozenset("x")] * 4})
    assert [len(got) for got in assignment.values()] == [2, 2]


def test_sticky_prefers_the_rack_for_partitions_without_an_owner() -> None:
    racks = {"t": [frozenset("x"), frozenset("y")]}
    members = [member("a", "t", rack="y"), member("b", "t", rack="x")]
    assert StickyStrategy().assign(members, racks) == {"a": partitions("t1"), "b": partitions("t0")}


def test_static_members_come_first_in_order_of_their_instance_ids() -> None:
    members = [member("0", "t"), member("9", "t", instance_id="a"), member("8", "t", instance_id="b")]
    assert RoundRobinStrategy().assign(members, topics(t=3)) == {
        "9": partitions("t0"),
        "8": partitions("t1"),
        "0": partitions("t2"),
    }


def test_sticky_user_data_equals_that_of_the_java_client() -> None:
    data = StickyStrategy().user_data(partitions("t1", "t0"), 5)
    assert data == bytes.fromhex("00000001 0001 74 00000002 00000000 00000001 00000005")


def test_user_data_without_a_generation_and_unreadable_user_data_are_accepted() -> None:
    strategy = StickyStrategy()
    old = strategy.user_data(partitions("t1"), 5)
    assert old is not None
    members = [member("a", "t", user_data=b"\xff"), member("b", "t", user_data=old[:-4])]
    assert strategy.assign(members, topics(t=2)) == {"a": partitions("t0"), "b": partitions("t1")}


def test_strategies_are_found_by_protocol_name_and_by_the_name_of_javas_class() -> None:
    java = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    assert [checked_strategy.name for checked_strategy in checked_strategies([java, "RangeAssignor"])] == [
        "cooperative-sticky",
        "range",
    ]
    assert [checked_strategy.name for checked_strategy in checked_strategies(list(BY_NAME))] == list(BY_NAME)


@pytest.mark.parametrize("wrong", [["MyAssignor"], "range", [RangeStrategy], [], ["range", RangeStrategy()], None])
def test_invalid_strategies_are_refused(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="strategies must be"):
        checked_strategies(wrong)
