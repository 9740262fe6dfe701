"""The forms of --from and --to: offsets, times, and times ago."""

from __future__ import annotations

import pytest

pytest.importorskip("typer")

from aiokafka_lite.admin import Reset
from aiokafka_lite.cli.groups import parse_reset
from aiokafka_lite.cli.terminal.partitions import parse_topics
from aiokafka_lite.cli.terminal.read_range import Start, Stop, iso_time, parse_duration, parse_start, parse_stop
from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.types import TopicPartition

NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(
    "text, start",
    [
        ("earliest", Start(policy="earliest")),
        ("LATEST", Start(policy="latest")),
        ("0", Start(offset=0)),
        ("1767225600000", Start(offset=1_767_225_600_000)),
        ("@1767225600123", Start(time=1_767_225_600_123)),
        ("2026-01-01T00:00:00.123Z", Start(time=1_767_225_600_123)),
        ("2026-01-01T01:00:00+01:00", Start(time=1_767_225_600_000)),
        ("90s", Start(time=1_767_225_510_000)),
        ("1h30m", Start(time=1_767_220_200_000)),
        ("2d", Start(time=1_767_052_800_000)),
        ("99999d", Start(time=0)),
        ("-10", Start(last=10)),
    ],
)
def test_each_form_of_a_start(text: str, start: Start) -> None:
    assert parse_start(text, NOW) == start


@pytest.mark.parametrize("text", ["", "yesterday", "-", "5 parsecs", "@", "@soon", "10x", "2026-13-01"])
def test_any_other_form_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"earliest, latest, an offset \(42\), a time"):
        parse_start(text, NOW)


def test_each_form_of_an_end() -> None:
    assert parse_stop("END", NOW) == Stop()
    assert parse_stop("1h", NOW) == Stop(1_767_222_000_000)
    for text, wrong in (("later", "until must be end, a time"), ("2026-01-01T00:00:01Z", "a time in the past")):
        with pytest.raises(ConfigurationError, match=wrong):
            parse_stop(text, NOW)


def test_durations_in_every_unit() -> None:
    assert parse_duration("1d2h3m4s5ms") == 93784.005
    assert parse_duration("1.5h") == 5400
    assert parse_duration("1h 2m") is None


def test_a_printed_time_can_be_given_back() -> None:
    assert parse_start(iso_time(1_767_225_600_123), 0) == Start(time=1_767_225_600_123)
    assert iso_time(-1) == "-"
    assert iso_time(2**62) == f"@{2**62}"


@pytest.mark.parametrize(
    "to, shift, reset",
    [
        ("earliest", None, Reset.to_earliest()),
        ("Latest", None, Reset.to_latest()),
        ("current", None, Reset.to_current()),
        ("17", None, Reset.to_offset(17)),
        ("@5", None, Reset.to_timestamp(5)),
        ("10s", None, Reset.to_timestamp(1_767_225_590_000)),
        (None, -3, Reset.shift_by(-3)),
    ],
)
def test_where_a_group_is_moved(to: str | None, shift: int | None, reset: Reset) -> None:
    assert parse_reset(to, shift, None, NOW) == reset


@pytest.mark.parametrize("to, shift", [(None, None), ("earliest", 3), ("somewhere", None)])
def test_a_group_is_moved_to_one_place(to: str | None, shift: int | None) -> None:
    with pytest.raises(ValueError):
        parse_reset(to, shift, None, NOW)


def test_topics_and_single_partitions() -> None:
    whole, partitions = parse_topics(["orders", "audit:0,2"])
    assert whole == ["orders"]
    assert partitions == [TopicPartition("audit", 0), TopicPartition("audit", 2)]
    with pytest.raises(ValueError, match="some of its partitions"):
        parse_topics(["audit:all"])
