"""What a group has done with its partitions: marked offsets, and their way to the coordinator and back.

An offset here is always that of the *next* record to read. Marking says that everything before it is done with; it
costs nothing and only ever goes forward (``reset`` goes both ways). Committing sends what is marked, never what was
merely fetched or handed out. A commit is refused when the partitions have gone to somebody else; that is reported, per
partition, and is an error of nobody: whoever has them now reads from the last offset that was accepted.

Commits of one member go one after the other. Two at once could overtake each other on their retries, and the older one
would be the last word.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ..aio.retry import Backoff
from ..cluster.client import Client
from ..cluster.metadata import ClusterView
from ..config import ClientConfig, GroupConfig, check_timeout
from ..errors import CommitFailed, ErrorCode, IllegalStateError, KafkaError, KafkaTimeout, error_for
from ..net.connection import Purpose
from ..protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from ..protocol.schema import ZERO_UUID
from ..protocol.versions import VersionTable
from ..types import OffsetAndMetadata, TopicPartition
from .arguments import check_mark, checked_offsets, checked_partition, checked_partitions
from .link import Link, is_passing, may_pass
from .member import Identity

logger = logging.getLogger(__name__)

LAST_BY_NAME = 9
"""The last version of OffsetCommit and OffsetFetch that names topics; later ones have only their ids."""

MANY_GROUPS = 8
WAITS_FOR_TRANSACTIONS = 7

NOBODY = Identity("", -1, None)
"""As whom offsets are committed for a group that has no members."""

_OF_THE_MEMBER = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What became of a commit, partition by partition. True when nothing was refused."""

    committed: Mapping[TopicPartition, OffsetAndMetadata]
    refused: Mapping[TopicPartition, KafkaError]

    def __bool__(self) -> bool:
        return not self.refused

    def raise_for_refused(self) -> None:
        """Raise CommitFailed if any partition was refused."""
        if self.refused:
            raise CommitFailed(self.refused)


# ---- pure: requests and answers


def commit_request(
    group_id: str, identity: Identity, offsets: Mapping[TopicPartition, OffsetAndMetadata], view: ClusterView
) -> OffsetCommitRequest:
    """One request for all offsets; by name and by id, of which the version carries one."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for partition, offset in offsets.items():
        topic = topics.get(partition.topic)
        if topic is None:
            topic = topics[partition.topic] = OffsetCommitRequestTopic(
                name=partition.topic, topic_id=topic_id(view, partition.topic), partitions=[]
            )
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        topics=list(topics.values()),
    )


def read_commit(
    offsets: Collection[TopicPartition], response: OffsetCommitResponse, names: Mapping[bytes, str]
) -> dict[TopicPartition, ErrorCode]:
    """The verdict on each offset; one that the answer leaves out counts as a failure of the broker."""
    found = {
        TopicPartition(names.get(topic.topic_id, topic.name), each.partition_index): ErrorCode.of(each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }
    return {partition: found.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR) for partition in offsets}


def fetch_request(
    group_id: str, partitions: Iterable[TopicPartition], view: ClusterView, versions: VersionTable
) -> OffsetFetchRequest:
    """Ask for committed offsets, and for none that an open transaction may yet take back (KIP-447)."""
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    require_stable = versions.supports(OffsetFetchRequest, WAITS_FOR_TRANSACTIONS)
    if versions.supports(OffsetFetchRequest, MANY_GROUPS):
        wanted = [
            OffsetFetchRequestTopics(name=name, topic_id=topic_id(view, name), partition_indexes=numbers)
            for name, numbers in topics.items()
        ]
        return OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=wanted)], require_stable=require_stable
        )
    named = [OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()]
    return OffsetFetchRequest(group_id=group_id, topics=named, require_stable=require_stable)


@dataclass(slots=True)
class FetchAnswer:
    """What an OffsetFetch said: offsets, None where nothing was committed; errors; and an error for the whole."""

    found: dict[TopicPartition, OffsetAndMetadata | None] = field(default_factory=dict)
    errors: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    whole: ErrorCode = ErrorCode.NONE

    def add(self, topic: str, given: OffsetFetchResponsePartition | OffsetFetchResponsePartitions) -> None:
        partition = TopicPartition(topic, given.partition_index)
        code = ErrorCode.of(given.error_code)
        if code is not ErrorCode.NONE:
            self.errors[partition] = code
        elif given.committed_offset < 0:
            self.found[partition] = None
        else:
            epoch = given.committed_leader_epoch if given.committed_leader_epoch >= 0 else None
            self.found[partition] = OffsetAndMetadata(given.committed_offset, given.metadata or "", epoch)


def read_fetch(
    group_id: str, partitions: Iterable[TopicPartition], response: OffsetFetchResponse, names: Mapping[bytes, str]
) -> FetchAnswer:
    """What the answer says of each partition; one that it leaves out has nothing committed."""
    answer = FetchAnswer()
    for named in response.topics:
        for one in named.partitions:
            answer.add(named.name, one)
    answer.whole = ErrorCode.of(response.error_code)
    for group in response.groups:
        if group.group_id == group_id:
            answer.whole = ErrorCode.of(group.error_code)
            for topic in group.topics:
                for each in topic.partitions:
                    answer.add(names.get(topic.topic_id, topic.name), each)
    for partition in partitions:
        if partition not in answer.errors:
            answer.found.setdefault(partition, None)
    return answer


def topic_id(view: ClusterView, name: str) -> bytes:
    """The topic's id, or zeros where it has none or is not known."""
    topic = view.topics.get(name)
    return ZERO_UUID if topic is None else topic.topic_id


