"""Recognizes the port of a Kafka broker, which users confuse with the port of the schema registry.

A broker closes the connection when it gets an HTTP request. So does a registry that restarts. If no address has
answered, the client therefore asks each address once in Kafka's protocol, before it decides that no retry can help.
"""

from __future__ import annotations

import asyncio
import struct
from urllib.parse import urlsplit

import anyio

_TIMEOUT = 1.0
"""The time limit of the question, in seconds."""
_CORRELATION_ID = 0x6B61666B
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, _CORRELATION_ID, -1)
"""ApiVersions, version 0, without a client id. Brokers answer it before a login."""


async def is_kafka(url: str) -> bool:
    """Ask the host and port of the address whether a Kafka broker without TLS answers there."""
    parts = urlsplit(url)
    answer = b""
    with anyio.move_on_after(_TIMEOUT):
        try:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        except OSError:
            return False
        try:
            writer.write(_API_VERSIONS)
            answer = await reader.readexactly(8)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()
    return answer[4:] == struct.pack(">i", _CORRELATION_ID)
