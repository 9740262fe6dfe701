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
from ...settings.group import GroupConfig
from ...types import TopicPartition
from ..interceptor import ConsumerInterceptors
from ..partition import AssignedPartition
from ..position import PauseReason
from ..subscription import Subscription
from .participation import Participation


class CommitOnlyGroup(Participation):
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
        waiting = [assigned for assigned in self.subscription if assigned.pause_reason is PauseReason.LOCATING]
        for assigned in waiting:
            # Added before the lookup, so that the user can mark and commit in the meantime.
            if assigned.partition not in self.offsets.owned:
                self.offsets.begin(assigned.partition, None)
        if waiting:
            self._spawn(self._locate, waiting, name="committed offsets of assigned partitions")

    async def _locate(self, waiting: Sequence[AssignedPartition]) -> None:
        committed = await self.offsets.lookups.locate([assigned.partition for assigned in waiting])

        def move(assigned: AssignedPartition) -> None:
            begin = self.offsets.located(assigned.partition, committed[assigned.partition])
            if begin is not None and assigned.position.version == 0:
                assigned.seek(begin.offset, begin.leader_epoch)
            assigned.pause_for(PauseReason.NONE)

        self.subscription.change(waiting, move)
