"""Standing still is never silent: whatever a client waits for, log, ``health()`` and ``diagnose()`` name it.

A client waits in two ways, and this module watches both.

- Requests fail and are retried. The code that retries reports an outage with a ``problem`` (``aio.outages``). An outage
  that was reported below WARNING gets its WARNING here when it has lasted for ``FAILS_FOR`` seconds.
- No request fails, and yet nothing happens: a partition has no leader, a pattern matches no topic. The component has a
  table of checks, and passes it to ``watch``. A check returns a ``Wait`` for each thing that the client waits for at
  the moment. A wait that is there for ``after`` seconds without a break gets its WARNING.

Each standstill is two lines: the WARNING, and an INFO when it is over. ``health()`` has its text in the meantime, and
``diagnose()`` from its first sight on.

To add a way of waiting: report an outage with a ``problem`` if requests fail, else add a check to the table of the
component: ``consumer/waits.py``, ``producer/waits.py`` or ``share/waits.py``.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ..aio.outages import Outages

logger = logging.getLogger(__name__)

PERIOD = 2.0
"""Seconds between two looks."""

TOLERANCE = 0.5
"""Seconds that a look may be earlier than ``PERIOD`` after the last one, because the calls are not exact."""

AFTER = 20.0
"""Seconds after which a wait is a standstill, if normal operation may take long as well, as a rebalance may."""

SOON = 6.0
"""The same for a state that normal operation passes within seconds."""

FAILS_FOR = 10.0
"""Seconds after which an outage with a problem gets its WARNING, if it is still retried."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Something that the client waits for now. Waits with the same ``place`` at two looks are the same wait."""

    place: str
    text: str
    """What the client waits for, and what a user can do about it."""
    is_partial: bool = False
    """Whether the client does the rest of its work, so that it is ready nevertheless."""
    is_logged: bool = False
    """Whether another module has logged it: no line is written for it."""
    after: float = AFTER
    """Seconds after which it is a standstill: at most ``AFTER``, so that it is named within 30 seconds."""
    progress: int = 0
    """A number that changes if the wait is not the same as at the last look, because something has moved."""
    level: int = logging.WARNING


@dataclass(slots=True)
class Standing:
    """A wait that was there at the last look. ``since`` is the loop's time of the first look at it."""

    wait: Wait
    since: float
    is_named: bool = False
    """Whether it has lasted for ``after`` seconds, so that log and health name it."""
    is_written: bool = False
    """Whether its line is in the log."""


ROOT = "metadata"
"""The place of the outage of the whole cluster. While it lasts, its line is the only one: everything else follows from
it."""

Check = Callable[[], Iterable[Wait | None]]
"""Returns the present waits, and None where other tasks may run, because the check takes some milliseconds."""


