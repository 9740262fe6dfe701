"""Which connection makes room for a new one, with several listeners and IP addresses."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from aiokafka_lite.embedded.connection_limits import LONGEST_SILENCE, ConnectionLimits
from aiokafka_lite.embedded.quotas import QuotaLimits, QuotaManager
from aiokafka_lite.embedded.settings.configs import ClusterSettings

OF_ALL, OF_LISTENER, OF_ADDRESS = "max.connections", "listener.name.a.max.connections", "max.connections.per.ip"


@dataclass(eq=False)
class Connection:
    """A connection that the limits see. It was accepted at the time 0, and has sent nothing."""

    listener: str
    client_address: str
    is_refused: bool = False
    silent_since: float | None = 0.0
    is_replaced: bool = False

    def replace(self) -> None:
        self.is_replaced = True


def room(configs: dict[str, str], *connections: Connection) -> tuple[bool, list[int]]:
    """Return whether the address 1 gets a connection of the listener a, and the places of the replaced connections."""
    settings = ClusterSettings(configs).of("1")

    def clock() -> float:
        return LONGEST_SILENCE + 0.1

    limits = ConnectionLimits(settings, QuotaManager(QuotaLimits(), clock, settings), clock)
    remaining = dict.fromkeys(connections)
    has_room = limits.make_room(remaining, "a", "1")
    replaced = [place for place, connection in enumerate(connections) if connection.is_replaced]
    assert [connection for connection in connections if not connection.is_replaced] == list(remaining)
    return has_room, replaced


@pytest.mark.parametrize(
    ("limit", "stranger"), [(OF_ALL, ("b", "2")), (OF_LISTENER, ("a", "2")), (OF_ADDRESS, ("b", "1"))]
)
def test_a_silent_connection_that_counts_to_the_limit_makes_room(limit: str, stranger: tuple[str, str]) -> None:
    used = Connection("a", "1", silent_since=None)
    assert room({limit: "2"}, used, Connection(*stranger)) == (True, [1])
    assert room({limit: "3"}, used, Connection(*stranger)) == (True, [])


@pytest.mark.parametrize(("limit", "stranger"), [(OF_LISTENER, ("b", "1")), (OF_ADDRESS, ("a", "2"))])
def test_a_silent_connection_that_does_not_count_to_the_limit_stays(limit: str, stranger: tuple[str, str]) -> None:
    used = Connection("a", "1", silent_since=None)
    assert room({limit: "1"}, used, Connection(*stranger)) == (False, [])


def test_the_connection_that_makes_room_counts_to_each_limit_that_is_reached() -> None:
    used, silent = Connection("a", "1", silent_since=None), Connection("b", "1", silent_since=0.05)
    assert room({OF_ALL: "3", OF_ADDRESS: "2"}, used, Connection("a", "2"), silent) == (True, [2])


def test_no_connection_is_closed_if_there_are_too_many_all_the_same() -> None:
    assert room({OF_ADDRESS: "1"}, Connection("a", "1"), Connection("a", "1")) == (False, [])
    assert room({OF_ADDRESS: "0"}, Connection("a", "2")) == (False, [])


def test_a_connection_that_is_refused_makes_no_room() -> None:
    used, refused = Connection("a", "1", silent_since=None), Connection("a", "1", is_refused=True)
    assert room({OF_ADDRESS: "1"}, used, refused) == (False, [])


def test_a_connection_that_was_opened_just_now_stays() -> None:
    assert room({OF_ALL: "1"}, Connection("a", "1", silent_since=0.2)) == (False, [])
