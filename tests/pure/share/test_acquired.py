"""The acquired records of an answer: ranges, batches, gaps, damage, and bombs."""

from __future__ import annotations

import time

import pytest

from aiokafka_lite.errors import CorruptRecord, ProtocolError
from aiokafka_lite.protocol.messages import ShareAcknowledgementBatch, ShareAcquiredRecords
from aiokafka_lite.protocol.messages.share_fetch import MAX_ACQUIRED_RANGES
from aiokafka_lite.protocol.records import encode_batch
from aiokafka_lite.share.acknowledgements import AcknowledgeType, acknowledgement_batches
from aiokafka_lite.share.acquired import MAX_ACQUIRED, AcquiredRecords, DecodedBatch, check_acquired
from aiokafka_lite.types import Compression, TopicPartition

PARTITION = TopicPartition("orders", 0)
GAP, ACCEPT, RELEASE, REJECT = list(AcknowledgeType)[:4]


def batch(offset: int, count: int = 1, value: bytes = b"v", compression: Compression = Compression.NONE) -> bytes:
    return encode_batch([(0, None, value, ())] * count, compression=compression, base_offset=offset)


def acquired(
    *ranges: tuple[int, int] | tuple[int, int, int], data: bytes = b"", max_size: int = 1 << 27
) -> AcquiredRecords:
    acquired_records = [
        ShareAcquiredRecords(
            first_offset=range_[0], last_offset=range_[1], delivery_count=range_[2] if range_[2:] else 1
        )
        for range_ in ranges
    ]
    return AcquiredRecords(PARTITION, data, acquired_records, check_crc=True, max_size=max_size)


def decoded(records: AcquiredRecords) -> list[DecodedBatch]:
    batches = []
    while records:
        batches.append(records.decode())
    return batches


def offsets(records: AcquiredRecords) -> list[int]:
    return [record.offset for batch in decoded(records) for record in batch.records]


def test_only_acquired_records_are_returned_with_their_delivery_count() -> None:
    records = acquired((1, 2), (4, 5, 3), data=batch(0, 3) + batch(3, 4))
    assert records.released() == [(1, 2, RELEASE), (4, 5, RELEASE)]
    assert len(records) == 4
    deliveries = [(record.offset, record.delivery_count) for batch in decoded(records) for record in batch.records]
    assert deliveries == [(1, 1), (2, 1), (4, 3), (5, 3)]
    assert not records.settled


def test_of_a_batch_with_both_kinds_only_records_of_a_first_delivery_are_released_behind() -> None:
    records = acquired((0, 1, 2), (2, 3, 1), (4, 5, 1), data=batch(0, 4) + batch(4, 2))
    assert records.release_behind(0, also_redelivered=False) == [(2, 3, RELEASE), (4, 5, RELEASE)]
    assert offsets(records) == [0, 1]
    records = acquired((0, 1, 2), (2, 3, 1), data=batch(0, 4))
    assert records.release_behind(0, also_redelivered=True) == [(0, 1, RELEASE), (2, 3, RELEASE)]
    assert not records


def test_offsets_between_batches_are_gaps_and_those_behind_them_are_released() -> None:
    records = acquired((0, 9), data=batch(1, 2) + batch(5, 2))
    assert records.settled == [(0, 0, GAP), (3, 4, GAP), (7, 9, RELEASE)]
    assert offsets(records) == [1, 2, 5, 6]


def test_a_range_over_several_batches_has_no_gap_between_them() -> None:
    records = acquired((0, 5), data=batch(0, 2) + batch(2, 2) + batch(4, 2))
    assert records.settled == []
    assert [list(batch.settled) for batch in decoded(records)] == [[], [], []]


def test_without_batches_everything_is_released() -> None:
    assert acquired((3, 4)).settled == [(3, 4, RELEASE)]


def test_a_damaged_batch_is_rejected_and_the_next_one_is_read() -> None:
    damaged = bytearray(batch(0, 2))
    damaged[-1] ^= 1
    first, second = decoded(acquired((0, 3), data=bytes(damaged) + batch(2, 2)))
    assert isinstance(first.failure, CorruptRecord)
    assert first.settled == [(0, 1, REJECT)]
    assert [record.offset for record in second.records] == [2, 3]


