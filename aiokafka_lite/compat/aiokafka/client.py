"""``AIOKafkaClient``: the metadata of the cluster, for health checks, and the settings that instrumentations read.

It has a connection of its own, which the first call opens. Requests of the protocol have no counterpart.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Unpack

from ... import admin as native
from ...config import ClientConfig
from .cluster import ClusterMetadata, fetch
from .errors import KafkaError, connecting, missing, translating
from .settings import ConnectionSettings, connection_settings, naming

_NO_REQUESTS = "this client sends no messages of the protocol; use AIOKafkaAdminClient, or aiokafka_lite.Admin"

DEFAULT_CLIENT_ID = ClientConfig(bootstrap_servers="localhost").client_id


class AIOKafkaClient:
    """aiokafka's class, without its requests. Raises ValueError for wrong settings, TypeError for unknown ones.

    ``known`` returns what the owner of this client knows about the cluster.
    """

    def __init__(
        self, *, known: Callable[[], ClusterMetadata] = ClusterMetadata, **settings: Unpack[ConnectionSettings]
    ) -> None:
        self._bootstrap_servers = settings.get("bootstrap_servers", "localhost")
        """As given. This name and the next one are aiokafka's, because instrumentations read them."""
        self._client_id = settings.get("client_id") or DEFAULT_CLIENT_ID
        self._settings = connection_settings(settings)
        self._known = known
        self._fetched: ClusterMetadata | None = None
        self._starting = asyncio.Lock()
        self._is_started = False
        self._admin = self._made()

    def _made(self) -> native.Admin:
        with naming(self._settings):
            return native.Admin(**self._settings)

    @property
    def cluster(self) -> ClusterMetadata:
        """The cluster as of ``bootstrap()`` or the last update; before, what the owner of this client knows."""
        return self._fetched or self._known()

    async def bootstrap(self) -> None:
        """Connect, and fetch the metadata. Raises KafkaConnectionError if no broker answers."""
        with connecting():
            await self._update()

    async def close(self) -> None:
        with translating():
            await self._admin.close()

    async def fetch_all_metadata(self) -> ClusterMetadata:
        """The brokers and all topics. Raises KafkaError if no broker answers within ``request_timeout_ms``."""
        async with self._starting:
            if not self._is_started:
                try:
                    with connecting():
                        await self._admin.start()
                except BaseException:
                    self._admin = self._made()  # so that another call is possible
                    raise
                self._is_started = True
        with translating():
            return await fetch(self._admin)

    async def _update(self) -> None:
        self._fetched = await self.fetch_all_metadata()

    async def force_metadata_update(self) -> bool:
        """Fetch the metadata. False if no broker answers."""
        with suppress(KafkaError):
            await self._update()
            return True
        return False

    async def set_topics(self, topics: Iterable[str]) -> bool:
        """Fetch the metadata, which has all topics. False if no broker answers."""
        return await self.force_metadata_update()

    async def add_topic(self, topic: str) -> bool:
        """Fetch the metadata, which has all topics. False if no broker answers."""
        return await self.force_metadata_update()

    def get_random_node(self) -> int | str | None:
        """The id of any known broker; None if there is none."""
        nodes = [each.nodeId for each in self.cluster.brokers()]
        return random.choice(nodes) if nodes else None

    send = missing(_NO_REQUESTS)
    ready = missing(_NO_REQUESTS)
    coordinator_lookup = missing(_NO_REQUESTS)

    def __repr__(self) -> str:
        return f"<AIOKafkaClient client_id={self._client_id}>"


class ClientOwner:
    """A producer, a consumer or an admin client, which has an ``AIOKafkaClient`` from its first use on."""

    _given: ConnectionSettings
    _used_client: AIOKafkaClient | None = None

    def _known_cluster(self) -> ClusterMetadata:
        """What the owner knows about the cluster without a request."""
        raise NotImplementedError

    @property
    def client(self) -> AIOKafkaClient:
        """For health checks and instrumentations."""
        if self._used_client is None:
            self._used_client = AIOKafkaClient(known=self._known_cluster, **self._given)
        return self._used_client

    _client = client  # aiokafka's name in consumers and admin clients

    async def _close_client(self) -> None:
        if self._used_client is not None:
            await self._used_client.close()
