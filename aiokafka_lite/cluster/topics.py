"""The topics whose metadata the client keeps: valid names, how long a topic is tracked, and missing topics."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from ..arguments import must_be
from ..errors import ErrorCode, InvalidTopic
from .metadata import ClusterView

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_SHOWN = 60

MISSING_AFTER = 2.0
"""Seconds after which a missing topic is logged. A topic that was just created usually appears before that."""


def check_topic_name(name: str) -> None:
    """Raise InvalidTopic unless Kafka allows the name. No broker is asked."""
    if (problem := problem_of_topic_name(name)) is not None:
        raise InvalidTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, reason=problem)


def problem_of_topic_name(name: object) -> str | None:
    """Return the rule of Kafka that the name breaks, as a sentence for an error; None for a valid name."""
    if not isinstance(name, str):
        return must_be("topic", "a string", name)
    if _NAME.fullmatch(name) and name not in (".", ".."):
        return None
    shown = repr(name if len(name) <= _SHOWN else name[:_SHOWN] + "…")
    if not name or name in (".", ".."):
        rule = 'not be empty, "." or ".."'
    elif len(name) > 249:
        rule = f"have at most 249 characters, got {len(name)}"
    else:
        rule = "consist of a-z, A-Z, 0-9, '.', '_' and '-'"
    return f"topic name must {rule}: {shown}"


class TrackedTopics:
    """The topics in use. Added topics stay until they are removed, used topics for ``idle`` seconds after the last use.

    Without this limit, a producer that writes to more and more topics would request metadata of all (KIP-526).
    """

    def __init__(self, idle: float) -> None:
        self._idle = idle
        self._last_use: dict[str, float] = {}  # the loop's time; infinite for an added topic

    @property
    def names(self) -> AbstractSet[str]:
        """A live, read-only view of the names. A membership test is cheap."""
        return self._last_use.keys()

    def __contains__(self, name: object) -> bool:
        return name in self._last_use

    def __len__(self) -> int:
        return len(self._last_use)

    def is_added(self, name: str) -> bool:
        """Return whether the topic stays until it is removed."""
        return self._last_use.get(name) == math.inf

    def add(self, names: Iterable[str]) -> None:
        """Keep the topics until they are removed."""
        for name in names:
            self._last_use[name] = math.inf

    def remove(self, names: Iterable[str]) -> None:
        """Drop the topics, both added and used ones. Unknown names are ignored."""
        for name in names:
            self._last_use.pop(name, None)

    def use(self, name: str, now: float) -> None:
        """Record that the topic was used at ``now``."""
        if self._last_use.get(name, -math.inf) < now:
            self._last_use[name] = now

    def expire(self, now: float) -> None:
        """Drop topics that were not used for ``idle`` seconds."""
        limit = now - self._idle
        for name in [name for name, last in self._last_use.items() if last < limit]:
            del self._last_use[name]

    def forget_use(self, name: str) -> None:
        """Drop a topic after the call that used it has failed. A topic from ``add`` is kept."""
        if self._last_use.get(name) != math.inf:
            self._last_use.pop(name, None)


class MissingTopics:
    """Logs tracked topics that do not exist, once each, so that a misspelt name does not fail silently."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._since: dict[str, float] = {}  # when a topic was first missing; infinite after the log line

    def update(self, view: ClusterView, tracked: TrackedTopics, now: float) -> None:
        """Log topics that are missing for MISSING_AFTER seconds, and logged topics that exist now."""
        missing = {
            name
            for name in view.unsettled(tracked.names)
            if view.topics[name].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        for name in self._since.keys() - missing:
            if self._since.pop(name) == math.inf and name in tracked:
                self._logger.info("topic %r exists now", name)
        for name in missing:
            if now >= self._since.setdefault(name, now) + MISSING_AFTER and self._since[name] < math.inf:
                self._since[name] = math.inf
                self._logger.warning("topic %r does not exist; check its name. The client waits for it", name)
