"""The comparison of instruction counts with the recorded ones."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("testcontainers.core.container")

from benchmarks.hot_operations import OPERATIONS, SAMPLES
from benchmarks.instructions import growth, samples


def test_an_operation_fails_above_five_percent_more(capsys):
    recorded = {"commit": 1000, "heartbeat": 1000, "lone send": 1000}
    counts = {"commit": 1050, "heartbeat": 1051, "lone send": 900, "async for": 7}
    assert growth(counts, recorded) == ["heartbeat"]
    assert "| heartbeat, a heartbeat | 1,051 | 1,000 | +5.1% |" in capsys.readouterr().out


def test_each_sample_is_the_dump_between_two_marks(tmp_path: Path):
    operations = [OPERATIONS["commit"], OPERATIONS["heartbeat"]]
    for number in range(1, 2 * len(operations) * SAMPLES + 1):
        (tmp_path / f"out.{number}").write_text(f"desc: x\ntotals: {number}\n")
    of_each = {
        operation.name: [total for total, _ in measured] for operation, measured in samples(tmp_path, operations)
    }
    assert of_each == {"commit": [2, 4, 6, 8, 10], "heartbeat": [12, 14, 16, 18, 20]}
