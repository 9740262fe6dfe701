"""``CircuitBreaker``: its settings, and the ``Gate`` of ``Workers`` that it closes: whether a further record may begin.

After ``failures`` failures within ``window`` seconds, what the handler calls is probably away. Then no further record
begins, and the group reads nothing. After a pause, one record, or one list, is the probe. If it succeeds, all continue.
If it fails, the pause begins again and is twice as long.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from enum import Enum

from ..aio import forks
from ..aio.retry import Backoff
from ..arguments import check_seconds, in_seconds, must_be, plural, whole
from ..consumer.group.group_pause import GroupPause, PauseCause
from ..errors import ConfigurationError
from ..state_machine import Transitions, next_state
from .batch_failure import BatchFailure
from .rules import checked_errors, is_permanent

logger = logging.getLogger(__name__)


class CircuitBreaker:
    """Settings of ``Workers``: pause the group after ``failures`` failures within ``window`` seconds, and probe.

    A failure is an attempt that raised one of ``errors``, or took too long. Without ``errors``, each error counts that
    another attempt may cure, as for ``retry``. While the breaker is open, no further record begins, and nothing is
    fetched; the member stays in the group. Records in progress end as usual, and the rules decide about those that
    fail. After ``pause`` seconds, one record is processed as a probe. If it succeeds, the breaker closes. If it fails
    with a counted error, the pause is doubled, up to ``max_pause`` seconds, less a random part of up to 20%; the
    failure of a probe is no attempt for the rules. Another error of a probe is left to the rules, and the next record
    is the next probe. By default, ``max_pause`` is 60 seconds, or ``pause`` if that is longer.

    Each ``Workers`` counts its own failures. Raises ConfigurationError, TypeError or ValueError for a wrong argument.
    """

    def __init__(
        self,
        *errors: type[Exception],
        failures: int = 10,
        window: float = 30.0,
        pause: float = 5.0,
        max_pause: float | None = None,
    ) -> None:
        self.errors: tuple[type[Exception], ...] = checked_errors("CircuitBreaker", errors)
        self.failures: int = whole("failures", failures, 1)
        for name, seconds in (("window", window), ("pause", pause), ("max_pause", max_pause)):
            if seconds is None and name == "max_pause":
                continue
            check_seconds(name, seconds)
            if seconds == 0:
                raise ConfigurationError(must_be(name, "a number of seconds > 0", seconds))
        if max_pause is None:
            max_pause = max(60.0, pause)
        elif max_pause < pause:
            raise ConfigurationError(must_be("max_pause", f"at least pause={pause:g}", max_pause))
        self.window: float = window
        self.pause: float = pause
        self.max_pause: float = max_pause

    def __repr__(self) -> str:
        return f"<CircuitBreaker of {plural(self.failures, 'failure')} within {in_seconds(self.window)}>"

    def counts(self, error: Exception) -> bool:
        """Return whether a failure with this error counts."""
        if isinstance(error, BatchFailure):
            error = error.error
        return isinstance(error, self.errors) if self.errors else not is_permanent(type(error))


class BreakerState(Enum):
    """The states of a circuit breaker."""

    CLOSED = "Records are processed, and failures are counted."
    OPEN = "No further record begins, and the group reads nothing."
    HALF_OPEN = "One record is processed, or will be as soon as there is one; the others wait for its result."


class BreakerEvent(Enum):
    """The events of a circuit breaker."""

    TRIPPED = "There were as many failures within the window as the settings allow."
    PAUSE_OVER = "The pause is over."
    PROBE_FAILED = "The probe failed with an error that counts."
    PROBE_SUCCEEDED = "The probe succeeded."


_STATE, _EVENT = BreakerState, BreakerEvent
BREAKER: Transitions[BreakerState, BreakerEvent] = {
    _STATE.CLOSED: {_EVENT.TRIPPED: _STATE.OPEN},
    _STATE.OPEN: {_EVENT.PAUSE_OVER: _STATE.HALF_OPEN},
    _STATE.HALF_OPEN: {_EVENT.PROBE_FAILED: _STATE.OPEN, _EVENT.PROBE_SUCCEEDED: _STATE.CLOSED},
}


class Gate:
    """Whether a further record of a ``Workers`` may begin: not while its group is paused, and one while it probes.

    ``attach`` it to the pause of the group while there are claims. Each watcher is called when ``may_begin`` may have
    changed. Owner: the ``Workers``. All its claims share it.
    """

    def __init__(self, breaker: CircuitBreaker | None) -> None:
        self.state: BreakerState = BreakerState.CLOSED
        self.openings: int = 0
        """How often the breaker has opened, also after a failed probe."""
        self._breaker = breaker
        self._failures: deque[float] = deque(maxlen=1 if breaker is None else breaker.failures)
        """The times of the last failures."""
        self._pauses = Backoff(1.0, 1.0) if breaker is None else Backoff(breaker.pause, breaker.max_pause)
        self._seconds = 0.0
        """The present pause, which begins again with each session."""
        self._cause = PauseCause("", is_problem=True)
        self._is_probing = False
        self._group: GroupPause | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watchers: dict[Callable[[], None], None] = {}

    @property
    def may_begin(self) -> bool:
        """Whether a further record may begin now."""
        return not self._is_probing and (self._group is None or not self._group.is_paused)

    def watch(self, on_change: Callable[[], None]) -> None:
        self._watchers[on_change] = None

    def unwatch(self, on_change: Callable[[], None]) -> None:
        self._watchers.pop(on_change, None)

    def attach(self, group: GroupPause) -> None:
        """Begin with the first claim of a session. A breaker that is open begins its pause again."""
        assert self._group is None, "a Workers serves one group at a time"
        self._group = group
        group.watch(self._notify)
        if self.state is BreakerState.OPEN:
            self._pause()

    def is_attached_to(self, group: GroupPause) -> bool:
        """Return whether this is the pause of the group that the ``Workers`` serves."""
        return self._group is group

    def detach(self) -> None:
        """End with the last claim of a session."""
        assert self._group is not None, "it is attached"
        self._end_pause()
        self._group.unwatch(self._notify)
        self._group = None

    # The attempts of the claims.

    def begin(self) -> bool:
        """Record that an attempt begins. Returns whether it is the probe. Call ``end`` or ``abandon`` then."""
        if self.state is not BreakerState.HALF_OPEN:  # hot: each record passes here
            return False
        assert self.may_begin, "one probe runs at a time"
        self._is_probing = True
        self._notify()
        return True

    def end(self, failure: Exception | None, *, is_probe: bool) -> bool:
        """Record the result of an attempt. Returns whether the attempt is to be repeated without counting it."""
        if self._breaker is None:
            return False
        is_counted = failure is not None and self._breaker.counts(failure)
        if not is_probe:
            if is_counted and self.state is BreakerState.CLOSED:
                self._count(self._breaker, failure)
            return False
        self._is_probing = False
        if is_counted:
            self._open(BreakerEvent.PROBE_FAILED, f"the probe failed with {failure!r}")
            return True
        if failure is None:
            self._move(BreakerEvent.PROBE_SUCCEEDED)
            logger.info("the circuit breaker of Workers is closed: a record was processed")
        self._notify()
        return False

    def abandon(self, *, is_probe: bool) -> None:
        """Record that an attempt has no result. If it was the probe, another record is the next one."""
        if is_probe:
            self._is_probing = False
            self._notify()

    def _count(self, breaker: CircuitBreaker, failure: Exception | None) -> None:
        now = asyncio.get_running_loop().time()
        self._failures.append(now)
        if len(self._failures) == breaker.failures and now - self._failures[0] <= breaker.window:
            self._pauses.reset()
            count, window = plural(breaker.failures, "failure"), in_seconds(breaker.window)
            self._open(BreakerEvent.TRIPPED, f"{count} within {window}, the last one {failure!r}")

    def _open(self, event: BreakerEvent, why: str) -> None:
        self._move(event)
        self._failures.clear()
        self.openings += 1
        self._seconds = self._pauses.next()
        self._cause = PauseCause(f"the circuit breaker of Workers is open: {why}", is_problem=True)
        self._pause()

    def _pause(self) -> None:
        assert self._group is not None, "records are processed only in a session"
        seconds = self._seconds
        logger.warning("%s; no further record begins for %s", self._cause.text, in_seconds(seconds))
        self._timer = forks.call_later(asyncio.get_running_loop())(seconds, self._pause_over)
        self._group.begin(self, self._cause)

    def _pause_over(self) -> None:
        self._move(BreakerEvent.PAUSE_OVER)
        self._end_pause()

    def _end_pause(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._group is not None:
            self._group.end(self)

    def _move(self, event: BreakerEvent) -> None:
        self.state = next_state(BREAKER, self.state, event)

    def _notify(self) -> None:
        for on_change in list(self._watchers):
            on_change()
