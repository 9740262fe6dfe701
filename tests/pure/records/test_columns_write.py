"""Arrow columns are encoded to the same bytes, on the same partitions, as single records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite.errors import SerializationError
from aiokafka_lite.protocol.records import encode_records, murmur2, partition_for_key

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")

from aiokafka_lite.protocol.records.columns import MAX_RECORDS, Rows  # noqa: E402
from aiokafka_lite.protocol.records.murmur2 import murmur2_of_column, partitions_for_keys  # noqa: E402

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOW = 1_700_000_000_000

maybe_bytes = st.none() | st.binary(max_size=40) | st.integers(0, 300).map(lambda size: bytes(100 * size))
records = st.tuples(
    maybe_bytes,
    maybe_bytes,
    st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    st.integers(0, 2**62),
)


def rows_of(rows: list[Any]) -> Rows:
    headers = [None if row[2] is None else [{"key": key, "value": value} for key, value in row[2]] for row in rows]
    return Rows(
        "t",
        pa.record_batch(
            {
                "key": pa.array([row[0] for row in rows], pa.binary()),
                "value": pa.array([row[1] for row in rows], pa.binary()),
                "headers": pa.array(headers, HEADERS),
                "timestamp": pa.array([row[3] for row in rows], pa.int64()),
            }
        ),
        NOW,
    )


@given(st.lists(records, min_size=1, max_size=30), st.data())
def test_columns_are_encoded_like_single_records(rows: list[Any], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows) - 1))
    stop = data.draw(st.integers(start + 1, len(rows)))
    columns = rows_of(rows)
    encoded = columns.encode(start, stop)
    keys, values, headers, timestamps = zip(*rows[start:stop])
    expected = encode_records(timestamps[0], timestamps, keys, values, [header or () for header in headers])
    assert bytes(encoded.records) == bytes(expected)
    assert (encoded.count, encoded.base_timestamp, encoded.max_timestamp) == (
        stop - start,
        timestamps[0],
        max(timestamps),
    )
    assert columns.sizes()[start:stop].sum() >= len(expected)


@given(st.lists(st.binary(max_size=70), min_size=1), st.integers(1, 1000), st.integers(0, 3))
def test_keys_get_the_partitions_of_single_keys(keys: list[bytes], count: int, skipped: int) -> None:
    column = pa.array([b"skipped"] * skipped + keys, pa.large_binary()).slice(skipped)
    assert murmur2_of_column(column).tolist() == [murmur2(key) & 0xFFFFFFFF for key in keys]
    assert partitions_for_keys(column, count).tolist() == [partition_for_key(key, count) for key in keys]


def test_rows_without_a_timestamp_get_the_time_of_the_call() -> None:
    encoded = Rows("t", pa.record_batch({"value": [b"a", b"b"]}), NOW).encode(0, 2)
    assert (encoded.base_timestamp, encoded.max_timestamp) == (NOW, NOW)
    partial = Rows("t", pa.record_batch({"value": [b"a", b"b"], "timestamp": pa.array([None, 5], pa.int64())}), NOW)
    assert partial.encode(0, 2).base_timestamp == NOW
    assert partial.encode(1, 2).base_timestamp == 5


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_any_unit_are_cut_to_milliseconds(unit: str) -> None:
    exact = {"s": 1_700_000_000, "ms": 1_700_000_000_123, "us": 1_700_000_000_123_999, "ns": 1_700_000_000_123_999_999}
    column = pa.array([exact[unit]], pa.timestamp(unit, "UTC"))
    rows = Rows("t", pa.record_batch({"value": ["v"], "timestamp": column}), NOW)
    assert rows.encode(0, 1).base_timestamp == (1_700_000_000_000 if unit == "s" else 1_700_000_000_123)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(2)])
def test_text_and_bytes_of_every_kind_are_taken(kind: Any) -> None:
    column = pa.array([b"aa", None]).cast(pa.binary(2)).cast(pa.binary()).cast(kind)
    encoded = Rows("t", pa.record_batch({"key": column, "value": column}), NOW).encode(0, 2)
    assert bytes(encoded.records) == bytes(encode_records(NOW, [NOW] * 2, [b"aa", None], [b"aa", None]))


def test_a_column_of_type_null_is_all_nulls() -> None:
    nothing = pa.nulls(2)
    rows = Rows(
        "t",
        pa.record_batch(
            {"key": nothing, "value": nothing, "headers": nothing, "partition": nothing, "timestamp": nothing}
        ),
        NOW,
    )
    assert bytes(rows.encode(0, 2).records) == bytes(encode_records(NOW, [NOW] * 2, [None] * 2, [None] * 2))


@pytest.mark.parametrize(
    "columns, complaint",
    [
        ({"key": ["k"]}, "column 'value' .* is required"),
        ({"value": [1]}, "column 'value' .* must be binary or string, got int64"),
        ({"value": ["v"], "key": [1.5]}, "column 'key' .* must be binary or string, got double"),
        ({"value": ["v"], "offset": [1]}, "columns .* must be some of key, .*, timestamp.*, got 'offset'"),
        ({"value": ["v"], "headers": ["h"]}, "column 'headers' .* list of structs"),
        ({"value": ["v"], "headers": [[{"name": "h"}]]}, "column 'headers' .* key and value"),
        ({"value": ["v"], "headers": [[{"key": None, "value": b""}]]}, "no key null, got a null"),
        ({"value": ["v"], "headers": [[None, {"key": "k", "value": b""}]]}, "no header and no key null, got a null"),
        ({"value": ["v"], "partition": ["0"]}, "column 'partition' .* whole numbers"),
        ({"value": ["v"], "timestamp": ["now"]}, "column 'timestamp' .* milliseconds"),
        ({"value": ["v"], "timestamp": [-1]}, "column 'timestamp' .* 1970 or later"),
    ],
)
def test_a_wrong_column_is_refused_with_the_type_it_must_have(columns: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SerializationError, match=complaint):
        Rows("orders", pa.record_batch(columns), NOW)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=200), st.integers(1, 3000))
def test_batches_have_every_row_and_the_maximum_size(sizes: list[int], most: int) -> None:
    rows = Rows("t", pa.record_batch({"value": pa.array([bytes(size) for size in sizes], pa.binary())}), NOW)
    start = 0
    while start < rows.count:
        encoded = rows.encode(start, rows.count, most)
        assert len(encoded.records) <= most or encoded.count == 1
        stop = start + encoded.count
        assert stop == rows.count or rows.sizes()[start : stop + 1].sum() > most
        start = stop
    assert start == len(sizes)


def test_a_batch_has_no_more_records_than_the_table_of_deltas() -> None:
    rows = Rows("t", pa.record_batch({"value": pa.nulls(MAX_RECORDS + 5)}), NOW)
    assert rows.encode(0, rows.count).count == MAX_RECORDS
    assert rows.encode(MAX_RECORDS, rows.count).count == 5
