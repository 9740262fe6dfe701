"""One broker's share fetcher: acquires records at that broker, one request at a time, and acknowledges them.

Rules of this file:

1. One request at a time: the epochs of a share session count the requests in their order.
2. Records are fetched only while a read waits and nothing is buffered: acquired records are locked, and no other
   consumer can have them. No more are acquired than the program takes in half a lock, as ``pace`` has it.
3. Acknowledgements go with the next fetch, or alone after ``ACKNOWLEDGE_AFTER`` seconds, or at once when a commit
   waits for them. Renewals never go with a fetch, because the broker would not fetch then.
4. Each request passes through the session: ``fetch`` or ``acknowledge`` before it, then exactly one of ``answered`` and
   ``lost``. A lost session takes its acquired records with it, and fails their acknowledgements.
5. No failure is retried at once. An empty answer that comes too soon counts as a failure.
6. Locks are renewed at half of their time, by requests of their own: a group that refuses renewals would refuse the
   acknowledgements of the same request as well. Records that would reach the program too late are released.
7. ``_wake`` is cleared before the decision, and nothing is awaited until the decision is made: no event is missed.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import anyio

from ..aio.light_event import LightEvent
from ..aio.retry import is_momentary, is_refusal
from ..arguments import plural
from ..cluster.client import Client
from ..errors import BrokerError, ConnectionLost, ErrorCode, KafkaError, error_for
from ..net.connection import Connection, Purpose
from ..protocol.messages import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ..settings.share import ShareConfig
from ..types import TopicPartition
from .acknowledgements import AcknowledgeType
from .answers import Renewal, Results, ShareAnswers
from .counters import ShareCounters, counted
from .in_flight import Acknowledgements, Acquisition, AnyShareRecord, InFlight, Kept
from .outbox import Outbox
from .requests import acknowledge_request, fetch_request, may_acknowledge_again, may_fetch_again
from .session import FINAL, ShareSession, TopicIdPartition

logger = logging.getLogger(__name__)

FINAL_TIMEOUT = 0.7
"""Seconds for the request that sends the last acknowledgements and closes the session."""


class ShareReading(Protocol):
    """What fetchers ask of the consumer for which they fetch, and report to it: ``ShareCore``."""

    def wanted_records(self) -> int:
        """Return the number of records to acquire at one broker for a read that waits, or 0."""

    def keep(self, node_id: int) -> Kept:
        """Decide about the locks of this broker that are half over."""

    def on_records(self, lock_timeout: float) -> None:
        """Wake the read that waits: records were acquired, with locks of so many seconds."""

    def on_settled(self, settled: Acknowledgements) -> None:
        """Record the result of acknowledgements."""

    def report_slow(self, what: str) -> None:
        """Report records that do not reach the program, or not within their lock."""

    def raise_once(self, error: Exception) -> None:
        """Let the next read raise this error."""


class BrokerShareFetcher:
    """Acquires and acknowledges records at one broker. Owner: the ``ShareCore``, which runs it as a task."""

    def __init__(
        self,
        node_id: int,
        client: Client,
        config: ShareConfig,
        member_id: str,
        in_flight: InFlight,
        counters: ShareCounters,
        reading: ShareReading,
    ) -> None:
        self.node_id = node_id
        self._client = client
        self._config = config
        self._member_id = member_id
        self._in_flight = in_flight
        self._counters = counters
        self._reading = reading
        self._refuses_renewals = False
        self._has_renewed = False  # whether the broker has renewed a lock
        self._answers = ShareAnswers(
            node_id,
            client,
            config,
            in_flight,
            counters,
            on_settled=reading.on_settled,
            on_failure=reading.raise_once,
        )
        self._session = ShareSession()
        self._wanted: Mapping[TopicIdPartition, TopicPartition] = {}
        self._renewals: list[Renewal] = []
        self._outbox = Outbox(node_id, in_flight, reading.on_settled)
        self._closing = False
        self._stopped = LightEvent()
        self._stopped.set()
        self._wake = LightEvent()
        self._backoff = client.retry_backoff(at_most=max(config.fetch_max_wait, 0.1))
        self._place = f"fetching from broker {node_id}"
        self._access = f"access to broker {node_id}"  # the same for refusals

    def __repr__(self) -> str:
        return f"<BrokerShareFetcher node={self.node_id} epoch={self._session.epoch} partitions={len(self._wanted)}>"

    # Called by the owner.

    def want(self, partitions: Mapping[TopicIdPartition, TopicPartition]) -> None:
        """Fetch these partitions from now on, and no others."""
        self._wanted = partitions
        self._answers.names.update(partitions)
        self.wake()

    def wake(self) -> None:
        """Wake the task: it checks again whether to send a request."""
        self._wake.set()

    def acknowledged(self) -> None:
        """Wake the task: there are new acknowledgements for this broker."""
        if self._outbox.acknowledged(asyncio.get_running_loop().time()):
            self.wake()

    def flush(self) -> asyncio.Future[None]:
        """Send all acknowledgements at once. The promise is fulfilled when they have results."""
        flush = self._outbox.flush()
        self.wake()
        return flush

    @property
    def may_renew(self) -> bool:
        """Whether the broker renews locks, as far as known."""
        return self._answers.may_renew

    def renew(self, record: AnyShareRecord) -> asyncio.Future[float]:
        """Renew the acquisition lock of a record. The promise has the length of the new lock in seconds."""
        promise: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._renewals.append(Renewal(record, promise))
        self.wake()
        return promise

    # The task.

    async def run(self) -> None:
        """Fetch and acknowledge until ``close``, or until nothing is wanted from this broker or in flight."""
        self._stopped.clear()
        try:
            while not self._closing:
                self._wake.clear()
                now = asyncio.get_running_loop().time()
                if self._must_acknowledge(now):
                    await self._acknowledge()
                elif (keep_at := self._in_flight.keep_at(self.node_id)) is not None and keep_at <= now:
                    await self._keep_locks()
                elif self._wanted and (max_records := self._reading.wanted_records()):
                    await self._fetch(max_records)
                elif self._is_idle:
                    await self._end_session([])
                    # Partitions or records may have come during the request.
                    if self._is_idle:
                        for place in (self._place, self._access):
                            self._client.outages.forget(place)
                        return
                else:
                    with anyio.CancelScope() as waiting:
                        times = [time for time in (self._outbox.due, keep_at) if time is not None]
                        waiting.deadline = min(times, default=math.inf)
                        await self._wake.wait()
        finally:
            self._stopped.set()

    async def close(self) -> None:
        """Send no more fetches, and wait for the request in progress, which may acquire records."""
        self._closing = True
        self.wake()
        await self._stopped.wait()

    async def finish(self) -> None:
        """Send the last acknowledgements with the request that closes the session. Call it after ``close``."""
        await self._end_session(self._take())

    @property
    def _is_idle(self) -> bool:
        has_work = self._wanted or self._renewals or self._outbox.has_flushes
        return not (has_work or self._in_flight.holds_records_of(self.node_id))

    def _must_acknowledge(self, now: float) -> bool:
        # Without a session, acknowledgements can only fail, so their results are not delayed.
        return bool(self._renewals) or self._outbox.is_due(now, may_wait=self._session.is_open)

    def _take(self) -> list[Acknowledgements]:
        return self._outbox.take(asyncio.get_running_loop().time())

    # Requests.

    async def _connect(self) -> Connection:
        return await self._client.broker(self.node_id).connection(Purpose.FETCH)

    async def _fetch(self, max_records: int) -> None:
        loop = asyncio.get_running_loop()
        # The broker may wait for records before it answers.
        timeout = self._client.config.request_timeout + self._config.fetch_max_wait
        to_send: list[Acknowledgements] = []
        try:
            connection = await self._connect()
            self._answers.may_renew = (
                self._config.renew_locks_for > 0
                and not self._refuses_renewals
                and connection.versions.supports(ShareAcknowledgeRequest.RENEW)
            )
            # Taken after the last await before the request, so that acknowledgements that came meanwhile are sent too.
            to_send = self._take()
            if any(acknowledgements.acquisition.key not in self._wanted for acknowledgements in to_send):
                # A fetch would add their partitions to the session again.
                await self._send_acknowledgements(connection, to_send, [])
                return
            if not self._session.is_open:
                self._counters.sessions_opened += 1
            session_request = self._session.fetch(dict(self._wanted))
            request = fetch_request(
                self._config.group_id, self._member_id, session_request, self._config, to_send, max_records
            )
            began = loop.time()
            self._counters.fetch_requests += 1
            response = await counted(self._counters.fetches, connection.send(request, timeout=timeout))
            code = ErrorCode.of(response.error_code)
            if not self._session_continues(code, response.error_message, to_send):
                if self._session.is_open:  # the end of the session is reported by itself
                    self._report(error_for(code, "fetching records"))
                await asyncio.sleep(self._backoff.next())
                return
            result = self._answers.fetched(response, to_send, began)
        except KafkaError as error:
            await self._failed(error, to_send)
            return
        if result.refusal is not None:
            self._report(result.refusal, logging.INFO)  # normal when the leader moves
        elif not self._answers.refused_lately:
            for place in (self._place, self._access):
                self._client.outages.recovered(logger, place, "fetched from broker %s again", self.node_id)
        self._outbox.settled()
        if result.has_records:
            self._backoff.reset()
            self._reading.on_records(response.acquisition_lock_timeout_ms / 1000)
        elif result.is_refused or (not to_send and loop.time() - began < self._config.fetch_max_wait / 2):
            await asyncio.sleep(self._backoff.next())

    async def _acknowledge(self) -> None:
        to_send: list[Acknowledgements] = []
        renewals: list[tuple[Renewal, Acquisition]] = []
        try:
            connection = await self._connect()
            to_send = self._take()
            renewals = self._take_renewals(connection)
            if to_send or renewals:
                await self._send_acknowledgements(connection, to_send, renewals)
            else:
                self._outbox.settled()
        except KafkaError as error:
            for renewal, _ in renewals:
                renewal.fail(error)
            await self._failed(error, to_send)

    async def _send_acknowledgements(
        self, connection: Connection, to_send: list[Acknowledgements], renewals: Sequence[tuple[Renewal, Acquisition]]
    ) -> None:
        began = asyncio.get_running_loop().time()
        of_renewals = (
            Acknowledgements(acquisition, {renewal.record.offset: AcknowledgeType.RENEW})
            for renewal, acquisition in renewals
        )
        response = await self._request(connection, self._session.acknowledge(), [*to_send, *of_renewals])
        code = ErrorCode.of(response.error_code)
        if not self._session_continues(code, response.error_message, to_send):
            for renewal, acquisition in renewals:
                renewal.fail(acquisition.lost or error_for(code, "renewing an acquisition lock"))
            await asyncio.sleep(self._backoff.next())
            return
        results = self._answers.results(response)
        is_repeated = False in [self._answers.settle(acknowledgements, results) for acknowledgements in to_send]
        self._answers.renewed(renewals, results, began, response.acquisition_lock_timeout_ms / 1000)
        self._outbox.settled()
        if is_repeated:
            await asyncio.sleep(self._backoff.next())
        else:
            self._backoff.reset()

    async def _request(
        self,
        connection: Connection,
        epoch: int,
        acknowledged: Sequence[Acknowledgements],
        timeout: float | None = None,
    ) -> ShareAcknowledgeResponse:
        request = acknowledge_request(self._config.group_id, self._member_id, epoch, acknowledged)
        self._counters.acknowledge_requests += 1
        answer = connection.send(request, timeout=timeout or self._client.config.request_timeout)
        return await counted(self._counters.acknowledges, answer)

    async def _keep_locks(self) -> None:
        """Renew the locks of records here and in the program, and release what the program cannot get in time."""
        decision = self._reading.keep(self.node_id)
        if decision.released:
            self._reading.report_slow(
                f"{plural(decision.released, 'record')} released that the program would have got too late"
            )
            self._outbox.acknowledged(asyncio.get_running_loop().time())
        if decision.abandoned:
            self._reading.report_slow(
                f"the program has had {plural(decision.abandoned, 'record')} for more than "
                f"renew_locks_for={self._config.renew_locks_for:g} s, so their locks end"
            )
        if not decision.renewals:
            return
        try:
            connection = await self._connect()
            if not connection.versions.supports(ShareAcknowledgeRequest.RENEW):  # the broker has an older version now
                self._has_renewed = False
                self._stop_renewals([], f"broker {self.node_id} renews no locks")
                return
            began = asyncio.get_running_loop().time()
            response = await self._request(connection, self._session.acknowledge(), decision.renewals)
            code = ErrorCode.of(response.error_code)
            if not self._session_continues(code, response.error_message, []):
                await asyncio.sleep(self._backoff.next())
                return
            results = self._answers.results(response)
            refused = self._answers.kept(decision.renewals, results, began, response.acquisition_lock_timeout_ms / 1000)
        except KafkaError as error:
            await self._failed(error, [])
            return
        self._has_renewed = self._has_renewed or len(refused) < len(decision.renewals)
        final = [
            (acquisition, error)
            for acquisition, error in refused
            if not (isinstance(error, BrokerError) and may_acknowledge_again(error))
        ]
        if final:
            why = f"broker {self.node_id} renews no locks ({final[0][1]})"
            self._stop_renewals([acquisition for acquisition, _ in final], why)
        if len(refused) > len(final):
            await asyncio.sleep(self._backoff.next())
        else:
            self._backoff.reset()

    def _stop_renewals(self, refused: Sequence[Acquisition], why: str) -> None:
        """Renew these locks no more, after a refusal.

        A group that has renewals turned off refuses all of them. A broker that has renewed locks before refuses a lock
        that has ended, for example while the broker stood still, and renews others.
        """
        if self._has_renewed:
            for acquisition in refused:
                self._in_flight.refuse_renewal(acquisition)
            return
        self._refuses_renewals, self._answers.may_renew = True, False
        self._in_flight.refuse_renewals(self.node_id)
        self._reading.report_slow(why)

    async def _end_session(self, to_send: list[Acknowledgements]) -> None:
        """Close the session with a request that carries these acknowledgements. Never raises a KafkaError."""
        error: KafkaError | None = ConnectionLost(f"broker {self.node_id} did not answer in time", sent=True)
        results: Results = {}
        if self._session.is_open:
            with anyio.move_on_after(FINAL_TIMEOUT):
                try:
                    connection = await self._connect()
                    response = await self._request(connection, FINAL, to_send, FINAL_TIMEOUT)
                    code = ErrorCode.of(response.error_code)
                    error = None if code is ErrorCode.NONE else error_for(code, response.error_message or "")
                    results = self._answers.results(response)
                except KafkaError as failure:
                    error = failure
                    logger.debug("could not close the share session with broker %s: %s", self.node_id, failure)
        for acknowledgements in to_send:
            result = error or self._answers.result_of(acknowledgements.acquisition, results)
            self._reading.on_settled(replace(acknowledgements, error=result))
        # Whatever the answer was, the next request has to open a session.
        self._session.lost()
        self._outbox.settled()

    async def _failed(self, error: KafkaError, sent: Sequence[Acknowledgements]) -> None:
        """Handle a request that was not answered. Raises the error if a retry cannot help."""
        self._lose(error, sent)
        if not is_momentary(error):
            raise error
        self._report(error)
        self._client.request_refresh()
        await asyncio.sleep(self._backoff.next())

    def _report(self, error: KafkaError, level: int = logging.WARNING) -> None:
        what = "fetching from broker %s failed; retrying: %s"
        place = self._place
        if is_refusal(error):
            # In an outage of its own: an operator may have to act, and a move of a leader begins the other outage.
            place, level = self._access, logging.WARNING
        problem = f"fetching from broker {self.node_id} fails: {error}"
        self._client.outages.report(
            logger, place, error, what, self.node_id, error, level=level, problem=problem, is_partial=True
        )

    def _lose(self, error: KafkaError, sent: Sequence[Acknowledgements]) -> None:
        """Drop the lost session and all records that were acquired in it (rule 4)."""
        if self._session.is_open:
            self._counters.sessions_lost += 1
        self._session.lost()
        self._in_flight.lose(self.node_id, error)
        for acknowledgements in sent:
            self._reading.on_settled(replace(acknowledgements, error=error))
        self._take()  # settles the acknowledgements: all of them are lost
        for renewal in self._renewals:
            renewal.fail(error)
        self._renewals.clear()
        self._outbox.settled()

    def _session_continues(self, code: ErrorCode, message: str | None, sent: Sequence[Acknowledgements]) -> bool:
        """Apply the code of an answer to the session. Returns whether it counts. Raises if a retry cannot help."""
        continues = self._session.answered(code)
        if code is ErrorCode.NONE:
            return True
        details = f" ({message})" if message else ""
        error = error_for(code, f"broker {self.node_id} refused a request of its share session{details}")
        # The broker has kept the session and the acquired records, so acknowledgements may be sent again.
        if continues:
            if is_refusal(error):
                self._report(error)
            elif not may_fetch_again(error):
                raise error
            for acknowledgements in sent:
                if may_acknowledge_again(error):
                    self._in_flight.put_back(replace(acknowledgements, error=error))
                else:
                    self._reading.on_settled(replace(acknowledgements, error=error))
            self._outbox.settled()
        else:
            self._client.outages.report(
                logger,
                self._place,
                error,
                "broker %s ended the share session: %s",
                self.node_id,
                code.name,
                level=logging.INFO,
            )
            self._lose(error, sent)
        return False

    def _take_renewals(self, connection: Connection) -> list[tuple[Renewal, Acquisition]]:
        """Take the renewals of the next request, with their present acquisitions.

        Renewals that the broker would refuse fail here.
        """
        now = asyncio.get_running_loop().time()
        renewals, self._renewals = self._renewals, []
        to_send: list[tuple[Renewal, Acquisition]] = []
        for renewal in renewals:
            try:
                acquisition = self._in_flight.find(renewal.record)
                connection.versions.require(ShareAcknowledgeRequest.RENEW, "renew()")
            except KafkaError as error:
                renewal.fail(error)
                continue
            failure = acquisition.failure(now)
            if failure is None:
                to_send.append((renewal, acquisition))
            else:
                renewal.fail(failure)
        return to_send
