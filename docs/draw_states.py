"""Draw ``docs/states.md`` from the tables of all state machines: ``python docs/draw_states.py``.

Add a new machine to ``MACHINES``. A test fails if a table of the package is missing there, or if the page differs from
the tables.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from aiokafka_lite.group.requests import FINAL_CODES  # noqa: E402
from aiokafka_lite.producer.outcome import FENCED  # noqa: E402
from aiokafka_lite.state_machine import mermaid  # noqa: E402

PAGE = ROOT / "docs" / "states.md"


class Machine(NamedTuple):
    """A state machine of the page. ``table`` is the name of its dict in ``module``.

    ``order`` has the order in which the diagram names the states, and ``direction`` is that of its arrows. Both were
    chosen so that Mermaid puts no label onto another one.
    """

    title: str
    module: str
    table: str
    start: str
    about: str
    order: str = ""
    direction: str = "TB"

    @property
    def transitions(self) -> Mapping[Enum, Mapping[Enum, Enum]]:
        transitions: Mapping[Enum, Mapping[Enum, Enum]] = getattr(import_module(self.module), self.table)
        return transitions


MACHINES = [
    Machine(
        "Connection",
        "aiokafka_lite.state_machine",
        "CONNECTION",
        "NEW",
        "One connection of a client to a broker.",
        order="NEW CONNECTING CLOSED AUTHENTICATING READY CHECKING_API_VERSIONS",
    ),
    Machine(
        "Component",
        "aiokafka_lite.aio.service",
        "TRANSITIONS",
        "NEW",
        "These are the states of a component with tasks, such as a producer, a consumer, or the client that they use.",
    ),
    Machine(
        "Partition of a producer",
        "aiokafka_lite.producer.partition",
        "TRANSITIONS",
        "LEADERLESS",
        "The batches of one partition. It drains before it retries, which keeps their order.",
    ),
    Machine(
        "Transactions of a producer",
        "aiokafka_lite.producer.transactions.state",
        "TRANSITIONS",
        "UNINITIALIZED",
        "A producer with a `transactional_id`. The next transaction begins when the outcome of the last one is known.",
    ),
    Machine(
        "Position of a consumer",
        "aiokafka_lite.consumer.position",
        "POSITION",
        "UNKNOWN",
        "The position of the consumer in one assigned partition.",
        order="KNOWN LOOKING_UP UNKNOWN",
        direction="LR",
    ),
    Machine(
        "Member of a group",
        "aiokafka_lite.group.member",
        "TRANSITIONS",
        "UNJOINED",
        "A member of a group, under the classic protocol. It releases revoked partitions before it joins again.",
        order="FENCED UNJOINED JOINING FATAL SYNCING LEAVING STABLE REVOKING",
    ),
    Machine(
        "Member of a share group",
        "aiokafka_lite.share.member",
        "TRANSITIONS",
        "JOINING",
        "A member of a share group (KIP-932). An assignment takes effect at once: members may share a partition.",
        order="FAILED LEFT FENCED JOINING LEAVING STABLE",
    ),
    Machine(
        "Member of a group, consumer protocol",
        "aiokafka_lite.group.consumer_member",
        "TRANSITIONS",
        "UNJOINED",
        "A member of a group, under the consumer protocol (KIP-848). It releases revoked partitions before it "
        "acknowledges its assignment.",
    ),
    Machine(
        "Circuit breaker of Workers",
        "aiokafka_lite.processing.breaker",
        "BREAKER",
        "CLOSED",
        "The circuit breaker of `Workers`, over all partitions of a member.",
        direction="LR",
    ),
    Machine(
        "Broker of the embedded cluster",
        "aiokafka_lite.embedded.node",
        "TRANSITIONS",
        "STOPPED",
        "One broker. Tests change its state to see the reaction of clients.",
    ),
    Machine(
        "Login at the embedded cluster",
        "aiokafka_lite.embedded.security.authentication",
        "TRANSITIONS",
        "CONNECTED",
        "The login of one connection at a broker. A refused login closes the connection in every state.",
    ),
    Machine(
        "Group of the embedded cluster",
        "aiokafka_lite.embedded.coordinators.groups.group",
        "TRANSITIONS",
        "EMPTY",
        "A consumer group at its coordinator, in Kafka's own terms.",
    ),
    Machine(
        "Record of a share group of the embedded cluster",
        "aiokafka_lite.embedded.coordinators.share.partition",
        "TRANSITIONS",
        "AVAILABLE",
        "A record at its leader, between the first and the last offset that are in flight in a share group.",
        order="ARCHIVED ACKNOWLEDGED ACQUIRED AVAILABLE",
    ),
    Machine(
        "Transaction of the embedded cluster",
        "aiokafka_lite.embedded.coordinators.transactions.transaction",
        "TRANSITIONS",
        "EMPTY",
        "A transactional id at its coordinator, in Kafka's own terms.",
        order="COMPLETE_ABORT COMPLETE_COMMIT PREPARE_ABORT PREPARE_COMMIT EMPTY ONGOING PREPARE_EPOCH_FENCE DEAD",
    ),
]

HEAD = """# States

