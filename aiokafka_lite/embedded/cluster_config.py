"""The configuration of an embedded cluster: the few arguments of ``EmbeddedCluster`` become settings of its brokers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..aio.runtime import wall_clock
from ..arguments import INT32_MAX, check_function, is_whole, must_be, plural, several, whole
from ..errors import ConfigurationError
from ..protocol.messages import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from .client_telemetry import MetricsPush
from .settings.broker_keys import BROKER_KEYS, PLUGIN_KEYS, STANDARD_AUTHORIZER
from .settings.configs import ClusterSettings, broker_key
from .settings.keys import InvalidConfig, check_configs
from .settings.listener_configs import without_prefix
from .settings.versions import VersionRanges, in_common

LOOPBACK = ("127.0.0.1", "::1", "localhost")
FIRST_MEMORY_PORT = 9092
HISTORY_LIMIT = 10_000

STATIC_CONFIGS = {
    "controller.listener.names": "CONTROLLER",
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "log.dirs": "/memory",
    "max.connections": "2000",
    "process.roles": "broker,controller",
    "queued.max.request.bytes": str(256 << 20),
}
"""Broker settings that differ from Kafka's defaults: groups form at once, and memory is bounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """Settings of an embedded cluster that few tests need. Kafka's own settings are in ``configs`` of the cluster.

    - ``host`` is the address to listen on. Any address except loopback needs ``expose=True``, because every client that
      reaches the port has full access. Metadata names ``advertised_host`` instead, if it is given, and
      ``advertised_port`` for the first listener of the first broker; the next listeners have the next ports.
    - ``racks`` is the rack of each broker, or None. ``rack_aware_fetch`` is KIP-392.
    - ``first_node_id`` is the id of the first broker; the next ids follow.
    - ``versions`` limits the versions of APIs: {API key: (first, last)}. Brokers do not offer ``without_apis``, the
      keys of other APIs.
    - ``replication_delay`` is the time between an append and its copy to the followers. ``broker_session_timeout`` is
      the time until the cluster fences a broker that it does not reach. Both are in seconds.
    - ``topic_creation_delay`` is the time in seconds from a Metadata request that creates a topic until the topic
      exists. With 0 the topic is in the first response. With any other value, responses have
      UNKNOWN_TOPIC_OR_PARTITION until the topic exists, as in Kafka.
    - ``fetch_patience`` is how many times its max wait a fetch waits for the first record. More than 1 makes idle
      consumers cheaper in virtual time, and a new assignment may wait as long for the answer of the last fetch.
    - ``storage_limit`` is the size of each broker's log directory in bytes. A full one answers KAFKA_STORAGE_ERROR.
    - ``history_limit`` is the number of requests that ``EmbeddedCluster.history`` keeps; 0 keeps none.
    - ``receive_client_metrics`` is called with each push of metrics by a client (KIP-714), a ``MetricsPush``. Without
      it, brokers do not offer the APIs of telemetry, like Kafka without a plugin for telemetry.
    - ``wall_clock`` returns seconds since the epoch, for timestamps and retention. Durations use the loop's clock.

    Raises ConfigurationError for a wrong value.
    """

    host: str = "127.0.0.1"
    advertised_host: str | None = None
    advertised_port: int | None = None
    expose: bool = False
    racks: Sequence[str | None] | None = None
    rack_aware_fetch: bool = True
    first_node_id: int = 1
    versions: VersionRanges | None = None
    without_apis: Collection[int] = ()
    replication_delay: float = 0.0
    broker_session_timeout: float = 9.0
    topic_creation_delay: float = 0.0
    fetch_patience: float = 1.0
    storage_limit: int | None = None
    history_limit: int = HISTORY_LIMIT
    receive_client_metrics: Callable[[MetricsPush], None] | None = None
    wall_clock: Callable[[], float] = wall_clock

    def __post_init__(self) -> None:
        check_function("wall_clock", self.wall_clock)
        if self.receive_client_metrics is not None:
            check_function("receive_client_metrics", self.receive_client_metrics)
        whole("first_node_id", self.first_node_id, 0)
        if self.advertised_port is not None:
            whole("advertised_port", self.advertised_port, 1)
        for name in ("replication_delay", "broker_session_timeout", "topic_creation_delay"):
            value = getattr(self, name)
            if not value >= 0:
                raise ConfigurationError(must_be(name, "a number of seconds >= 0", value))
        if not self.fetch_patience >= 1:
            raise ConfigurationError(must_be("fetch_patience", "a number >= 1", self.fetch_patience))

    def advertised(self, node_id: int, listeners: Mapping[str, int]) -> tuple[str, dict[str, int]]:
        """Return the host and the ports by listener that clients use for a broker. ``listeners`` are its own ports."""
        host = self.advertised_host or self.host
        if self.advertised_port is None:
            return host, dict(listeners)
        first = self.advertised_port + (node_id - self.first_node_id) * len(listeners)
        return host, {name: first + index for index, name in enumerate(listeners)}

    def offered_versions(self, versions: VersionRanges) -> dict[int, tuple[int, int]]:
        """Return the versions of APIs that brokers offer: ``versions``, narrowed to the settings.

        The APIs of client metrics are offered only if ``receive_client_metrics`` is set.
        """
        offered = {**versions, **in_common(self.versions or {}, versions)}
        for key in self.without_apis:
            offered.pop(key, None)
        if self.receive_client_metrics is None:
            for request in (GetTelemetrySubscriptionsRequest, PushTelemetryRequest):
                offered.pop(request.api_key, None)
        return offered

    def check(self, brokers: int, *, tcp: bool) -> None:
        """Raise ConfigurationError unless a cluster with this number of brokers can have these settings."""
        if not is_whole(brokers) or brokers < 1:
            raise ConfigurationError(must_be("brokers", "a whole number >= 1", brokers))
        # The next brokers have the next ids and ports.
        for name, highest in (("first_node_id", INT32_MAX), ("advertised_port", 65_535)):
            first = getattr(self, name)
            if first is not None and first + brokers - 1 > highest:
                what = f"a whole number <= {highest - brokers + 1} for {plural(brokers, 'broker')}"
                raise ConfigurationError(must_be(name, what, first))
        if tcp and self.host not in LOOPBACK and not self.expose:
            what = "a loopback address; for any other address pass expose=True"
            raise ConfigurationError(must_be("host", what, self.host))
        if self.racks is not None and len(self.racks) != brokers:
            raise ConfigurationError(must_be("racks", f"a list of {brokers} racks", self.racks))


def broker_settings(
    brokers: int,
    configs: Mapping[str, str] | None,
    super_users: Iterable[str] | None,
    *,
    auto_create_topics: bool | None,
    default_partitions: int | None,
) -> ClusterSettings:
    """Return the static settings of all brokers.

    Raises ConfigurationError for a wrong setting, or if an argument and ``configs`` give a setting two values.
    """
    values = dict(configs or {})
    users = None if super_users is None else ";".join(several(super_users, "super_users"))
    flag = None if auto_create_topics is None else str(auto_create_topics).lower()
    number = None if default_partitions is None else str(default_partitions)
    for argument, value, name in (
        ("auto_create_topics", flag, "auto.create.topics.enable"),
        ("default_partitions", number, "num.partitions"),
        ("super_users", users, "super.users"),
        ("super_users", None if users is None else STANDARD_AUTHORIZER, "authorizer.class.name"),
    ):
        if value is not None and values.setdefault(name, value) != value:
            raise ConfigurationError(
                f"{argument} and configs[{name!r}] must have the same value, got {value!r} and {values[name]!r}; "
                "pass only one of them"
            )
    try:
        check_configs({**BROKER_KEYS, **PLUGIN_KEYS}, without_prefix(values))
        for name in values.keys() - without_prefix(values):
            broker_key(name).check(name, values[name])
    except InvalidConfig as error:
        raise ConfigurationError(f"configs: {error}") from None
    of_internal_topics = {
        "offsets.topic.replication.factor": str(min(3, brokers)),
        "transaction.state.log.replication.factor": str(min(3, brokers)),
        "transaction.state.log.min.isr": str(min(2, brokers)),
    }
    settings = ClusterSettings({**STATIC_CONFIGS, **of_internal_topics, **values})
    factor = settings.of().number("default.replication.factor")
    if not 1 <= factor <= brokers:
        raise ConfigurationError(must_be("default.replication.factor", f"from 1 to {brokers} (the brokers)", factor))
    return settings


def ports_of(brokers: int, listeners: int, ports: int | Sequence[int] | None, *, tcp: bool) -> list[list[int]]:
    """Return the ports of each broker, one for each listener; 0 lets the system choose. Raises ConfigurationError."""
    count = brokers * listeners
    if ports is None:
        ports = [0 if tcp else FIRST_MEMORY_PORT + index for index in range(count)]
    elif isinstance(ports, int):
        ports = range(ports, ports + count)
    if len(ports) != count or not all(0 <= port <= 65535 for port in ports):
        raise ConfigurationError(must_be("ports", f"{count} numbers from 0 to 65535", list(ports)))
    return [list(ports[first : first + listeners]) for first in range(0, count, listeners)]
