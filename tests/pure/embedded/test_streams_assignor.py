"""The assignor ``sticky`` of streams groups: even shares, tasks that stay, and standby tasks on other processes."""

from __future__ import annotations

import time
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite.embedded.coordinators.streams.assignor import TaskMember, Tasks, assign_tasks

NONE = Tasks()


def members(processes: dict[str, int], before: dict[str, Tasks]) -> dict[str, TaskMember]:
    """Make the members ``a0``, ``a1``, … of process ``a``."""
    names = [(f"{process}{number}", process) for process, count in processes.items() for number in range(count)]
    return {name: TaskMember(process, before.get(name, NONE)) for name, process in names}


@given(
    first=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 3), min_size=1),
    second=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 3), min_size=1),
    counts=st.dictionaries(st.sampled_from("012"), st.integers(1, 7), min_size=1),
    replicas=st.integers(0, 2),
)
def test_each_task_runs_once_and_shares_are_even(
    first: dict[str, int], second: dict[str, int], counts: dict[str, int], replicas: int
) -> None:
    tasks = {(name, number) for name, count in counts.items() for number in range(count)}
    targets: dict[str, Tasks] = {}
    for processes in (first, second):
        group = members(processes, targets)
        targets = assign_tasks(group, counts, counts, replicas)
        active = Counter(task for target in targets.values() for task in target.active)
        assert active == dict.fromkeys(tasks, 1)
        copies = Counter(task for target in targets.values() for task in target.standby)
        assert copies == Counter(dict.fromkeys(tasks, min(replicas, len(processes) - 1)))
        counted = Counter(
            (task, group[name].process_id)
            for name, target in targets.items()
            for task in (*target.active, *target.standby)
        )
        assert set(counted.values()) <= {1}, "a process has a task once"
        sizes = [len(target.active) for target in targets.values()]
        assert max(sizes) - min(sizes) <= 1


def test_nothing_moves_without_a_change() -> None:
    processes, counts = {"a": 2, "b": 1}, {"0": 5, "1": 3}
    before = assign_tasks(members(processes, {}), counts, ["1"], 1)
    assert assign_tasks(members(processes, before), counts, ["1"], 1) == before


def test_a_member_keeps_its_share_and_a_new_member_gets_the_rest() -> None:
    before = assign_tasks(members({"a": 1}, {}), {"0": 4}, [], 0)
    after = assign_tasks(members({"a": 1, "b": 1}, before), {"0": 4}, [], 0)
    assert {name: sorted(target.active) for name, target in after.items()} == {
        "a0": [("0", 0), ("0", 1)],
        "b0": [("0", 2), ("0", 3)],
    }


def test_a_new_instance_gets_half_of_each_subtopology() -> None:
    counts = {str(subtopology): 4 for subtopology in range(5)}
    before = assign_tasks(members({"a": 2}, {}), counts, [], 0)
    after = assign_tasks(members({"a": 2, "b": 2}, before), counts, [], 0)
    for process, partitions in (("a", (0, 1)), ("b", (2, 3))):
        tasks = {task for number in range(2) for task in after[f"{process}{number}"].active}
        assert tasks == {(subtopology, partition) for subtopology in counts for partition in partitions}


def test_a_standby_task_takes_over() -> None:
    before = assign_tasks(members({"a": 1, "b": 1, "c": 1}, {}), {"0": 3}, ["0"], 1)
    kept = {name: target for name, target in before.items() if name != "a0"}
    after = assign_tasks(members({"b": 1, "c": 1}, kept), {"0": 3}, ["0"], 1)
    (lost,) = before["a0"].active
    (heir,) = [name for name, target in kept.items() if lost in target.standby]
    assert lost in after[heir].active
    assert all(target.active <= after[name].active for name, target in kept.items())


def test_stateless_tasks_have_no_standby() -> None:
    after = assign_tasks(members({"a": 1, "b": 1}, {}), {"0": 2, "1": 2}, ["1"], 1)
    assert {task[0] for target in after.values() for task in target.standby} == {"1"}


def test_a_large_group_has_its_tasks_in_little_time() -> None:
    group, counts = members(dict.fromkeys((f"p{number}" for number in range(250)), 1), {}), {"0": 5_000, "1": 5_000}
    began = time.process_time()
    targets = assign_tasks(group, counts, counts, 2)
    assert time.process_time() - began < 3
    assert {len(target.active) for target in targets.values()} == {40}
    assert {len(target.standby) for target in targets.values()} == {80}
