"""Where records go, with a key and without."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite.cluster.metadata import ClusterView, PartitionView, TopicView
from aiokafka_lite.producer.partitioner import DefaultPartitioner, RoundRobinPartitioner


def view_of(count: int, *, leaderless: tuple[int, ...] = ()) -> ClusterView:
    partitions = tuple(
        PartitionView(number, None if number in leaderless else 1, 0, (1,), (1,)) for number in range(count)
    )
    return ClusterView(topics={"t": TopicView("t", partitions=partitions)})


# Placed by the Java client's BuiltInPartitioner.partitionForKey: toPositive(murmur2(key)) % count.
JAVA_HASHES = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize("key, hashed", JAVA_HASHES)
@pytest.mark.parametrize("count", [1, 3, 50])
def test_a_key_goes_where_the_java_client_puts_it(key: bytes, hashed: int, count: int) -> None:
    assert DefaultPartitioner().partition("t", key, None, view_of(count)) == (hashed & 0x7FFFFFFF) % count


@given(key=st.binary(), count=st.integers(1, 100))
def test_a_key_always_goes_to_the_same_partition(key: bytes, count: int) -> None:
    view = view_of(count)
    partitioner = DefaultPartitioner()
    chosen = partitioner.partition("t", key, b"one", view)
    partitioner.on_new_batch("t", chosen, 10**6, view)
    assert 0 <= chosen < count
    assert partitioner.partition("t", key, b"another", view) == chosen


def test_without_a_key_records_stay_until_a_batch_is_over() -> None:
    view = view_of(5)
    partitioner = DefaultPartitioner(sticky_bytes=1_000)
    sticky = partitioner.partition("t", None, b"v", view)
    assert {partitioner.partition("t", None, b"v", view) for _ in range(100)} == {sticky}
    partitioner.on_new_batch("t", sticky, 999, view)
    assert partitioner.partition("t", None, b"v", view) == sticky
    partitioner.on_new_batch("t", sticky, 1, view)
    assert partitioner.partition("t", None, b"v", view) != sticky


def test_the_end_of_a_batch_elsewhere_does_not_matter() -> None:
    view = view_of(5)
    partitioner = DefaultPartitioner(sticky_bytes=1)
    sticky = partitioner.partition("t", None, b"v", view)
    partitioner.on_new_batch("t", (sticky + 1) % 5, 10_000, view)
    partitioner.on_new_batch("another topic", sticky, 10_000, view)
    assert partitioner.partition("t", None, b"v", view) == sticky


def test_without_a_key_all_partitions_get_their_share() -> None:
    view = view_of(4)
    partitioner = DefaultPartitioner(sticky_bytes=1, random=Random(1).random)
    chosen: Counter[int] = Counter()
    for _ in range(4_000):
        number = partitioner.partition("t", None, b"v", view)
        chosen[number] += 1
        partitioner.on_new_batch("t", number, 1, view)
    assert all(900 < chosen[number] < 1_100 for number in range(4))


def test_without_a_key_partitions_without_a_leader_are_left_out() -> None:
    view = view_of(4, leaderless=(0, 2))
    partitioner = DefaultPartitioner(sticky_bytes=1)
    chosen = set()
    for _ in range(100):
        number = partitioner.partition("t", None, b"v", view)
        chosen.add(number)
        partitioner.on_new_batch("t", number, 1, view)
    assert chosen == {1, 3}
    nowhere = view_of(2, leaderless=(0, 1))
    assert DefaultPartitioner().partition("t", None, b"v", nowhere) in (0, 1)


def test_a_topic_that_came_back_smaller_gets_no_record_beyond_its_end() -> None:
    partitioner = DefaultPartitioner(random=lambda: 0.99)
    assert partitioner.partition("t", None, b"v", view_of(10)) == 9
    assert partitioner.partition("t", None, b"v", view_of(2)) == 1


def test_round_robin_takes_each_in_turn_whatever_the_key() -> None:
    partitioner = RoundRobinPartitioner()
    assert [partitioner.partition("t", b"same", None, view_of(3)) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
