"""``simulate``: searches seeds for one in which a check of a service fails, shrinks its schedule, and reports it."""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any

from ...arguments import check_function, is_whole, must_be, whole
from ...errors import ConfigurationError
from .checks import Check, default_checks
from .history import Written
from .process import Instance
from .service_faults import FAULTS, describe, kinds_of, schedule
from .steps import Step, keep_times, shrink, times
from .workload import Workload, checked_workload
from .world import EPOCH, Plan, Run, run

SHRINK_RUNS = 60
"""Runs to shrink a schedule. Then the shortest one so far is shown, the same on each machine."""
SEED_VARIABLE = "KAFKA_SIMULATION_SEED"
"""The environment variable with the one seed that ``simulate`` runs, to repeat a failure."""
MOST_LINES = 40
RUNS_KEPT = 250
"""Runs whose remains may be in memory, some 0.5 MB each, or 1 MB with all faults. To free them takes a seventh of the
time, so the usual 200 seeds do not."""


class Rank(Enum):
    """What a line of a timeline is about, the most important first."""

    RECORD = "the record"
    COMMIT = "a commit behind the record"
    OTHER = "a process or a fault"


@dataclass(frozen=True, slots=True)
class Simulation:
    """A search without a failure: the number of seeds, and the trace hash of the last one."""

    seeds: int
    virtual_seconds: float
    trace: str


class SimulationFailure(AssertionError):
    """A check failed. Its text has the seed, the shortest schedule of faults, and the timeline of the record.

    ``seed`` repeats it, and ``seeds`` is the number of seeds that were run until then.
    """

    def __init__(self, text: str, *, seed: int, seeds: int, broken: str) -> None:
        super().__init__(text)
        self.seed = seed
        self.seeds = seeds
        self.broken = broken


def simulate(
    service: Callable[[Instance], Any],
    workload: Workload,
    *,
    checks: Sequence[Check] | None = None,
    instances: int = 2,
    seeds: int | Iterable[int] = 200,
    seconds: float = 20.0,
    faults: str | Iterable[str] = tuple(FAULTS),
) -> Simulation:
    """Run a service on a simulated cluster of three brokers, once for each seed, with other faults each time.

    - ``service`` is an async function of an ``Instance``, or a class whose objects have an async ``run()``. It connects
      to ``instance.bootstrap_servers`` and reports what it does outside Kafka with ``instance.effect()``.
    - ``workload`` is what is written, over ``seconds`` of virtual time: ``orders(100)``, messages, or a function of a
      random generator that returns messages.
    - ``checks`` must hold at the end of each run; by default ``default_checks()``.
    - ``instances`` is the number of processes of the service. A process that ends is started again.
    - ``seeds`` is a number of seeds, or the seeds. The environment variable KAFKA_SIMULATION_SEED replaces them.
    - ``faults`` are names of groups of ``FAULTS``, or of single kinds; ``()`` is none.

    Raises SimulationFailure for the first seed in which a check fails, ConfigurationError for wrong arguments, and the
    exception of a check that raises.
    """
    check_function("service", service)
    whole("instances", instances, 1)
    if not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
        raise ConfigurationError(must_be("seconds", "a number of seconds > 0", seconds))
    chosen = default_checks() if checks is None else _checked(checks)
    plan = Plan(service, checked_workload(workload), chosen, instances, seconds, kinds_of(faults))
    count, virtual, trace = 0, 0.0, ""
    for seed in _seeds(seeds):
        steps = schedule(Random(seed), plan.kinds, seconds, instances)
        result = run(plan, seed, steps)
        count += 1
        virtual += result.seconds
        trace = result.trace
        if result.broken is not None:
            raise _failure(plan, seed, count, steps, result.broken.symptom)
        if count % RUNS_KEPT == 0:
            gc.collect()  # a run pauses the collector, and collects only what has ended before its own end
    if count == 0:
        raise ConfigurationError("seeds has no seed, so no check could fail; give it at least one")
    return Simulation(count, virtual, trace)


def _checked(checks: object) -> tuple[Check, ...]:
    if not isinstance(checks, Iterable):
        raise ConfigurationError(must_be("checks", "a list of functions", checks))
    chosen = tuple(checks)
    for check in chosen:
        check_function("checks", check)
    return chosen


def _seeds(seeds: int | Iterable[int]) -> Iterator[int]:
    """Yield the seeds. Raises ConfigurationError, TypeError or ValueError for one that is no whole number."""
    if repeated := os.environ.get(SEED_VARIABLE):
        try:
            yield int(repeated)
        except ValueError:
            raise ConfigurationError(must_be(SEED_VARIABLE, "the number of a seed", repeated)) from None
        return
    if isinstance(seeds, int):
        yield from range(whole("seeds", seeds, 1))
        return
    if isinstance(seeds, str | bytes) or not isinstance(seeds, Iterable):
        raise ConfigurationError(must_be("seeds", "a number of seeds, or the seeds", seeds))
    for seed in seeds:
        if not is_whole(seed):
            raise ConfigurationError(must_be("seeds", "whole numbers", seed))
        yield seed


