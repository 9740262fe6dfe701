"""The assignor ``sticky`` of streams groups (KIP-1071): members keep tasks, and have equal numbers of them.

A member is a thread; the members of one process share its state on disk. A process has each task at most once: a
standby task never runs beside the active one. Balance comes first: a member keeps no more tasks than its share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from heapq import heapify, heappop, heappush
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
    """Return a new target of each member. ``counts`` are the numbers of tasks by subtopology."""
    if not members:
        return {}
    # By partition first, as in Kafka: a member that gives up tasks keeps some of each subtopology, so that the load of
    # every subtopology is shared.
    tasks = [(name, number) for name, count in counts.items() for number in range(count)]
    tasks.sort(key=lambda task: (task[1], task[0]))
    kept = frozenset(stateful)
    return _Assignment(members, tasks).assign([task for task in tasks if task[0] in kept], standby_replicas)


class _Assignment:
    """One computation: the tasks that the members have got so far."""

    def __init__(self, members: Mapping[str, TaskMember], tasks: list[TaskId]) -> None:
        self._members = dict(sorted(members.items()))
        self._tasks = tasks
        self._active: dict[str, set[TaskId]] = {name: set() for name in self._members}
        self._standby: dict[str, set[TaskId]] = {name: set() for name in self._members}
        self._processes_with: dict[TaskId, list[str]] = {task: [] for task in tasks}

    def assign(self, stateful: list[TaskId], standby_replicas: int) -> dict[str, Tasks]:
        """Distribute the active tasks, then the standby tasks of the ``stateful`` ones."""
        was_active = {task: name for name, member in self._members.items() for task in member.target.active}
        was_standby: dict[TaskId, list[str]] = {}
        for name, member in self._members.items():
            for task in member.target.standby:
                was_standby.setdefault(task, []).append(name)
        # First, active tasks stay where they were active. Then they move to members that have their state as a standby.
        waiting = self._keep([(task, [was_active[task]] if task in was_active else []) for task in self._tasks])
        waiting = self._keep([(task, was_standby.get(task, [])) for task in waiting])
        queue = _Queue(self._members, {name: len(tasks) for name, tasks in self._active.items()})
        self._add_active(waiting, queue)
        assert sum(map(len, self._active.values())) == len(self._tasks), "each task is active at one member"
        for name, active in self._active.items():
            for task in active:
                self._processes_with[task].append(self._members[name].process_id)
        for _ in range(standby_replicas):
            for task in stateful:
                earlier = [was_active[task]] if task in was_active else []
                self._add_standby(task, [*was_standby.get(task, []), *earlier], queue)
        return {name: Tasks(frozenset(self._active[name]), frozenset(self._standby[name])) for name in self._members}

    def _keep(self, candidates: list[tuple[TaskId, list[str]]]) -> list[TaskId]:
        """Leave active tasks where they were, up to the share of each member. Returns the other tasks."""
        # Balance: ``extra`` members may have one task more than ``low``, and ``fuller`` counts those that do.
        low, extra = divmod(len(self._tasks), len(self._members))
        fuller = sum(len(tasks) > low for tasks in self._active.values())
        waiting = []
        for task, names in candidates:
            name = min(names, key=lambda member: len(self._active[member]), default=None)
            if name is None or len(self._active[name]) >= low + (fuller < extra):
                waiting.append(task)
            else:
                self._active[name].add(task)
                fuller += len(self._active[name]) == low + 1
        return waiting

    def _add_active(self, tasks: Iterable[TaskId], queue: _Queue) -> None:
        """Give each of these active tasks to the first member of the queue."""
        for task in tasks:
            member = queue.first(())
            assert member is not None, "there is a member"
            self._active[member].add(task)
            queue.add_task(member)

    def _add_standby(self, task: TaskId, earlier: list[str], queue: _Queue) -> None:
        """Add a standby task to a process that does not have the task, preferably to one that had it before.

        Balance comes first: a process that had the task and is fuller than others does not get it. If all processes
        have the task, no standby task is added, as in Kafka.
        """
        processes = self._processes_with[task]
        name = queue.first(processes)
        if name is None:
            return
        for member in earlier:
            if self._members[member].process_id not in processes and queue.loads[member] <= queue.loads[name]:
                name = member
                break
        assert self._members[name].process_id not in processes, "a process has each task at most once"
        self._standby[name].add(task)
        processes.append(self._members[name].process_id)
        queue.add_task(name)


class _Queue:
    """The members in the order in which they get tasks: the member with the fewest tasks is the first.

    Of equal members, the member of the process with the fewest tasks for each member is the first. Processes are in a
    heap, and the members of each process in another heap. An outdated entry stays in its heap until it gets to the top.
    """

    def __init__(self, members: Mapping[str, TaskMember], loads: dict[str, int]) -> None:
        self.loads = loads
        self._members = members
        processes: dict[str, list[str]] = {}
        for name, member in members.items():
            processes.setdefault(member.process_id, []).append(name)
        self._sizes = {process: len(names) for process, names in processes.items()}
        self._totals = {process: sum(loads[name] for name in names) for process, names in processes.items()}
        order = [name for names in processes.values() for name in names]
        self._ranks = {name: rank for rank, name in enumerate(order)}
        self._names = {
            process: [(loads[name], self._ranks[name], name) for name in names] for process, names in processes.items()
        }
        for names_of_one in self._names.values():
            heapify(names_of_one)
        self._heap = [self._entry(process) for process in processes]
        heapify(self._heap)

    def add_task(self, name: str) -> None:
        """Count one more task of a member."""
        process = self._members[name].process_id
        self.loads[name] += 1
        self._totals[process] += 1
        heappush(self._names[process], (self.loads[name], self._ranks[name], name))
        heappush(self._heap, self._entry(process))

    def first(self, without: Collection[str]) -> str | None:
        """Return the first member of a process that is not in ``without``. None if there is no such process."""
        passed = []
        member = None
        while member is None and self._heap:
            entry = self._heap[0]
            *_, name, process = entry
            current = entry == self._entry(process)
            if current and process not in without:
                member = name
            else:
                heappop(self._heap)
                if current:
                    passed.append(entry)
        for entry in passed:
            heappush(self._heap, entry)
        return member

    def _entry(self, process: str) -> tuple[int, float, int, str, str]:
        names = self._names[process]
        while names[0][0] != self.loads[names[0][2]]:
            heappop(names)
        load, rank, name = names[0]
        return load, self._totals[process] / self._sizes[process], rank, name, process
