"""The numbers of tasks of a topology, and of the partitions of its internal topics."""

from __future__ import annotations

import pytest

from aiokafka_lite.embedded.consumer_group import GroupRefusal
from aiokafka_lite.embedded.streams_topology import StreamsStatusCode, tasks_of
from aiokafka_lite.errors import ErrorCode
from tests.embedded.streams_groups.requests import counting, internal_topic, subtopology, topology


def test_internal_topics_follow_the_largest_source() -> None:
    found = tasks_of(counting("g"), {"g-in": 3})
    assert found.counts == {"0": 3, "1": 3}
    assert found.partitions == {"g-repartition": 3, "g-changelog": 3}
    assert [each.name for each in found.missing] == ["g-repartition", "g-changelog"]
    assert found.status is not None
    assert found.status.code is StreamsStatusCode.MISSING_INTERNAL_TOPICS


def test_a_topology_with_all_its_topics_is_ready() -> None:
    found = tasks_of(counting("g"), {"g-in": 3, "g-repartition": 3, "g-changelog": 3})
    assert (found.status, found.missing, found.stateful) == (None, (), {"1"})


def test_a_chain_of_repartition_topics_is_sized_from_its_begin() -> None:
    chain = topology(
        subtopology("2", repartition=[internal_topic("second")]),
        subtopology("1", repartition=[internal_topic("first")], sinks=["second"]),
        subtopology("0", ["a", "b"], sinks=["first"]),
    )
    assert tasks_of(chain, {"a": 2, "b": 5}).counts == {"0": 5, "1": 5, "2": 5}


def test_a_number_of_its_own_decides() -> None:
    found = tasks_of(
        topology(subtopology("0", ["a"], sinks=["r"]), subtopology("1", repartition=[internal_topic("r", 7)])),
        {"a": 2},
    )
    assert found.counts == {"0": 2, "1": 7}


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
    found = tasks_of(joined, existing)
    assert found.counts == {}
    assert found.status is not None
    assert found.status.detail == detail


@pytest.mark.parametrize(
    ("sinks", "text"),
    [([], "a repartition source topic is never used as a sink topic"), (["r"], "There may be loops in the topology")],
)
def test_a_repartition_topic_without_a_source_is_refused(sinks: list[str], text: str) -> None:
    with pytest.raises(GroupRefusal, match=text) as refused:
        tasks_of(topology(subtopology("0", sinks=sinks, repartition=[internal_topic("r")])), {})
    assert refused.value.error is ErrorCode.STREAMS_INVALID_TOPOLOGY
