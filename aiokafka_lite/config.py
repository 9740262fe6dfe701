"""The classes of settings: a configuration for each part of a client, and the keyword arguments of every client."""

from __future__ import annotations

from .settings.client import ClientConfig
from .settings.consumer import ConsumerConfig
from .settings.group import GroupConfig
from .settings.keywords import ClientSettings
from .settings.producer import ProducerConfig

__all__ = ["ClientConfig", "ClientSettings", "ConsumerConfig", "GroupConfig", "ProducerConfig"]
