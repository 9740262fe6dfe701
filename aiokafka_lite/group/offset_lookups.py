"""Fetches the committed offsets of a group, and repeats the requests until each partition has an answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from ..aio.deadline import deadline
from ..aio.retry import Backoff, is_momentary, is_refusal, is_retriable_in_failover
from ..arguments import check_timeout
from ..arguments import partitions as checked_partitions
from ..cluster.client import Client
from ..cluster.coordinator_channel import CoordinatorChannel
from ..errors import ErrorCode, KafkaError, error_for
from ..net.connection import Purpose
from ..protocol.messages import OffsetFetchRequest
from ..protocol.schema import ZERO_UUID
from ..types import OffsetAndMetadata, TopicPartition
from .commit_attempt import MEMBERSHIP_ERRORS
from .committer import Committer
from .events import Identity
from .offset_requests import FetchAnswer, fetch_request, read_fetch, topic_id

logger = logging.getLogger(__name__)

_REFUSED_MEMBER = (*MEMBERSHIP_ERRORS, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)


class OffsetLookups:
    """The lookups of one group.

    ``on_refused`` is called with errors about the membership, ``on_error`` with every error of a request.
    """

    def __init__(
        self,
        client: Client,
        channel: CoordinatorChannel,
        group_id: str,
        committer: Committer,
        on_refused: Callable[[Identity, ErrorCode], None],
        on_error: Callable[[KafkaError], None],
    ) -> None:
        self._client = client
        self._channel = channel
        self._group_id = group_id
        self._committer = committer
        self._on_refused = on_refused
        self._on_error = on_error

    async def fetch(
        self,
        partitions: Iterable[TopicPartition],
        *,
        timeout: float | None,
        on_retry: Callable[[KafkaError], None] = lambda error: None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Fetch the committed offsets, as ``Offsets.fetch`` does. ``on_retry`` gets the error of each attempt."""
        check_timeout(timeout)
        lookup = _Lookup(dict.fromkeys(checked_partitions(partitions)), on_retry=on_retry)
        limit = self._client.config.api_timeout if timeout is None else timeout
        with deadline(limit, lambda: lookup.describe(self._group_id, limit)):
            await repeat_attempts(lambda: self._try_fetch(lookup), self._client.retry_backoff())
        return lookup.found

    async def locate(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Fetch the committed offsets without a time limit, for a reader that cannot read before it has them."""
        partitions = list(partitions)
        place, outages = f"committed offsets of group {self._group_id}", self._client.outages

        def report(error: KafkaError) -> None:
            # INFO, not WARNING: errors are normal while a coordinator moves to another broker.
            outages.report(
                logger,
                place,
                error,
                "group %s: reading the committed offsets failed; retrying: %s",
                self._group_id,
                error,
                level=logging.WARNING if is_refusal(error) else logging.INFO,
                problem=f"the committed offsets of group {self._group_id!r} cannot be read: {error}",
            )

        backoff = self._client.retry_backoff()
        try:
            while True:
                try:
                    offsets = await self.fetch(partitions, timeout=None, on_retry=report)
                except KafkaError as error:
                    if not is_momentary(error):
                        raise
                    self._on_error(error)
                    if is_refusal(error):  # a timeout has already taken long
                        report(error)
                        await asyncio.sleep(backoff.next())
                    continue
                outages.recovered(logger, place, "group %s: read the committed offsets", self._group_id)
                return offsets
        finally:
            outages.forget(place)  # a cancelled lookup is no outage

    async def _try_fetch(self, lookup: _Lookup) -> bool:
        """Send one request for the missing partitions. True if some are to be retried."""
        if not lookup.missing:
            return False
        view, partitions, member = self._client.view, list(lookup.missing), self._committer.fetching_identity
        by_name = lookup.by_name or any(topic_id(view, partition.topic) == ZERO_UUID for partition in partitions)
        try:
            response, node_id = await self._channel.send(
                lambda versions: fetch_request(self._group_id, partitions, view, versions, member),
                purpose=Purpose.OTHER,
                timeout=self._client.config.request_timeout,
                at_most=OffsetFetchRequest.TOPIC_IDS.before if by_name else None,
            )
        except KafkaError as error:
            if not is_retriable_in_failover(error):
                raise
            lookup.last_error = str(error)
            lookup.on_retry(error)
            self._on_error(error)
            return True
        answer = read_fetch(self._group_id, partitions, response, view.topic_names)
        self._channel.record([answer.group_error, *answer.errors.values()], node_id)
        if answer.group_error is ErrorCode.GROUP_ID_NOT_FOUND and member is None:
            # For an unknown group, Kafka answers NONE without offsets, and franz-go's kfake answers this code.
            lookup.found.update(lookup.missing)
            return False
        if answer.group_error is not ErrorCode.NONE:
            lookup.last_error = answer.group_error.name
            if member is not None and answer.group_error in _REFUSED_MEMBER:
                self._on_refused(member, answer.group_error)  # the member gets another epoch, or loses its partitions
                return True
            refused = error_for(answer.group_error, f"fetching committed offsets of group {self._group_id!r}")
            if not is_retriable_in_failover(refused):
                raise refused
            lookup.on_retry(refused)
            return True
        lookup.apply(answer)
        return bool(lookup.missing)


@dataclass(slots=True)
class _Lookup:
    """A fetch of committed offsets in progress."""

    missing: dict[TopicPartition, None]
    found: dict[TopicPartition, OffsetAndMetadata | None] = field(default_factory=dict)
    last_error: str = ""
    by_name: bool = False  # the coordinator does not know a topic id
    on_retry: Callable[[KafkaError], None] = lambda error: None

    def describe(self, group_id: str, limit: float) -> str:
        """Describe that no offsets were found within ``limit`` seconds, for the text of an error."""
        return (
            f"the committed offsets of group {group_id!r} were not found within {limit:g} s; "
            f"the last error was: {self.last_error or 'no answer'}"
        )

    def apply(self, answer: FetchAnswer) -> None:
        """Store the offsets in the answer. Raises the error of a partition if it is not retriable."""
        for partition, offset in answer.offsets.items():
            self._settle(partition, offset)
        for partition, code in answer.errors.items():
            self.last_error = f"{partition}: {code.name}"
            if code is ErrorCode.UNKNOWN_TOPIC_ID:
                self.by_name = True
            elif code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # the topic was just created or deleted
                self._settle(partition, None)
            elif not is_retriable_in_failover(refused := error_for(code, f"fetching the offset of {partition}")):
                raise refused
            else:
                self.on_retry(refused)
        if self.missing and not answer.errors:
            self.last_error = f"the coordinator did not answer for {', '.join(map(str, list(self.missing)[:3]))}"

    def _settle(self, partition: TopicPartition, offset: OffsetAndMetadata | None) -> None:
        self.found[partition] = offset
        self.missing.pop(partition, None)


async def repeat_attempts(attempt: Callable[[], Awaitable[bool]], backoff: Backoff) -> None:
    """Repeat with backoff while ``attempt`` returns True."""
    while await attempt():  # noqa: ASYNC110 - a retry, not polling
        await asyncio.sleep(backoff.next())
