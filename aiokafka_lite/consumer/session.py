"""``ConsumerGroup``: a group member in the shape of Sarama's, with a handler, sessions, and a task for each claim.

A session is the time in which this member reads the same partitions. It begins with ``setup``, then runs
``consume_claim`` for every claimed partition at once, and ends when the assignment is about to change: the claims'
iterations end, each has until the rebalance timeout to finish what it has in hand, ``cleanup`` is run, and what was
marked is committed before the partitions go. Nothing is marked by itself: the handler says what is done.

Unlike Sarama's, ``consume`` goes on over rebalances, so there is no loop to write around it; and a claim whose
``consume_claim`` returns early ends nothing but itself.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack, cast

import anyio

from ..aio.retry import Backoff
from ..aio.service import Component, ServiceState
from ..cluster.client import Client
from ..config import ClientConfig, ConsumerConfig, GroupConfig, check_function
from ..errors import ConfigurationError, IllegalStateError, KafkaError
from ..group.coordinator import Coordinator
from ..group.offsets import CommitResult, Offsets
from ..group.strategies import AssignmentStrategy, checked_strategies
from ..group.topic_watcher import Topics
from ..net.connector import Connector, check_connector
from ..types import K, OffsetAndMetadata, Record, TopicPartition, V
from .arguments import check_record
from .callbacks import call
from .deserializer import Deserializer
from .deserializing import Deserializing, OnDeserializationError
from .fetched import Chunk
from .fetching import Fetching
from .partition import Hold, OnOffsetReset, PartitionState, Reset, ResetReason
from .reader import BREATH, NOTHING
from .settings import ConsumerSettings, checked_topics, configs, default_strategies
from .subscription import Subscription, wants_data

if TYPE_CHECKING:
    from .diagnosis import ConsumerDiagnosis

logger = logging.getLogger(__name__)

CLOSING_TIME = 1.5
"""Seconds that claims have to finish when the group is closed, and again ``cleanup``; then they are cancelled."""

ERRORS_KEPT = 100
"""Errors that wait for a reader of ``errors()``; older ones are dropped, as they are in the log."""


class ConsumerGroupHandler(Generic[K, V]):
    """What a member does. Override ``consume_claim``, and the others if there is something to do.

    An exception ends ``consume``, which raises it after the member has left in good order. So does a ``setup`` or
    ``cleanup`` that takes longer than the rebalance timeout, as the others cannot wait for it any longer: it is
    cancelled, and the exception is a KafkaTimeout.
    """

    async def setup(self, session: ConsumerGroupSession) -> None:
        """A session begins; claims are read when this returns."""

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim[K, V]) -> None:
        """Read one partition, in a task of its own: ``async for record in claim``, which ends with the session."""
        raise NotImplementedError(f"{type(self).__name__} has no consume_claim()")

    async def cleanup(self, session: ConsumerGroupSession) -> None:
        """A session has ended: all claims have, and what is marked now is committed next, unless it was lost.

        While the group is closed it has a second and a half.
        """


class Claim(Generic[K, V]):
    """One partition in one session: an iterator over its records. Owner: the task that runs ``consume_claim``.

    A record that cannot be read is raised as an error once, and then again at a bounded rate, until it can be.
    Cancelling the wait for a record loses none, also while a deserializer waits.
    """

    def __init__(self, group: _Consumption, session: ConsumerGroupSession, state: PartitionState) -> None:
        self._group = group
        self._session = session
        self._state = state
        self._initial: int | None = None
        self._ready = asyncio.Event()
        self._current: Iterator[Record] = NOTHING
        self._breath_left = BREATH

    def __repr__(self) -> str:
        return f"<Claim {self._state.partition} position={self._state.position}>"

    @property
    def topic(self) -> str:
        return self._state.partition.topic

    @property
    def partition(self) -> int:
        return self._state.partition.partition

    @property
    def initial_offset(self) -> int | None:
        """Where reading began in this session; None until that is known, where nothing was committed."""
        if self._initial is None:
            self._initial = self._state.position
        return self._initial

    @property
    def high_water_mark_offset(self) -> int | None:
        """The offset after the last record that could be read when this was last fetched; None before that."""
        return self._state.high_watermark

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record[K, V]:
        for record in self._current:  # hot: most records leave here
            return record  # type: ignore[return-value]  # they are what K and V say
        deserializing = self._group.deserializing
        while not self._session.cancelled:
            if self._breath_left <= 0:
                self._breath_left = BREATH
                await asyncio.sleep(0)
                continue
            # Cleared before looking, so that what comes while looking is not missed.
            self._ready.clear()
            if deserializing is None:
                if self._iterate():
                    return next(self._current)  # type: ignore[return-value]
            elif deserializing.iterate(self):
                return next(self._current)  # type: ignore[return-value]
            elif records := await deserializing.take(self, 1):
                return cast("Record[K, V]", records[0])
            await self._ready.wait()
        raise StopAsyncIteration

    def _iterate(self) -> bool:
        found = self.peek()
        if found is None:
            return False
        _, chunk = found
        self._breath_left -= len(chunk)
        self._current = chunk.iterate()
        return True

    # ---- as the source of records whose keys and values are deserialized

    def peek(self) -> tuple[PartitionState, Chunk] | None:
        if self._session.cancelled or self.initial_offset is None or not self._state.readable:
            return None
        chunk = self._group.next_chunk(self._state)
        return None if chunk is None else (self._state, chunk)

    def iterate_with(self, chunk: Chunk, keys: Sequence[object], values: Sequence[object]) -> None:
        self._breath_left -= len(values)
        self._current = chunk.iterate_with(keys, values)

    def deliver(self, state: PartitionState, chunk: Chunk, start: int, count: int) -> bool:
        # The session may have ended meanwhile: then whoever gets the partition next reads this.
        if self._session.cancelled or state.chunk is not chunk or chunk.index != start:
            return False
        chunk.advance(count)
        self._breath_left -= count
        return True

    def refuse(self, state: PartitionState) -> None:
        state.drop_buffer()
        self._group.leave_alone(state)

    # ---- inside

    def _wake(self) -> None:
        self._ready.set()

    def _end(self) -> None:
        self._current = NOTHING
        if self._state.chunk is not None:
            self._state.chunk.settle()
        self._ready.set()


class ConsumerGroupSession:
    """The time in which this member reads the same partitions. Marks and commits belong to it: later ones are refused.

    ``cancelled`` is True, and ``wait_cancelled`` returns, as soon as the session is to end: the handler should come to
    an end, too.
    """

    def __init__(self, group: _Consumption) -> None:
        self._group = group
        self._cancelled = asyncio.Event()
        self._claims: dict[TopicPartition, Claim[Any, Any]] = {}
        self._tasks: dict[TopicPartition, anyio.CancelScope] = {}
        self._ended = asyncio.Event()
        self._clean = False

    def __repr__(self) -> str:
        return f"<ConsumerGroupSession {self.member_id} generation={self.generation_id} claims={len(self._claims)}>"

    @property
    def claims(self) -> Mapping[str, tuple[int, ...]]:
        """The claimed partitions, by topic."""
        topics: dict[str, tuple[int, ...]] = {}
        for topic, number in sorted(self._claims):
            topics[topic] = (*topics.get(topic, ()), number)
        return topics

    @property
    def member_id(self) -> str:
        return self._group.coordinator.member.member_id

    @property
    def generation_id(self) -> int:
        """It may grow during a session, where a rebalance takes nothing from this member."""
        return self._group.coordinator.member.generation

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    async def wait_cancelled(self) -> None:
        """Return when partitions are to go: as ``cancelled`` becomes true."""
        await self._cancelled.wait()

    def mark_message(self, record: Record[K, V], metadata: str = "") -> bool:
        """Everything up to this record is done with; False if that is not news, or the partition is not ours."""
        check_record(record)
        partition = TopicPartition(record.topic, record.partition)
        return self._group.offsets_of(self).mark(
            partition, record.offset + 1, metadata, leader_epoch=record.leader_epoch
        )

    def mark_offset(self, topic: str, partition: int, offset: int, metadata: str = "") -> bool:
        """Everything before ``offset``, the next to be read, is done with; marks only go forward."""
        return self._group.offsets_of(self).mark(TopicPartition(topic, partition), offset, metadata)

    def reset_offset(self, topic: str, partition: int, offset: int, metadata: str = "") -> bool:
        """As ``mark_offset``, but also backwards. What this session reads next is not changed by it."""
        return self._group.offsets_of(self).reset(TopicPartition(topic, partition), offset, metadata)

    async def commit(self, *, timeout: float | None = None) -> CommitResult:
        """Commit what is marked, now; otherwise as ``Consumer.commit``."""
        return await self._group.offsets_of(self).commit_marked(timeout=timeout)

    # ---- inside

    def _cancel(self) -> None:
        if not self._cancelled.is_set():
            self._cancelled.set()
            for claim in self._claims.values():
                claim._end()

    def _claim_ended(self, partition: TopicPartition) -> None:
        self._tasks.pop(partition, None)
        if not self._tasks:
            self._ended.set()


class ConsumerGroup(Generic[K, V]):
    """A member of a group that works by a handler. Constructing it does no I/O.

    Takes the settings of ``Consumer``, its deserializers and its ``on_offset_reset``. ``await group.consume(topics,
    handler)`` does everything, from joining to leaving; ``async with`` is only needed where something else may have to
    close it.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        group_id: str,
        strategies: Sequence[AssignmentStrategy | str] | None = None,
        key_deserializer: Deserializer[K] | Callable[[bytes], K | Awaitable[K]] | None = None,
        value_deserializer: Deserializer[V] | Callable[[bytes], V | Awaitable[V]] | None = None,
        on_deserialization_error: OnDeserializationError = "raise",
        on_offset_reset: OnOffsetReset | None = None,
        connector: Connector | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        client_config, config, group_config = configs(bootstrap_servers, group_id, settings)
        if group_config is None:
            raise ConfigurationError("group_id=None: a name")
        self._client_config = client_config
        self._config = config
        self._group_config = group_config
        self._strategies = default_strategies() if strategies is None else checked_strategies(strategies)
        check_connector(connector)
        self._connector = connector
        if on_offset_reset is not None:
            check_function("on_offset_reset", on_offset_reset, "is told of resets")
        self._on_offset_reset = on_offset_reset
        self._deserializing: Deserializing | None = None
        if key_deserializer is not None or value_deserializer is not None or on_deserialization_error != "raise":
            self._deserializing = Deserializing(key_deserializer, value_deserializer, on_deserialization_error)
        self._running: _Consumption | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._errors: deque[KafkaError] = deque(maxlen=ERRORS_KEPT)
        self._news = asyncio.Event()

    def __repr__(self) -> str:
        return f"<ConsumerGroup {self._group_config.group_id} {'idle' if self._running is None else self._running}>"

    async def consume(self, topics: Iterable[str] | re.Pattern[str], handler: ConsumerGroupHandler[K, V]) -> None:
        """Be a member, session after session, until cancelled, closed, or something cannot go on.

        Raises what the handler raised, and what makes membership impossible. However it ends, claims have had a moment
        to finish, what was marked is committed, and the group has been left.
        """
        if self._closed:
            raise IllegalStateError(f"{self!r} is closed")
        if self._running is not None:
            raise IllegalStateError(f"{self!r} is consuming already; make another one, in one loop there may be many")
        if not isinstance(handler, ConsumerGroupHandler):
            raise TypeError(f"handler={handler!r}: an instance of a ConsumerGroupHandler")
        wanted = checked_topics(topics)
        if not isinstance(wanted, re.Pattern) and not wanted:
            raise ConfigurationError(f"topics={topics!r}: at least one name, or a pattern")
        running = self._running = _Consumption(self, wanted, handler)
        self._idle.clear()
        try:
            async with running:
                await running.until_over()
        except IllegalStateError:
            if not running.was_ended_at_start:
                raise
        finally:
            self._running = None
            self._idle.set()
        if running.handler_error is not None:
            raise running.handler_error

    async def close(self) -> None:
        """End ``consume``, which then returns; wait until it has."""
        self._closed = True
        running = self._running
        if running is not None:
            running.end()
            if running.state is ServiceState.STARTING:  # perhaps no broker can be reached: it may take a minute
                running.was_ended_at_start = True
                await running.close()
            if not running.is_own_task():
                await self._idle.wait()
        self._news.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def diagnose(self) -> ConsumerDiagnosis:
        """As ``Consumer.diagnose``, of the ``consume`` that runs. Raises IllegalStateError while none does."""
        if self._running is None:
            raise IllegalStateError(f"{self!r} is not consuming: there is nothing to diagnose")
        return self._running.diagnose()

    def errors(self) -> GroupErrors:
        """What went wrong and was tried again, or was refused: an endless iteration, until the group is closed."""
        return GroupErrors(self)

    def _report(self, error: KafkaError) -> None:
        self._errors.append(error)
        self._news.set()


