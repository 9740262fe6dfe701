"""The base of the results of ``metrics()``, ``traffic()``, ``health()`` and ``diagnose()``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum


class Snapshot:
    """The state of a component at one moment, as a frozen dataclass. It can be pickled and compared."""

    __slots__ = ()

    def to_dict(self) -> dict[str, object]:
        """Return all fields as dicts, lists, strings and numbers, for JSON. A key of a mapping becomes a string."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}  # type: ignore[arg-type]


def _plain(value: object) -> object:
    if isinstance(value, Snapshot):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)
