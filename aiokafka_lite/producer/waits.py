"""What a producer waits for: its part of the table of ``Client.standstill``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..arguments import plural
from ..cluster.client import Client
from ..cluster.standstill import Wait
from ..errors import ErrorCode, KafkaError
from .buffer_memory import BufferMemory
from .partition import PartitionProducer, PartitionState
from .topic import TopicProducer


def waits(
    client: Client,
    topics: Iterable[TopicProducer],
    unsettled: Sequence[PartitionProducer],
    memory: BufferMemory,
    transaction_error: KafkaError | None,
    progress: int,
) -> Iterator[Wait]:
    """Yield the present waits of a producer. They are partial: records of other topics may be written.

    ``unsettled`` are the partitions with unsettled batches. ``progress`` grows with each delivered record. If no broker
    answers at all, the client names that.
    """
    yield from _topics(client, topics)
    yield from _partitions(unsettled, progress)
    if memory.waiting:
        yield Wait(
            "room",
            f"{memory.waiting} calls wait for room: {memory.budget.used} of buffer_memory={memory.budget.total} bytes"
            " are in use, and no batch is acknowledged",
            # A buffer that is full and moves is normal: the program is faster than the brokers.
            progress=progress,
        )
    if transaction_error is not None:
        # Failures of other kinds have a line in the log.
        is_logged = client.outages.is_ongoing("transactions")
        yield Wait("transaction", f"its transaction waits: {transaction_error}", is_logged=is_logged)


def _topics(client: Client, topics: Iterable[TopicProducer]) -> Iterator[Wait]:
    for topic in topics:
        name = topic.name
        if topic.pending is None and topic.unplaced is None:
            continue
        view = client.view.topics.get(name)
        code = ErrorCode.NONE if view is None else view.error
        if code is not ErrorCode.NONE:
            why = f"brokers answer {code.name} ({code.description})"
        elif topic.pending is not None:
            why = "no broker has sent metadata of it"
        else:
            why = f"they name partitions that it does not have; it has {plural(len(topic.partitions), 'partition')}"
        # ``MissingTopics`` of the cluster logs a topic that does not exist.
        is_logged = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        yield Wait(f"topic {name}", f"records wait for topic {name!r}: {why}", is_partial=True, is_logged=is_logged)


def _partitions(unsettled: Sequence[PartitionProducer], progress: int) -> Iterator[Wait]:
    """Yield the partitions whose batches cannot be sent. One text for all, because a dead broker has thousands."""
    waiting = [
        partition for partition in unsettled if partition.has_batches and partition.state is not PartitionState.OPEN
    ]
    if not waiting:
        unanswered = [partition for partition in unsettled if partition.sent]
        if unanswered:
            leader = unanswered[0].leader
            text = f"broker {leader} has not answered for batches of {unanswered[0].topic_partition}"
            yield Wait("unanswered", text, is_partial=True, progress=progress)
        return
    first = waiting[0]
    oldest = next(iter(first.batches), None)
    if first.state is PartitionState.LEADERLESS:
        why = "it has no leader"
    elif oldest is not None and oldest.last_error is not None:
        why = str(oldest.last_error)
    else:
        why = first.state.value
    others = f"; {len(waiting) - 1} other partitions wait too" if len(waiting) > 1 else ""
    yield Wait("partitions", f"batches for {first.topic_partition} wait: {why}{others}", is_partial=True)
