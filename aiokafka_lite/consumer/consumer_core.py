"""The parts of one ``Consumer``: the core of every reading component, the reader, and the participation in a group."""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from ..aio import forks
from ..aio.pace import Pace
from ..aio.service import Service, ServiceState
from ..cluster.standstill import Check
from ..errors import IllegalStateError, KafkaError
from ..types import SubscriptionPattern, TopicPartition
from .group.claim import ClaimReader
from .group.rebalance import RebalanceHandle, RebalanceListener
from .partition import AssignedPartition
from .position import PauseReason
from .reader import Reader
from .reading_core import ReadingCore
from .settings import ReadingOptions, strategies_of

if TYPE_CHECKING:
    from ..group.member_runner import MemberRunner
    from ..group.strategies import AssignmentStrategy
    from ..settings.group import GroupConfig
    from .group.membership import Membership
    from .group.participation import Participation
    from .metrics import GroupMetrics

logger = logging.getLogger(__name__)

NO_CONTEXT = nullcontext()
_OVER = (ServiceState.CLOSING, ServiceState.CLOSED)


class MemberOptions(NamedTuple):
    """The arguments of a consumer that only a member of a group needs."""

    strategies: Sequence[AssignmentStrategy | str] | None
    listener: RebalanceListener | None
    handle: RebalanceHandle


