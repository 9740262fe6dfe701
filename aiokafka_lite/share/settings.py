"""The settings of a share consumer: keyword arguments, sorted into the validated configurations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..aio.runtime import Runtime
from ..arguments import check_function, must_be
from ..cluster.bootstrap import parse_bootstrap_servers
from ..consumer.settings import check_fetch_limits, checked_topics, sorted_settings
from ..errors import ConfigurationError
from ..net.connector import Connector, check_connector
from ..settings.config import ClientConfig, ClientSettings
from ..types import Names
from .config import AcknowledgementMode, AcquireMode, ShareConfig
from .deserializing import ShareDeserializing
from .results import OnAcknowledged


class ShareConsumerSettings(ClientSettings, total=False):
    """The settings of ``ShareConsumer``: the fields of its configurations."""

    allow_auto_create_topics: bool
    """Whether using a topic may create it, if the broker allows that. Default: ``True``."""
    acknowledgement_mode: AcknowledgementMode
    """``"implicit"``: the next read accepts the records that were returned and not acknowledged. ``"explicit"``: the
    user acknowledges each record before the next read. Default: ``"implicit"``."""
    acquire_mode: AcquireMode
    """``"batch_optimized"``: brokers acquire whole batches, so a fetch may return more than ``max_fetch_records``.
    ``"record_limit"``: never more (KIP-1206, Kafka 4.2; older brokers ignore it). Default: ``"batch_optimized"``."""
    max_fetch_records: int
    """The maximum number of records that one fetch acquires at one broker, from 1 to 10,000. Java's share consumer
    calls it ``max.poll.records``. Default: 500."""
    fetch_min_bytes: int
    """Bytes that a broker collects before it responds to a fetch. Default: 1 byte."""
    fetch_max_bytes: int
    """The maximum number of bytes in one response, less than ``max_response_size``. Default: 50 MiB."""
    fetch_max_wait: float
    """Seconds that a broker waits for ``fetch_min_bytes``. Acknowledgements to this broker wait for the same time.
    Default: 0.5 s."""
    renew_locks_for: float
    """Seconds for which the client renews the locks of the records of one read (KIP-1222, Kafka 4.2). They begin again
    when the program acknowledges one of them. After that, the locks end, and the records are delivered again. 0 renews
    no lock. Default: 300 s."""
    check_crcs: bool
    """Whether the checksums of batches are verified. Default: ``True``."""
    max_decompressed_size: int
    """The maximum number of bytes of one batch after decompression. A larger batch raises CorruptRecord. Default: 128
    MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOptions:
    """The checked arguments of a ``ShareConsumer``. Made by ``share_options``."""

    topics: tuple[str, ...]
    client: ClientConfig
    share: ShareConfig
    connector: Connector | None
    runtime: Runtime
    deserializing: ShareDeserializing | None
    on_acknowledged: OnAcknowledged | None


def share_options(
    topics: Names,
    bootstrap_servers: str | Iterable[str],
    group_id: str,
    settings: Mapping[str, object],
    *,
    deserializing: ShareDeserializing | None,
    on_acknowledged: OnAcknowledged | None,
    connector: Connector | None,
    runtime: Runtime,
) -> ShareOptions:
    """Check the settings and sort them. Raises ConfigurationError."""
    of_client, of_share = sorted_settings(settings, ClientConfig, ShareConfig)
    names = checked_topics(topics)
    if not isinstance(names, tuple):
        raise ConfigurationError(must_be("topics", "a list of names, because share groups have no patterns", topics))
    if not names:
        raise ConfigurationError('topics are required, as topics=["orders"]')
    client = ClientConfig(bootstrap_servers=bootstrap_servers, **of_client)  # type: ignore[arg-type]
    parse_bootstrap_servers(client.servers)
    share = ShareConfig(group_id=group_id, **of_share)  # type: ignore[arg-type]
    check_fetch_limits(client, share.fetch_max_wait, share.fetch_max_bytes)
    check_connector(connector)
    if on_acknowledged is not None:
        check_function("on_acknowledged", on_acknowledged)
    return ShareOptions(
        topics=names,
        client=client,
        share=share,
        connector=connector,
        runtime=runtime,
        deserializing=deserializing,
        on_acknowledged=on_acknowledged,
    )
