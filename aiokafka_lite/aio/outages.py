"""Outages: failures that are retried, counted by place, and logged once when they begin and once when they end.

An outage of ten minutes has thousands of failures, but only two lines in the log. The first failure is logged at
WARNING, or at the level that the caller names. Later failures of the same outage are logged at DEBUG, and the recovery
at INFO with the number of failed attempts. The counts stay for ``diagnose()``.

An outage that stops the work of the client has a ``problem``: a text for ``health()``. Health shows the problem from
the WARNING until the recovery, so log and health agree. An outage that began below WARNING gets its WARNING from
``cluster.standstill`` after some seconds, if it still lasts. So a place that fails for a moment in normal operation is
reported at INFO, with a problem.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..arguments import plural
from ..errors import CommitFailed, KafkaError
from .retry import is_refusal

if TYPE_CHECKING:
    from ..events import ClientEvent

MAX_PLACES = 100
"""Places that are remembered. The place that has been healthy for the longest time is dropped first."""

STALE = 60.0
"""Seconds without a further failure after which an outage is no problem any more. Longer than a request timeout."""

RETRIED_WITHIN = 5.0
"""Seconds since the last failure for which an outage certainly still lasts (``Outage.is_retried``)."""


class Ended(NamedTuple):
    """An outage that is over: the number of failed attempts, and its length in seconds."""

    failures: int
    seconds: float

    def __str__(self) -> str:
        return f"{plural(self.failures, 'failed attempt')} in {self.seconds:.1f} s"


@dataclass(slots=True)
class Outage:
    """The failures of one place. Times are the loop's; ``began`` is None while the place is healthy."""

    place: str
    error: str
    count: int
    first: float
    last: float
    began: float | None
    is_refusal: bool = False
    """Whether the latest failure was a refusal: of the login, a certificate, or a permission."""
    was_refused: bool = False
    """Whether the present outage has had a refusal."""
    count_before: int = 0
    """The value of ``count`` when the present outage began."""
    problem: str = ""
    """What the client cannot do while the outage lasts; empty if the client works nevertheless."""
    is_partial: bool = False
    """Whether the problem concerns a part of the work only, so that the client is ready nevertheless."""
    is_warned: bool = False
    """Whether the present outage has a WARNING in the log."""

    def is_retried(self, now: float) -> bool:
        """Return whether somebody still retries: the next failure is due, or not late by more than the pauses before
        it.

        A caller may have given up, or a program does not ask again. Then nobody waits, although nothing recovers.
        """
        failures = self.count - self.count_before
        if self.began is None or failures < 2:
            return False
        return now - self.last <= max(RETRIED_WITHIN, 2 * (self.last - self.began) / (failures - 1))


