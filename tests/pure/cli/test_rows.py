"""Rows about groups, and parsed options."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("typer")

from aiokafka_lite.admin import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    GroupDescription,
    GroupLag,
    GroupState,
    GroupType,
    MemberDescription,
    PartitionLag,
    StreamsTasks,
)
from aiokafka_lite.cli.configs import changes, resource
from aiokafka_lite.cli.groups import lag_rows, member_rows
from aiokafka_lite.cli.lag import HEADINGS, Trend, View, selected, topic_rows
from aiokafka_lite.cli.leaders import parse_plan
from aiokafka_lite.cli.terminal.output import Table
from aiokafka_lite.cli.topics import parse_assignment
from aiokafka_lite.types import Node, TopicPartition


def test_a_member_without_partitions_has_a_row_too() -> None:
    busy = MemberDescription("a-1", None, "a", "/10.0.0.1", ("t",), (TopicPartition("t", 0),))
    idle = MemberDescription("b-1", None, "b", "/10.0.0.2", ("t",), ())
    group = GroupDescription(
        "g", GroupType.CLASSIC, GroupState.STABLE, "consumer", "range", Node(1, "h", 9092), (busy, idle)
    )
    lag = GroupLag("g", GroupState.STABLE, (PartitionLag(TopicPartition("t", 0), 3, 5, 2, busy),))
    assert lag_rows(lag, group) == [
        ("g", "t", 0, 3, 5, 2, "a-1", "/10.0.0.1", "a"),
        ("g", None, None, None, None, None, "b-1", "/10.0.0.2", "b"),
    ]


def test_a_member_of_a_streams_group_has_tasks_instead_of_partitions() -> None:
    tasks = StreamsTasks({"0": (0, 1), "1": (2,)}, {"1": (0,)}, {})
    target = StreamsTasks({"0": (0,)}, {}, {"1": (2,)})
    member = MemberDescription("a", None, "c", "/h", None, None, epoch=3, tasks=tasks, target_tasks=target)
    node = Node(1, "h", 9092)
    group = GroupDescription("g", GroupType.STREAMS, GroupState.RECONCILING, "streams", "", node, (member,), 4, 4)
    assert member_rows(group) == [
        ("g", "a", None, "/h", "c", 3, "0(0,1) 1(2) standby 1(0)", 3, "0(0) warmup 1(2)"),
    ]


def test_the_lag_of_a_topic_is_the_sum_of_its_known_lags() -> None:
    def partition(topic: str, number: int, lag: int | None) -> PartitionLag:
        return PartitionLag(TopicPartition(topic, number), None, None, lag, None)

    group = GroupLag(
        "g",
        GroupState.EMPTY,
        (partition("a", 0, 3), partition("a", 1, 4), partition("a", 2, None), partition("b", 0, None)),
    )
    assert topic_rows(group) == [("g", "Empty", "a", 3, 7, 4), ("g", "Empty", "b", 1, None, None)]
    assert topic_rows(GroupLag("g", GroupState.EMPTY, ())) == [("g", "Empty", None, 0, None, None)]


def test_the_trend_of_a_lag_is_its_change_over_the_last_looks() -> None:
    def look(lag: int | None, at: float) -> list[object]:
        (row,) = trend.add(Table(HEADINGS, [("g", "Stable", "t", 1, lag, lag)]), at).rows
        return [*row[-2:]]

    trend = Trend()
    assert look(100, 0.0) == [None, None]
    assert look(90, 2.0) == [-5.0, 18]
    assert look(130, 4.0) == [7.5, None]
    assert look(None, 5.0) == [None, None]
    assert look(0, 6.0) == [-16.7, 0]
    for second in range(7, 30):
        look(second, second)
    assert look(30, 30.0) == [1.0, None]


def test_lags_can_be_selected_and_sorted() -> None:
    rows = [("a", "Empty", "t", 1, 0, 0), ("b", "Empty", "t", 1, 3, 3), ("c", "Empty", "t", 1, None, None)]
    rows.append(("d", "Empty", "t", 1, 7, 7))
    view = View((), "read_committed", only_behind=False, by_lag=True)
    assert [row[0] for row in selected(rows, view)] == ["d", "b", "a", "c"]
    assert [row[0] for row in selected(rows, replace(view, only_behind=True, by_lag=False))] == ["b", "d"]


@pytest.mark.parametrize(
    "partitions, message",
    [
        ('[{"topic": "t", "partition": 0, "replicas": null}]', "file must be JSON in the form"),
        ('[{"topic": 5, "partition": 0, "replicas": [1]}]', "file must be JSON in the form"),
        ('[{"topic": "t", "partition": 0, "replicas": "12"}]', "file must be JSON in the form"),
        ("[" * 100_000, "file must be JSON in the form"),
        ("[]", "file must have at least one partition"),
        ('[{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/data"]}]', "log_dirs must be"),
        (
            '[{"topic": "t", "partition": 0, "replicas": [1]}, {"topic": "t", "partition": 0, "replicas": [2]}]',
            "got t-0 twice",
        ),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_explained(partitions: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_plan(f'{{"partitions": {partitions}}}')


def test_options_become_changes_of_settings() -> None:
    assert changes(["a=1=2"], ["b"], ["c=x"], ["d=y"]) == [
        ConfigChange("a", "1=2"),
        ConfigChange("c", "x", ConfigOperation.APPEND),
        ConfigChange("d", "y", ConfigOperation.SUBTRACT),
        ConfigChange("b", operation=ConfigOperation.DELETE),
    ]
    with pytest.raises(ValueError, match="requires --set"):
        changes([], [], [], [])
    with pytest.raises(ValueError, match="append must be NAME=VALUE, got 'c'"):
        changes([], [], ["c"], [])


def test_kind_and_name_become_a_resource() -> None:
    assert resource("topic", "orders") == ConfigResource.topic("orders")
    assert resource("broker", "1") == ConfigResource.broker(1)
    assert resource("brokers", None) == ConfigResource.all_brokers()
    for kind, name in (("topic", None), ("broker", None), ("broker", "one"), ("brokers", "1")):
        with pytest.raises(ValueError):
            resource(kind, name)


def test_an_assignment_is_brokers_of_partitions() -> None:
    assert parse_assignment("1,2/2,3") == [[1, 2], [2, 3]]
    with pytest.raises(ValueError, match="as in 1,2/2,3"):
        parse_assignment("1,b")
