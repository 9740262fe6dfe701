"""Enumerations of names that newer brokers may extend, such as the states of groups and transactions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import TypeVar

from .. import arguments


class OpenEnum(Enum):
    """An enumeration of names that newer brokers may extend. Names are not case-sensitive.

    A subclass has a member ``UNKNOWN``.
    """

    @classmethod
    def _missing_(cls, value: object) -> OpenEnum | None:
        if not isinstance(value, str):
            return None
        lower = value.lower()
        match = next(
            (member for member in cls if str(member.value).lower() == lower or member.name.lower() == lower), None
        )
        return match or cls.__members__["UNKNOWN"]


N = TypeVar("N", bound=OpenEnum)


def members_of(kind: type[N], values: Iterable[N | str]) -> set[N]:
    """Convert members and names of members to a set of members. Raises TypeError and ValueError."""
    name = kind.__name__
    members_or_names = [values] if isinstance(values, str) else arguments.several(values, name)
    for value in members_or_names:
        if not isinstance(value, kind | str):
            raise TypeError(arguments.must_be(name, f"a {name} or its name", value))
    members = {value if isinstance(value, kind) else kind(value) for value in members_or_names}
    if any(member.name == "UNKNOWN" for member in members):
        names = ", ".join(str(member.value) for member in kind if member.name != "UNKNOWN")
        argument = re.findall("[A-Z][a-z]*", name)[-1].lower()  # "state" for a GroupState
        raise ValueError(arguments.must_be(argument, f"one of {names}", members_or_names))
    return members
