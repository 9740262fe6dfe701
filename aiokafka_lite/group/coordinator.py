"""The task that makes a ``Member`` live: it takes events from one queue and does what the machine answers with.

Requests to the coordinator run as one child at a time, whose outcome is the next event. Heartbeats are a child of their
own, so they go on while user code works, and so is the handing over of partitions to the user and back, which may take
as long as user code does. None of them decides anything.

Nothing here waits on a polling timeout. Every retry has a pause that grows, also where the coordinator answers at once.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

import anyio

from ..aio.retry import Backoff
from ..cluster.client import Client
from ..cluster.metadata import ClusterView
from ..config import ClientConfig, GroupConfig
from ..errors import ConfigurationError, ErrorCode, KafkaError, KafkaTimeout, UnsupportedVersion, error_for
from ..net.connection import Purpose
from ..protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    MetadataRequest,
)
from ..protocol.versions import VersionTable
from ..types import Node, OffsetAndMetadata, TopicPartition
from .link import Link, is_passing
from .member import (
    Action,
    Assign,
    AwaitJoin,
    Close,
    CommitRefused,
    Event,
    Fail,
    GatherTopics,
    HeartbeatAnswer,
    JoinAnswer,
    LeaveAnswer,
    LetGo,
    Lose,
    Member,
    MemberState,
    Polled,
    PollOverdue,
    RequestFailed,
    Revoke,
    SendJoin,
    SendLeave,
    SendSync,
    Subscribe,
    SyncAnswer,
    TopicsGathered,
    TopicsSeen,
)
from .offsets import Offsets
from .strategies import BY_NAME, AssignmentStrategy, TopicRacks

logger = logging.getLogger(__name__)

JOIN_MARGIN = 5.0
"""Seconds that JoinGroup may take beyond the rebalance timeout, at which the coordinator answers."""

GATHER_TIMEOUT = 5.0
"""Seconds that the leader waits for metadata of topics that it does not know; then it does without them."""

LAST_WORDS = 2.0
"""Seconds for a commit and for LeaveGroup when the member closes: together they stay below the bound of closing."""

SOON = 0.1
"""Seconds until the first heartbeat of a generation that another may follow at once; see ``_beat``."""

STATIC_MEMBERS = 5
LEAVES_BY_LIST = 3

Topics = Collection[str] | re.Pattern[str]
"""Names, or a regular expression that whole names must match."""


Spawn = Callable[..., "anyio.CancelScope"]
"""Runs a coroutine function as a task of the owning component: ``Service.start_child``."""


class Reading(Protocol):
    """The user's side: who reads the partitions. All calls come one at a time, but for ``stop``."""

    def stop(self, partitions: Sequence[TopicPartition]) -> None:
        """Hand out nothing more of these, from now on; they are about to go."""

    async def wait_until_done(self, partitions: Sequence[TopicPartition]) -> None:
        """Wait until the user has come back from what was handed out of these."""

    async def finish(self, partitions: Sequence[TopicPartition], *, closing: bool) -> None:
        """The time to wait is over, one way or the other: what is marked when this returns is what is committed."""

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Tell the user, and let go."""

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Let go, and tell the user, that these are not ours any longer."""

    async def assigned(
        self, added: dict[TopicPartition, OffsetAndMetadata | None], owned: frozenset[TopicPartition]
    ) -> None:
        """A generation is settled: read what it added, from the committed offsets on, besides what there is."""

    def collect_marks(self) -> None:
        """Mark the processed records that are not marked yet. Called before each commit of marked offsets."""

    def idle_for(self, now: float) -> float:
        """Seconds since the user came back for records; 0 while it waits for some. ``now`` is the loop's time."""


