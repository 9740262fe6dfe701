"""``aiokafka-lite ui``: a page that shows a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from ..admin import Admin
from ..consumer import Consumer
from ..embedded import EmbeddedCluster
from ..producer import Producer
from ..ui.application import Clients
from ..ui.serving import serving
from ..ui.timeline import CLIENT_ID
from .terminal.connection import ConnectionOptions
from .terminal.registry import has_registry, new_registry
from .terminal.run import log_warnings, say
from .terminal.start import started


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
    settings = {**cluster.client_settings(), "client_id": CLIENT_ID}
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
