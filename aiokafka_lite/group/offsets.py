"""The offsets of a group: marked by the user, committed to the coordinator, and fetched from it.

Rules of this file:

Rule 1: A committed offset is the offset of the *next* record to read.
Rule 2: A mark says that all records before it are processed. A mark only moves forward; ``reset`` moves it in both
  directions. An offset of a record that was only fetched or returned is never committed.
Rule 3: Only assigned partitions can be marked and committed. The broker checks the member and not its partitions, so
  only this client can detect that another member reads a partition now.
Rule 4: Commits of one member are sent one at a time. Two concurrent commits could overtake each other when they are
  retried, and the older offset would be stored last.
Rule 5: A mark cannot be committed any more if its partition was revoked or lost. The user's next commit of all marks
  reports it as refused. Automatic commits do not report it.
Rule 6: A refused commit is a result and not an exception, because the partition's new owner continues at the last
  accepted offset.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from ..aio.deadline import deadline
from ..aio.retry import is_retriable_in_failover
from ..arguments import check_mark, check_timeout
from ..arguments import offsets as checked_offsets
from ..arguments import partition as checked_partition
from ..cluster.client import Client
from ..cluster.coordinator_channel import CoordinatorChannel
from ..errors import CommitFailed, ErrorCode, IllegalStateError, KafkaError, KafkaTimeout, ProtocolError, error_for
from ..net.connection import Purpose
from ..net.traffic import RequestCounters
from ..protocol.messages import OffsetCommitRequest
from ..protocol.schema import ZERO_UUID
from ..settings.group import GroupConfig
from ..types import OffsetAndMetadata, TopicPartition
from .commit_attempt import MEMBERSHIP_ERRORS, CommitAttempt, CommitOutcome, classify_commit
from .committer import Committer
from .events import NO_MEMBER, Identity
from .finished_offsets import is_annotation
from .offset_lookups import OffsetLookups, repeat_attempts
from .offset_requests import commit_request, read_commit, topic_id
from .reading import Marking

logger = logging.getLogger(__name__)

_ALONE = (
    "most likely another consumer subscribes to topics with this group_id; use another group_id for assign(), or stop "
    "those consumers"
)


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

    ``on_refused`` is called with errors about the membership, ``on_error`` with every error.
    """

    def __init__(
        self,
        client: Client,
        config: GroupConfig,
        marking: Marking,
        *,
        committer: Committer | None = None,
        on_refused: Callable[[Identity, ErrorCode], None] = lambda identity, code: None,
        on_error: Callable[[KafkaError], None] = lambda error: None,
    ) -> None:
        self._client = client
        self._service = client.service
        self._config = config
        self._marking = marking
        self._committer = Committer() if committer is None else committer
        self._on_refused = on_refused
        self._on_error = on_error
        self._channel = CoordinatorChannel(client, config.group_id)
        self.lookups: OffsetLookups = OffsetLookups(
            client, self._channel, config.group_id, self._committer, on_refused, on_error
        )
        self.commits: RequestCounters = RequestCounters()
        """The requests that commit offsets, each attempt by itself."""
        self.annotates: bool = True
        """Whether the broker takes the texts of ``finished_offsets``, as far as is known."""
        self._marked: dict[TopicPartition, OffsetAndMetadata] = {}
        self._committed: dict[TopicPartition, OffsetAndMetadata | None] = {}  # the keys are the assigned partitions
        self._initial: dict[TopicPartition, OffsetAndMetadata] = {}  # where reading begins; see ``begin_at``
        # Partitions whose next mark counts even if it goes backwards, because the user moved the position.
        self.moved: set[TopicPartition] = set()
        self._moved_back: set[TopicPartition] = set()  # partitions with a mark that could go backwards
        self._refused: dict[TopicPartition, int] = {}  # rule 5: the marked offsets
        self._reported: dict[TopicPartition, OffsetAndMetadata | None] = {}  # marks whose refusal the user has got
        self._attempt = CommitAttempt({})  # the commit that runs, or ran last (rule 4)
        self._one_at_a_time = asyncio.Lock()  # rule 4

    def __repr__(self) -> str:
        return (
            f"<Offsets group={self._config.group_id} owned={len(self._committed)} to_commit={len(self._to_commit())}>"
        )

    @property
    def auto_commit(self) -> bool:
        """Whether marked offsets are committed on a timer, before partitions are revoked, and on close."""
        return self._config.auto_commit

    # Assigned partitions.

    @property
    def owned(self) -> Collection[TopicPartition]:
        """The partitions whose offsets can be marked and committed."""
        return self._committed.keys()

    def begin(self, partition: TopicPartition, committed: OffsetAndMetadata | None) -> None:
        """Add an assigned partition. ``committed`` is the group's committed offset."""
        self.forget([partition])
        self._committed[partition] = committed

    def located(self, partition: TopicPartition, offset: OffsetAndMetadata | None) -> OffsetAndMetadata | None:
        """Set and return the committed offset of an assigned partition: ``offset``, unless a commit came first."""
        committed = self._committed[partition] = self._committed[partition] or offset
        marked = self._marked.get(partition)
        if committed and marked and marked.offset <= committed.offset and partition not in self._moved_back:
            del self._marked[partition]  # rule 2: it was made before the committed offset was known
        return committed

    def begin_at(self, partition: TopicPartition, offset: int) -> None:
        """Let automatic commits include the offset at which reading begins, until a record is marked.

        Call it for an assigned partition without a committed offset, whose first offset depends on the time. Otherwise
        another member that gets the partition would look up a later offset, and skip the records in between.
        """
        if self.auto_commit and partition in self._committed and self._committed[partition] is None:
            self._initial[partition] = OffsetAndMetadata(offset)

    def leave_to_transactions(self) -> None:
        """Undo ``begin_at``, because transactions may commit the offsets from now on.

        Their commits are not known here. An automatic commit of the beginning would undo them, and records that are
        processed exactly once would be read again.
        """
        for partition, offset in self._initial.items():
            if self._attempt.offsets.get(partition) is offset:
                self._attempt.dropped.add(partition)  # not to be sent again
        self._initial.clear()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions that are no longer assigned. Marks that are not committed are refused (rule 5)."""
        for partition in partitions:
            marked, committed = self._marked.pop(partition, None), self._committed.pop(partition, None)
            # The user's last commit may have reported this mark already. It is reported once (rule 5).
            if marked is not None and marked != committed and marked is not self._reported.pop(partition, None):
                self.refuse(partition, marked.offset)
            # A commit in progress must not send this offset later, even if the partition is assigned again (rule 3).
            self._attempt.dropped.add(partition)
            self._initial.pop(partition, None)
            self.moved.discard(partition)
            self._moved_back.discard(partition)

    def refuse(self, partition: TopicPartition, offset: int) -> bool:
        """Record an offset that was marked too late. The next commit has it in ``refused``. Always returns False."""
        self._refused[partition] = offset
        return False

    def drop_refused(self) -> None:
        """Drop the present refused marks, because their session has ended. No later commit reports them."""
        self._refused.clear()

    def last_marked(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Return the last mark of an assigned partition, else its committed offset, else None."""
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
            last = self._marked.get(partition) or self._committed[partition]
            if last is not None and offset <= last.offset:
                self._marking.marked(partition, offset)  # there is nothing to commit, but the records are processed
                return False
        self._marked[partition] = OffsetAndMetadata(offset, metadata, leader_epoch)
        self._marking.marked(partition, offset)
        return True

    def reset(
        self, partition: TopicPartition, offset: int, metadata: str = "", leader_epoch: int | None = None
    ) -> bool:
        """Set the mark. Unlike ``mark``, it may move back: the records from ``offset`` on will be read again."""
        self.may_go_back(self._checked(partition, offset, metadata, leader_epoch))
        return self.mark(partition, offset, metadata, leader_epoch)

    def annotate(self, partition: TopicPartition, offset: int, metadata: str) -> bool:
        """Set the metadata of the mark or commit at ``offset``, to be committed. Returns False if that is another one.

        Without a mark and a commit, ``offset`` is marked. Text of ``finished_offsets`` is left out of the next commits
        if the broker finds it too long: then this returns False.
        """
        partition = self._checked(partition, offset, metadata, None)
        last = self.last_marked(partition)
        if not self.annotates or partition not in self._committed or partition in self.moved:
            return False
        if last is not None and last.offset != offset:
            return False
        if last is None or last.metadata != metadata:
            self._marked[partition] = OffsetAndMetadata(offset, metadata, None if last is None else last.leader_epoch)
        return True

    def may_go_back(self, partition: TopicPartition) -> None:
        """Let the next mark count even if it goes backwards, because the user moved the position."""
        self._initial.pop(partition, None)
        if partition in self._committed:
            self.moved.add(partition)

    def _checked(
        self, partition: TopicPartition, offset: int, metadata: str, leader_epoch: int | None
    ) -> TopicPartition:
        if self._service.is_inherited:
            self._service.check_process()
        check_mark(offset, metadata, leader_epoch)
        # Hot, runs for each record: an assigned partition needs no further check.
        if type(partition) is TopicPartition and partition in self._committed:
            return partition
        return checked_partition(partition)

    def _to_commit(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        selection = None if partitions is None else set(partitions)
        offsets = self._marked
        if self._initial:
            begins = {
                partition: offset
                for partition, offset in self._initial.items()
                if self._committed.get(partition) is None
            }
            offsets = begins | offsets
        return {
            partition: offset
            for partition, offset in offsets.items()
            if (selection is None or partition in selection) and self._committed.get(partition) != offset
        }

    # Committing.

    async def run(self) -> None:
        """Commit the marked offsets every ``auto_commit_interval`` seconds, until cancelled."""
        interval = self._config.auto_commit_interval
        while True:
            await asyncio.sleep(interval)
            self._marking.collect_marks()
            if self._to_commit():
                # A request must fit into the timeout, however short the interval is.
                await self.commit_marked(timeout=max(interval, self._client.config.request_timeout))

    async def commit_marked(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> CommitResult:
        """Commit the marks of these partitions, or of all, that are not committed yet. Otherwise like ``commit``."""
        self._marking.collect_marks()
        selection = None if partitions is None else list(partitions)
        before = {
            partition: offset for partition, offset in self._to_commit(selection).items() if partition in self._marked
        }

        def dropped() -> dict[TopicPartition, KafkaError]:
            """Return the marks whose partitions were lost during the commit, which may have waited for another one."""
            return {
                partition: _too_late(partition, at.offset)
                for partition, at in before.items()
                if partition not in self._marked
            }

        return await self._commit(lambda: self._to_commit(selection), timeout, dropped)

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None, *, timeout: float | None = None
    ) -> CommitResult:
        """Commit these offsets, or all marks, within ``timeout`` seconds (``api_timeout`` by default).

        Retriable errors are retried. A broker's errors are in the result and not raised. A cancelled commit may have
        been applied. Raises TypeError or ValueError for a wrong argument.
        """
        if offsets is None:
            result = await self.commit_marked(timeout=timeout)
            self._reported.update((partition, self._marked.get(partition)) for partition in result.refused)
            late = {partition: _too_late(partition, offset) for partition, offset in self._refused.items()}
            self._refused.clear()
            return CommitResult(result.committed, {**late, **result.refused})
        by_partition = checked_offsets(offsets)
        before = {partition: self._marked.get(partition) for partition in by_partition}
        result = await self._commit(lambda: by_partition, timeout)
        for partition in result.committed:
            # Otherwise the next automatic commit would undo a commit that goes back. A mark made meanwhile is newer.
            if partition in self._committed and self._marked.get(partition) is before[partition]:
                self._marked[partition] = by_partition[partition]
                self._marking.marked(partition, by_partition[partition].offset)
        return result

    async def _commit(
        self,
        choose: Callable[[], Mapping[TopicPartition, OffsetAndMetadata]],
        timeout: float | None,
        dropped: Callable[[], dict[TopicPartition, KafkaError]] = dict,
    ) -> CommitResult:
        check_timeout(timeout)
        self._service.check_process()
        limit = self._client.config.api_timeout if timeout is None else timeout
        attempt = CommitAttempt({})
        try:
            with deadline(limit, lambda: f"within {limit:g} s"):
                async with self._one_at_a_time:
                    self._attempt = attempt = CommitAttempt(dict(choose()))
                    await repeat_attempts(lambda: self._try_commit(attempt), self._client.retry_backoff())
        except KafkaTimeout as timed_out:
            if not attempt.offsets and not attempt.committed:
                attempt.offsets = dict(choose())  # the commit waited for another one during its whole timeout
            for partition in attempt.offsets:
                cause = attempt.last_error.get(partition, "no answer")
                attempt.refused[partition] = KafkaTimeout(f"{partition} was not committed {timed_out}: {cause}")
        late = {partition: error for partition, error in dropped().items() if partition not in attempt.committed}
        assert not attempt.committed.keys() & attempt.refused.keys(), "an offset is either committed or refused"
        result = CommitResult(attempt.committed, {**late, **attempt.refused})
        self._report(result)
        if result.committed:
            self._marking.committed(result.committed)
        return result

    def _report(self, result: CommitResult) -> None:
        place = f"commits of group {self._config.group_id}"
        if result.refused:
            error = CommitFailed(result.refused)
            self._client.outages.report(logger, place, error, "group %s: %s", self._config.group_id, error)
            self._on_error(error)
            if self._client.on_event is not None:
                from ..events import CommitRefused

                self._client.on_event(CommitRefused(self._config.group_id, result.refused))
        # A commit without offsets sends no request, so it does not end an outage.
        elif result.committed:
            self._client.outages.recovered(logger, place, "group %s: commits succeeded", self._config.group_id)

    async def _try_commit(self, attempt: CommitAttempt) -> bool:
        """Send one request for the remaining offsets. True if some are to be retried."""
        assert self._one_at_a_time.locked(), "commits of one member are sent one at a time (rule 4)"
        for partition in [
            partition
            for partition in attempt.offsets
            if partition not in self._committed or partition in attempt.dropped
        ]:
            late = _too_late(partition, attempt.offsets.pop(partition).offset)  # rule 3
            attempt.refused[partition] = late
        if not attempt.offsets:
            return False
        if attempt.by_name:
            # A topic with another id is another topic, although it has the same name.
            with suppress(KafkaError):
                await self._client.refresh({partition.topic for partition in attempt.offsets})
        self._refuse_recreated(attempt)
        if not attempt.offsets:
            return False
        # Read for each request, because the identity may change during the pause before it.
        identity, view, sent = self._committer.identity, self._client.view, attempt.to_send()
        began = asyncio.get_running_loop().time()
        if identity is None:
            # If this member was the last one and has just left the group, the coordinator would accept a commit without
            # a member id.
            attempt.fail(IllegalStateError("this consumer is not a member of its group now; read again"), is_final=True)
            return False
        by_name = attempt.by_name or any(topic_id(view, partition.topic) == ZERO_UUID for partition in sent)
        try:
            response, node_id = await self._channel.send(
                lambda versions: commit_request(self._config.group_id, identity, sent, view, attempt.without_epoch),
                purpose=Purpose.OTHER,  # a waiting JoinGroup must not delay it
                timeout=self._client.config.request_timeout,
                at_most=OffsetCommitRequest.TOPIC_IDS.before if by_name else None,
            )
        except KafkaError as error:
            self.commits.failures += 1
            attempt.fail(error, is_final=not is_retriable_in_failover(error))
            return bool(attempt.offsets)
        codes = read_commit(sent, response, view.topic_names)
        if any(code is not ErrorCode.NONE for code in codes.values()):
            self.commits.failures += 1
        else:
            self.commits.succeeded(began, asyncio.get_running_loop().time())
        self._channel.record([code for code in codes.values() if code is not None], node_id)
        for partition, code in codes.items():
            if code is None:
                self._refuse_omitted(attempt, partition, node_id)
            else:
                self._settle(attempt, identity, partition, code)
        return bool(attempt.offsets)

    def _refuse_recreated(self, attempt: CommitAttempt) -> None:
        """Refuse offsets of topics that were deleted and created again since the commit began.

        They would skip the first records of the new topic.
        """
        for partition, offset in list(attempt.offsets.items()):
            present = topic_id(self._client.view, partition.topic)
            first_id = attempt.topic_ids.setdefault(partition.topic, present)
            if ZERO_UUID not in (first_id, present) and first_id != present:
                del attempt.offsets[partition]
                what = f"committing offset {offset.offset} of {partition}"
                attempt.refused[partition] = error_for(
                    ErrorCode.UNKNOWN_TOPIC_ID, what, reason="the topic was deleted and created again"
                )

    def _refuse_omitted(self, attempt: CommitAttempt, partition: TopicPartition, node_id: int) -> None:
        """Refuse an offset about which the answer says nothing: it may be stored."""
        offset = attempt.offsets.pop(partition)
        what = f"committing offset {offset.offset} of {partition}"
        attempt.refused[partition] = ProtocolError(
            f"{what}: the answer of broker {node_id} omits this partition, so the offset may be committed or not"
        )

    def _settle(self, attempt: CommitAttempt, identity: Identity, partition: TopicPartition, code: ErrorCode) -> None:
        """Apply the answer for one partition: committed, refused, or left in ``attempt.offsets`` for a retry."""
        offset, without_epoch = attempt.offsets[partition], partition in attempt.without_epoch
        attempt.last_error[partition] = code.name
        outcome = classify_commit(
            code,
            is_member=bool(identity.member_id),
            is_outdated=identity != self._committer.identity or self._committer.is_rebalancing,
            is_revoking=self._committer.is_revoking,
            by_name=attempt.by_name,
            has_epoch=offset.leader_epoch is not None and not without_epoch,
            has_annotation=is_annotation(offset.metadata) and partition not in attempt.without_metadata,
        )
        if outcome is CommitOutcome.COMMITTED:
            del attempt.offsets[partition]
            attempt.committed[partition] = replace(offset, leader_epoch=None) if without_epoch else offset
            # With its epoch, although the broker has none: the mark has it too, and would otherwise be committed again.
            self._record(partition, offset)
        elif outcome is CommitOutcome.UNKNOWN_ID:
            attempt.by_name = True
        elif outcome is CommitOutcome.REFUSED_EPOCH:
            attempt.without_epoch.add(partition)
        elif outcome is CommitOutcome.REFUSED_ANNOTATION:
            attempt.without_metadata.add(partition)
            if self.annotates:
                self.annotates = False
                logger.warning(
                    "group %s: the broker refuses %d characters of metadata; after a crash, records are processed "
                    "again that were finished ahead of the committed offset; set its offset.metadata.max.bytes to 4096",
                    *(self._config.group_id, len(offset.metadata)),
                )
        elif outcome is CommitOutcome.OUTDATED_EPOCH:
            self._on_refused(identity, code)
        elif outcome is CommitOutcome.REFUSED:
            del attempt.offsets[partition]
            reason = None
            if identity == NO_MEMBER and code is ErrorCode.UNKNOWN_MEMBER_ID:
                reason = f"group {self._config.group_id!r} has members, and this consumer is none of them; {_ALONE}"
            what = f"committing offset {offset.offset} of {partition}"
            attempt.refused[partition] = error_for(code, what, reason=reason)
            if code in MEMBERSHIP_ERRORS:
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
        """Fetch the committed offsets, None for a partition that has none. Waits for open transactions to end.

        Retriable errors are retried for ``timeout`` seconds (``api_timeout`` by default), then KafkaTimeout is raised.
        Raises AuthorizationError and other errors that are not retriable at once, TypeError or ValueError for a wrong
        argument.
        """
        return await self.lookups.fetch(partitions, timeout=timeout)


def _too_late(partition: TopicPartition, offset: int) -> IllegalStateError:
    return IllegalStateError(
        f"offset {offset} was not committed: {partition} is not assigned to this consumer any longer"
    )
