"""Batches as buffers, NumPy arrays and Arrow record batches."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite.consumer import Batch
from aiokafka_lite.errors import ConfigurationError, DeserializationError
from aiokafka_lite.protocol.records.columns import bytes_column
from aiokafka_lite.types import Header, TimestampType

pyarrow = pytest.importorskip("pyarrow")
numpy = pytest.importorskip("numpy")

NOW = 1_700_000_000_123


def batch(count: int = 3, **columns: object) -> Batch:
    settings: dict[str, object] = {
        "topic": "orders",
        "partition": 7,
        "timestamp_type": TimestampType.CREATE_TIME,
        "leader_epoch": 1,
        "offsets": list(range(10, 10 + count)),
        "timestamps": [NOW + number for number in range(count)],
        "keys": [None if number == 1 else b"k%d" % number for number in range(count)],
        "values": [b"" if number == 2 else b"value %d" % number for number in range(count)],
        "headers": [(Header("a", b"1"), Header("b", None)) if number == 0 else () for number in range(count)],
    }
    return Batch(**{**settings, **columns})  # type: ignore[arg-type]


def test_an_arrow_batch_has_the_schema_of_sparks_own_source() -> None:
    table = batch().to_arrow(headers=True)
    table.validate(full=True)
    assert table.schema == pyarrow.schema(
        [
            ("key", pyarrow.binary()),
            ("value", pyarrow.binary()),
            ("topic", pyarrow.string()),
            ("partition", pyarrow.int32()),
            ("offset", pyarrow.int64()),
            ("timestamp", pyarrow.timestamp("us", tz="UTC")),
            ("timestampType", pyarrow.int32()),
            ("headers", pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))),
        ]
    )
    assert table["key"].to_pylist() == [b"k0", None, b"k2"]
    assert table["value"].to_pylist() == [b"value 0", b"value 1", b""]
    assert table["topic"].to_pylist() == ["orders"] * 3
    assert table["partition"].to_pylist() == [7] * 3
    assert table["offset"].to_pylist() == [10, 11, 12]
    assert table["timestamp"].cast(pyarrow.int64()).to_pylist() == [(NOW + number) * 1000 for number in range(3)]
    assert table["timestampType"].to_pylist() == [0, 0, 0]
    assert table["headers"].to_pylist() == [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None, None]


def test_only_the_selected_columns_are_made_in_their_order() -> None:
    assert batch().to_arrow(["offset", "value"]).schema.names == ["offset", "value"]
    with pytest.raises(ConfigurationError, match="columns must be some of key, value"):
        batch().to_arrow(["size"])


@pytest.mark.parametrize("timestamps", [[-1, NOW, 0], [-1, -1, -1], [0, -2, -NOW]])
def test_a_missing_timestamp_is_null_and_one_before_1970_is_kept(timestamps: list[int]) -> None:
    column = batch(timestamps=timestamps).to_arrow(["timestamp"])["timestamp"].cast(pyarrow.int64()).to_pylist()
    assert column == [None if time == -1 else time * 1000 for time in timestamps]


@pytest.mark.parametrize("timestamp", [2**62, 2**63 - 1, -(2**63)])
def test_a_timestamp_that_does_not_fit_into_microseconds_is_an_error_that_names_the_record(timestamp: int) -> None:
    with pytest.raises(DeserializationError, match=f"at offset 11: a timestamp of {timestamp} ms"):
        batch(timestamps=[-1, timestamp, NOW]).to_arrow()


def test_an_empty_batch_is_an_empty_arrow_batch() -> None:
    table = batch(0).to_arrow(headers=True)
    table.validate(full=True)
    assert table.num_rows == 0


def test_offsets_and_timestamps_are_numpy_arrays() -> None:
    offsets, timestamps = batch().offsets_array(), batch().timestamps_array()
    assert offsets.dtype == timestamps.dtype == numpy.int64
    assert offsets.tolist() == [10, 11, 12]
    assert timestamps.tolist() == [NOW, NOW + 1, NOW + 2]


@given(st.lists(st.none() | st.binary(max_size=5)))
def test_a_buffer_holds_every_value_in_its_place(values: list[bytes | None]) -> None:
    column = bytes_column(values)
    offsets = column.offsets
    assert len(offsets) == len(values) + 1
    assert [
        None if index in column.nulls else column.data[offsets[index] : offsets[index + 1]]
        for index in range(len(values))
    ] == values
    views = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(column.data)]
    arrow = pyarrow.Array.from_buffers(pyarrow.large_binary(), len(values), views)
    assert arrow.to_pylist() == [value or b"" for value in values]


def test_keys_and_values_have_separate_buffers() -> None:
    assert batch().key_buffer().data == b"k0k2"
    assert batch().value_buffer().data == b"value 0value 1"


@pytest.mark.parametrize("call", ["to_arrow", "offsets_array"])
def test_without_the_extra_the_error_says_what_to_install(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("pyarrow", "numpy"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match=r"pip install 'aiokafka_lite\[arrow\]'"):
        getattr(batch(), call)()


def test_the_consumer_can_be_imported_without_the_extra() -> None:
    code = "import aiokafka_lite.consumer, sys; sys.exit('pyarrow' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
