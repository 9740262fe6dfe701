"""The settings of a producer: keyword arguments, sorted into the two configurations that validate them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ..config import Acks, ClientConfig, ClientSettings, CompressionName, ProducerConfig
from ..types import Compression


class ProducerSettings(ClientSettings, total=False):
    """The settings of ``ClientConfig`` and ``ProducerConfig`` as keyword arguments."""

    allow_auto_create_topics: bool
    acks: Acks
    transactional_id: str | None
    transaction_timeout: float
    idempotence: bool | None
    retries: int
    linger: float
    batch_size: int
    max_request_size: int
    buffer_memory: int
    max_in_flight_requests_per_connection: int
    compression: CompressionName | Compression
    compression_level: int | None
    delivery_timeout: float
    max_block: float


def configs(bootstrap_servers: str | Iterable[str], settings: ProducerSettings) -> tuple[ClientConfig, ProducerConfig]:
    """The settings as two validated configurations. Raises ConfigurationError for unknown and for wrong settings."""
    of_client = {field.name for field in dataclasses.fields(ClientConfig)} - {"bootstrap_servers"}
    of_producer = {field.name for field in dataclasses.fields(ProducerConfig)}
    for name in settings:
        if name not in of_client and name not in of_producer:
            from ..setting_names import unknown_setting  # imported here, because most programs need no such error

            raise unknown_setting(name, of_client | of_producer | {"bootstrap_servers"})
    client = {name: value for name, value in settings.items() if name in of_client}
    producer = {name: value for name, value in settings.items() if name in of_producer}
    return (
        ClientConfig(bootstrap_servers=bootstrap_servers, **client),  # type: ignore[arg-type]
        ProducerConfig(**producer),  # type: ignore[arg-type]
    )
