"""Compare ways of doing the same thing within one run, so that the load of the machine affects all of them.

All candidates run in turn in each round, and each round begins with another candidate; medians over the rounds are
reported, and ratios are medians of the ratios within a round. Record the ratios: absolute times depend on the machine.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median

LEAST_SECONDS = 0.02  # a candidate is repeated within a round until it takes this long


@dataclass(frozen=True, slots=True)
class Result:
    """One candidate: the median seconds per operation, and their ratio to those of the first candidate."""

    name: str
    wall: float
    cpu: float
    wall_ratio: float
    cpu_ratio: float


@dataclass(frozen=True, slots=True)
class Table:
    """The candidates in the order given; the first is the one that the others are compared with."""

    title: str
    unit: str
    results: list[Result]

    def __str__(self) -> str:
        width = max(len(self.title), *(len(result.name) for result in self.results))
        lines = [f"{self.title:<{width}}  {'wall':>11}  {'CPU':>11}  {'ratio':>6}  {'CPU':>6}"]
        for result in self.results:
            times = f"{_readable(result.wall):>11}  {_readable(result.cpu):>11}"
            lines.append(f"{result.name:<{width}}  {times}  {result.wall_ratio:6.2f}  {result.cpu_ratio:6.2f}")
        lines.append(f"(per {self.unit}; ratios to {self.results[0].name}: above 1 is slower)")
        return "\n".join(lines)


def compare(
    candidates: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 15,
    operations: int = 1,
    title: str = "",
    unit: str = "call",
) -> Table:
    """Time the candidates against the first of them; ``operations`` is how many units one call does."""
    repeats = {name: _repeats(call) for name, call in candidates.items()}
    wall: dict[str, list[float]] = {name: [] for name in candidates}
    cpu: dict[str, list[float]] = {name: [] for name in candidates}
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            for name in in_turn(candidates, turn):
                seconds, cpu_seconds = _time(candidates[name], repeats[name])
                wall[name].append(seconds / repeats[name] / operations)
                cpu[name].append(cpu_seconds / repeats[name] / operations)
            gc.collect()
    finally:
        gc.enable()
    return tabulate(wall, cpu, title=title, unit=unit)


def in_turn(names: Iterable[str], turn: int) -> list[str]:
    """Return the names in the order of this round. Each round begins with another one."""
    candidates = list(names)
    first = turn % len(candidates)
    return candidates[first:] + candidates[:first]


def tabulate(wall: Mapping[str, list[float]], cpu: Mapping[str, list[float]], *, title: str, unit: str) -> Table:
    """Return a table of seconds per operation, with one list entry for each round. All are compared with the first
    name.
    """
    base = next(iter(wall))
    results = [
        Result(
            name, median(wall[name]), median(cpu[name]), _ratio(wall[name], wall[base]), _ratio(cpu[name], cpu[base])
        )
        for name in wall
    ]
    return Table(title, unit, results)


def _time(call: Callable[[], object], repeats: int) -> tuple[float, float]:
    cpu, wall = _cpu(), time.perf_counter()
    for _ in range(repeats):
        call()
    return time.perf_counter() - wall, _cpu() - cpu


def _cpu() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _repeats(call: Callable[[], object]) -> int:
    call()
    repeats = 1
    while _time(call, repeats)[0] < LEAST_SECONDS:
        repeats *= 2
    return repeats


def _ratio(times: list[float], base: list[float]) -> float:
    return median(own / other for own, other in zip(times, base, strict=True))


def _readable(seconds: float) -> str:
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"
