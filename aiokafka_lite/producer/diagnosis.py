"""The state of a producer at one moment, for a bug report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..cluster.diagnosis import Diagnosis, bounded
from .metrics import ProducerMetrics
from .partition import PartitionProducer, PartitionState


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerDiagnosis(Diagnosis):
    """A producer.

    ``partitions`` lists the partitions that hold batches or are not OPEN; ``states`` counts all partitions.
    """

    metrics: ProducerMetrics
    identity: str
    states: Mapping[str, int]
    partitions: tuple[str, ...]


def states_of(partitions: Iterable[PartitionProducer]) -> dict[str, int]:
    """The number of partitions in each state."""
    states: dict[str, int] = {}
    for partition in partitions:
        states[partition.state.name] = states.get(partition.state.name, 0) + 1
    return states


def busy(partitions: Iterable[PartitionProducer]) -> tuple[str, ...]:
    """A line for each partition that holds batches or is not OPEN."""
    return bounded(
        f"{each.topic_partition}: {each.state.name}, leader {each.leader}, level {each.level}, "
        f"in flight {each.in_flight}, sent {len(each.sent)}, unsent {len(each.unsent)}, "
        f"open {'no' if each.open is None else 'yes'}"
        for each in partitions
        if each.has_batches or each.state is not PartitionState.OPEN
    )
