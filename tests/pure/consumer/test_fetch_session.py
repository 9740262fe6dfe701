"""The client's memory of a fetch session against a model of the broker's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite.consumer.fetch.session import EPOCH_MAX, FetchSession, SessionRequest
from aiokafka_lite.errors import ErrorCode


def request(session: FetchSession[str, int], targets: dict[str, int]) -> SessionRequest[str, int]:
    """Return the next request, if exactly ``wanted`` is to be fetched."""
    for key in [key for key in session.wanted if key not in targets]:
        session.drop(key)
    for key, value in targets.items():
        session.want(key, value)
    return session.next()


def established(targets: dict[str, int]) -> FetchSession[str, int]:
    """Return a session with id 7 in which the broker remembers ``wanted``."""
    session: FetchSession[str, int] = FetchSession()
    request(session, targets)
    session.answered(7)
    return session


def test_the_first_request_names_everything_and_asks_for_a_session() -> None:
    session: FetchSession[str, int] = FetchSession()
    next_request = request(session, {"a": 1, "b": 2})
    assert (next_request.session_id, next_request.epoch, next_request.full) == (0, 0, True)
    assert list(next_request.send.items()) == [("a", 1), ("b", 2)]
    assert next_request.forget == ()


def test_later_requests_name_only_what_changed() -> None:
    session = established({"a": 1, "b": 2, "c": 3})
    next_request = request(session, {"a": 1, "b": 5, "d": 4})
    assert (next_request.session_id, next_request.epoch) == (7, 1)
    assert next_request.send == {"b": 5, "d": 4}
    assert next_request.forget == ("c",)
    session.answered(7)
    assert request(session, {"a": 1, "b": 5, "d": 4}).send == {}


def test_a_broker_without_sessions_always_gets_full_requests() -> None:
    session: FetchSession[str, int] = FetchSession()
    for _ in range(3):
        next_request = request(session, {"a": 1})
        assert (next_request.session_id, next_request.epoch, next_request.send) == (0, 0, {"a": 1})
        session.answered(0)


def test_the_partition_that_changed_last_is_requested_last() -> None:
    session = established({"a": 1, "b": 2, "c": 3})
    request(session, {"a": 1, "b": 9, "c": 3})
    session.lost()
    assert list(session.next().send) == ["a", "c", "b"]


def test_a_change_while_a_request_is_in_flight_is_in_the_next_request() -> None:
    session = established({"a": 1, "b": 2})
    request(session, {"a": 5, "b": 2})
    session.drop("b")
    session.want("a", 6)
    session.answered(7)
    next_request = session.next()
    assert (next_request.send, next_request.forget) == ({"a": 6}, ("b",))


def test_an_incremental_request_looks_at_the_changed_partitions_only() -> None:
    class Counted(int):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return int(self) == other

        __hash__ = int.__hash__

    session: FetchSession[int, Counted] = FetchSession()
    for key in range(1_000):
        session.want(key, Counted(key))
    session.next()
    session.answered(7)
    Counted.compared = 0
    session.want(3, Counted(4))
    session.drop(5)
    next_request = session.next()
    assert (next_request.send, next_request.forget) == ({3: 4}, (5,))
    assert Counted.compared <= 5


@pytest.mark.parametrize(
    "error, session_id",
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),  # there is no partition to replace
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 7),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 7),
    ],
)
def test_an_error_of_the_session_leads_to_a_full_request(error: ErrorCode, session_id: int) -> None:
    session = established({"a": 1})
    request(session, {"a": 1})
    session.answered(0, error)
    next_request = request(session, {"a": 1})
    assert (next_request.session_id, next_request.epoch, next_request.send) == (session_id, 0, {"a": 1})


def test_an_answer_with_another_session_id_leads_to_a_full_request() -> None:
    session = established({"a": 1})
    request(session, {"a": 1})
    session.answered(8)
    assert request(session, {"a": 1}).full


def test_a_lost_answer_replaces_the_session() -> None:
    session = established({"a": 1})
    request(session, {"a": 2})
    session.lost()
    next_request = request(session, {"a": 2})
    assert (next_request.session_id, next_request.epoch, next_request.send) == (7, 0, {"a": 2})
    session.answered(9)
    assert (session.session_id, session.epoch) == (9, 1)


def test_the_epoch_wraps_to_one_as_zero_means_a_new_session() -> None:
    session = established({})
    session.epoch = EPOCH_MAX
    request(session, {})
    session.answered(7)
    assert session.epoch == 1


class Broker:
    """A model of a broker's fetch sessions; it may evict them at any time."""

    def __init__(self) -> None:
        self.sessions: dict[int, tuple[int, dict[str, int]]] = {}
        self.next_id = 100

    def handle(
        self, session_id: int, epoch: int, send: dict[str, int], forget: tuple[str, ...]
    ) -> tuple[int, ErrorCode]:
        if epoch == 0:
            self.sessions.pop(session_id, None)
            self.next_id += 1
            self.sessions[self.next_id] = (1, dict(send))
            return self.next_id, ErrorCode.NONE
        if session_id not in self.sessions:
            return 0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        expected, remembered = self.sessions[session_id]
        if epoch != expected:
            return 0, ErrorCode.INVALID_FETCH_SESSION_EPOCH
        for key in forget:
            del remembered[key]  # to forget an unknown partition is an error of the client
        remembered.update(send)
        self.sessions[session_id] = (expected + 1, remembered)
        return session_id, ErrorCode.NONE


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3)),
            st.sampled_from(["answered", "answered", "lost before", "lost after", "evicted"]),
        ),
        max_size=30,
    )
)
def test_broker_and_client_agree_whichever_answers_are_lost(steps: list[tuple[dict[str, int], str]]) -> None:
    broker, session = Broker(), FetchSession[str, int]()
    for targets, outcome in steps:
        if outcome == "evicted":
            broker.sessions.clear()
        next_request = request(session, targets)
        if outcome == "lost before":
            session.lost()
            continue
        session_id, error = broker.handle(
            next_request.session_id, next_request.epoch, next_request.send, next_request.forget
        )
        if error is ErrorCode.NONE:
            assert broker.sessions[session_id][1] == targets
        if outcome == "lost after":
            session.lost()
        else:
            session.answered(session_id, error)
        assert len(broker.sessions) <= 1 + sum(outcome.startswith("lost") for _, outcome in steps)
