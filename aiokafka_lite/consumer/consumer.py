"""The consumer that users hold."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, cast

from ..aio.retry import Backoff
from ..aio.service import Component, ServiceState
from ..arguments import partition as checked_partition
from ..arguments import partitions as checked_partitions
from ..cluster.client import Client
from ..cluster.topics import check_topic_name
from ..config import GroupConfig, check_function, check_timeout
from ..errors import ConfigurationError, IllegalStateError, KafkaTimeout
from ..net.connector import Connector
from ..types import K, OffsetAndMetadata, Record, TopicPartition, V
from .arguments import check_count, check_offset, check_record, check_wait, checked_timestamps
from .columns import Batch
from .deserializer import Deserializer
from .deserializing import Deserializing, OnDeserializationError
from .fetching import Fetching
from .membership import Attendance, GroupReading
from .offsets import EARLIEST, LATEST, OffsetAndTimestamp, list_offsets
from .partition import Hold, OnOffsetReset, PartitionState, Reset, ResetReason
from .positions import why_unknown
from .reader import Reader
from .rebalance import RebalanceHandle, RebalanceListener
from .settings import ConsumerSettings, all_partitions_of, checked_topics, configs, default_strategies, described
from .subscription import Subscription

if TYPE_CHECKING:
    # Imported where a group is joined: who reads without one, as Spark's workers do, does not pay for groups.
    from ..group.coordinator import Coordinator
    from ..group.member import MemberState
    from ..group.offsets import CommitResult, Offsets
    from ..group.strategies import AssignmentStrategy
    from .diagnosis import ConsumerDiagnosis

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """As whom a member of a group acts; a producer needs it to commit offsets in a transaction."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


