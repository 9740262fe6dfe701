"""docs/states.md has the table of every state machine, and every table has the same form."""

from __future__ import annotations

import re
from enum import Enum
from itertools import product
from pathlib import Path
from typing import Any

import draw_states
import pytest

from aiokafka_lite.errors import IllegalStateError
from aiokafka_lite.state_machine import next_state

ROOT = Path(__file__).resolve().parents[2]
CONSUMER_PROTOCOL = "aiokafka_lite.group.consumer_member"
each_machine = pytest.mark.parametrize("machine", draw_states.MACHINES, ids=lambda machine: machine.title)
A_TABLE = re.compile(
    r"^(\w+): (?:Final\[)?(?:Transitions\[|(?:dict|Mapping)\[\w+State, (?:dict|Mapping)\[)", re.MULTILINE
)


def test_the_page_is_what_the_tables_say() -> None:
    assert draw_states.PAGE.read_text(encoding="utf-8") == draw_states.page(), "run: python docs/draw_states.py"


def test_every_table_of_the_package_is_on_the_page() -> None:
    tables = {
        (".".join(path.relative_to(ROOT).with_suffix("").parts), name)
        for path in (ROOT / "aiokafka_lite").rglob("*.py")
        for name in A_TABLE.findall(path.read_text(encoding="utf-8"))
    }
    assert tables == {(machine.module, machine.table) for machine in draw_states.MACHINES}


def test_every_end_of_a_client_has_its_reasons_on_the_page() -> None:
    """An end is a state that is left neither by its own table nor by closing the client."""
    ends = {
        (machine.module, state.name)
        for machine in draw_states.MACHINES
        if not machine.module.startswith("aiokafka_lite.embedded")
        for state, row in machine.transitions.items()
        if set(row.values()) <= {state} and state.name not in ("CLOSED", "LEFT")
    }
    assert ends == {(module, end.state) for end in draw_states.ends() for module in end.machines}


def of_both_protocols(kind: type[Enum]) -> set[Enum]:
    """Return the states or events that a machine must have. The consumer protocol has no SYNCING, and the same
    enums."""
    return {state for state in kind if state.name not in ("SYNCING", "SYNCED")}


@each_machine
def test_every_state_is_in_its_table_and_can_be_reached(machine: Any) -> None:
    table = machine.transitions
    states: type[Enum] = type(next(iter(table)))
    expected = of_both_protocols(states) if machine.module == CONSUMER_PROTOCOL else set(states)
    assert set(table) == expected
    reached, ahead = set(), [states[machine.start]]
    while ahead:
        state = ahead.pop()
        if state not in reached:
            reached.add(state)
            ahead += table[state].values()
    assert reached == expected


@each_machine
def test_every_event_happens_somewhere_and_says_what_it_is(machine: Any) -> None:
    table = machine.transitions
    used = {event for row in table.values() for event in row}
    kind: type[Enum] = type(next(iter(used)))
    events = of_both_protocols(kind) if machine.module == CONSUMER_PROTOCOL else set(kind)
    assert used == events
    for member in [*table, *events]:
        assert isinstance(member.value, str), member
        assert member.value, member


@each_machine
def test_the_whole_product_of_states_and_events_follows_the_table_or_is_refused(machine: Any) -> None:
    table = machine.transitions
    events = type(next(event for row in table.values() for event in row))
    for state, event in product(table, events):
        if event in table[state]:
            assert next_state(table, state, event) is table[state][event]
        else:
            with pytest.raises(IllegalStateError):
                next_state(table, state, event)
