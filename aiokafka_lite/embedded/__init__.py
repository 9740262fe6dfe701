"""A Kafka broker, and clusters of them, inside the process: for tests, demonstrations, and learning how one works."""

from __future__ import annotations

from .cluster import EmbeddedCluster, MemoryConnector
from .controller import Refused
from .faults import Exchange, Fault

__all__ = ["EmbeddedCluster", "Exchange", "Fault", "MemoryConnector", "Refused"]
