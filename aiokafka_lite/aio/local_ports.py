"""The addresses on which servers of this process listen, each with its event loop.

A client gets no answer while its server's event loop is blocked, and never while that loop does not run at all. If the
server runs in another loop of the same process, the error can say so.
"""

from __future__ import annotations

import asyncio
from threading import get_ident
from weakref import WeakValueDictionary

from ..errors import IllegalStateError

_loops: WeakValueDictionary[tuple[str, int], asyncio.AbstractEventLoop] = WeakValueDictionary()
_threads: dict[tuple[str, int], int] = {}
"""The thread of each server's loop."""

LOOPBACK = "127.0.0.1"
ANY_ADDRESS = ("0.0.0.0", "::")


def opened(host: str, port: int) -> None:
    """Record that a server in the running event loop listens on this address."""
    _loops[host, port] = asyncio.get_running_loop()
    _threads[host, port] = get_ident()


def closed(host: str, port: int) -> None:
    """Record that no server of this process listens on this address any longer."""
    _loops.pop((host, port), None)
    _threads.pop((host, port), None)


def is_in_another_loop(host: str, port: int) -> bool:
    """Return whether a server of this process listens on this address, in another event loop than the running one."""
    loop = _loops.get((host, port))
    return loop is not None and loop is not asyncio.get_running_loop() and not loop.is_closed()


def check(host: str, port: int) -> None:
    """Raise IllegalStateError for the address of a server that ``stands_still``.

    Without this, each attempt to connect would time out, and the error would suspect the port or TLS.
    """
    if stands_still(host, port):
        raise IllegalStateError(
            f"the server on {host}:{port} belongs to another event loop, which cannot run in this thread now: use "
            "client and server in one event loop, or a server with a thread of its own, such as EmbeddedKafkaServer. "
            "In tests with pytest-asyncio, give fixture and test the same loop scope, or use the fixture "
            "embedded_kafka_server"
        )


def stands_still(host: str, port: int) -> bool:
    """Return whether a server of this thread listens on this address, in an event loop that does not run now.

    Two loops of one thread run one after the other. So the server does not answer before the running loop has ended.
    """
    for address in ((LOOPBACK if host == "localhost" else host, port), *((wildcard, port) for wildcard in ANY_ADDRESS)):
        loop = _loops.get(address)
        if loop is not None and _threads[address] == get_ident():
            return not loop.is_running() and not loop.is_closed()
    return False
