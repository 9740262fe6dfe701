"""Where to begin reading: what ``--from`` takes. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from aiokafka_lite.errors import ConfigurationError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
FORMS = (
    "use earliest, latest, an offset (42), a time (2026-01-31T12:00:00Z, or milliseconds as in @1767225600000),"
    " or how long ago (90s, 15m, 2h, 7d)"
)


@dataclass(frozen=True, slots=True)
class Start:
    """A place to begin at: what a reset policy says, an offset, or a time in milliseconds; else as settings say."""

    policy: str | None = None
    offset: int | None = None
    time: int | None = None


def parse_start(text: str, now: float) -> Start:
    """Read ``--from``; ``now`` is in seconds since the epoch. Raises ConfigurationError."""
    word = text.strip()
    if word.lower() in ("earliest", "latest"):
        return Start(policy=word.lower())
    if word.isdecimal():
        return Start(offset=int(word))
    moment = parse_time(word, now)
    if moment is None:
        raise ConfigurationError(f"from={text!r}: {FORMS}")
    return Start(time=max(0, round(moment * 1000)))


def parse_time(text: str, now: float) -> float | None:
    """Seconds since the epoch of a time or of how long ago; None for what is neither. Without a zone it is local."""
    if text.startswith("@") and text[1:].isdecimal():
        return int(text[1:]) / 1000
    ago = parse_duration(text)
    if ago is not None:
        return now - ago
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def parse_duration(text: str) -> float | None:
    """The seconds of ``90s``, ``1h30m`` or ``500ms``; None for anything else."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def iso_time(milliseconds: int) -> str:
    """A timestamp as ISO 8601 writes it, in UTC; ``-`` for -1, which says that there is none."""
    if milliseconds < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # a producer may have written anything
        return f"@{milliseconds}"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