def test_a_batch_that_comes_twice_is_read_once() -> None:
    assert offsets(acquired((0, 2), data=batch(0, 2) + batch(0, 2) + batch(1, 2))) == [0, 1, 2]


@pytest.mark.parametrize(
    "ranges",
    [[(5, 3)], [(-3, -1)], [(-1, 0)], [(0, 4), (4, 6)], [(0, 9), (2, 3)], [(1, 1), (1, 1, 2)]],
    ids=["reversed", "negative", "partly negative", "overlapping", "within another", "twice"],
)
def test_ranges_that_make_no_sense_are_refused(ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(ProtocolError, match="orders-0: acquired offsets must be ascending and at least 0, got"):
        acquired(*ranges, data=batch(0, 10))


def test_more_offsets_than_brokers_lock_are_refused() -> None:
    def ranges(*lasts: int) -> list[ShareAcquiredRecords]:
        return [ShareAcquiredRecords(first_offset=0, last_offset=last, delivery_count=1) for last in lasts]

    check_acquired(ranges(MAX_ACQUIRED - 2, 0))
    for lasts in ((MAX_ACQUIRED,), (MAX_ACQUIRED - 1, 0), (2**63 - 1,)):
        with pytest.raises(ProtocolError, match="more than 1,000,000 records"):
            check_acquired(ranges(*lasts))
    with pytest.raises(ProtocolError, match="20,001 ranges, more than 20,000"):
        check_acquired(ranges(0) * (MAX_ACQUIRED_RANGES + 1))


def test_many_ranges_and_many_batches_take_time_for_their_sum_and_not_their_product() -> None:
    count = 20_000
    rest = batch(0)[8:]  # the checksum does not cover the base offset
    data = b"".join((2 * number).to_bytes(8, "big") + rest for number in range(count))
    ranges = [(2 * number, 2 * number) for number in range(count)]
    began = time.process_time()
    records = acquired(*ranges, data=data)
    assert time.process_time() - began < 10.0  # the product takes minutes
    assert len(records) == count


def test_batches_are_decoded_one_at_a_time() -> None:
    data = b"".join(batch(number, value=bytes(1 << 20), compression=Compression.GZIP) for number in range(3))
    records = acquired((0, 2), data=data)
    assert records.decode().size > 1 << 20
    assert records.released() == [(1, 1, RELEASE), (2, 2, RELEASE)]


def test_acquired_offsets_without_records_are_ranges_and_not_single_offsets() -> None:
    records = acquired((0, MAX_ACQUIRED - 1), data=batch(10) + batch(MAX_ACQUIRED - 10))
    assert records.settled == [(0, 9, GAP), (11, MAX_ACQUIRED - 11, GAP), (MAX_ACQUIRED - 9, MAX_ACQUIRED - 1, RELEASE)]
    assert offsets(records) == [10, MAX_ACQUIRED - 10]
    assert acknowledgement_batches({10: ACCEPT}, records.settled) == [
        ShareAcknowledgementBatch(first_offset=0, last_offset=9, acknowledge_types=[GAP]),
        ShareAcknowledgementBatch(first_offset=10, last_offset=10, acknowledge_types=[ACCEPT]),
        ShareAcknowledgementBatch(first_offset=11, last_offset=MAX_ACQUIRED - 11, acknowledge_types=[GAP]),
        ShareAcknowledgementBatch(
            first_offset=MAX_ACQUIRED - 9, last_offset=MAX_ACQUIRED - 1, acknowledge_types=[RELEASE]
        ),
    ]


def test_offsets_of_a_batch_that_have_no_record_are_gaps() -> None:
    data = encode_batch([(0, None, b"v", ())] * 3, offset_deltas=[2, 3, 7], last_offset_delta=9)
    (only,) = decoded(acquired((0, 4), (6, 9), data=data))
    assert [record.offset for record in only.records] == [2, 3, 7]
    assert only.settled == [(0, 1, GAP), (4, 4, GAP), (6, 6, GAP), (8, 9, GAP)]
