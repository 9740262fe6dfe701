"""``Consumer``: the public class. Its calls are implemented by parts:

- ``consumer_core``: the client, the subscription, fetching, the reader and the participation in a group;
- ``position_calls``: seeks, pauses, lag, offsets by time;
- ``iteration``: the ways to read;
- ``group.membership`` and ``group.commit_only``: the two ways to take part in a group.
"""

from __future__ import annotations

import math
import re
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Unpack

from ..aio.component import Component
from ..aio.runtime import Runtime, wall_clock
from ..arguments import check_timeout, must_be
from ..arguments import marked as checked_mark
from ..arguments import partition as checked_partition
from ..arguments import partitions as checked_partitions
from ..cluster.topics import check_topic_name
from ..errors import ConfigurationError
from ..method_names import CONSUMER, named_elsewhere
from ..net.connector import Connector
from ..protocol.messages import MetadataRequest
from ..serialization.deserializer import Deserializer
from ..types import GroupMetadata, K, Names, OffsetAndMetadata, Record, SubscriptionPattern, TopicPartition, V
from .consumer_core import ConsumerCore, MemberOptions
from .deserializing import Deserializing, OnDeserializationError
from .group.rebalance import RebalanceHandle, RebalanceListener
from .interceptor import ConsumerInterceptor
from .iteration import Batches, PartitionReader, RecordIteration, poll, poll_ready
from .position import OnOffsetReset
from .position_calls import PositionCalls
from .settings import checked_topics, reading_options

if TYPE_CHECKING:
    # Imported where a group is used, so that a consumer without a group, as in Spark's workers, starts faster.
    from ..cluster.health import Health
    from ..cluster.metadata import PartitionView
    from ..group.offsets import CommitResult, Offsets
    from ..group.states import MemberState
    from ..group.strategies import AssignmentStrategy
    from ..net.metrics import BrokerTraffic
    from ..settings.keywords import ConsumerSettings
    from .bounded import BoundedRead
    from .diagnosis import ConsumerDiagnosis
    from .metrics import ConsumerMetrics


