"""Draw ``docs/states.md`` from the tables of all state machines: ``python docs/draw_states.py``.

A new machine is added to ``MACHINES``. A test fails while a table in the package is missing there, and while the page
is not what the tables say.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from aiokafka_lite.protocol.state import mermaid  # noqa: E402

PAGE = ROOT / "docs" / "states.md"


class Machine(NamedTuple):
    """A state machine as the page shows it: ``table`` is the name of its dict in ``module``."""

    title: str
    module: str
    table: str
    start: str
    about: str

    @property
    def transitions(self) -> Mapping[Enum, Mapping[Enum, Enum]]:
        found: Mapping[Enum, Mapping[Enum, Enum]] = getattr(import_module(self.module), self.table)
        return found


MACHINES = [
    Machine(
        "Connection",
        "aiokafka_lite.protocol.state",
        "CONNECTION",
        "NEW",
        "One connection of a client to a broker, from its first packet to its last.",
    ),
    Machine(
        "Component",
        "aiokafka_lite.aio.service",
        "TRANSITIONS",
        "NEW",
        "Anything that runs tasks: a producer, a consumer, the client below them.",
    ),
    Machine(
        "Partition of a producer",
        "aiokafka_lite.producer.partition",
        "TRANSITIONS",
        "LEADERLESS",
        "The batches of one partition on their way to its leader. Draining before retrying is what keeps their order.",
    ),
    Machine(
        "Position of a consumer",
        "aiokafka_lite.consumer.position",
        "POSITION",
        "UNKNOWN",
        "Where the consumer reads one assigned partition from.",
    ),
    Machine(
        "Member of a group",
        "aiokafka_lite.group.member",
        "TRANSITIONS",
        "UNJOINED",
        "A consumer in its group, under the classic protocol. Partitions are let go of before the member joins again.",
    ),
    Machine(
        "Broker of the embedded cluster",
        "aiokafka_lite.embedded.node",
        "TRANSITIONS",
        "STOPPED",
        "One node; tests move it from state to state to see what clients do.",
    ),
    Machine(
        "Group of the embedded cluster",
        "aiokafka_lite.embedded.group",
        "TRANSITIONS",
        "EMPTY",
        "A consumer group as its coordinator sees it, in Kafka's own terms.",
    ),
]

HEAD = """# States

Everything here that has a life of its own is a table: an `Enum` of states, an `Enum` of events, and a dict that says
which state follows. An event that the table does not allow raises `IllegalStateError`. This page is drawn from those
tables by `docs/draw_states.py`; change the tables, not the page.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *map(section, MACHINES)])


def section(machine: Machine) -> str:
    """One machine: its diagram, and what its states and events mean."""
    table = machine.transitions
    states = list(table)
    events = list(type(next(event for row in table.values() for event in row)))
    start = type(states[0])[machine.start]
    lines = [
        f"## {machine.title}",
        "",
        f"{machine.about} `{machine.module}.{machine.table}`",
        "",
        "```mermaid",
        mermaid(table, start),
        "```",
        "",
        "| state | while in it |",
        "|---|---|",
        *(f"| `{state.name}` | {sentence(state)} |" for state in states),
        "",
        "| event | what happened |",
        "|---|---|",
        *(f"| `{event.name}` | {sentence(event)} |" for event in events),
        "",
    ]
    return "\n".join(lines)


def sentence(member: Enum) -> str:
    """A member's value as a sentence."""
    text = str(member.value)
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
