"""The settings of whatever reads: keyword arguments, sorted into the validated configurations that they belong to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING

from ..cluster.bootstrap import parse_bootstrap_servers
from ..cluster.topics import check_topic_name
from ..config import ClientConfig, ClientSettings, ConsumerConfig, GroupConfig, IsolationName, OffsetReset
from ..errors import ConfigurationError, InvalidTopic

if TYPE_CHECKING:
    from ..group.strategies import AssignmentStrategy
    from ..group.topic_watcher import Topics


class ConsumerSettings(ClientSettings, total=False):
    """What ``Consumer`` takes besides servers, topics and group: the fields of its configurations."""

    allow_auto_create_topics: bool
    auto_offset_reset: OffsetReset
    isolation_level: IsolationName
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait: float
    max_partition_fetch_bytes: int
    check_crcs: bool
    max_decompressed_size: int
    group_instance_id: str | None
    session_timeout: float
    heartbeat_interval: float
    max_poll_interval: float
    rebalance_timeout: float | None
    auto_commit: bool
    auto_commit_interval: float


def default_strategies() -> tuple[AssignmentStrategy, ...]:
    """As in the Java client: range, and what a group can be moved to without stopping it."""
    from ..group.strategies import CooperativeStickyStrategy, RangeStrategy

    return RangeStrategy(), CooperativeStickyStrategy()


def configs(
    bootstrap_servers: str | Iterable[str], group_id: str | None, settings: ConsumerSettings
) -> tuple[ClientConfig, ConsumerConfig, GroupConfig | None]:
    """The settings as the validated configurations that they belong to."""
    given: dict[str, object] = dict(settings)
    kinds = (ClientConfig, ConsumerConfig, GroupConfig)
    of_client, of_consumer, of_group = (
        {each.name: given.pop(each.name) for each in fields(kind) if each.name in given} for kind in kinds
    )
    if given:
        from ..setting_names import unknown_setting  # here, as most programs have none

        known = (each.name for kind in kinds for each in fields(kind))
        raise unknown_setting(next(iter(given)), {*known, "topics", "strategies"})
    if of_group and group_id is None:
        raise ConfigurationError(f"{next(iter(of_group))}={next(iter(of_group.values()))!r}: it needs a group_id")
    client_config = ClientConfig(bootstrap_servers=bootstrap_servers, **of_client)  # type: ignore[arg-type]
    parse_bootstrap_servers(client_config.servers)  # now, even if the client is made later
    config = ConsumerConfig(**of_consumer)  # type: ignore[arg-type]
    group_config = None if group_id is None else GroupConfig(group_id=group_id, **of_group)  # type: ignore[arg-type]
    if config.fetch_max_wait >= client_config.request_timeout:
        raise ConfigurationError(
            f"fetch_max_wait={config.fetch_max_wait!r}: less than request_timeout={client_config.request_timeout!r}"
        )
    return client_config, config, group_config


def checked_topics(topics: Iterable[str] | re.Pattern[str]) -> Topics:
    """Names without repetition, or the pattern."""
    if isinstance(topics, re.Pattern):
        if not isinstance(topics.pattern, str):
            raise ConfigurationError(f"topics={topics!r}: names are text, and the pattern is one of bytes")
        return topics
    if isinstance(topics, str):
        raise ConfigurationError(f"topics={topics!r}: a list of names, as in topics=[{topics!r}]")
    given: object = topics
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise ConfigurationError(f"topics={given!r}: a list of names, or a compiled regular expression")
    names = list(topics)
    for name in names:
        try:
            check_topic_name(name)
        except InvalidTopic as error:
            raise ConfigurationError(f"topics={names!r}: {error}") from None
    return tuple(dict.fromkeys(names))


def all_partitions_of(topics: Topics) -> tuple[str, ...]:
    """The topics of a consumer without a group, which have to be named."""
    if isinstance(topics, re.Pattern):
        raise ConfigurationError(f"topics={topics!r}: a regular expression needs a group_id")
    return tuple(topics)


def described(topics: Topics) -> str:
    """For the text of an error."""
    if isinstance(topics, re.Pattern):
        return f"the topics that match {topics.pattern!r}"
    return f"all partitions of {', '.join(topics)}"
