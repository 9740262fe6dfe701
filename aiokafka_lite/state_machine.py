"""State machines as tables: an Enum of states, an Enum of events, and a dict of transitions.

Every machine of this package has this form. The value of a state describes the state, and the value of an event
describes the event. docs/states.md is made from both. The table of a connection is here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias, TypeVar

from .errors import IllegalStateError

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)
Transitions: TypeAlias = Mapping[S, Mapping[E, S]]
"""``transitions[state][event]`` is the next state. A state without events is final."""


def next_state(table: Transitions[S, E], state: S, event: E) -> S:
    """Return the next state. Raises ``IllegalStateError`` if the table has no such transition."""
    following = table.get(state, {}).get(event)
    if following is None:
        allowed = ", ".join(other.name for other in table.get(state, {})) or "none"
        raise IllegalStateError(f"{event.name} is not possible in state {state.name} (possible events: {allowed})")
    return following


def mermaid(table: Transitions[S, E], start: S, direction: str = "TB") -> str:
    """Return the table as the text of a Mermaid state diagram. Events between the same two states share an arrow."""
    lines = ["stateDiagram-v2", f"    direction {direction}", f"    [*] --> {start.name}"]
    for state, events in table.items():
        arrows: dict[str, list[str]] = {}
        for event, following in events.items():
            arrows.setdefault(following.name, []).append(event.name)
        lines += [f"    {state.name} --> {following}: {', '.join(names)}" for following, names in arrows.items()]
        if not events:
            lines.append(f"    {state.name} --> [*]")
    return "\n".join(lines)


class ConnectionState(Enum):
    """The states of a connection; ``CONNECTION`` has the transitions."""

    NEW = "The connection has an address and settings; nothing has been sent."
    CONNECTING = "The host name is resolved, and its addresses are tried in turn until one accepts."
    CHECKING_API_VERSIONS = "ApiVersions is sent, in an older version if the broker does not support the newest."
    AUTHENTICATING = "SASL messages are exchanged; no other request is sent until the broker accepts the login."
    READY = "Requests are written at once, and responses arrive in the same order."
    CLOSED = "The transport is closed, and every request in flight has failed."


class ConnectionEvent(Enum):
    """The events of a connection."""

    CONNECT = "The owner opens the connection."
    CONNECTED = "An address accepted, and the TLS handshake, if any, is complete."
    VERSIONS_KNOWN = "The broker returned its versions, and no login is configured."
    AUTHENTICATION_REQUIRED = "The broker returned its versions, and SASL is configured."
    AUTHENTICATED = "The broker accepted the login."
    SESSION_EXPIRING = "The broker's session is about to expire, so the client must log in again (KIP-368)."
    CLOSE = "The user or the peer closed it, a request timed out, or the peer violated the protocol."


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
