"""The base of the results of ``metrics()``, ``traffic()``, ``health()`` and ``diagnose()``.

A metric is declared by ``Annotated`` on the field of its snapshot: what the exporters call it, and the name under which
a client pushes it to brokers (KIP-714). ``of`` is the path from the field to the value, such as ``latency.count``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from typing import NamedTuple, get_args, get_type_hints

SECONDS, BYTES, NONE = "s", "By", ""
"""Units of UCUM: seconds, bytes, and none for a count."""

MILLISECONDS = 1000.0
"""The scale of a pushed metric in milliseconds, from seconds."""


class Counter(NamedTuple):
    """A value that only grows. The exporters' names are ``name`` with a prefix for the kind of snapshot."""

    name: str
    description: str
    unit: str = NONE
    of: str = ""


class Gauge(NamedTuple):
    """A value that rises and falls."""

    name: str
    description: str
    unit: str = NONE
    of: str = ""


class Latency(NamedTuple):
    """A ``LatencyMetrics``. ``operations`` names their counter, ``name`` the metrics of their durations."""

    operations: str
    name: str
    what: str
    of: str = ""

    def instruments(self) -> Iterator[tuple[str, Counter | Gauge]]:
        """Yield the instruments, each with the attribute of the ``LatencyMetrics`` that it reads."""
        what = self.what
        yield "count", Counter(self.operations, f"{what}.")
        yield "total", Counter(f"{self.name}.time", f"{what}: sum of their durations.", SECONDS)
        p99, longest = (
            f"{what}: 99th percentile of the last 1,000 durations.",
            f"{what}: longest of the last 1,000 durations.",
        )
        yield "p99", Gauge(f"{self.name}.latency.p99", p99, SECONDS)
        yield "max", Gauge(f"{self.name}.latency.max", longest, SECONDS)


class Pushed(NamedTuple):
    """A metric that is pushed to brokers. Counters have names that end in ``.total``."""

    name: str
    of: str = ""
    scale: float = 1


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
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


@cache
def declarations(kind: type) -> list[tuple[str, Counter | Gauge | Latency | Pushed]]:
    """Return the declarations on the fields of a snapshot, each with the path from the snapshot to the value."""
    return [
        (f"{field}.{note.of}" if note.of else field, note)
        for field, hint in get_type_hints(kind, include_extras=True).items()
        for note in get_args(hint)
        if isinstance(note, Counter | Gauge | Latency | Pushed)
    ]