class ConsumerCore(ReadingCore):
    """Owner: the ``Consumer``. With a ``group_id``, it takes part in the group."""

    def __init__(
        self,
        service: Service,
        options: ReadingOptions,
        topics: tuple[str, ...] | re.Pattern[str] | SubscriptionPattern,
        member: MemberOptions,
    ) -> None:
        super().__init__(service, options, topics if options.group is None and isinstance(topics, tuple) else ())
        self.membership: Membership | None = None
        """None for a consumer that is not a member of a group."""
        self.group: Participation | None = (
            None if options.group is None else self._participation(options.group, topics, member)
        )
        self.reader: Reader = Reader(
            self.subscription,
            options.consumer,
            self.client.retry_backoff(),
            tracker=None if self.group is None else self.group.tracker,
            interceptors=options.interceptors,
            is_ongoing=self.client.outages.is_ongoing,
        )
        self.client.outages.on_refusal = self._refused
        self.partition_readers: dict[TopicPartition, ClaimReader] = {}
        """The readers of single partitions, while the partitions are assigned."""
        forks.notify(self)
        self._pace: Pace | None = None if self.group is None else Pace(math.inf)
        self.is_subscribed: bool = bool(topics)
        """Whether topics were given. Then a read may wait although nothing is assigned yet."""

    def _participation(
        self,
        config: GroupConfig,
        topics: tuple[str, ...] | re.Pattern[str] | SubscriptionPattern,
        member: MemberOptions,
    ) -> Participation:
        # Imported here, so that a consumer without a group, as in Spark's workers, starts faster.
        from .group.commit_only import CommitOnlyGroup
        from .group.membership import Membership

        spawn, interceptors = self.service.start_child, self.options.interceptors
        strategies = strategies_of(config, member.strategies)
        if not topics:
            return CommitOnlyGroup(self.client, self.subscription, config, interceptors=interceptors, spawn=spawn)
        self.membership = Membership(
            self.client,
            self.subscription,
            config,
            topics=topics,
            strategies=strategies,
            listener=member.listener or RebalanceListener(),
            handle=member.handle,
            on_listener_error=self.on_callback_error,
            positions=self.positions,
            interceptors=interceptors,
            spawn=spawn,
        )
        return self.membership

    async def start(self) -> None:
        """Start as the base class does, and fix the first positions, so that records written later are read.

        Raises KafkaTimeout if a leader does not answer within ``api_timeout``.
        """
        await super().start()
        if self.group is not None:
            self.group.start()
        await self.positions.until_fixed(tuple(self.subscription.partitions), self.options.client.api_timeout)

    def most_records(self, max_records: int) -> int:
        """Return how many records a read for up to ``max_records`` records may return. Call it when a read begins.

        After records for which the program took longer than ``max_poll_interval``, it is what the program processes in
        two thirds of that time. Otherwise the member would leave, read the same records again, and never commit.
        """
        if self._pace is None or self.group is None:
            return max_records
        interval = self.group.config.max_poll_interval
        before = self._pace.most_returned(max_records)
        # Lowered after three quarters of the window. A program that sleeps for less than the interval loses nothing.
        self._pace.begin_read(asyncio.get_running_loop().time(), interval * 4 / 3)
        most = self._pace.most_returned(max_records)
        if most < before:
            logger.warning(
                "group %s: the program took longer than max_poll_interval = %g s for the records of a read, %.3g s for "
                "each, and gets them again; reads return at most %d records at once from now on",
                *(self.group.config.group_id, interval, self._pace.last, most),
            )
        return most

    def returned(self, count: int) -> None:
        """Record that a read has returned so many records."""
        if self._pace is not None:
            self._pace.returned(count, asyncio.get_running_loop().time())

    def forked(self) -> None:
        """Stop returning records in a forked process: the parent returns them. The next read asks ``service``."""
        self.reader.settle()

    def on_callback_error(self, error: Exception) -> None:
        self.reader.raise_once(error)

    def _refused(self, place: str, error: KafkaError) -> None:
        self.reader.refused(place, error)
        if self.membership is not None:
            self.membership.refused(error)

    async def end(self, leave_group: bool | None) -> None:
        """Stop fetching, and commit and leave the group."""
        await self.close()
        if self.group is not None:
            await self.group.close(leave_group)

    def check_usable(self) -> None:
        """Check like ``Service.check``, but accept a consumer that has not started yet: it may be configured."""
        if self.service.state is not ServiceState.NEW:
            self.service.check()

    def check_something_to_read(self) -> None:
        """Raise if a read could never return anything. A member that owns no partitions at the moment may wait."""
        if not self.is_subscribed and not self.subscription.partitions:
            raise IllegalStateError("there is nothing to read: give topics to the consumer, or assign() partitions")

    async def may_read(self) -> bool:
        """Check whether an iteration continues. Returns False once the consumer is closed; raises its failure."""
        while True:
            if self.service.state in _OVER:
                return False
            self.service.check()
            self.check_something_to_read()
            if not self.reader.must_yield:
                return True
            await asyncio.sleep(0)

    def reading(self, iteration: object = None) -> AbstractContextManager[None]:
        """Return a context for one read, while it waits. ``iteration`` is the iterator that reads, if any.

        Raises IllegalStateError for a consumer of a group that another task reads.
        """
        return NO_CONTEXT if self.group is None else self.group.tracker.reading(iteration)

    def partition_reader(self, partition: TopicPartition) -> ClaimReader:
        """Give the partition a reader of its own. The consumer's other reads leave the partition out from now on."""
        self.check_usable()
        if self.membership is not None:
            raise IllegalStateError("partition() is not for members of a group; use the claims of a ConsumerGroup")
        assigned = self.subscription[partition]
        reader = self.partition_readers.get(partition)
        if reader is None:
            reader = self.partition_readers[partition] = ClaimReader(
                assigned,
                self.subscription,
                self.options.consumer,
                self.client.retry_backoff(),
                check_process=self.service.check_process,
                interceptors=self.options.interceptors,
            )
            self.subscription.change([assigned], _give_reader)
        return reader

    # The group.

    def _checks(self) -> Sequence[Check]:
        checks = super()._checks()
        return checks if self.membership is None else (*checks, self.membership.member_runner.waits)

    @property
    def member_runner(self) -> MemberRunner | None:
        return None if self.membership is None else self.membership.member_runner

    def require_group(self) -> Participation:
        """Return the participation. Raises IllegalStateError if there is no ``group_id``, and in a forked process."""
        if self.service.is_inherited:  # hot: programs mark each record
            self.service.check_process()
        if self.group is None:
            raise IllegalStateError("this consumer has no group_id; pass one to its constructor")
        return self.group

    def add_listener(self, listener: RebalanceListener) -> None:
        """Call another listener as well."""
        if self.membership is None:
            raise IllegalStateError("add_listener() is for members of a group, made with group_id and topics")
        self.membership.add_listener(listener)

    def _group_metrics(self) -> GroupMetrics | None:
        if self.group is None:
            return None
        from ..cluster.metrics import loop_time
        from .metrics import group_metrics

        idle = self.group.tracker.idle_for(loop_time())
        return group_metrics(self.group.config.group_id, self.group.offsets, self.member_runner, idle)

    # Topics and partitions.

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are read completely or as a member."""
        whole_topics = self.subscription.whole_topics
        return frozenset(whole_topics) if self.membership is None else self.membership.topics

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions and no others. With a group, new partitions begin at the committed offsets."""
        self.check_assignable()
        self._assign(partitions)

    def check_assignable(self) -> None:
        """Raise IllegalStateError for a consumer of topics. Checks like ``check_usable`` too."""
        self.check_usable()
        if self.is_subscribed or self.membership is not None:
            read = ", ".join(sorted(self.topics)) or "the topics of a group"
            raise IllegalStateError(f"assign() is for consumers without topics; this one reads {read}")

    @property
    def first_pause(self) -> PauseReason:
        """The reason why a partition that was just assigned is not read yet."""
        return PauseReason.NONE if self.group is None else PauseReason.LOCATING

    def subscribe(self, topics: tuple[str, ...] | re.Pattern[str] | SubscriptionPattern) -> None:
        """Read other topics, as a member."""
        self.check_usable()
        if self.membership is None:
            raise IllegalStateError(
                "subscribe() is for members of a group: pass group_id and topics to the Consumer; "
                "to read without a group, pass topics alone, or use assign()"
            )
        self.is_subscribed = bool(topics)
        self.membership.subscribe(topics)

    def unsubscribe(self) -> None:
        """Read nothing."""
        self.check_usable()
        self.is_subscribed = False
        if self.membership is not None:
            self.membership.subscribe(())
        else:
            self.subscription.whole_topics = ()
            self._assign([])

    def _assign(self, partitions: Sequence[TopicPartition]) -> None:
        before = self.subscription.topics
        self.subscription.assign(partitions, self.first_pause)
        self.assigned(before)

    def assigned(self, before: set[str]) -> None:
        """Track the topics of the new assignment, and not those of ``before``; look up offsets of the group."""
        if self.is_running:
            topics = self.subscription.topics  # the client tracks exactly the topics that are read
            self.client.remove_topics(before - topics)
            self.client.add_topics(topics)
            if self.group is not None:
                self.group.on_assign()

    # The observer of the subscription.

    def settle(self) -> None:
        self.reader.settle()
        for reader in self.partition_readers.values():
            reader.settle()

    def on_moved(self, partitions: Sequence[TopicPartition]) -> None:
        if self.group is not None:
            self.group.on_moved(partitions)

    def on_removed(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self.client.outages.forget(str(partition))
            if partition in self.partition_readers:
                self.partition_readers.pop(partition).end()
        if self.group is not None:
            self.group.on_removed(partitions)

    def on_ready(self) -> None:
        self.reader.notice()
        for reader in self.partition_readers.values():
            reader.notice()


def _give_reader(assigned: AssignedPartition) -> None:
    assigned.has_reader = True
