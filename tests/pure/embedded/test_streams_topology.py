"""The numbers of tasks of a topology, and of the partitions of its internal topics."""

from __future__ import annotations

import time

import pytest

from aiokafka_lite.embedded.coordinators.groups.heartbeat_group import GroupRefusal
from aiokafka_lite.embedded.coordinators.streams.topology import StreamsStatusCode, tasks_of
from aiokafka_lite.errors import ErrorCode
from tests.embedded.streams_groups.requests import counting, internal_topic, subtopology, topology


def test_internal_topics_follow_the_largest_source() -> None:
    tasks = tasks_of(counting("g"), {"g-in": 3})
    assert tasks.counts == {"0": 3, "1": 3}
    assert tasks.partitions == {"g-repartition": 3, "g-changelog": 3}
    assert [topic.name for topic in tasks.missing] == ["g-repartition", "g-changelog"]
    assert tasks.status is not None
    assert tasks.status.code is StreamsStatusCode.MISSING_INTERNAL_TOPICS


def test_a_topology_with_all_its_topics_is_ready() -> None:
    tasks = tasks_of(counting("g"), {"g-in": 3, "g-repartition": 3, "g-changelog": 3})
    assert (tasks.status, tasks.missing, tasks.stateful) == (None, (), {"1"})


def test_a_chain_of_repartition_topics_is_sized_from_its_begin() -> None:
    chain = topology(
        subtopology("2", repartition=[internal_topic("second")]),
        subtopology("1", repartition=[internal_topic("first")], sinks=["second"]),
        subtopology("0", ["a", "b"], sinks=["first"]),
    )
    assert tasks_of(chain, {"a": 2, "b": 5}).counts == {"0": 5, "1": 5, "2": 5}


def test_a_number_of_its_own_decides() -> None:
    tasks = tasks_of(
        topology(subtopology("0", ["a"], sinks=["r"]), subtopology("1", repartition=[internal_topic("r", 7)])),
        {"a": 2},
    )
    assert tasks.counts == {"0": 2, "1": 7}


def test_a_repartition_topic_follows_the_topic_that_it_is_joined_with() -> None:
    joined = topology(
        subtopology("0", ["a"], sinks=["r"]),
        subtopology("1", ["b"], repartition=[internal_topic("r")], copartitioned=[([0], [0])]),
    )
    assert tasks_of(joined, {"a": 8, "b": 3}).partitions == {"r": 3}


@pytest.mark.parametrize(
    ("existing", "detail"),
    [
        ({"b": 2}, "Source topics a are missing."),
        ({"a": 1, "b": 2}, "Following topics do not have the same number of partitions: [{a=1, b=2}]"),
        ({"a": 2, "b": 2, "log": 5}, "Existing topic log has different number of partitions: expected 2, found 5"),
    ],
)
def test_a_status_names_what_is_wrong(existing: dict[str, int], detail: str) -> None:
    joined = topology(
        subtopology("0", ["a", "b"], changelogs=[internal_topic("log")], copartitioned=[([0, 1], [])]),
    )
    tasks = tasks_of(joined, existing)
    assert tasks.counts == {}
    assert tasks.status is not None
    assert tasks.status.detail == detail


@pytest.mark.parametrize(
    ("sinks", "text"),
    [([], "a repartition source topic is never used as a sink topic"), (["r"], "There may be loops in the topology")],
)
def test_a_repartition_topic_without_a_source_is_refused(sinks: list[str], text: str) -> None:
    with pytest.raises(GroupRefusal, match=text) as refused:
        tasks_of(topology(subtopology("0", sinks=sinks, repartition=[internal_topic("r")])), {})
    assert refused.value.error is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_the_order_of_the_subtopologies_makes_no_difference() -> None:
    parts = [
        subtopology("0", ["a"], sinks=["r"]),
        subtopology("1", ["b"], sinks=["s"]),
        subtopology("2", repartition=[internal_topic("s")], sinks=["r"]),
        subtopology("3", repartition=[internal_topic("r")]),
    ]
    for subtopologies in (parts, parts[::-1]):
        assert tasks_of(topology(*subtopologies), {"a": 2, "b": 5}).partitions == {"r": 5, "s": 5}


def test_a_subtopology_may_read_what_it_writes() -> None:
    joined = subtopology("0", ["a"], sinks=["r"], repartition=[internal_topic("r")], copartitioned=[([0], [0])])
    assert tasks_of(topology(joined), {"a": 4}).partitions == {"r": 4}


def test_a_long_chain_against_the_order_takes_a_short_time() -> None:
    length = 1_000
    chain = [
        subtopology(f"{number:04}", repartition=[internal_topic(f"r{number}")], sinks=[f"r{number + 1}"])
        for number in range(length)
    ]
    first = subtopology("first", ["a"], sinks=["r0"])
    began = time.process_time()
    assert len(tasks_of(topology(*reversed(chain), first), {"a": 2}).partitions) == length
    assert time.process_time() - began < 3


def test_a_topology_with_too_many_tasks_is_refused() -> None:
    many = topology(*(subtopology(str(number), ["a"]) for number in range(1_000)))
    assert len(tasks_of(many, {"a": 10}).counts) == 1_000
    text = "the number of tasks of a topology must be <= 10000, got 11000"
    with pytest.raises(GroupRefusal, match=text) as refused:
        tasks_of(many, {"a": 11})
    assert refused.value.error is ErrorCode.STREAMS_INVALID_TOPOLOGY


@pytest.mark.parametrize("places", [([1], []), ([-1], []), ([], [1]), ([], [-1])])
def test_a_copartition_group_of_topics_that_are_not_listed_is_refused(places: tuple[list[int], list[int]]) -> None:
    wrong = subtopology("0", ["a"], repartition=[internal_topic("r", 2)], sinks=["r"], copartitioned=[places])
    with pytest.raises(GroupRefusal, match=r"has the place -?1, but the list of its topics has 1") as refused:
        tasks_of(topology(wrong), {"a": 2})
    assert refused.value.error is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_a_subtopology_that_reads_nothing_is_refused() -> None:
    with pytest.raises(GroupRefusal, match="No source topics found for subtopology 1") as refused:
        tasks_of(topology(subtopology("0", ["a"]), subtopology("1")), {"a": 2})
    assert refused.value.error is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_a_repartition_topic_whose_only_writer_reads_nothing_is_refused() -> None:
    without = topology(subtopology("0", sinks=["r"]), subtopology("1", repartition=[internal_topic("r")]))
    with pytest.raises(GroupRefusal, match="Failed to compute number of partitions") as refused:
        tasks_of(without, {})
    assert refused.value.error is ErrorCode.STREAMS_INVALID_TOPOLOGY
