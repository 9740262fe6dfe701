"""The counterparts of a setting in Java's client and in librdkafka, as annotations of the fields of configurations.

``properties`` translates a file of properties with them, and docs/list_settings.py prints them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from .checks import FromMilliseconds
from .security import Secret

Acks = Literal[0, 1, -1, "all"]

Reader = Callable[[str], object]
"""Parses the value of a property. Raises KeyError or ValueError for a wrong value."""

SAME = object()
"""Java's default is the same."""


class Java(NamedTuple):
    """The names of a setting in Java's client, joined by commas, and Java's default; None if Java has no such setting.

    ``default`` is a value in this client's unit, or the words to print. Without ``read``, the type of the field says
    how a property is read: a ``float`` is a time in milliseconds. With ``is_property=False``, the names are only
    printed, because a property of this name is not translated, or not by itself.
    """

    names: str | None
    default: object = SAME
    read: Reader | None = None
    is_property: bool = True


class Librdkafka(NamedTuple):
    """Another name for a property of the same meaning, from librdkafka."""

    name: str
    read: Reader | None = None


class OwnProperty(NamedTuple):
    """The property of a setting that the other clients do not have."""

    name: str
    read: Reader | None = None


class Unset(NamedTuple):
    """The words to print for the default None."""

    words: str


def to_text(value: str) -> str:
    return value


def to_secret(value: str) -> Secret:
    return Secret(value)


def to_number(value: str) -> int:
    return int(value.strip())


def to_seconds(value: str) -> float:
    """Convert a number of milliseconds to seconds."""
    return FromMilliseconds(float(value.strip()) / 1000)


def to_bool(value: str) -> bool:
    return {"true": True, "false": False}[value.strip().lower()]


def to_upper(value: str) -> str:
    return value.strip().upper()


def to_lower(value: str) -> str:
    return value.strip().lower()


def to_acks(value: str) -> Acks:
    numbers: dict[str, Acks] = {"0": 0, "1": 1, "-1": "all", "all": "all"}
    return numbers[value.strip().lower()]


def is_https(value: str) -> bool:
    return {"https": True, "": False, "none": False}[value.strip().lower()]


EXPECTED: dict[Reader, str] = {
    to_number: "a whole number",
    to_seconds: "a number of milliseconds",
    to_bool: "true or false",
    to_acks: "0, 1 or all",
    is_https: "https, or empty to disable the check of host names",
}
"""What a reader that may refuse a value expects, for the error."""
