"""The checks of the demo detect every kind of fault; else their green line would mean nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

pytest.importorskip("typer")

from aiokafka_lite import Record
from aiokafka_lite.types import TimestampType
from demo import KEYS, PARTITIONS, Check, content_of, main
from demo_group import Load

COUNT = 2 * KEYS + 10


def partition_of(number: int) -> int:
    return number % KEYS % PARTITIONS


NUMBERS = [[number for number in range(COUNT) if partition_of(number) == partition] for partition in range(PARTITIONS)]
"""The numbers of the records, by partition and offset."""


def sent(number: int) -> Record:
    """Return the record as the demo expects it."""
    key, value, headers = content_of(number)
    return Record(
        topic="demo",
        partition=partition_of(number),
        offset=NUMBERS[partition_of(number)].index(number),
        timestamp=0,
        timestamp_type=TimestampType.CREATE_TIME,
        key=key,
        value=value,
        headers=headers,
    )


def result_of(records: list[Record]) -> list[str]:
    check = Check()
    for number in range(COUNT):
        check.acknowledged(number, sent(number).partition, sent(number).offset)
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
        (lost, "1 record did not come back"),
        (doubled, "is read after it or a later record"),
        (swapped, "is read after it or a later record"),
        (changed(value=b"other"), "has other content"),
        (changed(key=b"other"), "has other content"),
        (changed(headers=()), "has other content"),
        (changed(offset=2), "has other content"),
        (changed(offset=7_000), "was never acknowledged"),
        (changed(partition=1), "is read after it or a later record"),
    ],
)
def test_each_fault_is_detected(spoil: Callable[[list[Record]], None], complaint: str) -> None:
    records = [sent(number) for number in range(COUNT)]
    spoil(records)
    assert any(complaint in fault for fault in result_of(records))


@pytest.mark.parametrize(
    "place, complaint",
    [((5, 2, 0), "is record 5 out of order"), ((KEYS, 1, 0), "is record 1000, whose key has another partition")],
)
def test_wrong_places_of_acknowledged_records_are_detected(place: tuple[int, int, int], complaint: str) -> None:
    check = Check()
    check.acknowledged(0, 0, 0)
    check.acknowledged(2, 2, 0)
    check.acknowledged(*place)
    assert any(complaint in fault for fault in check.result())


def test_a_group_may_process_a_record_twice() -> None:
    load = Load()
    load.written = 3
    load.processed.update([0, 1, 1, 2])
    assert load.faults() == []


def test_missing_and_unknown_records_of_a_group_are_named() -> None:
    load = Load()
    load.written = 2
    load.processed.update([1, 2, -1])
    assert load.faults() == [
        "record 0 was not processed",
        "record 2 was never written",
        "record -1 was never written",
    ]


@pytest.mark.parametrize("count", [0, -5])
def test_the_demo_needs_a_record(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo.py", f"--records={count}"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert f"--records must be at least 1, got {count}" in capsys.readouterr().err
