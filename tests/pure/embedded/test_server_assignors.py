"""The assignors of the coordinator, on random groups that change."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite.embedded.server_assignors import ASSIGNORS, Assignment, Subscriber, range_, uniform

TOPICS = [bytes([number]) * 16 for number in range(4)]
PARTITION_COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7))
SUBSCRIPTION_SETS = st.dictionaries(st.sampled_from("abcdef"), st.sets(st.sampled_from(TOPICS)), min_size=1)


Counts = dict[bytes, int]
Subscriptions = dict[str, set[bytes]]


def group(subscriptions: Subscriptions, counts: Counts, before: Assignment) -> dict[str, Subscriber]:
    return {
        member: Subscriber({each for each in topics if each in counts}, before.get(member, set()))
        for member, topics in subscriptions.items()
    }


@given(st.sampled_from(sorted(ASSIGNORS)), PARTITION_COUNTS, SUBSCRIPTION_SETS, SUBSCRIPTION_SETS)
def test_every_partition_with_a_subscriber_has_one_owner(
    name: str, counts: Counts, first: Subscriptions, then: Subscriptions
) -> None:
    before = ASSIGNORS[name](group(first, counts, {}), counts)
    after = ASSIGNORS[name](group(then, counts, before), counts)
    owned = sorted(partition for partitions in after.values() for partition in partitions)
    subscribed = {topic for topics in then.values() for topic in topics}
    assert owned == sorted((topic, each) for topic in subscribed & set(counts) for each in range(counts[topic]))
    assert all(topic in then[member] for member, partitions in after.items() for topic, _ in partitions)


@given(PARTITION_COUNTS, SUBSCRIPTION_SETS, SUBSCRIPTION_SETS)
def test_uniform_is_balanced(counts: Counts, first: Subscriptions, then: Subscriptions) -> None:
    after = uniform(group(then, counts, uniform(group(first, counts, {}), counts)), counts)
    for one, other in combinations(after, 2):
        small, large = sorted((one, other), key=lambda member: len(after[member]))
        could_move = [topic for topic, _ in after[large] if topic in then[small]]
        assert len(after[large]) - len(after[small]) <= 1 or not could_move


@given(PARTITION_COUNTS, st.integers(1, 6), st.integers(1, 6))
def test_uniform_moves_no_more_than_balance_needs(counts: Counts, first: int, then: int) -> None:
    def members(number: int) -> dict[str, set[bytes]]:
        return {member: set(TOPICS) for member in "abcdef"[:number]}

    before = uniform(group(members(first), counts, {}), counts)
    after = uniform(group(members(then), counts, before), counts)
    total = sum(counts.values())
    quota, extra = divmod(total, then)
    sizes = sorted((len(before.get(member, ())) for member in members(then)), reverse=True)
    kept = sum(min(size, quota + (place < extra)) for place, size in enumerate(sizes))
    assert sum(len(before.get(member, set()) & owned) for member, owned in after.items()) == kept


@given(PARTITION_COUNTS, SUBSCRIPTION_SETS, SUBSCRIPTION_SETS)
def test_range_gives_each_member_an_equal_part_of_a_topic(
    counts: Counts, first: Subscriptions, then: Subscriptions
) -> None:
    after = range_(group(then, counts, range_(group(first, counts, {}), counts)), counts)
    for topic in counts:
        sizes = [sum(each == topic for each, _ in after[member]) for member in then if topic in then[member]]
        assert not sizes or max(sizes) - min(sizes) <= 1


def test_range_gives_the_same_numbers_of_equal_topics() -> None:
    counts = {TOPICS[0]: 4, TOPICS[1]: 4}
    first = range_(group({"a": set(counts), "b": set(counts)}, counts, {}), counts)
    then = range_(group({"a": set(counts), "b": set(counts), "c": set(counts)}, counts, first), counts)
    for owned in (*first.values(), *then.values()):
        numbers = [{number for topic, number in owned if topic == each} for each in counts]
        assert numbers[0] == numbers[1]
