"""Small uncompressed batches are unpacked together: in fewer chunks, with the same records, errors and positions."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite.consumer.buffer import JOINED_BYTES, JOINED_RECORDS
from aiokafka_lite.consumer.chunk import AbortedTransactions, Chunk
from aiokafka_lite.consumer.partition import AssignedPartition
from aiokafka_lite.consumer.position import ResetStrategy
from aiokafka_lite.errors import CorruptRecord
from aiokafka_lite.protocol.messages import AbortedTransaction
from aiokafka_lite.protocol.records import MAX_HEADERS, encode_batch, split_batches
from aiokafka_lite.types import Compression, TimestampType, TopicPartition

ORDERS = TopicPartition("orders", 3)
MAX_SIZE = 1 << 20
COMMIT, ABORT = b"\0\0\0\1", b"\0\0\0\0"


def batch(base: int, count: int, size: int = 0, **settings: object) -> bytes:
    """Return a batch whose values begin with their offsets."""
    rows = [(1_000, None, b"%d" % (base + index) + bytes(size), ()) for index in range(count)]
    return encode_batch(rows, base_offset=base, **settings)  # type: ignore[arg-type]


def marker(offset: int, producer_id: int, kind: bytes) -> bytes:
    rows = [(0, kind, b"", ())]
    return encode_batch(rows, base_offset=offset, producer_id=producer_id, transactional=True, control=True)


def corrupted(encoded: bytes) -> bytes:
    return encoded[:-2] + bytes([encoded[-2] ^ 1]) + encoded[-1:]


def fetched(*encoded: bytes, aborted: AbortedTransactions | None = None) -> AssignedPartition:
    state = AssignedPartition(ORDERS, ResetStrategy.EARLIEST, 1 << 20)
    state.seek(0)
    state.buffer.add(split_batches(b"".join(encoded)), aborted)
    return state


def next_chunk(state: AssignedPartition) -> Chunk | None:
    return state.next_chunk(check_crc=True, max_size=MAX_SIZE)


def unread(state: AssignedPartition) -> Chunk | None:
    """Return the next chunk, whose records count as delivered."""
    chunk = next_chunk(state)
    if chunk is not None:
        chunk.advance(len(chunk))
    return chunk


def chunks(state: AssignedPartition) -> list[list[int]]:
    """Return the offsets of each chunk, all delivered."""
    return [[record.offset for record in chunk.iterate()] for chunk in iter(lambda: next_chunk(state), None)]


def test_small_batches_make_one_chunk() -> None:
    state = fetched(*(batch(start, 2) for start in range(0, 20, 2)))
    assert chunks(state) == [list(range(20))]
    assert state.offset == 20


def test_compressed_batches_are_unpacked_one_by_one() -> None:
    codecs = [Compression.ZSTD, Compression.ZSTD, Compression.NONE, Compression.NONE, Compression.GZIP]
    state = fetched(*(batch(2 * number, 2, compression=codec) for number, codec in enumerate(codecs)))
    assert chunks(state) == [[0, 1], [2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_chunk_of_small_batches_is_bounded_by_its_records() -> None:
    tenth = JOINED_RECORDS // 10
    state = fetched(*(batch(tenth * number, tenth) for number in range(12)))
    assert [len(chunk) for chunk in chunks(state)] == [JOINED_RECORDS, 2 * tenth]


def test_a_marker_that_claims_a_negative_number_of_records_does_not_make_a_chunk_larger() -> None:
    claims = bytearray(marker(1, 1, COMMIT))
    claims[57:61] = (-(1 << 31)).to_bytes(4, "big", signed=True)
    tenth = JOINED_RECORDS // 10
    state = fetched(batch(0, 1), bytes(claims), *(batch(2 + tenth * number, tenth) for number in range(12)))
    chunk = state.next_chunk(check_crc=False, max_size=MAX_SIZE)
    assert chunk is not None
    assert JOINED_RECORDS - tenth < len(chunk) <= JOINED_RECORDS


def test_a_chunk_of_small_batches_has_fewer_headers_than_one_batch_may_have() -> None:
    row = (1_000, None, None, [("", None)] * 900)
    state = fetched(*(encode_batch([row], base_offset=offset) for offset in range(12)))
    counts = [chunk.header_count for chunk in iter(lambda: unread(state), None)]
    assert counts == [8 * 900, 4 * 900]
    assert JOINED_BYTES // 2 < MAX_HEADERS  # a header has two bytes or more


def test_a_chunk_of_small_batches_is_bounded_by_its_bytes() -> None:
    state = fetched(*(batch(start, 1, JOINED_BYTES // 4) for start in range(6)))
    assert [len(chunk) for chunk in chunks(state)] == [3, 3]


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


def test_a_batch_with_an_unknown_codec_is_raised_after_the_records_of_the_batches_before_it() -> None:
    unknown = bytearray(batch(2, 2))
    unknown[22] |= 7  # the codec, in the attributes
    state = fetched(batch(0, 2), bytes(unknown))
    assert unread(state) is not None
    assert state.offset == 2
    with pytest.raises(CorruptRecord, match="unknown codec") as caught:
        state.next_chunk(check_crc=False, max_size=MAX_SIZE)
    assert (caught.value.offset, state.offset) == (2, 2)


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


def test_packed_batches_are_unpacked_one_by_one_and_those_behind_them_together() -> None:
    """So a pause after each record unpacks and packs one batch, and not all batches of a chunk."""
    state = fetched(*(batch(start, 2) for start in range(0, 16, 2)))
    chunk = next_chunk(state)
    assert chunk is not None
    assert len(chunk) == 16
    chunk.advance(9)
    state.buffer.pack()
    state.buffer.add(split_batches(batch(16, 2) + batch(18, 2)), None)
    assert chunks(state) == [[9], [10, 11], [12, 13], [14, 15], [16, 17, 18, 19]]


@pytest.fixture
def before_marker() -> AssignedPartition:
    """Records 0 and 1 with their marker, of which record 0 is read. The batch was unpacked, and packed again."""
    state = fetched(batch(0, 2, producer_id=1, transactional=True), marker(2, 1, COMMIT))
    chunk = next_chunk(state)
    assert chunk is not None
    chunk.advance(1)
    state.buffer.pack()
    return state


def test_the_position_passes_a_hidden_batch_behind_a_packed_one(before_marker: AssignedPartition) -> None:
    assert chunks(before_marker) == [[1]]
    assert (before_marker.offset, before_marker.buffer.end) == (3, 3)


def test_a_read_of_packed_batches_passes_a_hidden_batch_behind_them(before_marker: AssignedPartition) -> None:
    assert len(before_marker.next_packed(10, 1 << 20, check_crc=True, max_size=MAX_SIZE)) == 1
    assert (before_marker.offset, before_marker.buffer.end) == (3, 3)


def test_a_failure_behind_a_hidden_batch_is_raised_at_its_own_offset(before_marker: AssignedPartition) -> None:
    before_marker.fail_corrupt("damaged")
    assert unread(before_marker) is not None
    with pytest.raises(CorruptRecord) as caught:
        next_chunk(before_marker)
    assert (caught.value.offset, before_marker.offset, before_marker.buffer.end) == (3, 3, 3)


def test_the_end_of_a_turn_keeps_the_position_behind_a_hidden_batch() -> None:
    state = fetched(batch(0, 2), marker(2, 1, COMMIT), batch(3, 2, leader_epoch=1))
    assert unread(state) is not None
    assert state.offset == 3
    assert state.next_chunk(check_crc=True, max_size=MAX_SIZE, same_batch=True) is None
    assert state.offset == 3


BATCHES = st.tuples(st.sampled_from(["plain", "compressed", "transaction", "abort marker"]), st.integers(1, 4))


@given(st.lists(BATCHES, max_size=10), st.data())
def test_every_visible_record_is_delivered_once_if_the_batches_are_packed_again(
    kinds: list[tuple[str, int]], data: st.DataObject
) -> None:
    log: list[bytes] = []
    visible: list[int] = []
    end, aborting = 0, True  # the transaction of producer 1 up to its first marker is aborted
    for kind, size in kinds:
        if kind == "abort marker":
            log.append(marker(end, 1, ABORT))
            end, aborting = end + 1, False
            continue
        if kind == "transaction":
            log.append(batch(end, size, producer_id=1, transactional=True))
        else:
            log.append(batch(end, size, compression=Compression.ZSTD if kind == "compressed" else Compression.NONE))
        if kind != "transaction" or not aborting:
            visible += range(end, end + size)
        end += size
    state = fetched(*log, aborted=AbortedTransactions([AbortedTransaction(producer_id=1, first_offset=0)]))
    total, unpacked = state.buffer.bytes, 0
    delivered: list[int] = []
    while (chunk := next_chunk(state)) is not None:
        delivered += chunk.offsets[chunk.advance(data.draw(st.integers(1, 6)))]
        if data.draw(st.booleans()):
            state.buffer.pack()
            assert delivered[-1] < state.offset <= min(visible[len(delivered) :], default=end)
            assert state.buffer.consumed_bytes + state.buffer.bytes == total
            assert state.buffer.has_data or state.offset == state.buffer.end == end
        assert state.buffer.unpacked_bytes >= unpacked, "a counter never falls"
        unpacked = state.buffer.unpacked_bytes
    assert (delivered, state.buffer.consumed) == (visible, len(visible))
    assert state.offset == state.buffer.end == end
