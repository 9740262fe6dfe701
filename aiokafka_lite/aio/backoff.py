"""How long to wait before the next try."""

from __future__ import annotations

import random as _random
from collections.abc import Callable


class Backoff:
    """Exponential backoff with jitter, in seconds.

    Each ``next()`` is twice the one before and never above ``maximum``. Of each, a random share of up to ``jitter`` is
    taken off, so that clients that failed together do not come back together. ``random`` gives numbers in [0, 1).
    """

    __slots__ = ("_initial", "_jitter", "_maximum", "_random", "_step")

    def __init__(
        self, initial: float, maximum: float, jitter: float = 0.2, random: Callable[[], float] = _random.random
    ) -> None:
        self._initial = min(initial, maximum)
        self._maximum = maximum
        self._jitter = jitter
        self._random = random
        self._step = self._initial

    def next(self) -> float:
        """The seconds to wait before the next try."""
        step = self._step
        self._step = min(step * 2, self._maximum)
        return step * (1 - self._jitter * self._random())

    def reset(self) -> None:
        """Begin again at ``initial``: a try has succeeded."""
        self._step = self._initial

    def __repr__(self) -> str:
        return f"<Backoff next={self._step:.3f}s maximum={self._maximum:.3f}s>"
