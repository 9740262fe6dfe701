"""The choice of a partition, with a key and without."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafka_lite.cluster.metadata import ClusterView, PartitionView, TopicView
from aiokafka_lite.compiled import COMPILED
from aiokafka_lite.errors import ConfigurationError, IllegalStateError
from aiokafka_lite.producer.partitioning.interface import Partitioner
from aiokafka_lite.producer.partitioning.partitioner import (
    CACHED_SIZE,
    DefaultPartitioner,
    ExplicitPartitioner,
    RoundRobinPartitioner,
)
from aiokafka_lite.protocol.records import partition_for_key
from aiokafka_lite.types import Node


def view_of(count: int, *, leaderless: tuple[int, ...] = (), brokers: int = 1) -> ClusterView:
    """Return a view of topic "t", whose partitions are led by brokers 1, 2 … in turn."""
    partitions = tuple(
        PartitionView(number, None if number in leaderless else number % brokers + 1, 0) for number in range(count)
    )
    return ClusterView(topics=MappingProxyType({"t": TopicView("t", partitions=partitions)}))


class Load:
    """The load of brokers, as given."""

    def __init__(self, queued: dict[int, int] | None = None, unreachable: tuple[int, ...] = ()) -> None:
        self.bytes, self.unreachable = queued or {}, unreachable

    def queued(self, node_id: int) -> int:
        return self.bytes.get(node_id, 0)

    def is_reachable(self, node_id: int) -> bool:
        return node_id not in self.unreachable


def choices(partitioner: Partitioner, view: ClusterView, times: int = 4_000) -> Counter[int]:
    """Return how often each partition is chosen for a batch of records without keys."""
    chosen: Counter[int] = Counter()
    for _ in range(times):
        number = partitioner.partition("t", None, b"v", view)
        chosen[number] += 1
        partitioner.on_new_batch("t", number, 10**9, view)
    return chosen


# Placed by the Java client's BuiltInPartitioner.partitionForKey: toPositive(murmur2(key)) % count.
JAVA_HASHES = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
    # Beyond Java's own examples: each remainder of the length by four, bytes above 127, and nothing.
    (b"", 275646681),
    (b"a", -1563381124),
    (b"ab", 316155434),
    (b"\xff\xfe\xfd\xfc\xfb", 524068735),
    ("клад 🔑".encode(), 1152941860),
    (bytes(range(256)), -1948347274),
]


@settings(deadline=None)
@given(key=st.binary(max_size=300))
def test_keys_hash_as_other_clients_hash_them(key: bytes) -> None:
    hashed = pytest.importorskip("kafka.partitioner.default").murmur2(key)
    assert DefaultPartitioner().partition("t", key, None, view_of(97)) == (hashed & 0x7FFFFFFF) % 97


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


def test_records_without_a_key_stay_until_a_batch_ends() -> None:
    view = view_of(5)
    partitioner = DefaultPartitioner(sticky_bytes=1_000, random=Random(1).random)
    sticky = partitioner.partition("t", None, b"v", view)
    assert {partitioner.partition("t", None, b"v", view) for _ in range(100)} == {sticky}
    partitioner.on_new_batch("t", sticky, 999, view)
    assert partitioner.partition("t", None, b"v", view) == sticky
    partitioner.on_new_batch("t", sticky, 1, view)
    assert partitioner.partition("t", None, b"v", view) != sticky  # which may also be the same, with other numbers


def test_the_end_of_a_batch_in_another_partition_is_ignored() -> None:
    view = view_of(5)
    partitioner = DefaultPartitioner(sticky_bytes=1)
    sticky = partitioner.partition("t", None, b"v", view)
    partitioner.on_new_batch("t", (sticky + 1) % 5, 10_000, view)
    partitioner.on_new_batch("another topic", sticky, 10_000, view)
    assert partitioner.partition("t", None, b"v", view) == sticky


def test_records_without_a_key_go_to_all_partitions() -> None:
    chosen = choices(DefaultPartitioner(random=Random(1).random), view_of(4, brokers=3))
    assert all(900 < chosen[number] < 1_100 for number in range(4))


def test_records_without_a_key_avoid_partitions_without_a_leader() -> None:
    assert set(choices(DefaultPartitioner(), view_of(4, leaderless=(0, 2)))) == {1, 3}
    nowhere = view_of(2, leaderless=(0, 1))
    assert DefaultPartitioner().partition("t", None, b"v", nowhere) in (0, 1)


def test_a_topic_recreated_with_fewer_partitions_gets_no_record_beyond_its_end() -> None:
    partitioner = DefaultPartitioner(random=lambda: 0.99)
    assert partitioner.partition("t", None, b"v", view_of(10)) == 9
    assert partitioner.partition("t", None, b"v", view_of(2)) == 1


def test_round_robin_takes_each_partition_in_turn_and_ignores_keys() -> None:
    partitioner = RoundRobinPartitioner()
    assert [partitioner.partition("t", b"same", None, view_of(3)) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_round_robin_skips_partitions_without_a_leader_unless_none_has_one() -> None:
    partitioner, view = RoundRobinPartitioner(), view_of(4, leaderless=(1, 2))
    assert [partitioner.partition("t", None, None, view) for _ in range(5)] == [0, 3, 0, 3, 0]
    nowhere = view_of(2, leaderless=(0, 1))
    assert [partitioner.partition("t", None, None, nowhere) for _ in range(3)] == [1, 0, 1]


def test_the_explicit_partitioner_refuses_records_without_a_partition() -> None:
    with pytest.raises(IllegalStateError, match=r"'t'.*ExplicitPartitioner"):
        ExplicitPartitioner().partition("t", b"k", b"v", view_of(3))


# By load (KIP-794).


def with_load(load: Load, *, adaptive: bool = True) -> DefaultPartitioner:
    partitioner = DefaultPartitioner(sticky_bytes=1_000, adaptive=adaptive, random=Random(1).random)
    partitioner.use_load(load)
    return partitioner


def test_partitions_of_a_broker_with_a_longer_queue_get_fewer_records() -> None:
    load = Load({1: 9_000, 2: 0, 3: 5_000})  # so the weights are 1, 10 and 5
    chosen = choices(with_load(load), view_of(6, brokers=3), 16_000)
    assert 800 < chosen[0] + chosen[3] < 1_200
    assert 9_500 < chosen[1] + chosen[4] < 10_500
    assert 4_600 < chosen[2] + chosen[5] < 5_400


def test_of_two_partitions_the_slow_one_does_not_get_half() -> None:
    chosen = choices(with_load(Load({1: 99_000})), view_of(2, brokers=2), 10_000)
    assert 50 < chosen[0] < 200


def test_equal_queues_do_not_change_the_choice() -> None:
    chosen = choices(with_load(Load({1: 10**6, 2: 10**6})), view_of(2, brokers=2))
    assert 1_800 < chosen[0] < 2_200


def test_a_broker_that_cannot_be_reached_gets_nothing_unless_it_is_the_only_one() -> None:
    view = view_of(6, brokers=3)
    assert set(choices(with_load(Load(unreachable=(1, 3))), view)) == {1, 4}
    assert len(choices(with_load(Load(unreachable=(1, 2, 3))), view)) == 6


def test_without_adaptivity_queues_do_not_count() -> None:
    chosen = choices(with_load(Load({1: 10**9}), adaptive=False), view_of(2, brokers=2))
    assert 1_800 < chosen[0] < 2_200


def test_keys_are_placed_independently_of_load() -> None:
    view = view_of(6, brokers=3)
    idle, busy = DefaultPartitioner(), with_load(Load({1: 10**9}, unreachable=(2,)))
    for key in (b"%d" % number for number in range(100)):
        assert idle.partition("t", key, None, view) == busy.partition("t", key, None, view)


@given(
    count=st.integers(1, 40),
    brokers=st.integers(1, 6),
    leaderless=st.sets(st.integers(0, 39)),
    queued=st.dictionaries(st.integers(1, 6), st.integers(0, 2**40)),
    unreachable=st.sets(st.integers(1, 6)),
    numbers=st.lists(st.floats(0, 1, exclude_max=True), min_size=1),
    sizes=st.lists(st.integers(1, 100_000), max_size=30),
)
def test_every_choice_exists_and_is_reachable_if_any_partition_is(
    count: int,
    brokers: int,
    leaderless: set[int],
    queued: dict[int, int],
    unreachable: set[int],
    numbers: list[float],
    sizes: list[int],
) -> None:
    view = view_of(count, leaderless=tuple(leaderless), brokers=brokers)
    drawn = itertools.cycle(numbers)
    partitioner = DefaultPartitioner(random=lambda: next(drawn))
    partitioner.use_load(Load(queued, tuple(unreachable)))
    led = {partition.partition for partition in view.topics["t"].partitions if partition.leader is not None}
    within_reach = {number for number in led if number % brokers + 1 not in unreachable}
    for size in sizes:
        chosen = partitioner.partition("t", None, b"v", view)
        assert chosen in (within_reach or led or range(count))
        partitioner.on_new_batch("t", chosen, size, view)


def test_sticky_bytes_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="sticky_bytes must be a whole number of bytes >= 1, got 0"):
        DefaultPartitioner(sticky_bytes=0)


def test_a_cached_key_is_placed_by_the_current_number_of_partitions() -> None:
    partitioner = DefaultPartitioner()
    for key in (b"a", b"x" * (CACHED_SIZE + 1)):
        for count in (3, 50, 3, 7):
            fresh = DefaultPartitioner().partition("t", key, None, view_of(count))
            assert partitioner.partition("t", key, None, view_of(count)) == fresh == partition_for_key(key, count)


def in_racks(view: ClusterView, racks: dict[int, str | None]) -> ClusterView:
    nodes = {node_id: Node(node_id, "kafka", 9092, rack) for node_id, rack in racks.items()}
    return ClusterView(nodes=MappingProxyType(nodes), topics=view.topics)


RACKS: dict[int, str | None] = {1: "a", 2: "b", 3: None}


def test_records_without_a_key_stay_in_the_rack() -> None:
    view = in_racks(view_of(9, brokers=3), RACKS)
    assert set(choices(DefaultPartitioner(rack="a", random=Random(1).random), view)) == {0, 3, 6}
    assert set(choices(DefaultPartitioner(rack="b", random=Random(1).random), view)) == {1, 4, 7}


def test_a_rack_without_a_leader_that_can_be_reached_falls_back_to_the_others() -> None:
    view = in_racks(view_of(9, brokers=3), RACKS)
    partitioner = DefaultPartitioner(rack="a", random=Random(1).random)
    partitioner.use_load(Load(unreachable=(1,)))
    assert set(choices(partitioner, view)) == {1, 2, 4, 5, 7, 8}
    assert set(choices(DefaultPartitioner(rack="z", random=Random(1).random), view)) == set(range(9))
    leaderless = in_racks(view_of(9, brokers=3, leaderless=(0, 3, 6)), RACKS)
    assert set(choices(DefaultPartitioner(rack="a", random=Random(1).random), leaderless)) == {1, 2, 4, 5, 7, 8}


def test_a_busy_broker_of_the_rack_is_chosen_less_often_than_another_one() -> None:
    view = in_racks(view_of(9, brokers=3), {1: "a", 2: "a", 3: "b"})
    partitioner = DefaultPartitioner(rack="a", random=Random(1).random)
    partitioner.use_load(Load({1: 320 * 1024}))
    chosen = choices(partitioner, view)
    assert set(chosen) == {0, 1, 3, 4, 6, 7}
    assert chosen[0] + chosen[3] + chosen[6] < (chosen[1] + chosen[4] + chosen[7]) / 5


def test_a_key_is_placed_by_its_hash_in_any_rack() -> None:
    view = in_racks(view_of(9, brokers=3), RACKS)
    partitioner = DefaultPartitioner(rack="a")
    for number in range(100):
        key = b"%d" % number
        assert partitioner.partition("t", key, b"v", view) == partition_for_key(key, 9)


@pytest.mark.parametrize("rack", ["", 7, b"a"])
def test_a_rack_that_is_no_text_is_refused(rack: object) -> None:
    # Compiled code checks the type before the constructor runs.
    is_checked = COMPILED and not isinstance(rack, str)
    error, text = (TypeError, "str or None object") if is_checked else (ConfigurationError, "string that is not empty")
    with pytest.raises(error, match=text):
        DefaultPartitioner(rack=rack)  # type: ignore[arg-type]