def _failure(plan: Plan, seed: int, count: int, steps: list[Step], symptom: str) -> SimulationFailure:
    runs = itertools.count()

    def fails(fewer: list[Step]) -> bool:
        if next(runs) >= SHRINK_RUNS:
            return False
        broken = run(plan, seed, fewer).broken
        return broken is not None and broken.symptom == symptom

    steps = shrink(steps, fails, keep_times)
    result = run(plan, seed, steps)
    assert result.broken is not None, "the same seed and schedule fail again"
    text = "\n".join(_report(seed, count, steps, result))
    return SimulationFailure(text, seed=seed, seeds=count, broken=result.broken.text)


def _report(seed: int, count: int, steps: list[Step], result: Run) -> list[str]:
    assert result.broken is not None
    lines = [result.broken.text, *filter(None, [result.broken.hint])]
    lines += ["", f"seed {seed} (found after {count} seeds), with these faults:"]
    lines += [f"  {at:8.3f} s {describe(step)}" for at, step in zip(times(steps), steps, strict=True)] or ["  none"]
    timeline = _shortened(_timeline(result, result.broken.id))
    lines += ["", f"what happened to {result.broken.id!r}:" if result.broken.id else "what happened:", *timeline]
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    repeat = f"pytest '{test}'" if test else "python your_test.py, or simulate(..., seeds=[" + f"{seed}])"
    lines += ["", f"repeat it with: {SEED_VARIABLE}={seed} {repeat}", f"trace {result.trace}"]
    return lines


def _shortened(timeline: list[tuple[Rank, str]]) -> list[str]:
    """Return at most ``MOST_LINES`` lines, of the lower ranks first; of a rank, the first and the last ones."""
    kept: set[int] = set()
    for rank in Rank:
        places = [place for place, (of, _) in enumerate(timeline) if of is rank]
        room = MOST_LINES - len(kept)
        if len(places) > room:
            places = places[: room - room // 2] + places[len(places) - room // 2 :]
        kept.update(places)
    lines: list[str] = []
    for place, (_, line) in enumerate(timeline):
        if place in kept:
            lines.append(line)
        elif place == 0 or place - 1 in kept:
            lines.append("           ...")
    return lines


def _timeline(result: Run, identity: str) -> list[tuple[Rank, str]]:
    """Return the events of a record, and those of the processes, in the order of their times."""
    history = result.history
    lines: list[tuple[float, Rank, str]] = []
    written = history.written.get(identity)
    if written is not None:
        lines += _of_written(written, result)
    for effect in history.effects:
        if effect.id == identity:
            lines.append((effect.at, Rank.RECORD, f"{effect.process} begins the effect {effect.name!r}"))
            if effect.ended_at is not None:
                end = f"the effect {effect.name!r}: {effect.outcome.value}"
                if effect.key_used_by:
                    end += f" {effect.idempotence_key!r}, which {effect.key_used_by!r} had used"
                lines.append((effect.ended_at, Rank.RECORD, end))
    for change in history.rows:
        if identity and identity in history.ids_in(str(change.key), str(change.row)):
            what = "deletes" if change.row is None else "writes"
            text = f"{change.process} commits that it {what} the row {change.table}[{change.key!r}]"
            lines.append((change.at, Rank.RECORD, text))
    for topic, record in history.outputs_that_mention().get(identity, ()):
        # A jump of the clock moves the timestamp.
        at = history.appended.get((topic, record.partition, record.offset), record.timestamp / 1000 - EPOCH)
        lines.append((at, Rank.RECORD, f"{topic}-{record.partition} has a record of it"))
    starts = [(event.at, Rank.OTHER, event.text) for event in history.events if event.text.endswith(" starts")]
    others = [(event.at, Rank.OTHER, event.text) for event in history.events if not event.text.endswith(" starts")]
    # At the same time, a process starts first, and ends last.
    lines = sorted([*starts, *lines, *others], key=lambda line: line[0])
    return [(rank, f"  {at:8.3f} s {text}") for at, rank, text in dict.fromkeys(lines)]


def _of_written(written: Written, result: Run) -> list[tuple[float, Rank, str]]:
    """Return when a record was written, to whom it was sent, and the commits behind it."""
    place = f"{written.message.topic}-{written.partition}"
    lines = [(written.at, Rank.RECORD, f"it is written to {place} at offset {written.offset}")]
    lines += [(at, Rank.RECORD, f"it is sent to {process}") for at, process in result.requests.deliveries(written)]
    for commit in result.history.commits:
        if f"{commit.topic}-{commit.partition}" == place and commit.offset > written.offset:
            what = f"{commit.process} commits {place} up to {commit.offset}"
            lines.append((commit.at, Rank.COMMIT, f"{what}, refused: {commit.refusal}" if commit.refusal else what))
    return lines
