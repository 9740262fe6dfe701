"""``Admin``: the public admin client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Unpack

from ..aio.component import Component
from ..cluster.client import Client
from ..errors import ConfigurationError
from ..method_names import ADMIN, named_elsewhere
from ..net.connector import Connector
from ..settings.client import ClientConfig, names_of_servers
from ..settings.keywords import ClientSettings
from .acls import Acls
from .calls import Calls
from .cluster import Cluster
from .configs import Configs
from .groups import Groups
from .leaders import Leaders, Reassignments
from .log_dirs import LogDirs
from .offsets import OffsetsOfPartitions
from .quotas import Quotas
from .records import Records
from .share_groups import ShareGroups
from .tokens import Tokens
from .topics import Topics
from .transactions import Transactions
from .users import Users

if TYPE_CHECKING:
    from ..cluster.diagnosis import Diagnosis
    from ..cluster.metrics import ClientMetrics
    from ..net.metrics import BrokerTraffic


class Admin(Component):
    """Describes and changes a cluster: topics, settings, groups and their offsets, leaders, quotas,
    transactions, ACLs, users, delegation tokens.

    Calls are grouped: ``admin.topics.create(...)``, ``admin.groups.lag(...)``. Usable between ``start()`` and
    ``close()``, or inside ``async with``; any number of tasks may call at the same time. The constructor raises
    ConfigurationError.

    A call on many items returns ``Results``, in which each item has its own result or its own error. If a broker is
    down, only its items fail. A call on one item returns its result or raises. Wrong arguments raise TypeError or
    ValueError before a request is sent. Every call takes ``timeout`` in seconds, ``api_timeout`` by default. Until then
    it retries retriable errors, for example after a lost connection, or when a controller, coordinator or leader has
    moved. If the broker is too old, UnsupportedVersion names the release that is needed. No call creates a topic as a
    side effect.

    With ``bootstrap_controllers`` instead of ``bootstrap_servers``, it asks the controllers of the cluster (KIP-919,
    Kafka 3.7), also while no broker runs. Calls that controllers do not answer, such as those on groups and records,
    raise UnsupportedVersion.
    """

    if not TYPE_CHECKING:
        __getattr__ = named_elsewhere(ADMIN)

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] | None = None,
        *,
        bootstrap_controllers: str | Iterable[str] | None = None,
        connector: Connector | None = None,
        **settings: Unpack[ClientSettings],
    ) -> None:
        super().__init__()
        unknown = sorted(settings.keys() - ClientSettings.__annotations__.keys())
        if unknown:
            from ..settings.names import unknown_setting  # imported here, because most programs do not need it

            raise unknown_setting(
                unknown[0], {*ClientSettings.__annotations__, "bootstrap_servers", "bootstrap_controllers"}
            )
        if (bootstrap_servers is None) == (bootstrap_controllers is None):
            raise ConfigurationError("give either bootstrap_servers or bootstrap_controllers to Admin")
        if bootstrap_controllers is None:
            self._client = _client_of(bootstrap_servers, settings, connector, asks_controllers=False)
        else:
            from ..settings.spelling import spelled  # imported here, because most programs do not need it

            servers = names_of_servers(bootstrap_controllers, "bootstrap_controllers")
            with spelled({"bootstrap_servers": "bootstrap_controllers"}, {}):
                self._client = _client_of(servers, settings, connector, asks_controllers=True)
        calls = Calls(self._client, self._service)
        self.topics: Topics = Topics(calls)
        self.configs: Configs = Configs(calls)
        self.groups: Groups = Groups(calls)
        self.share_groups: ShareGroups = ShareGroups(calls)
        self.cluster: Cluster = Cluster(calls)
        self.records: Records = Records(calls)
        self.offsets: OffsetsOfPartitions = OffsetsOfPartitions(calls)
        self.leaders: Leaders = Leaders(calls)
        self.reassignments: Reassignments = Reassignments(calls)
        self.log_dirs: LogDirs = LogDirs(calls)
        self.quotas: Quotas = Quotas(calls)
        self.transactions: Transactions = Transactions(calls)
        self.acls: Acls = Acls(calls)
        self.users: Users = Users(calls)
        self.tokens: Tokens = Tokens(calls)

    async def _on_start(self) -> None:
        await self._service.attach(self._client.service)

    def set_credentials(self, username: str, password: str) -> None:
        """Log in with this user name and password from now on (PLAIN and SCRAM), for example after a rotation.

        Open connections stay open; they use the new password when they log in again. May be called before the start
        too, in the event loop. Raises ConfigurationError for a wrong value, for a client that does not log in with a
        password, and if ``sasl_password`` is a function.
        """
        self._service.check_process()
        self._client.set_credentials(username, password)

    def metrics(self) -> ClientMetrics:
        """Return a snapshot of the counters of the connections, the metadata and the event loop. Asks no broker.

        Call it in the event loop.
        """
        from ..cluster.metrics import client_metrics

        self._service.check_process()
        return client_metrics(self._client)

    def traffic(self) -> Mapping[int, BrokerTraffic]:
        """Return requests, bytes, latencies and throttle times of each broker so far, by its id, over all APIs.

        A bootstrap address has a negative id. Call it in the event loop.
        """
        self._service.check_process()
        return self._client.traffic()

    def diagnose(self) -> Diagnosis:
        """Return the state of the client, its connections and its event loop, for a bug report.

        Sends no request and does not wait. Call it in the event loop.
        """
        from ..cluster.diagnosis import Diagnosis, common

        self._service.check_process()
        return Diagnosis(**common(self._service, self._client))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<Admin {self._client.config.client_id} {self.state.name}>"


def _client_of(
    servers: str | Iterable[str] | None,
    settings: ClientSettings,
    connector: Connector | None,
    *,
    asks_controllers: bool,
) -> Client:
    assert servers is not None, "the constructor has checked it"
    config = ClientConfig(bootstrap_servers=servers, allow_auto_create_topics=False, **settings)
    return Client(config, connector=connector, asks_controllers=asks_controllers)