class Consumer(PositionCalls, Component, Generic[K, V]):
    """Reads records of topics or of chosen partitions.

    Give ``topics`` to read all their partitions, also those added later; or call ``assign``. ``topics`` are names or,
    with a ``group_id``, a compiled regular expression that must match whole names, or a ``SubscriptionPattern`` for the
    brokers. The members of the group share the partitions. Reading begins at the group's committed offsets. Requesting
    the next record, list or batch marks all records returned before as processed, and the consumer commits the marks.
    One task should read. ``strategies`` (range, cooperative-sticky and roundrobin by default; strategies of this
    package also by name, as in ``["range"]``) and ``listener`` need a group. With ``group_protocol="consumer"`` the
    brokers assign the partitions (KIP-848), and ``strategies`` is refused. A consumer with a ``group_id`` and no
    ``topics`` is not a member: the group only stores the offsets of the partitions given to ``assign``.

    Use it in ``async with``, or between ``start()`` and ``close()``; several consumers may run in one event loop.
    ``assign``, ``seek`` and ``pause`` may be called before the start. Records written after the start are read.

    With a ``key_deserializer`` or ``value_deserializer``, which may be functions of the bytes alone, records contain
    the deserialized objects; ``batches`` always has bytes. ``on_deserialization_error`` decides about a record for
    which a deserializer fails: ``"raise"`` (reading stays at the record until ``seek``), ``"skip"``, ``"raw"``, or a
    function. ``interceptors`` see the records that are read, in their order, and the offsets that are committed.

    ``on_offset_reset`` is called when an offset no longer exists and ``auto_offset_reset`` has chosen a new offset. If
    it raises, the next read raises its exception once. ``clock`` returns seconds since the epoch, for a policy
    ``by_duration``.

    A cancelled read loses no record: the position moves when a record is returned. If a partition cannot be read (a
    damaged batch, or an offset that is gone and no policy), reading raises its error. The partition is retried after a
    backoff, and the other partitions continue. ``seek`` skips the damage.
    """

    if not TYPE_CHECKING:
        __getattr__ = named_elsewhere(CONSUMER)

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        topics: Names | re.Pattern[str] | SubscriptionPattern = (),
        group_id: str | None = None,
        strategies: Sequence[AssignmentStrategy | str] | None = None,
        listener: RebalanceListener | None = None,
        key_deserializer: Deserializer[K] | Callable[[bytes], K | Awaitable[K]] | None = None,
        value_deserializer: Deserializer[V] | Callable[[bytes], V | Awaitable[V]] | None = None,
        on_deserialization_error: OnDeserializationError = "raise",
        interceptors: Sequence[ConsumerInterceptor] = (),
        on_offset_reset: OnOffsetReset | None = None,
        connector: Connector | None = None,
        clock: Callable[[], float] = wall_clock,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        Component.__init__(self)
        options = reading_options(
            bootstrap_servers,
            group_id,
            settings,
            deserializing=Deserializing.of(key_deserializer, value_deserializer, on_deserialization_error),
            interceptors=interceptors,
            on_offset_reset=on_offset_reset,
            connector=connector,
            runtime=Runtime(clock),
        )
        checked = checked_topics(topics, options.group)
        _check_group_arguments(group_id, checked, strategies, listener)
        if listener is not None:
            _checked_listener(listener)
        self._client_id = options.client.client_id
        self._leave_group: bool | None = None
        handle = RebalanceHandle(weakref.proxy(self))  # a task refers to the handle: rule 4 of aio.service
        core = ConsumerCore(self._service, options, checked, MemberOptions(strategies, listener, handle))
        PositionCalls.__init__(self, core)
        self._records: RecordIteration[K, V] = RecordIteration(self._core)

    def __repr__(self) -> str:
        return f"<Consumer {self._client_id} {self.state.name} {self._core.subscription!r}>"

    # Lifetime.

    async def _on_start(self) -> None:
        await self._core.start()

    async def _on_close(self) -> None:
        await self._core.end(self._leave_group)

    async def close(self, timeout: float | None = None, *, leave_group: bool | None = None) -> None:
        """Commit the marked offsets, leave the group, and end within ``timeout`` seconds (3 by default).

        A static member does not leave, so that a restart causes no rebalance; ``leave_group`` overrides that. After the
        timeout, all tasks are cancelled. Raises the exception that had already ended the consumer, or an exception of a
        callback that no read has raised.
        """
        check_timeout(timeout)
        if leave_group is not None:
            self._leave_group = leave_group
        await super().close(timeout)
        self._core.reader.raise_error()

    # Topics and partitions.

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions."""
        self._service.check_process()
        return tuple(self._core.subscription.partitions)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others. Partitions that stay keep position, pause and fetched records.

        Raises IllegalStateError for a consumer of ``topics``, and InvalidTopic. If a partition does not exist, reads
        raise UnknownTopic after one to three seconds, because brokers may not know a new partition at once. The call
        takes some µs per partition; for tens of thousands, see ``assign_gradually``.
        """
        self._core.assign(_checked_assignment(partitions))

    async def assign_gradually(self, partitions: Iterable[TopicPartition]) -> None:
        """Do the same as ``assign``, but let other tasks run in between, which ``assign`` of 100,000 would hold up.

        While the call waits, and after its cancellation, a part of the change is done: call it again to complete it.
        Partitions that stay are the first ones of ``assignment``. Raises the errors of ``assign``; IllegalStateError
        also if another call changes the assignment meanwhile.
        """
        from .gradual_assignment import assign_gradually  # imported here, because few programs need it

        await assign_gradually(self._core, partitions)

    def subscribe(self, topics: Names | re.Pattern[str] | SubscriptionPattern) -> None:
        """Read other topics from now on, as a member of the group.

        Partitions of the old topics are revoked as in a rebalance. Raises IllegalStateError unless the consumer was
        made with ``group_id`` and ``topics``.
        """
        group = self._core.group
        self._core.subscribe(checked_topics(topics, None if group is None else group.config))

    def unsubscribe(self) -> None:
        """Stop reading; a member leaves the group until ``subscribe``. Reads that wait raise IllegalStateError."""
        self._core.unsubscribe()

    def subscription(self) -> frozenset[str]:
        """Return the topics that are read completely or as a member; for a pattern, the topics that match now.

        With a ``SubscriptionPattern``, these are the topics of the assignment.
        """
        self._service.check_process()
        return self._core.topics

    # Topics.

    async def partitions_for(self, topic: str, *, timeout: float | None = None) -> tuple[PartitionView, ...]:
        """Look up the partitions of a topic, assigned or not, with leaders and replicas.

        Raises UnknownTopic if the topic does not appear within ``timeout`` seconds (``api_timeout`` by default),
        InvalidTopic, AuthorizationError, KafkaTimeout.
        """
        self._service.check()
        limit = self._core.client.limit(timeout)
        view = await self._service.while_running(self._core.client.topic(topic, limit))
        return view.partitions

    async def topics(self, *, timeout: float | None = None) -> frozenset[str]:
        """Look up the names of all topics that this user may see, without internal ones.

        Raises KafkaTimeout after ``timeout`` seconds (``api_timeout`` by default).
        """
        self._service.check()
        sending = self._core.client.send(MetadataRequest(topics=None), timeout=self._core.client.limit(timeout))
        response = await self._service.while_running(sending)
        return frozenset(topic.name for topic in response.topics if topic.name is not None and not topic.is_internal)

    # The group.

    @property
    def offsets(self) -> Offsets:
        """The group's offsets of the assigned partitions, to mark, reset and commit one by one.

        Raises IllegalStateError without a ``group_id``.
        """
        return self._core.require_group().offsets

    def mark(
        self, record: Record[K, V] | list[Record[K, V]] | tuple[Record[K, V], ...] | None = None, metadata: str = ""
    ) -> bool:
        """Mark all records up to this one, or up to each of a list, as processed; without a record, all returned ones.

        Returns False if a record was marked before, or if its partition is no longer assigned. In the second case,
        the new owner reads the record again, and the next ``commit()`` lists the partition in ``refused``. A partition
        whose returned records are all marked does not delay a rebalance. Records of a ``PartitionReader`` are marked
        one by one: without a record, the result is then False. Raises ValueError for ``metadata`` without one record.
        """
        if type(record) is Record:  # hot: programs mark each record
            return self._core.require_group().mark(record, metadata)
        checked = checked_mark(record, metadata)
        group = self._core.require_group()
        if checked is None:
            # The records of partition readers are excluded, because other tasks may still process some of them.
            return group.tracker.mark_all() and not self._core.partition_readers
        # A list, not a generator: a record that cannot be marked must not end the loop.
        return False not in [group.mark(returned, metadata) for returned in checked]

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None, *, timeout: float | None = None
    ) -> CommitResult:
        """Commit these offsets (each is the offset of the next record to read), or all marked offsets.

        The records of the last read are not marked before the next read; see ``mark``. Retriable errors are retried for
        ``timeout`` seconds (``api_timeout`` by default). Refused partitions, for example those that another member has
        now, are in the result and in the log, and raise no exception: ``raise_for_refused()`` raises them.
        """
        self._service.check()
        group = self._core.require_group()
        return await self._service.while_running(group.commit(offsets, self._core.client.limit(timeout)))

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Look up the group's committed offsets; None for a partition without one.

        Raises KafkaTimeout after ``timeout`` seconds (``api_timeout`` by default), AuthorizationError.
        """
        self._service.check()
        lookup = self.offsets.fetch(checked_partitions(partitions), timeout=self._core.client.limit(timeout))
        return await self._service.while_running(lookup)

    def group_metadata(self) -> GroupMetadata:
        """Return the member's identity, for commits in a transaction. Read it when ``poll`` has returned the records.

        The coordinator refuses an identity that is older than the last rebalance. Raises IllegalStateError without a
        ``group_id``, and while the consumer is not a member: before its first assignment, and after it has lost its
        partitions.
        """
        self._service.check_process()
        return self._core.require_group().metadata()

    @property
    def membership(self) -> MemberState | None:
        """The state of the member; None without a membership."""
        self._service.check_process()
        runner = self._core.member_runner
        return None if runner is None else runner.member.state

    @property
    def auto_commit(self) -> bool:
        """Whether the consumer commits the offsets of processed records by itself."""
        return self._core.group is not None and self._core.group.config.auto_commit

    @property
    def max_poll_interval(self) -> float:
        """Seconds that the program may take between two reads; infinite if the consumer is not a member of a group."""
        return math.inf if self._core.group is None else self._core.group.config.max_poll_interval

    def add_listener(self, listener: RebalanceListener) -> None:
        """Call another listener as well, after the present ones; ``ExactlyOnce`` uses this.

        Raises IllegalStateError for a consumer that is not a member of a group, ConfigurationError for another object.
        """
        self._service.check_process()
        self._core.add_listener(_checked_listener(listener))

    # Reading.

    def __aiter__(self) -> RecordIteration[K, V]:
        """Iterate over records until the consumer is closed. Raises the error of a partition that cannot be read."""
        self._service.check()
        # A member checks which iterations are in use. Other consumers may share one iteration.
        return self._records if self._core.group is None else RecordIteration(self._core)

    async def __anext__(self) -> Record[K, V]:
        self._service.check()
        return await self._records.__anext__()

    async def poll(
        self,
        max_records: int = 500,
        timeout: float = 0.0,
        *,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> list[Record[K, V]]:
        """Return up to ``max_records`` fetched records. If there are none, wait ``timeout`` seconds for some.

        After a list for which the program took longer than ``max_poll_interval``, a member of a group gets fewer.
        The list may have records of several partitions. The records of each partition are in order. With
        ``partitions``, the call reads only these; all of them must be assigned. The timeout does not interrupt
        decoding. It interrupts an async deserializer, and the records that are deserialized by then are returned. So
        the timeout must be long enough for one record; 0 is possible if the deserializer does not wait.
        """
        return await poll(self._core, max_records, timeout, partitions)

    def take_ready(self, max_records: int, timeout: float) -> list[Record[K, V]] | None:
        """Poll if that needs no wait; None if it does. The blocking client calls this, outside of a task."""
        return poll_ready(self._core, max_records, timeout)

    def partition(self, topic: str, number: int) -> PartitionReader[K, V]:
        """Return a reader of one assigned partition; other reads skip this partition. Not for group members."""
        return PartitionReader(self._core, self._core.partition_reader(checked_partition((topic, number))))

    def batches(self, max_records: int = 10_000, timeout: float = 0.0) -> Batches:
        """Iterate over batches of columns, each of one partition and of at most ``max_records`` records.

        A batch is returned when that many records are fetched, or after ``timeout`` seconds with the records fetched by
        then. While there are none, the iteration waits. Keys and values are bytes: no deserializer is called.
        ``batches().to_arrow()`` iterates over Arrow record batches. Raises IllegalStateError for a consumer with
        interceptors, because these need records.
        """
        return Batches(self._core, max_records, timeout)

    def read_until(
        self, ends: Mapping[TopicPartition, int] | None = None, *, max_records: int = 500
    ) -> BoundedRead[K, V]:
        """Iterate over lists of records up to these offsets, and stop: ``async for records in consumer.read_until()``.

        Each list has up to ``max_records`` records of one partition, in order. Asking for the next list, also for the
        one after the last, means that the records are processed, as with ``poll``. ``ends`` are the offsets after the
        last record to return, by assigned partition. With None, they are the ends of all partitions that are assigned
        when the iteration begins. A partition that a rebalance takes away is left out; one that it adds is not read.

        Records at and behind the ends stay unread. The iteration waits for records before an end, also while brokers
        are down, and while a partition is paused. A cancelled step loses no record.

        Raises the errors of ``wait_assigned``, ``end_offsets`` and reads, and IllegalStateError for a partition that is
        not assigned.
        """
        from .bounded import BoundedRead  # imported here, because most programs do not end

        return BoundedRead(self._core, self, ends, max_records)

    # The state of the consumer: these calls ask no broker and do not wait. Call them in the event loop.

    def metrics(self) -> ConsumerMetrics:
        """Return a snapshot of counters and gauges. It takes some microseconds, and some more for each partition."""
        return self._core.metrics()

    def health(self, *, max_silence: float = 60.0, max_poll_ago: float | None = None) -> Health:
        """Report whether the consumer works, for liveness and readiness probes.

        It is not live after a failure and after ``close``. A member is also not live if its program has not asked for
        records for more than ``max_poll_ago`` seconds (``max_poll_interval`` by default). The consumer is not ready
        before the start and the first assignment, and while it is not a member. It is also not ready when requests wait
        or fail, and no broker has answered for more than ``max_silence`` seconds. Raises ConfigurationError for a wrong
        limit.
        """
        return self._core.health(max_silence, max_poll_ago)

    def set_credentials(self, username: str, password: str) -> None:
        """Log in with this user name and password from now on (PLAIN and SCRAM), for example after a rotation.

        Open connections stay open; they use the new password when they log in again. May be called before the start
        too, in the event loop. Raises ConfigurationError for a wrong value, for a client that does not log in with a
        password, and if ``sasl_password`` is a function.
        """
        self._core.service.check_process()
        self._core.client.set_credentials(username, password)

    def traffic(self) -> Mapping[int, BrokerTraffic]:
        """Return requests, bytes, latencies and throttle times of each broker, by its id, over all APIs.

        A bootstrap address has a negative id.
        """
        return self._core.traffic()

    def diagnose(self) -> ConsumerDiagnosis:
        """Describe the consumer, its membership, its connections and its event loop, for a bug report.

        The lag is known from the last answers of brokers.
        """
        return self._core.diagnose()


def _checked_listener(listener: object) -> RebalanceListener:
    if not isinstance(listener, RebalanceListener):
        raise ConfigurationError(must_be("listener", "an instance of RebalanceListener", listener))
    return listener


def _checked_assignment(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    checked = checked_partitions(partitions)
    for name in {partition.topic for partition in checked}:
        check_topic_name(name)
    return checked


def _check_group_arguments(group_id: str | None, topics: object, strategies: object, listener: object) -> None:
    """Raise ConfigurationError for arguments that need a group, or a member of one."""
    if group_id is None and isinstance(topics, re.Pattern | SubscriptionPattern):
        raise ConfigurationError(f"topics given by a pattern require a group_id, got {topics!r}")
    for name, value in (("strategies", strategies), ("listener", listener)):
        if value is not None and group_id is None:
            raise ConfigurationError(f"{name} requires a group_id")
        if value is not None and not topics:
            raise ConfigurationError(f"{name} requires topics: a consumer without topics is not a member of its group")
