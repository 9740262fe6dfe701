"""What calls of a consumer are given, checked before anything is done with it, so that a mistake is named as one.

Things of the wrong kind are a TypeError, values out of range a ValueError; timeouts are ConfigurationErrors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..config import check_timeout
from ..errors import ConfigurationError
from ..types import TopicPartition

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


def checked_partitions(given: object) -> list[TopicPartition]:
    """The partitions, of which each is a topic's name and a number, in a tuple at least."""
    if isinstance(given, TopicPartition):
        raise TypeError(f"partitions={given!r}: an iterable of them, as in [{given!r}]")
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"partitions={given!r}: an iterable of TopicPartition, as in [TopicPartition('orders', 0)]")
    return [checked_partition(each) for each in given]


def checked_partition(given: object) -> TopicPartition:
    """One partition."""
    if not isinstance(given, tuple) or len(given) != 2:
        raise TypeError(f"{given!r} is no partition: TopicPartition(topic, number) is needed")
    topic, number = given
    if not isinstance(topic, str) or not _is_whole(number):
        raise TypeError(f"{given!r} is no partition: the topic is a string, and the partition a whole number")
    if not 0 <= number <= INT32_MAX:
        raise ValueError(f"{given!r} is no partition: partitions are counted from 0 up")
    return TopicPartition(topic, number)


def checked_timestamps(given: object) -> dict[TopicPartition, int]:
    """Milliseconds since the epoch for each partition."""
    if not isinstance(given, Mapping):
        raise TypeError(f"timestamps={given!r}: a mapping of partitions to milliseconds since the epoch")
    checked = {checked_partition(partition): timestamp for partition, timestamp in given.items()}
    for partition, timestamp in checked.items():
        if not _is_whole(timestamp):
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


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
