"""The settings of a consumer: keyword arguments, sorted into the validated configurations that they belong to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..aio.runtime import Runtime
from ..arguments import check_function, must_be
from ..cluster.bootstrap import parse_bootstrap_servers
from ..cluster.topics import problem_of_topic_name
from ..errors import ConfigurationError
from ..net.connector import Connector, check_connector
from ..settings.config import (
    ClientConfig,
    ClientSettings,
    ConsumerConfig,
    GroupConfig,
    GroupProtocolName,
    IsolationName,
    OffsetResetName,
)
from ..types import Names
from .deserializing import Deserializing
from .interceptor import ConsumerInterceptor, ConsumerInterceptors
from .position import OnOffsetReset

if TYPE_CHECKING:
    from ..group.strategies import AssignmentStrategy


_SET_BY_BROKERS = {
    "session_timeout": "group.consumer.session.timeout.ms",
    "heartbeat_interval": "group.consumer.heartbeat.interval.ms",
}


class ConsumerSettings(ClientSettings, total=False):
    """The settings of ``Consumer`` and ``ConsumerGroup``: the fields of their configurations."""

    allow_auto_create_topics: bool
    """Whether using a topic may create it, if the broker allows that. Default: ``True``."""
    auto_offset_reset: OffsetResetName | timedelta
    """The start without a committed offset: ``"earliest"``, ``"latest"``, ``"none"`` (raise), or a time span back.
    Default: ``"earliest"``."""
    isolation_level: IsolationName
    """``"read_committed"`` skips records of open and aborted transactions. ``"read_uncommitted"`` returns all. Default:
    ``"read_committed"``."""
    fetch_min_bytes: int
    """Bytes that a broker collects before it responds to a fetch. Default: 1 byte."""
    fetch_max_bytes: int
    """The maximum number of bytes in one response, less than ``max_response_size``. Default: 50 MiB."""
    fetch_memory: int | None
    """The maximum number of bytes to buffer from all brokers together, in compressed form. Each broker has an equal
    part of it, at most ``fetch_max_bytes``. None: ``fetch_max_bytes`` from each broker. Default: ``fetch_max_bytes``
    from each broker."""
    fetch_max_wait: float
    """Seconds that a broker waits for ``fetch_min_bytes``. Acknowledgements to this broker wait for the same time.
    Default: 0.5 s."""
    max_partition_fetch_bytes: int
    """The maximum number of bytes of one partition in one response. A larger first batch is still returned whole.
    Default: 1 MiB."""
    check_crcs: bool
    """Whether the checksums of batches are verified. Default: ``True``."""
    max_decompressed_size: int
    """The maximum number of bytes of one batch after decompression. A larger batch raises CorruptRecord. Default: 128
    MiB."""
    group_instance_id: str | None
    """A name that makes the member static (KIP-345): it keeps its partitions when it restarts. Default: none."""
    session_timeout: float
    """Seconds without a heartbeat after which the coordinator removes the member from the group. Default: 45 s."""
    heartbeat_interval: float
    """Seconds between heartbeats. It must be less than ``session_timeout``, and should be at most a third. Default: 3
    s."""
    max_poll_interval: float
    """The longest time between two reads, in seconds. After that time, the member leaves the group until it reads
    again. Default: 300 s."""
    rebalance_timeout: float | None
    """Seconds that other members wait for this member to revoke partitions and join. None is ``max_poll_interval``.
    Default: ``max_poll_interval``."""
    auto_commit: bool
    """Whether marked records are committed automatically: on a timer, before partitions are revoked, and on close.
    Default: ``True``."""
    auto_commit_interval: float
    """Seconds between automatic commits. Default: 5 s."""
    group_protocol: GroupProtocolName
    """``"classic"``, ``"consumer"`` or ``"auto"``. With ``"consumer"`` (KIP-848), the brokers assign the partitions,
    and set session timeout and heartbeat interval. ``"auto"`` is ``"consumer"`` if the cluster has it. Default:
    ``"classic"``."""
    group_remote_assignor: str | None
    """The brokers' assignment strategy under the consumer protocol: ``"uniform"`` or ``"range"``. None: their default.
    Default: the first strategy of the brokers."""


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
        interceptors=ConsumerInterceptors(interceptors) or None,  # with None, interceptors cost nothing
        on_offset_reset=on_offset_reset,
    )


def _configs(
    bootstrap_servers: str | Iterable[str], group_id: str | None, settings: Mapping[str, object]
) -> tuple[ClientConfig, ConsumerConfig, GroupConfig | None]:
    if "topics" in settings:  # a consumer takes topics as a separate argument
        raise ConfigurationError("topics is not a setting of ConsumerGroup; pass topics to consume()")
    of_client, of_consumer, of_group = sorted_settings(
        settings, ClientConfig, ConsumerConfig, GroupConfig, also=("topics", "strategies")
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


def sorted_settings(
    settings: Mapping[str, object], *kinds: type[Any], also: Iterable[str] = ()
) -> list[dict[str, object]]:
    """Return the settings that are fields of each of these dataclasses. Raises ConfigurationError for others.

    ``also``: names that are not fields, and that the error may suggest.
    """
    remaining = dict(settings)
    of_kinds = [
        {field.name: remaining.pop(field.name) for field in fields(kind) if field.name in remaining} for kind in kinds
    ]
    if remaining:
        from ..settings.names import unknown_setting  # imported here, because most programs have no wrong name

        raise unknown_setting(next(iter(remaining)), {*also, *(field.name for kind in kinds for field in fields(kind))})
    return of_kinds


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
    groups are not affected: the coordinator chooses the strategy that most members prefer, among those that all members
    have.
    """
    from ..group.strategies import CooperativeStickyStrategy, RangeStrategy, RoundRobinStrategy

    return RangeStrategy(), CooperativeStickyStrategy(), RoundRobinStrategy()


def checked_topics(topics: Names | re.Pattern[str]) -> tuple[str, ...] | re.Pattern[str]:
    """Return the distinct names, or the pattern. Raises ConfigurationError."""
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
