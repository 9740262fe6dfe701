"""The periodic work of a broker, such as retention: each action runs at the interval of a setting."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ..aio import forks
from .settings.configs import BrokerSettings

logger = logging.getLogger(__name__)


class PeriodicWork:
    """Owns the timers of one node. While ``is_running`` returns False, nothing is done."""

    def __init__(self, node_id: int, settings: BrokerSettings, is_running: Callable[[], bool]) -> None:
        self._node_id = node_id
        self._settings = settings
        self._is_running = is_running
        self._generation = forks.generation
        self._timers: dict[str, asyncio.TimerHandle] = {}  # by the setting that has the interval

    def repeat(self, setting: str, action: Callable[[], None]) -> None:
        """Call ``action`` at the interval of a setting (milliseconds), at most ten times a second."""

        def act() -> None:
            if self._generation != forks.generation:
                return  # in a forked process, the logs are the parent's
            if self._is_running():  # a frozen broker acts in the next interval
                try:
                    action()
                except OSError as error:  # from a log on disk; the next retention may make room
                    logger.error("node %d: the periodic work of %s failed: %s", self._node_id, setting, error)
            self.repeat(setting, action)

        interval = max(self._settings.seconds(setting), 0.1)
        self._timers[setting] = asyncio.get_running_loop().call_later(interval, act)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
