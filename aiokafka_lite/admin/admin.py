"""``Admin``: the public admin client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Unpack

from ..aio.component import Component
from ..cluster.client import Client
from ..method_names import ADMIN, named_elsewhere
from ..net.connector import Connector
from ..settings.client import ClientConfig
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
    """

    if not TYPE_CHECKING:
        __getattr__ = named_elsewhere(ADMIN)

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        connector: Connector | None = None,
        **settings: Unpack[ClientSettings],
    ) -> None:
        super().__init__()
        unknown = sorted(settings.keys() - ClientSettings.__annotations__.keys())
        if unknown:
            from ..settings.names import unknown_setting  # imported here, because most programs do not need it

            raise unknown_setting(unknown[0], {*ClientSettings.__annotations__, "bootstrap_servers"})
        config = ClientConfig(bootstrap_servers=bootstrap_servers, allow_auto_create_topics=False, **settings)
        self._client = Client(config, connector=connector)
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
