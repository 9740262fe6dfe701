"""``AIOKafkaConsumer`` on top of ``Consumer``.

aiokafka's consumer may start without topics, and change between a subscription and assigned partitions. A ``Consumer``
has one of the two for its whole life. So each change makes another ``Consumer``, which the next awaited call starts.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, Self, Unpack
from weakref import WeakMethod

from ... import consumer as native
from ...arguments import must_be
from ...types import K, OffsetAndMetadata, Record, TopicPartition, V
from .abc import ConsumerRebalanceListener
from .assignors import strategy_of
from .cluster import ClusterMetadata, known
from .coordinator import GroupCoordinator, Offsets
from .errors import (
    ConsumerStoppedError,
    IllegalStateError,
    KafkaError,
    translating,
)
from .listening import Listening
from .positions import PositionCalls
from .producer import native_offsets
from .reading import SharedReads, read_again
from .running import Managed, RunningConsumer
from .settings import (
    ConnectionSettings,
    changed,
    connection_settings,
    consumer_settings,
    listing_settings,
    naming,
    seconds,
)
from .structs import ConsumerRecord

logger = logging.getLogger(__name__)

MOST_RECORDS = 10_000
"""The maximum number of records of one ``getmany`` without ``max_records``."""


class Subscription(NamedTuple):
    """The part of aiokafka's ``_subscription`` that FastStream's rebalance listener logs."""

    topics: frozenset[str]


class AIOKafkaConsumer(PositionCalls, Managed, Generic[K, V]):
    """Has the interface of aiokafka's class.

    Raises ValueError for wrong settings, TypeError for unknown ones and for times that are not numbers.
    """

    @listing_settings
    def __init__(
        self,
        *topics: str,
        group_id: str | None = None,
        group_instance_id: str | None = None,
        key_deserializer: Callable[[Any], K] | None = None,
        value_deserializer: Callable[[Any], V] | None = None,
        fetch_max_wait_ms: float = 500,
        fetch_max_bytes: int = 52428800,
        fetch_min_bytes: int = 1,
        max_partition_fetch_bytes: int = 1048576,
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: float = 5000,
        check_crcs: bool = True,
        partition_assignment_strategy: Sequence[Any] = ("roundrobin",),
        max_poll_interval_ms: float = 300000,
        rebalance_timeout_ms: float | None = None,
        session_timeout_ms: float = 10000,
        heartbeat_interval_ms: float = 3000,
        consumer_timeout_ms: float = 200,
        max_poll_records: int | None = None,
        exclude_internal_topics: bool = True,
        isolation_level: str = "read_uncommitted",
        client_rack: str | None = None,
        **settings: Unpack[ConnectionSettings],
    ) -> None:
        arguments = locals()
        if max_poll_records is not None and (not isinstance(max_poll_records, int) or max_poll_records < 1):
            raise ValueError(must_be("max_poll_records", "a whole number >= 1", max_poll_records))
        self._given = settings
        self._named = changed(arguments, _DEFAULTS) | settings
        self._group_id = group_id
        """The client. It has aiokafka's name, because instrumentations read it."""
        self._settings = consumer_settings(arguments, connection_settings(settings))
        subscription = WeakMethod(self.subscription)  # a task of the inner consumer must not keep this one alive
        self._strategies = [strategy_of(assignor, subscription) for assignor in partition_assignment_strategy]
        self._commits = enable_auto_commit and group_id is not None
        self._deserialize = _Deserializers(key_deserializer, value_deserializer)
        self._max_poll_records = MOST_RECORDS if max_poll_records is None else max_poll_records
        self._topics: tuple[str, ...] | re.Pattern[str] = topics
        self._assigned: tuple[TopicPartition, ...] = ()
        self._partitions: dict[str, set[int]] = {}
        self._reads = SharedReads()
        self._listening = Listening(
            self._reads.interrupt, WeakMethod(self._commit_positions) if self._commits else None
        )
        self._moved = set()
        self._is_started = False
        self._closed = False
        """Whether ``stop()`` was called. It has aiokafka's name, because frameworks read it."""
        self._running = RunningConsumer(self._create, self._has_topics)

    def _create(self) -> native.Consumer:
        """Create a consumer for the present subscription or assignment."""
        settings = dict(self._settings)
        if self._is_member:
            settings |= {"strategies": self._strategies, "listener": self._listening}
        with naming(self._named):
            consumer: native.Consumer = native.Consumer(topics=self._topics, **settings)
            if self._assigned:
                consumer.assign(self._assigned)
        return consumer

    @property
    def _is_member(self) -> bool:
        return self._group_id is not None and bool(self._topics)

    async def _has_topics(self, consumer: native.Consumer) -> bool:
        """Return whether there are topics for the subscription. A pattern may match none."""
        pattern = self._topics
        return not isinstance(pattern, re.Pattern) or any(map(pattern.fullmatch, await consumer.topics()))

    # Lifetime.

    async def start(self) -> None:
        """Connect, and as a member of a group wait for partitions. Raises KafkaConnectionError if no broker answers.

        A ``stop`` meanwhile ends it without an error, as in aiokafka. A cancelled call closes what it has started.
        """
        self._running.check_process()
        was_closed, was_running = self._closed, self._running.is_running
        self._is_started = True
        self._listening.has_new_topics = True
        try:
            await self._ready()
        except (IllegalStateError, ConsumerStoppedError):
            if was_closed or not self._closed:
                raise
        except asyncio.CancelledError:
            if not was_running:
                await self._running.retire()
            raise

    async def _ready(self) -> native.Consumer:
        """Start or replace the consumer as the present subscription or assignment requires, and return it."""
        if self._handle is not None:
            return self._consumer  # this code runs in a listener
        if self._closed:
            raise ConsumerStoppedError("the consumer was stopped")
        if not self._is_started:
            raise IllegalStateError("call start() first")
        consumer = await self._running.start()
        while self._listening.has_new_topics:
            self._listening.has_new_topics = False
            names = self.subscription() or await self.topics()
            # If a topic is deleted at this moment, start() does not fail.
            await asyncio.gather(*map(self._learn, names), return_exceptions=True)
            consumer = await self._running.start()  # the subscription may have changed meanwhile
        if self._closed:
            raise ConsumerStoppedError("the consumer was stopped")
        return consumer

    async def _to_read(self) -> native.Consumer | None:
        """Return the consumer to read from, after ``_ready``; None while there is nothing to read."""
        running = self._running
        is_ready = running.is_running and not (self._closed or self._listening.has_new_topics)
        consumer = running.now if is_ready else await self._ready()  # hot: a coroutine less for each record
        if self._topics or self._assigned:
            return consumer
        running.check_process()  # in a forked process, the wait for a subscription would not end
        return None

    async def _learn(self, topic: str) -> None:
        with translating():
            self._partitions[topic] = {partition.partition for partition in await self._consumer.partitions_for(topic)}

    async def stop(self) -> None:
        """Commit the returned records, leave the group, and end. As in aiokafka, a commit that fails is logged."""
        self._running.check_process()
        self._closed = self._listening.is_stopped = True
        try:
            if self._commits and self._running.is_running and self._consumer.assignment:
                with translating():
                    await self._commit_positions()
        except KafkaError as error:
            logger.error("the last commit of group %r failed: %s", self._group_id, error)
        finally:
            try:
                await self._running.close()
            finally:
                # A read without a subscription waits for one. The close of the consumer does not end that wait.
                self._reads.interrupt()
                await self._close_client()

    def _known_cluster(self) -> ClusterMetadata:
        with translating():
            return known(self._consumer.traffic(), self._partitions)

    @property
    def _coordinator(self) -> GroupCoordinator | None:
        """The state of the member; None without a group. Frameworks read this name of aiokafka."""
        if self._group_id is None:
            return None
        try:
            with translating():
                member_id = self._consumer.group_metadata().member_id
        except KafkaError:
            member_id = ""
        return GroupCoordinator(self._group_id, member_id, commit=self._commit, committed=self._committed)

    @property
    def _subscription(self) -> Subscription:
        return Subscription(self.subscription())

    # Topics and partitions.

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all topics whose names begin with a match of the pattern.

        After ``start()`` it takes effect with the next awaited call.
        """
        self._running.check_process()
        if bool(topics) == bool(pattern):
            raise TypeError("subscribe() needs topics or a pattern, and not both")
        if isinstance(topics, str):
            raise TypeError(must_be("topics", "a list of names", topics))
        if self._assigned:
            raise IllegalStateError("partitions are assigned; call unsubscribe() first")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError(must_be("listener", "an instance of ConsumerRebalanceListener", listener))
        if pattern is not None and self._group_id is None:
            raise NotImplementedError("a pattern needs a group_id")
        subscribed = tuple(topics) if pattern is None else _of_prefix(pattern)
        was_member = self._is_member
        self._topics, self._listening.listener = subscribed, listener
        # A member keeps its membership. Otherwise another inner consumer reads the topics.
        if was_member:
            with translating():
                self._consumer.subscribe(self._topics)
        else:
            self._running.replace()
        self._on_change()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions."""
        self._running.check_process()
        if self._topics:
            raise IllegalStateError("topics are subscribed; call unsubscribe() first")
        self._assigned = tuple(TopicPartition(*partition) for partition in partitions)
        with translating():
            self._consumer.assign(self._assigned)
        self._on_change()

    def unsubscribe(self) -> None:
        """Read nothing, and leave the group."""
        self._running.check_process()
        if self._topics or self._assigned:
            self._topics, self._assigned, self._listening.listener = (), (), None
            self._running.replace()
            self._on_change()

    def _on_change(self) -> None:
        """Apply the change of the subscription now if the consumer is started. Reads in progress use it too."""
        self._listening.has_new_topics = True
        self._reads.interrupt()
        if self._is_started and not self._closed:
            self._running.start_soon()

    def assignment(self) -> set[TopicPartition]:
        with translating():
            return set(self._consumer.assignment)

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics, or the topics of the partitions given to ``assign``."""
        with translating():
            return self._consumer.subscription() or frozenset(partition.topic for partition in self._assigned)

    async def topics(self) -> set[str]:
        """List all topics that this user may see."""
        consumer = await self._ready()
        with translating():
            return set(await consumer.topics())

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions of a subscribed topic; None for others.

        A read after a rebalance looks them up again.
        """
        self._running.check_process()
        return self._partitions.get(topic)

    def pause(self, *partitions: TopicPartition) -> None:
        with translating():
            self._consumer.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        with translating():
            self._consumer.resume(partitions)

    def paused(self) -> set[TopicPartition]:
        with translating():
            return set(self._consumer.paused)

    # Reading.

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[K, V]:
        """Wait for the next record, of these partitions if any are given."""
        with self._reading():
            if partitions:
                _check_read(partitions)
                (record,) = await self._reads.many(self._to_read, 1, math.inf, partitions)
            else:
                record = await self._reads.one(self._to_read)
        try:
            return self._deserialize(record)
        except Exception:
            read_again(self._consumer, [record])
            raise

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Return the fetched records. If there are none, wait ``timeout_ms`` for some, or until ``stop()``."""
        if max_records is not None and (not isinstance(max_records, int) or max_records < 1):
            raise ValueError("`max_records` must be a positive Integer")
        _check_read(partitions)
        if self._closed:
            raise ConsumerStoppedError("the consumer was stopped")
        most, timeout = max_records or self._max_poll_records, seconds("timeout_ms", timeout_ms)
        try:
            with self._reading():
                records = await self._reads.many(self._to_read, most, timeout, partitions)
        except ConsumerStoppedError:
            return {}
        by_partition: dict[TopicPartition, list[ConsumerRecord[K, V]]] = {}
        try:
            for record in records:
                place = TopicPartition(record.topic, record.partition)
                by_partition.setdefault(place, []).append(self._deserialize(record))
        except Exception:
            read_again(self._consumer, records)
            raise
        return by_partition

    def __aiter__(self) -> Self:
        if self._closed:
            raise ConsumerStoppedError("the consumer was stopped")
        return self

    async def __anext__(self) -> ConsumerRecord[K, V]:
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Raise aiokafka's exceptions, and ConsumerStoppedError if ``stop()`` ended the read."""
        try:
            with translating():
                yield
        except (StopAsyncIteration, IllegalStateError):
            if self._closed:
                raise ConsumerStoppedError("the consumer was stopped") from None
            raise

    # Commits.

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit these offsets, or all positions. Raises CommitFailedError for a former member."""
        self._require_group()
        if not self._topics and not self._assigned:
            raise IllegalStateError("nothing is subscribed or assigned; call subscribe() or assign() first")
        if offsets is not None:
            commits = native_offsets(offsets)
            if not self._consumer.assignment and not self._closed:
                raise IllegalStateError("no partitions are assigned yet; read before this commit")
            await self._ready()
            if not commits.keys() <= set(self._consumer.assignment):
                raise IllegalStateError(must_be("offsets", "of assigned partitions", list(commits)))
        coordinator = self._coordinator
        assert coordinator is not None
        await coordinator.commit_offsets(self.assignment(), offsets)

    async def _commit(self, offsets: Offsets | None) -> None:
        await self._ready()
        with translating():
            if offsets is None:
                await self._commit_positions()
            else:
                (await self._calls.commit(native_offsets(offsets))).raise_for_refused()

    async def _commit_positions(self) -> None:
        """Commit the returned records, and the positions that the program has set."""
        self._consumer.mark()
        (await self._calls.commit()).raise_for_refused()
        # Marks cover only returned records, so the positions that the program has set need a commit of their own.
        moved, self._moved = self._moved & set(self._consumer.assignment), set()
        if moved:
            positions = {partition: OffsetAndMetadata(await self._calls.position(partition)) for partition in moved}
            (await self._calls.commit(positions)).raise_for_refused()

    async def committed(self, partition: TopicPartition) -> int | None:
        self._require_group()
        offset = (await self._committed([partition]))[partition]
        return None if offset is None else offset.offset


_DEFAULTS = AIOKafkaConsumer.__init__.__kwdefaults__
_LEADING_FLAGS = re.compile(r"\(\?[aiLmsux]+\)")


def _of_prefix(pattern: str) -> re.Pattern[str]:
    """Return a pattern that matches the whole names of topics whose names begin with a match of ``pattern``.

    Raises ValueError for an invalid pattern.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a pattern: {error}") from error
    # Flags may stand only at the beginning of a pattern. ``given.flags`` has them.
    flags = _LEADING_FLAGS.match(pattern)
    return re.compile(f"(?:{pattern[flags.end() if flags else 0 :]})(?s:.*)", compiled.flags)


def _check_read(partitions: Sequence[TopicPartition]) -> None:
    if not all(isinstance(partition, TopicPartition) for partition in partitions):
        raise AssertionError(must_be("partitions", "TopicPartitions", partitions))


class _Deserializers(Generic[K, V]):
    """Makes aiokafka's records. As in aiokafka, the functions are also called for nulls."""

    def __init__(self, key: Callable[[Any], K] | None, value: Callable[[Any], V] | None) -> None:
        self._key = key
        self._value = value

    def __call__(self, record: Record[Any, Any]) -> ConsumerRecord[K, V]:
        key, value, headers = record.key, record.value, record.headers
        return ConsumerRecord(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            int(record.timestamp_type),
            key if self._key is None else self._key(key),
            value if self._value is None else self._value(value),
            None,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
            tuple((name, content) for name, content in headers) if headers else (),
        )
