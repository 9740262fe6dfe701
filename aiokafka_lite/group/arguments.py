"""Partitions and offsets that calls are given, checked where they are given, so that a mistake is named as one.

Things of the wrong kind are a TypeError, values out of range a ValueError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeGuard

from ..types import OffsetAndMetadata, TopicPartition

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


def is_whole(value: object) -> TypeGuard[int]:
    """Whether it is a whole number; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


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
    if not isinstance(topic, str) or not is_whole(number):
        raise TypeError(f"{given!r} is no partition: the topic is a string, and the partition a whole number")
    if not 0 <= number <= INT32_MAX:
        raise ValueError(f"{given!r} is no partition: partitions are counted from 0 up")
    return TopicPartition(topic, number)


def checked_offsets(given: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """What is to be committed, by partition."""
    if not isinstance(given, Mapping):
        raise TypeError(f"offsets={given!r}: a mapping of TopicPartition to OffsetAndMetadata")
    checked: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition, offset in given.items():
        if not isinstance(offset, OffsetAndMetadata):
            raise TypeError(f"{offset!r} for {partition!r}: OffsetAndMetadata(offset) is needed")
        check_mark(offset.offset, offset.metadata, offset.leader_epoch)
        checked[checked_partition(partition)] = offset
    return checked


def check_mark(offset: object, metadata: object, leader_epoch: object) -> None:
    """Raise here what would otherwise end the ticker, far from whoever made the mistake."""
    if not is_whole(offset):
        raise TypeError(f"offset={offset!r}: a whole number, that of the next record to read")
    if not 0 <= offset <= INT64_MAX:
        raise ValueError(f"offset={offset!r}: a whole number from 0 up, that of the next record to read")
    if not isinstance(metadata, str):
        raise TypeError(f"metadata={metadata!r}: a string")
    if leader_epoch is not None and not is_whole(leader_epoch):
        raise TypeError(f"leader_epoch={leader_epoch!r}: a whole number, or None")
