"""State machines as tables: an Enum of states, an Enum of events, a dict from one to the other.

Every machine of this package has this form. A state's value is a sentence that says what happens *while* in it, and an
event's what happened; the documentation's diagrams are drawn from both. Here is also the table of a connection, which
both halves of ``net`` share.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias, TypeVar

from ..errors import IllegalStateError

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)
Transitions: TypeAlias = Mapping[S, Mapping[E, S]]
"""``transitions[state][event]`` is the state that follows. A state without events ends the machine."""


def next_state(table: Transitions[S, E], state: S, event: E) -> S:
    """The state that follows, or ``IllegalStateError`` when the table has no such transition."""
    following = table.get(state, {}).get(event)
    if following is None:
        allowed = ", ".join(other.name for other in table.get(state, {})) or "none"
        raise IllegalStateError(f"{event.name} cannot happen in state {state.name} (events that can: {allowed})")
    return following


def mermaid(table: Transitions[S, E], start: S) -> str:
    """The table as a Mermaid state diagram, without its fence; the same table always gives the same text."""
    lines = ["stateDiagram-v2", f"    [*] --> {start.name}"]
    for state, events in table.items():
        lines += [f"    {state.name} --> {following.name}: {event.name}" for event, following in events.items()]
        if not events:
            lines.append(f"    {state.name} --> [*]")
    return "\n".join(lines)


class ConnectionState(Enum):
    """What a connection does; see ``CONNECTION`` for how it moves."""

    NEW = "Nothing has been tried yet; the object holds an address and settings only."
    CONNECTING = "The name is resolved and its addresses are tried in turn until one accepts."
    CHECKING_API_VERSIONS = "ApiVersions is asked, with older versions of itself as long as the broker refuses."
    AUTHENTICATING = "SASL tokens go back and forth; no other request is sent until the broker has accepted them."
    READY = "Requests are written as they come and answered in that order."
    CLOSED = "The transport is gone and every request that waited for an answer has failed."


class ConnectionEvent(Enum):
    """What can happen to a connection."""

    CONNECT = "Someone asked for the connection to be opened."
    CONNECTED = "An address accepted, and where TLS is used its handshake is done."
    VERSIONS_KNOWN = "The broker said what it offers, and no authentication is needed."
    AUTHENTICATION_REQUIRED = "The broker said what it offers, and SASL is set up."
    AUTHENTICATED = "The broker accepted who we are."
    SESSION_EXPIRING = "The broker will soon want to know again who we are (KIP-368)."
    CLOSE = "The user closed it, the peer did, a request timed out, or the peer broke the protocol."


CONNECTION: Transitions[ConnectionState, ConnectionEvent] = {
    ConnectionState.NEW: {
        ConnectionEvent.CONNECT: ConnectionState.CONNECTING,
        ConnectionEvent.CLOSE: ConnectionState.CLOSED,
    },
    ConnectionState.CONNECTING: {
        ConnectionEvent.CONNECTED: ConnectionState.CHECKING_API_VERSIONS,
        ConnectionEvent.CLOSE: ConnectionState.CLOSED,
    },
    ConnectionState.CHECKING_API_VERSIONS: {
        ConnectionEvent.VERSIONS_KNOWN: ConnectionState.READY,
        ConnectionEvent.AUTHENTICATION_REQUIRED: ConnectionState.AUTHENTICATING,
        ConnectionEvent.CLOSE: ConnectionState.CLOSED,
    },
    ConnectionState.AUTHENTICATING: {
        ConnectionEvent.AUTHENTICATED: ConnectionState.READY,
        ConnectionEvent.CLOSE: ConnectionState.CLOSED,
    },
    ConnectionState.READY: {
        ConnectionEvent.SESSION_EXPIRING: ConnectionState.AUTHENTICATING,
        ConnectionEvent.CLOSE: ConnectionState.CLOSED,
    },
    ConnectionState.CLOSED: {},
}
