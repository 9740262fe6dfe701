"""A batch as lines, in each format: one line per record, whatever the record contains."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("typer")

from aiokafka_lite.cli.terminal.formats import Format, Line, formatter, parse_format
from aiokafka_lite.consumer.columns import Batch
from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.types import Header, TimestampType


def batch(*records: tuple[bytes | None, bytes | None]) -> Batch:
    return Batch(
        topic="t",
        partition=3,
        timestamp_type=TimestampType.CREATE_TIME,
        leader_epoch=0,
        offsets=list(range(10, 10 + len(records))),
        timestamps=[1_767_225_600_000 + number for number in range(len(records))],
        keys=[key for key, _ in records],
        values=[value for _, value in records],
        headers=[(Header("a", b"1"), Header("b", None))] + [()] * (len(records) - 1),
    )


SOME = batch((b"k", b"v"), (None, b"\xff"), (b"x", None))


@pytest.mark.parametrize(
    "line, printed",
    [
        (Line(), b"v\n\xff\n\n"),
        (Line(Format.HEX), b"76\nff\n\n"),
        (Line(Format.KEY_VALUE), b"k\tv\n\t\xff\nx\t\n"),
        (Line(Format.KEY_VALUE, separator=b"=>"), b"k=>v\n=>\xff\nx=>\n"),
        (Line(Format.KEY_VALUE_HEX), b"6b\t76\n\tff\n78\t\n"),
        (Line(offsets=True), b"t-3:10\tv\nt-3:11\t\xff\nt-3:12\t\n"),
        (Line(headers=True), b"a=1,b=\tv\n\t\xff\n\t\n"),
        (Line(null=b"NULL"), b"v\n\xff\nNULL\n"),
        (Line(Format.KEY_VALUE, null=b"-", headers=True), b"a=1,b=-\tk\tv\n\t-\t\xff\n\tx\t-\n"),
        (Line(Format.KEY_VALUE_HEX, null=b"-"), b"6b\t76\n-\tff\n78\t-\n"),
        (Line("%t %p %o %k %K %s %S %h|"), b"t 3 10 k 1 v 1 a=1,b=|t 3 11  -1 \xff 1 |t 3 12 x 1  -1 |"),
        (
            Line("%T=%D%%\\n\\x00", null=b"-"),
            b"".join(b"176722560000%d=2026-01-01T00:00:00.00%dZ%%\n\0" % (number, number) for number in range(3)),
        ),
        (Line("%s\\t", null=b"NULL"), b"v\t\xff\tNULL\t"),
        (
            Line(timestamps=True, offsets=True),
            b"2026-01-01T00:00:00.000Z\tt-3:10\tv\n2026-01-01T00:00:00.001Z\tt-3:11\t\xff\n"
            b"2026-01-01T00:00:00.002Z\tt-3:12\t\n",
        ),
    ],
)
def test_each_format(line: Line, printed: bytes) -> None:
    assert formatter(line)(SOME) == printed


def test_json_distinguishes_null_from_empty_and_text_from_bytes() -> None:
    first, second, third = map(json.loads, formatter(Line(Format.JSON))(SOME).splitlines())
    assert first == {
        "topic": "t",
        "partition": 3,
        "offset": 10,
        "timestamp": 1_767_225_600_000,
        "timestamp_type": "create_time",
        "key": "k",
        "value": "v",
        "headers": [{"key": "a", "value": "1"}, {"key": "b", "value": None}],
    }
    assert (second["key"], second["value_base64"], second["headers"]) == (None, "/w==", [])
    assert (third["key"], third["value"]) == ("x", None)


@given(st.lists(st.tuples(st.none() | st.binary(), st.none() | st.binary()), min_size=1))
def test_json_is_one_line_per_record(records: list[tuple[bytes | None, bytes | None]]) -> None:
    printed = formatter(Line(Format.JSON))(batch(*records))
    assert len([json.loads(line) for line in printed.split(b"\n")[:-1]]) == len(records)


def test_a_format_is_a_name_or_has_fields() -> None:
    assert parse_format("key-value") is Format.KEY_VALUE
    assert parse_format("%k") == "%k"
    for text, wrong in (("keys", "or a format string such as"), ("%k %x", "%% for a percent sign, got '%k %x'")):
        with pytest.raises(ConfigurationError, match=wrong):
            parse_format(text)
