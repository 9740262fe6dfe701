"""docs/compatibility.md is made from test results: each counts once, under its broker, and failures are shown."""

from __future__ import annotations

from pathlib import Path

import count_tests
import pytest

from tests.pure.documents import rows

RESULTS = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" timestamp="2026-11-21T03:58:42.000000+00:00">
<testcase classname="tests.end_to_end.test_round_trip" name="test_each_acks_delivers[embedded-all]" time="0.1"/>
<testcase classname="tests.end_to_end.test_round_trip" name="test_each_compression[embedded-zstd]" time="0.1"/>
<testcase classname="tests.end_to_end.test_round_trip" name="test_each_compression[1.1.1-zstd]" time="0.1">
<skipped type="pytest.skip" message="Kafka has zstd since 2.1 (KIP-110)">somewhere</skipped></testcase>
<testcase classname="tests.end_to_end.test_groups" name="test_a_handler_reads_claims[4.3.1]" time="0.1"/>
<testcase classname="tests.end_to_end.test_groups" name="test_a_handler_reads_claims[1.1.1]" time="0.1">
<failure message="AssertionError">somewhere</failure></testcase>
<testcase classname="tests.end_to_end.test_security" name="test_a_user_logs_in[secured 4.3.1-PLAIN]" time="0.1"/>
<testcase classname="tests.end_to_end.test_command_line" name="test_the_version_is_printed" time="0.1"/>
</testsuite></testsuites>
"""


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, Path]:
    """The exit status, and the page."""
    (tmp_path / "results.xml").write_text(RESULTS)
    monkeypatch.setattr(count_tests, "PAGE", tmp_path / "page.md")
    return count_tests.main([tmp_path / "results.xml"]), tmp_path / "page.md"


def test_each_test_counts_once_under_its_broker(written: tuple[int, Path]) -> None:
    of_brokers = {row.cells["broker"]: row.cells for row in rows(written[1]) if "broker" in row.cells}
    assert list(of_brokers) == ["embedded", "4.3.1", "1.1.1"]
    assert list(of_brokers["embedded"].values()) == ["embedded", "1", "1", "–", "–"]
    assert list(of_brokers["embedded"]) == ["broker", "produce, consume", "zstd", "groups", "TLS, SASL"]
    assert of_brokers["4.3.1"]["groups"] == of_brokers["4.3.1"]["TLS, SASL"] == "1"
    assert of_brokers["1.1.1"]["zstd"] == "–"


def test_a_failure_is_shown_and_is_the_exit_status(written: tuple[int, Path]) -> None:
    status, page = written
    assert status == 1
    assert "**1 failed**" in page.read_text()


def test_the_page_has_the_reasons_of_skipped_tests_and_the_day(written: tuple[int, Path]) -> None:
    text = written[1].read_text()
    assert "| 1.1.1 | Kafka has zstd since 2.1 (KIP-110) |" in text
    assert "on 2026-11-21." in text


def test_the_page_has_only_brokers_and_columns_that_there_are() -> None:
    cells = [row.cells for row in rows(count_tests.PAGE) if "broker" in row.cells]
    assert cells
    assert {row["broker"] for row in cells} <= set(count_tests.BROKERS)
    assert set(cells[0]) - {"broker"} <= {feature.title for feature in count_tests.FEATURES} | {count_tests.ALL_ELSE}
    assert not any("failed" in cell for row in cells for cell in row.values())
