"""One module for each family of APIs; each opens with what the APIs do and what changed by version."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ...protocol.messages import REQUESTS
from ...protocol.schema import Request, Response
from . import (
    api_versions,
    configs,
    coordinator,
    fetch,
    group_admin,
    group_membership,
    group_offsets,
    leadership,
    logs,
    metadata,
    offsets,
    produce,
    producer_id,
    quotas,
    topic_partitions,
    topics,
)

FAMILIES = (
    api_versions,
    configs,
    coordinator,
    fetch,
    group_admin,
    group_membership,
    group_offsets,
    leadership,
    logs,
    metadata,
    offsets,
    produce,
    producer_id,
    quotas,
    topic_partitions,
    topics,
)

Answer = Response | None | Awaitable[Response | None]
Handler = Callable[[Any, Any], Answer]
"""Takes the RequestContext and the request. None leaves the request unanswered; an awaitable parks it."""

HANDLERS: dict[int, Handler] = {
    request.api_key: handler for family in FAMILIES for request, handler in family.HANDLERS.items()
}
"""API key to handler."""

REQUESTS_HANDLED: list[type[Request[Any]]] = [REQUESTS[key] for key in sorted(HANDLERS)]
