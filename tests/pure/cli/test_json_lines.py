"""Records as lines of JSON, and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("typer")

from aiokafka_lite.cli.terminal.json_lines import JsonRecord, from_json_line, to_json_lines
from aiokafka_lite.consumer.columns import Batch
from aiokafka_lite.errors import SerializationError
from aiokafka_lite.types import Header, TimestampType

data = st.none() | st.binary(max_size=5)


@pytest.mark.thorough
@given(data, data, st.lists(st.builds(Header, st.text(max_size=3), data), max_size=3), st.integers(-1, 2**62))
def test_a_record_survives_its_line(
    key: bytes | None, value: bytes | None, headers: list[Header], timestamp: int
) -> None:
    batch = Batch("t", 3, TimestampType.CREATE_TIME, None, [7], [timestamp], [key], [value], [tuple(headers)])
    line = to_json_lines(batch)
    assert from_json_line(line) == JsonRecord(key, value, tuple(headers), 3, None if timestamp == -1 else timestamp)


def test_all_but_the_value_may_be_left_out() -> None:
    assert from_json_line(b'{"value":"v"}') == JsonRecord(None, b"v", (), None, None)


def test_a_byte_order_mark_is_skipped() -> None:
    assert from_json_line('{"value":"v"}'.encode("utf-8-sig")).value == b"v"


@pytest.mark.parametrize(
    "line, message",
    [
        (b"{text", "must be a JSON object; character 2: Expecting property name"),
        (b"\xff", "must be a JSON object"),
        (b"[" * 100_000, "must be a JSON object"),
        ('{"value":"v"}'.encode("utf-16"), "must be a JSON object"),
        (b"[1]", "a line must be a JSON object, got [1]"),
        (b"{}", "a record requires value or value_base64"),
        (b'{"vaule":"v"}', "has the unknown member 'vaule'; it may have key,"),
        (b'{"value":{"a":NaN}}', "value must have numbers that JSON allows"),
        (b'{"value":{"a":1},"value_base64":"/w=="}', "value_base64 must be a string, without value"),
        (b'{"value":"v","value_base64":"/w=="}', "value_base64 must be a string, without value"),
        (b'{"value_base64":"?"}', "value_base64 must be base64, got '?'"),
        (b'{"value":"v","partition":"1"}', "partition must be a whole number, got '1'"),
        (b'{"value":"v","timestamp":true}', "timestamp must be a whole number, got True"),
        (b'{"value":"v","headers":"a"}', "headers must be an object, or a list of objects with key and value"),
        (b'{"value":"v","headers":[{"value":"b"}]}', "a header must be an object with key and value"),
        (b'{"value":"v","headers":[{"key":"b"}]}', "a header requires value or value_base64"),
        (json.dumps({"value": "\ud800"}).encode(), "value must be text without lone surrogates"),
    ],
)
def test_a_line_that_is_no_record_is_explained(line: bytes, message: str) -> None:
    with pytest.raises(SerializationError) as error:
        from_json_line(line)
    assert message in str(error.value)
