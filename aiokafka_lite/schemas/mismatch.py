"""The error for data that a schema does not describe. It names the place, such as ``order.items[2].price``."""

from __future__ import annotations

from typing import Self

from ..arguments import must_be

_LONGEST_KEY = 80
"""Characters of the key of a map that a place shows."""


class Mismatch(ValueError):
    """Data that a schema does not describe. ``problem`` follows the name of the place.

    The error leaves the data from the inside out, and each container adds its part of the place.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self._problem = problem
        self._parts: list[str] = []

    def __str__(self) -> str:
        place = "".join(reversed(self._parts)).removeprefix(".")
        return f"{place or 'the data'} {self._problem}"

    def inside(self, part: str | int, *, is_key: bool = False) -> Self:
        """Add the field, the index, or the key of a map that contains the place so far."""
        if isinstance(part, int):
            self._parts.append(f"[{part}]")
        elif is_key:
            self._parts.append(f"[{part[:_LONGEST_KEY]!r}]")
        else:
            self._parts.append(f".{part}")
        return self


def wrong(what: str, value: object, advice: str = "") -> Mismatch:
    """Return the error for a value that is not ``what``: ``price must be <what>, got <value>; <advice>``."""
    return Mismatch(must_be("", what, value).lstrip() + (f"; {advice}" if advice else ""))
