"""The checks of the demo detect every kind of fault; else their green line would mean nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("rich")

from aiokafka_lite import Record
from aiokafka_lite.cli.demo import KEYS, Check, headers_of, key_of, value_of
from aiokafka_lite.cli.demo_group import GroupCheck
from aiokafka_lite.types import TimestampType

COUNT = 2 * KEYS + 10


def sent(number: int) -> Record:
    """The record as the demo expects it: partition by key, offset by number."""
    partition = number % KEYS % 3
    return Record(
        topic="demo",
        partition=partition,
        offset=number,
        timestamp=0,
        timestamp_type=TimestampType.CREATE_TIME,
        key=key_of(number),
        value=value_of(number),
        headers=headers_of(number),
    )


def result_of(records: list[Record]) -> list[str]:
    check = Check(COUNT)
    for number in range(COUNT):
        check.acknowledged(number, number % KEYS % 3, number)
    for record in records:
        check.received(record)
    return check.result()


def test_complete_records_have_no_fault() -> None:
    assert result_of([sent(number) for number in range(COUNT)]) == []


def changed(**fields: object) -> Callable[[list[Record]], None]:
    def change(records: list[Record]) -> None:
        records[5] = records[5]._replace(**fields)  # type: ignore[arg-type]

    return change


def lost(records: list[Record]) -> None:
    del records[5]


def doubled(records: list[Record]) -> None:
    records.append(records[5])


def swapped(records: list[Record]) -> None:
    records[5], records[5 + KEYS] = records[5 + KEYS], records[5]


@pytest.mark.parametrize(
    "spoil, complaint",
    [
        (lost, "not read: 1 record"),
        (doubled, "second time"),
        (swapped, "after a later record"),
        (changed(value=b"other"), "with other content"),
        (changed(key=b"other"), "with other content"),
        (changed(headers=headers_of(5)[:1]), "with other content"),
        (changed(headers=()), "never sent"),
        (changed(offset=7_000), "was acknowledged at"),
        (changed(partition=1), "was acknowledged at"),
    ],
)
def test_each_fault_is_detected(spoil: Callable[[list[Record]], None], complaint: str) -> None:
    records = [sent(number) for number in range(COUNT)]
    spoil(records)
    assert any(complaint in fault for fault in result_of(records))


def test_a_group_may_process_a_record_twice() -> None:
    check = GroupCheck()
    check.written = 3
    for number in (0, 1, 1, 2):
        check.done(number)
    assert (check.result(), check.repeated) == ([], 1)


def test_missing_and_unknown_records_of_a_group_are_named() -> None:
    check = GroupCheck()
    check.written = 2
    for number in (1, 2, -1):
        check.done(number)
    assert check.result() == [
        "record 0 was not processed",
        "record 2 was never written",
        "record -1 was never written",
    ]
