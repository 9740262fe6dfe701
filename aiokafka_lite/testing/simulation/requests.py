"""What the requests to the cluster of a simulation say: who committed, who received a record, and the trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...embedded.faults import Exchange
from ...errors import ErrorCode
from ...protocol.messages import (
    FetchResponse,
    InitProducerIdRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    ProduceRequest,
    ProduceResponse,
    ShareFetchResponse,
    TxnOffsetCommitRequest,
)
from ...protocol.records import split_batches
from .history import Commit, Written


@dataclass(frozen=True, slots=True)
class RequestLog:
    """The requests of one run with their responses.

    ``topics`` are the names of topics by id, and ``processes`` the processes of the service by connection.
    """

    exchanges: Sequence[Exchange]
    topics: Mapping[bytes, str]
    processes: Mapping[int, str]

    def trace(self) -> list[str]:
        """Return one line for each request. The same seed gives the same lines."""
        return [
            f"{exchange.at:.6f} {exchange.node_id} {exchange.client_id} {type(exchange.request).__name__} "
            f"v{exchange.version} {exchange.size}"
            for exchange in self.exchanges
        ]

    def commits(self) -> Iterator[Commit]:
        """Yield the commits of consumers and transactions, in the order in which they came."""
        for exchange in self.exchanges:
            request, answer = exchange.request, exchange.response
            if not isinstance(request, OffsetCommitRequest | TxnOffsetCommitRequest):
                continue
            refusals = self._refusals(answer) if isinstance(answer, OffsetCommitResponse) else {}
            for topic in request.topics:
                name = self._name(topic)
                for partition in topic.partitions:
                    number = partition.partition_index
                    refusal = refusals.get((name, number), "")
                    place = (name, number, partition.committed_offset)
                    yield Commit(exchange.at, self._process(exchange), *place, refusal)

    def deliveries(self, written: Written) -> Iterator[tuple[float, str]]:
        """Yield when a record was sent to which process: with a fetch, or with a fetch of a share group."""
        topic = written.message.topic
        for exchange in self.exchanges:
            answer = exchange.response
            if not isinstance(answer, FetchResponse | ShareFetchResponse) or exchange.handled_at is None:
                continue
            for partition in _partitions(answer, topic, self._name):
                if partition.partition_index == written.partition and _contains(partition, written.offset):
                    yield exchange.handled_at, self._process(exchange)

    def appends(self) -> dict[tuple[str, int, int], float]:
        """Return when the records outside of transactions were acknowledged, by topic, partition and offset."""
        times: dict[tuple[str, int, int], float] = {}
        for exchange in self.exchanges:
            request, answer = exchange.request, exchange.response
            if not isinstance(request, ProduceRequest) or not isinstance(answer, ProduceResponse):
                continue
            if request.transactional_id is not None or exchange.handled_at is None:
                continue
            first = {
                (self._name(topic), partition.index): partition.base_offset
                for topic in answer.responses
                for partition in topic.partition_responses
                if partition.error_code == 0 and partition.base_offset >= 0
            }
            for topic in request.topic_data:
                for partition in topic.partition_data:
                    place = self._name(topic), partition.index
                    if place in first and partition.records:
                        count = sum(batch.next_offset - batch.base_offset for batch in split_batches(partition.records))
                        for offset in range(first[place], first[place] + count):
                            times.setdefault((*place, offset), exchange.handled_at)
        return times

    def producers(self) -> dict[str, str]:
        """Return the process that used a transactional id last, by transactional id."""
        return {
            exchange.request.transactional_id: self._process(exchange)
            for exchange in self.exchanges
            if isinstance(exchange.request, InitProducerIdRequest) and exchange.request.transactional_id
        }

    def _process(self, exchange: Exchange) -> str:
        return self.processes.get(exchange.connection_id) or exchange.client_id or "a client"

    def _name(self, topic: Any) -> str:
        return (
            getattr(topic, "name", "")
            or getattr(topic, "topic", "")
            or self.topics.get(bytes(getattr(topic, "topic_id", b"")), "")
        )

    def _refusals(self, answer: OffsetCommitResponse) -> dict[tuple[str, int], str]:
        return {
            (self._name(topic), partition.partition_index): ErrorCode.of(partition.error_code).name
            for topic in answer.topics
            for partition in topic.partitions
            if partition.error_code
        }


def _partitions(answer: FetchResponse | ShareFetchResponse, topic: str, name_of: Any) -> Iterator[Any]:
    for response in answer.responses:
        if name_of(response) == topic:
            yield from response.partitions


def _contains(partition: Any, offset: int) -> bool:
    """Return whether the answer for a partition has a record; for a share group, whether it is acquired."""
    acquired = getattr(partition, "acquired_records", None)
    if acquired is not None:
        return any(records.first_offset <= offset <= records.last_offset for records in acquired)
    if not partition.records:
        return False
    return any(batch.base_offset <= offset < batch.next_offset for batch in split_batches(partition.records))
