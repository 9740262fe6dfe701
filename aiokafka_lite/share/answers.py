"""Applying the answers of one broker: acquired records, results of acknowledgements, new leaders, and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from ..aio.retry import is_refusal
from ..cluster.client import Client
from ..errors import BrokerError, ErrorCode, KafkaError, KafkaTimeout, ProtocolError, error_for
from ..protocol.messages import ShareAcknowledgeResponse, ShareFetchResponse, ShareFetchResponsePartition
from ..settings.share import ShareConfig
from ..types import TopicPartition
from .acquired import AcquiredRecords, check_acquired
from .counters import ShareCounters
from .in_flight import Acknowledgements, Acquisition, AnyShareRecord, InFlight
from .requests import may_acknowledge_again, may_fetch_again
from .session import TopicIdPartition

Results: TypeAlias = Mapping[TopicIdPartition, KafkaError | None]


REFUSED_FOR = 5.0
"""Seconds after which a partition that no answer lists no longer counts as refused."""


@dataclass(slots=True)
class Renewal:
    """A request to renew the acquisition lock of a record, and the promise of the new lock's length in seconds."""

    record: AnyShareRecord
    promise: asyncio.Future[float]

    def fail(self, error: KafkaError) -> None:
        if not self.promise.done():
            self.promise.set_exception(error)


class FetchResult(NamedTuple):
    """What an answer to ShareFetch means for the next request."""

    has_records: bool
    """Whether there are records, or an error that a read raises."""
    is_refused: bool
    """Whether a partition, or acknowledgements, are refused, so that the next request follows after a backoff."""
    refusal: KafkaError | None
    """The refusal of a partition that is fetched again."""


