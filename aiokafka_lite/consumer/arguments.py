"""What calls of a consumer are given, checked before anything is done with it, so that a mistake is named as one.

Things of the wrong kind are a TypeError, values out of range a ValueError; timeouts are ConfigurationErrors.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..arguments import is_whole
from ..arguments import partition as checked_partition
from ..config import check_timeout
from ..errors import ConfigurationError
from ..types import Record, TopicPartition

INT64_MAX = 2**63 - 1


def check_offset(offset: object) -> None:
    """An offset to read from."""
    if not is_whole(offset):
        raise TypeError(f"offset={offset!r}: a whole number is needed; there are seek_to_beginning and seek_to_end")
    if not 0 <= offset <= INT64_MAX:
        raise ValueError(f"offset={offset!r}: a whole number from 0 up; there are seek_to_beginning and seek_to_end")


def check_record(record: object) -> None:
    """A record, as reading gives them: what it marks is looked up in its topic, partition and offset."""
    if not isinstance(record, Record):
        raise TypeError(f"record={record!r}: a Record is needed, as reading gives them; for a bare offset, mark that")


def checked_timestamps(given: object) -> dict[TopicPartition, int]:
    """Milliseconds since the epoch for each partition."""
    if not isinstance(given, Mapping):
        raise TypeError(f"timestamps={given!r}: a mapping of partitions to milliseconds since the epoch")
    checked = {checked_partition(partition): timestamp for partition, timestamp in given.items()}
    for partition, timestamp in checked.items():
        if not is_whole(timestamp):
            raise TypeError(
                f"timestamp={timestamp!r} for {partition}: a whole number of milliseconds since the epoch is needed, "
                "as in int(time.time() * 1000)"
            )
        if not 0 <= timestamp <= INT64_MAX:
            raise ValueError(f"timestamp={timestamp!r} for {partition}: milliseconds since the epoch, from 0 up")
    return checked


def check_count(name: str, value: object) -> None:
    """A whole number from 1 up."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: a whole number is needed")
    if value < 1:
        raise ValueError(f"{name}={value!r}: 1 or more")


def check_wait(timeout: float | None) -> None:
    """A timeout of a call that has no longest one by itself."""
    if timeout is None:
        raise ConfigurationError("timeout=None: a number of seconds is needed")
    check_timeout(timeout)
