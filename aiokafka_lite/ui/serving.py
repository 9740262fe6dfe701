"""Serves the page on the loopback interface, with a new token at each start."""

from __future__ import annotations

import asyncio
import secrets
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

import anyio

from ..errors import ConfigurationError
from ..extras import extra
from .application import Clients, application

HOST = "127.0.0.1"


@asynccontextmanager
async def serving(clients: Clients, port: int) -> AsyncIterator[str]:
    """Serve the page while the block runs; yields its address with the token. Port 0 is any free one.

    Raises ConfigurationError for a port in use, and without the extra ``ui``.
    """
    uvicorn = extra("uvicorn", "ui")
    with _listen(port) as listener:
        port = listener.getsockname()[1]
        token = secrets.token_urlsafe(24)
        closing = asyncio.Event()
        hosts = frozenset({f"{HOST}:{port}", f"localhost:{port}"})
        app = application(clients, token=token, hosts=hosts, closing=closing)
        # The signals belong to the command. A browser that does not read must not keep the server from ending, and
        # the server's log would have a traceback of that.
        config = uvicorn.Config(
            app, log_config=None, log_level="critical", access_log=False, lifespan="on", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        server.capture_signals = nullcontext
        served = asyncio.create_task(server.serve([listener]))
        try:
            yield f"http://{HOST}:{port}/?token={token}"
        finally:
            closing.set()
            server.should_exit = True
            with anyio.CancelScope(shield=True):
                await served


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    if sys.platform != "win32":  # there, this option would take a port that another program listens on
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(128)  # connections wait until the server has started
    except OSError as error:
        listener.close()
        raise ConfigurationError(f"cannot listen at {HOST}:{port}: {error.strerror}; choose another --port") from error
    return listener
