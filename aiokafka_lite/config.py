"""The classes of settings: ``ClientConfig``, ``ProducerConfig``, ``ConsumerConfig`` and ``GroupConfig``."""

from __future__ import annotations

from .settings.config import ClientConfig, ClientSettings, ConsumerConfig, GroupConfig, ProducerConfig

__all__ = ["ClientConfig", "ClientSettings", "ConsumerConfig", "GroupConfig", "ProducerConfig"]
