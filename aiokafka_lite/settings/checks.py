"""Checks of single settings, for the configuration classes. Each raises ConfigurationError."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from enum import Enum
from functools import cache

from ..arguments import INT32_MAX, INT64_MAX, is_whole, must_be, text
from ..errors import ConfigurationError

logger = logging.getLogger(__name__)

KIB = 1024
MIB = 1024 * KIB

LONGEST = INT32_MAX / 1000
"""The longest time that requests can carry, in seconds: 24.8 days, sent as milliseconds in 32 bits."""

LONGEST_TIMER = INT64_MAX / 1000
"""The longest time that is not sent in a request, in seconds. Java's client has the same limit."""

HOUR = 3600.0
DAY = 24 * HOUR

UNUSUAL = {
    "linger": 10.0,
    "request_timeout": HOUR,
    "api_timeout": HOUR,
    "connect_timeout": HOUR,
    "delivery_timeout": 2 * HOUR,
    "max_block": 2 * HOUR,
    "session_timeout": HOUR,
    "rebalance_timeout": 2 * HOUR,
    "transaction_timeout": 2 * HOUR,
    "auto_commit_interval": HOUR,
    "retry_backoff_max": 600.0,
    "reconnect_backoff_max": 600.0,
    "max_poll_interval": 3 * DAY,
    "renew_locks_for": 3 * DAY,
    "metadata_max_age": 3 * DAY,
    "connections_max_idle": 3 * DAY,
}
"""Seconds by the name of a setting. A longer time is allowed, but it is probably meant in milliseconds."""


class FromMilliseconds(float):
    """Seconds that were given in milliseconds, such as ``linger.ms``. A long time is intended, and not logged."""


SHORTEST_PAUSE = 0.001
"""The shortest pause between attempts, in seconds. Without a pause, a closed port would keep the event loop busy."""


def wrong(name: str, what: str, value: object) -> ConfigurationError:
    return ConfigurationError(must_be(name, what, value))


def seconds(settings: object, *names: str, zero: bool = True, most: float = LONGEST) -> None:
    """Check that each setting is a finite number of seconds up to ``most``, and above zero unless ``zero`` is True.

    An unusually long time is logged, unless it was given in milliseconds.
    """
    for name in names:
        value = getattr(settings, name)
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not number or value < 0 or (value == 0 and not zero):
            raise wrong(name, f"a number of seconds {'>=' if zero else '>'} 0", value)
        if value > most:
            what = f"at most {int(most):,} seconds"
            raise ConfigurationError(f"{must_be(name, what, value)}; is it in milliseconds?")
        if value > UNUSUAL.get(name, math.inf) and not isinstance(value, FromMilliseconds):
            log_unusual(name, float(value))


@cache  # a program may create many clients with the same settings
def log_unusual(name: str, value: float) -> None:
    """Log a time that is probably meant in milliseconds."""
    text = "%s=%s is %s, because times are in seconds; if milliseconds are meant, set %s=%s"
    logger.warning(text, name, f"{value:.15g}", _in_words(value), name, f"{value / 1000:.15g}")


def _in_words(value: float) -> str:
    """Format seconds as a time that people read, such as ``8.3 hours``."""
    for unit, length in (("days", DAY), ("hours", HOUR), ("minutes", 60)):
        if value >= 2 * length:
            return f"{value / length:.3g} {unit}"
    return f"{value:.3g} seconds"


def whole(settings: object, name: str, low: int, high: int = INT32_MAX) -> None:
    value = getattr(settings, name)
    if not is_whole(value) or not low <= value <= high:
        raise wrong(name, f"a whole number from {low} to {high}", value)


def pauses(settings: object, name: str) -> None:
    """Check a backoff: the first pause, and the longest pause, which has the same name with ``_max``."""
    longest = f"{name}_max"
    seconds(settings, name, longest, most=LONGEST_TIMER)
    pause, longest_pause = getattr(settings, name), getattr(settings, longest)
    for setting, value in ((name, pause), (longest, longest_pause)):
        if value < SHORTEST_PAUSE:
            raise wrong(setting, f"a number of seconds >= {SHORTEST_PAUSE:g}", value)
    if pause > longest_pause:
        raise wrong(name, f"at most {longest}={longest_pause!r}", pause)


def plain_strings(settings: object) -> None:
    """Replace string members of enumerations with plain strings.

    Such a member is equal to a plain string, but may print as ``Codec.GZIP``.
    """
    for name in settings.__dataclass_fields__:  # type: ignore[attr-defined]
        value = getattr(settings, name)
        if isinstance(value, str) and isinstance(value, Enum):
            object.__setattr__(settings, name, str.__str__(value))


def one_of(settings: object, name: str, allowed: Iterable[object]) -> None:
    value, choices = getattr(settings, name), tuple(allowed)
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise wrong(name, f"one of {', '.join(map(repr, choices))}", value)


def switch(settings: object, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if not isinstance(value, bool):
            raise wrong(name, "True or False", value)


def string(settings: object, *names: str) -> None:
    for name in names:
        try:
            text(name, getattr(settings, name))
        except (TypeError, ValueError) as error:
            raise ConfigurationError(str(error)) from None


def filled(settings: object, name: str) -> None:
    string(settings, name)
    if not getattr(settings, name):
        raise wrong(name, "a string that is not empty", "")


def credential(settings: object, name: str) -> None:
    """Check a user name or a password. An error does not quote it."""
    problem = credential_problem(name, getattr(settings, name))
    if problem:
        raise ConfigurationError(problem)


def credential_problem(name: str, value: object) -> str:
    """Return why the value is no user name or password, without quoting it; empty if it is one."""
    if not isinstance(value, str):
        return f"{name} must be a string, got {type(value).__name__}"
    if not value:
        return f"{name} must not be empty"
    if "\0" in value:
        return f"{name} must not contain NUL"
    try:
        value.encode()
    except UnicodeEncodeError:
        return f"{name} must be a string that UTF-8 can encode"
    return ""


def ip_address(settings: object, name: str) -> None:
    """Check an IP address. A host name is refused."""
    import ipaddress  # imported here: it takes 2 ms, and few clients set a local address

    value = getattr(settings, name)
    try:
        if isinstance(value, str):
            ipaddress.ip_address(value)
            return
    except ValueError:
        pass
    raise wrong(name, 'an IP address such as "192.0.2.7" or "::1", or None', value)
