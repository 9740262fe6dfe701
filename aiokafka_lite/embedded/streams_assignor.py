"""The assignor ``sticky`` of streams groups (KIP-1071): members keep tasks, and have equal numbers of them.

A member is a thread; the members of one process share its state on disk. A process has a task once: a standby task
never runs beside the active one. Balance comes first: a member keeps no more tasks than its share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

TaskId = tuple[str, int]
"""A subtopology and a partition."""


class Tasks(NamedTuple):
    """The tasks of a member."""

    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()


class TaskMember(NamedTuple):
    """A member as the assignor sees it: its process, and the tasks of its last target."""

    process_id: str
    target: Tasks


def assign_tasks(
    members: Mapping[str, TaskMember], counts: Mapping[str, int], stateful: Iterable[str], standby_replicas: int
) -> dict[str, Tasks]:
    """A new target of each member. ``counts`` are the numbers of tasks by subtopology."""
    if not members:
        return {}
    tasks = [(name, number) for name, count in sorted(counts.items()) for number in range(count)]
    kept = frozenset(stateful)
    return _Assignment(members, tasks).assign([each for each in tasks if each[0] in kept], standby_replicas)


class _Assignment:
    """One computation: the tasks that the members have got so far."""

    def __init__(self, members: Mapping[str, TaskMember], tasks: list[TaskId]) -> None:
        self._members = dict(sorted(members.items()))
        self._tasks = tasks
        self._active: dict[str, set[TaskId]] = {name: set() for name in self._members}
        self._standby: dict[str, set[TaskId]] = {name: set() for name in self._members}
        self._processes: dict[str, list[str]] = {}
        for name, member in self._members.items():
            self._processes.setdefault(member.process_id, []).append(name)

    def assign(self, stateful: list[TaskId], standby_replicas: int) -> dict[str, Tasks]:
        """Distribute the active tasks, then the standby tasks of the ``stateful`` ones."""
        was_active = {task: name for name, each in self._members.items() for task in each.target.active}
        was_standby: dict[TaskId, list[str]] = {}
        for name, each in self._members.items():
            for task in each.target.standby:
                was_standby.setdefault(task, []).append(name)
        waiting = self._keep([(task, [was_active[task]] if task in was_active else []) for task in self._tasks])
        waiting = self._keep([(task, was_standby.get(task, [])) for task in waiting])
        for task in waiting:
            self._active[self._least_loaded(self._processes)].add(task)
        for _ in range(standby_replicas):
            for task in stateful:
                earlier = [was_active[task]] if task in was_active else []
                self._add_standby(task, [*was_standby.get(task, []), *earlier])
        return {name: Tasks(frozenset(self._active[name]), frozenset(self._standby[name])) for name in self._members}

    def _keep(self, wanted: list[tuple[TaskId, list[str]]]) -> list[TaskId]:
        """Leave active tasks where they were, up to the share of each member. Returns the other tasks."""
        low, extra = divmod(len(self._tasks), len(self._members))
        waiting = []
        for task, names in wanted:
            fuller = sum(len(each) > low for each in self._active.values())
            quota = low + (fuller < extra)
            name = min(names, key=lambda each: len(self._active[each]), default=None)
            if name is None or len(self._active[name]) >= quota:
                waiting.append(task)
            else:
                self._active[name].add(task)
        return waiting

    def _add_standby(self, task: TaskId, earlier: list[str]) -> None:
        """Add a standby task to a process without the task: to one that had it before, if it is not fuller than others.

        Without such a process there is no standby task, as in Kafka.
        """
        free = {process: names for process, names in self._processes.items() if not self._has(names, task)}
        if not free:
            return
        name = self._least_loaded(free)
        for each in earlier:
            if self._members[each].process_id in free and self._load(each) <= self._load(name):
                name = each
                break
        self._standby[name].add(task)

    def _least_loaded(self, processes: Mapping[str, list[str]]) -> str:
        """The member with the fewest tasks; of equal ones, that of the process with the fewest for each member."""
        averages = {process: sum(map(self._load, names)) / len(names) for process, names in processes.items()}
        candidates = [name for names in processes.values() for name in names]
        return min(candidates, key=lambda name: (self._load(name), averages[self._members[name].process_id]))

    def _load(self, name: str) -> int:
        return len(self._active[name]) + len(self._standby[name])

    def _has(self, names: Iterable[str], task: TaskId) -> bool:
        return any(task in self._active[name] or task in self._standby[name] for name in names)
