"""``AIOKafkaClient``: the metadata of the cluster, for health checks, and the settings that instrumentations read.

The first call opens a connection of its own. There is no method that sends requests of the protocol.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import NoReturn, Unpack

import anyio

from ... import admin as native
from ...settings.client import ClientConfig
from .cluster import ClusterMetadata, fetch
from .errors import IllegalStateError, KafkaError, connecting, missing, translating
from .protocol import MetadataRequest, MetadataResponse
from .settings import ConnectionSettings, connection_settings, listing_settings, naming
from .structs import BrokerMetadata

_NO_REQUESTS = "this client sends no messages of the protocol; use AIOKafkaAdminClient, or aiokafka_lite.Admin"

TIME_TO_CREATE = 1.0
"""Seconds that an update of the metadata waits for the broker to create a topic."""

DEFAULT_CLIENT_ID = ClientConfig(bootstrap_servers="localhost").client_id


class AIOKafkaClient:
    """aiokafka's class, without its requests.

    Raises ValueError for wrong settings, TypeError for unknown ones and for times that are not numbers.

    ``metadata`` returns the cluster that the owner of this client knows, ``is_closed`` whether the owner is closed.
    ``use`` makes the owner use a topic, so that the broker may create it.
    """

    @listing_settings
    def __init__(
        self,
        *,
        metadata: Callable[[], ClusterMetadata] = ClusterMetadata,
        is_closed: bool = False,
        use: Callable[[str], Awaitable[object]] | None = None,
        **settings: Unpack[ConnectionSettings],
    ) -> None:
        self._bootstrap_servers = settings.get("bootstrap_servers", "localhost")
        """The servers as the user gave them. Instrumentations read ``_bootstrap_servers`` and ``_client_id``."""
        self._client_id = settings.get("client_id") or DEFAULT_CLIENT_ID
        self._given = settings
        self._settings = connection_settings(settings)
        self._metadata = metadata
        self._use = use
        self._topics: set[str] = set()
        """The topics of ``set_topics`` and ``add_topic``."""
        self._fetched: ClusterMetadata | None = None
        self._starting = asyncio.Lock()
        self._is_started = False
        self._is_closed = is_closed
        self._updates: set[asyncio.Future[bool]] = set()  # the event loop itself keeps no reference to them
        self._admin = self._create()

    def _create(self) -> native.Admin:
        with naming(self._given):
            return native.Admin(**self._settings)

    @property
    def cluster(self) -> ClusterMetadata:
        """The cluster as of ``bootstrap()`` or the last update. Before that, the cluster that the owner knows."""
        return self._fetched or self._metadata()

    async def bootstrap(self) -> None:
        """Connect, and fetch the metadata. Raises KafkaConnectionError if no broker answers."""
        with connecting():
            await self._update()

    async def close(self) -> None:
        """Close the connections. A call that waits for metadata gets an error."""
        self._is_closed = True
        with translating():
            await self._admin.close()

    async def fetch_all_metadata(self) -> ClusterMetadata:
        """Fetch the metadata of all topics.

        Raises KafkaError if no broker answers within ``request_timeout_ms``, IllegalStateError after ``close()``.
        """
        await self._start()
        with translating():
            return await fetch(self._admin)

    async def _start(self) -> None:
        async with self._starting:
            if self._is_closed:
                raise IllegalStateError("the client was closed; create a new one")
            if not self._is_started:
                try:
                    with connecting():
                        await self._admin.start()
                except BaseException:
                    if not self._is_closed:
                        self._admin = self._create()  # so that another call is possible
                    raise
                self._is_started = True

    async def _update(self) -> None:
        self._fetched = await self.fetch_all_metadata()

    def force_metadata_update(self) -> asyncio.Future[bool]:
        """Begin to fetch the metadata. The future is True, or False if no broker answers."""
        update = asyncio.ensure_future(self._try_update())
        self._updates.add(update)
        update.add_done_callback(self._updates.discard)
        return update

    async def _try_update(self) -> bool:
        with suppress(KafkaError):
            if self._use is not None:
                await asyncio.gather(*(self._wait_for_topic(self._use(topic)) for topic in self._topics))
            await self._update()
            return True
        return False

    async def _wait_for_topic(self, use: Awaitable[object]) -> None:
        with suppress(KafkaError), anyio.move_on_after(TIME_TO_CREATE):
            await use

    def set_topics(self, topics: Iterable[str]) -> asyncio.Future[bool]:
        """Update the metadata, which has all topics.

        The client of a producer also makes the broker create missing ``topics``, if the broker allows it.
        """
        self._topics = set(topics)
        return self.force_metadata_update()

    def add_topic(self, topic: str) -> asyncio.Future[bool]:
        """Add one topic to those of ``set_topics``."""
        self._topics.add(topic)
        return self.force_metadata_update()

    def get_random_node(self) -> int | str | None:
        """Return the id of any known broker; None if there is none."""
        nodes = [broker.nodeId for broker in self.cluster.brokers()]
        return random.choice(nodes) if nodes else None

    def send(self, node_id: int | str, request: object) -> Awaitable[MetadataResponse]:
        """Ask for the id and the brokers of the cluster. Raises NotImplementedError for any other request."""
        if not isinstance(request, MetadataRequest):
            raise NotImplementedError(_NO_REQUESTS)
        return self._described()

    async def _described(self) -> MetadataResponse:
        await self._start()
        with translating():
            cluster = await self._admin.cluster.describe()
        brokers = [BrokerMetadata(*node) for node in cluster.brokers]
        return MetadataResponse(
            brokers, cluster.cluster_id, None if cluster.controller is None else cluster.controller.node_id
        )

    async def _wait_on_metadata(self, topic: str) -> None:
        """Wait until the owner knows the topic. It has aiokafka's name, because instrumentations call it."""
        if self._use is not None:
            await self._use(topic)

    ready: Callable[..., NoReturn] = missing(_NO_REQUESTS)
    coordinator_lookup: Callable[..., NoReturn] = missing(_NO_REQUESTS)

    def __repr__(self) -> str:
        return f"<AIOKafkaClient client_id={self._client_id}>"


class ClientOwner:
    """The base of producers, consumers and admin clients. The first use of ``client`` creates it."""

    _given: ConnectionSettings
    _used_client: AIOKafkaClient | None = None
    _client_is_closed = False

    def _known_cluster(self) -> ClusterMetadata:
        """Return the cluster that the owner knows without a request."""
        raise NotImplementedError

    def _use_of_topics(self) -> Callable[[str], Awaitable[object]] | None:
        """Return the call that uses a topic, if the owner's use creates topics."""
        return None

    @property
    def client(self) -> AIOKafkaClient:
        """The client for health checks and instrumentations. Created by the first use."""
        if self._used_client is None:
            self._used_client = AIOKafkaClient(
                metadata=self._known_cluster,
                is_closed=self._client_is_closed,
                use=self._use_of_topics(),
                **self._given,
            )
        return self._used_client

    _client = client  # aiokafka's name in consumers and admin clients

    async def _close_client(self) -> None:
        self._client_is_closed = True
        if self._used_client is not None:
            await self._used_client.close()
