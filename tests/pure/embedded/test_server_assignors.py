"""The assignors of the coordinator, on random groups that change, and beside Apache Kafka 4.3.1's assignors.

``assignors/MakeAssignments.java`` made the results of Kafka.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite.embedded.coordinators.groups.assignors import ASSIGNORS, Assignment, Subscriber, range_, uniform

TOPICS = [bytes([number]) * 16 for number in range(4)]
PARTITION_COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7))
SUBSCRIPTION_SETS = st.dictionaries(st.sampled_from("abcdef"), st.sets(st.sampled_from(TOPICS)), min_size=1)


Counts = dict[bytes, int]
Subscriptions = dict[str, set[bytes]]


def group(subscriptions: Subscriptions, counts: Counts, before: Assignment) -> dict[str, Subscriber]:
    return {
        member: Subscriber({topic for topic in topics if topic in counts}, before.get(member, set()))
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
    assert owned == sorted((topic, number) for topic in subscribed & set(counts) for number in range(counts[topic]))
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
        sizes = [sum(name == topic for name, _ in after[member]) for member in then if topic in then[member]]
        assert not sizes or max(sizes) - min(sizes) <= 1


class KafkasAssignment(NamedTuple):
    """A group, and the assignment that Kafka's assignor made."""

    assignor: str
    topics: Counts
    members: dict[str, Subscriber]
    assignment: Assignment

    @classmethod
    def read(cls, line: str) -> KafkasAssignment:
        assignor, *columns = line.split(" | ")
        topics, subscriptions, before, after = (dict(pair.split("=") for pair in text.split(" ")) for text in columns)
        owned = partitions_of(before)
        members = {}
        for member, text in subscriptions.items():
            names, _, instance_id = text.partition(":")
            members[member] = Subscriber({name.encode() for name in names}, owned[member], instance_id or None)
        read = {name for member in members.values() for name in member.topics}
        counts = {name.encode(): int(count) for name, count in topics.items() if name.encode() in read}
        return cls(assignor, counts, members, partitions_of(after))

    @property
    def same_subscriptions(self) -> bool:
        return len({frozenset(member.topics) for member in self.members.values()}) == 1

    def kept(self, assignment: Assignment) -> int:
        """Return the number of partitions that stay with their members."""
        return sum(len(owned & self.members[member].assigned) for member, owned in assignment.items())


def partitions_of(texts: dict[str, str]) -> Assignment:
    """Read partitions by member, such as ``{"a": "A0,B1"}``."""
    return {
        member: {(name[0].encode(), int(name[1:])) for name in text.split(",") if name}
        for member, text in texts.items()
    }


def kafkas_assignments(assignor: str) -> list[KafkasAssignment]:
    lines = (Path(__file__).parent / "assignors" / "assignments.txt").read_text().splitlines()
    return [case for case in map(KafkasAssignment.read, lines) if case.assignor == assignor]


def test_range_assigns_as_kafka_does() -> None:
    for case in kafkas_assignments("range"):
        assert range_(case.members, case.topics) == case.assignment, case


def test_uniform_balances_as_kafka_does_and_moves_no_more() -> None:
    """With different subscriptions Kafka's result may be less balanced, and one partition may move more here."""
    for case in kafkas_assignments("uniform"):
        assignment = uniform(case.members, case.topics)
        sizes, kafkas = (sorted(map(len, owned.values())) for owned in (assignment, case.assignment))
        if case.same_subscriptions:
            assert sizes == kafkas, case
            assert case.kept(assignment) == case.kept(case.assignment), case
        else:
            assert sum(size * size for size in sizes) <= sum(kafka * kafka for kafka in kafkas), case
            assert case.kept(assignment) >= case.kept(case.assignment) - 1, case


def test_uniform_keeps_the_first_partitions_of_a_member() -> None:
    counts = {TOPICS[0]: 4}
    first = uniform(group({"a": set(counts)}, counts, {}), counts)
    then = uniform(group({"a": set(counts), "b": set(counts)}, counts, first), counts)
    assert then["a"] == {(TOPICS[0], 0), (TOPICS[0], 1)}


def test_range_gives_the_same_numbers_of_equal_topics() -> None:
    counts = {TOPICS[0]: 4, TOPICS[1]: 4}
    first = range_(group({"a": set(counts), "b": set(counts)}, counts, {}), counts)
    then = range_(group({"a": set(counts), "b": set(counts), "c": set(counts)}, counts, first), counts)
    for owned in (*first.values(), *then.values()):
        numbers = [{number for topic, number in owned if topic == count} for count in counts]
        assert numbers[0] == numbers[1]
