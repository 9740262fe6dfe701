"""A ``Consumer`` with a ``group_id`` and without topics: the group only stores the offsets of the assigned partitions.

An assigned partition is paused with the reason LOCATING until the group's committed offset is known. If the user seeks
in the meantime, the seek has priority: the position then has a version other than 0. If the user commits in the
meantime, reading begins at that offset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...cluster.client import Client
from ...group.handover import COMMIT_TIMEOUT_AT_CLOSE
from ...group.offsets import Offsets
from ...settings.config import GroupConfig
from ...types import TopicPartition
from ..interceptor import ConsumerInterceptors
from ..partition import AssignedPartition
from ..position import PauseReason
from ..subscription import Subscription
from .group_side import GroupSide


class CommitOnlyGroup(GroupSide):
    """The offsets of a consumer that is not a member. ``spawn`` starts its tasks."""

    def __init__(
        self,
        client: Client,
        subscription: Subscription,
        config: GroupConfig,
        *,
        interceptors: ConsumerInterceptors | None,
        spawn: Callable[..., object],
    ) -> None:
        super().__init__(config, subscription, interceptors)
        self._client = client
        self._spawn = spawn
        self.marked: Callable[[TopicPartition, int], None] = self.tracker.marked
        self.offsets: Offsets = Offsets(client, config, self)

    def start(self) -> None:
        if self.config.auto_commit:
            self._spawn(self.offsets.run, name="commit marked offsets")
        self.on_assign()

    async def close(self, leave_group: bool | None) -> None:
        if self.config.auto_commit:
            await self.offsets.commit_marked(timeout=COMMIT_TIMEOUT_AT_CLOSE)

    def on_removed(self, partitions: Sequence[TopicPartition]) -> None:
        super().on_removed(partitions)
        self.offsets.forget(partitions)

    def on_assign(self) -> None:
        """Look up the committed offsets of the partitions that wait for them."""
        waiting = [each for each in self.subscription if each.position.pause_reason is PauseReason.LOCATING]
        for each in waiting:
            # Added before the lookup, so that the user can mark and commit in the meantime.
            if each.partition not in self.offsets.owned:
                self.offsets.begin(each.partition, None)
        if waiting:
            self._spawn(self._locate, waiting, name="committed offsets of assigned partitions")

    async def _locate(self, waiting: Sequence[AssignedPartition]) -> None:
        committed = await self.offsets.lookups.locate([assigned.partition for assigned in waiting])

        def begin(assigned: AssignedPartition) -> None:
            found = self.offsets.located(assigned.partition, committed[assigned.partition])
            if found is not None and assigned.position.version == 0:
                assigned.seek(found.offset, found.leader_epoch)
            assigned.position.pause_for(PauseReason.NONE)

        self.subscription.change(waiting, begin)