class ShareAnswers:
    """Applies answers to the records in flight. Owner: the ``BrokerShareFetcher``.

    ``on_settled`` is called with each result of acknowledgements, ``on_failure`` with errors that reads raise.
    """

    def __init__(
        self,
        node_id: int,
        client: Client,
        config: ShareConfig,
        in_flight: InFlight,
        counters: ShareCounters,
        *,
        on_settled: Callable[[Acknowledgements], None],
        on_failure: Callable[[KafkaError], None],
    ) -> None:
        self.names: dict[TopicIdPartition, TopicPartition] = {}
        """The partitions that were requested from this broker."""
        self._node_id = node_id
        self._client = client
        self._config = config
        self._in_flight = in_flight
        self._counters = counters
        self._on_settled = on_settled
        self._on_failure = on_failure
        self.may_renew: bool = False
        """Whether the broker renews locks, as far as known."""
        self._refused: dict[TopicPartition, float] = {}  # the times of the last refusals

    @property
    def refused_lately(self) -> bool:
        """Whether a partition is refused. An answer omits partitions without records, so they count for some time."""
        now = asyncio.get_running_loop().time()
        return any(now - at < REFUSED_FOR for at in self._refused.values())

    def _name_of(self, key: TopicIdPartition, results: Container[TopicIdPartition]) -> TopicPartition:
        """Return the partition of a result. Raises ProtocolError if it was not requested, or already has a result."""
        name = self.names.get(key)
        if name is None:
            raise ProtocolError(f"broker {self._node_id} answered for a partition that was not requested: {key}")
        if key in results:
            raise ProtocolError(f"broker {self._node_id} answered twice for {name}")
        return name

    def fetched(self, response: ShareFetchResponse, sent: Sequence[Acknowledgements], began: float) -> FetchResult:
        """Apply the answer to a ShareFetch that carried the acknowledgements ``sent``."""
        acquired = [
            acquired_record
            for topic in response.responses
            for data in topic.partitions
            for acquired_record in data.acquired_records
        ]
        check_acquired(acquired)
        if acquired:
            self._check_lock(response.acquisition_lock_timeout_ms, began)
        lock = response.acquisition_lock_timeout_ms / 1000
        has_records = is_refused = False
        refusal: KafkaError | None = None
        now = asyncio.get_running_loop().time()
        results: dict[TopicIdPartition, KafkaError | None] = {}
        for topic in response.responses:
            for data in topic.partitions:
                key = TopicIdPartition(topic.topic_id, data.partition_index)
                name = self._name_of(key, results)
                results[key] = self._error(name, data.acknowledge_error_code, data.acknowledge_error_message)
                leader = data.current_leader
                if leader.leader_id >= 0 and leader.leader_epoch > 0:
                    self._client.update_leader(name, leader.leader_id, leader.leader_epoch, response.node_endpoints)
                error = self._error(name, data.error_code, data.error_message)
                self._refused.pop(name, None)
                if error is not None:
                    is_refused = True
                    self._client.request_refresh([name.topic])
                    if is_refusal(error) or may_fetch_again(error):
                        refusal = error
                        self._refused[name] = now
                    else:
                        self._on_failure(error)
                elif data.acquired_records:
                    has_new = self._acquire(name, key, data, began, lock, is_first=not has_records)
                    has_records = has_new or has_records
        # Settled last, because an acquisition without a result in the whole answer has failed.
        for acknowledgements in sent:
            is_refused = not self.settle(acknowledgements, results) or is_refused
        return FetchResult(has_records, is_refused, refusal)

    def _check_lock(self, milliseconds: int, began: float) -> None:
        """Raise KafkaTimeout if the lock has already ended. Its records would be fetched again without a pause."""
        took = asyncio.get_running_loop().time() - began
        if took * 1000 >= milliseconds:
            raise KafkaTimeout(
                f"the answer of broker {self._node_id} took {took:.3g} s, and its records are locked for only"
                f" {milliseconds / 1000:g} s"
            )

    def _acquire(
        self,
        name: TopicPartition,
        key: TopicIdPartition,
        data: ShareFetchResponsePartition,
        began: float,
        lock: float,
        *,
        is_first: bool,
    ) -> bool:
        """Add the acquired records. Returns whether there may be records or an error for the user.

        Only the first partition is decoded here. The others are decoded when a read takes their records.
        """
        records = data.records or b""
        acquired = AcquiredRecords(
            name,
            records,
            data.acquired_records,
            check_crc=self._config.check_crcs,
            max_size=self._config.max_decompressed_size,
        )
        acquisition = Acquisition(
            name, key, self._node_id, began + lock, unread=acquired, lock=lock, may_renew=self.may_renew
        )
        acquisition.settled += acquired.settled
        self._in_flight.add(acquisition)
        self._counters.bytes_fetched += len(records)
        failure = acquired.failure
        # Decoded until there is a record, because a read that wakes up must find one. Later batches wait for reads.
        while is_first and failure is None and acquired and not acquisition.buffered:
            decoded = acquisition.decode()
            self._counters.add_decoded(decoded)
            failure = decoded.failure
        if failure is not None:
            self._on_failure(failure)
        return bool(acquired) or bool(acquisition.buffered) or failure is not None

    def settle(self, sent: Acknowledgements, results: Results) -> bool:
        """Apply the result of acknowledgements. Returns False if they have to be sent again."""
        error = self.result_of(sent.acquisition, results)
        if isinstance(error, BrokerError) and may_acknowledge_again(error):
            self._in_flight.put_back(replace(sent, error=error))
            return False
        self._on_settled(replace(sent, error=error))
        return True

    def renewed(
        self,
        renewals: Sequence[tuple[Renewal, Acquisition]],
        results: Results,
        began: float,
        lock_timeout: float,
    ) -> None:
        """Apply the results of renewals; the request went out at the loop's time ``began``."""
        for renewal, acquisition in renewals:
            error = self.result_of(acquisition, results)
            if error is None and lock_timeout <= 0:
                what = f"broker {self._node_id} renewed an acquisition lock for {lock_timeout:g} s; it must be > 0"
                error = ProtocolError(what)
            if error is not None:
                renewal.fail(error)
                continue
            self._counters.renewed += 1
            self._in_flight.renewed(
                acquisition, renewal.record.offset, began + lock_timeout, asyncio.get_running_loop().time()
            )
            if not renewal.promise.done():
                renewal.promise.set_result(lock_timeout)

    def kept(
        self, renewals: Sequence[Acknowledgements], results: Results, began: float, lock_timeout: float
    ) -> list[tuple[Acquisition, KafkaError]]:
        """Apply the results of renewals by the client itself. Returns the acquisitions whose renewal has failed."""
        refused: list[tuple[Acquisition, KafkaError]] = []
        for renewal in renewals:
            error = self.result_of(renewal.acquisition, results)
            if error is not None:
                refused.append((renewal.acquisition, error))
            elif lock_timeout <= 0:
                refused.append((renewal.acquisition, ProtocolError("the answer to a renewal names no time of a lock")))
            else:
                self._counters.renewed += renewal.counts().total()
                self._in_flight.extend(renewal.acquisition, began + lock_timeout, lock_timeout)
        return refused

    def results(self, response: ShareAcknowledgeResponse) -> Results:
        """Return the result of each partition; None if its acknowledgements were applied."""
        results: dict[TopicIdPartition, KafkaError | None] = {}
        for topic in response.responses:
            for data in topic.partitions:
                key = TopicIdPartition(topic.topic_id, data.partition_index)
                name = self.names.get(key)
                if name is not None:
                    results[key] = self._error(name, data.error_code, data.error_message)
        return results

    def result_of(self, acquisition: Acquisition, results: Results) -> KafkaError | None:
        """Return the result of the acknowledgements of an acquisition.

        It is an error if the broker did not answer for the acquisition.
        """
        if acquisition.key in results:
            return results[acquisition.key]
        return ProtocolError(f"broker {self._node_id} did not answer for {acquisition.partition}")

    def _error(self, name: TopicPartition, code: int, message: str | None) -> BrokerError | None:
        if code == ErrorCode.NONE:
            return None
        details = f" ({message})" if message else ""
        return error_for(
            code, f"{name} at broker {self._node_id} for share group {self._config.group_id!r}{details}", at=name
        )
