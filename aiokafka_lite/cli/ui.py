"""``aiokafka-lite ui``: a page that shows a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from ..admin import Admin
from ..consumer import Consumer
from ..embedded import EmbeddedCluster
from ..net.connector import Connector, TcpConnector
from ..producer import Producer
from ..settings.client import ClientConfig
from ..ui.application import Clients
from ..ui.serving import serving
from ..ui.timeline import CLIENT_ID
from .terminal.connection import ConnectionOptions
from .terminal.registry import has_registry, new_registry
from .terminal.run import log_warnings, say
from .terminal.start import started

P = TypeVar("P", bound=asyncio.BaseProtocol)


async def ui(connection: ConnectionOptions, port: int, allow_writes: bool, registry: str | None) -> int:
    """Serve the page until a signal."""
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(connection.admin())
        producer = None
        if allow_writes:
            producer = await stack.enter_async_context(started(connection.producer({}, {})))
        schemas = None
        if has_registry(connection, registry):
            schemas = await stack.enter_async_context(new_registry(connection, registry))
        clients = Clients(
            admin=admin,
            new_consumer=lambda: connection.consumer(None, isolation_level="read_uncommitted"),
            producer=producer,
            registry=schemas,
        )
        address = await stack.enter_async_context(serving(clients, port))
        log_warnings()
        say(f"open {address} ({'changes are allowed' if allow_writes else 'read-only'}; Ctrl-C stops)")
        await asyncio.Event().wait()
    return 0


@asynccontextmanager
async def serving_embedded(cluster: EmbeddedCluster) -> AsyncIterator[str]:
    """Serve the page of an embedded cluster on a free port, with changes. Yields its address."""
    settings = {**_settings_here(cluster), "client_id": CLIENT_ID}
    cluster.history.leave_out(CLIENT_ID)
    async with Admin(**settings) as admin, Producer(**settings) as producer:
        clients = Clients(
            admin=admin,
            new_consumer=lambda: Consumer(**settings, isolation_level="read_uncommitted"),
            producer=producer,
            embedded=cluster,
        )
        async with serving(clients, 0) as address:
            yield address


class _OwnAddresses:
    """Connects to the brokers of this process at their own addresses. Those that they advertise may be reachable only
    from other machines, as behind a container's port mapping."""

    def __init__(self, cluster: EmbeddedCluster, inner: Connector) -> None:
        self._cluster = cluster
        self._inner = inner

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], P]) -> tuple[asyncio.BaseTransport, P]:
        """Connect to the broker that has or advertises this address."""
        for node_id, node in self._cluster.nodes.items():
            own = {name: listener.port for name, listener in node.listeners.items()}
            advertised_host, advertised_ports = self._cluster.config.advertised(node_id, own)
            for name, listener in node.listeners.items():
                if (host, port) == (advertised_host, advertised_ports[name]):
                    return await self._inner.connect(listener.host, listener.port, protocol_factory)
        return await self._inner.connect(host, port, protocol_factory)


def _settings_here(cluster: EmbeddedCluster) -> dict[str, Any]:
    """Return client settings with which each broker is reached at its own address."""
    settings = cluster.client_settings()
    inner = settings.pop("connector", None) or TcpConnector(ssl_context=ClientConfig(**settings).ssl_context)
    # The connector encrypts, so the protocol is the one without TLS.
    protocol = "SASL_PLAINTEXT" if settings["security_protocol"].startswith("SASL") else "PLAINTEXT"
    settings = {name: value for name, value in settings.items() if not name.startswith("ssl_")}
    return {**settings, "security_protocol": protocol, "connector": _OwnAddresses(cluster, inner)}
