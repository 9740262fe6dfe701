"""The marker ``kafka_simulation``: seeds in several tests, one seed by the environment, clear errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TEST = """
import pytest
from aiokafka_lite.testing.simulation import orders
from tests.embedded.simulated.classic_mistakes import billing

{marker}
def test_billing(kafka_simulation):
    assert kafka_simulation(billing, orders(5), faults=(), seconds=2.0).seeds == {seeds}
"""


def run(folder: Path, marker: str, seeds: int, *options: str, **variables: str) -> str:
    (folder / "test_billing.py").write_text(TEST.format(marker=marker, seeds=seeds))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), *options]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), **variables}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment).stdout


def test_the_seeds_of_the_marker_are_spread_over_tests(tmp_path: Path) -> None:
    output = run(tmp_path, "@pytest.mark.kafka_simulation(seeds=50)", 25, "-vv")
    assert "test_billing[seeds 0-24] PASSED" in output, output
    assert "test_billing[seeds 25-49] PASSED" in output


def test_a_variable_runs_its_seed_alone(tmp_path: Path) -> None:
    output = run(tmp_path, "@pytest.mark.kafka_simulation(seeds=50)", 1, KAFKA_SIMULATION_SEED="7")
    assert "1 passed" in output, output


@pytest.mark.parametrize(
    ("marker", "text"),
    [
        ("@pytest.mark.kafka_simulation(seeds=0)", "kafka_simulation takes seeds, a whole number >= 1"),
        ("", "needs the marker @pytest.mark.kafka_simulation"),
    ],
)
def test_a_wrong_marker_is_an_error(tmp_path: Path, marker: str, text: str) -> None:
    assert text in run(tmp_path, marker, 1)
