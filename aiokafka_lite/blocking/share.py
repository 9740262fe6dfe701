"""``ShareConsumer``, for threads without an event loop.

Written by docs/make_blocking.py from the asyncio classes, which have the same calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..aio.runtime import wall_clock
from ..arguments import check_timeout
from ..method_names import SHARE_CONSUMER
from ..share.consumer import ShareConsumer as AsyncShareConsumer
from ..types import K, V
from .reading import BlockingShareConsumer
from .wrapper import named_elsewhere

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from typing import Self, Unpack

    from ..aio.service import ServiceState
    from ..cluster.health import Health
    from ..net.connector import Connector
    from ..net.metrics import BrokerTraffic
    from ..serialization.deserializer import Deserializer
    from ..settings.keywords import ShareConsumerSettings
    from ..share.deserializing import OnShareDeserializationError
    from ..share.diagnosis import ShareConsumerDiagnosis
    from ..share.metrics import ShareConsumerMetrics
    from ..share.results import AcknowledgementResult, OnAcknowledged
    from ..types import Names, ShareRecord, TopicPartition


class ShareConsumer(BlockingShareConsumer[K, V]):
    """Reads records of topics as a member of a share group (KIP-932), and acknowledges each record by itself.

    This is ``aiokafka_lite.ShareConsumer`` for threads without an event loop: its calls wait.

    Several consumers of a group may read one partition. A broker locks each record that it delivers, for the group's
    ``share.record.lock.duration.ms`` (30 seconds by default). ``accept`` ends the delivery of a record, ``release``
    makes it available again, ``reject`` drops it, ``renew`` begins its lock again. The client renews locks by itself
    for ``renew_locks_for`` seconds, and acquires no more records than the program takes within half a lock (Kafka 4.2).
    A record is delivered again when its lock expires or its consumer ends; after ``share.delivery.count.limit``
    deliveries (5 by default) it is archived. Records are not in order across redeliveries.

    With ``acknowledgement_mode="implicit"``, the next read, or ``commit``, accepts all records that earlier reads
    returned and that the program has not acknowledged. With ``"explicit"``, a read raises IllegalStateError while a
    returned record is not acknowledged. In both modes, ``close`` releases the records that are not acknowledged.

    ``on_acknowledged`` is called with a partition, offsets, and None or the error that refused their acknowledgements.
    If it raises, the next read raises its exception once. ``on_deserialization_error`` decides about a record that the
    deserializers refuse: ``"raise"`` releases it and raises DeserializationError once, ``"reject"`` rejects it,
    ``"raw"`` returns its bytes. A damaged batch is rejected, and the read raises CorruptRecord once.

    Use it in ``with``, or between ``start()`` and ``close()``. One thread reads; any thread may acknowledge. An
    interrupted read returns no record, and accepts only records of earlier reads. Requires Kafka 4.2, or 4.1 with the
    feature ``share.version=1``.
    """

    _inner: AsyncShareConsumer[K, V]

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
        super().__init__(
            AsyncShareConsumer(
                bootstrap_servers,
                topics=topics,
                group_id=group_id,
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
                on_deserialization_error=on_deserialization_error,
                on_acknowledged=on_acknowledged,
                connector=connector,
                clock=clock,
                **settings,
            )
        )

    def close(self, timeout: float | None = None) -> None:
        """Send the acknowledgements, release all other records, leave the group, within ``timeout`` seconds.

        The default is 3 seconds. It is longer if ``fetch_max_wait`` is above 0.6, because a fetch may be in progress.
        The last read's records are released, also in implicit mode: call ``commit`` first if they are processed. Raises
        the exception that had already ended the consumer, or an error that no read has raised.
        """
        check_timeout(timeout)
        self._end(self._inner.close, timeout)

    def __iter__(self) -> Self:
        """Iterate over records until the consumer is closed. Each step is a read of one record."""
        self._run(self._inner.__aiter__)
        return self

    def __next__(self) -> ShareRecord[K, V]:
        return self._take_next(self._inner.__anext__)

    def poll(self, max_records: int = 500, timeout: float = 0.0) -> list[ShareRecord[K, V]]:
        """Return up to ``max_records`` acquired records; if there are none, wait ``timeout`` seconds for some.

        There are fewer if the program would not process as many in half of ``renew_locks_for``, and at most 16 at the
        first read, when its pace is not known. Raises IllegalStateError while another thread reads and, in explicit
        mode, while a returned record is not acknowledged. Raises AuthorizationError, DeserializationError and
        CorruptRecord, each once.
        """
        return self._take(max_records, self._inner.poll, max_records, timeout)

    def accept(self, record: ShareRecord[K, V]) -> None:
        """Accept a processed record. The next fetch, within half a second, or ``commit`` sends this to the broker.

        Raises IllegalStateError if this consumer has not returned the record, or if it is acknowledged already.
        """
        self._run(self._inner.accept, record)

    def release(self, record: ShareRecord[K, V]) -> None:
        """Make the record available again to all consumers of the group. Otherwise like ``accept``."""
        self._run(self._inner.release, record)

    def reject(self, record: ShareRecord[K, V]) -> None:
        """Never deliver the record again, because it cannot be processed. Otherwise like ``accept``."""
        self._run(self._inner.reject, record)

    def renew(self, record: ShareRecord[K, V], *, timeout: float | None = None) -> float:
        """Begin the acquisition lock of the record again (KIP-1222), and return its length in seconds.

        The record remains to be acknowledged. Raises UnsupportedVersion before Kafka 4.2, KafkaTimeout after
        ``timeout`` seconds (``api_timeout`` by default), and IllegalStateError as ``accept``. Raises BrokerError if the
        lock had expired, or if the group does not allow renewals.
        """
        return self._await(self._inner.renew, record, timeout=timeout)

    def commit_nowait(self) -> None:
        """Send the acknowledgements at once, without waiting. In implicit mode, accept all returned records first.

        ``on_acknowledged`` gets the results, and so does the next ``commit``.
        """
        self._run(self._inner.commit_nowait)

    def commit(self, *, timeout: float | None = None) -> AcknowledgementResult:
        """Send the acknowledgements, and wait for their results. In implicit mode, accept all returned records first.

        The result covers everything since the last ``commit``. Refused records are in the result and in the log, and
        raise no exception: ``raise_for_refused()`` raises them. Raises KafkaTimeout after ``timeout`` seconds
        (``api_timeout`` by default); then, and if the call is interrupted, the acknowledgements are still sent.
        """
        return self._await(self._inner.commit, timeout=timeout)

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that this consumer reads. Other members may read them too."""
        value: tuple[TopicPartition, ...] = self._read("assignment")
        return value

    @property
    def member_id(self) -> str:
        """The id of this member. The consumer has chosen it."""
        value: str = self._read("member_id")
        return value

    @property
    def acquisition_lock_timeout(self) -> float | None:
        """The seconds for which a broker locks a record for this consumer; None before the first record."""
        value: float | None = self._read("acquisition_lock_timeout")
        return value

    def set_credentials(self, username: str, password: str) -> None:
        """Log in with this user name and password from now on (PLAIN and SCRAM), for example after a rotation.

        Open connections stay open; they use the new password when they log in again. May be called before the start
        too. Raises ConfigurationError for a wrong value, for a client that does not log in with a password, and if
        ``sasl_password`` is a function.
        """
        self._run(self._inner.set_credentials, username, password)

    def metrics(self) -> ShareConsumerMetrics:
        """Return the counters of this consumer so far, and its state now."""
        return self._run(self._inner.metrics)

    def health(self, *, max_silence: float = 60.0, max_poll_ago: float | None = None) -> Health:
        """Report whether the consumer works, for liveness and readiness probes.

        It is not live after a failure, after ``close``, and when the program has not asked for records for more than
        ``max_poll_ago`` seconds. By default there is no such limit, because share groups have no ``max_poll_interval``.
        It is not ready before the start, and while it is not a member of its group. It is also not ready when requests
        wait or fail, and no broker has answered for more than ``max_silence`` seconds, and when acquired records have
        lately been released or lost because the program was too slow. Raises ConfigurationError for a wrong limit.
        """
        return self._run(self._inner.health, max_silence=max_silence, max_poll_ago=max_poll_ago)

    def diagnose(self) -> ShareConsumerDiagnosis:
        """Describe the consumer, its membership, its records in flight, its connections and its event loop.

        Print it into a bug report. It asks no broker and does not wait.
        """
        return self._run(self._inner.diagnose)

    def traffic(self) -> Mapping[int, BrokerTraffic]:
        """Return requests, bytes, latencies and throttle times of each broker, by its id, over all APIs.

        A bootstrap address has a negative id.
        """
        return self._run(self._inner.traffic)

    @property
    def state(self) -> ServiceState:
        value: ServiceState = self._read("state")
        return value

    def start(self, timeout: float | None = None) -> None:
        """Start the component within ``timeout`` seconds (``api_timeout`` by default).

        Raises KafkaTimeout, or the error that prevented the start. After an error or an interrupt, no task and no
        connection remains.
        """
        self._begin(self._inner.start, timeout)
