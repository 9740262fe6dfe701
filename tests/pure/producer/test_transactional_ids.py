"""The identity and the partitions of a transactional producer, and a partition that writes under them."""

from __future__ import annotations

from aiokafka_lite.errors import BrokerError, ConnectionLost, ErrorCode
from aiokafka_lite.producer.batch import ProducerBatch
from aiokafka_lite.producer.partition import PartitionProducer
from aiokafka_lite.producer.producer_ids import NO_SEQUENCE, ProducerIdAndEpoch
from aiokafka_lite.producer.transactional_ids import TransactionalIds
from tests.pure.producer.log_model import HERE, a_batch, a_partition, append

FIRST, SECOND = ProducerIdAndEpoch(7, 0), ProducerIdAndEpoch(7, 1)


class Requests:
    """Counts the requests for partitions."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def ids_of(generation: int, request: Requests | None = None) -> TransactionalIds:
    """Return the ids of an open transaction."""
    ids = TransactionalIds(request or Requests())
    ids.received(FIRST)
    ids.begin(generation)
    return ids


def partition_of(ids: TransactionalIds) -> PartitionProducer:
    return a_partition(ids=ids, introduced=False)


def sent(partition: PartitionProducer, *values: bytes) -> ProducerBatch:
    append(partition, *values)
    partition.seal()
    batch = partition.take()
    assert batch is not None
    return batch


def test_generation_1_writes_after_the_coordinator_has_added_the_partition() -> None:
    request = Requests()
    ids = ids_of(1, request)
    partition = partition_of(ids)
    append(partition, b"a")
    partition.seal()
    assert partition.take() is None
    assert list(ids.waiting) == [HERE]
    assert request.count == 1
    ids.added(HERE)
    batch = partition.take()
    assert batch is not None
    assert (batch.identity, batch.sequence) == (FIRST, 0)
    assert ids.waiting == {}


def test_generation_2_writes_at_once_and_counts_the_partition() -> None:
    request = Requests()
    ids = ids_of(2, request)
    assert sent(partition_of(ids), b"a").sequence == 0
    assert request.count == 0
    assert ids.partitions == 1


def test_a_new_transaction_has_no_partitions() -> None:
    ids = ids_of(1)
    ids.added(HERE)
    ids.begin(1)
    assert ids.partitions == 0
    assert not ids.admits(HERE)


def test_no_batch_gets_numbers_between_transactions() -> None:
    ids = ids_of(2)
    ids.close()
    partition = partition_of(ids)
    append(partition, b"a")
    partition.seal()
    assert partition.take() is None
    ids.begin(2)
    assert partition.take() is not None


def test_sequence_numbers_continue_under_the_same_epoch_and_begin_again_under_a_new_one() -> None:
    ids = ids_of(2)
    partition = partition_of(ids)
    partition.delivered(sent(partition, b"a", b"b"))
    assert sent(partition, b"c").sequence == 2
    partition.delivered(partition.sent[0])
    ids.received(SECOND)
    batch = sent(partition, b"d")
    assert (batch.identity, batch.sequence) == (SECOND, 0)


def test_a_partition_takes_the_new_epoch_when_its_requests_are_answered() -> None:
    ids = ids_of(2)
    partition = partition_of(ids)
    old = sent(partition, b"a")
    ids.received(SECOND)
    append(partition, b"b")
    partition.seal()
    assert partition.take() is None
    partition.delivered(old)
    batch = partition.take()
    assert batch is not None
    assert batch.identity == SECOND


def test_a_split_batch_takes_the_numbers_of_the_whole() -> None:
    ids = ids_of(2)
    partition = partition_of(ids)
    partition.delivered(sent(partition, b"a"))
    whole, behind = sent(partition, b"b", b"c"), sent(partition, b"d")
    partition.split(whole, [a_batch(b"b"), a_batch(b"c")])
    refused = BrokerError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    partition.failed(behind, refused, unknown_sequence=True)
    partition.resume()
    sequences = []
    for _ in range(3):
        batch = partition.take()
        assert batch is not None
        sequences.append((batch.identity, batch.sequence))
        partition.delivered(batch)
    assert sequences == [(FIRST, 1), (FIRST, 2), (FIRST, 3)]


def test_two_split_batches_continue_at_the_first_of_them() -> None:
    ids = ids_of(2)
    partition = partition_of(ids)
    partition.delivered(sent(partition, b"a"))
    first, second = sent(partition, b"b", b"c"), sent(partition, b"d", b"e")
    partition.split(first, [a_batch(b"b"), a_batch(b"c")])
    partition.split(second, [a_batch(b"d"), a_batch(b"e")])
    partition.resume()
    sequences = []
    for _ in range(4):
        batch = partition.take()
        assert batch is not None
        sequences.append(batch.sequence)
        partition.delivered(batch)
    assert sequences == [1, 2, 3, 4]


def test_a_retried_batch_keeps_its_numbers() -> None:
    ids = ids_of(2)
    partition = partition_of(ids)
    batch = sent(partition, b"a")
    partition.failed(batch, ConnectionLost("gone", sent=True))
    partition.resume()
    assert partition.take() is batch
    assert batch.sequence == 0


def test_a_dropped_partition_makes_the_epoch_outdated_and_no_epoch_is_made_up() -> None:
    ids = ids_of(1)
    ids.retire(FIRST)
    assert ids.needs_new_epoch
    assert ids.newer_than(FIRST) == FIRST
    ids.received(SECOND)
    assert not ids.needs_new_epoch
    ids.discard(SECOND)
    assert ids.newest == SECOND


def test_a_batch_without_numbers_was_never_sent() -> None:
    ids = ids_of(1)
    partition = partition_of(ids)
    batch = append(partition, b"a")
    partition.seal()
    partition.take()
    assert batch.sequence == NO_SEQUENCE
    assert batch.attempts == 0
