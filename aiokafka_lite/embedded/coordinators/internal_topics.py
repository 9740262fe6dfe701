"""The internal topics in which coordinators keep their state. The first use creates them, with Kafka's settings."""

from __future__ import annotations

from ..metadata.controller import Controller, Refused
from ..settings.configs import BrokerSettings
from .groups.records import OFFSETS_TOPIC
from .share.records import SHARE_STATE_TOPIC
from .transactions.records import TRANSACTION_TOPIC

_PREFIXES = {
    OFFSETS_TOPIC: "offsets.topic",
    TRANSACTION_TOPIC: "transaction.state.log",
    SHARE_STATE_TOPIC: "share.coordinator.state.topic",
}
"""The beginning of the names of the settings of each topic."""


def create_internal_topic(name: str, controller: Controller, settings: BrokerSettings) -> None:
    """Create an internal topic. No error if another broker has created it, or if no broker is alive."""
    prefix = _PREFIXES[name]
    if name == OFFSETS_TOPIC:
        configs = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
    else:
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": settings.value(f"{prefix}.min.isr"),
            "segment.bytes": settings.value(f"{prefix}.segment.bytes"),
            "unclean.leader.election.enable": "false",
        }
    factor = min(settings.number(f"{prefix}.replication.factor"), len(controller.live_brokers()))
    try:
        controller.create_topic(name, settings.number(f"{prefix}.num.partitions"), max(1, factor), configs=configs)
    except Refused:
        return
