"""Batches become the same rows as by decoding record by record, and damaged batches are errors."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

import pyarrow
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafka_lite.consumer.chunk import AbortedTransactions
from aiokafka_lite.consumer.columns import Batch
from aiokafka_lite.errors import CorruptRecord, DeserializationError
from aiokafka_lite.protocol.messages import AbortedTransaction
from aiokafka_lite.protocol.records import RecordBatch, encode_batch
from aiokafka_lite.protocol.records.columns import READ_COLUMNS, arrow_types, to_arrow
from aiokafka_lite.spark.decoding import Decoder
from aiokafka_lite.spark.offsets import Range
from aiokafka_lite.spark.reading import Fetched
from aiokafka_lite.types import Compression, TimestampType, TopicPartition
from tests.case_notes import case
from tests.pure.records.test_bombs import batch_of
from tests.pure.records.test_legacy import message, wrapper

ORDERS = TopicPartition("orders", 3)
EVERYTHING = READ_COLUMNS
FOREVER = 2**62

Row = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

blobs = st.none() | st.binary(max_size=200)
rows_of_batches = st.lists(
    st.lists(
        st.tuples(
            st.integers(-(2**40), 2**52),
            blobs,
            blobs,
            st.lists(st.tuples(st.text(max_size=5), blobs), max_size=2).map(tuple),
        ),
        min_size=1,
        max_size=40,
    ),
    min_size=1,
    max_size=5,
)


def decoder(*columns: str) -> Decoder:
    return Decoder(columns or EVERYTHING, check_crcs=True, max_decompressed_size=1 << 26)


def decoded(
    batches: Sequence[bytes | RecordBatch], low: int = 0, high: int = FOREVER, *columns: str
) -> list[dict[str, Any]]:
    """Return the rows of the batches of a partition, as Spark gets them."""
    pairs = [(batch if isinstance(batch, RecordBatch) else RecordBatch(batch), None) for batch in batches]
    return rows([Fetched(Range(ORDERS, low, high), pairs)], decoder(*columns))


def rows(fetched: Sequence[Fetched], using: Decoder) -> list[dict[str, Any]]:
    batches_of_rows = [*using.decode(fetched), *using.rest()]
    for batch in batches_of_rows:
        assert batch.schema == using.schema
        batch.validate(full=True)
    return [row for batch in batches_of_rows for row in batch.to_pylist()]


def one_by_one(batch: RecordBatch, partition: TopicPartition = ORDERS) -> Iterator[dict[str, Any]]:
    """Yield the same rows, decoded record by record."""
    columns = batch.columns()
    for offset, time, key, value, headers in zip(
        columns.offsets, columns.timestamps, columns.keys, columns.values, columns.headers
    ):
        yield {
            "key": key,
            "value": value,
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": offset,
            "timestamp": None if time == -1 else pyarrow.scalar(time * 1000, arrow_types()["timestamp"]).as_py(),
            "timestampType": int(batch.timestamp_type),
            "headers": [{"key": name, "value": value} for name, value in headers] or None,
        }


@settings(deadline=None, max_examples=60)
@given(rows_of_batches, st.sampled_from([Compression.NONE, Compression.LZ4]), st.data())
def test_many_batches_at_once_give_the_same_rows_as_record_by_record(
    content: list[list[Row]], compression: Compression, data: st.DataObject
) -> None:
    batches, base = [], 0
    for records in content:
        gaps = data.draw(st.lists(st.integers(0, 300), min_size=len(records), max_size=len(records)))
        deltas = [gap + index for index, gap in enumerate(accumulate(gaps))]
        kind = data.draw(st.sampled_from([TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]))
        packed = encode_batch(
            [(time % 2**41 - 2**40, key, value, headers) for time, key, value, headers in records],
            base_offset=base,
            compression=compression,
            timestamp_type=kind,
            offset_deltas=deltas,
        )
        batches.append(RecordBatch(packed))
        base = batches[-1].next_offset
    expected = [row for batch in batches for row in one_by_one(batch)]
    assert decoded(batches) == expected
    low = data.draw(st.integers(0, base))
    high = data.draw(st.integers(low, base))
    assert decoded(batches, low, high) == [row for row in expected if low <= row["offset"] < high]


@pytest.mark.parametrize("time", [-(2**63), 2**63 - 1])
def test_the_first_and_the_last_time_of_64_bits_do_not_fit_into_microseconds(time: int) -> None:
    batch = encode_batch([(time, None, b"", ())])
    with pytest.raises(DeserializationError, match=f"a timestamp of {time} ms does not fit"):
        decoded([batch])
    with pytest.raises(DeserializationError, match=f"a timestamp of {time} ms does not fit"):
        to_arrow(batch_with(RecordBatch(batch)))


def test_a_time_before_1970_is_kept_and_a_missing_one_is_null() -> None:
    day = 86_400_000
    batch = encode_batch([(time, None, b"", ()) for time in (-day, -2, -1, 0, 1)])
    assert [row["timestamp"] for row in decoded([batch])] == [
        datetime(1969, 12, 31, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 998_000, tzinfo=UTC),
        None,
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 1, 0, 0, 0, 1_000, tzinfo=UTC),
    ]


@pytest.mark.parametrize("time", [1_795_880_612_932_000_000, -(2**62)])
def test_a_time_that_does_not_fit_into_microseconds_is_an_error_that_names_the_record(time: int) -> None:
    good = encode_batch([(1, None, b"", ())] * 3, base_offset=4)
    bad = encode_batch([(1, None, b"a", ()), (time, None, b"b", ()), (2, None, b"c", ())], base_offset=20)
    with pytest.raises(
        DeserializationError, match=rf"orders-3 at offset 21: a timestamp of {time} ms .*nanosec"
    ) as raised:
        decoded([good, bad])
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("orders", 3, 21)
    with pytest.raises(DeserializationError, match="orders-3 at offset 21"):
        decoded([good, bad], 5)
    with pytest.raises(DeserializationError, match="orders-3 at offset 21"):
        to_arrow(batch_with(RecordBatch(bad)))
    assert [row["value"] for row in decoded([good, bad], 0, FOREVER, "value")] == [b"", b"", b"", b"a", b"b", b"c"]
    assert len(decoded([good, bad], 0, 21)) == 4


def batch_with(packed: RecordBatch) -> Batch:
    columns = packed.columns()
    return Batch(
        "orders",
        3,
        packed.timestamp_type,
        None,
        columns.offsets,
        columns.timestamps,
        columns.keys,
        columns.values,
        columns.headers,
    )


def test_nulls_stay_nulls_and_empty_stays_empty() -> None:
    content = [(1, None, b"", ()), (2, b"", None, ()), (3, None, None, ()), (4, b"k", b"v", ())]
    columns = decoded([encode_batch(content)], 0, FOREVER, "key", "value")
    assert columns == [
        {"key": None, "value": b""},
        {"key": b"", "value": None},
        {"key": None, "value": None},
        {"key": b"k", "value": b"v"},
    ]


@pytest.mark.parametrize("column", EVERYTHING)
def test_each_column_can_be_read_alone(column: str) -> None:
    batch = encode_batch([(1_700_000_000_000, b"k", b"v", [("h", b"1"), ("h", None)])], base_offset=7)
    (row,) = decoded([batch], 0, FOREVER, column)
    whole = {
        "key": b"k",
        "value": b"v",
        "topic": "orders",
        "partition": 3,
        "offset": 7,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    }
    assert row == {column: whole[column]}


def test_rows_of_several_partitions_share_a_record_batch() -> None:
    others = [TopicPartition("orders", 0), TopicPartition("payments", 9)]
    fetched = [
        Fetched(Range(partition, 0, FOREVER), [(RecordBatch(encode_batch([(1, None, b"v", ())] * 3)), None)])
        for partition in others
    ]
    using = decoder("topic", "partition", "offset")
    batches_of_rows = [*using.decode(fetched), *using.rest()]
    assert len(batches_of_rows) == 1
    assert [tuple(row.values()) for row in batches_of_rows[0].to_pylist()] == [
        (partition.topic, partition.partition, offset) for partition in others for offset in range(3)
    ]


def test_records_of_aborted_transactions_and_markers_are_left_out() -> None:
    abort = encode_batch([(1, b"\0\0\0\0", b"", ())], base_offset=4, producer_id=5, transactional=True, control=True)
    log = [
        encode_batch([(1, None, b"aborted", ())] * 2, base_offset=0, producer_id=5, transactional=True),
        encode_batch([(1, None, b"of another", ())] * 2, base_offset=2, producer_id=6, transactional=True),
        abort,
        encode_batch([(1, None, b"committed later", ())], base_offset=5, producer_id=5, transactional=True),
    ]
    aborted = AbortedTransactions([AbortedTransaction(producer_id=5, first_offset=0)])
    fetched = Fetched(Range(ORDERS, 0, FOREVER), [(RecordBatch(data), aborted) for data in log])
    committed = rows([fetched], decoder("value", "offset"))
    assert [(row["offset"], row["value"]) for row in committed] == [
        (2, b"of another"),
        (3, b"of another"),
        (5, b"committed later"),
    ]
    uncommitted = rows([Fetched(fetched.range, [(RecordBatch(data), None) for data in log])], decoder("offset"))
    assert [row["offset"] for row in uncommitted] == [0, 1, 2, 3, 5]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_messages_of_the_old_formats_are_read(codec: Compression) -> None:
    plain = [message(1, offset, b"k", b"v%d" % offset) for offset in range(5)]
    log = plain if codec is Compression.NONE else [wrapper(1, 4, b"".join(plain), codec)]
    batches = [RecordBatch(data) for data in log]
    result = decoded(batches, 1, 4)
    assert result == [row for batch in batches for row in one_by_one(batch) if 1 <= row["offset"] < 4]
    assert [row["value"] for row in result] == [b"v1", b"v2", b"v3"]


@dataclass
class Damage:
    """A batch of three records, with one byte of them changed and the checksum made to fit."""

    at: int
    to: int

    def batch(self) -> RecordBatch:
        good = encode_batch([(1, b"key", b"value", [("h", b"x")])] * 3, base_offset=100)
        bad = bytearray(good)
        bad[61 + self.at] = self.to
        whole = RecordBatch(bytes(bad))
        whole.crc = crc32c(bytes(bad[21:]))
        return whole


def test_a_damaged_record_is_reported_with_its_place_unless_record_by_record_decoding_accepts_it() -> None:
    for at, to in itertools.product(range(19 * 3), (0x00, 0x01, 0x7F, 0x80, 0xFF)):
        with case(at, to):
            batch = Damage(at, to).batch()
            try:
                expected: list[dict[str, Any]] | None = list(one_by_one(batch))
            except CorruptRecord:
                expected = None
            if expected is not None:
                assert decoded([batch]) == expected
                continue
            with pytest.raises(CorruptRecord, match="orders-3 cannot be read at offset 100") as raised:
                decoded([batch])
            assert raised.value.offset == 100


def test_a_wrong_checksum_is_an_error_unless_checks_are_off() -> None:
    bad = bytearray(encode_batch([(1, None, b"value", ())]))
    bad[-2] ^= 1
    with pytest.raises(CorruptRecord, match="checksum"):
        decoded([bytes(bad)])
    trusting = Decoder(("value",), check_crcs=False, max_decompressed_size=1 << 20)
    fetched = Fetched(Range(ORDERS, 0, 1), [(RecordBatch(bytes(bad)), None)])
    assert rows([fetched], trusting) == [{"value": b"valud"}]


def test_random_bytes_raise_corrupt_record_or_decode() -> None:
    source = random.Random(7)
    good = encode_batch([(1, b"k" * 10, b"v" * 50, [("h", b"x")])] * 20)
    for _ in range(300):
        bad = bytearray(good)
        for _ in range(source.randint(1, 6)):
            bad[source.randrange(61, len(bad))] = source.randrange(256)
        batch = RecordBatch(bytes(bad))
        batch.crc = crc32c(bytes(bad[21:]))
        with suppress(CorruptRecord):
            decoded([batch])


def test_an_unterminated_length_is_reported_with_its_offset() -> None:
    bad = bytearray(encode_batch([(1, None, b"v" * 50, ())], base_offset=100))
    bad[61:67] = b"\xff" * 6
    batch = RecordBatch(bytes(bad))
    batch.crc = crc32c(bytes(bad[21:]))
    with pytest.raises(CorruptRecord, match="orders-3 cannot be read at offset 100") as raised:
        decoded([batch])
    assert raised.value.offset == 100


def test_a_batch_that_decompresses_to_more_than_is_allowed_is_reported_with_what_a_query_can_do() -> None:
    packed = encode_batch([(1, None, b"v" * 500, ())] * 3, base_offset=100, compression=Compression.LZ4)
    small = Decoder(("value",), check_crcs=True, max_decompressed_size=1000)
    with pytest.raises(CorruptRecord) as raised:
        rows([Fetched(Range(ORDERS, 101, 103), [(RecordBatch(packed), None)])], small)
    assert str(raised.value) == (
        "orders-3 cannot be read at offset 101: lz4 data decompresses to more than 1000 bytes; if it is genuine, raise "
        "the option maxDecompressedSize; the batch has offsets 100 to 102; to skip it, begin a new query at offset 103 "
        "of this partition (startingOffsets)"
    )
    error = raised.value
    assert (error.topic, error.partition, error.offset, error.next_offset) == ("orders", 3, 101, 103)


def test_record_batches_are_made_of_enough_rows_and_at_the_end() -> None:
    one = encode_batch([(1, None, b"v", ())] * 3_000)
    using = decoder("value")
    fetched = [Fetched(Range(ORDERS, 0, FOREVER), [(RecordBatch(one), None)] * 9)]
    sizes = [batch.num_rows for batch in using.decode(fetched)]
    assert sizes == [12_000, 12_000]
    assert [batch.num_rows for batch in using.rest()] == [3_000]
    assert list(using.rest()) == []


def test_records_with_many_headers_become_several_record_batches() -> None:
    counts = [0, 40_000, 30_000, 1, 65_536, 0]
    rows = [(1, None, b"v", [("h", None)] * count) for count in counts]
    using = decoder("offset", "headers")
    fetched = [Fetched(Range(ORDERS, 1, FOREVER), [(RecordBatch(encode_batch(rows)), None)])]
    batches_of_rows = [*using.decode(fetched), *using.rest()]
    assert [batch.column("offset").to_pylist() for batch in batches_of_rows] == [[1], [2, 3], [4, 5]]
    assert [
        len(headers or ()) for batch in batches_of_rows for headers in batch.column("headers").to_pylist()
    ] == counts[1:]


def test_a_record_with_too_many_headers_is_reported_before_they_are_decoded() -> None:
    with pytest.raises(CorruptRecord, match="a record has 2000000 headers; at most 65536 can be read"):
        decoded([batch_of(1, 2_000_000)], 0, FOREVER, "headers")
