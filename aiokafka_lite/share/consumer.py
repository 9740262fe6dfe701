"""``ShareConsumer``: the public class. ``core`` has the parts, ``in_flight`` the states of a record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Unpack

from ..aio.component import Component
from ..aio.deadline import deadline
from ..aio.light_event import result_of
from ..aio.runtime import Runtime, wall_clock
from ..arguments import check_max_records, check_timeout, check_wait, must_be
from ..errors import IllegalStateError
from ..method_names import SHARE_CONSUMER, named_elsewhere
from ..net.connector import Connector
from ..serialization.deserializer import Deserializer
from ..types import K, Names, ShareRecord, TopicPartition, V
from .acknowledgements import AcknowledgeType
from .core import ShareCore
from .deserializing import OnShareDeserializationError, ShareDeserializing
from .results import AcknowledgementResult, OnAcknowledged
from .settings import share_options

if TYPE_CHECKING:
    from ..cluster.health import Health
    from ..net.metrics import BrokerTraffic
    from ..settings.keywords import ShareConsumerSettings
    from .diagnosis import ShareConsumerDiagnosis
    from .metrics import ShareConsumerMetrics


class ShareConsumer(Component, Generic[K, V]):
    """Reads records of topics as a member of a share group (KIP-932), and acknowledges each record by itself.

    Several consumers of a group may read one partition. A broker locks each record that it delivers, for the group's
    ``share.record.lock.duration.ms`` (30 seconds by default). ``accept`` ends the delivery of a record, ``release``
    makes it available again, ``reject`` drops it, ``renew`` begins its lock again. The client renews locks by itself
    for ``renew_locks_for`` seconds, and acquires no more records than the program takes within half a lock (Kafka 4.2).
    A record is delivered again when its lock expires or its consumer ends; after ``share.delivery.count.limit``
    deliveries (5 by default) it is archived.
    Records are not in order across redeliveries.

    With ``acknowledgement_mode="implicit"``, the next read, or ``commit``, accepts all records that earlier reads
    returned and that the program has not acknowledged. With ``"explicit"``, a read raises IllegalStateError while a
    returned record is not acknowledged. In both modes, ``close`` releases the records that are not acknowledged.

    ``on_acknowledged`` is called with a partition, offsets, and None or the error that refused their acknowledgements.
    If it raises, the next read raises its exception once. ``on_deserialization_error`` decides about a record that the
    deserializers refuse: ``"raise"`` releases it and raises DeserializationError once, ``"reject"`` rejects it,
    ``"raw"`` returns its bytes. A damaged batch is rejected, and the read raises CorruptRecord once.

    Use it in ``async with``, or between ``start()`` and ``close()``. One task reads; any task may acknowledge. A
    cancelled read returns no record, and accepts only records of earlier reads. Requires Kafka 4.2, or 4.1 with the
    feature ``share.version=1``.
    """

    if not TYPE_CHECKING:
        __getattr__ = named_elsewhere(SHARE_CONSUMER)

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        topics: Names,
        group_id: str,
        key_deserializer: Deserializer[K] | Callable[[bytes], K | Awaitable[K]] | None = None,
        value_deserializer: Deserializer[V] | Callable[[bytes], V | Awaitable[V]] | None = None,
        on_deserialization_error: OnShareDeserializationError = "raise",
        on_acknowledged: OnAcknowledged | None = None,
        connector: Connector | None = None,
        clock: Callable[[], float] = wall_clock,
        **settings: Unpack[ShareConsumerSettings],
    ) -> None:
        super().__init__()
        options = share_options(
            topics,
            bootstrap_servers,
            group_id,
            settings,
            deserializing=ShareDeserializing.of(key_deserializer, value_deserializer, on_deserialization_error),
            on_acknowledged=on_acknowledged,
            connector=connector,
            runtime=Runtime(clock),
        )
        self._options = options
        self._is_explicit = options.share.acknowledgement_mode == "explicit"
        self._core = ShareCore(self._service, options)

    def __repr__(self) -> str:
        return f"<ShareConsumer {self._options.client.client_id} {self.state.name} {self._core.membership.member!r}>"

    async def _on_start(self) -> None:
        await self._core.start()

    async def _on_close(self) -> None:
        await self._core.close()

    async def close(self, timeout: float | None = None) -> None:
        """Send the acknowledgements, release all other records, leave the group, within ``timeout`` seconds.

        The default is 3 seconds. It is longer if ``fetch_max_wait`` is above 0.6, because a fetch may be in progress.
        The last read's records are released, also in implicit mode: call ``commit`` first if they are processed. Raises
        the exception that had already ended the consumer, or an error that no read has raised.
        """
        check_timeout(timeout)
        await super().close(self._core.close_timeout if timeout is None else timeout)
        self._core.raise_failure()

    # Reading.

    def __aiter__(self) -> ShareConsumer[K, V]:
        """Iterate over records until the consumer is closed. Each step is a read of one record."""
        self._service.check()
        return self

    async def __anext__(self) -> ShareRecord[K, V]:
        while True:
            records = await self._read(1, None)
            if records:
                return records[0]

    async def poll(self, max_records: int = 500, timeout: float = 0.0) -> list[ShareRecord[K, V]]:
        """Return up to ``max_records`` acquired records; if there are none, wait ``timeout`` seconds for some.

        There are fewer if the program would not process as many in half of ``renew_locks_for``, and at most 16 at the
        first read, when its pace is not known.
        Raises IllegalStateError while another task reads and, in explicit mode, while a returned record is not
        acknowledged. Raises AuthorizationError, DeserializationError and CorruptRecord, each once.
        """
        check_max_records(max_records)
        check_wait(timeout)
        return await self._read(max_records, timeout)

    async def _read(self, max_records: int, timeout: float | None) -> list[ShareRecord[K, V]]:
        records = await self._take(max_records, timeout)
        interceptors = self._options.interceptors
        return records if interceptors is None else interceptors.on_consume(records)

    async def _take(self, max_records: int, timeout: float | None) -> list[ShareRecord[K, V]]:
        self._service.check()
        self._core.begin_read(max_records)
        try:
            self._settle_last_read()
            if self._core.pace.must_yield:
                await asyncio.sleep(0)
            if not self._core.make_ready() and not await self._service.while_running(self._core.wait_ready(timeout)):
                return []
            self._core.raise_failure()
            self._core.raise_refusal()
            if self._options.deserializing is None:
                return self._core.take(max_records)
            return await self._service.while_running(self._core.take_deserialized(max_records))
        finally:
            self._core.pace.end_read()

    def _settle_last_read(self) -> None:
        """Accept the records of the last read, or refuse to read on in explicit mode."""
        if not self._is_explicit:
            self._core.accept_returned()
        elif (unacknowledged := self._core.in_flight.unacknowledged()) is not None:
            partition, offset = unacknowledged
            raise IllegalStateError(
                f"offset {offset} of {partition} is not acknowledged: call accept(), release() or reject() for each "
                'record before the next read, or use acknowledgement_mode="implicit"'
            )

    # Acknowledging.

    def accept(self, record: ShareRecord[K, V]) -> None:
        """Accept a processed record. The next fetch, within half a second, or ``commit`` sends this to the broker.

        Raises IllegalStateError if this consumer has not returned the record, or if it is acknowledged already.
        """
        self._acknowledge(record, AcknowledgeType.ACCEPT)

    def release(self, record: ShareRecord[K, V]) -> None:
        """Make the record available again to all consumers of the group. Otherwise like ``accept``."""
        self._acknowledge(record, AcknowledgeType.RELEASE)

    def reject(self, record: ShareRecord[K, V]) -> None:
        """Never deliver the record again, because it cannot be processed. Otherwise like ``accept``."""
        self._acknowledge(record, AcknowledgeType.REJECT)

    async def renew(self, record: ShareRecord[K, V], *, timeout: float | None = None) -> float:
        """Begin the acquisition lock of the record again (KIP-1222), and return its length in seconds.

        The record remains to be acknowledged. Raises UnsupportedVersion before Kafka 4.2, KafkaTimeout after
        ``timeout`` seconds (``api_timeout`` by default), and IllegalStateError as ``accept``. Raises BrokerError if the
        lock had expired, or if the group does not allow renewals.
        """
        limit = self._core.client.limit(timeout)
        self._service.check()
        place = f"{_checked(record).topic}-{record.partition} at offset {record.offset}"
        with deadline(limit, lambda: f"the lock of {place} was not renewed within {limit:g} s"):
            return await self._service.while_running(self._core.renew(record))

    def commit_nowait(self) -> None:
        """Send the acknowledgements at once, without waiting. In implicit mode, accept all returned records first.

        ``on_acknowledged`` gets the results, and so does the next ``commit``.
        """
        self._service.check()
        self._flush()

    async def commit(self, *, timeout: float | None = None) -> AcknowledgementResult:
        """Send the acknowledgements, and wait for their results. In implicit mode, accept all returned records first.

        The result covers everything since the last ``commit``. Refused records are in the result and in the log, and
        raise no exception: ``raise_for_refused()`` raises them. Raises KafkaTimeout after ``timeout`` seconds
        (``api_timeout`` by default); then, and if the call is cancelled, the acknowledgements are still sent.
        """
        limit = self._core.client.limit(timeout)
        self._service.check()
        in_flight = self._core.in_flight
        in_flight.last_error = None

        def describe() -> str:
            cause = "" if in_flight.last_error is None else f"; the last error was: {in_flight.last_error}"
            return f"acknowledgements had no results within {limit:g} s{cause}"

        promises = self._flush()
        with deadline(limit, describe):
            await self._service.while_running(_all(promises))
        return self._core.take_result()

    def _flush(self) -> list[asyncio.Future[None]]:
        if not self._is_explicit:
            self._core.accept_returned()
        return self._core.flush()

    def _acknowledge(self, record: ShareRecord[K, V], kind: AcknowledgeType) -> None:
        self._service.check()
        self._core.acknowledge(_checked(record), kind)

    # State of the consumer.

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that this consumer reads. Other members may read them too."""
        self._service.check_process()
        return self._core.assignment

    @property
    def member_id(self) -> str:
        """The id of this member. The consumer has chosen it."""
        self._service.check_process()
        return self._core.membership.member.member_id

    @property
    def acquisition_lock_timeout(self) -> float | None:
        """The seconds for which a broker locks a record for this consumer; None before the first record."""
        self._service.check_process()
        return self._core.pace.lock_timeout

    def set_credentials(self, username: str, password: str) -> None:
        """Log in with this user name and password from now on (PLAIN and SCRAM), for example after a rotation.

        Open connections stay open; they use the new password when they log in again. May be called before the start
        too, in the event loop. Raises ConfigurationError for a wrong value, for a client that does not log in with a
        password, and if ``sasl_password`` is a function.
        """
        self._service.check_process()
        self._core.client.set_credentials(username, password)

    def metrics(self) -> ShareConsumerMetrics:
        """Return the counters of this consumer so far, and its state now."""
        self._service.check_process()
        return self._core.metrics()

    def health(self, *, max_silence: float = 60.0, max_poll_ago: float | None = None) -> Health:
        """Report whether the consumer works, for liveness and readiness probes.

        It is not live after a failure, after ``close``, and when the program has not asked for records for more than
        ``max_poll_ago`` seconds. By default there is no such limit, because share groups have no ``max_poll_interval``.
        It is not ready before the start, and while it is not a member of its group. It is also not ready when requests
        wait or fail, and no broker has answered for more than ``max_silence`` seconds, and when acquired records have
        lately been released or lost because the program was too slow. Raises ConfigurationError for a wrong limit.
        """
        from .diagnosis import share_health

        self._service.check_process()
        return share_health(self._service, self._core, max_silence=max_silence, max_poll_ago=max_poll_ago)

    def diagnose(self) -> ShareConsumerDiagnosis:
        """Describe the consumer, its membership, its records in flight, its connections and its event loop.

        Print it into a bug report. It asks no broker and does not wait; call it in the event loop.
        """
        from .diagnosis import share_diagnosis

        self._service.check_process()
        return share_diagnosis(self._service, self._core)

    def traffic(self) -> Mapping[int, BrokerTraffic]:
        """Return requests, bytes, latencies and throttle times of each broker, by its id, over all APIs.

        A bootstrap address has a negative id. Call it in the event loop.
        """
        self._service.check_process()
        return self._core.client.traffic()


async def _all(promises: list[asyncio.Future[None]]) -> None:
    for promise in promises:
        await result_of(promise)


def _checked(record: object) -> ShareRecord[Any, Any]:
    if not isinstance(record, ShareRecord):
        raise TypeError(must_be("record", "a record that this consumer returned", record))
    return record
