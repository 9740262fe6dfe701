"""The settings of a consumer: keyword arguments, sorted into the validated configurations that they belong to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..aio.runtime import Runtime
from ..arguments import check_function, must_be
from ..cluster.bootstrap import parse_bootstrap_servers, sorted_settings
from ..cluster.topics import problem_of_topic_name
from ..errors import ConfigurationError
from ..net.connector import Connector, check_connector
from ..settings.client import ClientConfig
from ..settings.consumer import ConsumerConfig
from ..settings.group import GroupConfig
from ..types import Names, SubscriptionPattern
from .deserializing import Deserializing
from .interceptor import ConsumerInterceptor, ConsumerInterceptors
from .position import OnOffsetReset

if TYPE_CHECKING:
    from ..group.strategies import AssignmentStrategy


_SET_BY_BROKERS = {
    "session_timeout": "group.consumer.session.timeout.ms",
    "heartbeat_interval": "group.consumer.heartbeat.interval.ms",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """The checked arguments that ``Consumer`` and ``ConsumerGroup`` have in common. Made by ``reading_options``."""

    client: ClientConfig
    consumer: ConsumerConfig
    group: GroupConfig | None
    connector: Connector | None
    runtime: Runtime
    deserializing: Deserializing | None
    interceptors: ConsumerInterceptors | None
    on_offset_reset: OnOffsetReset | None


def reading_options(
    bootstrap_servers: str | Iterable[str],
    group_id: str | None,
    settings: Mapping[str, object],
    *,
    deserializing: Deserializing | None,
    interceptors: Iterable[ConsumerInterceptor],
    on_offset_reset: OnOffsetReset | None,
    connector: Connector | None,
    runtime: Runtime | None = None,
) -> ReadingOptions:
    """Check the settings and sort them. Raises ConfigurationError."""
    client, consumer, group = _configs(bootstrap_servers, group_id, settings)
    check_connector(connector)
    if on_offset_reset is not None:
        check_function("on_offset_reset", on_offset_reset)
    return ReadingOptions(
        client=client,
        consumer=consumer,
        group=group,
        connector=connector,
        runtime=runtime or Runtime(),
        deserializing=deserializing,
        # With None, interceptors cost nothing.
        interceptors=ConsumerInterceptors(interceptors, client.client_id, group_id) or None,
        on_offset_reset=on_offset_reset,
    )


def _configs(
    bootstrap_servers: str | Iterable[str], group_id: str | None, settings: Mapping[str, object]
) -> tuple[ClientConfig, ConsumerConfig, GroupConfig | None]:
    if "topics" in settings:  # a consumer takes topics as a separate argument
        raise ConfigurationError("topics is not a setting of ConsumerGroup; pass topics to consume()")
    of_client, of_consumer, of_group = sorted_settings(
        settings, ClientConfig, ConsumerConfig, GroupConfig, suggested=("topics", "strategies")
    )
    if of_group and group_id is None:
        raise ConfigurationError(f"{next(iter(of_group))} requires a group_id")
    client = ClientConfig(bootstrap_servers=bootstrap_servers, **of_client)  # type: ignore[arg-type]
    parse_bootstrap_servers(client.servers)  # checked now, even if the client is made later
    consumer = ConsumerConfig(**of_consumer)  # type: ignore[arg-type]
    group = None if group_id is None else GroupConfig(group_id=group_id, **of_group)  # type: ignore[arg-type]
    if group is not None and group.group_protocol == "consumer":
        for name, setting in _SET_BY_BROKERS.items():
            if name in of_group:
                raise ConfigurationError(
                    f'{name} cannot be combined with group_protocol="consumer": the brokers set it, by their property '
                    f"{setting}"
                )
    check_fetch_limits(client, consumer.fetch_max_wait, consumer.fetch_max_bytes)
    return client, consumer, group


def check_fetch_limits(client: ClientConfig, fetch_max_wait: float, fetch_max_bytes: int) -> None:
    """Raise ConfigurationError if a response to a fetch could come too late or be too large for the client."""
    if fetch_max_wait >= client.request_timeout:
        limit = f"less than request_timeout={client.request_timeout!r}"
        raise ConfigurationError(must_be("fetch_max_wait", limit, fetch_max_wait))
    if fetch_max_bytes >= client.max_response_size:
        limit = f"less than max_response_size={client.max_response_size}"
        raise ConfigurationError(must_be("fetch_max_bytes", limit, fetch_max_bytes))


def strategies_of(
    group: GroupConfig, strategies: Sequence[AssignmentStrategy | str] | None
) -> Sequence[AssignmentStrategy | str]:
    """Return the strategies of a member. Raises ConfigurationError if the brokers assign the partitions."""
    if strategies is None:
        return default_strategies()
    if group.group_protocol == "consumer":
        raise ConfigurationError(
            'strategies cannot be combined with group_protocol="consumer": the brokers assign the partitions; '
            "group_remote_assignor chooses how"
        )
    return strategies


def default_strategies() -> tuple[AssignmentStrategy, ...]:
    """Return the defaults of Java's client: range and cooperative-sticky, so that a group can move to the second.

    Then roundrobin, the only default of aiokafka, so that a group of aiokafka can be moved member by member. Other
    groups are not affected: the coordinator chooses what most members prefer, among the strategies of all.
    """
    from ..group.strategies import CooperativeStickyStrategy, RangeStrategy, RoundRobinStrategy

    return RangeStrategy(), CooperativeStickyStrategy(), RoundRobinStrategy()


def checked_topics(
    topics: Names | re.Pattern[str] | SubscriptionPattern, group: GroupConfig | None = None
) -> tuple[str, ...] | re.Pattern[str] | SubscriptionPattern:
    """Check the names, and return them without duplicates, or the pattern. Raises ConfigurationError."""
    if isinstance(topics, SubscriptionPattern):
        if not isinstance(topics.pattern, str) or not topics.pattern:
            raise ConfigurationError(must_be("topics", "a SubscriptionPattern of a text that is not empty", topics))
        if group is not None and group.group_protocol != "consumer":
            raise ConfigurationError(
                f'a SubscriptionPattern requires group_protocol="consumer", got {group.group_protocol!r}; a compiled '
                "pattern of re is matched by the client"
            )
        return topics
    if isinstance(topics, re.Pattern):
        if not isinstance(topics.pattern, str):
            raise ConfigurationError(must_be("topics", "a pattern of text, not of bytes", topics))
        return topics
    if isinstance(topics, str):
        raise ConfigurationError(f"topics must be a list of names, got {topics!r}; pass [{topics!r}]")
    argument: object = topics
    if isinstance(argument, bytes) or not isinstance(argument, Iterable):
        raise ConfigurationError(must_be("topics", "a list of names or a compiled regular expression", argument))
    names = list(topics)
    for name in names:
        if (problem := problem_of_topic_name(name)) is not None:
            raise ConfigurationError(f"topics: {problem}")
    return tuple(dict.fromkeys(names))
