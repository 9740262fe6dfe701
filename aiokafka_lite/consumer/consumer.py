"""``Consumer``: the public class. Each call is documented here and implemented by a part:

- ``consumer_core``: the client, the subscription, fetching, the reader and the group's side;
- ``position_calls``: seeks, pauses, lag, offsets by time;
- ``iteration``: the ways to read;
- ``member_calls``: the calls about the membership;
- ``observation_calls``: metrics, health and diagnosis;
- ``membership`` and ``commit_only``: the two ways to take part in a group.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Unpack

from ..aio.runtime import Runtime, wall_clock
from ..aio.service import Component, Service
from ..arguments import check_timeout
from ..arguments import marked as checked_mark
from ..arguments import partition as checked_partition
from ..arguments import partitions as checked_partitions
from ..arguments import timestamps as checked_timestamps
from ..cluster.topics import check_topic_name
from ..errors import ConfigurationError
from ..method_names import CONSUMER, named_elsewhere
from ..net.connector import Connector
from ..protocol.messages import MetadataRequest
from ..serialization.deserializer import Deserializer
from ..types import K, Names, OffsetAndMetadata, Record, TopicPartition, V
from .consumer_core import ConsumerCore, MakeGroupSide
from .deserializing import OnDeserializationError
from .group.rebalance import RebalanceHandle, RebalanceListener
from .interceptor import ConsumerInterceptor
from .iteration import Batches, PartitionReader, RecordIteration, poll
from .member_calls import MemberCalls, checked_listener
from .observation_calls import ObservationCalls
from .offsets import EARLIEST, LATEST, OffsetAndTimestamp
from .position import OnOffsetReset, ResetStrategy
from .position_calls import PositionCalls
from .position_wait import PositionWait
from .settings import ConsumerSettings, ReadingOptions, checked_topics, reading_options, strategies_of

if TYPE_CHECKING:
    # Imported where a group is used, so that a consumer without a group, as in Spark's workers, starts faster.
    from ..cluster.client import Client
    from ..cluster.metadata import PartitionView
    from ..group.offsets import CommitResult, Offsets
    from ..group.strategies import AssignmentStrategy
    from .group.group_side import GroupSide
    from .subscription import Subscription


class Consumer(MemberCalls, ObservationCalls, Component, Generic[K, V]):
    """Reads records of topics or of chosen partitions.

    Give ``topics`` to read all their partitions, also those added later; or call ``assign``. ``topics`` are names or,
    with a ``group_id``, a compiled regular expression that must match whole names. The members of the group share the
    partitions. Reading begins at the group's committed offsets. Requesting the next record, list or batch marks all
    records returned before as processed, and the consumer commits the marks. One task should read. ``strategies``
    (range, cooperative-sticky and roundrobin by default; strategies of this package also by name, as in ``["range"]``)
    and ``listener`` need a group. With ``group_protocol="consumer"`` the brokers assign the partitions (KIP-848), and
    ``strategies`` is refused. A consumer with a ``group_id`` and no ``topics`` is not a member: the group only stores
    the offsets of the partitions given to ``assign``.

    Use it in ``async with``, or between ``start()`` and ``close()``; several consumers may run in one event loop.
    ``assign``, ``seek`` and ``pause`` may be called before the start. Records that are written after the start are
    read.

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
        topics: Names | re.Pattern[str] = (),
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
        super().__init__()
        options = reading_options(
            bootstrap_servers,
            group_id,
            settings,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            on_deserialization_error=on_deserialization_error,
            interceptors=interceptors,
            on_offset_reset=on_offset_reset,
            connector=connector,
            runtime=Runtime(clock),
        )
        wanted = checked_topics(topics)
        _check_group_arguments(group_id, wanted, strategies, listener)
        if listener is not None:
            checked_listener(listener)
        make_group = None
        if options.group is not None:
            chosen = strategies_of(options.group, strategies)
            make_group = _group_maker(self, self._service, options, wanted, chosen, listener)
        self._client_id = options.client.client_id
        self._leave_group: bool | None = None
        self._core = ConsumerCore(self._service, options, wanted, make_group)
        self._positions = PositionCalls(self._core)
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

    async def wait_assigned(self, *, timeout: float | None = None) -> tuple[TopicPartition, ...]:
        """Wait until the group has made an assignment for this member, and return its partitions, perhaps none.

        Returns at once while there is an assignment. Raises KafkaTimeout after ``timeout`` seconds (``api_timeout`` by
        default), IllegalStateError without topics and assigned partitions, and errors of the membership.
        """
        return await self._positions.wait_assigned(timeout)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others. Partitions that stay keep position, pause and fetched records.

        Raises IllegalStateError for a consumer of ``topics``, and InvalidTopic. If a partition does not exist, reads
        raise UnknownTopic after one to three seconds, because brokers may not know a new partition at once.
        """
        self._core.assign(_checked_assignment(partitions))

    def subscribe(self, topics: Names | re.Pattern[str]) -> None:
        """Read other topics from now on, as a member of the group.

        Partitions of the old topics are revoked as in a rebalance. Raises IllegalStateError unless the consumer was
        made with ``group_id`` and ``topics``.
        """
        self._core.subscribe(checked_topics(topics))

    def unsubscribe(self) -> None:
        """Stop reading; a member leaves the group until ``subscribe``. Reads that wait raise IllegalStateError."""
        self._core.unsubscribe()

    def subscription(self) -> frozenset[str]:
        """Return the topics that are read completely or as a member; for a pattern, the topics that match now."""
        self._service.check_process()
        return self._core.topics

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Return no records of these partitions until ``resume``.

        None pauses all assigned partitions. Raises IllegalStateError if one of ``partitions`` is not assigned, and for
        None before the first assignment.
        """
        self._positions.set_paused(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Continue reading these paused partitions, or all. Raises IllegalStateError for an unassigned one."""
        self._positions.set_paused(partitions, False)

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The partitions that ``pause`` has paused."""
        self._service.check_process()
        return tuple(each.partition for each in self._core.subscription if each.position.paused)

    # Topics.

    async def partitions_for(self, topic: str, *, timeout: float | None = None) -> tuple[PartitionView, ...]:
        """Return the partitions of a topic, with leaders and replicas, assigned or not.

        Raises UnknownTopic if the topic does not appear within ``timeout`` seconds (``api_timeout`` by default),
        InvalidTopic, AuthorizationError, KafkaTimeout.
        """
        self._service.check()
        found = await self._service.while_running(self._core.client.topic(topic, self._positions.limit(timeout)))
        return found.partitions

    async def topics(self, *, timeout: float | None = None) -> frozenset[str]:
        """Return the names of all topics that this user may see, without internal ones.

        Raises KafkaTimeout after ``timeout`` seconds (``api_timeout`` by default).
        """
        self._service.check()
        sending = self._core.client.send(MetadataRequest(topics=None), timeout=self._positions.limit(timeout))
        response = await self._service.while_running(sending)
        return frozenset(topic.name for topic in response.topics if topic.name is not None and not topic.is_internal)

    # Positions.

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read the partition from ``offset`` on; fetched records of it are dropped.

        Raises IllegalStateError if the partition is not assigned, TypeError or ValueError for a wrong offset.
        """
        self._positions.seek(partition, offset)

    async def seek_to_beginning(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> None:
        """Read from the first offset of these partitions, or of all assigned ones.

        Returns when the offsets are known, or at once before the start. ``timeout`` (``api_timeout`` by default) bounds
        the wait, in seconds. Raises the errors of ``position``, and IllegalStateError before the first assignment; see
        ``wait_assigned``. If the call is cancelled, the lookup continues.
        """
        await self._positions.seek_by(ResetStrategy.EARLIEST, partitions, timeout)

    async def seek_to_end(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> None:
        """Read only records that are written from now on. In other respects it is like ``seek_to_beginning``."""
        await self._positions.seek_by(ResetStrategy.LATEST, partitions, timeout)

    async def seek_to_committed(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> None:
        """Read from the group's committed offsets. Without a committed offset, ``auto_offset_reset`` decides.

        Otherwise like ``seek_to_beginning``. Raises IllegalStateError without a ``group_id`` or before the start.
        """
        await self._positions.seek_to_committed(partitions, timeout)

    async def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """Return the offset of the next record to return, waiting until it is known.

        Raises KafkaTimeout after ``timeout`` seconds (``api_timeout`` by default), or the error that keeps the position
        from being known; IllegalStateError if the partition is not assigned.
        """
        return await self._positions.position(partition, timeout)

    async def lag(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offsets between the position and the end that the isolation level shows, for these partitions or
        all.

        For partitions that are being fetched, the end is known from the last answer. For all other partitions, such as
        paused ones, the leaders are asked. Offsets that compaction or transactions removed from the log count as well.
        Raises the errors of ``position`` and ``end_offsets``. ``timeout`` (``api_timeout`` by default) bounds the whole
        call, in seconds.
        """
        return await self._positions.lag(partitions, timeout)

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last replicated record, as of the last fetch; None before the first one."""
        return self._positions.high_watermark(partition)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition, assigned or not. Raises UnknownTopic, KafkaTimeout."""
        return await self._positions.edges(partitions, EARLIEST, timeout)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition that the isolation level shows.

        Raises UnknownTopic, KafkaTimeout.
        """
        return await self._positions.edges(partitions, LATEST, timeout)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition at or after a time in milliseconds; None if all records are older.

        Raises UnknownTopic, KafkaTimeout after ``timeout`` seconds (``api_timeout`` by default).
        """
        return await self._positions.look_up(checked_timestamps(timestamps), timeout)

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
        return False not in [group.mark(each, metadata) for each in checked]

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
        return await self._service.while_running(group.commit(offsets, self._positions.limit(timeout)))

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets; None for a partition without one.

        Raises KafkaTimeout after ``timeout`` seconds (``api_timeout`` by default), AuthorizationError.
        """
        self._service.check()
        wanted = checked_partitions(partitions)
        return await self._service.while_running(self.offsets.fetch(wanted, timeout=self._positions.limit(timeout)))

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
        """Up to ``max_records`` fetched records. If there are none, wait ``timeout`` seconds for some.

        After a list for which the program took longer than ``max_poll_interval``, a member of a group gets fewer.
        The list may have records of several partitions. The records of each partition are in order. With
        ``partitions``, the call reads only these; all of them must be assigned. The timeout does not interrupt
        decoding. It interrupts an async deserializer, and the records that are deserialized by then are returned. So
        the timeout must be long enough for one record; 0 is possible if the deserializer does not wait.
        """
        return await poll(self._core, max_records, timeout, partitions)

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


def _checked_assignment(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    wanted = checked_partitions(partitions)
    for name in {partition.topic for partition in wanted}:
        check_topic_name(name)
    return wanted


def _check_group_arguments(group_id: str | None, topics: object, strategies: object, listener: object) -> None:
    """Raise ConfigurationError for arguments that need a group, or a member of one."""
    if group_id is None and isinstance(topics, re.Pattern):
        raise ConfigurationError(f"topics given by a pattern require a group_id, got {topics!r}")
    for name, value in (("strategies", strategies), ("listener", listener)):
        if value is not None and group_id is None:
            raise ConfigurationError(f"{name} requires a group_id")
        if value is not None and not topics:
            raise ConfigurationError(f"{name} requires topics: a consumer without topics is not a member of its group")


def _group_maker(
    consumer: Consumer[K, V],
    service: Service,
    options: ReadingOptions,
    topics: tuple[str, ...] | re.Pattern[str],
    strategies: Sequence[AssignmentStrategy | str],
    listener: RebalanceListener | None,
) -> MakeGroupSide:
    """Make the group's side once the core has a client and a subscription."""
    from .group.commit_only import CommitOnlyGroup
    from .group.membership import Membership

    config, interceptors = options.group, options.interceptors
    assert config is not None

    def make(
        client: Client,
        subscription: Subscription,
        positions: PositionWait,
        on_callback_error: Callable[[Exception], None],
    ) -> GroupSide:
        if not topics:
            return CommitOnlyGroup(client, subscription, config, interceptors=interceptors, spawn=service.start_child)
        return Membership(
            client,
            subscription,
            config,
            topics=topics,
            strategies=strategies,
            listener=listener or RebalanceListener(),
            handle=RebalanceHandle(weakref.proxy(consumer)),  # a task refers to the handle: rule 4 of aio.service
            on_listener_error=on_callback_error,
            positions=positions,
            interceptors=interceptors,
            spawn=service.start_child,
        )

    return make
