"""A stopwatch for wall and CPU time."""

from __future__ import annotations

import time


class Stopwatch:
    """Wall and CPU seconds of this process, with all its threads, since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._wall, time.process_time() - self._cpu

    def result(self) -> dict[str, float]:
        wall, cpu = self.read()
        return {"wall": wall, "cpu": cpu}
