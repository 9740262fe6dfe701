"""Search seeds for broken promises: ``python -m tests.simulation 0-1000``.

A failing seed is printed with its broken promises and its shrunk schedule. ``--fresh 100`` takes seeds that were never
run, ``--known`` also the seeds that once found a bug. ``--trace`` prints the trace hash of each seed, and
``--exchanges`` every request of one seed.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial

from aiokafka_lite.testing.simulation.steps import Step, cut_out, shrink
from tests.simulation.schedule import schedule
from tests.simulation.workload import workload
from tests.simulation.world import Result, simulate

KNOWN = (2, 4, 12, 13, 16, 27, 36, 53, 56, 10_012, 10_051, 30_332, 50_177,
         1_795_988_800_054, 1_796_001_776_013)  # fmt: skip
"""Seeds that found a bug once, or find an old bug that is put back (``old_bugs``)."""

MOST_MEMORY = 700
"""MiB that a process may have in memory after any number of seeds."""
SHOWN = 5
MOST_SHRINKING = 60.0
"""Seconds to shrink a schedule. Then the shortest schedule so far is printed."""


def main() -> int:
    options = _options()
    gc.freeze()  # each seed ends with full collections, which then skip the modules
    began = time.monotonic()
    deadline = began + options.seconds if options.seconds else float("inf")
    ran, failed, virtual = 0, 0, 0.0
    for seed, result in _run(options.seeds, options.workers, deadline, with_exchanges=options.exchanges):
        ran += 1
        virtual += result.seconds
        if options.trace:
            print(f"seed {seed}: trace {result.trace}")
        for line in result.exchanges:
            print(f"  {line}")
        if result.anomalies:
            failed += 1
            _print_failure(seed, result, shrinks=options.shrink)
            if failed >= options.failures:
                break
    missing = len(options.seeds) - ran
    rest = f", {missing} not run: the time was over" if missing and failed < options.failures else ""
    seconds = time.monotonic() - began
    print(f"{ran} seeds, {failed} failed, {virtual / 3600:.1f} hours of virtual time in {seconds:.0f} s{rest}")
    return bool(failed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.split("\n")[0])
    parser.add_argument("seeds", nargs="?", type=_seeds, default=range(100), help="a number, or a range like 0-100")
    parser.add_argument("--fresh", type=int, metavar="COUNT", help="this many seeds that depend on the time of day")
    parser.add_argument("--known", action="store_true", help="the seeds that found a bug once as well, first")
    parser.add_argument("--workers", type=int, default=1, help="processes; 0 is one for each core")
    parser.add_argument("--seconds", type=float, help="start no further seed after this time")
    parser.add_argument("--failures", type=int, default=5, help="stop after this many failed seeds")
    parser.add_argument("--trace", action="store_true", help="print the trace hash of each seed")
    parser.add_argument("--exchanges", action="store_true", help="print every request")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false", help="print the whole schedule")
    options = parser.parse_args()
    if options.fresh:
        first = int(time.time()) * 1000
        options.seeds = range(first, first + options.fresh)
    if options.known:
        options.seeds = [*KNOWN, *(seed for seed in options.seeds if seed not in KNOWN)]
    options.workers = options.workers or os.cpu_count() or 1
    return options


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last) if last else int(first) + 1)


def _run(seeds: Iterable[int], workers: int, deadline: float, *, with_exchanges: bool) -> Iterator[tuple[int, Result]]:
    """Yield the results of the seeds. They are in order if there is one worker."""
    if workers == 1:
        for seed in seeds:
            if time.monotonic() > deadline:
                return
            yield _simulate(deadline, with_exchanges, seed)
        return
    with multiprocessing.get_context("fork").Pool(workers, os.nice, (10,)) as pool:
        run = partial(_simulate, deadline, with_exchanges)
        for seed, result in pool.imap_unordered(run, seeds):
            if result.trace:
                yield seed, result


def _simulate(deadline: float, with_exchanges: bool, seed: int) -> tuple[int, Result]:
    if time.monotonic() > deadline:
        return seed, Result([], "", 0.0)
    result = simulate(seed, with_exchanges=with_exchanges)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    if memory > MOST_MEMORY:
        result.anomalies.append(f"the process has taken {memory} MiB")
    return seed, result


def _print_failure(seed: int, result: Result, *, shrinks: bool) -> None:
    print(f"seed {seed}: {len(result.anomalies)} broken promises")
    for anomaly in result.anomalies[:SHOWN]:
        print(f"  {anomaly[:600]}")
    steps = schedule(seed)
    if shrinks:
        steps = shrink(steps, partial(_fails, seed, time.monotonic() + MOST_SHRINKING), cut_out)
    print(f"  {'shrunk ' if shrinks else ''}schedule:")
    for step in steps:
        print(f"    {step}")
    plan = workload(seed)
    transactions = [plan.transactions] if plan.transactions else []
    churn = [plan.churn] if plan.churn else []
    for part in (*plan.writers, *plan.groups, *plan.share_groups, *transactions, *plan.chain, *churn):
        print(f"    {part}")
    sys.stdout.flush()


def _fails(seed: int, deadline: float, steps: list[Step]) -> bool:
    return time.monotonic() < deadline and bool(simulate(seed, steps).anomalies)


if __name__ == "__main__":
    sys.exit(main())