class Standstill:
    """The standstills of one client. Owner: the ``Client``, whose ``LoopDelay`` calls the function of ``start``.

    The checks run in callbacks of the event loop, so they must be quick, and must not wait.
    """

    def __init__(self, outages: Outages) -> None:
        self._outages = outages
        self._name: Callable[[], str] = lambda: "the client"
        self._checks: tuple[Check, ...] = ()
        self._standing: dict[str, Standing] = {}
        self._has_failed = False  # whether a check has raised
        self._reachable_since = -math.inf  # the loop's time of the last look at which no broker answered
        self._next_look = 0.0  # the loop's time
        self._is_looking = False
        self._is_stopped = False

    def watch(self, name: Callable[[], str], checks: Iterable[Check]) -> None:
        """Use these checks from now on. ``name`` returns the name of the component for the log."""
        self._name, self._checks = name, tuple(checks)

    def start(self) -> Callable[[float], None]:
        """Return a function that looks every ``PERIOD`` seconds, if it is called more often with any number."""
        self._next_look = asyncio.get_running_loop().time() + PERIOD

        def look(delay: float) -> None:
            now = asyncio.get_running_loop().time()
            if now >= self._next_look and not self._is_looking:
                self._next_look = now + PERIOD - TOLERANCE
                self._is_looking = True
                self._look([], self._run_checks())

        return look

    def stop(self) -> None:
        """Look no more."""
        self._is_stopped = True

    def _look(self, present: list[Wait], waits: Iterator[Wait | None]) -> None:
        """Collect the waits up to the next None, and continue in the next turn of the event loop."""
        if self._is_stopped:
            return
        for wait in waits:
            if wait is None:
                asyncio.get_running_loop().call_soon(self._look, present, waits)
                return
            present.append(wait)
        self._is_looking = False
        self._compare(present)

    def _run_checks(self) -> Iterator[Wait | None]:
        """Run the checks, each in a turn of its own. One that fails must not end the client that it watches."""
        for check in self._checks:
            try:
                yield from check()
            except Exception:  # it is logged, and the client works without it
                if not self._has_failed:
                    logger.exception("%s: what it waits for is not known, because of an unexpected error", self._name())
                self._has_failed = True
            yield None

    def _compare(self, present: Iterable[Wait]) -> None:
        """Compare the present waits with those of the last look."""
        now = asyncio.get_running_loop().time()
        if self._outages.is_ongoing(ROOT):
            self._reachable_since = now
        waits = {wait.place: wait for wait in present}
        for place in [place for place in self._standing if place not in waits]:
            self._end(self._standing.pop(place), now)
        for place, wait in waits.items():
            standing = self._standing.get(place)
            if standing is not None and standing.wait.progress != wait.progress:
                self._end(standing, now)
                standing = None
            if standing is None:
                standing = self._standing[place] = Standing(wait, now)
            standing.wait = wait
            if not standing.is_named and self._is_late(standing.since, wait.after, now):
                standing.is_named = True
            # Another module may log the reason at first, and recover before the wait is over.
            if standing.is_named and not standing.is_written and not wait.is_logged:
                standing.is_written = True
                logger.log(wait.level, "%s stands still: %s", self._name(), wait.text)
        self._warn_of_outages(now)

    def _is_late(self, since: float, after: float, now: float) -> bool:
        return now - max(since, self._reachable_since) >= after

    def _end(self, standing: Standing, now: float) -> None:
        if standing.is_written:
            logger.info("%s goes on after %.0f s: %s", self._name(), now - standing.since, standing.wait.text)

    def _warn_of_outages(self, now: float) -> None:
        for outage in self._outages.problems():
            assert outage.began is not None
            is_late = outage.is_retried(now) and self._is_late(outage.began, FAILS_FOR, now)
            if not outage.is_warned and is_late:
                outage.is_warned = True
                logger.warning("%s stands still: %s", self._name(), outage.problem)

    # For ``health()``, ``diagnose()`` and texts of errors.

    def describe(self) -> str:
        """Describe what the client waits for now, for the text of a timeout; empty if it waits for nothing."""
        outages = [outage.problem for outage in self._outages.problems()]
        return "; ".join(dict.fromkeys([*outages, *(wait.text for wait in self._run_checks() if wait is not None)]))

    def waits(self) -> list[tuple[str, float]]:
        """Return the texts of all problems, and of the last look's waits, with the loop's time of their first sight."""
        outages = [(outage.problem, outage.began or outage.last) for outage in self._outages.problems()]
        return [*outages, *((standing.wait.text, standing.since) for standing in self._standing.values())]

    def problems(self, *, is_partial: bool) -> tuple[str, ...]:
        """Return the texts of what has stood still for long: with ``is_partial`` a part of the client, else the
        client."""
        # ``health_of`` shows the refusals.
        outages = [
            outage
            for outage in self._outages.problems()
            if outage.is_warned and outage.is_partial is is_partial and not outage.is_refusal
        ]
        waits = [
            standing.wait
            for standing in self._standing.values()
            if standing.is_named and standing.wait.is_partial is is_partial
        ]
        return tuple(dict.fromkeys([*(outage.problem for outage in outages), *(wait.text for wait in waits)]))
