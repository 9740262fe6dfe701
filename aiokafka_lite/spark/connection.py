"""Makes a client from ``kafka.*`` options. The tasks of a process share one client.

Values given as ``file:`` and ``env:`` are looked up here: on the node that connects, each time it makes a client.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractContextManager
from dataclasses import fields
from typing import TYPE_CHECKING

from ..cluster.client import Client
from ..settings.client import ClientConfig
from ..settings.consumer import ConsumerConfig
from ..settings.properties import client_settings, consumer_settings
from .options import Properties
from .worker_loop import WorkerLoop

if TYPE_CHECKING:
    from ..admin import Admin

_FOR_CLIENT = frozenset(field.name for field in fields(ClientConfig))
_FOR_CONSUMER = frozenset(field.name for field in fields(ConsumerConfig))


def client_config(properties: Properties) -> ClientConfig:
    """Make the settings of a client. Raises ConfigurationError, which names the option as the user wrote it."""
    settings = properties.settings(consumer_settings)
    with properties.named():
        return ClientConfig(
            **{name: value for name, value in settings.items() if name in _FOR_CLIENT}
            | {"allow_auto_create_topics": False}
        )


def consumer_config(properties: Properties, **defaults: int) -> ConsumerConfig:
    """Make the settings of fetching; the user's options override ``defaults``. A deleted offset is always an error."""
    settings = properties.settings(consumer_settings)
    chosen = {name: value for name, value in settings.items() if name in _FOR_CONSUMER}
    fixed = {"isolation_level": properties.isolation_level, "auto_offset_reset": "none"}
    with properties.named():
        return ConsumerConfig(**{**defaults, **chosen, **fixed})


def leased_client(loop: WorkerLoop, properties: Properties) -> AbstractContextManager[Client]:
    """Return a lease of the started client that all tasks of this process with the same properties share."""
    key: Hashable = (Client, properties)
    return loop.lease(key, lambda: Client(client_config(properties)))


def leased_admin(loop: WorkerLoop, properties: Properties) -> AbstractContextManager[Admin]:
    """Return a lease of the started admin client that all tasks of this process with the same properties share."""
    from ..admin import Admin

    settings = properties.settings(client_settings)

    def make() -> Admin:
        with properties.named():
            return Admin(**settings)

    return loop.lease((Admin, properties), make)