class Coordinator:
    """A membership. Owner: a consumer, in whose task group all its tasks run (``spawn``).

    ``on_error`` hears of what goes wrong and is tried again. What cannot be tried again ends ``run`` as an exception.
    """

    def __init__(
        self,
        client: Client,
        config: GroupConfig,
        client_config: ClientConfig,
        *,
        strategies: Sequence[AssignmentStrategy | str],
        reading: Reading,
        spawn: Spawn,
        on_error: Callable[[KafkaError], None] = lambda error: None,
    ) -> None:
        checked = checked_strategies(strategies)
        self._client = client
        self._config = config
        self._client_config = client_config
        self._reading = reading
        self._spawn = spawn
        self._on_error = on_error
        self._link = Link(client, config.group_id)
        self._place = f"group {config.group_id}"
        self.member = Member(
            config.group_id,
            strategies=checked,
            session_timeout=config.session_timeout,
            rebalance_timeout=config.time_to_rebalance,
            instance_id=config.group_instance_id,
            rack=client_config.client_rack or None,
        )
        self.offsets = Offsets(
            client,
            config,
            client_config,
            identity=lambda: self.member.identity if self.member.generation >= 0 else None,
            is_rebalancing=lambda: self.member.is_rebalancing,
            collect=reading.collect_marks,
            on_refused=lambda identity, code: self._post(CommitRefused(identity, code)),
            on_error=on_error,
        )
        # Who puts events there waits for what follows from them, or is told at most once for each change of metadata.
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._handovers: asyncio.Queue[Assign | Revoke | Lose | Fail] = asyncio.Queue()
        self._going: set[TopicPartition] = set()  # in a handover that has not been carried out yet
        self._waiting: anyio.CancelScope | None = None
        self._let_go_by: dict[int, float] = {}  # the loop's time, by the number of what is to be let go of
        self._request: anyio.CancelScope | None = None
        self._locating: anyio.CancelScope | None = None
        self._beating = asyncio.Event()
        self._renewed = asyncio.Event()  # a generation has begun, which heartbeats have not heard of
        self._generation = self.member.generation
        self._closing = False
        self._gone = asyncio.Event()
        self._backoff = client.retry_backoff()
        self._pattern: anyio.CancelScope | None = None
        self._matches_changed = asyncio.Event()
        self._tracked: frozenset[str] = frozenset()
        self._subscribed: frozenset[str] = frozenset()
        self._polled = False

    def __repr__(self) -> str:
        return f"<Coordinator of {self.member!r}>"

    # ---- the owner's side

    def start(self, topics: Topics) -> None:
        """Become a member; to be called when the client is running."""
        self._client.on_view_change(self._view_changed)
        self._spawn(self.run, name="group member")
        self._spawn(self._beat, name="heartbeats")
        self._spawn(self._hand_over, name="handing over partitions")
        if self._config.auto_commit:
            self._spawn(self.offsets.run, name="commit marked offsets")
        self.subscribe(topics)

    @property
    def node(self) -> Node | None:
        """The broker that coordinates the group, as far as it is known now."""
        return self._client.known_coordinator(self._config.group_id)

    def subscribe(self, topics: Topics) -> None:
        """Read these topics from now on."""
        if self._pattern is not None:
            self._pattern.cancel()
            self._pattern = None
        by_name = not isinstance(topics, re.Pattern)
        self._client.allow_topic_creation(by_name and self._client_config.allow_auto_create_topics)
        if isinstance(topics, re.Pattern):
            self._pattern = self._spawn(self._watch_pattern, topics, name="topics that match")
        else:
            self._subscribe(frozenset(topics))

    def _subscribe(self, topics: frozenset[str]) -> None:
        self._subscribed = topics
        self._track()
        self._post(Subscribe(topics))

    def polled(self) -> None:
        """The user has come back for records."""
        if self.member.state in (MemberState.UNJOINED, MemberState.LEAVING) and not self._polled:
            self._polled = True
            self._post(Polled())

    async def close(self, *, leave: bool) -> None:
        """Commit what is marked, let go, leave. The caller bounds it; every part of it has its own bound, too."""
        self._closing = True
        self._end_wait()
        self._post(Close(leave))
        await self._gone.wait()

    def _end_wait(self) -> None:
        """Wait for the user no longer, if that is what the handover is doing."""
        if self._waiting is not None:
            self._waiting.cancel()

    def _post(self, event: Event) -> None:
        self._events.put_nowait(event)

    # ---- the task

    async def run(self) -> None:
        """Be a member until closed. Raises what makes that impossible."""
        while not self.member.is_gone:
            event = await self._events.get()
            before = self.member.state
            actions = self.member.handle(event)
            if isinstance(event, Polled):
                self._polled = False
            if self.member.state is not before:
                logger.info("%r after %s", self.member, type(event).__name__)
            for action in actions:
                self._do(action)
            self._follow()
        self._gone.set()

    def _do(self, action: Action) -> None:
        match action:
            case SendJoin():
                self._send(self._join, action)
            case GatherTopics():
                self._send(self._gather, action)
            case SendSync():
                self._send(self._sync, action)
            case SendLeave():
                self._send(self._leave, action)
            case AwaitJoin():
                self._spawn(self._give_up_join, action.attempt, name="last words")
            case Revoke() | Lose():
                self._reading.stop(action.partitions)
                self._going.update(action.partitions)
                if self._locating is not None:
                    self._locating.cancel()  # what is being looked up may be what goes
                if isinstance(action, Revoke):
                    self._let_go_by[action.number] = asyncio.get_running_loop().time() + self._config.time_to_revoke
                if isinstance(action, Lose):
                    self.offsets.forget(action.partitions)  # at once: no late commit may undo what others commit
                    self._end_wait()
                self._handovers.put_nowait(action)
            case Assign() | Fail():
                self._handovers.put_nowait(action)

    def _follow(self) -> None:
        """Have heartbeats, pace and tracked topics be what the machine's state asks for."""
        if self.member.beats:
            self._beating.set()
        else:
            self._beating.clear()
        if self.member.beats and self.member.generation != self._generation:
            self._generation = self.member.generation
            self._renewed.set()
        if self.member.state is MemberState.STABLE:
            self._backoff.reset()
        self._track()

    def _track(self) -> None:
        wanted = self._subscribed | self.member.watched
        self._client.add_topics(wanted - self._tracked)
        self._client.remove_topics(self._tracked - wanted)
        self._tracked = wanted

    # ---- requests

    def _send(self, perform: Callable[..., object], action: SendJoin | GatherTopics | SendSync | SendLeave) -> None:
        if self._request is not None:
            self._request.cancel()
        self._request = self._spawn(self._perform, perform, action, name=type(action).__name__)

    async def _perform(
        self,
        perform: Callable[[SendJoin | GatherTopics | SendSync | SendLeave], object],
        action: SendJoin | GatherTopics | SendSync | SendLeave,
    ) -> None:
        try:
            event = await perform(action)  # type: ignore[misc]
        except KafkaError as error:
            self._report(error)
            event = RequestFailed(action.attempt, error, is_passing(error))
        self._post(event)

    async def _join(self, action: SendJoin) -> JoinAnswer:
        if action.pause:
            await asyncio.sleep(self._backoff.next())

        def build(versions: VersionTable) -> JoinGroupRequest:
            if self._config.group_instance_id is not None and not versions.supports(JoinGroupRequest, STATIC_MEMBERS):
                raise UnsupportedVersion(
                    f"group_instance_id={self._config.group_instance_id!r}: brokers have static members since Kafka 2.3"
                )
            return action.request

        timeout = max(self._client_config.request_timeout, self._config.time_to_rebalance + JOIN_MARGIN)
        response, node_id = await self._link.send(build, purpose=Purpose.GROUP, timeout=timeout)
        self._learn(response.error_code, node_id, "JoinGroup")
        return JoinAnswer(action.attempt, response)

    async def _give_up_join(self, attempt: int) -> None:
        await asyncio.sleep(LAST_WORDS)
        self._post(RequestFailed(attempt, KafkaTimeout("JoinGroup was not answered"), passing=True))

    async def _gather(self, action: GatherTopics) -> TopicsGathered:
        missing = [name for name in action.topics if name not in self._client.view.topics]
        if missing:
            with suppress(KafkaTimeout):
                await self._client.refresh(missing, timeout=min(GATHER_TIMEOUT, self._config.session_timeout / 3))
        return TopicsGathered(action.attempt, topic_racks(self._client.view, action.topics))

    async def _sync(self, action: SendSync) -> SyncAnswer:
        response, node_id = await self._link.send(
            lambda versions: action.request, purpose=Purpose.GROUP, timeout=self._client_config.request_timeout
        )
        self._learn(response.error_code, node_id, "SyncGroup")
        return SyncAnswer(action.attempt, response)

    async def _leave(self, action: SendLeave) -> LeaveAnswer:
        def build(versions: VersionTable) -> LeaveGroupRequest:
            if not versions.supports(LeaveGroupRequest, LEAVES_BY_LIST):
                return LeaveGroupRequest(group_id=self._config.group_id, member_id=action.member_id)
            leaver = LeaveGroupRequestMember(
                member_id=action.member_id, group_instance_id=action.instance_id, reason=action.reason
            )
            return LeaveGroupRequest(group_id=self._config.group_id, members=[leaver])

        try:
            async with asyncio.timeout(LAST_WORDS):
                # Not behind a JoinGroup that the coordinator may be keeping for minutes.
                await self._link.send(build, purpose=Purpose.OTHER, timeout=self._client_config.request_timeout)
        except TimeoutError:
            logger.warning("%r has left without an answer; its session ends by itself", self.member)
        return LeaveAnswer(action.attempt)

    def _learn(self, wire_code: int, node_id: int, api: str) -> None:
        code = ErrorCode.of(wire_code)
        self._link.learn([code], node_id)
        if code not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS):
            self._report(error_for(wire_code, f"{api} of group {self._config.group_id!r}"))

    def _report(self, error: KafkaError) -> None:
        level = logging.INFO if self._client.outages.failed(self._place, error) else logging.DEBUG
        logger.log(level, "%r: %s", self.member, error)
        self._on_error(error)

    # ---- heartbeats

    async def _beat(self) -> None:
        """Send heartbeats while the machine's state asks for them, and see whether the user still reads.

        A cooperative rebalance is often followed by another one: whoever has to give up partitions joins again at once,
        and those who are to get them hear of it by a heartbeat. So the first ones of a generation come soon, and then
        ever later; that spares the group half an interval and more without a reader for what moves.
        """
        interval = self._config.heartbeat_interval
        loop = asyncio.get_running_loop()
        backoff = self._client.retry_backoff(at_most=interval)
        soon = Backoff(SOON, interval, jitter=0.0)
        pause, blocked = interval, False
        while True:
            if not self._beating.is_set():
                await self._beating.wait()
                pause = interval
            if self._renewed.is_set():
                self._renewed.clear()
                soon.reset()
                pause = self._pause(soon)
            due = loop.time() + pause
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._renewed.wait()
                continue
            late = loop.time() - due
            if late > interval and not blocked:
                logger.warning(
                    "%r: the event loop was blocked for %.1f s, so that no heartbeat was sent; sessions end after %g s",
                    self.member,
                    late,
                    self._config.session_timeout,
                )
            blocked = late > interval
            if not self.member.beats:
                continue
            if self._reading.idle_for(loop.time()) > self._config.max_poll_interval:
                logger.warning("%r leaves until records are read again: max_poll_interval is over", self.member)
                self._post(PollOverdue())
                await asyncio.sleep(0)  # for the machine to move
                continue
            if await self._heartbeat():
                pause = self._pause(soon)
                backoff.reset()
            else:
                pause = backoff.next()

    def _pause(self, soon: Backoff) -> float:
        """Seconds until the next heartbeat."""
        return soon.next() if self.member.cooperative else self._config.heartbeat_interval

    async def _heartbeat(self) -> bool:
        """One heartbeat; whether it was answered by the coordinator."""
        identity = self.member.identity
        request = HeartbeatRequest(
            group_id=self._config.group_id,
            generation_id=identity.generation,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
        )
        timeout = min(
            self._client_config.request_timeout, max(self._config.heartbeat_interval, self._config.session_timeout / 3)
        )
        try:
            async with asyncio.timeout(self._config.session_timeout):
                response, node_id = await self._link.send(
                    lambda versions: request, purpose=Purpose.GROUP, timeout=timeout
                )
        except TimeoutError as error:
            self._report(error if isinstance(error, KafkaError) else KafkaTimeout("a heartbeat was not answered"))
            return False
        except KafkaError as error:
            self._report(error)
            if not is_passing(error):
                raise
            return False
        code = ErrorCode.of(response.error_code)
        self._learn(response.error_code, node_id, "Heartbeat")
        spell = self._client.outages.over(self._place) if code is ErrorCode.NONE else None
        if spell is not None:
            logger.info("%r: all is well again, after %s", self.member, spell)
        self._post(HeartbeatAnswer(identity, code))
        await asyncio.sleep(0)  # for the machine to move, so that no further heartbeat is sent under an old name
        return code is ErrorCode.NONE or not code.retriable

    # ---- the user's partitions

    async def _hand_over(self) -> None:
        """Give the user partitions and take them back, one thing after the other."""
        while True:
            action = await self._handovers.get()
            match action:
                case Assign():
                    await self._assign(action)
                case Revoke():
                    await self._revoke(action)
                case Lose():
                    await self._lose(action)
                case Fail():
                    raise action.error

    async def _assign(self, action: Assign) -> None:
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        wanted: set[TopicPartition] | None = None
        while wanted is None or wanted != set(found):
            # What has to go again already, the user need not hear of.
            wanted = set(action.added) - self._going
            with anyio.CancelScope() as self._locating:
                found = await self._locate(sorted(wanted))
            self._locating = None
        for partition, committed in found.items():
            self.offsets.begin(partition, committed)
        await self._reading.assigned(found, action.owned - self._going)

    async def _locate(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Where whoever had them left off; looked for as long as it takes."""
        while True:
            try:
                return await self.offsets.fetch(partitions)
            except KafkaTimeout as error:
                self._report(error)

    async def _revoke(self, action: Revoke) -> None:
        if not action.closing and not self._closing:
            await self._wait_for_user(action)
        await self._reading.finish(action.partitions, closing=action.closing or self._closing)
        if self._config.auto_commit:
            await self.offsets.commit_marked(action.partitions, timeout=self._time_to_commit(action))
        await self._reading.revoked(action.partitions)
        self.offsets.forget(action.partitions)
        self._going.difference_update(action.partitions)
        del self._let_go_by[action.number]
        self._post(LetGo(action.number))

    async def _wait_for_user(self, action: Revoke) -> None:
        """Until what was handed out is done with, so that a rebalance repeats nothing; but others are waiting.

        They have been since the machine said so, and not since the handover before this one has come to its end.
        """
        with anyio.CancelScope(deadline=self._let_go_by[action.number]) as self._waiting:
            await self._reading.wait_until_done(action.partitions)
        if self._waiting.cancelled_caught and not self._closing and self.member.state is MemberState.REVOKING:
            logger.warning(
                "%r lets go of partitions whose records are still being worked on: others wait since %.1f s",
                self.member,
                self._config.time_to_revoke,
            )
        self._waiting = None

    def _time_to_commit(self, action: Revoke) -> float:
        if action.closing or self._closing:
            return LAST_WORDS
        return min(self._client_config.api_timeout, self._config.time_to_rebalance / 2)

    async def _lose(self, action: Lose) -> None:
        await self._reading.lost(action.partitions)
        self._going.difference_update(action.partitions)
        self._post(LetGo(action.number))

    # ---- topics

    def _view_changed(self, view: ClusterView) -> None:
        for name in self._subscribed:
            topic = view.topics.get(name)
            if topic is not None and topic.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED and self._pattern is None:
                self._handovers.put_nowait(Fail(error_for(topic.error, f"group {self._config.group_id!r}, {name!r}")))
            if topic is not None and topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._matches_changed.set()
        if self.member.watched:
            counts = {name: len(racks) for name, racks in topic_racks(view, self.member.watched).items()}
            self._post(TopicsSeen(counts))

    async def _watch_pattern(self, pattern: re.Pattern[str]) -> None:
        """Subscribe to the topics that match, as they come and go; one that metadata misses is looked for at once."""
        known: frozenset[str] | None = None
        backoff = self._client.retry_backoff()
        pause = Backoff(
            self._client_config.retry_backoff,
            self._client_config.metadata_max_age,
            random=self._client.runtime.random,
        )
        while True:
            try:
                response = await self._client.send(MetadataRequest(topics=None, allow_auto_topic_creation=False))
            except KafkaError as error:
                if not is_passing(error):
                    raise
                self._report(error)
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            names = frozenset(
                topic.name
                for topic in response.topics
                if topic.name is not None
                and not topic.is_internal
                and not topic.error_code
                and pattern.fullmatch(topic.name)
            )
            if names != known:
                known = names
                self._subscribe(names)
            self._matches_changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._client_config.metadata_max_age):
                    await self._matches_changed.wait()
                await asyncio.sleep(pause.next())  # metadata may go on saying so for a while
                continue
            pause.reset()


def checked_strategies(given: object) -> tuple[AssignmentStrategy, ...]:
    """One or more, each of another name; those that come with the package may be given by it. ConfigurationError."""
    wrong = f"strategies={given!r}: instances of strategies, as in [RangeStrategy()], or names: {', '.join(BY_NAME)}"
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigurationError(wrong)
    strategies = tuple(BY_NAME[each]() if isinstance(each, str) and each in BY_NAME else each for each in given)
    if any(isinstance(each, type) or not isinstance(getattr(each, "name", None), str) for each in strategies):
        raise ConfigurationError(wrong)
    names = [strategy.name for strategy in strategies]
    if not names or len(set(names)) != len(names):
        raise ConfigurationError(f"strategies={names!r}: at least one, each of another name")
    return strategies


def topic_racks(view: ClusterView, names: Iterable[str]) -> TopicRacks:
    """Those of the topics that exist: for each of their partitions, the racks that hold a replica.

    A topic that is only away for a moment counts with what is remembered of it: groups must not rebalance for nothing.
    """
    racks = {node_id: node.rack for node_id, node in view.nodes.items()}
    found: dict[str, list[frozenset[str]]] = {}
    for name in names:
        topic = view.topics.get(name)
        if topic is None or not topic.partitions or not (topic.error is ErrorCode.NONE or topic.error.retriable):
            continue
        count = topic.partitions[-1].partition + 1
        held: list[frozenset[str]] = [frozenset()] * count
        for partition in topic.partitions:
            held[partition.partition] = frozenset(
                rack for node_id in partition.replicas if (rack := racks.get(node_id)) is not None
            )
        found[name] = held
    return found
