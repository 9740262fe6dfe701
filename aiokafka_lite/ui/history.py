"""The lag of groups over time, for the charts. One task looks while the page runs."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping

from ..admin import Admin, GroupLag
from ..errors import KafkaError

MOST_SAMPLES = 360
"""The most samples of a group: an hour, with one every ten seconds."""

MOST_GROUPS = 1_000
"""The most groups with a chart. A cluster with more shows their present lag only."""


class LagHistory:
    """Remembers the total lag of each group. ``run`` belongs to one task; the rest may be called in its loop."""

    def __init__(self, admin: Admin, *, every: float = 10.0) -> None:
        self._admin = admin
        self._every = every
        self._samples: dict[str, deque[tuple[float, int]]] = {}

    def __repr__(self) -> str:
        return f"<LagHistory groups={len(self._samples)}>"

    async def run(self) -> None:
        """Look at all groups again and again, until it is cancelled. An error only leaves a gap."""
        while True:
            try:
                groups = [group.group_id for group in await self._admin.groups.list() if group.type.value != "Share"]
                lags = await self._admin.groups.lag(groups[:MOST_GROUPS])
                self.add(lags.done, time.time())
            except KafkaError:
                pass  # the page shows the error of its own requests
            await asyncio.sleep(self._every)

    def add(self, lags: Mapping[str, GroupLag], now: float) -> None:
        """Add a sample of each group. Groups that do not exist any more are forgotten."""
        for gone in self._samples.keys() - lags.keys():
            del self._samples[gone]
        for group, lag in lags.items():
            self._samples.setdefault(group, deque(maxlen=MOST_SAMPLES)).append((round(now, 1), lag.total))

    def of(self, group: str) -> list[tuple[float, int]]:
        """Return the samples of a group: seconds since the epoch, and its total lag."""
        return list(self._samples.get(group, ()))