# ---- the manager


class Offsets:
    """The offsets of one member, or of a consumer that only commits for a group. Owner: the consumer.

    ``identity`` says as whom to commit, None while there is no membership; ``is_rebalancing`` whether that is about to
    change. ``collect`` is called before each commit of marked offsets, so that the reader can mark what it knows to be
    done. ``on_refused`` hears of refusals that concern the membership, ``on_error`` of everything that did not succeed.
    """

    def __init__(
        self,
        client: Client,
        config: GroupConfig,
        client_config: ClientConfig,
        *,
        identity: Callable[[], Identity | None] = lambda: NOBODY,
        is_rebalancing: Callable[[], bool] = lambda: False,
        collect: Callable[[], None] = lambda: None,
        on_refused: Callable[[Identity, ErrorCode], None] = lambda identity, code: None,
        on_error: Callable[[KafkaError], None] = lambda error: None,
    ) -> None:
        self._client = client
        self._config = config
        self._client_config = client_config
        self._identity = identity
        self._is_rebalancing = is_rebalancing
        self._collect = collect
        self._on_refused = on_refused
        self._on_error = on_error
        self._link = Link(client, config.group_id)
        self._marked: dict[TopicPartition, OffsetAndMetadata] = {}
        self._committed: dict[TopicPartition, OffsetAndMetadata | None] = {}
        self._backwards: set[TopicPartition] = set()
        self._one_at_a_time = asyncio.Lock()

    def __repr__(self) -> str:
        return (
            f"<Offsets group={self._config.group_id} owned={len(self._committed)} to_commit={len(self._to_commit())}>"
        )

    # ---- which partitions

    @property
    def owned(self) -> Collection[TopicPartition]:
        """The partitions whose offsets may be marked and committed."""
        return self._committed.keys()

    def begin(self, partition: TopicPartition, committed: OffsetAndMetadata | None) -> None:
        """The partition is ours; ``committed`` is where whoever had it before left off."""
        self.forget([partition])
        self._committed[partition] = committed

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """The partitions are not ours; what was marked of them and not committed is forgotten."""
        for partition in partitions:
            self._committed.pop(partition, None)
            self._marked.pop(partition, None)
            self._backwards.discard(partition)

    def last_committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """What is known to be committed of an owned partition, without asking."""
        return self._committed.get(partition)

    def last_marked(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """What was marked last of an owned partition, or was committed when it came; None if there is neither."""
        return self._marked.get(partition) or self._committed.get(partition)

    # ---- marking

    def mark(self, partition: TopicPartition, offset: int, metadata: str = "", leader_epoch: int | None = None) -> bool:
        """Everything before ``offset`` is done with; False if that is not news, or the partition is not ours."""
        check_mark(offset, metadata, leader_epoch)
        if type(partition) is not TopicPartition or partition not in self._committed:
            partition = checked_partition(partition)
        if partition not in self._committed:
            return False
        if partition not in self._backwards:
            known = self._marked.get(partition) or self._committed[partition]
            if known is not None and offset <= known.offset:
                return False
        self._backwards.discard(partition)
        self._marked[partition] = OffsetAndMetadata(offset, metadata, leader_epoch)
        return True

    def reset(
        self, partition: TopicPartition, offset: int, metadata: str = "", leader_epoch: int | None = None
    ) -> bool:
        """As ``mark``, but also backwards: what lies between is to be read again by whoever comes next."""
        check_mark(offset, metadata, leader_epoch)
        if type(partition) is not TopicPartition or partition not in self._committed:
            partition = checked_partition(partition)
        if partition not in self._committed:
            return False
        self._backwards.discard(partition)
        self._marked[partition] = OffsetAndMetadata(offset, metadata, leader_epoch)
        return True

    def may_go_back(self, partition: TopicPartition) -> None:
        """The user has moved the position: the next mark counts, wherever it is."""
        if partition in self._committed:
            self._backwards.add(partition)

    def _to_commit(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        wanted = self._marked if partitions is None else set(partitions)
        return {
            partition: offset
            for partition, offset in self._marked.items()
            if partition in wanted and self._committed.get(partition) != offset
        }

    # ---- committing

    async def run(self) -> None:
        """Commit what is marked, every ``auto_commit_interval``, for ever."""
        interval = self._config.auto_commit_interval
        while True:
            await asyncio.sleep(interval)
            self._collect()
            if self._to_commit():
                await self.commit(timeout=max(interval, self._client_config.request_timeout))

    async def commit_marked(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> CommitResult:
        """Commit what is marked and not yet committed, of these partitions or of all."""
        self._collect()
        wanted = None if partitions is None else list(partitions)
        return await self._commit(lambda: self._to_commit(wanted), timeout)

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, *, timeout: float | None = None
    ) -> CommitResult:
        """Commit these offsets, or all that are marked; ``timeout`` in seconds, ``api_timeout`` by default.

        Passing errors are tried again until then. Never raises what a broker says: it is in the result. A cancelled
        commit may have been applied.
        """
        if offsets is None:
            return await self.commit_marked(timeout=timeout)
        given = checked_offsets(offsets)
        before = {partition: self._marked.get(partition) for partition in given}
        result = await self._commit(lambda: given, timeout)
        for partition, offset in result.committed.items():
            # Else the ticker would undo a commit that goes back. What was marked meanwhile is newer than the commit.
            if partition in self._committed and self._marked.get(partition) is before[partition]:
                self._marked[partition] = offset
        return result

    async def _commit(
        self, choose: Callable[[], Mapping[TopicPartition, OffsetAndMetadata]], timeout: float | None
    ) -> CommitResult:
        check_timeout(timeout)
        limit = self._client_config.api_timeout if timeout is None else timeout
        attempt = _Attempt({})
        try:
            async with asyncio.timeout(limit) as scope, self._one_at_a_time:
                attempt = _Attempt(dict(choose()))
                backoff = self._client.retry_backoff()
                await _until_done(lambda: self._try_commit(attempt), backoff)
        except TimeoutError:
            if not scope.expired():
                raise
            if not attempt.offsets and not attempt.committed:
                attempt.offsets = dict(choose())  # the time went by behind another commit
            for partition in attempt.offsets:
                said = attempt.trouble.get(partition, "no answer")
                attempt.refused[partition] = KafkaTimeout(f"{partition} was not committed in {limit:g} s: {said}")
        result = CommitResult(attempt.committed, attempt.refused)
        self._log_outcome(result)
        if result.refused:
            self._on_error(CommitFailed(result.refused))
        return result

    def _log_outcome(self, result: CommitResult) -> None:
        outages, place = self._client.outages, f"commits of group {self._config.group_id}"
        if result.refused:
            error = CommitFailed(result.refused)
            level = logging.WARNING if outages.failed(place, error) else logging.DEBUG
            logger.log(level, "group %s: %s", self._config.group_id, error)
        elif result.committed and (spell := outages.over(place)) is not None:
            logger.warning("group %s commits again, after %s", self._config.group_id, spell)

    async def _try_commit(self, attempt: _Attempt) -> bool:
        """One request for what is left; whether to try again."""
        for partition in [each for each in attempt.offsets if each not in self._committed]:
            # The broker checks the member, not its partitions: only we can tell that another reads this one now.
            del attempt.offsets[partition]
            attempt.refused[partition] = IllegalStateError(f"{partition} is not assigned to this consumer any longer")
        if not attempt.offsets:
            return False
        identity, view, sent = self._identity(), self._client.view, dict(attempt.offsets)
        if identity is None:
            # Sent as nobody, it would be taken by a coordinator whose group has just lost its last member: us.
            attempt.fail(IllegalStateError("this consumer is not a member of its group at the moment"), give_up=True)
            return False
        by_name = any(topic_id(view, partition.topic) == ZERO_UUID for partition in sent)
        try:
            response, node_id = await self._link.send(
                lambda versions: commit_request(self._config.group_id, identity, sent, view),
                purpose=Purpose.OTHER,  # a parked JoinGroup must not hold it up
                timeout=self._client_config.request_timeout,
                at_most=LAST_BY_NAME if by_name or attempt.by_name else None,
            )
        except KafkaError as error:
            attempt.fail(error, give_up=not is_passing(error))
            return bool(attempt.offsets)
        codes = read_commit(sent, response, view.topic_names)
        self._link.learn(codes.values(), node_id)
        for partition, code in codes.items():
            self._settle(attempt, identity, partition, sent[partition], code)
        return bool(attempt.offsets)

    def _settle(
        self,
        attempt: _Attempt,
        identity: Identity,
        partition: TopicPartition,
        offset: OffsetAndMetadata,
        code: ErrorCode,
    ) -> None:
        attempt.trouble[partition] = code.name
        if code is ErrorCode.NONE:
            del attempt.offsets[partition]
            attempt.committed[partition] = offset
            if partition in self._committed:
                self._committed[partition] = offset
        elif code in _OF_THE_MEMBER and (identity != self._identity() or self._is_rebalancing()):
            return  # said of a generation that is over; under the next one it may still be ours
        elif code is ErrorCode.UNKNOWN_TOPIC_ID and not attempt.by_name:
            attempt.by_name = True
        elif code is ErrorCode.REBALANCE_IN_PROGRESS or (code.retriable and not _is_about_topic(code)):
            return
        else:
            del attempt.offsets[partition]
            attempt.refused[partition] = error_for(code, f"committing offset {offset.offset} of {partition}")
            if code in _OF_THE_MEMBER:
                self._on_refused(identity, code)

    # ---- looking up

    async def fetch(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, None where it has nothing; waits for open transactions to end.

        Passing errors are tried again for ``timeout`` seconds (``api_timeout`` by default), then KafkaTimeout is
        raised; AuthorizationError and others that do not pass, at once.
        """
        check_timeout(timeout)
        wanted = checked_partitions(partitions)
        limit = self._client_config.api_timeout if timeout is None else timeout
        lookup = _Lookup(dict.fromkeys(wanted))
        backoff = self._client.retry_backoff()
        try:
            async with asyncio.timeout(limit) as scope:
                await _until_done(lambda: self._try_fetch(lookup), backoff)
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise KafkaTimeout(
                f"committed offsets of group {self._config.group_id!r} were not found within {limit:g} s; "
                f"the last answer was: {lookup.trouble or 'none'}"
            ) from error
        return lookup.found

    async def _try_fetch(self, lookup: _Lookup) -> bool:
        """One request for what is missing; whether to try again."""
        if not lookup.missing:
            return False
        view, wanted = self._client.view, list(lookup.missing)
        by_name = any(topic_id(view, partition.topic) == ZERO_UUID for partition in wanted)
        try:
            response, node_id = await self._link.send(
                lambda versions: fetch_request(self._config.group_id, wanted, view, versions),
                purpose=Purpose.OTHER,
                timeout=self._client_config.request_timeout,
                at_most=LAST_BY_NAME if by_name or lookup.by_name else None,
            )
        except KafkaError as error:
            if not is_passing(error):
                raise
            lookup.trouble = str(error)
            self._on_error(error)
            return True
        answer = read_fetch(self._config.group_id, wanted, response, view.topic_names)
        self._link.learn([answer.whole, *answer.errors.values()], node_id)
        if answer.whole is not ErrorCode.NONE:
            lookup.trouble = answer.whole.name
            if not may_pass(answer.whole):
                raise error_for(answer.whole, f"looking up offsets of group {self._config.group_id!r}")
            return True
        for partition, found in answer.found.items():
            lookup.found[partition] = found
            lookup.missing.pop(partition, None)
        for partition, code in answer.errors.items():
            lookup.trouble = f"{partition}: {code.name}"
            if code is ErrorCode.UNKNOWN_TOPIC_ID:
                lookup.by_name = True
            elif code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # it has just come up, or is just going away
                lookup.found[partition] = None
                lookup.missing.pop(partition, None)
            elif not may_pass(code):
                raise error_for(code, f"looking up the committed offset of {partition}")
        return bool(lookup.missing)


@dataclass(slots=True)
class _Attempt:
    """A commit under way: what is still to be sent, and what has become of the rest."""

    offsets: dict[TopicPartition, OffsetAndMetadata]
    committed: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    refused: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    trouble: dict[TopicPartition, str] = field(default_factory=dict)
    by_name: bool = False

    def fail(self, error: KafkaError, *, give_up: bool) -> None:
        """The request itself failed."""
        self.trouble.update(dict.fromkeys(self.offsets, str(error)))
        if give_up:
            self.refused.update(dict.fromkeys(self.offsets, error))
            self.offsets.clear()


@dataclass(slots=True)
class _Lookup:
    """A search for committed offsets under way."""

    missing: dict[TopicPartition, None]
    found: dict[TopicPartition, OffsetAndMetadata | None] = field(default_factory=dict)
    trouble: str = ""
    by_name: bool = False


async def _until_done(attempt: Callable[[], Awaitable[bool]], backoff: Backoff) -> None:
    while True:
        if not await attempt():
            return
        await asyncio.sleep(backoff.next())


def _is_about_topic(code: ErrorCode) -> bool:
    return code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
