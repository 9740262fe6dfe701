"""The settings of a share consumer: keyword arguments, sorted into the validated configurations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..aio.runtime import Runtime
from ..arguments import check_function, must_be
from ..cluster.bootstrap import parse_bootstrap_servers, sorted_settings
from ..consumer.interceptor import ConsumerInterceptors
from ..consumer.settings import check_fetch_limits, checked_topics
from ..errors import ConfigurationError
from ..net.connector import Connector, check_connector
from ..settings.client import ClientConfig
from ..settings.share import ShareConfig
from ..types import Names
from .deserializing import ShareDeserializing
from .results import OnAcknowledged


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
    interceptors: ConsumerInterceptors | None


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
        interceptors=ConsumerInterceptors((), client.client_id, group_id) or None,
    )
