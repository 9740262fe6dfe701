"""Every offset of a range is in exactly one task, and a limited trigger uses its limit."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.spark.offsets import (
    Range,
    Task,
    backlog,
    byte_limited,
    from_json,
    ranges,
    rate_limited,
    recreated,
    start_of,
    tasks,
    to_json,
    topic_ids_of,
    with_start,
)
from aiokafka_lite.types import TopicPartition

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 9))
offset_maps = st.dictionaries(partitions, st.integers(0, 10_000), max_size=12)


def p(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def plan(*sizes: int, records_per_task: int = 50_000, **limits: int) -> list[list[tuple[int, int, int]]]:
    """Return tasks for partitions of these sizes, as (partition, start, end)."""
    unsplit = [Range(p(number), 0, size) for number, size in enumerate(sizes)]
    planned = tasks(unsplit, records_per_task=records_per_task, **limits)  # type: ignore[arg-type]
    return [[(range_.partition.partition, range_.start, range_.end) for range_ in task] for task in planned]


def covered(planned: list[Task]) -> dict[TopicPartition, list[tuple[int, int]]]:
    pieces: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
    for task in planned:
        for range_ in task:
            pieces[range_.partition].append((range_.start, range_.end))
    return pieces


# Tasks.


@given(
    offset_maps,
    offset_maps,
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 5_000),
    st.integers(1, 20_000),
)
def test_every_offset_is_read_once_and_in_order_with_any_options(
    start: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
    min_partitions: int | None,
    most: int | None,
    records_per_task: int,
) -> None:
    unsplit = ranges(start, end)
    options = {"min_partitions": min_partitions, "max_records_per_partition": most}
    planned = tasks(unsplit, records_per_task=records_per_task, **options)  # type: ignore[arg-type]
    assert planned == tasks(unsplit, records_per_task=records_per_task, **options)  # type: ignore[arg-type]
    for range_ in unsplit:
        pieces = covered(planned)[range_.partition]
        assert pieces[0][0] == range_.start
        assert pieces[-1][1] == range_.end
        assert all(low < high for low, high in pieces)
        assert all(before[1] == after[0] for before, after in pairwise(pieces))
    assert set(covered(planned)) == {range_.partition for range_ in unsplit}
    assert all(len({range_.partition for range_ in task}) == len(task) for task in planned)
    total = sum(range_.size for range_ in unsplit)
    if most is not None:
        assert all(sum(range_.size for range_ in task) <= most for task in planned)
    if min_partitions is not None and total:
        assert len(planned) >= min(min_partitions, total)
        assert max(sum(range_.size for range_ in task) for task in planned) <= -(-total // min_partitions)


def test_small_ranges_share_a_task_and_a_large_one_has_its_own() -> None:
    assert plan(20_000, 20_000, 20_000, 90_000, 5) == [
        [(0, 0, 20_000), (1, 0, 20_000)],
        [(2, 0, 20_000)],
        [(3, 0, 90_000)],
        [(4, 0, 5)],
    ]
    assert len(plan(*[100] * 200)) == 1


def test_min_partitions_splits_large_ranges_and_keeps_small_ones_apart() -> None:
    assert plan(300, 100, min_partitions=4) == [[(0, 0, 100)], [(0, 100, 200)], [(0, 200, 300)], [(1, 0, 100)]]
    assert len(plan(10, 10, 10, min_partitions=3)) == 3
    assert len(plan(10, 10, 10, 10, min_partitions=2)) == 2
    assert plan(2, min_partitions=5) == [[(0, 0, 1)], [(0, 1, 2)]]


def test_min_partitions_makes_tasks_of_equal_size_from_many_small_ranges() -> None:
    planned = plan(*[400] * 100, min_partitions=4)
    assert [sum(high - low for _, low, high in task) for task in planned] == [10_000] * 4
    one_large = plan(*[400] * 50, 20_000, min_partitions=4)
    assert max(sum(high - low for _, low, high in task) for task in one_large) <= 10_000


def test_max_records_per_partition_bounds_a_task() -> None:
    assert plan(250, 40, max_records_per_partition=100) == [
        [(0, 0, 83)],
        [(0, 83, 166)],
        [(0, 166, 250)],
        [(1, 0, 40)],
    ]


def test_nothing_to_read_makes_no_task() -> None:
    assert plan() == []
    assert plan(0, 0, min_partitions=4) == []


# Limits of a trigger.


@given(offset_maps, offset_maps, st.integers(1, 5_000))
def test_a_limited_trigger_reads_something_of_each_backlog_and_never_beyond(
    start: dict[TopicPartition, int], end: dict[TopicPartition, int], limit: int
) -> None:
    reached = rate_limited(start, end, limit)
    sizes = backlog(start, end)
    assert reached.keys() == end.keys()
    for partition, offset in reached.items():
        if partition in sizes:
            assert start.get(partition, 0) < offset <= end[partition]
        else:
            assert offset == end[partition]
    assert sum(backlog(start, reached).values()) <= max(limit, 0) + len(sizes)


def test_shares_are_in_proportion_to_the_backlog() -> None:
    reached = rate_limited({p(0): 0, p(1): 100}, {p(0): 900, p(1): 200, p(2): 1}, 100)
    assert reached == {p(0): 89, p(1): 109, p(2): 1}
    assert rate_limited({}, {p(0): 10}, 100) == {p(0): 10}


def test_a_limit_of_bytes_takes_the_same_part_of_each_backlog() -> None:
    start, end = {p(0): 10, p(1): 0}, {p(0): 110, p(1): 300, p(2): 1}
    sizes = {p(0): 1_000.0, p(1): 100.0}  # the unread bytes: 100,000 and 30,000, and 550 by the average
    assert byte_limited(start, end, sizes, 13_055) == {p(0): 20, p(1): 30, p(2): 1}
    assert byte_limited(start, end, sizes, 1) == {p(0): 11, p(1): 1, p(2): 1}  # at least one offset each
    assert byte_limited(start, end, sizes, 200_000) == end
    assert byte_limited(end, end, {}, 1) == end


def test_a_new_partition_begins_at_0() -> None:
    assert ranges({p(0): 5}, {p(0): 9, p(1): 3}) == [Range(p(0), 5, 9), Range(p(1), 0, 3)]


# Checkpoints.


@given(offset_maps)
def test_offsets_survive_the_checkpoint_and_are_text_in_one_order(offsets: dict[TopicPartition, int]) -> None:
    written = json.dumps(to_json(offsets))
    assert from_json(json.loads(written)) == offsets
    shuffled = dict(reversed(offsets.items()))
    assert json.dumps(to_json(shuffled)) == written


def test_the_form_is_that_of_sparks_own_connector() -> None:
    theirs = '{"orders":{"0":23,"1":-0},"payments":{"10":7}}'.replace("-0", "0")
    offsets = from_json(json.loads(theirs))
    assert offsets[TopicPartition("orders", 0)] == 23
    assert json.dumps(to_json(offsets), separators=(",", ":")) == theirs


def test_the_end_of_the_first_batch_contains_its_start() -> None:
    end = json.loads(json.dumps(with_start(to_json({p(0): 9}, IDS), {p(0): 4})))
    assert from_json(end) == {p(0): 9}
    assert start_of(end) == {p(0): 4}
    assert start_of(to_json({p(0): 9})) is None
    added = end.keys() - {p(0).topic}
    assert all(end[key] == {} for key in added), "Spark's own connector takes them for topics without partitions"


@pytest.mark.parametrize("start", ["", "{", "[]", "5"])
def test_a_damaged_start_is_refused(start: str) -> None:
    with pytest.raises(ConfigurationError, match="begin with a new checkpointLocation"):
        start_of({"t": {"0": 9}, f"$start:{start}": {}})


@pytest.mark.parametrize(
    "text",
    ['{"t":5}', '{"t":{"x":1}}', '{"t":{"0":"1"}}', '{"t":{"0":-1}}', '{"logOffset":0}', "5", '"5"', "[]", "null"],
)
def test_offsets_of_another_kind_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="begin with a new checkpointLocation"):
        from_json(json.loads(text))


# Topic ids.

IDS = {"a": bytes(range(16)), "b": b"\xff" * 16}


@given(offset_maps)
def test_topic_ids_survive_the_checkpoint_of_every_topic_with_offsets(offsets: dict[TopicPartition, int]) -> None:
    written = json.loads(json.dumps(to_json(offsets, IDS)))
    topics = {partition.topic for partition in offsets}
    assert from_json(written) == offsets
    assert topic_ids_of(written) == {topic: topic_id for topic, topic_id in IDS.items() if topic in topics}


def test_sparks_own_connector_finds_no_partition_in_a_topic_id() -> None:
    """That connector reads an object of offsets by partition for each key, and takes an empty one for no partition."""
    assert to_json({TopicPartition("a", 0): 5}, IDS) == {"a": {"0": 5}, "$id:a:AAECAwQFBgcICQoLDA0ODw": {}}
    assert topic_ids_of({"a": {"0": 5}}) == {}


def test_a_topic_is_another_one_only_if_both_ids_are_known() -> None:
    (text,) = recreated({"a": IDS["a"], "b": IDS["b"]}, {"a": IDS["b"], "b": IDS["b"], "c": IDS["a"]}).values()
    assert text == (
        "topic 'a' was deleted and created again (its id was AAECAwQFBgcICQoLDA0ODw, and is _____________________w)"
    )
    assert recreated({}, IDS) == recreated(IDS, {}) == {}


def test_tasks_have_the_id_of_their_topic() -> None:
    unsplit = ranges({}, {TopicPartition("a", 0): 9, TopicPartition("c", 0): 4}, IDS)
    planned = tasks(unsplit, max_records_per_partition=5, records_per_task=5)
    assert [(range_.partition.topic, range_.topic_id) for task in planned for range_ in task] == [
        ("a", IDS["a"]),
        ("a", IDS["a"]),
        ("c", bytes(16)),
    ]


def test_a_damaged_topic_id_is_refused() -> None:
    for key in ("$id:a:AAEC", "$id:a:", "$id:a:é", "$id:a"):
        with pytest.raises(ConfigurationError, match="begin with a new checkpointLocation"):
            topic_ids_of({"a": {"0": 1}, key: {}})
