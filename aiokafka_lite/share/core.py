"""The parts of one ``ShareConsumer``: the client, the membership, the fetchers, and the records in flight.

Rules of this file:

1. Records are acquired on demand. A fetcher asks for records only while a read waits and none is buffered, because the
   lock of an acquired record expires while it waits. All fetchers read ``_wants_records``: whether a read waits.
   ``program_pace`` limits the number of records that are acquired for a read, and that a read returns.
2. Batches are decoded when a read takes their records, by ``_decode`` alone, and only as many as it needs.
3. A read that awaits deserializers takes its records afterwards, in one step without an await. So a cancelled read
   takes none. Records that were lost or released meanwhile are skipped.
4. An error of a fetcher, a deserializer or a callback is raised by one read: the next one.
5. A fetcher belongs to one broker and ends when no partition is assigned there. ``_reassign`` is the only place that
   gives partitions to fetchers.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

import anyio

from ..aio.callbacks import in_copy
from ..aio.light_event import LightEvent
from ..aio.service import CLOSE_TIMEOUT, Service
from ..arguments import plural
from ..cluster.client import Client
from ..cluster.metadata import ClusterView
from ..cluster.standstill import Wait
from ..consumer.refusals import Refusals
from ..errors import ErrorCode, IllegalStateError, KafkaError
from ..group.partition_events import PartitionEvents
from ..types import TopicPartition
from .acknowledgements import AcknowledgeType
from .counters import ShareCounters
from .fetcher import FINAL_TIMEOUT, BrokerShareFetcher
from .in_flight import Acknowledgements, Acquisition, AnyShareRecord, InFlight, Kept
from .member import ShareMember, ShareMemberState
from .membership import LEAVE_TIMEOUT, ShareMembership
from .program_pace import ProgramPace
from .results import AcknowledgementResult
from .session import TopicIdPartition
from .settings import ShareOptions
from .waits import waits

if TYPE_CHECKING:
    from ..cluster.otlp import MetricsReport
    from .metrics import ShareConsumerMetrics

logger = logging.getLogger(__name__)

DECODED_AHEAD = 16 << 20
"""The approximate bytes of records that one read decodes. A larger single batch is decoded as well."""

CLOSE_MARGIN = 0.5
"""Seconds beyond ``fetch_max_wait`` for the answers to the requests under way when the consumer closes."""


class ShareCore:
    """Owner: the ``ShareConsumer`` that ``service`` belongs to. It implements ``ShareReading`` for the fetchers."""

    def __init__(self, service: Service, options: ShareOptions) -> None:
        self.options = options
        self.client: Client = Client(
            options.client,
            connector=options.connector,
            runtime=options.runtime,
            report_metrics=self._report_metrics,
        )
        self.in_flight: InFlight = InFlight()
        self.counters: ShareCounters = ShareCounters()
        self.pace: ProgramPace = ProgramPace(options.share)
        self.membership: ShareMembership = ShareMembership(
            self.client,
            ShareMember(
                options.share.group_id,
                _member_id(options.runtime.new_id),
                options.topics,
                options.client.client_rack or None,
            ),
            on_assignment=self._reassign,
            topic_names=self._topic_names,
            thread=options.share.heartbeat_thread,
            spawn=service.start_child,
        )
        self._service = service
        self._fetchers: dict[int, BrokerShareFetcher] = {}
        self._wants_records = False
        self._expired = 0  # the expired records that were reported
        self._ready = LightEvent()
        self._failures: list[Exception] = []  # errors that the next reads raise
        self._refusals = Refusals(self.client.outages.is_ongoing)
        self.client.outages.on_refusal = self._on_refusal
        self._acknowledged: dict[TopicPartition, int] = {}  # results since the last commit
        self._refused: dict[TopicPartition, KafkaError] = {}
        self._missing: frozenset[str] = frozenset()
        self._is_running = False
        on_event = self.client.on_event
        self._events = None if on_event is None else PartitionEvents(options.share.group_id, on_event)

    # The lifetime.

    async def start(self) -> None:
        """Connect, and begin to join the group. Raises the errors of ``Client.start``."""
        await self._service.attach(self.client.service)
        self.client.add_topics(self.options.topics)
        self.client.on_view_change(self._view_changed)
        self.client.standstill.watch(lambda: repr(self._service), [self._waits])
        self._is_running = True
        self.pace.start()
        self._service.start_child(self.membership.run, name="share group member")

    @property
    def close_timeout(self) -> float:
        """The default ``timeout`` of ``close`` in seconds. It is long enough if a broker answers no step."""
        steps = self.options.share.fetch_max_wait + CLOSE_MARGIN + FINAL_TIMEOUT + LEAVE_TIMEOUT
        return max(CLOSE_TIMEOUT, steps + CLOSE_MARGIN)

    async def close(self) -> None:
        """Send the user's acknowledgements, release all other records, close the sessions, leave the group.

        The member also leaves if the call is cancelled. Otherwise its partitions would be idle until its session ends.
        """
        fetchers = list(self._fetchers.values())
        self._is_running = False
        try:
            # A broker that does not answer must not use up the time of the other brokers.
            with anyio.move_on_after(self.options.share.fetch_max_wait + CLOSE_MARGIN):
                async with anyio.create_task_group() as closing:
                    for fetcher in fetchers:
                        closing.start_soon(fetcher.close)
            # This comes after ``close`` of all fetchers: a request that was under way may have acquired more records.
            self.in_flight.release_all()
            async with anyio.create_task_group() as finishing:
                for fetcher in fetchers:
                    finishing.start_soon(fetcher.finish)
        finally:
            with anyio.CancelScope(shield=True):
                await self.membership.leave()
            if self._events is not None:
                self._events.replace(())

    def metrics(self) -> ShareConsumerMetrics:
        from .metrics import share_consumer_metrics

        parts = (self.client, self.membership, self.in_flight, self.counters)
        return share_consumer_metrics(
            *parts, last_poll_ago=self.pace.last_read_ago, lock_timeout=self.pace.lock_timeout
        )

    def _report_metrics(self) -> MetricsReport:
        from ..cluster.otlp import Metric
        from ..cluster.reports import PREFIX, report_of

        metrics = self.metrics()
        acknowledged = metrics.accepted + metrics.released + metrics.rejected + metrics.renewed + metrics.refused
        name = f"{PREFIX}consumer.share.fetch.manager.acknowledgements.send.total"
        sends = Metric(name, acknowledged, is_counter=True)
        return report_of("consumer", metrics, metrics.client, {"group_id": metrics.group_id}, sends)

    # Assignment: partitions go to the fetchers of their leaders.

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions whose names are known."""
        names = self._topic_names()
        return tuple(
            sorted(
                TopicPartition(names[key.topic_id], key.partition)
                for key in self.membership.member.assignment
                if key.topic_id in names
            )
        )

    def _topic_names(self) -> dict[bytes, str]:
        topics = self.client.view.topics
        return {topics[name].topic_id: name for name in self.options.topics if name in topics}

    def _view_changed(self, view: ClusterView) -> None:
        missing = frozenset(
            name
            for name in self.options.topics
            if name in view.topics and view.topics[name].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        for name in sorted(missing - self._missing):
            logger.warning("share group %s: topic %s does not exist", self.options.share.group_id, name)
        self._missing = missing
        self._reassign()

    def _waits(self) -> Iterator[Wait]:
        return waits(self.client, self.membership.member, self.options.topics, self._missing, self.assignment)

    def _reassign(self) -> None:
        if not self._is_running:
            return
        view, names = self.client.view, self._topic_names()
        by_node: dict[int, dict[TopicIdPartition, TopicPartition]] = {}
        unknown = False
        for key in sorted(self.membership.member.assignment):
            name = names.get(key.topic_id)
            partition = None if name is None else view.topics[name].partition(key.partition)
            if name is None or partition is None or partition.leader is None:
                unknown = True
            else:
                by_node.setdefault(partition.leader, {})[key] = TopicPartition(name, key.partition)
        if unknown:
            self.client.request_refresh(self.options.topics)
        if self._events is not None:
            self._events.replace(self.assignment, lost=self.membership.member.state is ShareMemberState.FENCED)
        # The present fetchers come first: a fetcher that loses all its partitions has to end its session.
        for node_id in dict.fromkeys([*self._fetchers, *by_node]):
            self._fetcher(node_id).want(by_node.get(node_id, {}))

    def _fetcher(self, node_id: int) -> BrokerShareFetcher:
        fetcher = self._fetchers.get(node_id)
        if fetcher is None:
            fetcher = self._fetchers[node_id] = BrokerShareFetcher(
                node_id,
                self.client,
                self.options.share,
                self.membership.member.member_id,
                self.in_flight,
                self.counters,
                self,
            )
            self._service.start_child(self._run_fetcher, fetcher, name=f"share fetcher of broker {node_id}")
        return fetcher

    async def _run_fetcher(self, fetcher: BrokerShareFetcher) -> None:
        await fetcher.run()
        # Nothing was awaited since the fetcher decided to end. When its broker is wanted again, the broker gets another
        # fetcher.
        if self._is_running:
            del self._fetchers[fetcher.node_id]

    # Reading.

    def begin_read(self, max_records: int) -> None:
        """Begin a read. Call ``end_read`` of the pace afterwards. Raises IllegalStateError while another task reads."""
        may_renew = all(fetcher.may_renew for fetcher in self._fetchers.values())
        if not self.pace.begin_read(max_records, may_renew=may_renew):
            raise IllegalStateError("another task reads from this share consumer: give each task its own consumer")

    def raise_once(self, error: Exception) -> None:
        """Let the next read raise this error."""
        self._failures.append(error)
        # Without this, a fetcher would add an error with each fetch until a read takes one.
        self._wants_records = False
        self._ready.set()

    def _on_refusal(self, place: str, error: KafkaError) -> None:
        self._refusals.add(place, error)
        self._wants_records = False  # as after ``raise_once``
        self._ready.set()

    def raise_failure(self) -> None:
        """Raise the oldest error that no read has raised."""
        if self._failures:
            raise self._failures.pop(0)

    def raise_refusal(self) -> None:
        """Raise a refusal that is ongoing, and that no read has raised, if no record is buffered."""
        if self.in_flight.next(asyncio.get_running_loop().time()) is None:
            self._refusals.raise_ongoing()

    async def wait_ready(self, timeout: float | None) -> bool:
        """Wait until a record is buffered or an error must be raised. Returns False after ``timeout`` seconds."""
        if self.make_ready():
            return True
        self._request_records()
        if timeout == 0:
            return False  # records that arrive now are for a later read
        try:
            with anyio.move_on_after(timeout):
                while not self.make_ready():
                    # Checked again, because records may have arrived and been lost with their session.
                    self._request_records()
                    self._ready.clear()
                    await self._ready.wait()
        finally:
            self._wants_records = False
        return self.make_ready()

    def make_ready(self) -> bool:
        """Decode acquired batches until a record is buffered. Returns whether one is, or an error must be raised."""
        now = asyncio.get_running_loop().time()
        # One record is enough for a read to return, so no more is decoded here.
        if not self._failures and self.in_flight.next(now) is None:
            if self.in_flight.expired > self._expired:
                count, self._expired = self.in_flight.expired - self._expired, self.in_flight.expired
                self.report_slow(f"the locks of {plural(count, 'record')} ended before the program got them")
            self._decode(1)
            return bool(self._failures) or self._refusals.are_ongoing or self.in_flight.next(now) is not None
        return True

    def _decode(self, max_records: int) -> None:
        """Decode acquired batches, up to ``max_records`` records, ``DECODED_AHEAD`` bytes, or a damaged batch."""
        now = asyncio.get_running_loop().time()
        missing, room = max_records - self.in_flight.decoded, DECODED_AHEAD
        while missing > 0 and room > 0 and not self._failures:
            acquisition = self.in_flight.next_unread(now)
            if acquisition is None:
                return
            decoded = acquisition.decode()
            self.counters.add_decoded(decoded)
            if decoded.records:
                missing -= len(decoded.records)
                room -= decoded.size
            if decoded.settled:
                self.notify_acknowledged(acquisition)
            if decoded.failure is not None:
                self.raise_once(decoded.failure)

    def _request_records(self) -> None:
        self._wants_records = True
        for fetcher in self._fetchers.values():
            fetcher.wake()

    def take(self, max_records: int) -> list[AnyShareRecord]:
        """Take up to ``max_records`` buffered records, which are returned to the user now."""
        max_records = self.pace.most_returned(max_records)
        if max_records > 1:  # ``make_ready`` has decoded one
            self._decode(max_records)
        records: list[AnyShareRecord] = []
        now = asyncio.get_running_loop().time()
        for acquisition, buffered in self.in_flight.peek(max_records, now):
            self.in_flight.take(acquisition, len(buffered), now)
            records += buffered
        self.pace.returned(len(records), now)
        return records

    async def take_deserialized(self, max_records: int) -> list[AnyShareRecord]:
        """Take records like ``take``, with deserialized keys and values. If it is cancelled, no record is taken.

        Raises DeserializationError; if other records come before the failed one, the next read raises it.
        """
        deserializing = self.options.deserializing
        assert deserializing is not None
        max_records = self.pace.most_returned(max_records)
        self._decode(max_records)
        peeked = self.in_flight.peek(max_records, asyncio.get_running_loop().time())
        results = [(acquisition, buffered, await deserializing.run(buffered)) for acquisition, buffered in peeked]
        # Nothing is awaited from here on: either all of these records are returned, or none.
        records: list[AnyShareRecord] = []
        now = asyncio.get_running_loop().time()
        for acquisition, buffered, result in results:
            for raw, record in zip(buffered, result.records):
                if not acquisition.is_next(raw):
                    continue  # the record was lost or released meanwhile
                if record is None:
                    acquisition.settle_unread(raw, AcknowledgeType.REJECT)
                    self.notify_acknowledged(acquisition)
                else:
                    self.in_flight.take(acquisition, 1, now)
                    records.append(record)
            if result.failure is not None and acquisition.is_next(failed := buffered[len(result.records)]):
                acquisition.settle_unread(failed, AcknowledgeType.RELEASE)
                self.notify_acknowledged(acquisition)
                self.raise_once(result.failure)
                break
        if not records:
            self.raise_failure()
        self.pace.returned(len(records), now)
        return records

    # The calls of the fetchers.

    def wanted_records(self) -> int:
        if not self._wants_records or self.in_flight.buffered:
            return 0
        return self.pace.most_acquired(len(self._fetchers))

    def keep(self, node_id: int) -> Kept:
        now = asyncio.get_running_loop().time()
        longest = self.options.share.renew_locks_for
        return self.in_flight.keep(
            node_id,
            now,
            taken_within_lock=self.pace.taken_within_lock(now),
            longest=longest,
            reads_no_more=self.pace.last_read_ago >= longest,
        )

    def report_slow(self, what: str) -> None:
        self.pace.report_slow(what)

    def on_records(self, lock_timeout: float) -> None:
        self.pace.lock_timeout = lock_timeout
        self._wants_records = False
        self._ready.set()

    # Acknowledging.

    def acknowledge(self, record: AnyShareRecord, kind: AcknowledgeType) -> None:
        """Acknowledge a returned record. Raises IllegalStateError if the record is not in flight."""
        now = asyncio.get_running_loop().time()
        self.notify_acknowledged(self.in_flight.acknowledge(record, kind, now))

    def accept_returned(self) -> None:
        """Accept all records that were returned and not acknowledged."""
        for acquisition in self.in_flight.accept_returned():
            self.notify_acknowledged(acquisition)

    def notify_acknowledged(self, acquisition: Acquisition) -> None:
        self._fetchers[acquisition.node_id].acknowledged()

    async def renew(self, record: AnyShareRecord) -> float:
        """Begin the lock of a returned record again. Returns the seconds of the new lock."""
        return await self._fetchers[self.in_flight.find(record).node_id].renew(record)

    def flush(self) -> list[asyncio.Future[None]]:
        """Send all acknowledgements at once. Each future is done when its acknowledgements have results."""
        return [fetcher.flush() for fetcher in self._fetchers.values()]

    def take_result(self) -> AcknowledgementResult:
        """Take the results since the last call."""
        result = AcknowledgementResult(self._acknowledged, self._refused)
        self._acknowledged, self._refused = {}, {}
        return result

    def on_settled(self, settled: Acknowledgements) -> None:
        counts, partition = settled.counts(), settled.acquisition.partition
        if not counts:
            return
        if settled.error is None:
            self._acknowledged[partition] = self._acknowledged.get(partition, 0) + counts.total()
            self.counters.accepted += counts[AcknowledgeType.ACCEPT]
            self.counters.released += counts[AcknowledgeType.RELEASE]
            self.counters.rejected += counts[AcknowledgeType.REJECT]
        else:
            self._refused[partition] = settled.error
            self.counters.refused += counts.total()
            logger.warning(
                "share group %s: could not acknowledge %s of %s; the group will get them again: %s",
                *(self.options.share.group_id, plural(counts.total(), "record"), partition, settled.error),
            )
        if self.options.interceptors is not None:
            self.options.interceptors.on_acknowledged(partition, counts.total(), settled.error)
        if self.options.on_acknowledged is not None:
            try:
                in_copy(self.options.on_acknowledged, partition, settled.offsets, settled.error)
            except Exception as error:  # noqa: BLE001 - a callback may raise anything, and the user gets it
                self.raise_once(error)
            except asyncio.CancelledError:  # CancelledError is not an Exception, so it would end the fetcher
                self.raise_once(
                    IllegalStateError("on_acknowledged raised CancelledError, although no task was cancelled")
                )


def _member_id(new_id: Callable[[], str]) -> str:
    """Return a random UUID as Kafka writes it: 22 characters of base64.

    The id has no leading dash, because a command-line tool would read it as an option.
    """
    while True:
        text = base64.urlsafe_b64encode(UUID(new_id()).bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
