"""Handlers for an executor. Each one appends a line to the file that the record's headers name."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from aiokafka_lite.processing import BatchFailure
from aiokafka_lite.types import Record


class Fragile(Exception):
    """It can be pickled, and not unpickled."""

    def __init__(self, order: str, reason: str) -> None:
        super().__init__(f"{order}: {reason}")


def file_of(record: Record[bytes, bytes]) -> Path:
    name = dict(record.headers)["file"]
    assert name is not None
    return Path(name.decode())


def note(record: Record[bytes, bytes]) -> None:
    with file_of(record).open("a") as lines:
        lines.write(f"{record.value.decode()} {os.getpid()}\n")


def handle(record: Record[bytes, bytes]) -> None:
    if record.value == b"fragile":
        raise Fragile("7", "no coffee")
    if record.value == b"stop":
        raise StopIteration("no more")
    if record.value == b"wrong":
        raise ValueError("no such dish")
    note(record)


def handle_list(records: list[Record[bytes, bytes]]) -> None:
    for index, record in enumerate(records):
        if record.value == b"wrong":
            raise BatchFailure(index, ValueError("no such dish"))
        if record.value == b"fragile":
            raise BatchFailure(index, Fragile("7", "no coffee"))
        note(record)


def end_the_process(record: Record[bytes, bytes]) -> None:
    os._exit(3)


def hang(record: Record[bytes, bytes]) -> None:
    """Return when there is a file ``release`` beside the notes."""
    note(record)
    while not file_of(record).with_name("release").exists():
        time.sleep(0.01)


async def asynchronous(record: Record[bytes, bytes]) -> None: ...


def with_a_coroutine(record: Record[bytes, bytes]) -> object:
    return asynchronous(record)


def with_a_generator(record: Record[bytes, bytes]) -> Iterator[None]:
    return (note(record) for _ in range(1))
