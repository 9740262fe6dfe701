"""A process forks after clients have started: the child is refused in every call, and the parent goes on undisturbed.

The programs run in processes of their own, because pytest has threads, and a process with threads should not fork.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not let a child use an event loop")

DEADLINE = 240
TEN = [str(number) for number in range(10)]


def facts_of(program: str, *arguments: str) -> tuple[list[list[object]], str]:
    """Return the lines that a program prints, and its standard error."""
    command = [sys.executable, "-m", f"tests.embedded.forks.{program}", *arguments]
    ended = subprocess.run(command, input="", capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()], ended.stderr


def test_every_call_of_every_client_is_refused_in_a_child_that_runs_its_parents_loop() -> None:
    facts, errors = facts_of("every_call")
    calls = [fact for fact in facts if fact[0] not in ("child", "parent")]
    assert [call for call in calls if call[2] != "refused"] == []
    assert len(calls) > 250
    assert {"Producer", "Consumer", "ConsumerGroup", "Workers", "ShareConsumer", "Admin", "ExactlyOnce"} <= {
        call[0] for call in calls
    }
    assert ["child", "exit", 0] in facts
    assert ["parent", "log", ["0", "1", "2", "3", "4"]] in facts
    assert ["parent", "end", "closed"] in facts
    assert errors == ""  # no traceback and no warning, of the child at its exit either


@pytest.mark.parametrize("scenario", ["sys.exit", "coroutine", "multiprocessing"])
def test_the_parent_goes_on_undisturbed(scenario: str) -> None:
    """Its records are written once, its member stays, its TLS connections and its files are as they were."""
    facts, _ = facts_of("undisturbed", scenario)
    refused = next(str(fact[1]) for fact in facts if fact[0] == "child")
    assert "IllegalStateError" in refused
    assert "sent" not in refused
    assert ["exit", 0] in facts
    assert ["read", TEN] in facts
    assert ["log", TEN] in facts
    assert ["generation", 1] in facts
    assert ["certificates", True] in facts
    assert ["connects", 3] in facts
    assert (["own", "dishes"] in facts) == (scenario == "multiprocessing")


def test_a_record_in_flight_at_the_fork_is_acknowledged_once_and_only_in_the_parent() -> None:
    facts, errors = facts_of("undisturbed", "in flight")
    assert "Exception in callback" not in errors
    child = next(fact for fact in facts if fact[0] == "child")
    assert "a delivery for topic 'orders' belongs to another process" in str(child[1])
    assert [fact for fact in facts if fact[0] == "reported"] == [["reported", True, True]] * 3
    assert ["settled", 7] in facts
    assert ["log", TEN[:8]] in facts


def test_a_child_that_lives_on_keeps_no_port_and_no_lock_of_its_parent() -> None:
    facts, _ = facts_of("undisturbed", "freed")
    assert facts == [["log", TEN[:5]]]


def test_a_cluster_in_a_thread_is_refused_in_a_child_and_serves_it() -> None:
    facts, _ = facts_of("undisturbed", "server")
    assert "belongs to another process" in str(facts[0][1])
    assert facts[1:] == [["own", "orders"], ["exit", 0], ["log", ["of the child"]]]
