"""A partition producer against a model of a broker's log, step by step, so that tests can try any order of events."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from aiokafka_lite.aio.retry import Backoff
from aiokafka_lite.errors import BrokerError, ConnectionLost, ErrorCode, KafkaTimeout
from aiokafka_lite.producer.batch import BatchFactory, ProducerBatch
from aiokafka_lite.producer.partition import Next, PartitionProducer, PartitionState
from aiokafka_lite.producer.partition_batches import Sealed
from aiokafka_lite.producer.producer_ids import ProducerIdAndEpoch, ProducerIds, advance
from aiokafka_lite.protocol.records import BatchBuilder, RecordBatch
from aiokafka_lite.settings.producer import ProducerConfig
from aiokafka_lite.types import TopicPartition

WINDOW = 5
"""Batches of a producer that a broker remembers."""

HERE = TopicPartition("t", 0)


def a_batch(*values: bytes) -> ProducerBatch:
    """Return a batch with these records."""
    batch = ProducerBatch(*HERE, BatchBuilder(), 0.0, 120.0)
    for value in values:
        batch.builder.append(0, None, value)
    return batch


def a_partition(
    *,
    idempotent: bool = True,
    leader: int | None = 1,
    introduced: bool = True,
    load: Counter[int] | None = None,
    sealed: deque[Sealed] | None = None,
    now: Callable[[], float] = lambda: 0.0,
    ids: ProducerIds | None = None,
    compress: Callable[[PartitionProducer, ProducerBatch], bool] | None = None,
) -> PartitionProducer:
    """Return a partition whose leader is known, unless that is None. ``introduced``: its first batch need not go
    alone. With ``compress``, every batch counts as large."""
    identities = ids if ids is not None else ProducerIds(lambda: None) if idempotent else None
    if identities is not None and ids is None:
        identities.received(ProducerIdAndEpoch(7, 0))
    partition = PartitionProducer(
        HERE,
        batches=BatchFactory(ProducerConfig(compression="none" if compress is None else "gzip"), large_from=0),
        ids=identities,
        load=Counter() if load is None else load,
        sealed=deque() if sealed is None else sealed,
        depth=5,
        make_backoff=lambda: Backoff(0.1, 1.0, random=lambda: 0.0),
        now=now,
        compress=compress or _never_compress,
    )
    if introduced and identities is not None:
        assert partition.sequences is not None
        partition.sequences.identity, partition.sequences.is_pipelined = identities.newest, True
    if leader is not None:
        partition.led_by(leader, 0)
    return partition


def _never_compress(partition: PartitionProducer, batch: ProducerBatch) -> bool:
    raise AssertionError("without compression, no batch is large")


def append(partition: PartitionProducer, *values: bytes) -> ProducerBatch:
    """Append a record for each value to the open batch of a partition, or to a new one. Returns the batch."""
    for value in values:
        batch, _, _ = partition.append(None, value, (), 0, len(value))
    assert batch is not None
    return batch


@dataclass
class Log:
    """A leader's log and its producer state: Kafka's rules for sequence numbers, and nothing else."""

    values: list[bytes] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    batches: dict[int, deque[tuple[int, int, int]]] = field(default_factory=dict)

    def append(self, identity: ProducerIdAndEpoch, sequence: int, values: list[bytes]) -> tuple[ErrorCode, int]:
        """Return the answer to a batch: a code and a base offset."""
        producer_id, epoch = identity
        if producer_id >= 0:
            epoch_in_log = self.epochs.get(producer_id, -1)
            if epoch < epoch_in_log:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            if epoch > epoch_in_log:
                if sequence != 0 and epoch_in_log >= 0:  # of a producer that it does not know, a log takes any sequence
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
                self.batches[producer_id] = deque(maxlen=WINDOW)
                self.epochs[producer_id] = epoch
            window = self.batches[producer_id]
            for first, count, offset in window:
                if (first, count) == (sequence, len(values)):
                    return ErrorCode.NONE, offset
            if window and sequence != advance(window[-1][0], window[-1][1]):
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            window.append((sequence, len(values), len(self.values)))
        self.values += values
        return ErrorCode.NONE, len(self.values) - len(values)


class Simulation:
    """One partition, one leader at a time, one connection to it. Each method is a possible next event."""

    def __init__(self, *, idempotent: bool, compresses: bool = False) -> None:
        compress = self._compress if compresses else None
        self.compressing: list[tuple[ProducerBatch, Callable[[], bytearray]]] = []
        self.partition = a_partition(idempotent=idempotent, introduced=False, compress=compress)
        self.log = Log()
        self.appended: list[ProducerBatch] = []
        self.values: dict[ProducerBatch, list[bytes]] = {}
        self.wire: deque[tuple[ProducerBatch, ProducerIdAndEpoch, int]] = deque()  # written, not read by the broker
        self.answers: deque[tuple[ProducerBatch, ErrorCode, int]] = deque()
        self.fatal = False
        self._number = 0
        self._epoch = 0

    def append(self, count: int = 2, *, stays_open: bool = False) -> None:
        self.partition.seal()
        values = [b"%06d" % (self._number + index) for index in range(count)]
        self._number += count
        batch = append(self.partition, *values)
        if stays_open:
            self.partition.expedite()
        else:
            self.partition.seal()
        self.appended.append(batch)
        self.values[batch] = values

    def send(self) -> None:
        batch = self.partition.take()
        if batch is not None:
            assert not batch.compressing
            data = RecordBatch(batch.encode())
            assert data.count == len(self.values[batch])
            self.wire.append((batch, ProducerIdAndEpoch(data.producer_id, data.producer_epoch), data.base_sequence))

    def _compress(self, partition: PartitionProducer, batch: ProducerBatch) -> bool:
        assert partition is self.partition
        self.compressing.append((batch, batch.builder.packing()))
        return True

    def compression_ends(self, which: int = 0, *, fails: bool = False) -> None:
        """End a compression: threads need not end in the order in which they began."""
        if self.compressing:
            batch, packing = self.compressing.pop(which % len(self.compressing))
            self._do(self.partition.compressed(batch, None if fails else packing()))

    def broker_writes(self) -> None:
        if self.wire:
            batch, identity, sequence = self.wire.popleft()
            code, offset = self.log.append(identity, sequence, self.values[batch])
            self.answers.append((batch, code, offset))

    def broker_refuses(self, code: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS) -> None:
        if not self.wire:
            return
        batch = self.wire[0][0]
        if not code.retriable and self.values[batch][0] in self.log.values:
            return  # a broker does not refuse a batch that it has written
        self.wire.popleft()
        self.answers.append((batch, code, -1))

    def answer_arrives(self) -> None:
        if not self.answers:
            return
        batch, code, offset = self.answers.popleft()
        if code is ErrorCode.NONE:
            following = self.partition.delivered(batch)
            if not batch.settled:
                batch.deliver(offset)
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.is_written:
            following = self.partition.delivered(batch)
            if not batch.settled:
                batch.deliver(-1)
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            following = self.partition.failed(batch, BrokerError(code), unknown_sequence=True)
        elif code is ErrorCode.INVALID_PRODUCER_EPOCH:
            self.fatal = True
            return
        elif code.retriable:
            following = self.partition.failed(batch, BrokerError(code))
        elif code is ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
            following = self._split(batch)
        else:
            following = self.partition.refused(batch)
            if not batch.settled:
                self._fail(batch)
        self._do(following)

    def _split(self, batch: ProducerBatch) -> Next:
        if batch.settled:
            return self.partition.split(batch, [])
        parts = [a_batch(value) for value in self.values[batch]]
        for part, value in zip(parts, self.values[batch]):
            self.values[part] = [value]
        following = self.partition.split(batch, list(parts))
        batch.move([(part, 0) for part in parts])
        position = self.appended.index(batch)
        self.appended[position : position + 1] = parts
        return following

    def connection_breaks(self, written: int = 0) -> None:
        """Break the connection after the broker has read ``written`` requests in flight; no answer arrives."""
        for _ in range(written):
            self.broker_writes()
        lost = [batch for batch, *_ in self.answers] + [batch for batch, *_ in self.wire]
        self.answers.clear()
        self.wire.clear()
        for batch in lost:
            self._do(self.partition.failed(batch, ConnectionLost("gone", sent=True)))

    def leader_moves(self, is_known: bool = True) -> None:
        self._epoch += 1
        self._do(self.partition.led_by((self._epoch % 3) + 1 if is_known else None, self._epoch))

    def pause_ends(self) -> None:
        self._do(self.partition.resume())

    def oldest_expires(self) -> None:
        batch = next((batch for batch in self.appended if not batch.settled), None)
        if batch is not None:
            self._do(self.partition.expired(batch))
            self._fail(batch)

    def finish(self) -> None:
        """Run without faults until all batches are settled."""
        self.partition.led_by(1, self._epoch + 1)
        for _ in range(10 * len(self.appended) + 20):
            self.pause_ends()
            self.compression_ends()
            self.send()
            self.broker_writes()
            self.answer_arrives()

    def _fail(self, batch: ProducerBatch) -> None:
        batch.fail(KafkaTimeout("too late"))
        batch.observe()

    def _do(self, following: Next) -> None:
        if following is Next.RESUME:
            self._do(self.partition.resume())
        elif following is Next.PAUSE:
            assert self.partition.state is PartitionState.BACKING_OFF
            if self.partition.pause() == 0:
                self._do(self.partition.resume())
