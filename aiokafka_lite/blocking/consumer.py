"""``Consumer`` and what it reads with, for threads without an event loop.

Written by docs/make_blocking.py from the asyncio classes, which have the same calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..aio.runtime import wall_clock
from ..arguments import check_timeout
from ..consumer.bounded import BoundedRead as AsyncBoundedRead
from ..consumer.consumer import Consumer as AsyncConsumer
from ..consumer.iteration import ArrowBatches as AsyncArrowBatches
from ..consumer.iteration import Batches as AsyncBatches
from ..consumer.iteration import PartitionReader as AsyncPartitionReader
from ..method_names import CONSUMER
from ..types import K, V
from .callbacks import RebalanceListener, checked_listener, listener_of
from .reading import (
    ArrowIteration,
    BatchIteration,
    BlockingConsumer,
    ConsumerIteration,
    ReaderIteration,
    RecordIteration,
)
from .session import Offsets
from .wrapper import named_elsewhere

if TYPE_CHECKING:
    import re
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from typing import Self, Unpack

    import pyarrow

    from ..aio.service import ServiceState
    from ..cluster.health import Health
    from ..cluster.metadata import PartitionView
    from ..consumer.columns import Batch
    from ..consumer.deserializing import OnDeserializationError
    from ..consumer.diagnosis import ConsumerDiagnosis
    from ..consumer.interceptor import ConsumerInterceptor
    from ..consumer.metrics import ConsumerMetrics
    from ..consumer.offsets import OffsetAndTimestamp
    from ..consumer.position import OnOffsetReset
    from ..group.offsets import CommitResult
    from ..group.states import MemberState
    from ..group.strategies import AssignmentStrategy
    from ..net.connector import Connector
    from ..net.metrics import BrokerTraffic
    from ..serialization.deserializer import Deserializer
    from ..settings.keywords import ConsumerSettings
    from ..types import GroupMetadata, Names, OffsetAndMetadata, Record, SubscriptionPattern, TopicPartition


class Consumer(BlockingConsumer[K, V]):
    """Reads records of topics or of chosen partitions.

    This is ``aiokafka_lite.Consumer`` for threads without an event loop: its calls wait.

    Give ``topics`` to read all their partitions, also those added later; or call ``assign``. ``topics`` are names or,
    with a ``group_id``, a compiled regular expression that must match whole names, or a ``SubscriptionPattern`` for the
    brokers. The members of the group share the partitions. Reading begins at the group's committed offsets. Requesting
    the next record, list or batch marks all records returned before as processed, and the consumer commits the marks.
    One thread should read. ``strategies`` (range, cooperative-sticky and roundrobin by default; strategies of this
    package also by name, as in ``["range"]``) and ``listener`` need a group. With ``group_protocol="consumer"`` the
    brokers assign the partitions (KIP-848), and ``strategies`` is refused. A consumer with a ``group_id`` and no
    ``topics`` is not a member: the group only stores the offsets of the partitions given to ``assign``.

    Use it in ``with``, or between ``start()`` and ``close()``; a program may have several consumers. ``assign``,
    ``seek`` and ``pause`` may be called before the start. Records written after the start are read.

    With a ``key_deserializer`` or ``value_deserializer``, which may be functions of the bytes alone, records contain
    the deserialized objects; ``batches`` always has bytes. ``on_deserialization_error`` decides about a record for
    which a deserializer fails: ``"raise"`` (reading stays at the record until ``seek``), ``"skip"``, ``"raw"``, or a
    function. ``interceptors`` see the records that are read, in their order, and the offsets that are committed.

    ``on_offset_reset`` is called when an offset no longer exists and ``auto_offset_reset`` has chosen a new offset. If
    it raises, the next read raises its exception once. ``clock`` returns seconds since the epoch, for a policy
    ``by_duration``.

    An interrupted read loses no record: the position moves when a record is returned. If a partition cannot be read (a
    damaged batch, or an offset that is gone and no policy), reading raises its error. The partition is retried after a
    backoff, and the other partitions continue. ``seek`` skips the damage.
    """

    _inner: AsyncConsumer[K, V]

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
        super().__init__(
            AsyncConsumer(
                bootstrap_servers,
                topics=topics,
                group_id=group_id,
                strategies=strategies,
                listener=listener_of(listener),
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
                on_deserialization_error=on_deserialization_error,
                interceptors=interceptors,
                on_offset_reset=on_offset_reset,
                connector=connector,
                clock=clock,
                **settings,
            )
        )

    def close(self, timeout: float | None = None, *, leave_group: bool | None = None) -> None:
        """Commit the marked offsets, leave the group, and end within ``timeout`` seconds (3 by default).

        A static member does not leave, so that a restart causes no rebalance; ``leave_group`` overrides that. After the
        timeout, all tasks are cancelled. Raises the exception that had already ended the consumer, or an exception of a
        callback that no read has raised.
        """
        check_timeout(timeout)
        self._end(self._inner.close, timeout, leave_group=leave_group)

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions."""
        value: tuple[TopicPartition, ...] = self._read("assignment")
        return value

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others. Partitions that stay keep position, pause and fetched records.

        Raises IllegalStateError for a consumer of ``topics``, and InvalidTopic. If a partition does not exist, reads
        raise UnknownTopic after one to three seconds, because brokers may not know a new partition at once. The call
        takes some µs per partition; for tens of thousands, see ``assign_gradually``.
        """
        self._run(self._inner.assign, partitions)

    def assign_gradually(self, partitions: Iterable[TopicPartition]) -> None:
        """Do the same as ``assign``, but let other tasks run in between, which ``assign`` of 100,000 would hold up.

        While the call waits, and after its cancellation, a part of the change is done: call it again to complete it.
        Partitions that stay are the first ones of ``assignment``. Raises the errors of ``assign``; IllegalStateError
        also if another call changes the assignment meanwhile.
        """
        self._await(self._inner.assign_gradually, partitions)

    def subscribe(self, topics: Names | re.Pattern[str] | SubscriptionPattern) -> None:
        """Read other topics from now on, as a member of the group.

        Partitions of the old topics are revoked as in a rebalance. Raises IllegalStateError unless the consumer was
        made with ``group_id`` and ``topics``.
        """
        self._run(self._inner.subscribe, topics)

    def unsubscribe(self) -> None:
        """Stop reading; a member leaves the group until ``subscribe``. Reads that wait raise IllegalStateError."""
        self._run(self._inner.unsubscribe)

    def subscription(self) -> frozenset[str]:
        """Return the topics that are read completely or as a member; for a pattern, the topics that match now.

        With a ``SubscriptionPattern``, these are the topics of the assignment.
        """
        return self._run(self._inner.subscription)

    def partitions_for(self, topic: str, *, timeout: float | None = None) -> tuple[PartitionView, ...]:
        """Look up the partitions of a topic, assigned or not, with leaders and replicas.

        Raises UnknownTopic if the topic does not appear within ``timeout`` seconds (``api_timeout`` by default),
        InvalidTopic, AuthorizationError, KafkaTimeout.
        """
        return self._await(self._inner.partitions_for, topic, timeout=timeout)

    def topics(self, *, timeout: float | None = None) -> frozenset[str]:
        """Look up the names of all topics that this user may see, without internal ones.

        Raises KafkaTimeout after ``timeout`` seconds (``api_timeout`` by default).
        """
        return self._await(self._inner.topics, timeout=timeout)

    @property
    def offsets(self) -> Offsets:
        """The group's offsets of the assigned partitions, to mark, reset and commit one by one.

        Raises IllegalStateError without a ``group_id``.
        """
        return Offsets(self._read("offsets"))

    def mark(
        self, record: Record[K, V] | list[Record[K, V]] | tuple[Record[K, V], ...] | None = None, metadata: str = ""
    ) -> bool:
        """Mark all records up to this one, or up to each of a list, as processed; without a record, all returned ones.

        Returns False if a record was marked before, or if its partition is no longer assigned. In the second case, the
        new owner reads the record again, and the next ``commit()`` lists the partition in ``refused``. A partition
        whose returned records are all marked does not delay a rebalance. Records of a ``PartitionReader`` are marked
        one by one: without a record, the result is then False. Raises ValueError for ``metadata`` without one record.
        """
        return self._run(self._inner.mark, record, metadata)

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None, *, timeout: float | None = None
    ) -> CommitResult:
        """Commit these offsets (each is the offset of the next record to read), or all marked offsets.

        The records of the last read are not marked before the next read; see ``mark``. Retriable errors are retried for
        ``timeout`` seconds (``api_timeout`` by default). Refused partitions, for example those that another member has
        now, are in the result and in the log, and raise no exception: ``raise_for_refused()`` raises them.
        """
        return self._await(self._inner.commit, offsets, timeout=timeout)

    def committed(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Look up the group's committed offsets; None for a partition without one.

        Raises KafkaTimeout after ``timeout`` seconds (``api_timeout`` by default), AuthorizationError.
        """
        return self._await(self._inner.committed, partitions, timeout=timeout)

    def group_metadata(self) -> GroupMetadata:
        """Return the member's identity, for commits in a transaction. Read it when ``poll`` has returned the records.

        The coordinator refuses an identity that is older than the last rebalance. Raises IllegalStateError without a
        ``group_id``, and while the consumer is not a member: before its first assignment, and after it has lost its
        partitions.
        """
        return self._run(self._inner.group_metadata)

    @property
    def membership(self) -> MemberState | None:
        """The state of the member; None without a membership."""
        value: MemberState | None = self._read("membership")
        return value

    @property
    def auto_commit(self) -> bool:
        """Whether the consumer commits the offsets of processed records by itself."""
        value: bool = self._read("auto_commit")
        return value

    @property
    def max_poll_interval(self) -> float:
        """Seconds that the program may take between two reads; infinite if the consumer is not a member of a group."""
        value: float = self._read("max_poll_interval")
        return value

    def add_listener(self, listener: RebalanceListener) -> None:
        """Call another listener as well, after the present ones; ``ExactlyOnce`` uses this.

        Raises IllegalStateError for a consumer that is not a member of a group, ConfigurationError for another object.
        """
        self._run(self._inner.add_listener, checked_listener(listener))

    def __iter__(self) -> RecordIteration[K, V]:
        """Iterate over records until the consumer is closed. Raises the error of a partition that cannot be read."""
        return self._iterate()

    def __next__(self) -> Record[K, V]:
        return self._next_record()

    def poll(
        self, max_records: int = 500, timeout: float = 0.0, *, partitions: Iterable[TopicPartition] | None = None
    ) -> list[Record[K, V]]:
        """Return up to ``max_records`` fetched records. If there are none, wait ``timeout`` seconds for some.

        After a list for which the program took longer than ``max_poll_interval``, a member of a group gets fewer. The
        list may have records of several partitions. The records of each partition are in order. With ``partitions``,
        the call reads only these; all of them must be assigned. The timeout does not interrupt decoding. It interrupts
        an async deserializer, and the records that are deserialized by then are returned. So the timeout must be long
        enough for one record; 0 is possible if the deserializer does not wait.
        """
        return self._poll(max_records, timeout, partitions=partitions)

    def partition(self, topic: str, number: int) -> PartitionReader[K, V]:
        """Return a reader of one assigned partition; other reads skip this partition. Not for group members."""
        return PartitionReader(self._run(self._inner.partition, topic, number), self._seek_back)

    def batches(self, max_records: int = 10000, timeout: float = 0.0) -> Batches:
        """Iterate over batches of columns, each of one partition and of at most ``max_records`` records.

        A batch is returned when that many records are fetched, or after ``timeout`` seconds with the records fetched by
        then. While there are none, the iteration waits. Keys and values are bytes: no deserializer is called.
        ``batches().to_arrow()`` iterates over Arrow record batches. Raises IllegalStateError for a consumer with
        interceptors, because these need records.
        """
        return Batches(self._run(self._inner.batches, max_records, timeout), self._seek_back)

    def read_until(
        self, ends: Mapping[TopicPartition, int] | None = None, *, max_records: int = 500
    ) -> BoundedRead[K, V]:
        """Iterate over lists of records up to these offsets, and stop: ``for records in consumer.read_until()``.

        Each list has up to ``max_records`` records of one partition, in order. Asking for the next list, also for the
        one after the last, means that the records are processed, as with ``poll``. ``ends`` are the offsets after the
        last record to return, by assigned partition. With None, they are the ends of all partitions that are assigned
        when the iteration begins. A partition that a rebalance takes away is left out; one that it adds is not read.

        Records at and behind the ends stay unread. The iteration waits for records before an end, also while brokers
        are down, and while a partition is paused. A cancelled step loses no record.

        Raises the errors of ``wait_assigned``, ``end_offsets`` and reads, and IllegalStateError for a partition that is
        not assigned.
        """
        return BoundedRead(self._run(self._inner.read_until, ends, max_records=max_records), self._seek_back)

    def metrics(self) -> ConsumerMetrics:
        """Return a snapshot of counters and gauges. It takes some microseconds, and some more for each partition."""
        return self._run(self._inner.metrics)

    def health(self, *, max_silence: float = 60.0, max_poll_ago: float | None = None) -> Health:
        """Report whether the consumer works, for liveness and readiness probes.

        It is not live after a failure and after ``close``. A member is also not live if its program has not asked for
        records for more than ``max_poll_ago`` seconds (``max_poll_interval`` by default). The consumer is not ready
        before the start and the first assignment, and while it is not a member. It is also not ready when requests wait
        or fail, and no broker has answered for more than ``max_silence`` seconds. Raises ConfigurationError for a wrong
        limit.
        """
        return self._run(self._inner.health, max_silence=max_silence, max_poll_ago=max_poll_ago)

    def set_credentials(self, username: str, password: str) -> None:
        """Log in with this user name and password from now on (PLAIN and SCRAM), for example after a rotation.

        Open connections stay open; they use the new password when they log in again. May be called before the start
        too. Raises ConfigurationError for a wrong value, for a client that does not log in with a password, and if
        ``sasl_password`` is a function.
        """
        self._run(self._inner.set_credentials, username, password)

    def traffic(self) -> Mapping[int, BrokerTraffic]:
        """Return requests, bytes, latencies and throttle times of each broker, by its id, over all APIs.

        A bootstrap address has a negative id.
        """
        return self._run(self._inner.traffic)

    def diagnose(self) -> ConsumerDiagnosis:
        """Describe the consumer, its membership, its connections and its event loop, for a bug report.

        The lag is known from the last answers of brokers.
        """
        return self._run(self._inner.diagnose)

    def wait_assigned(self, *, timeout: float | None = None) -> tuple[TopicPartition, ...]:
        """Wait until the group has made an assignment for this member, and return its partitions, perhaps none.

        Returns at once while there is an assignment. Raises KafkaTimeout after ``timeout`` seconds (``api_timeout`` by
        default), IllegalStateError without topics and assigned partitions, and errors of the membership.
        """
        return self._await(self._inner.wait_assigned, timeout=timeout)

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Stop returning records of these partitions until ``resume``, or until they are revoked.

        A rebalance by an eager strategy, such as range, revokes all partitions, also those that the member gets back.
        None pauses all assigned partitions. Raises IllegalStateError if one of ``partitions`` is not assigned, and for
        None before the first assignment.
        """
        self._run(self._inner.pause, partitions)

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Continue reading these paused partitions, or all. Raises IllegalStateError for an unassigned one."""
        self._run(self._inner.resume, partitions)

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The partitions that ``pause`` has paused."""
        value: tuple[TopicPartition, ...] = self._read("paused")
        return value

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read the partition from ``offset`` on; fetched records of it are dropped.

        Raises IllegalStateError if the partition is not assigned, TypeError or ValueError for a wrong offset.
        """
        self._run(self._inner.seek, partition, offset)

    def seek_to_beginning(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> None:
        """Read from the first offset of these partitions, or of all assigned ones.

        Returns when the offsets are known, or at once before the start. ``timeout`` (``api_timeout`` by default) bounds
        the wait, in seconds. Raises the errors of ``position``, and IllegalStateError before the first assignment; see
        ``wait_assigned``. If the call is interrupted, the lookup continues.
        """
        self._await(self._inner.seek_to_beginning, partitions, timeout=timeout)

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None) -> None:
        """Read only records that are written from now on. In other respects it is like ``seek_to_beginning``."""
        self._await(self._inner.seek_to_end, partitions, timeout=timeout)

    def seek_to_committed(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> None:
        """Read from the group's committed offsets. Without a committed offset, ``auto_offset_reset`` decides.

        Otherwise like ``seek_to_beginning``. Raises IllegalStateError without a ``group_id`` or before the start.
        """
        self._await(self._inner.seek_to_committed, partitions, timeout=timeout)

    def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """Wait until the offset of the next record to return is known, and return it.

        Raises KafkaTimeout after ``timeout`` seconds (``api_timeout`` by default), or the error that keeps the position
        from being known; IllegalStateError if the partition is not assigned.
        """
        return self._await(self._inner.position, partition, timeout=timeout)

    def lag(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the lag of these partitions, or of all: the offsets from the position to the visible end.

        The isolation level decides which end is visible. For partitions that are being fetched, the end is known from
        the last answer. For all other partitions, such as paused ones, the leaders are asked. Offsets that compaction
        or transactions removed from the log count as well. Raises the errors of ``position`` and ``end_offsets``.
        ``timeout`` (``api_timeout`` by default) bounds the whole call, in seconds.
        """
        return self._await(self._inner.lag, partitions, timeout=timeout)

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last replicated record, as of the last fetch; None before the first one."""
        return self._run(self._inner.high_watermark, partition)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Look up the first offset of each partition, assigned or not. Raises UnknownTopic, KafkaTimeout."""
        return self._await(self._inner.beginning_offsets, partitions, timeout=timeout)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Look up the offset after the last record of each partition that the isolation level shows.

        Raises UnknownTopic, KafkaTimeout.
        """
        return self._await(self._inner.end_offsets, partitions, timeout=timeout)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Look up the first record of each partition at or after a time in milliseconds; None if all records are older.

        Raises UnknownTopic, KafkaTimeout after ``timeout`` seconds (``api_timeout`` by default).
        """
        return self._await(self._inner.offsets_for_times, timestamps, timeout=timeout)

    @property
    def state(self) -> ServiceState:
        value: ServiceState = self._read("state")
        return value

    def start(self, timeout: float | None = None) -> None:
        """Start the component within ``timeout`` seconds (``api_timeout`` by default).

        Raises KafkaTimeout, or the error that prevented the start. After an error or an interrupt, no task and no
        connection remains.
        """
        self._begin(self._inner.start, timeout)


class Batches(BatchIteration):
    """The iteration over batches that ``Consumer.batches`` returns."""

    _inner: AsyncBatches

    def __iter__(self) -> Self:
        self._run(self._inner.__aiter__)
        return self

    def __next__(self) -> Batch:
        return self._next(self._inner.__anext__, self._keep, self._inner.take_ready)

    def to_arrow(self, columns: Sequence[str] | None = None, *, headers: bool = False) -> ArrowBatches:
        """Iterate over Arrow record batches instead, with the columns of ``Batch.to_arrow(columns, headers=headers)``.

        No Python object is made for a record, so this is the cheapest way to read. Keys and values are binary: no
        deserializer is called. Batches of the log are not split: a record batch has about ``max_records`` rows. Raises
        ConfigurationError for an unknown column, and without NumPy and pyarrow. The iteration raises
        DeserializationError for a timestamp that does not fit into microseconds.
        """
        return ArrowBatches(self._run(self._inner.to_arrow, columns, headers=headers), self._seek_back)


class ArrowBatches(ArrowIteration):
    """The iteration over Arrow record batches that ``Batches.to_arrow`` returns."""

    _inner: AsyncArrowBatches

    def __iter__(self) -> Self:
        self._run(self._inner.__aiter__)
        return self

    def __next__(self) -> pyarrow.RecordBatch:
        return self._next(self._inner.__anext__, self._keep, self._inner.take_ready)


class BoundedRead(ConsumerIteration[K, V]):
    """The iteration that ``Consumer.read_until`` returns. Each item is a list of records of one partition."""

    _inner: AsyncBoundedRead[K, V]

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The offsets at which the read ends, by partition. Empty before the first step looks them up."""
        value: dict[TopicPartition, int] = self._read("ends")
        return value

    def __iter__(self) -> Self:
        self._run(self._inner.__aiter__)
        return self

    def __next__(self) -> list[Record[K, V]]:
        return self._next(self._inner.__anext__, self._keep)


class PartitionReader(ReaderIteration[K, V]):
    """The records of one assigned partition, as ``Consumer.partition`` returns it.

    Iterate with ``for``, or call ``poll``. Each reader may be used by another thread at the same time. It ends when the
    partition leaves the assignment, or when the consumer is closed. An interrupted read loses no record. If the
    partition cannot be read, reads raise its error at a bounded rate, until ``Consumer.seek`` skips the damage.
    """

    _inner: AsyncPartitionReader[K, V]

    @property
    def topic_partition(self) -> TopicPartition:
        value: TopicPartition = self._read("topic_partition")
        return value

    @property
    def high_watermark(self) -> int | None:
        """The high watermark of this partition; see ``Consumer.high_watermark``."""
        value: int | None = self._read("high_watermark")
        return value

    def __iter__(self) -> Self:
        self._run(self._inner.__aiter__)
        return self

    def __next__(self) -> Record[K, V]:
        return self._next_record()

    def poll(self, max_records: int = 500, timeout: float = 0.0) -> list[Record[K, V]]:
        """Poll like ``Consumer.poll``. Raises IllegalStateError if the partition is no longer assigned."""
        return self._take(max_records, self._inner.poll, max_records, timeout)
