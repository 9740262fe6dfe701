"""A stopwatch for wall and CPU time, and the memory of this process."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path


class Stopwatch:
    """Wall and CPU seconds of this process, with all its threads, since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._wall, time.process_time() - self._cpu

    def result(self) -> dict[str, float]:
        wall, cpu = self.read()
        return {"wall": wall, "cpu": cpu}

    def with_quantiles(self, times: list[float]) -> dict[str, float]:
        """Return the result, with the median and the 99th percentile of the times of single operations."""
        return {**self.result(), **quantiles(times)}


def quantiles(times: Iterable[float]) -> dict[str, float]:
    """Return the median and the 99th percentile."""
    ordered = sorted(times)
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]}


def peak_memory() -> float:
    """Return the largest resident size of this process in bytes; 0 where there is no /proc."""
    return _status("VmHWM:")


def memory() -> float:
    """Return the resident size of this process in bytes; 0 where there is no /proc."""
    return _status("VmRSS:")


def _status(name: str) -> float:
    path = Path("/proc/self/status")
    if not path.exists():
        return 0.0
    # The peak of getrusage() includes that of the process that started this one.
    return next((float(line.split()[1]) * 1024 for line in path.read_text().splitlines() if line.startswith(name)), 0.0)
