"""How a server of asyncio stops so that no accepted connection is left without an owner.

asyncio makes the transport of an accepted connection in a task. If the server is closed before the first step of this
task, the task fails, and the connection stays open: its client waits for an answer of nobody, until the garbage is
collected.
"""

from __future__ import annotations

import asyncio


def stop_accepting(server: asyncio.Server) -> None:
    """Accept no more connections. ``server.close()`` may follow in the next turn of the event loop, not earlier."""
    loop = asyncio.get_running_loop()
    for port in server.sockets:
        try:
            loop.remove_reader(port.fileno())
        except NotImplementedError:  # the proactor loop of Windows accepts without a task
            return


async def close(server: asyncio.Server) -> None:
    """Stop accepting, and close the server as soon as all accepted connections are known to their protocols."""
    stop_accepting(server)
    try:
        await asyncio.sleep(0)  # now the connections have transports
        await asyncio.sleep(0)  # and ``connection_made`` was called
    finally:
        server.close()
