"""Small batches are unpacked together: in fewer chunks, and with the same records, errors and positions."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite.consumer.buffer import JOINED_BYTES, JOINED_RECORDS
from aiokafka_lite.consumer.fetched import AbortedTransactions, Chunk
from aiokafka_lite.consumer.partition import AssignedPartition
from aiokafka_lite.consumer.position import Reset
from aiokafka_lite.errors import CorruptRecord
from aiokafka_lite.protocol.messages import AbortedTransaction
from aiokafka_lite.protocol.records import encode_batch, split_batches
from aiokafka_lite.types import Compression, TimestampType, TopicPartition

ORDERS = TopicPartition("orders", 3)
MAX_SIZE = 1 << 20
COMMIT, ABORT = b"\0\0\0\1", b"\0\0\0\0"


def batch(base: int, count: int, size: int = 0, **settings: object) -> bytes:
    """A batch whose values begin with their offsets."""
    rows = [(1_000, None, b"%d" % (base + index) + bytes(size), ()) for index in range(count)]
    return encode_batch(rows, base_offset=base, **settings)  # type: ignore[arg-type]


def marker(offset: int, producer_id: int, kind: bytes) -> bytes:
    rows = [(0, kind, b"", ())]
    return encode_batch(rows, base_offset=offset, producer_id=producer_id, transactional=True, control=True)


def corrupted(encoded: bytes) -> bytes:
    return encoded[:-2] + bytes([encoded[-2] ^ 1]) + encoded[-1:]


def fetched(*encoded: bytes, aborted: AbortedTransactions | None = None) -> AssignedPartition:
    state = AssignedPartition(ORDERS, Reset.EARLIEST, 1 << 20)
    state.seek(0)
    state.buffer.add(split_batches(b"".join(encoded)), aborted)
    return state


def next_chunk(state: AssignedPartition) -> Chunk | None:
    return state.next_chunk(check_crc=True, max_size=MAX_SIZE)


def chunks(state: AssignedPartition) -> list[list[int]]:
    """The offsets of each chunk, all delivered."""
    return [[record.offset for record in chunk.iterate()] for chunk in iter(lambda: next_chunk(state), None)]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_small_batches_make_one_chunk(codec: Compression) -> None:
    state = fetched(*(batch(start, 2, compression=codec) for start in range(0, 20, 2)))
    assert chunks(state) == [list(range(20))]
    assert state.offset == 20


def test_a_chunk_of_small_batches_is_bounded_by_its_records() -> None:
    tenth = JOINED_RECORDS // 10
    state = fetched(*(batch(tenth * number, tenth, compression=Compression.ZSTD) for number in range(12)))
    assert [len(each) for each in chunks(state)] == [JOINED_RECORDS, 2 * tenth]


def test_a_chunk_of_small_batches_is_bounded_by_its_bytes() -> None:
    state = fetched(*(batch(start, 1, JOINED_BYTES // 4) for start in range(6)))
    assert [len(each) for each in chunks(state)] == [3, 3]


def test_a_batch_that_decompresses_to_much_is_not_unpacked_with_others() -> None:
    large = batch(1, 2, JOINED_BYTES, compression=Compression.ZSTD)
    assert len(large) < JOINED_BYTES // 4
    assert chunks(fetched(batch(0, 1), large, batch(3, 1)))[0] == [0]


@pytest.mark.parametrize(
    "settings", [{"leader_epoch": 8}, {"timestamp_type": TimestampType.LOG_APPEND_TIME, "leader_epoch": 7}]
)
def test_the_records_of_a_chunk_have_one_leader_epoch_and_timestamp_type(settings: dict[str, object]) -> None:
    state = fetched(batch(0, 2, leader_epoch=7), batch(2, 2, **settings), batch(4, 2, **settings))
    assert chunks(state) == [[0, 1], [2, 3, 4, 5]]


def test_a_damaged_batch_is_raised_at_its_offset_after_the_records_of_the_batches_before_it() -> None:
    state = fetched(batch(0, 2), batch(2, 2), corrupted(batch(4, 2)), batch(6, 2))
    chunk = next_chunk(state)
    assert chunk is not None
    assert [record.offset for record in chunk.iterate()] == [0, 1, 2, 3]
    with pytest.raises(CorruptRecord, match="seek to 6") as caught:
        next_chunk(state)
    assert (caught.value.offset, state.offset) == (4, 4)


def test_a_batch_that_was_fetched_twice_is_delivered_once() -> None:
    state = fetched(batch(0, 4), batch(2, 4), batch(6, 1))
    assert list(itertools.chain.from_iterable(chunks(state))) == list(range(7))


def test_aborted_records_between_small_batches_are_hidden() -> None:
    log = (
        batch(0, 1, producer_id=1, transactional=True),
        batch(1, 2, producer_id=2, transactional=True),
        marker(3, 1, ABORT),
        marker(4, 2, COMMIT),
        batch(5, 1, producer_id=1, transactional=True),
        marker(6, 1, COMMIT),
    )
    state = fetched(*log, aborted=AbortedTransactions([AbortedTransaction(producer_id=1, first_offset=0)]))
    assert chunks(state) == [[1, 2, 5]]
    assert state.offset == 7


def test_a_committed_batch_that_is_packed_again_is_not_hidden_by_a_later_abort_of_its_producer() -> None:
    log = (
        batch(0, 2, producer_id=1, transactional=True),
        marker(2, 1, COMMIT),
        batch(3, 2, producer_id=1, transactional=True),
        batch(5, 1, leader_epoch=1),  # so the abort marker is not passed together with the aborted batch
        marker(6, 1, ABORT),
    )
    state = fetched(*log, aborted=AbortedTransactions([AbortedTransaction(producer_id=1, first_offset=3)]))
    chunk = next_chunk(state)
    assert chunk is not None
    chunk.advance(1)
    state.buffer.pack()
    assert state.offset == 1
    assert chunks(state) == [[1], [5]]


@given(st.lists(st.integers(1, 4), max_size=8), st.data())
def test_every_record_is_delivered_once_if_the_batches_are_packed_again(sizes: list[int], data: st.DataObject) -> None:
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    state = fetched(*(batch(start, size) for start, size in zip(starts, sizes)))
    total, taken = state.buffer.bytes, 0
    while (chunk := next_chunk(state)) is not None:
        assert chunk.offsets[chunk.index] == taken
        taken += len(chunk.offsets[chunk.advance(data.draw(st.integers(1, 6)))])
        if data.draw(st.booleans()):
            state.buffer.pack()
            assert state.offset == taken
            assert state.buffer.consumed_bytes + state.buffer.bytes == total
    assert (taken, state.buffer.consumed) == (sum(sizes), sum(sizes))
