"""An assigned partition: changes of its position, late answers, and the state after an error."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite.consumer.chunk import AbortedTransactions
from aiokafka_lite.consumer.partition import AssignedPartition
from aiokafka_lite.consumer.position import POSITION, PositionEvent, PositionState, ResetStrategy
from aiokafka_lite.errors import CorruptRecord, IllegalStateError, error_for
from aiokafka_lite.protocol.messages import AbortedTransaction
from aiokafka_lite.protocol.records import RecordBatch, encode_batch, split_batches
from aiokafka_lite.state_machine import next_state
from aiokafka_lite.types import Record, TopicPartition

ORDERS = TopicPartition("orders", 3)
MAX_SIZE = 1 << 20


def batch(base: int, count: int, **settings: int | bool) -> bytes:
    """Return a batch whose values are its offsets."""
    rows = [(1_000 + base + index, None, b"%d" % (base + index), ()) for index in range(count)]
    return encode_batch(rows, base_offset=base, **settings)  # type: ignore[arg-type]


def batches(*encoded: bytes) -> list[RecordBatch]:
    return split_batches(b"".join(encoded))


def at(offset: int) -> AssignedPartition:
    state = AssignedPartition(ORDERS, ResetStrategy.EARLIEST, 1000)
    state.seek(offset)
    return state


def read(state: AssignedPartition) -> list[Record]:
    records: list[Record] = []
    while (chunk := state.next_chunk(check_crc=True, max_size=MAX_SIZE)) is not None:
        records += chunk.iterate()
    return records


def offsets(state: AssignedPartition) -> list[int]:
    return [record.offset for record in read(state)]


def test_every_pair_of_state_and_event_is_either_in_the_table_or_refused() -> None:
    for state, event in itertools.product(PositionState, PositionEvent):
        if event in POSITION[state]:
            assert next_state(POSITION, state, event) is POSITION[state][event]
        else:
            with pytest.raises(IllegalStateError):
                next_state(POSITION, state, event)


def test_an_assigned_partition_has_no_position_until_it_is_found() -> None:
    state = AssignedPartition(ORDERS, ResetStrategy.EARLIEST, 1000)
    assert state.offset is None
    version = state.position.begin_lookup()
    assert state.offset is None
    assert state.end_lookup(version, 40, None)
    assert state.offset == state.buffer.end == 40


def test_an_offset_found_after_a_seek_does_not_undo_the_seek() -> None:
    state = AssignedPartition(ORDERS, ResetStrategy.LATEST, 1000)
    version = state.position.begin_lookup()
    state.seek(5)
    assert not state.end_lookup(version, 1_000, None)
    assert not state.position.fail_lookup(version)
    assert state.offset == 5


def test_an_offset_found_for_an_earlier_reset_is_dropped() -> None:
    state = AssignedPartition(ORDERS, ResetStrategy.EARLIEST, 1000)
    version = state.position.begin_lookup()
    state.reset_by(ResetStrategy.LATEST)
    second = state.position.begin_lookup()
    assert not state.end_lookup(version, 0, None)
    assert state.end_lookup(second, 99, None)
    assert state.offset == 99


def test_records_before_the_position_are_not_delivered() -> None:
    state = at(7)
    state.buffer.add(batches(batch(5, 5)), None)
    assert offsets(state) == [7, 8, 9]
    assert state.offset == 10


def test_the_position_moves_with_each_record_that_is_taken() -> None:
    state = at(0)
    state.buffer.add(batches(batch(0, 3)), None)
    chunk = state.next_chunk(check_crc=True, max_size=MAX_SIZE)
    assert chunk is not None
    assert state.offset == 0
    for record in chunk.iterate():
        assert state.offset == record.offset + 1
    assert state.offset == 3


def test_a_settled_iteration_continues_where_it_stopped() -> None:
    state = at(0)
    state.buffer.add(batches(batch(0, 5)), None)
    chunk = state.next_chunk(check_crc=True, max_size=MAX_SIZE)
    assert chunk is not None
    records = chunk.iterate()
    assert [next(records).offset, next(records).offset] == [0, 1]
    assert offsets(state) == [2, 3, 4]


def test_the_fetch_offset_is_behind_the_buffer_and_the_position_before_it() -> None:
    state = at(0)
    state.buffer.add(batches(batch(0, 3), batch(3, 4)), None)
    assert (state.offset, state.buffer.end) == (0, 7)
    assert state.buffer.bytes == len(batch(0, 3)) + len(batch(3, 4))
    assert state.buffer.available == 7
    assert len(read(state)) == 7
    assert (state.offset, state.buffer.bytes, state.buffer.available) == (7, 0, 0)


def test_batches_that_are_buffered_already_are_not_buffered_again() -> None:
    state = at(0)
    assert state.buffer.add(batches(batch(0, 3)), None)
    assert not state.buffer.add(batches(batch(0, 3)), None)
    assert state.buffer.add(batches(batch(0, 3), batch(3, 1)), None)
    assert offsets(state) == [0, 1, 2, 3]


def test_a_seek_drops_the_buffer_and_changes_the_version() -> None:
    state = at(0)
    state.buffer.add(batches(batch(0, 3)), None)
    before = state.position.version
    state.seek(1)
    assert state.position.version != before
    assert not state.buffer.has_data
    assert (state.offset, state.buffer.end, state.buffer.bytes) == (1, 1, 0)


def test_a_gap_from_compaction_is_skipped() -> None:
    state = at(0)
    rows = [(0, None, b"a", ()), (0, None, b"b", ())]
    gappy = encode_batch(rows, base_offset=0, offset_deltas=[2, 5], last_offset_delta=9)
    state.buffer.add(batches(gappy), None)
    assert offsets(state) == [2, 5]
    assert state.offset == 10


def test_a_batch_that_compaction_emptied_moves_the_position() -> None:
    state = at(0)
    state.buffer.add(batches(encode_batch([], base_offset=0, last_offset_delta=4), batch(5, 1)), None)
    assert offsets(state) == [5]


def corrupted(data: bytes) -> bytes:
    return data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]  # in the last value


def test_a_damaged_batch_is_raised_once_after_the_records_before_it() -> None:
    state = at(0)
    state.buffer.add(batches(batch(0, 2), corrupted(batch(2, 3)), batch(5, 1)), None)
    chunk = state.next_chunk(check_crc=True, max_size=MAX_SIZE)
    assert chunk is not None
    assert [record.offset for record in chunk.iterate()] == [0, 1]
    with pytest.raises(CorruptRecord, match=r"orders-3 .* offset 2: .* seek to 5") as caught:
        state.next_chunk(check_crc=True, max_size=MAX_SIZE)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 3, 2)
    assert state.next_chunk(check_crc=True, max_size=MAX_SIZE) is None  # raised once
    assert (state.offset, state.buffer.end) == (2, 2)  # and fetched again from there


def test_checksums_are_ignored_without_check_crc() -> None:
    state = at(0)
    state.buffer.add(batches(corrupted(batch(0, 1))), None)
    chunk = state.next_chunk(check_crc=False, max_size=MAX_SIZE)
    assert chunk is not None
    assert chunk.values == [b"1"]


def test_a_failure_is_raised_after_the_records_that_were_fetched_before_it() -> None:
    state = at(0)
    state.buffer.add(batches(batch(0, 2)), None)
    state.fail(error_for(29, "reading"))
    assert state.readable
    chunk = state.next_chunk(check_crc=True, max_size=MAX_SIZE)
    assert chunk is not None
    assert [record.offset for record in chunk.iterate()] == [0, 1]
    with pytest.raises(Exception, match="reading"):
        state.next_chunk(check_crc=True, max_size=MAX_SIZE)
    assert not state.readable


def test_a_paused_partition_keeps_its_data_and_is_not_readable() -> None:
    state = at(0)
    state.buffer.add(batches(batch(0, 2)), None)
    state.paused = True
    assert not state.readable
    assert state.buffer.has_data
    state.paused = False
    assert offsets(state) == [0, 1]


def marker(base: int, producer_id: int, *, abort: bool) -> bytes:
    key = b"\0\0" + (b"\0\0" if abort else b"\0\1")
    rows = [(0, key, b"\0\0\0\0\0\0", ())]
    return encode_batch(
        rows, base_offset=base, producer_id=producer_id, producer_epoch=0, transactional=True, control=True
    )


def transactional(base: int, count: int, producer_id: int) -> bytes:
    return batch(base, count, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def test_records_of_aborted_transactions_are_hidden_even_if_the_list_is_not_sorted() -> None:
    log = [
        transactional(0, 2, producer_id=1),  # aborted
        transactional(2, 2, producer_id=2),  # committed
        marker(4, 1, abort=True),
        batch(5, 1),  # of no transaction
        marker(6, 2, abort=False),
        transactional(7, 1, producer_id=2),  # aborted
        transactional(8, 1, producer_id=1),  # committed, by the producer that aborted before
        marker(9, 2, abort=True),
        marker(10, 1, abort=False),
    ]
    aborted = [AbortedTransaction(producer_id=2, first_offset=7), AbortedTransaction(producer_id=1, first_offset=0)]
    state = at(0)
    state.buffer.add(batches(*log), AbortedTransactions(aborted))
    assert offsets(state) == [2, 3, 5, 8]
    assert state.offset == 11

    uncommitted = at(0)
    uncommitted.buffer.add(batches(*log), None)
    assert offsets(uncommitted) == [0, 1, 2, 3, 5, 7, 8]
    assert uncommitted.offset == 11


def test_an_abort_marker_at_the_start_of_an_answer_does_not_hide_the_next_transaction() -> None:
    state = at(2)
    listed = [AbortedTransaction(producer_id=1, first_offset=0)]  # its records were in the previous answer
    log = [marker(2, 1, abort=True), transactional(3, 2, producer_id=1), marker(5, 1, abort=False)]
    state.buffer.add(batches(*log), AbortedTransactions(listed))
    assert offsets(state) == [3, 4]
    assert state.offset == 6


@given(data=st.data())
def test_transactions_are_filtered_as_by_a_simple_model(data: st.DataObject) -> None:
    log: list[bytes] = []
    expected: list[int] = []
    aborted: list[tuple[AbortedTransaction, int]] = []  # with the offset of the marker
    opened: dict[int, tuple[int, list[int]]] = {}
    offset = 0
    for _ in range(data.draw(st.integers(0, 25))):
        producer = data.draw(st.integers(1, 3))
        action = data.draw(st.sampled_from(["write", "commit", "abort", "plain"]))
        if action == "plain":
            log.append(batch(offset, 1))
            expected.append(offset)
        elif action == "write":
            log.append(transactional(offset, 1, producer))
            opened.setdefault(producer, (offset, []))[1].append(offset)
        elif producer in opened:
            first, written = opened.pop(producer)
            log.append(marker(offset, producer, abort=action == "abort"))
            if action == "abort":
                aborted.append((AbortedTransaction(producer_id=producer, first_offset=first), offset))
            else:
                expected += written
        else:
            continue
        offset += 1
    for _, written in opened.values():  # open; brokers do not send them, but who does sends no abort with them
        expected += written
    state, got, start = at(0), [], 0
    while start < len(log):  # each batch takes one offset; an answer holds some, and lists what overlaps it
        end = data.draw(st.integers(start + 1, len(log)))
        listed = [transaction for transaction, ended in aborted if transaction.first_offset < end and ended >= start]
        state.buffer.add(batches(*log[start:end]), AbortedTransactions(data.draw(st.permutations(listed))))
        got += offsets(state)
        start = end
    assert got == sorted(expected)


@given(st.lists(st.integers(1, 4), max_size=8), st.data())
def test_every_record_is_delivered_once_however_it_is_taken(sizes: list[int], data: st.DataObject) -> None:
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    state = at(0)
    state.buffer.add(batches(*(batch(start, size) for start, size in zip(starts, sizes))), None)
    delivered: list[int] = []
    while (chunk := state.next_chunk(check_crc=True, max_size=MAX_SIZE)) is not None:
        count = data.draw(st.integers(1, 5))
        if data.draw(st.booleans()):
            delivered += [record.offset for record in itertools.islice(chunk.iterate(), count)]
        else:
            delivered += chunk.offsets[chunk.advance(count)]
        assert state.offset == len(delivered)
        if data.draw(st.booleans()):
            state.drop_buffer()
            remaining = [batch(start, size) for start, size in zip(starts, sizes) if start + size > len(delivered)]
            state.buffer.add(batches(*remaining), None)
    assert delivered == list(range(sum(sizes)))


def test_a_batch_of_many_records_is_decoded_in_chunks() -> None:
    """A record of seven bytes becomes a hundred bytes of objects, so a small batch must not be decoded all at once."""
    state = at(0)
    rows = [(0, None, None, ())] * 40_000
    state.buffer.add(batches(encode_batch(rows)), None)
    sizes = []
    while (chunk := state.next_chunk(check_crc=True, max_size=1 << 21)) is not None:
        sizes.append(len(chunk))
        chunk.advance(len(chunk))
    assert sizes == [16_384, 16_384, 40_000 - 2 * 16_384]
