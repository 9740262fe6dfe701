"""The members of a streams group (KIP-1071), and how one of them gets from its tasks to its target.

Rules of this file:

 1. A member revokes first: it keeps its epoch, in UNREVOKED_TASKS, until a heartbeat lists none of the tasks that it
    has to revoke. If a newer target takes more tasks then, the member revokes these at the next epoch.
 2. Then it takes the epoch of the target, and all tasks of the target that are free. An active task is free if no other
    member has it as an active task. In both roles a task is free only if no member of the same process has it: the two
    would share a directory.
 3. The other tasks come later: the member is in UNRELEASED_TASKS until then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from ..groups.heartbeat_group import HeartbeatMember
from .assignor import TaskId, Tasks

NO_TASKS = Tasks()


class TaskState(IntEnum):
    """The state of a member, numbered as in Kafka's records."""

    STABLE = 1
    """The member has the tasks of the target at its epoch."""
    UNREVOKED_TASKS = 2
    """The member has to revoke tasks."""
    UNRELEASED_TASKS = 3
    """The member waits for tasks that other members have to revoke."""


@dataclass(slots=True, eq=False)
class StreamsMember(HeartbeatMember):
    """A member of a streams group.

    The active tasks, ``active`` and ``revoking``, have the member epoch at which each was assigned.
    """

    topology_epoch: int = 0
    process_id: str = ""
    endpoint: tuple[str, int] | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    state: TaskState = TaskState.STABLE
    active: dict[TaskId, int] = field(default_factory=dict)
    standby: frozenset[TaskId] = frozenset()
    revoking: dict[TaskId, int] = field(default_factory=dict)
    revoking_standby: frozenset[TaskId] = frozenset()

    @property
    def tasks(self) -> Tasks:
        return Tasks(frozenset(self.active), self.standby)

    @property
    def description(self) -> tuple[object, ...]:
        """The description of the member, from its heartbeats. The group epoch grows with each change."""
        return (
            self.rack_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout,
            self.topology_epoch,
            self.process_id,
            self.endpoint,
            self.tags,
        )

    def is_reconciled(self, epoch: int) -> bool:
        return self.state is TaskState.STABLE and self.epoch == epoch

    def runs(self, task: TaskId) -> bool:
        """Return whether the member has the task as an active one, or has to revoke it."""
        return task in self.active or task in self.revoking

    def keeps(self, task: TaskId) -> bool:
        """Return whether the member has the task in any role, or has to revoke it."""
        return self.runs(task) or task in self.standby or task in self.revoking_standby

    def may_commit(self, task: TaskId, epoch: int) -> bool:
        """Return whether the member had the task at an epoch before its present one."""
        since = self.active.get(task, self.revoking.get(task))
        return since is not None and since <= epoch

    @property
    def must_revoke(self) -> bool:
        return self.state is TaskState.UNREVOKED_TASKS

    def reconcile(self, epoch: int, target: Tasks, owned: Tasks | None, members: Iterable[StreamsMember]) -> bool:
        """Move towards the ``target`` of an assignment ``epoch``. ``owned`` are the tasks that the heartbeat lists.

        Returns whether the member moved. If it moved and has tasks to revoke, these tasks are new.
        """
        if self.is_reconciled(epoch):
            return False
        # Rule 1: the member still has what it must revoke, so its epoch and its other tasks stay.
        if self.state is TaskState.UNREVOKED_TASKS and self._owns(owned, self.revoking, self.revoking_standby):
            return False
        kept = {task: since for task, since in self.active.items() if task in target.active}
        surplus = {task: since for task, since in self.active.items() if task not in target.active}
        kept_standby, surplus_standby = self.standby & target.standby, self.standby - target.standby
        if (surplus or surplus_standby) and self._owns(owned, surplus, surplus_standby):
            self.active, self.standby = kept, kept_standby
            self.revoking, self.revoking_standby = surplus, surplus_standby
            # A second revocation in a row begins at the next epoch (rule 1).
            has_revoked = self.state is TaskState.UNREVOKED_TASKS
            self.state = TaskState.UNREVOKED_TASKS
            self.previous_epoch, self.epoch = self.epoch, self.epoch + has_revoked
            return True
        # As in Kafka, a task that this heartbeat frees is free from the next one on, also for the member itself.
        present = list(members)
        missing, missing_standby = target.active - kept.keys(), target.standby - kept_standby
        free = self._free_of(missing, present, as_active=True)
        taken_standby = self._free_of(missing_standby, present, as_active=False)
        self.active = {**kept, **dict.fromkeys(sorted(free), epoch)}
        self.standby = kept_standby | taken_standby
        self.revoking, self.revoking_standby = {}, frozenset()
        self.state = TaskState.STABLE if self.tasks == target else TaskState.UNRELEASED_TASKS
        assert epoch >= self.epoch, "the epoch of a member only grows"
        self.previous_epoch: int = self.epoch
        self.epoch: int = epoch
        return True

    def _free_of(self, tasks: Iterable[TaskId], members: Collection[StreamsMember], *, as_active: bool) -> set[TaskId]:
        """Return the tasks that no member keeps or runs in a way that rule 2 forbids."""
        return {
            task
            for task in tasks
            if not any(
                member.keeps(task) if member.process_id == self.process_id else as_active and member.runs(task)
                for member in members
            )
        }

    @staticmethod
    def _owns(owned: Tasks | None, active: Iterable[TaskId], standby: Iterable[TaskId]) -> bool:
        """Return whether a member may still own one of these tasks. It may if its heartbeat lists no tasks."""
        return owned is None or not owned.active.isdisjoint(active) or not owned.standby.isdisjoint(standby)
