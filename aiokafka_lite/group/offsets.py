"""The offsets of a group: marked by the user, committed to the coordinator, and fetched from it.

Rules of this file:

Rule 1: A committed offset is the offset of the *next* record to read.
Rule 2: A mark says that all records before it are processed. A mark only moves forward; ``reset`` moves it in both
  directions. An offset of a record that was only fetched or returned is never committed.
Rule 3: Only assigned partitions can be marked and committed. The broker checks the member and not its partitions, so
  only this client can detect that another member reads a partition now.
Rule 4: Commits of one member are sent one at a time. Two concurrent commits could overtake each other when they are
  retried, and the older offset would be stored last.
Rule 5: If a mark can no longer be committed, because its partition was revoked or lost, the user's next commit of all
  marks reports it as refused. Automatic commits do not report it.
Rule 6: A refused commit is a result and not an exception, because the partition's new owner continues at the last
  accepted offset.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..aio.deadline import deadline
from ..aio.retry import Backoff
from ..arguments import check_mark, check_timeout
from ..arguments import offsets as checked_offsets
from ..arguments import partition as checked_partition
from ..arguments import partitions as checked_partitions
from ..cluster.client import Client
from ..cluster.coordinator_channel import CoordinatorChannel
from ..config import ClientConfig, GroupConfig
from ..errors import CommitFailed, ErrorCode, IllegalStateError, KafkaError, KafkaTimeout, error_for
from ..net.connection import Purpose
from ..protocol.messages import OffsetCommitRequest, OffsetFetchRequest
from ..protocol.schema import ZERO_UUID
from ..types import OffsetAndMetadata, TopicPartition
from .counters import RequestCounters
from .events import NO_MEMBER, Identity
from .offset_requests import FetchAnswer, commit_request, fetch_request, read_commit, read_fetch, topic_id
from .requests import is_retriable_by_member

logger = logging.getLogger(__name__)

_MEMBERSHIP_ERRORS = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
)
_FETCH_MEMBERSHIP_ERRORS = (*_MEMBERSHIP_ERRORS, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
_EPOCH_ERRORS = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)
_TOPIC_ERRORS = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The result of a commit for each partition. True if no partition was refused."""

    committed: Mapping[TopicPartition, OffsetAndMetadata]
    refused: Mapping[TopicPartition, KafkaError]

    def __bool__(self) -> bool:
        return not self.refused

    def raise_for_refused(self) -> None:
        """Raise CommitFailed if any partition was refused."""
        if self.refused:
            raise CommitFailed(self.refused)