class Consumer(Component, Generic[K, V]):
    """Reads records of topics or of chosen partitions.

    Give ``topics`` to read all their partitions, those added later too; or call ``assign``. With a ``group_id`` the
    partitions of ``topics`` (names, or a compiled regular expression that whole names match) are shared among the
    members of that group, and positions are the group's: reading begins where the group left off, and what is done with
    is committed. Asking for the next record, list or batch says that what was handed out before is done with. One task
    should read. ``strategies`` (range and cooperative-sticky by default; those of this package may be given by name,
    as in ``["range"]``) and ``listener`` belong to the group as well; a group without topics only keeps the offsets of
    what is assigned by ``assign``.

    Usable between ``start()`` and ``close()``, or inside ``async with``; several may
    live in one loop. ``assign``, ``seek`` and ``pause`` may be called before the start already.

    With a ``key_deserializer`` or ``value_deserializer``, which may be functions of the bytes alone, records have what
    these make of bytes; ``batches`` always has bytes. ``on_deserialization_error`` says what becomes of a record that
    they refuse: ``"raise"`` (reading stays there until ``seek``), ``"skip"``, ``"raw"``, or a function.

    ``on_offset_reset`` is called when an offset could not be kept and ``auto_offset_reset`` gave another; what it
    raises ends the consumer. ``clock`` gives seconds since the epoch, for a policy ``by_duration``.

    Every read may be cancelled and loses nothing by it: the position moves when a record is returned. Where a
    partition cannot be read (a damaged batch, an offset that is gone without a policy), reading raises once, the
    partition is left alone for a moment and tried again, and the others go on; ``seek`` gets past.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        topics: Iterable[str] | re.Pattern[str] = (),
        group_id: str | None = None,
        strategies: Sequence[AssignmentStrategy | str] | None = None,
        listener: RebalanceListener | None = None,
        key_deserializer: Deserializer[K] | Callable[[bytes], K | Awaitable[K]] | None = None,
        value_deserializer: Deserializer[V] | Callable[[bytes], V | Awaitable[V]] | None = None,
        on_deserialization_error: OnDeserializationError = "raise",
        on_offset_reset: OnOffsetReset | None = None,
        connector: Connector | None = None,
        clock: Callable[[], float] = time.time,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        super().__init__()
        client_config, config, group_config = configs(bootstrap_servers, group_id, settings)
        self._shared_topics = checked_topics(topics)
        check_function("clock", clock, "gives seconds since the epoch")
        if on_offset_reset is not None:
            check_function("on_offset_reset", on_offset_reset, "is told of resets")
        if group_config is None and (strategies is not None or listener is not None):
            raise ConfigurationError(f"strategies={strategies!r}, listener={listener!r}: they need a group_id")
        if listener is not None and not isinstance(listener, RebalanceListener):
            raise ConfigurationError(f"listener={listener!r}: an instance of a RebalanceListener")
        # The topics of which every partition is read; in a group it is the group that decides.
        self._topics = () if group_config is not None else all_partitions_of(self._shared_topics)
        self._client_config = client_config
        self._config = config
        self._client = Client(client_config, connector=connector)
        self._subscription = Subscription(Reset.of(config), config.max_partition_fetch_bytes)
        self._found = asyncio.Event()
        self._reader = Reader(self._subscription, client_config, config, self._hungry)
        self._fetching = Fetching(
            client=self._client,
            subscription=self._subscription,
            client_config=client_config,
            config=config,
            topics=self._topics,
            spawn=self._service.start_child,
            on_ready=self._ready,
            on_found=self._found.set,
            settle=self._reader.settle,
            report_reset=self._moved_by_reset,
            wall_clock=clock,
        )
        self._deserializing: Deserializing | None = None
        if key_deserializer is not None or value_deserializer is not None or on_deserialization_error != "raise":
            self._deserializing = Deserializing(key_deserializer, value_deserializer, on_deserialization_error)
        self._on_offset_reset = on_offset_reset
        self._records = _Records(self, self._reader)
        self._group_config = group_config
        self._coordinator: Coordinator | None = None
        self._offsets: Offsets | None = None
        self._attending: AbstractContextManager[None] = nullcontext()
        self._leave_group: bool | None = None
        if group_config is not None:
            self._join_group(group_config, strategies, listener or RebalanceListener())

    def _join_group(
        self, config: GroupConfig, strategies: Sequence[AssignmentStrategy | str] | None, listener: RebalanceListener
    ) -> None:
        from ..group.coordinator import Coordinator
        from ..group.offsets import Offsets

        if not self._shared_topics:
            self._offsets = Offsets(self._client, config, self._client_config, collect=lambda: attendance.collect())
            self._attending = attendance = Attendance(self._reader, self._subscription, self._offsets)
            return
        reading = GroupReading(self._reader, self._subscription, listener, RebalanceHandle(self), self._changed)
        self._coordinator = Coordinator(
            self._client,
            config,
            self._client_config,
            strategies=default_strategies() if strategies is None else strategies,
            reading=reading,
            spawn=self._service.start_child,
        )
        self._offsets = self._coordinator.offsets
        attendance = Attendance(self._reader, self._subscription, self._offsets)
        attendance.on_return = self._coordinator.polled
        reading.attendance = self._attending = attendance

    def __repr__(self) -> str:
        return f"<Consumer {self._client_config.client_id} {self.state.name} {self._subscription!r}>"

    # ---- lifetime

    async def _on_start(self) -> None:
        await self._service.attach(self._client.service)
        self._client.add_topics(self._subscription.topics.union(self._topics))
        for name in self._topics:
            topic = await self._client.topic(name, timeout=self._client_config.api_timeout)
            for partition in topic.partitions:
                named = TopicPartition(name, partition.partition)
                if named not in self._subscription.partitions:
                    self._subscription.add(named, self._subscription.reset)
        self._client.on_view_change(self._view_changed)
        self._fetching.start()
        if self._coordinator is not None:
            self._coordinator.start(self._shared_topics)
        elif self._offsets is not None and self._group_config is not None:
            if self._group_config.auto_commit:
                self._service.start_child(self._offsets.run, name="commit marked offsets")
            self._locate_held()

    async def _on_close(self) -> None:
        await self._fetching.close()
        config = self._group_config
        if self._coordinator is not None and config is not None:
            leave = config.group_instance_id is None if self._leave_group is None else self._leave_group
            await self._coordinator.close(leave=leave)
        elif self._offsets is not None and config is not None and config.auto_commit:
            from ..group.handover import COMMIT_TIMEOUT_AT_CLOSE

            await self._offsets.commit_marked(timeout=COMMIT_TIMEOUT_AT_CLOSE)

    async def close(self, timeout: float | None = None, *, leave_group: bool | None = None) -> None:
        """As ``Service.close``; a member of a group commits what is marked, lets go and leaves, all within the bound.

        A static member keeps its place, so that a restart costs no rebalance; ``leave_group`` decides otherwise.
        """
        check_timeout(timeout)
        if leave_group is not None:
            self._leave_group = leave_group
        await super().close(timeout)

    def _view_changed(self, *_: object) -> None:
        if self.state is ServiceState.RUNNING:  # the client lives on for a moment when the consumer has ended
            self._fetching.view_changed(self._client.view)

    def _ready(self) -> None:
        self._reader.notice()
        self._found.set()  # whoever waits for a position must hear of the error that keeps it from being known

    def _hungry(self, state: PartitionState) -> None:
        self._fetching.hungry(state)

    def _changed(self) -> None:
        if self.state is ServiceState.RUNNING:
            self._fetching.changed()
        self._ready()

    def _check_open(self) -> None:
        """As ``check``, but settings of what to read may be changed before the start already."""
        if self.state is not ServiceState.NEW:
            self._service.check()

    def _check_something_to_read(self) -> None:
        """Raise where reading could never return anything; a member that owns nothing at the moment may wait."""
        if not self._shared_topics and not self._subscription.partitions:
            raise IllegalStateError("there is nothing to read: give topics to the consumer, or assign() partitions")

    # ---- what to read

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions."""
        return tuple(self._subscription.partitions)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others.

        Those that were assigned before keep position, pause and what was fetched. IllegalStateError for a consumer of
        whole ``topics``, InvalidTopic for a name that cannot be one. A partition that turns out not to exist is
        reported by the next read, after ``api_timeout``.
        """
        self._check_open()
        if self._shared_topics:
            raise IllegalStateError(f"this consumer reads {described(self._shared_topics)}; it has no assign()")
        wanted = checked_partitions(partitions)
        for name in {partition.topic for partition in wanted}:
            check_topic_name(name)
        before = self._subscription.topics
        self._reader.settle()
        self._assign_of_group(wanted)
        self._subscription.assign(wanted)
        if self.state is ServiceState.RUNNING:  # the client keeps metadata of exactly the topics that are read
            self._client.remove_topics(before - self._subscription.topics)
            self._client.add_topics(self._subscription.topics)
        self._changed()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read a partition from ``offset`` on; what was fetched of it and not yet returned is forgotten."""
        self._check_open()
        check_offset(offset)
        state = self._subscription[checked_partition(partition)]
        self._reader.settle()
        self._moved([partition])
        state.seek(offset)
        self._subscription.update_ready(state)
        self._changed()
        self._found.set()

    async def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Read from the first offset that there is; all assigned partitions if none are given.

        Returns when the offset is known; before the start at once, and then the offset is looked up at the start.
        Raises as ``position``; a cancelled call leaves the lookup going on.
        """
        await self._seek_by(Reset.EARLIEST, partitions)

    async def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Read what is written from now on; otherwise as ``seek_to_beginning``."""
        await self._seek_by(Reset.LATEST, partitions)

    async def _seek_by(self, reset: Reset, partitions: Iterable[TopicPartition] | None) -> None:
        self._check_open()
        states = self._states(partitions)
        self._reader.settle()
        self._moved([state.partition for state in states])
        for state in states:
            state.seek_by(reset)
            self._subscription.update_ready(state)
        self._changed()
        if self.state is not ServiceState.NEW:
            await self._positions(states, self._limit(None))

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Return no records of these (of all, if none are given) until ``resume``; what was fetched stays."""
        self._set_paused(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Go on where ``pause`` stopped."""
        self._set_paused(partitions, False)

    def _set_paused(self, partitions: Iterable[TopicPartition] | None, paused: bool) -> None:
        self._check_open()
        states = self._states(partitions)
        self._reader.settle()
        for state in states:
            state.paused = paused
            if paused:
                state.pack()
            self._subscription.update_ready(state)
        self._changed()

    def _states(self, partitions: Iterable[TopicPartition] | None) -> list[PartitionState]:
        if partitions is None:
            return list(self._subscription)
        return [self._subscription[each] for each in checked_partitions(partitions)]

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The partitions that are paused."""
        return tuple(state.partition for state in self._subscription if state.paused)

    # ---- where it is

    async def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """The offset of the next record to be returned, waiting until it is known.

        Raises KafkaTimeout after ``timeout`` seconds (``api_timeout`` by default), or what keeps it from being known.
        """
        self._check_open()
        state = self._subscription[checked_partition(partition)]
        return (await self._positions([state], self._limit(timeout)))[state.partition]

    async def _positions(self, states: Iterable[PartitionState], limit: float) -> dict[TopicPartition, int]:
        """The positions of all of these, within ``limit`` seconds in all."""
        positions: dict[TopicPartition, int] = {}
        partition: TopicPartition | None = None
        try:
            async with asyncio.timeout(limit) as scope:
                for partition in [state.partition for state in states]:
                    positions[partition] = await self._known_position(partition)
        except TimeoutError as error:
            if not scope.expired() or partition is None:
                raise
            why = why_unknown(self._subscription[partition], self._client.view)
            raise KafkaTimeout(f"the position of {partition} was not found within {limit:g} s: {why}") from error
        return positions

    async def _known_position(self, partition: TopicPartition) -> int:
        while (position := self._subscription[partition].position) is None:
            failure = self._subscription[partition].failure
            if failure is not None:
                raise failure
            self._found.clear()
            await self._service.while_running(self._found.wait())
        return position

    async def lag(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """How many offsets lie between the position and the end that the isolation level lets this consumer see.

        Of all assigned partitions, if none are given. Where records are being fetched the end is known from the last
        answer, which costs nothing; leaders are asked for the others, as for those that are paused. What compaction and
        transactions took out of a log counts. Ends within ``timeout`` seconds, ``api_timeout`` by default, for all of
        them together. Raises as ``position`` and ``end_offsets``.
        """
        self._service.check()
        states = self._states(partitions)
        limit = self._limit(timeout)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit
        positions = await self._positions(states, limit)
        ends = {state.partition: state.known_end(self._config.isolation) for state in states}
        unknown = [partition for partition, end in ends.items() if end is None]
        left = round(deadline - loop.time(), 3)
        found = await self.end_offsets(unknown, timeout=left) if unknown else {}
        return {each: max(0, (found[each] if end is None else end) - positions[each]) for each, end in ends.items()}

    def diagnose(self) -> ConsumerDiagnosis:
        """What the consumer, its membership, its connections and its event loop are doing, to print into a bug report.

        Asks no broker and does not wait; lag is by the last answers. To be called in the event loop.
        """
        from .diagnosis import diagnose

        return diagnose(
            self._service, self._client, self._subscription, self._config, self._coordinator, self._group_config
        )

    def highwater(self, partition: TopicPartition) -> int | None:
        """The end of the partition when it was last fetched: the offset after the last replicated record, or None."""
        self._check_open()
        return self._subscription[checked_partition(partition)].high_watermark

    def _limit(self, timeout: float | None) -> float:
        """How many seconds a call may take."""
        if timeout is None:
            return self._client_config.api_timeout
        check_timeout(timeout)
        return timeout

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition, assigned or not."""
        found = await self._list_offsets(dict.fromkeys(checked_partitions(partitions), EARLIEST), timeout)
        return {partition: 0 if at is None else at.offset for partition, at in found.items()}

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition that this consumer's isolation level lets it see."""
        found = await self._list_offsets(dict.fromkeys(checked_partitions(partitions), LATEST), timeout)
        return {partition: 0 if at is None else at.offset for partition, at in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after a time in milliseconds; None where there is none so young."""
        return await self._list_offsets(checked_timestamps(timestamps), timeout)

    async def _list_offsets(
        self, wanted: Mapping[TopicPartition, int], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        self._service.check()
        config = self._client_config
        lookup = list_offsets(
            self._client,
            wanted,
            self._config.isolation,
            timeout=self._limit(timeout),
            backoff=Backoff(config.retry_backoff, config.retry_backoff_max),
        )
        return await self._service.while_running(lookup)

    # ---- the group

    @property
    def offsets(self) -> Offsets:
        """The group's offsets of what is assigned here: to mark, reset and commit them one by one."""
        if self._offsets is None:
            raise IllegalStateError("this consumer has no group_id, so nothing keeps its offsets")
        return self._offsets

    def mark(self, record: Record[K, V]) -> None:
        """Everything up to this record is done with, as asking for the next one says by itself."""
        check_record(record)
        partition = TopicPartition(record.topic, record.partition)
        self.offsets.mark(partition, record.offset + 1, leader_epoch=record.leader_epoch)

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, *, timeout: float | None = None
    ) -> CommitResult:
        """Commit these offsets (of the next record to read), or all that is marked.

        What was handed out last is not marked before the next is asked for; see ``mark``. Passing errors are tried
        again for ``timeout`` seconds, ``api_timeout`` by default. What was refused (as when partitions have gone to
        others) is in the result and in the log, not an exception: ``raise_for_refused()`` makes it one.
        """
        self._service.check()
        return await self._service.while_running(self.offsets.commit(offsets, timeout=self._limit(timeout)))

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, None where it has nothing.

        Raises KafkaTimeout after ``timeout`` seconds (``api_timeout`` by default), AuthorizationError.
        """
        self._service.check()
        wanted = checked_partitions(partitions)
        return await self._service.while_running(self.offsets.fetch(wanted, timeout=self._limit(timeout)))

    def group_metadata(self) -> GroupMetadata:
        """As whom this consumer acts in its group; generation -1 and no member id while it is not a member."""
        if self._group_config is None:
            raise IllegalStateError("this consumer has no group_id")
        config = self._group_config
        if self._coordinator is None:
            return GroupMetadata(config.group_id, -1, "", config.group_instance_id)
        identity = self._coordinator.member.identity
        return GroupMetadata(config.group_id, identity.generation, identity.member_id, identity.instance_id)

    @property
    def membership(self) -> MemberState | None:
        """What this consumer does in its group; None without one."""
        return None if self._coordinator is None else self._coordinator.member.state

    def subscribe(self, topics: Iterable[str] | re.Pattern[str]) -> None:
        """Read these topics from now on, as a member of the group. Partitions of others go in good order."""
        self._check_open()
        if self._coordinator is None:
            raise IllegalStateError("subscribe() is for members of a group, made with group_id and topics")
        self._shared_topics = checked_topics(topics)
        if self.state is ServiceState.RUNNING:
            self._coordinator.subscribe(self._shared_topics)

    def _moved_by_reset(self, partition: TopicPartition, old: int, new: int, reason: ResetReason) -> None:
        """Reading goes on elsewhere than the user has left off."""
        self._moved([partition])
        if self._on_offset_reset is not None:
            self._on_offset_reset(partition, old, new, reason)

    def _moved(self, partitions: Sequence[TopicPartition]) -> None:
        """The user has moved positions: the next marks count also where they are lower."""
        if isinstance(self._attending, Attendance) and self._offsets is not None:
            self._attending.forget(partitions)
            for partition in partitions:
                self._offsets.may_go_back(partition)

    def _assign_of_group(self, wanted: Sequence[TopicPartition]) -> None:
        """The assignment is about to be these; those that are new wait until the group's offsets are known."""
        if self._offsets is None or not isinstance(self._attending, Attendance):
            return
        gone = [each for each in self._subscription.partitions if each not in wanted]
        self._attending.forget(gone)
        self._offsets.forget(gone)
        for partition in wanted:
            if partition not in self._subscription.partitions:
                self._subscription.add(partition, self._subscription.reset).hold = Hold.LOCATING
        if self.state is ServiceState.RUNNING:
            self._locate_held()

    def _locate_held(self) -> None:
        held = [state for state in self._subscription if state.hold is Hold.LOCATING]
        if held:
            self._service.start_child(self._locate, held, name="committed offsets of what was assigned")

    async def _locate(self, states: Sequence[PartitionState]) -> None:
        """Begin where the group left off, but not where the user has said otherwise by now."""
        offsets = self.offsets
        found: dict[TopicPartition, OffsetAndMetadata | None] | None = None
        while found is None:
            try:
                found = await offsets.fetch([state.partition for state in states])
            except KafkaTimeout as error:
                if self._client.outages.failed("committed offsets", error):
                    logger.warning("%r: %s", self, error)
        spell = self._client.outages.over("committed offsets")
        if spell is not None:
            logger.warning("%r: committed offsets are known, after %s", self, spell)
        for state in states:
            if not self._subscription.holds(state):
                continue
            committed = found[state.partition]
            offsets.begin(state.partition, committed)
            if committed is not None and state.version == 0:
                state.seek(committed.offset, committed.leader_epoch)
            state.hold = Hold.NOT
            self._subscription.update_ready(state)
        self._changed()

    # ---- reading

    def __aiter__(self) -> _Records[K, V]:
        """Iterate over records for as long as the consumer lives; the iteration ends when it is closed."""
        self._service.check()
        return self._records

    async def __anext__(self) -> Record[K, V]:
        self._service.check()
        return await self._records.__anext__()

    async def poll(self, max_records: int = 500, timeout: float = 0.0) -> list[Record[K, V]]:
        """What is there, up to ``max_records``; if nothing is, whatever comes within ``timeout`` seconds, or nothing.

        The list may hold records of several partitions, those of each in order. Reading ends within ``timeout``, save
        for the time that unpacking what has arrived takes; an async deserializer is cut off by it, and what it has
        made is returned. So the timeout has to be enough for one record: with 0, for a deserializer that need not wait.
        """
        self._service.check()
        check_count("max_records", max_records)
        check_wait(timeout)
        self._check_something_to_read()
        if self._reader.needs_breath:
            await asyncio.sleep(0)
        with self._attending:
            if self._deserializing is not None:
                return await self._poll_deserialized(self._deserializing, max_records, timeout)
            # Without deserializers these are bytes, and so are K and V.
            records = cast("list[Record[K, V]]", self._reader.take(max_records))
            if records:
                return records
            try:
                async with asyncio.timeout(timeout) as scope:
                    while not records:
                        await self._service.while_running(self._reader.wait())
                        records = cast("list[Record[K, V]]", self._reader.take(max_records))
            except TimeoutError:
                if not scope.expired():  # a KafkaTimeout is one, too
                    raise
            return records

    async def _poll_deserialized(
        self, deserializing: Deserializing, max_records: int, timeout: float
    ) -> list[Record[K, V]]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        # Without any time, what is there is looked at, and that is more than one record that is left out.
        skip = 0 if timeout > 0 or deserializing.is_async else max_records - 1
        while True:
            found = deserializing.take(self._reader, max_records, deadline=deadline, skip=skip)
            records = await self._service.while_running(found)
            if records:
                return records
            if loop.time() >= deadline:
                await asyncio.sleep(0)  # who polls in a loop must not keep the event loop to itself
                return []
            try:
                async with asyncio.timeout_at(deadline) as scope:
                    await self._service.while_running(self._reader.wait())
            except TimeoutError:
                if not scope.expired():
                    raise
                return []

    def batches(self, max_records: int = 10_000, timeout: float = 0.0) -> Batches:
        """Iterate over batches of columns, each of one partition and of at most ``max_records``.

        A batch is returned when that many records are there, or after ``timeout`` seconds with what there is; while
        there is nothing, the iteration waits.
        """
        check_count("max_records", max_records)
        check_wait(timeout)
        return Batches(self, self._reader, max_records, timeout)


