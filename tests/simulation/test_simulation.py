"""The whole client and a cluster of three brokers under random faults, on virtual time.

``python -m tests.simulation`` searches more seeds and shrinks a failing schedule. ``SIMULATION_SEEDS=1000-2000`` makes
the test run other seeds.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from tests.simulation.schedule import Step, schedule, shrink
from tests.simulation.world import simulate


def seeds() -> range:
    first, _, last = os.environ.get("SIMULATION_SEEDS", "0-25").partition("-")
    return range(int(first), int(last) if last else int(first) + 1)


@pytest.fixture(autouse=True)
def no_logs() -> Iterator[None]:
    """Each seed logs hundreds of expected failures."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_no_schedule_of_faults_breaks_a_promise() -> None:
    broken = {seed: anomalies for seed in seeds() if (anomalies := simulate(seed).anomalies)}
    assert not broken, "python -m tests.simulation SEED shows the steps: " + str(broken)[:2000]


def test_the_same_seed_gives_the_same_trace() -> None:
    assert simulate(3).trace == simulate(3).trace
    assert simulate(3).trace != simulate(4).trace


def test_a_schedule_is_shrunk_to_the_steps_that_matter() -> None:
    steps = schedule(7)
    culprit = Step(0.0, "kill", node=2)
    assert shrink([*steps, culprit, *steps], lambda fewer: culprit in fewer) == [culprit]