Each state machine is a table: an `Enum` of states, an `Enum` of events, and a dict of transitions. An event that the
table does not allow raises `IllegalStateError`. `docs/draw_states.py` draws this page from the tables. Change the
tables, not the page.
"""

ENDS_HEAD = """## What ends a client

A client that has started ends only for a reason that cannot pass while it runs. Everything else is tried again with a
growing pause: lost connections, timeouts, retriable codes, and refusals (a login, a certificate, a permission). A call
that waits raises a refusal at once. `health()` shows the refusal until it is over, and the log has one WARNING.

A call that fails, such as a delivery or a transaction that has to be aborted, ends no client. These are all transitions
to a state that a client cannot leave:
"""


class End(NamedTuple):
    """A transition with which a client ends for good, and its reasons. ``machines`` are the modules of its tables."""

    client: str
    machines: tuple[str, ...]
    state: str
    reasons: str


def ends() -> list[End]:
    """Return all transitions of clients to a state that only another client leaves."""
    final = ", ".join(f"`{code.name}`" for code in FINAL_CODES)
    fenced = ", ".join(f"`{code.name}`" for code in FENCED)
    return [
        End(
            "every client",
            ("aiokafka_lite.aio.service",),
            "FAILED",
            "`start()` raised: nobody answered in time, or every address speaks another protocol, or a broker refused "
            "the login or the certificate. Later: a task raised. That is an exception of a partitioner or of another "
            "callback that nobody else can get, the end of a membership (below), `UnsupportedVersion`, or a bug.",
        ),
        End(
            "member of a group, before its first assignment",
            ("aiokafka_lite.group.member", "aiokafka_lite.group.consumer_member"),
            "FATAL",
            "The coordinator refuses the join with a code that is not retriable, such as `INCONSISTENT_GROUP_PROTOCOL` "
            "or `GROUP_MAX_SIZE_REACHED`, because the settings may be wrong. A missing permission ends no member. "
            "`UNKNOWN_SERVER_ERROR` does after five retries, and `UNRELEASED_INSTANCE_ID` after `session_timeout` and "
            "15 seconds: another live member has the instance id.",
        ),
        End(
            "member of a group, later",
            ("aiokafka_lite.group.member", "aiokafka_lite.group.consumer_member"),
            "FATAL",
            f"{final}: another client has taken the instance id on purpose, a group of another type has the group id, "
            "or the coordinator does not understand this client. Also six assignments in a row that cannot be read, "
            "and a strategy that this member does not have.",
        ),
        End(
            "member of a share group",
            ("aiokafka_lite.share.member",),
            "FAILED",
            "The same codes as for a member of a group, before and after its first assignment.",
        ),
        End(
            "transactional producer",
            ("aiokafka_lite.producer.transactions.state",),
            "FATAL_ERROR",
            f"{fenced}: another producer has the transactional id, or brokers aborted the transaction at its timeout "
            "and refuse the abort as well. At the start, any refusal of InitProducerId. Later, a code that neither a "
            "retry nor an abort can help, such as `INVALID_TRANSACTION_TIMEOUT`; a missing permission is none.",
        ),
    ]


def section_of_ends() -> str:
    """Return the table of the reasons for which clients end."""
    rows = [f"| {end.client} | `{end.state}` | {end.reasons} |" for end in ends()]
    return "\n".join([ENDS_HEAD, "| client | state | reasons |", "|---|---|---|", *rows, ""])


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, section_of_ends(), *map(section, MACHINES)])


def section(machine: Machine) -> str:
    """Return one machine: its diagram, and the meaning of its states and events."""
    table = machine.transitions
    states = list(table)
    used = {event for row in table.values() for event in row}
    events = [event for event in type(next(iter(used))) if event in used]
    state_class = type(states[0])
    drawn = {
        state_class[name]: table[state_class[name]]
        for name in machine.order.split() or [state.name for state in states]
    }
    assert drawn.keys() == table.keys(), machine.title
    lines = [
        f"## {machine.title}",
        "",
        f"{machine.about} `{machine.module}.{machine.table}`",
        "",
        "```mermaid",
        mermaid(drawn, state_class[machine.start], machine.direction),
        "```",
        "",
        "| state | meaning |",
        "|---|---|",
        *(f"| `{state.name}` | {sentence(state)} |" for state in states),
        "",
        "| event | meaning |",
        "|---|---|",
        *(f"| `{event.name}` | {sentence(event)} |" for event in events),
        "",
    ]
    return "\n".join(lines)


def sentence(member: Enum) -> str:
    """Return a member's value as a sentence. A name of the code at its beginning, and each ``name()``, are shown as
    code.
    """
    text = str(member.value)
    first, _, rest = text.partition(" ")
    begin = f"`{first}`" if "(" in first or "_" in first else first[:1].upper() + first[1:]
    rest = re.sub(r"[\w.]+\(\)", r"`\g<0>`", rest)
    return " ".join(filter(None, (begin, rest))) + ("" if text.endswith(".") else ".")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
