"""``make bench`` on a machine that lacks a language, and the tables of its report."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("testcontainers.core.container")

from benchmarks import peers
from benchmarks.bench import scaled
from benchmarks.cells import all_cells
from benchmarks.peers import CONNECTOR, GO, JAVA, PYTHON, SPARK, Peers
from benchmarks.report import report

SETUP = {
    "date": "2026-11-29",
    "build": "compiled",
    "python": "CPython 3.11.7",
    "kafka": "Apache Kafka",
    "machine": "2 cores",
    "peers": "aiokafka 0.14.0",
    "partitions": "4",
    "rounds": "2",
    "load": "3",
}


def test_without_go_and_java_their_candidates_are_left_out(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(peers, "BUILT", tmp_path)
    monkeypatch.setenv("PATH", "")
    programs = Peers()
    programs.build()
    assert programs.problems.items() >= {GO: "no go is installed", JAVA: "no javac is installed"}.items()
    assert CONNECTOR in programs.problems
    candidates = [candidate for cell in all_cells() for candidate in scaled(cell, 1.0, programs).candidates]
    assert {candidate.program for candidate in candidates} - {SPARK} == {
        PYTHON
    }  # whether Spark runs is not of the PATH


def test_the_report_says_what_is_left_out_and_what_failed():
    ours, theirs = {"wall": 2.0, "cpu": 1.0, "memory": 3e7}, {"wall": 1.0, "cpu": 3.0, "memory": 6e7}
    cell = {
        "title": "produce 100 B",
        "kind": "produce",
        "count": 1_000_000,
        "size": 100,
        "unit": "record",
        "results": {"ours": [ours, ours], "theirs": [theirs, None], "broken": [None, None]},
        "problems": {"broken": "no route"},
    }
    text = report({"setup": {**SETUP, "missing": {GO: "no go is installed"}}, "cells": [cell]})
    assert "- The rows of go are left out: no go is installed." in text
    assert "with a load of 3 when the run began" in text
    assert "| ours | 500,000 (500,000 – 500,000) | 50 | 1.00 (1.00 – 1.00) | 1.00 | 1.00 | 30 |" in text
    assert "| theirs | 1,000,000 (1,000,000 – 1,000,000) | 100 | 3.00 (3.00 – 3.00) | 2.00 | 3.00 | 60 |" in text
    assert "| broken | failed: no route |" in text
