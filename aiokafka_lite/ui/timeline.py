"""The requests to an embedded cluster, as the page shows them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ErrorCode

if TYPE_CHECKING:
    from ..embedded import EmbeddedCluster

CLIENT_ID = "aiokafka-lite-ui"
"""The client id of the page, whose own requests the history leaves out."""

MOST_REQUESTS = 300
"""The most requests in an answer: the last ones."""


def timeline(cluster: EmbeddedCluster) -> dict[str, Any]:
    """Return the last requests, the newest first, with their errors."""
    requests = []
    for exchange in list(cluster.history)[-MOST_REQUESTS:]:
        handled = exchange.handled_at
        requests.append(
            {
                "at": round(exchange.at, 3),
                "node": exchange.node_id,
                "connection": exchange.connection_id,
                "client": exchange.client_id,
                "request": type(exchange.request).__name__.removesuffix("Request"),
                "version": exchange.version,
                "bytes": exchange.size,
                "milliseconds": None if handled is None else round(1000 * (handled - exchange.at), 1),
                "errors": sorted({ErrorCode.of(code).name for code in _codes(exchange.response)}),
            }
        )
    return {"requests": requests[::-1]}


def _codes(message: Any, depth: int = 0) -> Iterator[int]:
    """Yield the error codes of a response and of its parts, which are lists of dataclasses."""
    if isinstance(message, list | tuple):
        for part in message[:200]:
            yield from _codes(part, depth)
    elif is_dataclass(message) and depth < 5:
        for field in fields(message):
            value = getattr(message, field.name)
            if field.name == "error_code":
                if value:
                    yield value
            elif isinstance(value, list | tuple) or is_dataclass(value):
                yield from _codes(value, depth + 1)