class GroupErrors:
    """The iteration over a group's errors. Each error is given to one reader."""

    __slots__ = ("_group",)

    def __init__(self, group: ConsumerGroup[Any, Any]) -> None:
        self._group = group

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> KafkaError:
        group = self._group
        while not group._errors:
            if group._closed:
                raise StopAsyncIteration
            group._news.clear()
            await group._news.wait()
        return group._errors.popleft()


class _Consumption(Component):
    """One call of ``consume``: the client, the membership, and the session of the moment."""

    def __init__(self, group: ConsumerGroup[K, V], topics: Topics, handler: ConsumerGroupHandler[K, V]) -> None:
        super().__init__()
        self._topics = topics
        self._handler = handler
        self._client_config: ClientConfig = group._client_config
        self._config: ConsumerConfig = group._config
        self._group_config: GroupConfig = group._group_config
        self.deserializing = group._deserializing
        self._on_offset_reset = group._on_offset_reset
        self._client = Client(group._client_config, connector=group._connector)
        self._backoff = Backoff(group._client_config.retry_backoff, group._client_config.retry_backoff_max)
        self._subscription = Subscription(Reset.of(group._config), group._config.max_partition_fetch_bytes)
        self._fetching = Fetching(
            client=self._client,
            subscription=self._subscription,
            client_config=group._client_config,
            config=group._config,
            topics=(),
            spawn=self._service.start_child,
            on_ready=self._ready,
            on_found=self._ready,
            settle=self._settle_claims,
            report_reset=self._moved_by_reset,
        )
        self.coordinator = Coordinator(
            self._client,
            group._group_config,
            group._client_config,
            strategies=group._strategies,
            reading=self,
            spawn=self._service.start_child,
            on_error=group._report,
        )
        self._session: ConsumerGroupSession | None = None
        self._reset: set[TopicPartition] = set()  # owned ones, of which marks may be of a log that is no more
        self._over_event = asyncio.Event()
        self.handler_error: Exception | None = None
        self.was_ended_at_start = False

    def __repr__(self) -> str:
        return f"<Consumption {self.state.name} {self.coordinator.member!r}>"

    # ---- lifetime

    async def _on_start(self) -> None:
        await self._service.attach(self._client.service)
        self._client.on_view_change(self._view_changed)
        self._fetching.start()
        self.coordinator.start(self._topics)

    async def _on_close(self) -> None:
        await self._fetching.close()
        await self.coordinator.close(leave=self._group_config.group_instance_id is None)

    async def until_over(self) -> None:
        await self._service.while_running(self._over_event.wait())

    def diagnose(self) -> ConsumerDiagnosis:
        from .diagnosis import diagnose

        return diagnose(
            self._service, self._client, self._subscription, self._config, self.coordinator, self._group_config
        )

    def end(self) -> None:
        """Have ``consume`` return."""
        self._over_event.set()

    def is_own_task(self) -> bool:
        return self._service.is_own_task

    def _fail_by_handler(self, error: Exception) -> None:
        if self.handler_error is None:
            self.handler_error = error
        elif repr(error) != repr(self.handler_error):  # many claims run the same code, and meet the same
            logger.warning("%r, which ends because of %r, also met %r", self, self.handler_error, error)
        self.end()

    def _view_changed(self, *_: object) -> None:
        if self.state is ServiceState.RUNNING:
            self._fetching.view_changed(self._client.view)

    def _changed(self) -> None:
        if self.state is ServiceState.RUNNING:
            self._fetching.changed()
        self._ready()

    def _ready(self) -> None:
        if self._session is not None:
            for claim in self._session._claims.values():
                if claim._state.readable:
                    claim._wake()

    def _settle_claims(self) -> None:
        """A position is about to be moved by something other than reading: no claim may go on with what it has."""
        if self._session is not None:
            for claim in self._session._claims.values():
                claim._end()

    def next_chunk(self, state: PartitionState) -> Chunk | None:
        """What a claim has to read next. Raises what stands in the way, and leaves the partition alone for a while."""
        try:
            chunk = state.next_chunk(check_crc=self._config.check_crcs, max_size=self._config.max_decompressed_size)
        except KafkaError:
            self.leave_alone(state)
            raise
        self._subscription.update_ready(state)
        if wants_data(state):
            self._fetching.hungry(state)
        return chunk

    def leave_alone(self, state: PartitionState) -> None:
        """After an error the partition is fetched again, at a bounded rate."""
        state.back_off(asyncio.get_running_loop().time() + self._backoff.after(state.attempts))
        self._subscription.update_ready(state)
        self._fetching.hungry(state)

    def offsets_of(self, session: ConsumerGroupSession) -> Offsets:
        """The offset manager, for the present session; an ended one may not speak for those who came after."""
        if session is not self._session:
            raise IllegalStateError(f"{session!r} has ended")
        return self.coordinator.offsets

    # ---- the user's side of the membership, called by the coordinator task

    def stop(self, partitions: Sequence[TopicPartition]) -> None:
        for state in self._held(partitions):
            state.hold = Hold.GOING
            self._subscription.update_ready(state)
        if self._session is not None:
            self._session._cancel()

    async def wait_until_done(self, partitions: Sequence[TopicPartition]) -> None:
        if self._session is not None:
            await self._session._ended.wait()

    async def finish(self, partitions: Sequence[TopicPartition], *, closing: bool) -> None:
        if closing:
            await self._end_session(CLOSING_TIME, CLOSING_TIME)
        else:
            await self._end_session(0.0, self._group_config.time_to_rebalance)  # the claims were waited for already

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._drop(partitions)

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        await self._end_session(self._group_config.time_to_revoke, self._group_config.time_to_rebalance)
        self._drop(partitions)

    async def assigned(
        self, added: dict[TopicPartition, OffsetAndMetadata | None], owned: frozenset[TopicPartition]
    ) -> None:
        before = self._session
        if before is not None and not before.cancelled:
            if not added:
                return  # the session goes on, in the next generation
            before._cancel()
            await self._end_session(self._group_config.time_to_revoke, self._group_config.time_to_rebalance)
        for partition, committed in added.items():
            state = self._subscription.add(partition, self._subscription.reset)
            if committed is not None:
                state.seek(committed.offset, committed.leader_epoch)
        self._changed()
        await self._begin_session(owned)

    def collect_marks(self) -> None:
        pass  # a handler marks by itself

    def idle_for(self, now: float) -> float:
        return 0.0  # a claim may work on one record for as long as it likes; heartbeats say that the process lives

    # ---- sessions

    async def _begin_session(self, owned: frozenset[TopicPartition]) -> None:
        session = self._session = ConsumerGroupSession(self)
        for state in self._held(sorted(owned)):
            session._claims[state.partition] = Claim(self, session, state)
        try:
            await call("setup()", self._handler.setup(session), self._group_config.time_to_rebalance)
        except Exception as error:  # noqa: BLE001 - it is the user's, and goes to whoever called consume
            session._cancel()
            session._clean = True  # what was not set up is not cleaned up
            session._ended.set()
            self._fail_by_handler(error)
            return
        if session.cancelled:
            session._ended.set()
            return
        for partition, claim in session._claims.items():
            session._tasks[partition] = self._service.start_child(
                self._run_claim, session, claim, name=f"claim of {partition}"
            )
        if not session._tasks:
            session._ended.set()

    async def _run_claim(self, session: ConsumerGroupSession, claim: Claim[Any, Any]) -> None:
        try:
            await call(f"consume_claim() of {claim._state.partition}", self._handler.consume_claim(session, claim))
        except Exception as error:  # noqa: BLE001 - it is the user's, and goes to whoever called consume
            self._fail_by_handler(error)
        finally:
            session._claim_ended(claim._state.partition)

    async def _end_session(self, patience: float, time_to_clean_up: float) -> None:
        """Wait for the claims for so many seconds, cancel those that take longer, and clean up."""
        session = self._session
        if session is None:
            return
        session._cancel()
        if session._tasks:
            with anyio.move_on_after(patience):
                await session._ended.wait()
        if session._tasks:
            late = ", ".join(map(str, session._tasks))
            logger.warning("%r: cancelled, as they did not end in time: claims of %s", session, late)
            for scope in list(session._tasks.values()):
                scope.cancel()
            await session._ended.wait()
        if not session._clean:
            session._clean = True
            try:
                await call("cleanup()", self._handler.cleanup(session), time_to_clean_up)
            except Exception as error:  # noqa: BLE001 - it is the user's, and goes to whoever called consume
                self._fail_by_handler(error)
            self._return_to_marks(session)

    def _return_to_marks(self, session: ConsumerGroupSession) -> None:
        """Have the next session of this member begin where the marks of this one are, as it would at another member.

        What a claim has handed out and nobody marked is handed out again: the claim may have been cancelled over it, or
        have returned with it in hand. And what was marked without being read, such as a damaged batch, is passed over.
        """
        for partition, claim in session._claims.items():
            state, position = claim._state, claim._state.position
            done = self.coordinator.offsets.last_marked(partition)
            begin = claim._initial if done is None else done.offset
            if begin is None or position is None or not self._subscription.holds(state):
                continue
            if begin < position or (begin > position and partition not in self._reset):
                state.seek(begin, None if done is None else done.leader_epoch)

    def _moved_by_reset(self, partition: TopicPartition, old: int, new: int, reason: ResetReason) -> None:
        """Reading goes on elsewhere than the claim has left off, and marks have to follow."""
        self.coordinator.offsets.may_go_back(partition)
        self._reset.add(partition)
        if self._on_offset_reset is not None:
            self._on_offset_reset(partition, old, new, reason)

    def _held(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        states = self._subscription.partitions
        return [states[partition] for partition in partitions if partition in states]

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        self._reset -= gone
        self._session = None
        self._subscription.assign([each for each in self._subscription.partitions if each not in gone])
        self._changed()
