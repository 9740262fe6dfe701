"""State machines as tables: the rules for every table, and the table of a connection."""

from __future__ import annotations

from enum import Enum

import pytest

from aiokafka_lite.errors import IllegalStateError
from aiokafka_lite.state_machine import mermaid, next_state


class Light(Enum):
    RED = "All cars wait."
    GREEN = "All cars drive."
    DARK = "The light is broken."


class Signal(Enum):
    TURN = "Time is up."
    BREAK = "A stone was thrown."
    CAR = "A car waits."


LIGHTS = {
    Light.RED: {Signal.TURN: Light.GREEN, Signal.BREAK: Light.DARK, Signal.CAR: Light.GREEN},
    Light.GREEN: {Signal.TURN: Light.RED},
    Light.DARK: {},
}


def test_the_table_gives_the_next_state() -> None:
    assert next_state(LIGHTS, Light.RED, Signal.TURN) is Light.GREEN


def test_an_impossible_event_is_refused_and_the_possible_ones_are_named() -> None:
    with pytest.raises(IllegalStateError, match=r"BREAK is not possible in state GREEN \(possible events: TURN\)"):
        next_state(LIGHTS, Light.GREEN, Signal.BREAK)
    with pytest.raises(IllegalStateError, match=r"TURN is not possible in state DARK \(possible events: none\)"):
        next_state(LIGHTS, Light.DARK, Signal.TURN)


def test_a_table_is_drawn() -> None:
    assert mermaid(LIGHTS, Light.RED).splitlines() == [
        "stateDiagram-v2",
        "    direction TB",
        "    [*] --> RED",
        "    RED --> GREEN: TURN, CAR",
        "    RED --> DARK: BREAK",
        "    GREEN --> RED: TURN",
        "    DARK --> [*]",
    ]
