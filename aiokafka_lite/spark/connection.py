"""From ``kafka.*`` options to a client of this package: which settings it gets, and which it shares with others.

Values that are elsewhere (``file:``, ``env:``) are looked up here, so on the node that connects, each time that it
makes a client.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractContextManager
from dataclasses import fields
from typing import Any

from ..cluster.client import Client
from ..config import ClientConfig, ConsumerConfig
from ..errors import ConfigurationError
from ..properties import consumer_settings
from .options import KAFKA_PREFIX, Properties
from .runtime import Runtime

_FOR_CLIENT = frozenset(field.name for field in fields(ClientConfig))
_FOR_CONSUMER = frozenset(field.name for field in fields(ConsumerConfig))


def client_config(properties: Properties) -> ClientConfig:
    """Settings of the connection. ConfigurationError names the option as the user wrote it."""
    given = _settings(properties)
    return ClientConfig(
        **{name: value for name, value in given.items() if name in _FOR_CLIENT} | {"allow_auto_create_topics": False}
    )


def consumer_config(properties: Properties, **defaults: int) -> ConsumerConfig:
    """Settings of fetching; ``defaults`` are for what the user did not say. An offset that is gone is an error."""
    given = _settings(properties)
    chosen = {name: value for name, value in given.items() if name in _FOR_CONSUMER}
    fixed = {"isolation_level": properties.isolation_level, "auto_offset_reset": "none"}
    return ConsumerConfig(**{**defaults, **chosen, **fixed})


def leased_client(runtime: Runtime, properties: Properties) -> AbstractContextManager[Client]:
    """A started client with these settings, shared by all tasks of this process that have the same ones."""
    key: Hashable = (Client, properties)
    return runtime.lease(key, lambda: Client(client_config(properties)))


def _settings(properties: Properties) -> dict[str, Any]:
    try:
        return consumer_settings(properties)
    except ConfigurationError as error:
        raise ConfigurationError(f"option {KAFKA_PREFIX}{error}") from None
