"""The state of a producer at one moment, for a bug report, and its health for probes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..aio.service import Service
from ..cluster.client import Client
from ..cluster.diagnosis import Diagnosis, bounded, common
from ..cluster.health import Health, health_of
from ..settings.producer import ProducerConfig
from .metrics import ProducerMetrics
from .partition import PartitionProducer, PartitionState

if TYPE_CHECKING:
    from .pipeline import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerDiagnosis(Diagnosis):
    """The diagnosis of a producer.

    ``partitions`` lists the partitions that hold batches or are not OPEN; ``states`` counts all partitions.
    """

    metrics: ProducerMetrics
    identity: str
    states: Mapping[str, int]
    partitions: tuple[str, ...]


def producer_diagnosis(
    service: Service, client: Client, config: ProducerConfig, pipeline: Pipeline | None, metrics: ProducerMetrics
) -> ProducerDiagnosis:
    """Describe a producer, whose pipeline is None before the start."""
    partitions = [] if pipeline is None else list(pipeline.accumulator.partitions())
    newest = None if pipeline is None or pipeline.ids is None else pipeline.ids.newest
    fatal = None if pipeline is None else pipeline.settlement.fatal
    return ProducerDiagnosis(
        **common(service, client, config, fatal=fatal),  # type: ignore[arg-type]
        metrics=metrics,
        identity=str(newest) if newest is not None else "none",
        states=dict(Counter(partition.state.name for partition in partitions)),
        partitions=_busy(partitions),
    )


def producer_health(service: Service, client: Client, pipeline: Pipeline | None, max_silence: float) -> Health:
    fatal = None if pipeline is None else pipeline.settlement.fatal
    refusal = None if pipeline is None else pipeline.id_refusal
    return health_of(
        service,
        client,
        max_silence,
        fatal=() if fatal is None else (f"it writes no more records: {fatal}",),
        transient=() if refusal is None else (f"it has no producer id: {refusal}",),
    )


def _busy(partitions: Iterable[PartitionProducer]) -> tuple[str, ...]:
    return bounded(
        f"{partition.topic_partition}: {partition.state.name}, leader {partition.leader}, level {partition.level}, "
        f"in flight {partition.in_flight}, sent {len(partition.sent)}, unsent {len(partition.unsent)}, "
        f"open {'no' if partition.open is None else 'yes'}"
        for partition in partitions
        if partition.has_batches or partition.state is not PartitionState.OPEN
    )
