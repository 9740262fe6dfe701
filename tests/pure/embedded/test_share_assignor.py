"""The assignor ``simple``: each partition has members, shares are even, and members keep what they can."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite.embedded.coordinators.share.assignor import assign

A, B = b"a" * 16, b"b" * 16


@given(members=st.integers(1, 9), partitions=st.integers(1, 9), joining=st.integers(0, 4), leaving=st.integers(0, 4))
def test_partitions_and_members_are_balanced(members: int, partitions: int, joining: int, leaving: int) -> None:
    names = [f"m{number}" for number in range(members)]
    before = assign({name: [A] for name in names}, {A: partitions}, {})
    names = [*names[min(leaving, members - 1) :], *(f"n{number}" for number in range(joining))]
    after = assign({name: [A] for name in names}, {A: partitions}, before)
    for assignment in (before, after):
        shares = Counter(target for owned in assignment.values() for target in owned)
        assert set(shares) == {(A, index) for index in range(partitions)}
        assert all(len(set(owned)) == len(owned) >= 1 for owned in assignment.values())
        sizes = [len(owned) for owned in assignment.values()]
        assert max(sizes) - min(sizes) <= 1
        assert max(shares.values()) <= -(-len(assignment) // partitions)


def test_nothing_moves_without_a_change() -> None:
    subscriptions = {name: [A] for name in "abc"}
    first = assign(subscriptions, {A: 5}, {})
    assert assign(subscriptions, {A: 5}, first) == first


def test_a_new_member_takes_partitions_and_the_others_keep_the_rest() -> None:
    before = assign({"first": [A]}, {A: 4}, {})
    after = assign({"first": [A], "second": [A]}, {A: 4}, before)
    assert after == {"first": [(A, 0), (A, 1)], "second": [(A, 2), (A, 3)]}


def test_members_get_only_partitions_of_their_topics() -> None:
    assignment = assign({"first": [A], "second": [A, B], "third": []}, {A: 2, B: 1}, {})
    assert assignment == {"first": [(A, 0)], "second": [(A, 1), (B, 0)], "third": []}
