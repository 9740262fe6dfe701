"""Tests that share a broker or a Spark session run in one worker process."""

from __future__ import annotations

import pytest

from tests.real.worker_groups import group_of, is_short


@pytest.mark.parametrize(
    "nodeid, group",
    [
        ("tests/end_to_end/test_groups.py::test_a_group[4.3.1-ConfluentPeer-range-ours]", "4.3.1"),
        ("tests/end_to_end/test_groups.py::test_a_group[ConfluentPeer-range-ours-2.8.2]", "2.8.2"),
        ("tests/end_to_end/test_group_churn.py::test_members_join_and_leave[4.3.1]", "4.3.1 processes"),
        ("tests/end_to_end/test_group_churn.py::test_members_join_and_leave[1.1.1]", "1.1.1"),
        ("tests/end_to_end/test_outbox.py::test_rows_are_sent[4.3.1-asyncpg]", "4.3.1 services"),
        ("tests/end_to_end/test_security.py::test_login[secured 4.3.1-PLAIN]", "secured 4.3.1"),
        ("tests/end_to_end/test_round_trip.py::test_records[given]", "given"),
        ("tests/end_to_end/test_differential.py::test_answers[17]", "4.3.1"),
        ("tests/end_to_end/test_producer_under_faults.py::test_leaders_move[embedded]", "three brokers"),
        ("tests/spark/test_sink.py::test_rows_are_written[4.3.1]", "spark"),
        ("tests/spark/test_sink_kills.py::test_a_query_is_killed", "spark processes"),
        ("tests/site/test_site.py::test_no_link_within_the_site_is_dead", "site"),
    ],
)
def test_tests_on_one_broker_are_one_group(nodeid: str, group: str) -> None:
    assert group_of(nodeid) == group


@pytest.mark.parametrize(
    "nodeid",
    [
        "tests/end_to_end/test_groups.py::test_a_group[embedded]",
        "tests/embedded/broker/test_other_clients.py::test_any_release[1.1.1]",
        "tests/pure/test_config.py::test_a_setting",
    ],
)
def test_other_tests_are_groups_of_their_own(nodeid: str) -> None:
    assert group_of(nodeid) == nodeid


def test_only_tests_of_the_folders_without_processes_are_short() -> None:
    """Short tests run last, so that no worker begins with a long one when the others have ended."""
    assert is_short("tests/embedded/broker/test_other_clients.py::test_any_release[1.1.1]")
    assert not is_short("tests/end_to_end/test_groups.py::test_a_group[embedded]")
