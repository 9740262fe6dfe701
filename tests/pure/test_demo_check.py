"""The demo's judge: it must see every way in which records can go wrong, or its green line says nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("rich")

from aiokafka_lite import Record, TimestampType
from aiokafka_lite.cli.demo import KEYS, Check, headers_of, key_of, value_of
from aiokafka_lite.cli.demo_group import GroupCheck

COUNT = 2 * KEYS + 10


def sent(number: int) -> Record:
    """The record as it should come back: partition by key, offset by number."""
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


def judged(records: list[Record]) -> list[str]:
    check = Check(COUNT)
    for number in range(COUNT):
        check.acknowledged(number, number % KEYS % 3, number)
    for record in records:
        check.came_back(record)
    return check.verdict()


def test_nothing_is_wrong_when_all_come_back() -> None:
    assert judged([sent(number) for number in range(COUNT)]) == []


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
        (lost, "1 records never came back"),
        (doubled, "second time"),
        (swapped, "behind a later one"),
        (changed(value=b"other"), "changed on its way"),
        (changed(key=b"other"), "changed on its way"),
        (changed(headers=headers_of(5)[:1]), "changed on its way"),
        (changed(headers=()), "never sent"),
        (changed(offset=7_000), "was acknowledged at"),
        (changed(partition=1), "was acknowledged at"),
    ],
)
def test_each_fault_is_seen(spoil: Callable[[list[Record]], None], complaint: str) -> None:
    records = [sent(number) for number in range(COUNT)]
    spoil(records)
    assert any(complaint in fault for fault in judged(records))


def test_a_group_must_work_on_everything_and_may_do_so_twice() -> None:
    check = GroupCheck()
    check.written = 3
    for number in (0, 1, 1, 2):
        check.done(number)
    assert (check.verdict(), check.again) == ([], 1)


def test_a_record_that_the_group_passed_over_or_made_up_is_named() -> None:
    check = GroupCheck()
    check.written = 2
    for number in (1, 2, -1):
        check.done(number)
    assert check.verdict() == [
        "record 0 was never worked on",
        "record 2 was never written",
        "record -1 was never written",
    ]
