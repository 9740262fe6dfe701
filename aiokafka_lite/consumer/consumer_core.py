"""The parts of one ``Consumer``: the core that every reading component has, the reader, and the group's side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from ..aio.service import Service, ServiceState
from ..errors import IllegalStateError
from ..types import TopicPartition
from .core import ReadingCore
from .position import PauseReason
from .reader import Reader
from .settings import ReadingOptions
from .subscription import Subscription

if TYPE_CHECKING:
    from ..cluster.client import Client
    from .group_side import GroupSide

MakeGroupSide = Callable[["Client", Subscription], "GroupSide"]


class ConsumerCore(ReadingCore):
    """Owner: the ``Consumer``. ``make_group`` makes the group's side, for a consumer with a ``group_id``.

    ``positions_changed`` is set whenever a position may have become known, or can no longer become known.
    """

    def __init__(
        self,
        service: Service,
        options: ReadingOptions,
        whole_topics: Sequence[str],
        make_group: MakeGroupSide | None,
    ) -> None:
        super().__init__(service, options, whole_topics)
        self.group = None if make_group is None else make_group(self.client, self.subscription)
        self.reader = Reader(
            self.subscription,
            options.consumer,
            self.client.retry_backoff(),
            on_room=self.fetching.wake,
            tracker=None if self.group is None else self.group.tracker,
        )
        self.positions_changed = asyncio.Event()
        self.reading: AbstractContextManager[None] = nullcontext() if self.group is None else self.group.tracker
        """Entered by each read, for as long as it waits."""
        self.is_subscribed = bool(whole_topics)
        """Whether topics were given. Then a read may wait although nothing is assigned yet."""

    async def start(self) -> None:
        await super().start()
        if self.group is not None:
            self.group.start()

    async def end(self, leave_group: bool | None) -> None:
        """Stop fetching, and commit and leave the group."""
        await self.close()
        if self.group is not None:
            await self.group.close(leave_group)

    def check_usable(self) -> None:
        """As ``Service.check``, but a consumer that has not started yet may be configured."""
        if self.service.state is not ServiceState.NEW:
            self.service.check()

    def check_something_to_read(self) -> None:
        """Raise where a read could never return anything. A member that owns nothing at the moment may wait."""
        if not self.is_subscribed and not self.subscription.partitions:
            raise IllegalStateError("there is nothing to read: give topics to the consumer, or assign() partitions")

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions and no others; with a ``group_id``, new ones from the committed offsets on."""
        before = self.subscription.topics
        waits = PauseReason.NONE if self.group is None else PauseReason.LOCATING
        self.subscription.assign(partitions, waits)
        if self.is_running:
            topics = self.subscription.topics  # the client follows metadata of exactly the topics that are read
            self.client.remove_topics(before - topics)
            self.client.add_topics(topics)
            if self.group is not None:
                self.group.on_assign()

    # The observer of the subscription.

    def settle(self) -> None:
        self.reader.settle()

    def on_moved(self, partitions: Sequence[TopicPartition]) -> None:
        if self.group is not None:
            self.group.on_moved(partitions)

    def on_removed(self, partitions: Sequence[TopicPartition]) -> None:
        if self.group is not None:
            self.group.on_removed(partitions)

    def on_ready(self) -> None:
        self.reader.notice()
        self.positions_changed.set()
