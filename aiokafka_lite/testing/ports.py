"""Free TCP ports for the servers of tests."""

from __future__ import annotations

import contextlib
import random
import socket

_ports = random.Random().sample(range(15_000, 32_000), 17_000)
"""The ports that ``free_port`` returns, in this order."""


def free_port(host: str = "127.0.0.1") -> int:
    """Return a TCP port on which nothing listens now, and which this function has not returned before in this process.

    The port is outside the range of ephemeral ports. The system uses that range for outgoing connections. Another
    process could get the port. A client that connects to the port could also get it as its own port, and connect to
    itself.
    """
    while True:
        port = _ports.pop()
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind((host, port))
            return port
