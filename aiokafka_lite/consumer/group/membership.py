"""A ``Consumer`` as a member of a group: partitions come and go by rebalances, and the listener is called.

The ``MemberRunner`` calls the methods of its ``Reading`` protocol one at a time, except for ``stop``. Partitions of a
rebalance pass through two pause reasons: ASSIGNING until ``on_assigned`` has returned, REVOKING from the moment at
which the runner revokes them. A partition may turn from ASSIGNING to REVOKING while ``on_assigned`` runs; it must
then stay paused.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from ...aio.children import ChildScope
from ...aio.light_event import LightEvent
from ...cluster.client import Client
from ...errors import IllegalStateError, KafkaError
from ...group.events import Identity
from ...group.member_runner import MemberRunner
from ...group.offsets import Offsets
from ...group.strategies import AssignmentStrategy
from ...group.topic_watcher import Topics
from ...settings.group import GroupConfig
from ...types import GroupMetadata, OffsetAndMetadata, SubscriptionPattern, TopicPartition
from ..interceptor import ConsumerInterceptors
from ..partition import AssignedPartition
from ..position import PauseReason
from ..position_wait import PositionWait
from ..subscription import Subscription
from .callbacks import call
from .participation import Participation, begin_offsets
from .rebalance import RebalanceHandle, RebalanceListener


class Membership(Participation):
    """The membership of a consumer that reads ``topics``. ``spawn`` starts the tasks of the membership."""

    def __init__(
        self,
        client: Client,
        subscription: Subscription,
        config: GroupConfig,
        *,
        topics: Topics,
        strategies: Sequence[AssignmentStrategy | str],
        listener: RebalanceListener,
        handle: RebalanceHandle,
        on_listener_error: Callable[[Exception], None],
        positions: PositionWait,
        interceptors: ConsumerInterceptors | None,
        spawn: Callable[..., ChildScope],
    ) -> None:
        super().__init__(config, subscription, interceptors)
        self._topics = topics
        self._listeners = [listener]
        self._handle = handle
        self._on_listener_error = on_listener_error
        self._positions = positions
        self._position_timeout = min(client.config.api_timeout, config.time_to_revoke)
        self._started = False
        self.has_assignment: bool = False
        """Whether this member has an assignment of the group, which may be empty, and has not lost it."""
        self._assigned = LightEvent()
        self._news = LightEvent()  # an assignment, or a refusal
        self._refusal: KafkaError | None = None
        self.member_runner: MemberRunner = MemberRunner(
            client, config, strategies=strategies, reading=self, spawn=spawn
        )
        self.offsets: Offsets = self.member_runner.offsets

    # The consumer's calls.

    def start(self) -> None:
        self._started = True
        self.member_runner.start(self._topics)

    async def close(self, leave_group: bool | None) -> None:
        is_static = self.config.group_instance_id is not None
        await self.member_runner.close(leave=not is_static if leave_group is None else leave_group)

    def metadata(self, identity: Identity | None = None) -> GroupMetadata:
        """Return the identity for a transaction. A coordinator would accept any offset from no member (KIP-447)."""
        identity = self.member_runner.member.identity if identity is None else identity
        if identity.generation < 0:
            raise IllegalStateError("the consumer is not a member of its group now; read before you commit")
        return super().metadata(identity)

    def subscribe(self, topics: Topics) -> None:
        """Read other topics from now on; before ``start``, begin with them."""
        self._topics = topics
        if not topics:
            self._forget_assignment()  # the next assignment follows the next subscribe
        if self._started:
            self.member_runner.subscribe(topics)

    def add_listener(self, listener: RebalanceListener) -> None:
        """Call another listener as well."""
        self._listeners.append(listener)

    @property
    def topics(self) -> frozenset[str]:
        """The topics to read; for a pattern, the topics that match now."""
        if self._started:
            return self.member_runner.topics
        if isinstance(self._topics, re.Pattern | SubscriptionPattern):
            return frozenset()
        return frozenset(self._topics)

    def on_poll(self) -> None:
        self.member_runner.polled()

    # The calls of the ``MemberRunner``.

    def stop(self, partitions: Sequence[TopicPartition]) -> None:
        revoking = self.subscription.select(partitions)
        self.subscription.change(revoking, lambda assigned: assigned.pause_for(PauseReason.REVOKING))

    def suspend(self) -> None:
        self.subscription.replace_pause(PauseReason.NONE, PauseReason.CONFIRMING)

    def resume(self) -> None:
        self.subscription.replace_pause(PauseReason.CONFIRMING, PauseReason.NONE)

    async def wait_until_done(self, partitions: Sequence[TopicPartition]) -> None:
        await self.tracker.wait_until_processed(partitions)

    async def finish(self, partitions: Sequence[TopicPartition], *, closing: bool) -> None:
        pass  # processed records are marked already, and the others must not be marked

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        revoked = self._assigned_of(partitions)
        if revoked:
            await self._call("on_revoked()", lambda listener: listener.on_revoked(self._handle, revoked))
            # This comes after the listener, which may still commit offsets of these partitions.
            self.subscription.remove(revoked)

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._forget_assignment()
        lost = self._assigned_of(partitions)
        if lost:
            # This comes before the listener, because offsets of these partitions cannot be committed any more.
            self.subscription.remove(lost)
            await self._call("on_lost()", lambda listener: listener.on_lost(self._handle, lost))

    async def assigned(
        self, added: dict[TopicPartition, OffsetAndMetadata | None], owned: frozenset[TopicPartition]
    ) -> None:
        def prepare(assigned: AssignedPartition) -> None:
            committed = added[assigned.partition]
            if committed is not None:
                assigned.seek(committed.offset, committed.leader_epoch)

        partitions = self.subscription.extend(added, prepare, pause_reason=PauseReason.ASSIGNING)
        self.has_assignment = bool(self._topics)
        # This comes before the listener. With "latest", records that are written after ``on_assigned`` must be read.
        await self._positions.until_announced(list(added), self._position_timeout)
        begin_offsets(self.offsets, self.subscription, partitions)
        await self._call("on_assigned()", lambda listener: listener.on_assigned(self._handle, list(added)))
        # A revocation may have begun while the listener ran. Then the partition stays paused.
        ready = [assigned for assigned in partitions if assigned.pause_reason is PauseReason.ASSIGNING]
        self.subscription.change(ready, lambda assigned: assigned.pause_for(PauseReason.NONE))
        if self.has_assignment:  # the user may have unsubscribed meanwhile
            self._assigned.set()
            self._news.set()

    def _forget_assignment(self) -> None:
        self.has_assignment = False
        self._assigned.clear()

    def refused(self, error: KafkaError) -> None:
        """Raise this refusal from ``wait_assigned``."""
        self._refusal = error
        self._news.set()

    async def wait_assigned(self) -> None:
        """Wait until the member has an assignment, and its listeners have returned."""
        while not self._assigned.is_set():
            self._refusal = None
            self._news.clear()
            await self._news.wait()
            self._raise_refusal()

    def _raise_refusal(self) -> None:
        if self._refusal is not None and not self._assigned.is_set():
            raise self._refusal.with_traceback(None)

    def idle_for(self, now: float) -> float:
        return self.tracker.idle_for(now)

    async def _call(self, what: str, method: Callable[[RebalanceListener], Awaitable[None]]) -> None:
        """Call the listeners. As in Java's client, the next read raises their exception; the rebalance continues."""
        for listener in list(self._listeners):
            try:
                await call(what, partial(method, listener))
            except Exception as error:  # noqa: BLE001 - a listener may raise anything, and the user gets it
                self._on_listener_error(error)

    def _assigned_of(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [assigned.partition for assigned in self.subscription.select(partitions)]
