"""Search seeds for broken promises: ``python -m tests.simulation 0-1000``. A failure prints its shrunk schedule."""

from __future__ import annotations

import logging
import sys
import time
from functools import partial

from tests.simulation.schedule import Step, schedule, shrink
from tests.simulation.world import simulate


def _fails(seed: int, steps: list[Step]) -> bool:
    return bool(simulate(seed, steps).anomalies)


def main() -> int:
    logging.disable(logging.CRITICAL)
    first, _, last = (sys.argv[1] if len(sys.argv) > 1 else "0-100").partition("-")
    began, failed = time.monotonic(), 0
    seeds = range(int(first), int(last) if last else int(first) + 1)
    for seed in seeds:
        result = simulate(seed)
        if not result.anomalies:
            continue
        failed += 1
        print(f"seed {seed}: {len(result.anomalies)} broken promises")
        for anomaly in result.anomalies[:5]:
            print(f"  {anomaly}")
        fewer = shrink(schedule(seed), partial(_fails, seed))
        print("  shrunk schedule:")
        for step in fewer:
            print(f"    {step}")
    print(f"{len(seeds)} seeds, {failed} failed, {time.monotonic() - began:.0f} s")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