class Outages:
    """The outages of one client. The client owns it; all calls are made on its loop and cost one dictionary lookup.

    ``report`` and ``recovered`` also log. A caller that logs in its own way uses ``failed`` and ``over``. ``on_event``
    is called when an outage begins, and when it ends.
    """

    def __init__(self, on_event: Callable[[ClientEvent], None] | None = None) -> None:
        self.on_event = on_event
        """The client's function for events, if there is one."""
        self._by_place: dict[str, Outage] = {}  # the latest failure last
        self._ongoing: set[str] = set()
        self.on_refusal: Callable[[str, KafkaError], None] = lambda place, error: None
        """Called with the place and the error of each refusal (``is_refusal``) that is given to ``report``."""

    def __bool__(self) -> bool:
        """Return whether any place fails now. The hot path asks this before it calls ``recovered``."""
        return bool(self._ongoing)

    def report(
        self,
        logger: logging.Logger,
        place: str,
        error: BaseException,
        message: str,
        *arguments: object,
        level: int = logging.WARNING,
        problem: str = "",
        is_partial: bool = False,
    ) -> None:
        """Count a failure and log ``message % arguments``, at ``level`` if it begins an outage, otherwise at DEBUG.

        ``problem`` says what the client cannot do while the outage lasts, as in ``reading the committed offsets of
        group 'g' fails: ...``. ``health()`` shows it from the WARNING on. The client is not ready then, unless the
        problem ``is_partial``. Call ``recovered`` or ``forget`` for the place in any case, otherwise it stays.
        """
        begins = self.failed(place, error, problem=problem, is_partial=is_partial)
        self._log(logger, place, error, level if begins else None, message, arguments)

    def report_refusal(
        self, logger: logging.Logger, place: str, error: KafkaError, message: str, *arguments: object
    ) -> None:
        """Count a failure as a refusal, whatever the error is, and log it as ``report`` does."""
        begins = self.failed(place, error, refused=True)
        self._log(logger, place, error, logging.WARNING if begins else None, message, arguments)

    def _log(
        self,
        logger: logging.Logger,
        place: str,
        error: BaseException,
        level: int | None,
        message: str,
        arguments: tuple[object, ...],
    ) -> None:
        """Log a failure, at DEBUG if ``level`` is None because it begins no outage."""
        logger.log(logging.DEBUG if level is None else level, message, *arguments, stacklevel=3)
        if level is not None:
            self._by_place[place].is_warned = level >= logging.WARNING
        if isinstance(error, KafkaError) and is_refusal(error):
            self.on_refusal(place, error)

    def recovered(self, logger: logging.Logger, place: str, message: str, *arguments: object) -> bool:
        """Record a success. If it ends an outage, log ``message`` with the outage's figures, and return True.

        The log reads ``<message> after 3 failed attempts in 2.0 s``.
        """
        outage = self.over(place)
        if outage is None:
            return False
        logger.info(f"{message} after %s", *arguments, outage, stacklevel=2)  # noqa: G004 - the message is a template
        return True

    def failed(
        self, place: str, error: BaseException, *, refused: bool = False, problem: str = "", is_partial: bool = False
    ) -> bool:
        """Count a failure. Returns True if it begins an outage, or is the first refusal of one.

        ``report`` explains the arguments.
        """
        now = asyncio.get_running_loop().time()
        # Removed and added again, so that the latest failure is the last one.
        outage = self._by_place.pop(place, None)
        if outage is None:
            outage = Outage(place, "", 0, now, now, None)
            self._make_room()
        self._by_place[place] = outage
        begins = outage.began is None
        assert begins is (place not in self._ongoing), "a place is ongoing from its first failure to its recovery"
        if begins:
            outage.began, outage.count_before = now, outage.count
            outage.is_warned = outage.was_refused = False
            self._ongoing.add(place)
        outage.problem, outage.is_partial = problem, is_partial
        outage.count += 1
        outage.last = now
        outage.error = f"{type(error).__name__}: {error}"
        causes = error.refused.values() if isinstance(error, CommitFailed) else (error,)
        outage.is_refusal = refused or any(map(is_refusal, causes))
        # An operator may have to act only now: a broker that was down refuses the login.
        is_news = begins or (outage.is_refusal and not outage.was_refused)
        outage.was_refused = outage.was_refused or outage.is_refusal
        if begins and self.on_event is not None:
            from ..events import OutageBegan

            self.on_event(OutageBegan(place, error))
        return is_news

    def over(self, place: str) -> Ended | None:
        """Record a success. Returns the outage that it ended, or None if the place was healthy before."""
        return self._end(place, recovered=True) if place in self._ongoing else None

    def forget(self, place: str) -> None:
        """Drop a place that no longer exists. Its outage ends without a recovery in the log."""
        if place in self._ongoing:
            self._end(place, recovered=False)

    def close(self) -> None:
        """Tell that the ongoing outages are over, because the client is closed. They stay in ``all`` as they are."""
        ongoing = [place for place in self._by_place if place in self._ongoing]
        for place in ongoing:
            self._tell_end(place, self._figures(place), recovered=False)
        self.on_event = None

    def _end(self, place: str, *, recovered: bool) -> Ended:
        ended = self._figures(place)
        self._ongoing.remove(place)
        self._by_place[place].began = None
        self._tell_end(place, ended, recovered=recovered)
        return ended

    def _figures(self, place: str) -> Ended:
        outage = self._by_place[place]
        assert outage.began is not None
        assert outage.count > outage.count_before, "an outage has at least one failure"
        return Ended(outage.count - outage.count_before, asyncio.get_running_loop().time() - outage.began)

    def _tell_end(self, place: str, ended: Ended, *, recovered: bool) -> None:
        if self.on_event is not None:
            from ..events import OutageEnded

            self.on_event(OutageEnded(place, ended.failures, ended.seconds, recovered))

    def all(self) -> list[Outage]:
        """Return all places that ever failed, the most recent failure first."""
        return list(reversed(self._by_place.values()))

    def are_recent(self) -> bool:
        """Return whether a place fails now, and did so within ``STALE`` seconds."""
        oldest = asyncio.get_running_loop().time() - STALE
        return any(self._by_place[place].last >= oldest for place in self._ongoing)

    def is_ongoing(self, place: str) -> bool:
        """Return whether this place fails now."""
        return place in self._ongoing

    def problems(self) -> list[Outage]:
        """Return the ongoing outages that have a problem, in the order of their last failures.

        Without a failure for ``STALE`` seconds, nobody retries any more, so the client does not wait for it.
        """
        oldest = asyncio.get_running_loop().time() - STALE
        return [
            outage
            for outage in self._by_place.values()
            if outage.problem and outage.place in self._ongoing and outage.last >= oldest
        ]

    def is_warned(self, place: str) -> bool:
        """Return whether this place fails now, and the log has a WARNING about it."""
        return place in self._ongoing and self._by_place[place].is_warned

    def _make_room(self) -> None:
        if len(self._by_place) < MAX_PLACES:
            return
        place = next((place for place in self._by_place if place not in self._ongoing), next(iter(self._by_place)))
        self.forget(place)
        del self._by_place[place]
