"""The log of connections that a broker closes: the user of a client sees only that the connection ended.

A client that is refused connects again at once, so a reason has one line in a time. The others are counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..arguments import plural

logger = logging.getLogger(__name__)

LINES = 20
"""The most lines of a broker in ``INTERVAL``."""
INTERVAL = 10.0
LONGEST_REASON = 300


class ClosingLog:
    """Logs a warning for each connection that a broker closes on its own. Owner: the node.

    ``clock`` returns seconds. A reason may quote a client: only its printable characters are logged. It must not have
    a secret.
    """

    def __init__(self, node_id: int, clock: Callable[[], float]) -> None:
        self._node_id = node_id
        self._clock = clock
        self._began = float("-inf")
        self._reasons: set[str] = set()
        self._unlogged = 0

    def __repr__(self) -> str:
        return f"<ClosingLog node={self._node_id} reasons={len(self._reasons)} unlogged={self._unlogged}>"

    def closed(self, peer: str, reason: str) -> None:
        """Log that the broker closes the connection of ``peer``."""
        now = self._clock()
        if now - self._began >= INTERVAL:
            self.flush()
            self._began = now
            self._reasons.clear()
        if reason in self._reasons or len(self._reasons) >= LINES:
            self._unlogged += 1
            return
        self._reasons.add(reason)
        logger.warning("node %d closed the connection of %s: %s", self._node_id, peer, _printable(reason))

    def flush(self) -> None:
        """Log the number of connections that had no line of their own."""
        if self._unlogged:
            what = plural(self._unlogged, "connection")
            logger.warning("node %d closed %s more, for these reasons or others", self._node_id, what)
            self._unlogged = 0


def _printable(reason: str) -> str:
    text = "".join(character if character.isprintable() else " " for character in reason[: LONGEST_REASON + 1])
    return text if len(reason) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}…"
