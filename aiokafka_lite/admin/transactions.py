"""Transactions: list and describe them, find and abort hanging ones, and fence producers (KIP-664).

Two kinds of brokers know about a transaction. Its coordinator knows the transactional id, the state and the partitions.
The leader of a partition knows the producers that write to it, and where their open transactions begin. A transaction
hangs if it is open at the leader, but the coordinator does not have it. Then no coordinator will end it, and consumers
with ``read_committed`` cannot read past it.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from .. import arguments
from ..cluster.coordinators import CoordinatorKind
from ..errors import ErrorCode, KafkaError, ProtocolError, error_for
from ..protocol.messages import (
    DescribedTransaction,
    DescribeProducersRequest,
    DescribeProducersState,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    MetadataRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ..types import Node, TopicPartition
from .answers import answer_of, has_code, none_if_negative, raise_for
from .calls import Calls
from .open_enum import OpenEnum, members_of
from .peer import Deadline, Peer, Targets
from .results import Results
from .settling import Rules

MAX_TRANSACTION_TIMEOUT = 900.0
"""Seconds: the default of the broker's ``transaction.max.timeout.ms``. A coordinator aborts older transactions."""


class TransactionState(OpenEnum):
    """The state of a transactional id at its coordinator.

    ``TransactionState`` of ``embedded`` is the state that a coordinator keeps.
    """

    UNKNOWN = "Unknown"
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open, or its markers are not written everywhere."""
        return self in (self.ONGOING, self.PREPARE_COMMIT, self.PREPARE_ABORT, self.PREPARE_EPOCH_FENCE)


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A listed transactional id. ``coordinator`` is a broker id."""

    transactional_id: str
    producer_id: int
    state: TransactionState
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id. ``timeout`` is in seconds.

    ``started_at`` is in milliseconds since the epoch, None unless a transaction is open. ``partitions`` are the
    partitions of the open transaction, with the partitions of ``__consumer_offsets`` that keep its offsets.
    """

    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout: float
    started_at: int | None
    partitions: tuple[TopicPartition, ...]
    coordinator: Node


@dataclass(frozen=True, slots=True)
class ProducerState:
    """An idempotent or transactional producer, as the leader of a partition knows it.

    ``last_timestamp`` is the time of its last record, in milliseconds since the epoch. ``start_offset`` is the first
    offset of its open transaction, None if it has none. ``coordinator_epoch`` is the epoch in its last marker, None
    without a marker. ``last_sequence`` is None if its last batch was a marker.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None = None
    start_offset: int | None = None
    last_sequence: int | None = None
    last_timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open in a partition but not at its coordinator. ``duration`` is in seconds."""

    partition: TopicPartition
    producer: ProducerState
    duration: float


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """The producer id of a transactional id, and its new epoch. Requests with an older epoch are refused."""

    producer_id: int
    producer_epoch: int


class Transactions:
    """The calls of ``admin.transactions``."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    # The coordinators.

    async def list(
        self,
        *,
        states: Iterable[TransactionState | str] = (),
        producer_ids: Iterable[int] = (),
        min_duration: float | None = None,
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> tuple[TransactionListing, ...]:
        """List all transactional ids that this client may see, by name. Filters select some of them.

        Requires Kafka 3.0. ``min_duration`` in seconds selects transactions that have been open for longer (Kafka 3.8).
        ``pattern`` is a regular expression in the syntax of RE2 that the whole id must match (Kafka 4.1). Raises the
        error if one broker did not answer, since the list would not be complete.
        """
        wanted_states = members_of(TransactionState, states)
        wanted_ids = {
            arguments.whole("producer id", producer_id, 0, arguments.INT64_MAX)
            for producer_id in arguments.several(producer_ids, "producer_ids")
        }
        request = ListTransactionsRequest(
            state_filters=sorted(wanted_state.value for wanted_state in wanted_states),
            producer_id_filters=sorted(wanted_ids),
            duration_filter=-1 if min_duration is None else _milliseconds("min_duration", min_duration),
            transactional_id_pattern=None if pattern is None else arguments.text("pattern", pattern),
        )

        async def ask(peer: Peer, items: list[int]) -> Mapping[int, list[TransactionListing] | KafkaError]:
            peer.require(ListTransactionsRequest.INTRODUCED, "listing transactions")
            if min_duration is not None:
                peer.require(ListTransactionsRequest.DURATION_FILTER, "min_duration")
            if pattern is not None:
                peer.require(ListTransactionsRequest.PATTERN, "pattern")
            answer = await peer.send(request)
            raise_for(answer.error_code, f"listing transactions of broker {peer.node_id}")
            return {
                peer.node_id: [
                    TransactionListing(
                        transaction_state.transactional_id,
                        transaction_state.producer_id,
                        TransactionState(transaction_state.transaction_state),
                        peer.node_id,
                    )
                    for transaction_state in answer.transaction_states
                ]
            }

        deadline = self._calls.deadline(timeout)
        listings: dict[str, TransactionListing] = {}
        for of_broker in (await self._calls.of_all_brokers("listing transactions", ask, deadline)).values():
            listings.update((listing.transactional_id, listing) for listing in of_broker)
        # A broker ignores a state that it does not know.
        return tuple(
            listings[name] for name in sorted(listings) if not wanted_states or listings[name].state in wanted_states
        )

    async def coordinators(
        self, transactional_ids: str | Iterable[str], *, timeout: float | None = None
    ) -> Results[str, Node]:
        """Find the broker that coordinates each transactional id, whether the id exists or not."""
        names = arguments.names(transactional_ids, "transactional_id")
        return await self._calls.coordinators(CoordinatorKind.TRANSACTION, names, self._calls.deadline(timeout))

    async def describe(
        self, transactional_ids: str | Iterable[str], *, timeout: float | None = None
    ) -> Results[str, TransactionDescription]:
        """Describe the state of transactional ids, with the partitions of open transactions. Requires Kafka 3.0.

        An id that no coordinator has fails with TRANSACTIONAL_ID_NOT_FOUND.
        """
        names = arguments.names(transactional_ids, "transactional_id")
        return await self._describe(names, self._calls.deadline(timeout))

    async def _describe(
        self, transactional_ids: Iterable[str], deadline: Deadline
    ) -> Results[str, TransactionDescription]:
        async def ask(peer: Peer, items: list[str]) -> Mapping[str, TransactionDescription | KafkaError]:
            peer.require(DescribeTransactionsRequest.INTRODUCED, "describing transactions")
            answer = await peer.send(DescribeTransactionsRequest(transactional_ids=items))
            return {
                transaction_state.transactional_id: answer_of(
                    transaction_state.error_code,
                    f"describing transactional id {transaction_state.transactional_id!r}",
                    _description(transaction_state, peer.node),
                )
                for transaction_state in answer.transaction_states
            }

        return await self._calls.at_coordinators(
            CoordinatorKind.TRANSACTION, "describing transactions", transactional_ids, ask, deadline
        )

    async def fence_producers(
        self, transactional_ids: str | Iterable[str], *, timeout: float | None = None
    ) -> Results[str, FencedProducer]:
        """Fence the present producers of transactional ids (KIP-277): abort their transactions, refuse their requests.

        Waits until the abort is complete. An id that does not exist yet is created.
        """
        names = arguments.names(transactional_ids, "transactional_id")

        async def ask(peer: Peer, items: list[str]) -> Mapping[str, FencedProducer | KafkaError]:
            answers: dict[str, FencedProducer | KafkaError] = {}
            for item in items:  # the request carries one id
                # The timeout is for the next transaction; a producer that starts later sets its own.
                request = InitProducerIdRequest(transactional_id=item, transaction_timeout_ms=peer.timeout_ms)
                answer = await peer.send(request)
                if answer.error_code:
                    answers[item] = error_for(answer.error_code, f"fencing transactional id {item!r}")
                elif answer.producer_id < 0 or answer.producer_epoch < 0:
                    answers[item] = ProtocolError(
                        f"fencing transactional id {item!r} was answered with producer id {answer.producer_id} and"
                        f" epoch {answer.producer_epoch}"
                    )
                else:
                    answers[item] = FencedProducer(answer.producer_id, answer.producer_epoch)
            return answers

        deadline = self._calls.deadline(timeout)
        return await self._calls.at_coordinators(CoordinatorKind.TRANSACTION, "fencing producers", names, ask, deadline)

    # The leaders of partitions.

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, broker: int | None = None, timeout: float | None = None
    ) -> Results[TopicPartition, tuple[ProducerState, ...]]:
        """Describe the producers that have written to each partition and are not expired. Requires Kafka 2.8.

        The leaders of the partitions answer, or with ``broker`` this broker.
        """
        checked_partitions = arguments.partitions(partitions)
        if broker is not None:
            arguments.whole("broker", broker)
        return await self._producers(checked_partitions, broker, self._calls.deadline(timeout))

    async def _producers(
        self, partitions: Iterable[TopicPartition], broker: int | None, deadline: Deadline
    ) -> Results[TopicPartition, tuple[ProducerState, ...]]:
        async def ask(
            peer: Peer, items: list[TopicPartition]
        ) -> Mapping[TopicPartition, tuple[ProducerState, ...] | KafkaError]:
            peer.require(DescribeProducersRequest.INTRODUCED, "describing producers")
            topics = [
                DescribeProducersTopic(name=name, partition_indexes=numbers)
                for name, numbers in arguments.by_topic(items).items()
            ]
            answers: dict[TopicPartition, tuple[ProducerState, ...] | KafkaError] = {}
            for topic in (await peer.send(DescribeProducersRequest(topics=topics))).topics:
                for partition in topic.partitions:
                    item = TopicPartition(topic.name, partition.partition_index)
                    producers = tuple(map(_producer, partition.active_producers))
                    what = f"describing producers of {item}"
                    answers[item] = answer_of(partition.error_code, what, producers, partition.error_message)
                    lowest = min((state.producer_id for state in producers), default=0)
                    if not partition.error_code and lowest < 0:
                        answers[item] = ProtocolError(f"{what} was answered with the producer id {lowest}")
            return answers

        async def at_broker(items: list[TopicPartition], deadline: Deadline) -> Targets:
            assert broker is not None
            targets = await self._calls.brokers([broker], deadline)
            if targets.errors:
                raise targets.errors[broker]
            return Targets({broker: items})

        find = self._calls.leaders if broker is None else at_broker
        return await self._calls.settle("describing producers", partitions, find, ask, deadline)

    async def abort(
        self,
        partition: TopicPartition,
        *,
        start_offset: int | None = None,
        producer: ProducerState | None = None,
        timeout: float | None = None,
    ) -> None:
        """Abort a hanging transaction: the leader of the partition writes an abort marker. Requires Kafka 2.8.

        Give ``start_offset``, the first offset of the transaction, or the ``producer`` that has it open;
        ``find_hanging`` returns both. Call it only for a transaction that no coordinator has. Otherwise this partition
        is aborted, and the coordinator may still commit the other partitions; ``fence_producers`` aborts a whole
        transaction. Raises ValueError if no transaction begins at ``start_offset``, and ProducerFenced
        (INVALID_PRODUCER_EPOCH) if the producer has a newer epoch.
        """
        item = arguments.partition(partition)
        if (start_offset is None) == (producer is None):
            raise ValueError(f"abort requires start_offset or producer, got {start_offset!r} and {producer!r}")
        if producer is not None and not isinstance(producer, ProducerState):
            raise TypeError(arguments.must_be("producer", "a ProducerState", producer))
        deadline = self._calls.deadline(timeout)
        if start_offset is not None:
            arguments.offset(start_offset, "start_offset")
            producers = (await self._producers([item], None, deadline.first_part()))[item]
            producer = next((state for state in producers if state.start_offset == start_offset), None)
            if producer is None:
                starts = ", ".join(str(state.start_offset) for state in producers if state.start_offset is not None)
                raise ValueError(
                    f"start_offset must be the first offset of an open transaction of {item}, got {start_offset}; "
                    f"open transactions begin at {starts or 'no offset'}"
                )
        assert producer is not None
        await self._write_abort_marker(item, producer, deadline)

    async def _write_abort_marker(self, partition: TopicPartition, producer: ProducerState, deadline: Deadline) -> None:
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
            # A leader refuses an epoch below the epoch in the producer's last marker. Without a marker, it takes any.
            coordinator_epoch=0 if producer.coordinator_epoch is None else producer.coordinator_epoch,
        )

        async def ask(peer: Peer, items: list[TopicPartition]) -> Mapping[TopicPartition, KafkaError | None]:
            peer.require(WriteTxnMarkersRequest.INTRODUCED, "aborting a transaction")
            answer = await peer.send(WriteTxnMarkersRequest(markers=[marker]))
            what = f"aborting the transaction of producer {producer.producer_id} in {partition}"
            return {
                TopicPartition(topic.name, partition.partition_index): answer_of(partition.error_code, what, None)
                for marker_result in answer.markers
                for topic in marker_result.topics
                for partition in topic.partitions
            }

        final = (ErrorCode.INVALID_PRODUCER_EPOCH,)  # a newer epoch of the producer has written to the partition
        results = await self._calls.settle(
            "aborting a transaction", [partition], self._calls.leaders, ask, deadline, Rules(final=final)
        )
        results.raise_for_errors()

    # Hanging transactions.

    async def find_hanging(
        self,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        broker: int | None = None,
        max_transaction_timeout: float = MAX_TRANSACTION_TIMEOUT,
        timeout: float | None = None,
    ) -> tuple[HangingTransaction, ...]:
        """Find transactions that are open in a partition although their coordinator does not have them.

        Examines these partitions, or all; with ``broker``, only partitions that this broker leads. A transaction whose
        last record is younger than ``max_transaction_timeout`` seconds is skipped: it may still end normally. Requires
        Kafka 3.0. Raises the error if one partition or broker did not answer.
        """
        checked_partitions = None if partitions is None else arguments.partitions(partitions)
        if broker is not None:
            arguments.whole("broker", broker)
        longest = _milliseconds("max_transaction_timeout", max_transaction_timeout)
        deadline = self._calls.deadline(timeout)
        searched = await self._partitions_led(checked_partitions, broker, deadline.first_part())
        producers_of = (await self._producers(searched, None, deadline.first_part())).raise_for_errors()
        now = self._calls.client.runtime.clock() * 1000
        candidates = [
            HangingTransaction(partition, producer, (now - (producer.last_timestamp or 0)) / 1000)
            for partition, producers in producers_of.items()
            for producer in producers
            if producer.start_offset is not None and now - (producer.last_timestamp or 0) > longest
        ]
        if not candidates:
            return ()
        present = await self._kept_by_coordinators(
            {candidate.producer.producer_id for candidate in candidates}, deadline
        )
        return tuple(
            candidate
            for candidate in candidates
            if (candidate.producer.producer_id, candidate.partition) not in present
        )

    async def _kept_by_coordinators(
        self, producer_ids: Collection[int], deadline: Deadline
    ) -> set[tuple[int, TopicPartition]]:
        """Ask the coordinators of these producer ids for the partitions of their transactions."""
        listings = await self.list(producer_ids=producer_ids, timeout=deadline.first_part().timeout)
        descriptions = await self._describe([listing.transactional_id for listing in listings], deadline)
        # An id may have expired since it was listed.
        expired = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        failed = {name: error for name, error in descriptions.failed.items() if not has_code(error, expired)}
        Results({}, failed).raise_for_errors()
        return {
            (transaction.producer_id, partition)
            for transaction in descriptions.done.values()
            for partition in transaction.partitions
        }

    async def _partitions_led(
        self, partitions: Iterable[TopicPartition] | None, broker: int | None, deadline: Deadline
    ) -> tuple[TopicPartition, ...]:
        """List these partitions, or all partitions of all topics, also of internal ones.

        With ``broker``, only those that this broker leads.
        """
        if partitions is not None and broker is None:
            return tuple(partitions)

        async def ask(peer: Peer) -> dict[TopicPartition, int]:
            answer = await peer.send(MetadataRequest(topics=None))
            return {
                TopicPartition(topic.name or "", partition.partition_index): partition.leader_id
                for topic in answer.topics
                for partition in topic.partitions
            }

        leaders = await self._calls.one("listing partitions", self._calls.any_broker, ask, deadline)
        if broker is not None:
            for error in (await self._calls.brokers([broker], deadline)).errors.values():
                raise error
        candidates = leaders if partitions is None else set(partitions)
        return tuple(
            partition
            for partition in sorted(leaders)
            if partition in candidates and broker in (None, leaders[partition])
        )


def _milliseconds(name: str, seconds: object) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(arguments.must_be(name, "a number of seconds >= 0", seconds))
    if not 0 <= seconds <= sys.maxsize / 1000:
        raise ValueError(arguments.must_be(name, "a number of seconds >= 0", seconds))
    return round(seconds * 1000)


def _description(transaction: DescribedTransaction, coordinator: Node) -> TransactionDescription:
    state = TransactionState(transaction.transaction_state)
    return TransactionDescription(
        transactional_id=transaction.transactional_id,
        state=state,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        timeout=transaction.transaction_timeout_ms / 1000,
        started_at=none_if_negative(transaction.transaction_start_time_ms) if state.is_open else None,
        partitions=tuple(
            sorted(TopicPartition(topic.topic, number) for topic in transaction.topics for number in topic.partitions)
        ),
        coordinator=coordinator,
    )


def _producer(producer: DescribeProducersState) -> ProducerState:
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=none_if_negative(producer.coordinator_epoch),
        start_offset=none_if_negative(producer.current_txn_start_offset),
        last_sequence=none_if_negative(producer.last_sequence),
        last_timestamp=none_if_negative(producer.last_timestamp),
    )
