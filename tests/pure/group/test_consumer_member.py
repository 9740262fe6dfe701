"""The state machine of a member under the consumer protocol: its reaction to each answer, and its invariants."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import pytest

from aiokafka_lite.errors import BrokerError, ConnectionLost, ErrorCode, UnsupportedVersion
from aiokafka_lite.group.consumer_member import TRANSITIONS, ConsumerMember
from aiokafka_lite.group.events import (
    Action,
    Assign,
    Close,
    ConsumerHeartbeatAnswer,
    Event,
    Fail,
    HeartbeatDue,
    LeaveAnswer,
    Lose,
    MembershipRefused,
    PauseHeartbeat,
    Polled,
    PollOverdue,
    Released,
    Report,
    RequestFailed,
    ResolveTopics,
    Revoke,
    SendHeartbeat,
    Subscribe,
    TopicsNamed,
)
from aiokafka_lite.group.instance_id import RELEASES
from aiokafka_lite.group.payloads import MAX_ASSIGNED
from aiokafka_lite.group.requests import SHORTEST_INTERVAL
from aiokafka_lite.group.states import MemberEvent, MemberState
from aiokafka_lite.protocol.messages import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from tests.pure.group.member_driver import only, tp

IDS = {"t": b"t" * 16, "u": b"u" * 16}
NAMES = {topic_id: name for name, topic_id in IDS.items()}


class Driver:
    """A member, and a coordinator whose answers the test chooses."""

    def __init__(self, instance_id: str | None = None, assignor: str | None = None) -> None:
        numbers = itertools.count(1)
        self.member = ConsumerMember(
            "g",
            rebalance_timeout=60.0,
            instance_id=instance_id,
            assignor=assignor,
            rack="r",
            new_id=lambda: f"m{next(numbers)}",
        )
        self.epoch = 0
        self.last: SendHeartbeat | PauseHeartbeat | None = None

    @property
    def state(self) -> MemberState:
        return self.member.state

    def handle(self, event: Event) -> list[Action]:
        actions = self.member.handle(event)
        for action in actions:
            if isinstance(action, SendHeartbeat | PauseHeartbeat):
                self.last = action
        return actions

    @property
    def sent(self) -> SendHeartbeat:
        assert isinstance(self.last, SendHeartbeat), self.last
        return self.last

    def subscribe(self, *topics: str) -> SendHeartbeat:
        return only(self.handle(Subscribe(frozenset(topics or ("t",)))), SendHeartbeat)

    def answer(
        self, assigned: Mapping[str, Iterable[int]] | None = None, *, names: Mapping[bytes, str] = NAMES
    ) -> list[Action]:
        """Return the answer to the last heartbeat, in the next epoch if it assigns partitions."""
        self.epoch += assigned is not None
        assignment = None
        if assigned is not None:
            assignment = ConsumerGroupHeartbeatAssignment(
                topic_partitions=[
                    ConsumerGroupHeartbeatTopicPartitions(topic_id=IDS[name], partitions=list(numbers))
                    for name, numbers in assigned.items()
                ]
            )
        response = ConsumerGroupHeartbeatResponse(
            error_code=0, member_epoch=self.epoch, heartbeat_interval_ms=5000, assignment=assignment
        )
        return self.handle(ConsumerHeartbeatAnswer(self.sent.attempt, response, names))

    def refuse(self, code: ErrorCode, *, at: float = 0.0) -> list[Action]:
        response = ConsumerGroupHeartbeatResponse(error_code=code, member_epoch=0, heartbeat_interval_ms=0)
        return self.handle(ConsumerHeartbeatAnswer(self.sent.attempt, response, NAMES, answered_at=at))

    def due(self) -> SendHeartbeat:
        assert isinstance(self.last, PauseHeartbeat), self.last
        return only(self.handle(HeartbeatDue(self.last.attempt)), SendHeartbeat)

    def settle(self, *numbers: int) -> Driver:
        """Join, own these partitions, and acknowledge them."""
        self.subscribe()
        self.answer({"t": numbers})
        if numbers:
            self.answer()
        assert self.state is MemberState.STABLE
        return self

    def revoke(self, *numbers: int) -> Revoke:
        """Return a heartbeat revokes all partitions except these."""
        self.due()
        revoke, _ = self.answer({"t": numbers})
        assert isinstance(revoke, Revoke)
        return revoke


def owned_in(heartbeat: SendHeartbeat) -> dict[bytes, list[int]] | None:
    owned = heartbeat.request.topic_partitions
    return None if owned is None else {topic.topic_id: topic.partitions for topic in owned}


# Joining, and which fields are sent.


def test_the_first_heartbeat_joins_with_all_fields_under_an_id_of_the_members_own() -> None:
    request = Driver(instance_id="i", assignor="range").subscribe("u", "t").request
    assert (request.member_id, request.member_epoch, request.instance_id) == ("m1", 0, "i")
    assert (request.rack_id, request.rebalance_timeout_ms, request.server_assignor) == ("r", 60_000, "range")
    assert (request.subscribed_topic_names, request.topic_partitions) == (["t", "u"], [])


def test_an_assignment_is_handed_over_and_acknowledged_at_once() -> None:
    driver = Driver()
    driver.subscribe()
    assign, acknowledgement = driver.answer({"t": (1, 0)})
    assert assign == Assign(tp(0, 1), frozenset(tp(0, 1)))
    assert isinstance(acknowledgement, SendHeartbeat)
    assert owned_in(acknowledgement) == {IDS["t"]: [0, 1]}
    assert driver.state is MemberState.STABLE


def test_later_heartbeats_have_changed_fields_only() -> None:
    driver = Driver(instance_id="i", assignor="range").settle(0)
    request = driver.due().request
    assert (request.member_id, request.member_epoch, request.instance_id) == ("m1", 1, "i")
    assert (request.rack_id, request.rebalance_timeout_ms, request.server_assignor) == (None, -1, None)
    assert (request.subscribed_topic_names, request.topic_partitions) == (None, None)


def test_the_coordinator_sets_the_interval_of_heartbeats_but_cannot_make_a_hot_loop() -> None:
    driver = Driver()
    driver.subscribe()
    response = ConsumerGroupHeartbeatResponse(error_code=0, member_epoch=1, heartbeat_interval_ms=0)
    assign, pause = driver.handle(ConsumerHeartbeatAnswer(driver.sent.attempt, response, NAMES))
    assert assign == Assign((), frozenset())
    assert isinstance(pause, PauseHeartbeat)
    assert pause.seconds == SHORTEST_INTERVAL


@pytest.mark.parametrize("numbers", [(), (0,)], ids=["without partitions", "with partitions"])
def test_heartbeats_after_an_assignment_are_sent_early(numbers: tuple[int, ...]) -> None:
    driver = Driver().settle(*numbers)
    pauses = []
    for _ in range(6):
        assert isinstance(driver.last, PauseHeartbeat)
        pauses.append(driver.last.seconds)
        driver.due()
        driver.answer()
    assert pauses == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_a_subscription_that_changes_is_sent_at_once_unless_a_heartbeat_is_in_flight() -> None:
    driver = Driver().settle(0)
    assert driver.subscribe("t", "u").request.subscribed_topic_names == ["t", "u"]
    assert driver.handle(Subscribe(frozenset({"t"}))) == []
    assert only(driver.answer(), SendHeartbeat).request.subscribed_topic_names == ["t"]


def test_a_failed_heartbeat_is_repeated_with_all_fields_after_a_backoff() -> None:
    driver = Driver().settle(0)
    heartbeat = driver.due()
    pause = only(driver.handle(RequestFailed(heartbeat.attempt, ConnectionLost("", sent=True), True)), PauseHeartbeat)
    assert pause.seconds is None
    assert driver.handle(Subscribe(frozenset({"t", "u"}))) == []  # nothing cuts the backoff short
    again = driver.due()
    assert (again.request.member_epoch, again.request.subscribed_topic_names) == (1, ["t", "u"])
    assert owned_in(again) == {IDS["t"]: [0]}
    assert again.request.rebalance_timeout_ms == 60_000


# Revoking.


def test_partitions_are_released_before_the_heartbeat_that_acknowledges_it() -> None:
    driver = Driver().settle(0, 1)
    revoke = driver.revoke(0)
    assert revoke.partitions == tp(1)
    assert driver.state is MemberState.REVOKING
    assert owned_in(driver.due()) is None  # unchanged: the reader still has both
    driver.answer()
    assign, acknowledgement = driver.handle(Released(revoke.number))
    assert assign == Assign((), frozenset(tp(0)))  # a handler's session begins again
    assert isinstance(acknowledgement, SendHeartbeat)
    assert owned_in(acknowledgement) == {IDS["t"]: [0]}
    assert driver.state is MemberState.STABLE


def test_an_assignment_that_comes_during_a_revocation_waits_for_its_end() -> None:
    driver = Driver().settle(0, 1)
    revoke = driver.revoke(0)
    driver.due()
    only(driver.answer({"t": (0, 2)}), PauseHeartbeat)
    assign, acknowledgement = driver.handle(Released(revoke.number))
    assert assign == Assign(tp(2), frozenset(tp(0, 2)))
    assert isinstance(acknowledgement, SendHeartbeat)
    assert owned_in(acknowledgement) == {IDS["t"]: [0, 2]}


def test_topics_that_are_no_longer_subscribed_are_released_without_waiting_for_the_coordinator() -> None:
    driver = Driver()
    driver.subscribe("t", "u")
    driver.answer({"t": (0,), "u": (0,)})
    driver.answer()
    revoke, heartbeat = driver.handle(Subscribe(frozenset({"t"})))
    assert isinstance(revoke, Revoke)
    assert revoke.partitions == tp(0, topic="u")
    assert isinstance(heartbeat, SendHeartbeat)
    assert heartbeat.request.subscribed_topic_names == ["t"]
    assert owned_in(heartbeat) is None


def test_a_topic_that_metadata_does_not_know_is_assigned_once_its_name_is_known() -> None:
    driver = Driver()
    driver.subscribe("t", "u")
    assign, resolve, acknowledgement = driver.answer({"t": (0,), "u": (0,)}, names={IDS["t"]: "t"})
    assert assign == Assign(tp(0), frozenset(tp(0)))
    assert isinstance(resolve, ResolveTopics)
    assert isinstance(acknowledgement, SendHeartbeat)
    assert driver.handle(TopicsNamed({})) == []
    assert only(driver.handle(TopicsNamed({IDS["u"]: "u"})), Assign).added == tp(0, topic="u")
    assert not driver.member.has_unnamed_topics
    assert owned_in(only(driver.answer(), SendHeartbeat)) == {IDS["t"]: [0], IDS["u"]: [0]}


# Refusals.


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_a_fenced_member_loses_its_partitions_and_joins_again_under_its_id(code: ErrorCode) -> None:
    driver = Driver().settle(0)
    driver.due()
    lose = only(driver.refuse(code), Lose)
    assert lose.partitions == tp(0)
    assert driver.member.generation < 0  # nothing is committed
    assert only(driver.handle(Released(lose.number)), PauseHeartbeat).seconds is None
    again = driver.due().request
    assert (again.member_id, again.member_epoch, again.topic_partitions) == ("m1", 0, [])


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ],
)
def test_a_refused_join_that_no_retry_can_help_is_fatal(code: ErrorCode) -> None:
    driver = Driver()
    driver.subscribe()
    fail = only(driver.refuse(code), Fail)
    assert isinstance(fail.error, BrokerError)
    assert fail.error.code is code
    assert "'g'" in str(fail.error)
    assert driver.state is MemberState.FATAL


def test_a_static_member_that_the_coordinator_may_have_releases_its_id_and_joins_again() -> None:
    driver = Driver("i")
    joining = driver.subscribe()
    driver.handle(RequestFailed(joining.attempt, ConnectionLost("", sent=True), True))
    driver.due()
    for _ in range(RELEASES):
        leaving = only(driver.refuse(ErrorCode.UNRELEASED_INSTANCE_ID), SendHeartbeat)
        assert (leaving.request.member_id, leaving.request.member_epoch) == ("m1", -2)
        again = only(driver.handle(LeaveAnswer(leaving.attempt)), SendHeartbeat)
        assert (again.request.member_id, again.request.member_epoch) == ("m1", 0)
    # Another member has it: perhaps a process that died, whose session has not ended.
    report, _ = driver.refuse(ErrorCode.UNRELEASED_INSTANCE_ID, at=100.0)
    assert isinstance(report, Report)
    driver.due()
    report, _ = driver.refuse(ErrorCode.UNRELEASED_INSTANCE_ID, at=159.0)
    assert isinstance(report, Report)
    driver.due()
    only(driver.refuse(ErrorCode.UNRELEASED_INSTANCE_ID, at=160.0), Fail)


def test_an_unknown_server_error_is_retried_five_times_by_a_join_and_without_a_bound_by_a_member() -> None:
    driver = Driver()
    driver.subscribe()
    for _ in range(5):
        only(driver.refuse(ErrorCode.UNKNOWN_SERVER_ERROR), PauseHeartbeat)
        driver.due()
    only(driver.refuse(ErrorCode.UNKNOWN_SERVER_ERROR), Fail)
    driver = Driver().settle()
    for _ in range(10):
        driver.due()
        only(driver.refuse(ErrorCode.UNKNOWN_SERVER_ERROR), PauseHeartbeat)


@pytest.mark.parametrize(
    "epoch,numbers,problem",
    [
        (0, [], "epoch 0"),
        (1, [3, -1], "an assigned partition with the number -1"),
        (1, [2**31 - 1], "an assigned partition with the number 2147483647"),
        (1, [0] * (MAX_ASSIGNED + 1), "100001 partitions"),
    ],
    ids=["no epoch", "negative partition", "partition 2^31-1", "too many partitions"],
)
def test_an_answer_that_makes_no_sense_is_reported_and_retried(epoch: int, numbers: list[int], problem: str) -> None:
    driver = Driver()
    driver.subscribe()
    assigned = ConsumerGroupHeartbeatTopicPartitions(topic_id=IDS["t"], partitions=numbers)
    response = ConsumerGroupHeartbeatResponse(
        error_code=0,
        member_epoch=epoch,
        heartbeat_interval_ms=5000,
        assignment=ConsumerGroupHeartbeatAssignment(topic_partitions=[assigned]),
    )
    report, pause = driver.handle(ConsumerHeartbeatAnswer(driver.sent.attempt, response, NAMES))
    assert isinstance(report, Report)
    assert problem in str(report.error)
    assert isinstance(pause, PauseHeartbeat)
    assert pause.seconds is None


def test_a_request_that_cannot_succeed_ends_the_membership() -> None:
    driver = Driver()
    heartbeat = driver.subscribe()
    fail = only(driver.handle(RequestFailed(heartbeat.attempt, UnsupportedVersion("old"), retriable=False)), Fail)
    assert isinstance(fail.error, UnsupportedVersion)


def test_a_stale_epoch_of_a_commit_makes_the_next_heartbeat_due() -> None:
    driver = Driver().settle(0)
    refused = MembershipRefused(driver.member.identity, ErrorCode.STALE_MEMBER_EPOCH)
    only(driver.handle(refused), SendHeartbeat)
    assert driver.handle(refused) == []  # the heartbeat is in flight


# Leaving.


@pytest.mark.parametrize(
    "instance_id,leave,epoch", [(None, True, -1), (None, False, None), ("i", True, -1), ("i", False, -2)]
)
def test_a_member_that_closes_releases_its_partitions_and_then_leaves(
    instance_id: str | None, leave: bool, epoch: int | None
) -> None:
    driver = Driver(instance_id).settle(0)
    revoke = only(driver.handle(Close(leave)), Revoke)
    assert revoke.closing
    actions = driver.handle(Released(revoke.number))
    if epoch is None:
        assert actions == []
    else:
        leaving = only(actions, SendHeartbeat)
        assert leaving.leaves
        assert (leaving.request.member_epoch, leaving.request.instance_id) == (epoch, instance_id)
        assert driver.handle(LeaveAnswer(leaving.attempt)) == []
    assert driver.member.is_gone


@pytest.mark.parametrize("code,epochs", [(ErrorCode.FENCED_MEMBER_EPOCH, [-1]), (ErrorCode.UNKNOWN_MEMBER_ID, [])])
def test_a_fenced_member_that_closes_leaves_if_the_coordinator_still_has_it(code: ErrorCode, epochs: list[int]) -> None:
    driver = Driver().settle(0)
    driver.due()
    lose = only(driver.refuse(code), Lose)
    assert driver.handle(Close(leave=True)) == []
    sent = driver.handle(Released(lose.number))
    assert [action.request.member_epoch for action in sent if isinstance(action, SendHeartbeat)] == epochs


def test_a_member_that_closes_commits_under_the_epoch_of_the_heartbeat_in_flight() -> None:
    driver = Driver().settle(0)
    driver.due()
    revoke = only(driver.handle(Close(leave=True)), Revoke)
    assert driver.answer({"t": (0, 1)}) == []
    assert driver.member.generation == 2
    assert only(driver.handle(Released(revoke.number)), SendHeartbeat).leaves


def test_a_static_member_that_does_not_poll_can_still_leave_for_good() -> None:
    driver = Driver("i").settle(0)
    driver.handle(PollOverdue())
    driver.handle(LeaveAnswer(driver.sent.attempt))
    leaving = only(driver.handle(Close(leave=True)), SendHeartbeat)
    assert (leaving.request.member_id, leaving.request.member_epoch) == ("m1", -1)


def test_a_member_that_closes_while_it_joins_leaves_under_the_id_that_it_chose() -> None:
    driver = Driver()
    joining = driver.subscribe()
    leaving = only(driver.handle(Close(leave=True)), SendHeartbeat)
    assert (leaving.request.member_id, leaving.request.member_epoch) == (joining.request.member_id, -1)


def test_a_member_that_never_joined_has_nothing_to_leave() -> None:
    driver = Driver()
    assert driver.handle(Close(leave=True)) == []
    assert driver.member.is_gone


@pytest.mark.parametrize("instance_id,epoch", [(None, -1), ("i", -2)])
def test_a_member_that_does_not_poll_leaves_at_once_and_joins_again_with_the_next_poll(
    instance_id: str | None, epoch: int
) -> None:
    driver = Driver(instance_id).settle(0)
    lose, leaving = driver.handle(PollOverdue())
    assert isinstance(lose, Lose)
    assert isinstance(leaving, SendHeartbeat)
    assert leaving.request.member_epoch == epoch
    assert driver.handle(LeaveAnswer(leaving.attempt)) == []
    assert driver.handle(Subscribe(frozenset({"t", "u"}))) == []
    assert only(driver.handle(Polled()), SendHeartbeat).request.member_epoch == 0


def test_a_poll_while_the_member_leaves_makes_it_join_again() -> None:
    driver = Driver().settle(0)
    driver.handle(PollOverdue())
    assert driver.handle(Polled()) == []
    assert only(driver.handle(LeaveAnswer(driver.sent.attempt)), SendHeartbeat).request.member_epoch == 0


# Every event in every state.


def in_state(state: MemberState) -> Driver:
    driver = Driver()
    match state:
        case MemberState.JOINING:
            driver.subscribe()
        case MemberState.STABLE:
            driver.settle(0, 1)
        case MemberState.REVOKING:
            driver.settle(0, 1).revoke(0)
        case MemberState.LEAVING:
            driver.settle(0, 1).handle(Close(leave=True))
        case MemberState.FENCED:
            driver.settle(0, 1).due()
            driver.refuse(ErrorCode.FENCED_MEMBER_EPOCH)
        case MemberState.FATAL:
            driver.subscribe()
            driver.refuse(ErrorCode.INVALID_REQUEST)
    assert driver.state is state
    return driver


def events(driver: Driver) -> list[Event]:
    """Return events of every kind: events that the member waits for, and some that are out of date."""
    identity = driver.member.identity
    kinds: list[Event] = [
        Subscribe(frozenset({"t"})),
        Subscribe(frozenset({"u"})),
        Subscribe(frozenset()),
        Polled(),
        PollOverdue(),
        TopicsNamed(NAMES),
        Close(leave=True),
        Close(leave=False),
        *(Released(number) for number in range(4)),
        *(MembershipRefused(identity, code) for code in (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)),
    ]
    attempt = 0 if driver.last is None else driver.last.attempt
    for number in range(attempt - 1, attempt + 3):
        kinds += [HeartbeatDue(number), LeaveAnswer(number)]
        kinds += [RequestFailed(number, ConnectionLost("", sent=True), retriable) for retriable in (True, False)]
        for code in (
            ErrorCode.NONE,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.INVALID_REQUEST,
        ):
            response = ConsumerGroupHeartbeatResponse(error_code=code, member_epoch=9, heartbeat_interval_ms=5000)
            kinds.append(ConsumerHeartbeatAnswer(number, response, NAMES))
    return kinds


STATES = [state for state in MemberState if state is not MemberState.SYNCING]


@pytest.mark.thorough
@pytest.mark.parametrize("state", STATES, ids=[state.name for state in STATES])
def test_no_two_events_in_a_row_break_a_member(state: MemberState) -> None:
    """After each pair of events the invariants hold, and the member still does something to stay alive."""
    for first, second in itertools.product(range(len(events(in_state(state)))), repeat=2):
        driver = in_state(state)
        driver.handle(events(driver)[first])
        following = events(driver)
        driver.handle(following[second % len(following)])
        member = driver.member
        if member.state in (MemberState.UNJOINED, MemberState.FENCED, MemberState.FATAL):
            assert not member.partitions.owned
            assert member.generation < 0 or member.state is MemberState.FATAL
        if member.state is MemberState.JOINING:
            assert member.generation < 0
        if member.state.sends_heartbeats or member.state is MemberState.JOINING:
            assert isinstance(driver.last, SendHeartbeat | PauseHeartbeat)


def test_a_member_can_leave_in_every_state_that_it_is_not_leaving_already() -> None:
    for state in set(STATES) - {MemberState.FATAL, MemberState.LEAVING}:
        assert TRANSITIONS[state][MemberEvent.LEAVE] is MemberState.LEAVING
