"""The log of closed connections: one line each, at most some in a time, and nothing unprintable."""

from __future__ import annotations

import logging

import pytest

from aiokafka_lite.embedded.closing_log import INTERVAL, LINES, LONGEST_REASON, ClosingLog


def test_a_flood_of_closed_connections_has_few_lines_and_their_number(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    log = ClosingLog(1, lambda: now)
    for number in range(1000):
        log.closed(f"client {number}", f"its login was refused: {number}")
    assert len(caplog.messages) == LINES
    assert caplog.messages[0] == "node 1 closed the connection of client 0: its login was refused: 0"
    now = INTERVAL
    log.closed("client x", "a frame is too large")
    assert caplog.messages[LINES:] == [
        f"node 1 closed {1000 - LINES} connections more, for these reasons or others",
        "node 1 closed the connection of client x: a frame is too large",
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    log.flush()
    assert len(caplog.messages) == LINES + 2, "every connection was logged"


def test_a_reason_that_repeats_does_not_hide_another_one(caplog: pytest.LogCaptureFixture) -> None:
    log = ClosingLog(1, lambda: 0.0)
    for number in range(1000):
        log.closed(f"client {number}", "its login was refused")
    log.closed("client x", "Metadata version 99 is not supported")
    log.flush()
    assert caplog.messages == [
        "node 1 closed the connection of client 0: its login was refused",
        "node 1 closed the connection of client x: Metadata version 99 is not supported",
        "node 1 closed 999 connections more, for these reasons or others",
    ]


def test_a_reason_is_one_printable_line_of_bounded_length(caplog: pytest.LogCaptureFixture) -> None:
    ClosingLog(1, lambda: 0.0).closed("client", "mechanism '\x1b[31m\n" + "x" * 1000)
    (line,) = caplog.messages
    assert line.isprintable()
    assert len(line) < LONGEST_REASON + 60
