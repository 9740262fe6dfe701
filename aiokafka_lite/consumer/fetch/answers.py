"""Applying the answers of one broker to partitions: records, new offsets after a truncation, and errors.

An answer is applied in one turn of the loop, and then the reader is notified once. A large answer takes a turn for each
``TURN_BYTES``. A partition is checked in the turn in which its records are buffered.

Invariants that once broke:

- An answer counts only for a partition that is still fetched from this broker. Its position must have the version of
  the request, and its buffer must end at the offset of the request. When a batch cannot be decoded,
  the records behind it are dropped, and an answer in flight would leave a gap.
- A truncation settles the reader first: a reader in the middle of a batch must not deliver the rest of it again.
- ``OFFSET_OUT_OF_RANGE`` waits until the buffer is read. Resetting at once loses records that were fetched in time.
- A hint about a new leader (KIP-951) is followed without a backoff: after a backoff it is often outdated.
- A former leader that is cut off still answers, and its log may end before the position. A restarted group read such a
  partition from the beginning again: its committed offset had a newer leader epoch than its metadata. So the answer
  does not count, and metadata is refreshed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from ...aio.retry import Backoff, is_refusal
from ...cluster.client import Client
from ...errors import NO_ERROR, BrokerError, CorruptRecord, ErrorCode, ProtocolError, error_for
from ...protocol.codec import Buffer
from ...protocol.framing import mapped
from ...protocol.messages import (
    FetchResponse,
    FetchResponsePartition,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
)
from ...protocol.records import split_batches
from ...settings.consumer import ConsumerConfig
from ...types import IsolationLevel, TopicPartition
from ..chunk import NONE_ABORTED, AbortedTransactions
from ..partition import AssignedPartition
from ..position import ResetReason, ResetStrategy
from ..subscription import Subscription
from .plan import FetchPlan, FetchPlanner, PlannedPartition
from .request import FetchOutcome, classify
from .truncation import TruncationCheck, read_epochs

logger = logging.getLogger(__name__)

LOGGED_ATTEMPTS = 5
"""After this number of failures in a row, a partition has an outage. A move of a leader causes fewer failures."""

LONGEST_FORMER_LEADER = 15.0
"""Seconds after which the refusals of a leader count even if a record of a newer epoch was read. The topic may have
been created again, and its epochs begin at 0."""

TURN_BYTES = 4 << 20
"""Bytes of records that are buffered, and perhaps copied, in one turn of the loop."""

PARTITION_BYTES = TURN_BYTES // 1_000
"""What a partition counts at least, so that an answer with thousands of small partitions takes several turns."""


class FetchAnswers:
    """Applies the answers of one broker. Owner: its ``BrokerFetcher``.

    ``on_lost_position`` is called when a partition needs another offset, ``on_source_change`` when a partition is to be
    fetched from another broker.
    """

    def __init__(
        self,
        node_id: int,
        client: Client,
        subscription: Subscription,
        planner: FetchPlanner,
        config: ConsumerConfig,
        *,
        on_lost_position: Callable[[], None],
        on_source_change: Callable[[Iterable[AssignedPartition]], None],
    ) -> None:
        self._node_id = node_id
        self._client = client
        self._subscription = subscription
        self._planner = planner
        self._config = config
        self._policy = ResetStrategy.of(config)
        self._on_lost_position = on_lost_position
        self._on_source_change = on_source_change
        self._backoff: Backoff = client.retry_backoff()
        self._refused_since: dict[TopicPartition, float] = {}
        """When this broker, a former leader, first refused the position of a partition."""

    # Fetch.

    async def apply(self, plan: FetchPlan, response: FetchResponse) -> bool:
        """Apply an answer to Fetch. Returns False if it has neither records nor an error for any partition."""
        total = sum(
            len(partition.records)
            for topic in response.responses
            for partition in topic.partitions
            if partition.records
        )
        is_useful = is_readable = False
        bytes_left = TURN_BYTES
        for topic in response.responses:
            for answer in topic.partitions:
                if bytes_left <= 0:
                    bytes_left = TURN_BYTES
                    if is_readable:
                        self._subscription.observer.on_ready()
                    await asyncio.sleep(0)
                # A slice keeps the whole frame in memory. That is acceptable for a slice that is most of a frame. A
                # small slice of a paused partition would keep megabytes during the whole pause, so it is copied.
                if answer.records and 2 * len(answer.records) < total:
                    answer.records = await _copied(answer.records)
                bytes_left -= max(PARTITION_BYTES, len(answer.records or b""))
                planned = self._planner.find(topic.topic, topic.topic_id, answer.partition_index)
                if planned is None:
                    continue
                # A moved partition is no sign of an empty answer, after which the fetcher slows down: the broker has
                # done its work.
                if self._has_moved(planned):
                    is_useful = True
                    continue
                assigned = planned.assigned
                if answer.error_code == NO_ERROR:
                    is_useful = self._apply_data(assigned, answer, is_full=total >= plan.max_bytes) or is_useful
                else:
                    self._apply_error(assigned, answer, response)
                    is_useful = True
                is_readable = self._subscription.update_ready(assigned) or is_readable
        # Called once for the whole answer, so that a reader that wakes up finds the records of all partitions.
        if is_readable:
            self._subscription.observer.on_ready()
        return is_useful

    def _has_moved(self, planned: PlannedPartition) -> bool:
        """Return whether the partition or its position moved during the request, so that the answer is outdated.

        A partition that is no longer assigned has no source.
        """
        assigned = planned.assigned
        is_outdated = assigned.position.version != planned.version or assigned.buffer.end != planned.offset
        return is_outdated or assigned.source is not self._planner.source

    def _apply_error(
        self, assigned: AssignedPartition, answer: FetchResponsePartition, response: FetchResponse
    ) -> None:
        code = ErrorCode.of(answer.error_code)
        if assigned.preferred == self._node_id:
            # The follower may lag behind, or may no longer be a replica, so the leader is asked. It is asked after a
            # backoff, because it may name the same follower at once.
            self.leave_follower([assigned])
            self._back_off(assigned)
            return
        match classify(code):
            case FetchOutcome.REFRESH:
                leader = answer.current_leader
                is_news = leader.leader_id >= 0 and self._client.update_leader(
                    assigned.partition, leader.leader_id, leader.leader_epoch, response.node_endpoints
                )
                # If there is a newer leader, the next request goes to it at once, without a backoff.
                if not is_news:
                    self._client.request_refresh()
                    self._retry(assigned, code)
            case FetchOutcome.RETRY:
                self._retry(assigned, code)
            case FetchOutcome.RESET if self._is_former_leader(assigned):
                self._client.request_refresh()
                self._retry(assigned, code)
            case FetchOutcome.RESET:
                self._out_of_range(assigned)
            case FetchOutcome.RAISE:
                self._fail(assigned, code)

    def _is_former_leader(self, assigned: AssignedPartition) -> bool:
        """Return whether this leader may be replaced: metadata has an older epoch than the last fetched record."""
        partition, now, read_epoch = assigned.partition, self._now(), assigned.buffer.end_epoch
        view = self._client.view.partition(partition)
        if view is None or view.leader_epoch is None or read_epoch is None or view.leader_epoch >= read_epoch:
            return False
        if not assigned.attempts:  # the last answer was a success
            self._refused_since.pop(partition, None)
        if now < self._refused_since.setdefault(partition, now) + LONGEST_FORMER_LEADER:
            return True
        del self._refused_since[partition]
        return False

    def _retry(self, assigned: AssignedPartition, code: ErrorCode) -> None:
        partition = assigned.partition
        self._back_off(assigned)
        if assigned.attempts >= LOGGED_ATTEMPTS:
            error = error_for(code, f"fetching {partition}", at=partition)
            what = "%s: broker %s answers %s; retrying"
            self._client.outages.report(logger, str(partition), error, what, partition, self._node_id, code.name)

    def _report_recovery(self, assigned: AssignedPartition) -> None:
        if self._client.outages:
            partition = assigned.partition
            self._client.outages.recovered(logger, str(partition), "fetched %s again", partition)

    def _fail(self, assigned: AssignedPartition, code: ErrorCode) -> None:
        # The backoff also applies to an error that the read raises. Without it, a program that continues to read would
        # ask the broker without a pause.
        self._back_off(assigned)
        if code is ErrorCode.CORRUPT_MESSAGE:
            assigned.fail_corrupt("the broker found its log damaged at this offset")
        else:
            partition, offset = assigned.partition, assigned.buffer.end
            what = f"fetching {partition} at offset {offset}"
            self._fail_with(assigned, error_for(code, what, at=partition, offset=offset))

    def _fail_with(self, assigned: AssignedPartition, error: BrokerError) -> None:
        partition = assigned.partition
        if is_refusal(error) and self._client.outages.failed(str(partition), error):
            logger.warning("broker %s refuses %s; retrying: %s", self._node_id, partition, error)
        if self._subscription.is_raised(partition, error):
            assigned.fail(error)

    def fail_too_large(self, partitions: Iterable[AssignedPartition]) -> None:
        """Fail these partitions, because their response is larger than the client accepts. A retry cannot help."""
        limit = self._client.config.max_response_size
        for assigned in partitions:
            why = f"{assigned.partition}: broker {self._node_id} answers with more than max_response_size={limit} bytes"
            self._back_off(assigned)
            assigned.fail(ProtocolError(f"{why}; raise it above the size of the largest batch"))
            self._subscription.update_ready(assigned)
        self._subscription.observer.on_located()

    def _apply_data(self, assigned: AssignedPartition, answer: FetchResponsePartition, *, is_full: bool) -> bool:
        """Apply an answer without an error. Returns False if it has no records.

        ``is_full``: the response has as many bytes as the request allowed.
        """
        self._subscription.read_topics.add(assigned.partition.topic)
        assigned.record_ends(answer.high_watermark, answer.last_stable_offset)
        if answer.preferred_read_replica >= 0 and answer.preferred_read_replica != self._node_id:
            assigned.prefer(answer.preferred_read_replica, self._now() + self._client.config.metadata_max_age)
            self._count_move(assigned)
            self._on_source_change([assigned])
            return True
        if answer.diverging_epoch.epoch >= 0:
            self._truncate(assigned, answer.diverging_epoch.end_offset)
            return True
        return self._buffer(assigned, answer, is_full)

    def _buffer(self, assigned: AssignedPartition, answer: FetchResponsePartition, is_full: bool) -> bool:
        """Append a partition's records to its buffer. Returns False if there are none."""
        data = answer.records
        if not data:
            # An empty answer proves that the broker serves the partition. Records prove it only when the reader has
            # decoded them.
            assigned.succeeded()
            self._report_recovery(assigned)
            return False
        assigned.last_served = next(self._subscription.answer_numbers)
        try:
            batches = split_batches(data)
        except CorruptRecord as error:
            self._back_off(assigned)
            assigned.fail_corrupt(str(error))
            return True
        aborted = None
        if self._config.isolation is IsolationLevel.READ_COMMITTED:
            transactions = answer.aborted_transactions
            aborted = AbortedTransactions(transactions) if transactions else NONE_ABORTED
        appended = assigned.add(batches, aborted)
        if not batches:
            self._ask_for_more(assigned, len(data), is_full)
        # Without a backoff, a broker that repeats old records would be asked for them in a busy loop.
        elif not appended:
            partition, offset = assigned.partition, assigned.buffer.end
            repeated = ProtocolError(f"broker {self._node_id} sent only records before offset {offset}")
            self._client.outages.report(logger, str(partition), repeated, "%s: %s", partition, repeated)
            self._back_off(assigned)
        elif self._client.outages:
            self._report_recovery(assigned)
        return True

    def _ask_for_more(self, assigned: AssignedPartition, size: int, is_full: bool) -> None:
        """Request more bytes with the next fetch, because brokers before KIP-74 cut even the first batch."""
        limit, buffer = self._config.fetch_max_bytes, assigned.buffer
        is_cut = size >= buffer.fetch_size
        if not is_cut and not is_full:
            # The broker could have sent more, so the batch's length is wrong, or the rest of it does not exist.
            self._back_off(assigned)
            assigned.fail_corrupt(f"broker {self._node_id} sent {size} bytes, which are not a whole batch")
        elif buffer.fetch_size < limit:
            assigned.enlarge_fetches(limit)
        else:
            self._back_off(assigned)
            if is_cut:  # another request would have the same result
                assigned.fail_corrupt(f"a batch is larger than fetch_max_bytes={limit}")

    def _out_of_range(self, assigned: AssignedPartition) -> None:
        if assigned.buffer.has_data:
            self._back_off(assigned)  # the buffer is read first, and then the offset is requested again
            return
        offset, policy = assigned.buffer.end, self._config.auto_offset_reset
        logger.debug("%s has no offset %s; auto_offset_reset=%s applies", assigned.partition, offset, policy)
        self._count_move(assigned)
        assigned.reset_by(self._policy, out_of_range=offset)
        self._on_lost_position()

    # Truncation.

    def apply_epochs(
        self, checks: dict[TopicPartition, TruncationCheck], response: OffsetForLeaderEpochResponse
    ) -> None:
        """Apply an answer to OffsetForLeaderEpoch."""
        answers = read_epochs(response)
        for partition, check in checks.items():
            if check.assigned.position.version != check.version or not self._subscription.holds(check.assigned):
                continue
            answer = answers.get(partition)
            if answer is None:
                self._back_off(check.assigned)
            else:
                self._apply_epoch(check, answer)
            self._subscription.update_ready(check.assigned)
        self._subscription.observer.on_located()

    def _apply_epoch(self, check: TruncationCheck, answer: OffsetForLeaderEpochResponsePartition) -> None:
        assigned, code = check.assigned, ErrorCode.of(answer.error_code)
        outcome = classify(code)
        if outcome is FetchOutcome.RAISE:
            self._back_off(assigned)
            what = f"asking whether the log of {assigned.partition} was truncated"
            self._fail_with(assigned, error_for(answer.error_code, what, at=assigned.partition))
        elif outcome is not FetchOutcome.DATA:
            if outcome is FetchOutcome.REFRESH:
                self._client.request_refresh()
            self._retry(assigned, code)
        elif answer.end_offset < 0 and self._is_former_leader(assigned):
            self._client.request_refresh()
            self._back_off(assigned)
        elif answer.end_offset < 0:
            # The leader's log has none of the epochs that were read, so it names no offset to return to.
            self._subscription.observer.settle()
            offset = assigned.offset
            what = "%s: the consumer has read up to leader epoch %s, but the leader has no epoch up to this one"
            logger.warning(what, assigned.partition, check.last_epoch)
            assigned.reset_by(self._policy, out_of_range=offset, reason=ResetReason.TRUNCATED)
            self._on_lost_position()
        # The leader's log lacks fetched records if its end is below the position, or its epoch is below the epoch of
        # the last record. The buffer's end is compared, because records that were fetched ahead are lost as well.
        elif answer.end_offset < assigned.buffer.end or 0 <= answer.leader_epoch < check.last_epoch:
            self._truncate(assigned, answer.end_offset)
        else:
            assigned.position.validated_leader = check.leader

    def _truncate(self, assigned: AssignedPartition, end_offset: int) -> None:
        """Handle a truncation: the leader's log has other records from ``end_offset`` on, after an unclean election."""
        self._subscription.observer.settle()
        partition, fetched, offset = assigned.partition, assigned.buffer.end, assigned.offset
        if offset is None or end_offset < 0:
            self._back_off(assigned)
            return
        what = "%s was truncated at offset %s, but the consumer has fetched it up to %s"
        logger.warning(what, partition, end_offset, fetched)
        # ``move`` drops the buffer, although the position stays: its last records do not exist any more.
        self._count_move(assigned)
        if offset <= end_offset:
            assigned.move(offset)  # only records that were fetched ahead are lost
        elif self._policy is not ResetStrategy.NONE:
            assigned.move(end_offset)
            # This comes after ``move``, so that an observer that reads the position finds the new one.
            self._subscription.observer.on_reset(partition, offset, end_offset, ResetReason.TRUNCATED)
        else:
            why = f"{partition} was truncated at offset {end_offset}, but it was read up to {offset}; seek to continue"
            assigned.fail(error_for(ErrorCode.OFFSET_OUT_OF_RANGE, why, at=partition, offset=offset))

    # Brokers.

    def leave_follower(self, partitions: Iterable[AssignedPartition]) -> None:
        """Return to the leader for each partition that was fetched from this broker as a preferred follower."""
        moved = [partition for partition in partitions if partition.preferred == self._node_id]
        for partition in moved:
            partition.preferred = None
        if moved:
            self._on_source_change(moved)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _count_move(self, assigned: AssignedPartition) -> None:
        """Count a demand for another offset or broker. The first is followed at once, later ones with a backoff."""
        if assigned.attempts:
            self._back_off(assigned)
        else:
            assigned.back_off(self._now())

    def _back_off(self, assigned: AssignedPartition) -> None:
        assigned.wait_to_retry(self._now(), self._backoff)


async def _copied(data: Buffer) -> Buffer:
    """Copy the records, in one turn of the loop for each ``TURN_BYTES``."""
    if len(data) <= TURN_BYTES:
        return bytes(data)
    copy = memoryview(mapped(len(data)))  # a bytearray would be filled with zeros first
    for start in range(0, len(data), TURN_BYTES):
        copy[start : start + TURN_BYTES] = data[start : start + TURN_BYTES]
        await asyncio.sleep(0)
    return copy
