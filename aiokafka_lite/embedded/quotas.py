"""Byte rates and request shares that clients may use up, and for how long they must wait then (KIP-124, 219)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection import RequestContext


class Quotas:
    """What clients have used of a node. Owner: the node."""

    def record_produce(self, context: RequestContext, size: int) -> int:
        """Note bytes produced; gives the milliseconds that the client must wait."""
        return 0

    def record_fetch(self, context: RequestContext, size: int) -> int:
        """Note bytes fetched; gives the milliseconds that the client must wait."""
        return 0