class _Records(Generic[K, V]):
    """The iteration over single records; all iterations over a consumer are this one."""

    __slots__ = ("_consumer", "_reader")

    def __init__(self, consumer: Consumer[K, V], reader: Reader) -> None:
        self._consumer = consumer
        self._reader = reader

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record[K, V]:
        for record in self._reader.current:  # hot: most records leave here, without a look at anything else
            return record  # type: ignore[return-value]  # they are what K and V say
        reader, deserializing = self._reader, self._consumer._deserializing
        with self._consumer._attending:
            while await _may_read(self._consumer, reader):
                if deserializing is not None:
                    if deserializing.iterate(reader):
                        return next(reader.current)  # type: ignore[return-value]
                    records = await _until_closed(self._consumer, deserializing.take(reader, 1))
                    if records:
                        return records[0]
                elif reader.iterate():
                    return next(reader.current)  # type: ignore[return-value]
                await _wait(self._consumer, reader)
        raise StopAsyncIteration


class Batches:
    """The iteration over batches that ``Consumer.batches`` gives."""

    __slots__ = ("_consumer", "_max_records", "_reader", "_timeout")

    def __init__(self, consumer: Consumer[Any, Any], reader: Reader, max_records: int, timeout: float) -> None:
        self._consumer = consumer
        self._reader = reader
        self._max_records = max_records
        self._timeout = timeout

    def __aiter__(self) -> Self:
        self._consumer._service.check()
        return self

    async def __anext__(self) -> Batch:
        reader = self._reader
        with self._consumer._attending:
            if self._timeout > 0 and not reader.is_full(self._max_records):
                await self._fill()
            while await _may_read(self._consumer, reader):
                batch = reader.take_batch(self._max_records)
                if batch is not None:
                    return batch
                await _wait(self._consumer, reader)
        raise StopAsyncIteration

    async def _fill(self) -> None:
        """Wait until a batch is full, or the time is over."""
        try:
            async with asyncio.timeout(self._timeout) as scope:
                while not self._reader.is_full(self._max_records) and await _may_read(self._consumer, self._reader):
                    await _wait(self._consumer, self._reader, more=True)
        except TimeoutError:
            if not scope.expired():
                raise


async def _may_read(consumer: Consumer[Any, Any], reader: Reader) -> bool:
    """Whether an iteration goes on; False once the consumer is closed. Raises what it died of."""
    if consumer.state in (ServiceState.CLOSING, ServiceState.CLOSED):
        return False
    consumer._service.check()
    consumer._check_something_to_read()
    if reader.needs_breath:
        await asyncio.sleep(0)
        return await _may_read(consumer, reader)
    return True


async def _wait(consumer: Consumer[Any, Any], reader: Reader, *, more: bool = False) -> None:
    """Wait until there may be something (``more``: something else) to read, or the consumer is closed."""
    await _until_closed(consumer, reader.wait(more=more))


async def _until_closed(consumer: Consumer[Any, Any], awaitable: Awaitable[T]) -> T | None:
    """As ``while_running``, but a consumer that was closed meanwhile gives None: that ends an iteration."""
    try:
        return await consumer._service.while_running(awaitable)
    except IllegalStateError:
        if consumer.state not in (ServiceState.CLOSING, ServiceState.CLOSED):
            raise
        return None
