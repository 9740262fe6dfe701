"""The whole client and a cluster of three brokers under random faults, on virtual time.

``python -m tests.simulation`` searches more seeds and shrinks a failing schedule.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aiokafka_lite.testing.simulation.steps import Step, cut_out, shrink
from tests.simulation.old_bugs import OLD_BUGS, ROOT, OldBug, put_back
from tests.simulation.schedule import schedule
from tests.simulation.world import simulate

SEEDS = (*range(4), 10_001, 10_003, 30_000, 50_003, 70_007)
"""A few seeds for every run of the tests. ``.ci/run`` takes known ones and a hundred new ones, ``make soak`` more."""


@pytest.mark.parametrize("seed", SEEDS)
def test_no_schedule_of_faults_breaks_a_promise(seed: int) -> None:
    anomalies = simulate(seed).anomalies
    assert not anomalies, f"python -m tests.simulation {seed} shows the steps: " + "\n".join(anomalies)[:2000]


def test_no_schedule_of_faults_breaks_a_promise_while_a_group_changes_its_protocol() -> None:
    result = simulate(20_006, with_exchanges=True)
    assert not result.anomalies
    beats = {
        protocol: {line.split("group_id=")[1].split(",")[0] for line in result.exchanges if f" {request}(" in line}
        for protocol, request in (("classic", "HeartbeatRequest"), ("consumer", "ConsumerGroupHeartbeatRequest"))
    }
    assert beats["classic"] & beats["consumer"], "a group with members of both protocols"


def test_the_same_seed_gives_the_same_trace_in_processes_with_other_hash_seeds() -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.simulation", "10001-10003", "--trace", "--no-shrink"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )
        for hash_seed in ("1", "2")
    ]
    first, second = ([line for line in run.communicate()[0].splitlines() if "trace" in line] for run in runs)
    assert len(set(first)) == 2
    assert first == second


def test_the_same_seed_gives_the_same_trace_in_one_process() -> None:
    for seed in (3, 30_000):
        assert simulate(seed).trace == simulate(seed).trace


def test_a_schedule_is_shrunk_to_the_steps_that_matter() -> None:
    steps = schedule(7)
    culprit = Step(0.0, "kill", node=2)
    assert shrink([*steps, culprit, *steps], lambda fewer: culprit in fewer, cut_out) == [culprit]


@pytest.mark.parametrize("bug", OLD_BUGS, ids=lambda bug: bug.name)
def test_every_old_bug_can_be_put_back(bug: OldBug, tmp_path: Path) -> None:
    copy = tmp_path / bug.path
    copy.parent.mkdir(parents=True)
    shutil.copy(ROOT / bug.path, copy)
    put_back(bug, tmp_path)
    compile(copy.read_text(), bug.path, "exec")
