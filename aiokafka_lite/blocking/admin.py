"""``Admin``, for threads without an event loop.

Written by docs/make_blocking.py from the asyncio classes, which have the same calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..admin.admin import Admin as AsyncAdmin
from ..arguments import check_timeout
from ..method_names import ADMIN
from .admin_access import Acls, Tokens, Transactions, Users
from .admin_cluster import Cluster, Leaders, LogDirs, Quotas, Reassignments
from .admin_groups import Groups, ShareGroups
from .admin_topics import Configs, OffsetsOfPartitions, Records, Topics
from .wrapper import BlockingClient, named_elsewhere

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Unpack

    from ..aio.service import ServiceState
    from ..cluster.diagnosis import Diagnosis
    from ..cluster.metrics import ClientMetrics
    from ..net.connector import Connector
    from ..net.metrics import BrokerTraffic
    from ..settings.keywords import ClientSettings


class Admin(BlockingClient):
    """Describes and changes a cluster: topics, settings, groups and their offsets, leaders, quotas, transactions, ACLs,
    users, delegation tokens.

    This is ``aiokafka_lite.Admin`` for threads without an event loop: its calls wait.

    Calls are grouped: ``admin.topics.create(...)``, ``admin.groups.lag(...)``. Usable between ``start()`` and
    ``close()``, or inside ``with``; any number of threads may call at the same time. The constructor raises
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

    _inner: AsyncAdmin

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
        super().__init__(
            AsyncAdmin(bootstrap_servers, bootstrap_controllers=bootstrap_controllers, connector=connector, **settings)
        )
        self.topics: Topics = Topics(self._inner.topics)
        self.configs: Configs = Configs(self._inner.configs)
        self.groups: Groups = Groups(self._inner.groups)
        self.share_groups: ShareGroups = ShareGroups(self._inner.share_groups)
        self.cluster: Cluster = Cluster(self._inner.cluster)
        self.records: Records = Records(self._inner.records)
        self.offsets: OffsetsOfPartitions = OffsetsOfPartitions(self._inner.offsets)
        self.leaders: Leaders = Leaders(self._inner.leaders)
        self.reassignments: Reassignments = Reassignments(self._inner.reassignments)
        self.log_dirs: LogDirs = LogDirs(self._inner.log_dirs)
        self.quotas: Quotas = Quotas(self._inner.quotas)
        self.transactions: Transactions = Transactions(self._inner.transactions)
        self.acls: Acls = Acls(self._inner.acls)
        self.users: Users = Users(self._inner.users)
        self.tokens: Tokens = Tokens(self._inner.tokens)

    def set_credentials(self, username: str, password: str) -> None:
        """Log in with this user name and password from now on (PLAIN and SCRAM), for example after a rotation.

        Open connections stay open; they use the new password when they log in again. May be called before the start
        too. Raises ConfigurationError for a wrong value, for a client that does not log in with a password, and if
        ``sasl_password`` is a function.
        """
        self._run(self._inner.set_credentials, username, password)

    def metrics(self) -> ClientMetrics:
        """Return a snapshot of the counters of the connections, the metadata and the event loop. Asks no broker."""
        return self._run(self._inner.metrics)

    def traffic(self) -> Mapping[int, BrokerTraffic]:
        """Return requests, bytes, latencies and throttle times of each broker so far, by its id, over all APIs.

        A bootstrap address has a negative id.
        """
        return self._run(self._inner.traffic)

    def diagnose(self) -> Diagnosis:
        """Return the state of the client, its connections and its event loop, for a bug report.

        Sends no request and does not wait.
        """
        return self._run(self._inner.diagnose)

    @property
    def state(self) -> ServiceState:
        value: ServiceState = self._read("state")
        return value

    def start(self, timeout: float | None = None) -> None:
        """Start the component within ``timeout`` seconds (``api_timeout`` by default).

        Raises KafkaTimeout, or the error that prevented the start. After an error or an interrupt, no task and no
        connection remains.
        """
        self._begin(self._inner.start, timeout)

    def close(self, timeout: float | None = None) -> None:
        """Close in an orderly way within ``timeout`` seconds (3 by default), then cancel the remaining tasks.

        May be called more than once, from any thread. If the call is interrupted, all tasks are cancelled at once.
        Raises the exception that ended the component, if any, and KafkaTimeout if a task resists cancellation.
        """
        check_timeout(timeout)
        self._end(self._inner.close, timeout)
