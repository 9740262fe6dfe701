"""The settings of a producer: keyword arguments, sorted into the two configurations that validate them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ..settings.config import Acks, ClientConfig, ClientSettings, CompressionName, ProducerConfig
from ..types import Compression


class ProducerSettings(ClientSettings, total=False):
    """The settings of ``ClientConfig`` and ``ProducerConfig`` as keyword arguments."""

    allow_auto_create_topics: bool
    """Whether using a topic may create it, if the broker allows that. Default: ``True``."""
    acks: Acks
    """The replicas that must have a record before it counts as written: ``"all"`` or -1 (all in-sync replicas), 1 (the
    leader), or 0 (none). Default: ``"all"``."""
    transactional_id: str | None
    """The name under which the producer writes transactions. It stays the same over restarts: a new producer of this
    name ends the open transaction of the old one, and fences it. None means no transactions. Default: no
    transactions."""
    transaction_timeout: float
    """Seconds after which the coordinator aborts a transaction that is still open, and fences its producer. Default: 60
    s."""
    idempotence: bool | None
    """Whether brokers drop duplicates that retries cause. None means True if ``acks="all"`` and ``retries`` > 0.
    Default: on with ``acks="all"`` and ``retries`` above 0."""
    retries: int
    """How often a batch is sent again after a retriable error, within ``delivery_timeout``. 0 means never. Default:
    2147483647."""
    linger: float
    """Seconds that a batch waits for more records, from its first one. With 0, a batch has the records of one turn of
    the event loop. Default: 0 s."""
    batch_size: int
    """The largest batch of one partition in bytes, estimated after compression. Default: 64 KiB."""
    max_request_size: int
    """The largest record and the largest request, in bytes. Default: 1 MiB."""
    buffer_memory: int
    """Bytes of unacknowledged records. When it is full, ``send`` waits and ``send_nowait`` raises BufferFull. Default:
    32 MiB."""
    max_in_flight_requests_per_connection: int
    """Requests to a broker without a response yet, at most 5 with idempotence. Default: 5."""
    compression: CompressionName | Compression
    """The codec of batches: ``"none"``, ``"gzip"``, ``"snappy"``, ``"lz4"`` or ``"zstd"``. Default: ``"none"``."""
    compression_level: int | None
    """The level of the codec: gzip 0 to 9, lz4 0 to 17, zstd -131072 to 22. None is the codec's default. Default: the
    codec's own."""
    delivery_timeout: float
    """Seconds from accepting a record until it fails with KafkaTimeout, if it is not acknowledged. Default: 120 s."""
    max_block: float
    """Seconds that ``send`` waits for metadata, for room in the buffer, and for an async serializer. Default: 60 s."""


def configs(bootstrap_servers: str | Iterable[str], settings: ProducerSettings) -> tuple[ClientConfig, ProducerConfig]:
    """Return the settings as two validated configurations. Raises ConfigurationError for unknown and for wrong
    settings.
    """
    of_client = {field.name for field in dataclasses.fields(ClientConfig)} - {"bootstrap_servers"}
    of_producer = {field.name for field in dataclasses.fields(ProducerConfig)}
    for name in settings:
        if name not in of_client and name not in of_producer:
            from ..settings.names import unknown_setting  # imported here, because most programs need no such error

            raise unknown_setting(name, of_client | of_producer | {"bootstrap_servers"})
    client = {name: value for name, value in settings.items() if name in of_client}
    producer = {name: value for name, value in settings.items() if name in of_producer}
    return (
        ClientConfig(bootstrap_servers=bootstrap_servers, **client),  # type: ignore[arg-type]
        ProducerConfig(**producer),  # type: ignore[arg-type]
    )