class Offsets:
    """The offsets of one member, or of a consumer that commits for a group without being a member. Owner: the consumer.

    ``identity`` returns the identity to commit under, None while there is no membership; ``fetching_identity`` the
    identity to fetch under, None if fetches name no member. ``is_rebalancing`` returns whether that identity is about
    to change, ``is_revoking`` whether the reader releases partitions before that. ``collect`` is called before marked
    offsets are committed, so that the reader can mark processed records; ``on_mark`` after each mark and each commit of
    the user; ``on_commit`` with committed offsets. ``on_refused`` is called with errors about the membership,
    ``on_error`` with every error.
    """

    def __init__(
        self,
        client: Client,
        config: GroupConfig,
        client_config: ClientConfig,
        *,
        identity: Callable[[], Identity | None] = lambda: NO_MEMBER,
        fetching_identity: Callable[[], Identity | None] = lambda: None,
        is_rebalancing: Callable[[], bool] = lambda: False,
        is_revoking: Callable[[], bool] = lambda: False,
        collect: Callable[[], None] = lambda: None,
        on_mark: Callable[[TopicPartition, int], None] = lambda partition, offset: None,
        on_commit: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None] = lambda offsets: None,
        on_refused: Callable[[Identity, ErrorCode], None] = lambda identity, code: None,
        on_error: Callable[[KafkaError], None] = lambda error: None,
    ) -> None:
        self._client = client
        self._config = config
        self._client_config = client_config
        self._identity = identity
        self._fetching_identity = fetching_identity
        self._is_rebalancing = is_rebalancing
        self._is_revoking = is_revoking
        self._collect = collect
        self._on_mark = on_mark
        self._on_commit = on_commit
        self._on_refused = on_refused
        self._on_error = on_error
        self._channel = CoordinatorChannel(client, config.group_id)
        self.commits = RequestCounters()
        """The requests that commit offsets, each attempt by itself."""
        self._marked: dict[TopicPartition, OffsetAndMetadata] = {}
        self._committed: dict[TopicPartition, OffsetAndMetadata | None] = {}  # the keys are the assigned partitions
        # Partitions whose next mark counts even if it goes backwards, because the user moved the position.
        self.moved: set[TopicPartition] = set()
        self._moved_back: set[TopicPartition] = set()  # partitions with a mark that could go backwards
        self._refused: dict[TopicPartition, int] = {}  # rule 5: the marked offsets
        self._reported: dict[TopicPartition, OffsetAndMetadata | None] = {}  # marks whose refusal the user has got
        self._attempt = _CommitAttempt({})  # the commit that runs, or ran last (rule 4)
        self._one_at_a_time = asyncio.Lock()  # rule 4

    def __repr__(self) -> str:
        return (
            f"<Offsets group={self._config.group_id} owned={len(self._committed)} to_commit={len(self._to_commit())}>"
        )

    # Assigned partitions.

    @property
    def owned(self) -> Collection[TopicPartition]:
        """The partitions whose offsets can be marked and committed."""
        return self._committed.keys()

    def begin(self, partition: TopicPartition, committed: OffsetAndMetadata | None) -> None:
        """Add an assigned partition. ``committed`` is the group's committed offset."""
        self.forget([partition])
        self._committed[partition] = committed

    def located(self, partition: TopicPartition, found: OffsetAndMetadata | None) -> OffsetAndMetadata | None:
        """Set and return the committed offset of an assigned partition: ``found``, unless a commit came first."""
        known = self._committed[partition] = self._committed[partition] or found
        marked = self._marked.get(partition)
        if known and marked and marked.offset <= known.offset and partition not in self._moved_back:
            del self._marked[partition]  # rule 2: it was made before the committed offset was known
        return known

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions that are no longer assigned. Marks that are not committed are refused (rule 5)."""
        for partition in partitions:
            marked, committed = self._marked.pop(partition, None), self._committed.pop(partition, None)
            if marked is not None and marked != committed and marked is not self._reported.pop(partition, None):
                self.refuse(partition, marked.offset)
            self._attempt.dropped.add(partition)
            self.moved.discard(partition)
            self._moved_back.discard(partition)

    def refuse(self, partition: TopicPartition, offset: int) -> bool:
        """Record an offset that was marked too late: the user's next commit has it in ``refused``. Returns False."""
        self._refused[partition] = offset
        return False

    def drop_refused(self) -> None:
        """Drop the present refused marks, because their session has ended. No later commit reports them."""
        self._refused.clear()

    def last_marked(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The last mark of an assigned partition, else its committed offset, else None."""
        return self._marked.get(partition) or self._committed.get(partition)

    # Marking.

    def mark(self, partition: TopicPartition, offset: int, metadata: str = "", leader_epoch: int | None = None) -> bool:
        """Mark all records before ``offset``. Returns False if the mark is later, or if the partition is not assigned.

        The next ``commit()`` refuses a partition that is not assigned. Raises TypeError or ValueError for a wrong
        argument.
        """
        partition = self._checked(partition, offset, metadata, leader_epoch)
        if partition not in self._committed:
            return self.refuse(partition, offset)
        if partition in self.moved:
            self.moved.remove(partition)
            self._moved_back.add(partition)
        else:
            known = self._marked.get(partition) or self._committed[partition]
            if known is not None and offset <= known.offset:
                self._on_mark(partition, offset)  # there is nothing to commit, but the records are processed
                return False
        self._marked[partition] = OffsetAndMetadata(offset, metadata, leader_epoch)
        self._on_mark(partition, offset)
        return True

    def reset(
        self, partition: TopicPartition, offset: int, metadata: str = "", leader_epoch: int | None = None
    ) -> bool:
        """Set the mark. Unlike ``mark``, it may move back: the records from ``offset`` on will be read again."""
        self.may_go_back(self._checked(partition, offset, metadata, leader_epoch))
        return self.mark(partition, offset, metadata, leader_epoch)

    def may_go_back(self, partition: TopicPartition) -> None:
        """Let the next mark count even if it goes backwards, because the user moved the position."""
        if partition in self._committed:
            self.moved.add(partition)

    def _checked(
        self, partition: TopicPartition, offset: int, metadata: str, leader_epoch: int | None
    ) -> TopicPartition:
        check_mark(offset, metadata, leader_epoch)
        # Hot, runs for each record: an assigned partition needs no further check.
        if type(partition) is TopicPartition and partition in self._committed:
            return partition
        return checked_partition(partition)

    def _to_commit(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        wanted = self._marked if partitions is None else set(partitions)
        return {
            partition: offset
            for partition, offset in self._marked.items()
            if partition in wanted and self._committed.get(partition) != offset
        }

    # Committing.

    async def run(self) -> None:
        """Commit the marked offsets every ``auto_commit_interval`` seconds, until cancelled."""
        interval = self._config.auto_commit_interval
        while True:
            await asyncio.sleep(interval)
            self._collect()
            if self._to_commit():
                await self.commit_marked(timeout=max(interval, self._client_config.request_timeout))

    async def commit_marked(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> CommitResult:
        """Commit the marks of these partitions, or of all, that are not committed yet. As ``commit`` otherwise."""
        self._collect()
        wanted = None if partitions is None else list(partitions)
        before = self._to_commit(wanted)

        def dropped() -> dict[TopicPartition, KafkaError]:
            """Marks whose partitions were lost during the commit, which may have waited for an earlier commit."""
            return {each: _too_late(each, at.offset) for each, at in before.items() if each not in self._marked}

        return await self._commit(lambda: self._to_commit(wanted), timeout, dropped)

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None, *, timeout: float | None = None
    ) -> CommitResult:
        """Commit these offsets, or all marks, within ``timeout`` seconds (``api_timeout`` by default).

        Retriable errors are retried. A broker's errors are in the result and not raised. A cancelled commit may have
        been applied. Raises TypeError or ValueError for a wrong argument.
        """
        if offsets is None:
            result = await self.commit_marked(timeout=timeout)
            self._reported.update((each, self._marked.get(each)) for each in result.refused)
            late = {partition: _too_late(partition, offset) for partition, offset in self._refused.items()}
            self._refused.clear()
            return CommitResult(result.committed, {**late, **result.refused})
        given = checked_offsets(offsets)
        before = {partition: self._marked.get(partition) for partition in given}
        result = await self._commit(lambda: given, timeout)
        for partition in result.committed:
            # Otherwise the next automatic commit would undo a commit that goes back. A mark made meanwhile is newer.
            if partition in self._committed and self._marked.get(partition) is before[partition]:
                self._marked[partition] = given[partition]
                self._on_mark(partition, given[partition].offset)
        return result

    async def _commit(
        self,
        choose: Callable[[], Mapping[TopicPartition, OffsetAndMetadata]],
        timeout: float | None,
        dropped: Callable[[], dict[TopicPartition, KafkaError]] = dict,
    ) -> CommitResult:
        check_timeout(timeout)
        limit = self._client_config.api_timeout if timeout is None else timeout
        attempt = _CommitAttempt({})
        try:
            with deadline(limit, lambda: f"within {limit:g} s"):
                async with self._one_at_a_time:
                    self._attempt = attempt = _CommitAttempt(dict(choose()))
                    await _repeat(lambda: self._try_commit(attempt), self._client.retry_backoff())
        except KafkaTimeout as timed_out:
            if not attempt.offsets and not attempt.committed:
                attempt.offsets = dict(choose())  # the commit waited for another one during its whole timeout
            for partition in attempt.offsets:
                cause = attempt.last_error.get(partition, "no answer")
                attempt.refused[partition] = KafkaTimeout(f"{partition} was not committed {timed_out}: {cause}")
        late = {each: error for each, error in dropped().items() if each not in attempt.committed}
        result = CommitResult(attempt.committed, {**late, **attempt.refused})
        self._report(result)
        if result.committed:
            self._on_commit(result.committed)
        return result

    def _report(self, result: CommitResult) -> None:
        place = f"commits of group {self._config.group_id}"
        if result.refused:
            error = CommitFailed(result.refused)
            self._client.outages.report(logger, place, error, "group %s: %s", self._config.group_id, error)
            self._on_error(error)
        elif result.committed:
            self._client.outages.recovered(logger, place, "group %s: commits succeeded", self._config.group_id)

    async def _try_commit(self, attempt: _CommitAttempt) -> bool:
        """Send one request for the remaining offsets. True if some are to be retried."""
        for partition in [each for each in attempt.offsets if each not in self._committed or each in attempt.dropped]:
            late = _too_late(partition, attempt.offsets.pop(partition).offset)  # rule 3
            attempt.refused[partition] = late
        if not attempt.offsets:
            return False
        identity, view, sent = self._identity(), self._client.view, dict(attempt.offsets)
        began = asyncio.get_running_loop().time()
        if identity is None:
            # If this member was the last one and has just left the group, the coordinator would accept a commit without
            # a member id.
            attempt.fail(IllegalStateError("this consumer is not a member of its group now"), is_final=True)
            return False
        by_name = attempt.by_name or any(topic_id(view, partition.topic) == ZERO_UUID for partition in sent)
        try:
            response, node_id = await self._channel.send(
                lambda versions: commit_request(self._config.group_id, identity, sent, view, attempt.without_epoch),
                purpose=Purpose.OTHER,  # a waiting JoinGroup must not delay it
                timeout=self._client_config.request_timeout,
                at_most=OffsetCommitRequest.TOPIC_IDS.before if by_name else None,
            )
        except KafkaError as error:
            self.commits.failures += 1
            attempt.fail(error, is_final=not is_retriable_by_member(error))
            return bool(attempt.offsets)
        codes = read_commit(sent, response, view.topic_names)
        if any(codes.values()):
            self.commits.failures += 1
        else:
            self.commits.succeeded(began, asyncio.get_running_loop().time())
        self._channel.record(codes.values(), node_id)
        for partition, code in codes.items():
            self._settle(attempt, identity, partition, code)
        return bool(attempt.offsets)

    def _settle(self, attempt: _CommitAttempt, identity: Identity, partition: TopicPartition, code: ErrorCode) -> None:
        """Classify the answer for one partition: committed, refused, or left in ``attempt.offsets`` for a retry."""
        offset, without_epoch = attempt.offsets[partition], partition in attempt.without_epoch
        attempt.last_error[partition] = code.name
        if code is ErrorCode.NONE:
            del attempt.offsets[partition]
            attempt.committed[partition] = replace(offset, leader_epoch=None) if without_epoch else offset
            self._record(partition, offset)
        elif code in _MEMBERSHIP_ERRORS and (identity != self._identity() or self._is_rebalancing()):
            return  # the error concerns a generation that is over; in the next one the partition may still be assigned
        elif code is ErrorCode.STALE_MEMBER_EPOCH and identity.member_id:
            # An exception to is_retriable, as in Java's client, because the member has, or is about to get, a newer
            # epoch.
            self._on_refused(identity, code)
        elif code is ErrorCode.UNKNOWN_TOPIC_ID and not attempt.by_name:
            attempt.by_name = True
        elif code is ErrorCode.REBALANCE_IN_PROGRESS and not self._is_revoking():
            # A member that revokes joins again after its last commit, so it must not wait for the end of the rebalance.
            # Kafka takes commits until then; librdkafka's mock cluster refuses them.
            return
        elif code in _EPOCH_ERRORS and offset.leader_epoch is not None and not without_epoch:
            # Kafka stores the epoch without a check. librdkafka's mock cluster refuses that of an earlier leader.
            attempt.without_epoch.add(partition)
        elif code.retriable and code not in _TOPIC_ERRORS and code not in _EPOCH_ERRORS:
            # An exception to is_retriable, as in Java's client: a commit for a topic that does not exist is refused at
            # once. So is a commit that is refused even without an epoch.
            return
        else:
            del attempt.offsets[partition]
            attempt.refused[partition] = error_for(code, f"committing offset {offset.offset} of {partition}")
            if code in _MEMBERSHIP_ERRORS:
                self._on_refused(identity, code)

    def _record(self, partition: TopicPartition, offset: OffsetAndMetadata) -> None:
        """Record that the broker has stored an offset."""
        if self._refused.get(partition, offset.offset + 1) <= offset.offset:
            del self._refused[partition]  # the partition was assigned again, and is committed by now
        if partition in self._committed:
            self._committed[partition] = offset

    # Fetching.

    async def fetch(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offsets of the group, None for a partition without one. Waits for open transactions to end.

        Retriable errors are retried for ``timeout`` seconds (``api_timeout`` by default), then KafkaTimeout is raised.
        Raises AuthorizationError and other errors that are not retriable at once, TypeError or ValueError for a wrong
        argument.
        """
        check_timeout(timeout)
        lookup = _Lookup(dict.fromkeys(checked_partitions(partitions)))
        limit = self._client_config.api_timeout if timeout is None else timeout
        with deadline(limit, lambda: lookup.describe(self._config.group_id, limit)):
            await _repeat(lambda: self._try_fetch(lookup), self._client.retry_backoff())
        return lookup.found

    async def _try_fetch(self, lookup: _Lookup) -> bool:
        """Send one request for the missing partitions. True if some are to be retried."""
        if not lookup.missing:
            return False
        view, wanted, member = self._client.view, list(lookup.missing), self._fetching_identity()
        by_name = lookup.by_name or any(topic_id(view, partition.topic) == ZERO_UUID for partition in wanted)
        try:
            response, node_id = await self._channel.send(
                lambda versions: fetch_request(self._config.group_id, wanted, view, versions, member),
                purpose=Purpose.OTHER,
                timeout=self._client_config.request_timeout,
                at_most=OffsetFetchRequest.TOPIC_IDS.before if by_name else None,
            )
        except KafkaError as error:
            if not is_retriable_by_member(error):
                raise
            lookup.last_error = str(error)
            self._on_error(error)
            return True
        answer = read_fetch(self._config.group_id, wanted, response, view.topic_names)
        self._channel.record([answer.whole, *answer.errors.values()], node_id)
        if answer.whole is ErrorCode.GROUP_ID_NOT_FOUND and member is None:
            lookup.found.update(lookup.missing)  # Kafka answers NONE without offsets; franz-go's kfake has this code
            return False
        if answer.whole is not ErrorCode.NONE:
            lookup.last_error = answer.whole.name
            if member is not None and answer.whole in _FETCH_MEMBERSHIP_ERRORS:
                self._on_refused(member, answer.whole)  # the member gets another epoch, or loses its partitions
                return True
            refused = error_for(answer.whole, f"fetching committed offsets of group {self._config.group_id!r}")
            if not is_retriable_by_member(refused):
                raise refused
            return True
        lookup.apply(answer)
        return bool(lookup.missing)


def _too_late(partition: TopicPartition, offset: int) -> IllegalStateError:
    return IllegalStateError(
        f"offset {offset} was not committed: {partition} is not assigned to this consumer any longer"
    )


@dataclass(slots=True)
class _CommitAttempt:
    """A commit in progress: the offsets that remain to be sent, and the results so far."""

    offsets: dict[TopicPartition, OffsetAndMetadata]
    committed: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    refused: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    last_error: dict[TopicPartition, str] = field(default_factory=dict)
    by_name: bool = False  # the coordinator does not know a topic id
    without_epoch: set[TopicPartition] = field(default_factory=set)  # the coordinator refused their leader epochs
    dropped: set[TopicPartition] = field(default_factory=set)  # partitions lost since then; they may be assigned again

    def fail(self, error: KafkaError, *, is_final: bool) -> None:
        """Record the error of a request that failed as a whole."""
        self.last_error.update(dict.fromkeys(self.offsets, str(error)))
        if is_final:
            self.refused.update(dict.fromkeys(self.offsets, error))
            self.offsets.clear()


@dataclass(slots=True)
class _Lookup:
    """A fetch of committed offsets in progress."""

    missing: dict[TopicPartition, None]
    found: dict[TopicPartition, OffsetAndMetadata | None] = field(default_factory=dict)
    last_error: str = ""
    by_name: bool = False  # the coordinator does not know a topic id

    def describe(self, group_id: str, limit: float) -> str:
        """The text of the error that no offsets were found within ``limit`` seconds."""
        return (
            f"the committed offsets of group {group_id!r} were not found within {limit:g} s; "
            f"the last error was: {self.last_error or 'no answer'}"
        )

    def apply(self, answer: FetchAnswer) -> None:
        """Store the offsets in the answer. Raises the error of a partition if it is not retriable."""
        for partition, found in answer.found.items():
            self._settle(partition, found)
        for partition, code in answer.errors.items():
            self.last_error = f"{partition}: {code.name}"
            if code is ErrorCode.UNKNOWN_TOPIC_ID:
                self.by_name = True
            elif code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # the topic was just created or deleted
                self._settle(partition, None)
            elif not is_retriable_by_member(refused := error_for(code, f"fetching the offset of {partition}")):
                raise refused
        if self.missing and not answer.errors:
            self.last_error = f"the coordinator did not answer for {', '.join(map(str, list(self.missing)[:3]))}"

    def _settle(self, partition: TopicPartition, found: OffsetAndMetadata | None) -> None:
        self.found[partition] = found
        self.missing.pop(partition, None)


async def _repeat(attempt: Callable[[], Awaitable[bool]], backoff: Backoff) -> None:
    """Repeat with backoff while ``attempt`` returns True."""
    while await attempt():  # noqa: ASYNC110 - a retry, not polling
        await asyncio.sleep(backoff.next())
