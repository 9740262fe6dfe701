"""The ports on which servers of this process listen, each with its event loop.

A client whose server is in another event loop of its process gets no answer while that loop is blocked. Its error can
say so.
"""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

_loops: WeakValueDictionary[int, asyncio.AbstractEventLoop] = WeakValueDictionary()


def opened(port: int) -> None:
    """Record that a server in the running event loop listens on this port."""
    _loops[port] = asyncio.get_running_loop()


def is_in_another_loop(port: int) -> bool:
    """Whether a server of this process has listened on this port last, in another event loop than the running one."""
    return _loops.get(port) not in (None, asyncio.get_running_loop())
