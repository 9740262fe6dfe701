"""The addresses on which servers of this process listen, each with its event loop.

A client gets no answer while its server's event loop is blocked. If the server runs in another loop of the same
process, the error can say so.
"""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

_loops: WeakValueDictionary[tuple[str, int], asyncio.AbstractEventLoop] = WeakValueDictionary()


def opened(host: str, port: int) -> None:
    """Record that a server in the running event loop listens on this address."""
    _loops[host, port] = asyncio.get_running_loop()


def closed(host: str, port: int) -> None:
    """Record that no server of this process listens on this address any longer."""
    _loops.pop((host, port), None)


def is_in_another_loop(host: str, port: int) -> bool:
    """Whether a server of this process listens on this address, in another event loop than the running one."""
    loop = _loops.get((host, port))
    return loop is not None and loop is not asyncio.get_running_loop() and not loop.is_closed()
