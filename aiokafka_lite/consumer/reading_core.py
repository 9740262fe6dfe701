"""The parts that every reading component has: client, subscription, fetching.

``ReadingCore`` wires them once, for ``Consumer`` and for each ``ConsumerGroup.consume``. They differ in two things: how
records are taken out of the buffers, and how a rebalance is handled. Both are in the subclasses, which override the
methods of ``SubscriptionObserver``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..aio.callbacks import in_copy
from ..aio.service import Service, ServiceState
from ..cluster.client import Client
from ..cluster.metadata import ClusterView
from ..cluster.standstill import Check
from ..types import TopicPartition
from .fetch.fetchers import Fetching
from .partition import AssignedPartition
from .position import ResetReason, ResetStrategy
from .position_wait import PositionWait
from .settings import ReadingOptions
from .subscription import Subscription, SubscriptionObserver
from .waits import open_transactions, paused_partitions, unread_partitions

if TYPE_CHECKING:
    from ..cluster.health import Health
    from ..cluster.otlp import MetricsReport
    from ..group.member_runner import MemberRunner
    from ..net.metrics import BrokerTraffic
    from .diagnosis import ConsumerDiagnosis
    from .metrics import ConsumerMetrics, GroupMetrics


class ReadingCore(SubscriptionObserver):
    """Client, subscription and fetching of one reading component. Owner: the component that ``service`` belongs to.

    All partitions of ``whole_topics`` are read, without a group.
    """

    def __init__(self, service: Service, options: ReadingOptions, whole_topics: Sequence[str] = ()) -> None:
        self.service = service
        self.options = options
        self.client: Client = Client(
            options.client,
            connector=options.connector,
            runtime=options.runtime,
            report_metrics=self._report_metrics,
        )
        self.subscription: Subscription = Subscription(
            ResetStrategy.of(options.consumer),
            options.consumer.max_partition_fetch_bytes,
            self,
            whole_topics,
            is_new=self.client.is_new,
        )
        self.fetching: Fetching = Fetching(self.client, self.subscription, options.consumer, service.start_child)
        self.positions: PositionWait = PositionWait(self.client, self.subscription)
        self._is_fetching = False

    async def start(self) -> None:
        """Connect, assign all partitions of the topics that are read as a whole, and begin to fetch.

        Raises the errors of ``Client.topic``.
        """
        await self.service.attach(self.client.service)
        topics = self.subscription.whole_topics
        self.client.add_topics(self.subscription.topics.union(topics))
        for name in topics:
            topic = await self.client.topic(name, timeout=self.options.client.api_timeout)
            partitions = (TopicPartition(name, partition.partition) for partition in topic.partitions)
            self.subscription.extend(
                [partition for partition in partitions if partition not in self.subscription.partitions]
            )
        self.client.on_view_change(self._view_changed)
        self.client.standstill.watch(lambda: repr(self.service), self._checks())
        self._is_fetching = True
        self.fetching.start()

    def _checks(self) -> Sequence[Check]:
        """Return what this component may wait for without end: the table for ``Client.standstill``."""
        return (
            lambda: unread_partitions(self.subscription, self.client),
            lambda: paused_partitions(self.subscription, self._why_paused()),
            lambda: open_transactions(self.subscription, self.options.consumer.isolation),
        )

    async def close(self) -> None:
        """Stop fetching."""
        self._is_fetching = False
        await self.fetching.close()

    @property
    def is_running(self) -> bool:
        """Whether fetching may start tasks. The client ends a moment later, and still reports changes."""
        return self._is_fetching and self.service.state in (ServiceState.STARTING, ServiceState.RUNNING)

    def on_change(self, partitions: Sequence[AssignedPartition]) -> None:
        if self.is_running:
            self.fetching.changed(partitions)
        self.on_located()

    def on_located(self) -> None:
        self.positions.notify()
        self.on_ready()

    def on_reset(self, partition: TopicPartition, old: int, new: int, reason: ResetReason) -> None:
        self.on_moved([partition])
        if self.options.on_offset_reset is not None:
            try:
                in_copy(self.options.on_offset_reset, partition, old, new, reason)
            except Exception as error:  # noqa: BLE001 - a callback may raise anything, and the user gets it
                self.on_callback_error(error)

    def on_callback_error(self, error: Exception) -> None:
        """Let the next read raise this error of a user's callback."""
        raise NotImplementedError

    @property
    def member_runner(self) -> MemberRunner | None:
        """The runner of the membership; None for a consumer that is not a member."""
        return None

    def diagnose(self) -> ConsumerDiagnosis:
        from .diagnosis import diagnose

        self.service.check_process()
        return diagnose(self.service, self.client, self.subscription, self.options, self.member_runner)

    def health(self, max_silence: float, max_poll_ago: float | None) -> Health:
        """Return the health of the consumer. The default of ``max_poll_ago`` is ``max_poll_interval`` of the group."""
        from .diagnosis import consumer_health

        self.service.check_process()
        group = self._group_metrics()
        interval = math.inf if self.options.group is None else self.options.group.max_poll_interval
        return consumer_health(
            self.service,
            self.client,
            None if group is None else group.member,
            max_silence=max_silence,
            max_poll_ago=interval if max_poll_ago is None else max_poll_ago,
            late_program=self._late_program(),
        )

    def _why_paused(self) -> str:
        """Return the reason for which all partitions are paused."""
        return "the program has paused all its partitions"

    def _late_program(self) -> str | None:
        """Return what the program has done since it last asked for records, if that is known."""
        return None

    def traffic(self) -> Mapping[int, BrokerTraffic]:
        self.service.check_process()
        return self.client.traffic()

    def _report_metrics(self) -> MetricsReport:
        from ..cluster.reports import report_of

        metrics = self.metrics()
        resource = {} if metrics.group is None else {"group_id": metrics.group.group_id}
        return report_of("consumer", metrics, metrics.client, resource)

    def metrics(self) -> ConsumerMetrics:
        from .metrics import consumer_metrics

        self.service.check_process()
        isolation, fetches = self.options.consumer.isolation, self.fetching.counters
        return consumer_metrics(self.client, self.subscription, isolation, fetches, self._group_metrics())

    def _group_metrics(self) -> GroupMetrics | None:
        return None

    def _view_changed(self, view: ClusterView) -> None:
        if self.is_running:
            self.fetching.view_changed(view)
