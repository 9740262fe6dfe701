"""How long to wait before the next try."""

from __future__ import annotations

import random as _random
from collections.abc import Callable

_ENOUGH = 64
"""Doublings after which any initial value is above any maximum."""


class Backoff:
    """Exponential backoff with jitter, in seconds.

    Each ``next()`` is twice the one before and never above ``maximum``. Of each, a random share of up to ``jitter`` is
    taken off, so that clients that failed together do not come back together. ``random`` gives numbers in [0, 1).
    Who counts the failures of many things by himself shares one and calls ``after``.
    """

    __slots__ = ("_failures", "_initial", "_jitter", "_maximum", "_random")

    def __init__(
        self, initial: float, maximum: float, jitter: float = 0.2, random: Callable[[], float] = _random.random
    ) -> None:
        self._initial = min(initial, maximum)
        self._maximum = maximum
        self._jitter = jitter
        self._random = random
        self._failures = 0

    def next(self) -> float:
        """The seconds to wait before the next try."""
        self._failures += 1
        return self.after(self._failures - 1)

    def after(self, failures: int) -> float:
        """The seconds to wait when there were so many failures in a row before this one; counts nothing."""
        return self._step(failures) * (1 - self._jitter * self._random())

    def reset(self) -> None:
        """Begin again at ``initial``: a try has succeeded."""
        self._failures = 0

    def _step(self, failures: int) -> float:
        return min(self._maximum, self._initial * 2.0 ** min(failures, _ENOUGH))

    def __repr__(self) -> str:
        return f"<Backoff next={self._step(self._failures):.3f}s maximum={self._maximum:.3f}s>"
