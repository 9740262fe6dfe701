"""``aiokafka-lite exporter``: the figures of a cluster for Prometheus."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ..admin import Admin, ConfigResource
from ..arguments import must_be
from ..cluster.bootstrap import Address
from ..errors import ConfigurationError
from ..extras import extra
from ..metrics.cluster import ClusterWatch
from .terminal.connection import ConnectionOptions
from .terminal.run import log_warnings, say, with_options
from .terminal.setting_names import setting_hint

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class Selection(NamedTuple):
    """What is exported. ``group`` and ``topic`` are regular expressions."""

    group: str
    topic: str
    internal: bool
    by_partition: bool
    topic_settings: Sequence[str]
    most_series: int


async def exporter(connection: ConnectionOptions, listen: str, every: float, selection: Selection) -> int:
    """Serve the figures until a signal.

    Raises ConfigurationError for a wrong pattern, setting or address, or a port in use.
    """
    host, port = address_of(listen)
    groups, topics = _pattern("group", selection.group), _pattern("topic", selection.topic)
    async with connection.admin() as admin:
        if selection.topic_settings:
            await _check_settings(admin, selection.topic_settings)
        watch = ClusterWatch(
            admin,
            groups=groups,
            topics=topics,
            internal=selection.internal,
            by_partition=selection.by_partition,
            topic_settings=selection.topic_settings,
            most_series=selection.most_series,
        )
        error = await watch.look()
        if error is not None:
            raise error
        with serving(watch, host, port) as address:
            log_warnings()
            say(f"metrics of {len(watch.figures)} kinds at http://{address}/metrics, every {every:g} s; Ctrl-C stops")
            while True:
                await asyncio.sleep(every)
                error = await watch.look()
                if error is not None:
                    say(with_options(str(error)))


@contextmanager
def serving(watch: ClusterWatch, host: str, port: int) -> Iterator[str]:
    """Serve the figures from a thread. Yields the address with the port."""
    client = extra("prometheus_client", "prometheus")
    registry = client.CollectorRegistry()
    registry.register(_Collector(watch))
    try:
        server, thread = client.start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise ConfigurationError(f"cannot listen at {Address(host, port)}: {error.strerror}") from error
    except UnicodeError:  # the codec of host names, which getaddrinfo uses
        raise ConfigurationError(must_be("listen", "HOST:PORT with the name of a host", f"{host}:{port}")) from None
    try:
        yield str(Address(host, server.server_port))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Collector:
    """Gives the last figures to ``prometheus_client``, whose thread reads one attribute of the watch."""

    def __init__(self, watch: ClusterWatch) -> None:
        self._watch = watch
        self._core = extra("prometheus_client.metrics_core", "prometheus")

    def __repr__(self) -> str:
        return f"<_Collector {self._watch!r}>"

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        for family in self._watch.figures:
            kind: Any = self._core.CounterMetricFamily if family.is_counter else self._core.GaugeMetricFamily
            metric = kind(family.name, family.description, labels=family.labels)
            for labels, value in family.samples:
                metric.add_metric(labels, value)
            yield metric


def address_of(text: str) -> tuple[str, int]:
    """Parse ``host:port``, also ``[::1]:9308``. Raises ConfigurationError."""
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > 65_535:
        raise ConfigurationError(must_be("listen", "HOST:PORT, as in 127.0.0.1:9308", text))
    return host, int(port)


async def _check_settings(admin: Admin, names: Sequence[str]) -> None:
    """Raise ConfigurationError if topics do not have such settings. A cluster without topics cannot tell."""
    for name in names:
        if re.fullmatch(r"[a-z][a-z0-9_.]*", name) is None:
            raise ConfigurationError(must_be("topic-setting", "a setting of topics, as in cleanup.policy", name))
    labels = ["topic", "replication_factor", *(name.replace(".", "_") for name in names)]
    if len(set(labels)) < len(labels):
        raise ConfigurationError(
            must_be(
                "topic-setting",
                "given once for each setting, and not the label topic or replication_factor",
                ", ".join(names),
            )
        )
    listed = await admin.topics.list(internal=True)
    described = await admin.configs.describe([ConfigResource.topic(topic.name) for topic in listed[:1]], names=names)
    for settings in described.done.values():
        for name in names:
            if name not in settings:
                raise ConfigurationError(f"topics have no setting {name!r}{setting_hint('topic', name)}")


def _pattern(name: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigurationError(f"{name} must be a regular expression, got {text!r}: {error}") from None
