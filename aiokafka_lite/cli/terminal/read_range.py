"""The forms of ``--from`` and ``--until``: where reading begins and ends. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
TIMES = "a time (2026-01-31T12:00:00Z, or milliseconds as in @1767225600000), or a time ago (90s, 15m, 2h, 7d)"
FORMS = f"earliest, latest, an offset (42), {TIMES}"


@dataclass(frozen=True, slots=True)
class Start:
    """A reset policy, an offset, a time in milliseconds, or the last records; all None if the user gave none."""

    policy: str | None = None
    offset: int | None = None
    time: int | None = None
    last: int | None = None
    """A number of offsets before the end of each partition."""

    @property
    def is_lookup(self) -> bool:
        """Whether the command looks up the offsets. A policy needs no lookup: the consumer applies it."""
        return (self.offset, self.time, self.last) != (None, None, None)


@dataclass(frozen=True, slots=True)
class Stop:
    """Where reading stops: before the first record at ``time`` (milliseconds) or later.

    Without a time, at the end that the partition has when reading begins.
    """

    time: int | None = None


def parse_start(text: str, now: float) -> Start:
    """Parse ``--from``; ``now`` is in seconds since the epoch. Raises ConfigurationError for any other form."""
    word = text.strip()
    if word.lower() in ("earliest", "latest"):
        return Start(policy=word.lower())
    if word.isdecimal():
        return Start(offset=int(word))
    if word.startswith("-") and word[1:].isdecimal():
        return Start(last=int(word[1:]))
    time = parse_time(word, now)
    if time is None:
        from ...errors import ConfigurationError

        raise ConfigurationError(f"--from must be {FORMS}, or the last records (-10), got {text!r}")
    return Start(time=time)


def parse_stop(text: str, now: float) -> Stop:
    """Parse ``--until``. Raises ConfigurationError for any other form, and for a time after ``now``."""
    from ...errors import ConfigurationError

    if text.strip().lower() == "end":
        return Stop()
    time = parse_time(text.strip(), now)
    if time is None:
        raise ConfigurationError(f"--until must be end, {TIMES}, got {text!r}")
    if time > round(now * 1000):
        raise ConfigurationError(f"--until must be a time in the past, got {text!r}")
    return Stop(time)


def parse_time(text: str, now: float) -> int | None:
    """Parse a time as milliseconds since the epoch: ``2026-01-31T12:00``, ``@1700000000000`` or ``2h`` before ``now``.

    0 for a time before the epoch, None for any other form. ``now`` is in seconds. Without a zone, time is local.
    """
    if text.startswith("@") and text[1:].isdecimal():
        return int(text[1:])
    ago = parse_duration(text)
    try:
        moment = datetime.fromisoformat(text).timestamp() if ago is None else now - ago
    except ValueError:
        return None
    return max(0, round(moment * 1000))


def parse_duration(text: str) -> float | None:
    """Parse seconds: ``90s``, ``1h30m`` or ``500ms``; None for any other form."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def iso_time(milliseconds: int) -> str:
    """Return a timestamp in ISO 8601 and UTC; ``-`` for -1, which means no timestamp."""
    if milliseconds < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # a producer may write any number
        return f"@{milliseconds}"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
