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
        found = next((each for each in cls if str(each.value).lower() == lower or each.name.lower() == lower), None)
        return found or cls.__members__["UNKNOWN"]


N = TypeVar("N", bound=OpenEnum)


def members_of(kind: type[N], given: Iterable[N | str]) -> set[N]:
    """Return the members of an enumeration, given as members or by name. Raises TypeError and ValueError."""
    name = kind.__name__
    listed = [given] if isinstance(given, str) else arguments.several(given, name)
    for each in listed:
        if not isinstance(each, kind | str):
            raise TypeError(arguments.must_be(name, f"a {name} or its name", each))
    found = {each if isinstance(each, kind) else kind(each) for each in listed}
    if any(each.name == "UNKNOWN" for each in found):
        known = ", ".join(str(each.value) for each in kind if each.name != "UNKNOWN")
        argument = re.findall("[A-Z][a-z]*", name)[-1].lower()  # "state" for a GroupState
        raise ValueError(arguments.must_be(argument, f"one of {known}", listed))
    return found
