"""Topics and partitions as arguments: ``orders``, and ``orders:0,1`` for some of its partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from . import completion

if TYPE_CHECKING:
    from ...admin import Admin
    from ...types import TopicPartition

Partitions = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC[:0,1]...", autocompletion=completion.partitions, help="Topics, or partitions of them."
    ),
]
SomePartitions = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TOPIC[:0,1]...]",
        autocompletion=completion.partitions,
        help="Topics, or partitions of them; all topics by default.",
    ),
]


def parse_topics(texts: Iterable[str]) -> tuple[list[str], list[TopicPartition]]:
    """Parse whole topics, and single partitions given as ``orders:0,1``. Raises ValueError for any other form."""
    from ...types import TopicPartition

    whole, partitions = [], []
    for text in texts:
        name, colon, numbers = text.partition(":")
        if not colon:
            whole.append(name)
            continue
        partition_numbers = numbers.split(",")
        if not all(number.isdecimal() for number in partition_numbers):
            raise ValueError(f"topic must be TOPIC, or TOPIC:0,1 for some of its partitions, got {text!r}")
        partitions += [TopicPartition(name, int(number)) for number in partition_numbers]
    return whole, partitions


async def partitions_of(admin: Admin, texts: Iterable[str]) -> list[TopicPartition]:
    """Look up the partitions that the texts name, each once, in order. Raises the error of a missing partition.

    A user who may not describe a topic can still name its partitions: they are not checked.
    """
    from ...errors import KafkaError, UnknownTopic
    from ...types import TopicPartition
    from .topic_names import explained

    whole, partitions = parse_topics(texts)
    result = await admin.topics.describe(list(dict.fromkeys([*whole, *(partition.topic for partition in partitions)])))
    failed = {name: error for name, error in result.failed.items() if name in whole or isinstance(error, UnknownTopic)}
    for error in (await explained(admin, failed)).values():
        raise error
    for topic, number in partitions:
        if topic in result.done and number >= (count := len(result.done[topic].partitions)):
            has = f"the partitions 0 to {count - 1}, and no partition {number}" if count > 1 else "only partition 0"
            raise KafkaError(f"topic {topic!r} has {has}")
    partitions += [TopicPartition(name, one.partition) for name in whole for one in result.done[name].partitions]
    return sorted(set(partitions))
