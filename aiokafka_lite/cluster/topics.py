"""Which topics metadata is asked for: those that somebody uses, and for how long yet.

A producer that writes to ever new topics must not ask for all it has ever seen (KIP-526), so a topic that was used only
in passing is dropped after a while. A topic that was added by name stays until it is removed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from ..errors import ErrorCode, InvalidTopic

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_SHOWN = 60


def check_topic_name(name: str) -> None:
    """Raise InvalidTopic unless the name keeps Kafka's rules, so that no broker has to be asked about it."""
    if not isinstance(name, str):
        raise InvalidTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name!r} is not text but {type(name).__name__}")
    if _NAME.fullmatch(name) and name not in (".", ".."):
        return
    shown = repr(name if len(name) <= _SHOWN else name[:_SHOWN] + "…")
    if not name or name in (".", ".."):
        reason = 'it must not be empty, "." or ".."'
    elif len(name) > 249:
        reason = f"it has {len(name)} characters, and 249 are allowed"
    else:
        reason = "only a-z, A-Z, 0-9, '.', '_' and '-' are allowed"
    raise InvalidTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {shown}: {reason}")


class TrackedTopics:
    """The topics in use. Added ones stay; used ones stay for ``idle`` seconds after their last use."""

    def __init__(self, idle: float) -> None:
        self._idle = idle
        self._last_use: dict[str, float] = {}

    @property
    def names(self) -> AbstractSet[str]:
        """A live, read-only look at the names; testing membership is cheap."""
        return self._last_use.keys()

    def __contains__(self, name: object) -> bool:
        return name in self._last_use

    def __len__(self) -> int:
        return len(self._last_use)

    def add(self, names: Iterable[str]) -> None:
        """Keep the topics until they are removed."""
        for name in names:
            self._last_use[name] = math.inf

    def remove(self, names: Iterable[str]) -> None:
        """Forget the topics, added or used; unknown ones are not minded."""
        for name in names:
            self._last_use.pop(name, None)

    def use(self, name: str, now: float) -> None:
        """Note that the topic was used at ``now``."""
        if self._last_use.get(name, -math.inf) < now:
            self._last_use[name] = now

    def expire(self, now: float) -> None:
        """Drop what was not used for the idle time."""
        limit = now - self._idle
        for name in [name for name, last in self._last_use.items() if last < limit]:
            del self._last_use[name]

    def forget_use(self, name: str) -> None:
        """Drop the topic unless it was added: what it was used for did not come about."""
        if self._last_use.get(name) != math.inf:
            self._last_use.pop(name, None)
