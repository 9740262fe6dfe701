"""The state machine of a group member: its reaction to each answer, and its invariants."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest

from aiokafka_lite.errors import (
    AuthorizationError,
    BrokerError,
    ConnectionLost,
    ErrorCode,
    IllegalStateError,
    UnsupportedVersion,
)
from aiokafka_lite.group.events import (
    Action,
    Assign,
    AwaitJoin,
    Close,
    CommitRefused,
    Fail,
    GatherTopics,
    HeartbeatAnswer,
    Identity,
    JoinAnswer,
    LeaveAnswer,
    Lose,
    Polled,
    PollOverdue,
    Released,
    Report,
    RequestFailed,
    Revoke,
    SendJoin,
    SendLeave,
    SendSync,
    SessionExpired,
    Subscribe,
    SyncAnswer,
    TopicsGathered,
    TopicsSeen,
)
from aiokafka_lite.group.member import BAD_ASSIGNMENTS_TOLERATED, TRANSITIONS, Member, MemberEvent, MemberState
from aiokafka_lite.group.payloads import (
    MAX_ASSIGNED,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from aiokafka_lite.group.strategies import (
    AssignmentStrategy,
    CooperativeStickyStrategy,
    GroupMember,
    RangeStrategy,
    StickyStrategy,
    TopicRacks,
)
from aiokafka_lite.protocol.messages import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse
from aiokafka_lite.types import TopicPartition
from tests.cases import case

A = TypeVar("A", bound=Action)
NOWHERE: frozenset[str] = frozenset()


def tp(*numbers: int, topic: str = "t") -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


def only(actions: Iterable[Action], kind: type[A]) -> A:
    (action,) = actions
    assert isinstance(action, kind), action
    return action


class Driver:
    """A member, and a coordinator whose answers the test chooses."""

    def __init__(self, *strategies: AssignmentStrategy, **settings: Any) -> None:
        settings = {"session_timeout": 10.0, "rebalance_timeout": 60.0, **settings}
        self.member = Member("g", strategies=strategies or (RangeStrategy(),), **settings)
        self.strategy = next(iter(strategies), RangeStrategy()).name
        self.generation = 0

    @property
    def state(self) -> MemberState:
        return self.member.state

    def subscribe(self, *topics: str) -> SendJoin:
        return only(self.member.handle(Subscribe(frozenset(topics or ("t",)))), SendJoin)

    def refuse_join(self, join: SendJoin, code: ErrorCode, member_id: str = "") -> list[Action]:
        response = JoinGroupResponse(error_code=code, protocol_name=None, leader="", member_id=member_id, members=[])
        return self.member.handle(JoinAnswer(join.attempt, response))

    def joined(
        self, join: SendJoin, *, member_id: str = "m", leader: str = "other", members: Any = (), skip: bool = False
    ) -> list[Action]:
        self.generation += 1
        response = JoinGroupResponse(
            error_code=0,
            generation_id=self.generation,
            protocol_name=self.strategy,
            leader=leader,
            member_id=member_id,
            skip_assignment=skip,
            members=[
                JoinGroupResponseMember(member_id=each, group_instance_id=None, metadata=metadata)
                for each, metadata in members
            ],
        )
        return self.member.handle(JoinAnswer(join.attempt, response))

    def synced(self, sync: SendSync, partitions: Iterable[TopicPartition]) -> list[Action]:
        response = SyncGroupResponse(error_code=0, assignment=write_assignment(tuple(partitions)))
        return self.member.handle(SyncAnswer(sync.attempt, response))

    def refuse_sync(self, sync: SendSync, code: ErrorCode) -> list[Action]:
        return self.member.handle(SyncAnswer(sync.attempt, SyncGroupResponse(error_code=code, assignment=b"")))

    def heartbeat(self, code: ErrorCode) -> list[Action]:
        return self.member.handle(HeartbeatAnswer(self.member.identity, code))

    def round(self, join: SendJoin, *numbers: int) -> list[Action]:
        """One rebalance: from JoinGroup to the assignment."""
        return self.synced(only(self.joined(join), SendSync), tp(*numbers))

    def settle(self, *numbers: int) -> Driver:
        self.round(self.subscribe(), *numbers)
        assert self.state is MemberState.STABLE
        return self


def subscription_in(join: SendJoin) -> GroupMember:
    return read_subscription("m", None, join.request.protocols[0].metadata)


# The transition table.


def test_a_member_can_leave_in_every_state_except_fatal() -> None:
    for state in set(MemberState) - {MemberState.FATAL}:
        assert TRANSITIONS[state][MemberEvent.LEAVE] is MemberState.LEAVING


# Joining.


def test_a_member_joins_again_under_the_id_it_was_given() -> None:
    driver = Driver()
    join = driver.subscribe()
    assert join.request.member_id == ""
    again = only(driver.refuse_join(join, ErrorCode.MEMBER_ID_REQUIRED, "m-1"), SendJoin)
    assert (again.request.member_id, again.pause) == ("m-1", False)
    thrice = only(driver.refuse_join(again, ErrorCode.MEMBER_ID_REQUIRED, "m-2"), SendJoin)
    assert (thrice.request.member_id, thrice.pause) == ("m-2", True)  # no hot loop


def test_a_coordinator_that_requires_a_member_id_and_gives_none_makes_no_hot_loop() -> None:
    driver = Driver()
    again = only(driver.refuse_join(driver.subscribe(), ErrorCode.MEMBER_ID_REQUIRED, ""), SendJoin)
    assert (again.request.member_id, again.pause) == ("", True)


def test_joining_leads_to_an_assignment() -> None:
    driver = Driver()
    sync = only(driver.joined(driver.subscribe()), SendSync)
    assert (sync.request.member_id, sync.request.generation_id, sync.request.assignments) == ("m", 1, [])
    assert only(driver.synced(sync, tp(0, 1)), Assign) == Assign(tp(0, 1), frozenset(tp(0, 1)))
    assert driver.state is MemberState.STABLE
    assert driver.member.state.sends_heartbeats


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE]
)
def test_a_coordinator_that_is_not_ready_gets_a_retry_under_the_same_id(code: ErrorCode) -> None:
    driver = Driver().settle(0)
    driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    join = only(driver.member.handle(Released(1)), SendJoin)
    again = only(driver.refuse_join(join, code), SendJoin)
    assert again.pause
    assert again.request.member_id == "m"
    sync = only(driver.joined(again), SendSync)
    third = only(driver.refuse_sync(sync, code), SendJoin)
    assert third.pause
    assert third.request.member_id == "m"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.FENCED_INSTANCE_ID,
    ],
)
def test_a_refusal_that_is_not_retriable_is_fatal_and_has_a_reason(code: ErrorCode) -> None:
    driver = Driver()
    fail = only(driver.refuse_join(driver.subscribe(), code), Fail)
    assert isinstance(fail.error, BrokerError)
    assert fail.error.code is code
    assert "'g'" in str(fail.error)
    assert driver.state is MemberState.FATAL
    assert driver.member.handle(Polled()) == []


def test_unknown_server_errors_are_retried_five_times_and_then_fatal() -> None:
    driver = Driver()
    join = driver.subscribe()
    for rebalances in (1, 2):
        for _ in range(3):
            join = only(driver.refuse_join(join, ErrorCode.UNKNOWN_SERVER_ERROR), SendJoin)
        sync = only(driver.joined(join), SendSync)
        join = only(driver.refuse_sync(sync, ErrorCode.UNKNOWN_SERVER_ERROR), SendJoin)
        assert join.pause
        driver.round(join, 0)
        assert driver.heartbeat(ErrorCode.UNKNOWN_SERVER_ERROR) == []
        driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
        join = only(driver.member.handle(Released(rebalances)), SendJoin)
    for _ in range(5):
        join = only(driver.refuse_join(join, ErrorCode.UNKNOWN_SERVER_ERROR), SendJoin)
    fail = only(driver.refuse_join(join, ErrorCode.UNKNOWN_SERVER_ERROR), Fail)
    assert "JoinGroup" in str(fail.error)


def test_a_missing_permission_is_an_authorization_error() -> None:
    driver = Driver()
    fail = only(driver.refuse_join(driver.subscribe(), ErrorCode.GROUP_AUTHORIZATION_FAILED), Fail)
    assert isinstance(fail.error, AuthorizationError)


def test_a_failed_request_is_retried_if_the_error_is_retriable() -> None:
    driver = Driver()
    join = driver.subscribe()
    lost = ConnectionLost("gone", sent=True)
    again = only(driver.member.handle(RequestFailed(join.attempt, lost, retriable=True)), SendJoin)
    assert again.pause
    assert driver.member.handle(RequestFailed(join.attempt, lost, retriable=True)) == []  # an older attempt
    error = UnsupportedVersion("too old")
    assert only(driver.member.handle(RequestFailed(again.attempt, error, retriable=False)), Fail).error is error


def test_a_late_answer_changes_nothing() -> None:
    driver = Driver()
    first = driver.subscribe()
    second = only(driver.refuse_join(first, ErrorCode.NOT_COORDINATOR), SendJoin)
    assert driver.joined(first) == []
    sync = only(driver.joined(second), SendSync)
    third = only(driver.refuse_sync(sync, ErrorCode.REBALANCE_IN_PROGRESS), SendJoin)
    assert driver.synced(sync, tp(0)) == []
    driver.round(third, 1)
    old = Identity("m", 1, None)
    assert driver.member.handle(HeartbeatAnswer(old, ErrorCode.UNKNOWN_MEMBER_ID)) == []
    assert driver.member.handle(CommitRefused(old, ErrorCode.ILLEGAL_GENERATION)) == []
    assert driver.state is MemberState.STABLE


# The leader.


def members_of(*subscriptions: tuple[str, tuple[str, ...]]) -> list[tuple[str, bytes]]:
    return [(name, write_subscription(topics, (), -1, None, None)) for name, topics in subscriptions]


def racks(**topics: int) -> TopicRacks:
    return {name: [frozenset[str]()] * count for name, count in topics.items()}


def test_the_leader_assigns_for_all_members() -> None:
    driver = Driver()
    members = members_of(("m", ("t", "u")), ("n", ("t",)))
    gather = only(driver.joined(driver.subscribe("t", "u"), leader="m", members=members), GatherTopics)
    assert gather.topics == {"t", "u"}
    sync = only(driver.member.handle(TopicsGathered(gather.attempt, racks(t=4))), SendSync)
    given = {each.member_id: read_assignment(each.assignment) for each in sync.request.assignments}
    assert given == {"m": frozenset(tp(0, 1)), "n": frozenset(tp(2, 3))}
    driver.synced(sync, given["m"])
    assert driver.state is MemberState.STABLE
    # A missing topic is created, and a topic grows: only the leader watches for it.
    assert driver.member.handle(TopicsSeen({"t": 4})) == []
    assert isinstance(driver.member.handle(TopicsSeen({"t": 4, "u": 1}))[0], Revoke)


def test_a_follower_does_not_watch_topics() -> None:
    driver = Driver().settle(0)
    assert driver.member.handle(TopicsSeen({"t": 9})) == []


def test_partitions_added_after_the_assignment_cause_another_rebalance() -> None:
    driver = Driver()
    members = members_of(("m", ("t",)))
    gather = only(driver.joined(driver.subscribe(), leader="m", members=members), GatherTopics)
    sync = only(driver.member.handle(TopicsGathered(gather.attempt, racks(t=2))), SendSync)
    assert driver.member.handle(TopicsSeen({"t": 3})) == []
    assign, revoke = driver.synced(sync, tp(0, 1))
    assert isinstance(assign, Assign)
    assert isinstance(revoke, Revoke)


def test_metadata_that_changes_before_the_assignment_causes_no_second_rebalance() -> None:
    driver = Driver()
    members = members_of(("m", ("t",)))
    gather = only(driver.joined(driver.subscribe(), leader="m", members=members), GatherTopics)
    assert driver.member.handle(TopicsSeen({"t": 2})) == []
    sync = only(driver.member.handle(TopicsGathered(gather.attempt, racks(t=2))), SendSync)
    only(driver.synced(sync, tp(0, 1)), Assign)
    assert driver.state is MemberState.STABLE


def test_a_leader_that_skips_the_assignment_still_watches_topics() -> None:
    driver = Driver(instance_id="i")
    members = members_of(("m", ("t",)))
    gather = only(driver.joined(driver.subscribe(), leader="m", members=members, skip=True), GatherTopics)
    sync = only(driver.member.handle(TopicsGathered(gather.attempt, racks(t=2))), SendSync)
    assert sync.request.assignments == []
    driver.synced(sync, tp(0, 1))
    assert driver.member.handle(TopicsSeen({"t": 3})) != []


def test_a_strategy_that_assigns_a_partition_twice_is_an_error() -> None:
    class Wrong(RangeStrategy):
        def assign(self, members: Any, topics: TopicRacks) -> Any:
            return {member.member_id: list(tp(0)) for member in members}

    driver = Driver(Wrong())
    members = members_of(("m", ("t",)), ("n", ("t",)))
    gather = only(driver.joined(driver.subscribe(), leader="m", members=members), GatherTopics)
    with pytest.raises(IllegalStateError, match="twice"):
        driver.member.handle(TopicsGathered(gather.attempt, racks(t=2)))


@pytest.mark.parametrize("named", [TopicPartition("t", 2), TopicPartition("t", -1), TopicPartition("u", 0)])
def test_a_strategy_that_assigns_an_unknown_partition_is_an_error(named: TopicPartition) -> None:
    class Wrong(RangeStrategy):
        def assign(self, members: Any, topics: TopicRacks) -> Any:
            return {"m": [named]}

    driver = Driver(Wrong())
    gather = only(driver.joined(driver.subscribe(), leader="m", members=members_of(("m", ("t",)))), GatherTopics)
    with pytest.raises(IllegalStateError, match=f"names {named}, which does not exist"):
        driver.member.handle(TopicsGathered(gather.attempt, racks(t=2)))


# A rebalance.


def test_an_eager_member_releases_all_partitions_before_it_joins() -> None:
    driver = Driver().settle(0, 1)
    revoke = only(driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS), Revoke)
    assert revoke.partitions == tp(0, 1)
    assert driver.state is MemberState.REVOKING
    assert driver.member.state.sends_heartbeats  # while user code runs
    assert driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS) == []
    join = only(driver.member.handle(Released(revoke.number)), SendJoin)
    assert subscription_in(join).owned == ()
    assert only(driver.round(join, 1, 2), Assign).added == tp(1, 2)


def test_a_cooperative_member_reads_on_and_releases_only_the_difference() -> None:
    driver = Driver(CooperativeStickyStrategy()).settle(0, 1, 2)
    join = only(driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS), SendJoin)
    assert driver.member.partitions.owned == frozenset(tp(0, 1, 2))
    assert (subscription_in(join).owned, subscription_in(join).generation) == (tp(0, 1, 2), 1)
    revoke, assign = driver.round(join, 0, 1, 5)
    assert isinstance(revoke, Revoke)
    assert isinstance(assign, Assign)
    assert (revoke.partitions, assign.added) == (tp(2), tp(5))
    assert driver.state is MemberState.REVOKING
    again = only(driver.member.handle(Released(revoke.number)), SendJoin)
    assert subscription_in(again).owned == tp(0, 1, 5)
    assert only(driver.round(again, 0, 1, 5), Assign).added == ()


def test_a_member_reads_on_only_if_all_strategies_are_cooperative() -> None:
    driver = Driver(RangeStrategy(), CooperativeStickyStrategy()).settle(0)
    assert isinstance(driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)[0], Revoke)


def test_a_sticky_member_reports_its_last_assignment_after_it_released_it() -> None:
    driver = Driver(StickyStrategy()).settle(0, 1)
    driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    join = only(driver.member.handle(Released(1)), SendJoin)
    expected = StickyStrategy().user_data(tp(0, 1), 1)
    assert subscription_in(join).user_data == expected


def test_a_changed_subscription_releases_unwanted_partitions_and_joins_again() -> None:
    driver = Driver(CooperativeStickyStrategy())
    sync = only(driver.joined(driver.subscribe("t", "u")), SendSync)
    driver.synced(sync, (*tp(0), *tp(0, topic="u")))
    revoke = only(driver.member.handle(Subscribe(frozenset({"t", "v"}))), Revoke)
    assert revoke.partitions == tp(0, topic="u")
    join = only(driver.member.handle(Released(revoke.number)), SendJoin)
    assert subscription_in(join).topics == ("t", "v")
    assert subscription_in(join).owned == tp(0)


def test_a_subscription_that_changes_during_a_rebalance_causes_another_one() -> None:
    driver = Driver(CooperativeStickyStrategy())
    sync = only(driver.joined(driver.subscribe("t")), SendSync)
    assert driver.member.handle(Subscribe(frozenset({"t", "u"}))) == []
    assign, join = driver.synced(sync, tp(0))
    assert isinstance(assign, Assign)
    assert isinstance(join, SendJoin)
    assert subscription_in(join).topics == ("t", "u")


# Losing the membership.


@pytest.mark.parametrize("code,kept", [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "m")])
@pytest.mark.parametrize("strategy", [RangeStrategy(), CooperativeStickyStrategy()], ids=["eager", "cooperative"])
@pytest.mark.parametrize("by", ["heartbeat", "commit"])
def test_a_fenced_member_loses_its_partitions_and_joins_again(
    code: ErrorCode, kept: str, strategy: AssignmentStrategy, by: str
) -> None:
    driver = Driver(strategy).settle(0, 1)
    identity = driver.member.identity
    event = HeartbeatAnswer(identity, code) if by == "heartbeat" else CommitRefused(identity, code)
    lose = only(driver.member.handle(event), Lose)
    assert lose.partitions == tp(0, 1)
    assert driver.state is MemberState.FENCED
    assert not driver.member.state.sends_heartbeats
    join = only(driver.member.handle(Released(lose.number)), SendJoin)
    assert (join.request.member_id, join.pause) == (kept, True)
    assert (subscription_in(join).owned, subscription_in(join).generation) == ((), -1)


def test_partitions_that_are_being_revoked_are_lost_too() -> None:
    driver = Driver().settle(0, 1)
    revoke = only(driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS), Revoke)
    lose = only(driver.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID), Lose)
    assert lose.partitions == tp(0, 1)
    assert driver.member.handle(Released(revoke.number)) == []
    assert isinstance(only(driver.member.handle(Released(lose.number)), SendJoin), SendJoin)


def test_a_fenced_joining_member_without_partitions_joins_again_at_once() -> None:
    driver = Driver()
    join = only(driver.refuse_join(driver.subscribe(), ErrorCode.MEMBER_ID_REQUIRED, "m"), SendJoin)
    again = only(driver.refuse_join(join, ErrorCode.UNKNOWN_MEMBER_ID), SendJoin)
    assert (again.request.member_id, again.pause) == ("", True)


def test_a_cooperative_member_that_is_fenced_while_it_joins_loses_its_partitions() -> None:
    driver = Driver(CooperativeStickyStrategy()).settle(0)
    join = only(driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS), SendJoin)
    lose = only(driver.refuse_join(join, ErrorCode.UNKNOWN_MEMBER_ID), Lose)
    assert lose.partitions == tp(0)
    assert driver.state is MemberState.FENCED


@pytest.mark.parametrize("strategy", [RangeStrategy(), CooperativeStickyStrategy()], ids=["eager", "cooperative"])
@pytest.mark.parametrize("instance_id", [None, "i"], ids=["dynamic", "static"])
def test_a_member_whose_session_expired_loses_its_partitions_and_joins_again_under_its_id(
    strategy: AssignmentStrategy, instance_id: str | None
) -> None:
    driver = Driver(strategy, instance_id=instance_id).settle(0, 1)
    lose = only(driver.member.handle(SessionExpired(driver.member.identity)), Lose)
    assert lose.partitions == tp(0, 1)
    assert driver.state is MemberState.FENCED
    join = only(driver.member.handle(Released(lose.number)), SendJoin)
    assert (join.request.member_id, join.request.group_instance_id, join.pause) == ("m", instance_id, True)
    assert (subscription_in(join).owned, subscription_in(join).generation) == ((), -1)


def test_the_expired_session_of_another_generation_changes_nothing() -> None:
    driver = Driver().settle(0)
    old = driver.member.identity
    revoke = only(driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS), Revoke)
    join = only(driver.member.handle(Released(revoke.number)), SendJoin)
    assert driver.member.handle(SessionExpired(old)) == []  # JoinGroup is with the coordinator
    driver.round(join, 0)
    assert driver.member.handle(SessionExpired(old)) == []
    assert driver.state is MemberState.STABLE


@pytest.mark.parametrize("by", ["heartbeat", "commit"])
def test_the_older_of_two_static_members_fails_and_loses_its_partitions(by: str) -> None:
    driver = Driver(instance_id="i").settle(0)
    identity, code = driver.member.identity, ErrorCode.FENCED_INSTANCE_ID
    event = HeartbeatAnswer(identity, code) if by == "heartbeat" else CommitRefused(identity, code)
    lose, fail = driver.member.handle(event)
    assert isinstance(lose, Lose)
    assert isinstance(fail, Fail)
    assert "group_instance_id" in str(fail.error)
    assert driver.member.handle(Close(leave=True)) == []
    assert driver.member.is_gone


# Leaving.


def test_closing_releases_partitions_and_then_sends_leave_group() -> None:
    driver = Driver().settle(0)
    revoke = only(driver.member.handle(Close(leave=True)), Revoke)
    assert revoke.closing
    assert not driver.member.is_gone
    leave = only(driver.member.handle(Released(revoke.number)), SendLeave)
    assert (leave.member_id, leave.instance_id) == ("m", None)
    assert driver.member.handle(LeaveAnswer(leave.attempt)) == []
    assert driver.member.is_gone
    assert driver.member.handle(Close(leave=True)) == []


def test_a_static_member_keeps_its_place_unless_it_leaves_explicitly() -> None:
    driver = Driver(instance_id="i").settle(0)
    revoke = only(driver.member.handle(Close(leave=False)), Revoke)
    assert driver.member.handle(Released(revoke.number)) == []
    assert driver.member.is_gone
    told = Driver(instance_id="i").settle(0)
    revoke = only(told.member.handle(Close(leave=True)), Revoke)
    assert only(told.member.handle(Released(revoke.number)), SendLeave).instance_id == "i"


def test_leave_group_needs_no_answer() -> None:
    driver = Driver().settle()
    leave = only(driver.member.handle(Close(leave=True)), SendLeave)
    driver.member.handle(RequestFailed(leave.attempt, ConnectionLost("gone", sent=True), retriable=True))
    assert driver.member.is_gone


def test_a_closing_member_without_an_id_waits_for_it_and_leaves_under_it() -> None:
    driver = Driver()
    join = driver.subscribe()
    wait = only(driver.member.handle(Close(leave=True)), AwaitJoin)
    leave = only(driver.refuse_join(join, ErrorCode.MEMBER_ID_REQUIRED, "m"), SendLeave)
    assert leave.member_id == "m"
    silent = Driver()
    silent.subscribe()
    wait = only(silent.member.handle(Close(leave=True)), AwaitJoin)
    silent.member.handle(RequestFailed(wait.attempt, ConnectionLost("gone", sent=True), retriable=True))
    assert silent.member.is_gone


def test_closing_an_unjoined_member_ends_at_once() -> None:
    driver = Driver()
    assert driver.member.handle(Close(leave=True)) == []
    assert driver.member.is_gone
    assert driver.member.handle(Subscribe(frozenset({"t"}))) == []


def test_subscribing_to_no_topic_leaves_and_subscribing_again_joins() -> None:
    driver = Driver().settle(0)
    revoke = only(driver.member.handle(Subscribe(NOWHERE)), Revoke)
    leave = only(driver.member.handle(Released(revoke.number)), SendLeave)
    assert driver.member.handle(Subscribe(frozenset({"t"}))) == []  # still leaving
    join = only(driver.member.handle(LeaveAnswer(leave.attempt)), SendJoin)
    assert join.request.member_id == ""


def test_an_overdue_member_leaves_until_the_next_read() -> None:
    driver = Driver().settle(0)
    lose, leave = driver.member.handle(PollOverdue())
    assert isinstance(lose, Lose)
    assert isinstance(leave, SendLeave)
    assert driver.member.handle(Released(lose.number)) == []
    assert driver.member.handle(LeaveAnswer(leave.attempt)) == []
    assert driver.state is MemberState.UNJOINED
    assert isinstance(only(driver.member.handle(Polled()), SendJoin), SendJoin)


def test_a_read_while_leave_group_is_in_flight_makes_the_member_join_again() -> None:
    driver = Driver().settle(0)
    _, leave = driver.member.handle(PollOverdue())
    assert isinstance(leave, SendLeave)
    assert driver.member.handle(Polled()) == []
    assert isinstance(only(driver.member.handle(LeaveAnswer(leave.attempt)), SendJoin), SendJoin)


def test_an_overdue_static_member_stops_heartbeats_without_leaving() -> None:
    driver = Driver(instance_id="i").settle(0)
    only(driver.member.handle(PollOverdue()), Lose)
    assert driver.state is MemberState.UNJOINED
    assert only(driver.member.handle(Polled()), SendJoin).request.member_id == "m"


# Any order of events.


CODES = [
    ErrorCode.NONE,
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
]


@pytest.mark.parametrize("cooperative", [False, True])
def test_no_order_of_events_breaks_a_member_and_a_loss_leaves_nothing_owned(cooperative: bool) -> None:
    """Random answers: actions stay consistent, and partitions are revoked from the user exactly as assigned."""
    for seed in range(300):
        with case(seed):
            run_random_events(seed, cooperative)


def run_random_events(seed: int, cooperative: bool) -> None:
    choice = random.Random(seed)
    strategy: AssignmentStrategy = CooperativeStickyStrategy() if cooperative else RangeStrategy()
    driver = Driver(strategy, instance_id=choice.choice([None, "i"]))
    member = driver.member
    held: set[TopicPartition] = set()  # by the user
    handovers: list[Action] = []
    request: Action | None = None
    for _ in range(120):
        event: Any = None
        match choice.randrange(9):
            case 0:
                event = Subscribe(frozenset(choice.sample(["t", "u"], choice.randrange(1, 3))))
            case 1 | 2 | 3:
                event = answer(request, driver, choice)
                request = None
            case 4:
                event = HeartbeatAnswer(member.identity, choice.choice(CODES))
            case 5:
                event = PollOverdue() if choice.random() < 0.2 else Polled()
                if choice.random() < 0.1:
                    event = SessionExpired(member.identity)
            case 6:
                event = TopicsSeen({"t": choice.randrange(3)})
            case 7 | 8 if handovers:
                done = handovers.pop(0)
                if isinstance(done, Assign):
                    held |= set(done.added)
                else:
                    assert isinstance(done, Revoke | Lose)
                    held -= set(done.partitions)
                    event = Released(done.number)
        if event is None:
            continue
        for action in member.handle(event):
            if isinstance(action, SendJoin | SendSync | GatherTopics | SendLeave):
                request = action
                if isinstance(action, SendJoin) and not cooperative:
                    # The user releases partitions before the group can assign them to other members.
                    assert not held or handovers
            elif isinstance(action, Assign | Revoke | Lose):
                if isinstance(action, Assign):
                    assert not held & set(action.added) or handovers
                handovers.append(action)
        if not handovers and member.state is MemberState.STABLE:
            assert held == member.partitions.owned
        if member.state in (MemberState.UNJOINED, MemberState.FENCED, MemberState.FATAL):
            assert not member.partitions.owned


def answer(request: Action | None, driver: Driver, choice: random.Random) -> Any:
    code = choice.choice([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE, *CODES])
    partitions = [TopicPartition(topic, number) for topic in "tu" for number in range(3)]
    match request:
        case SendJoin() if code is ErrorCode.NONE:
            driver.generation += 1
            leads = choice.random() < 0.5
            members = [JoinGroupResponseMember(member_id="m", metadata=request.request.protocols[0].metadata)]
            return JoinAnswer(
                request.attempt,
                JoinGroupResponse(
                    error_code=0,
                    generation_id=driver.generation,
                    protocol_name=driver.strategy,
                    leader="m" if leads else "n",
                    member_id="m",
                    members=members if leads else [],
                ),
            )
        case SendJoin():
            response = JoinGroupResponse(error_code=code, protocol_name=None, leader="", member_id="m", members=[])
            return JoinAnswer(request.attempt, response)
        case GatherTopics():
            return TopicsGathered(request.attempt, racks(t=2))
        case SendSync() if code is not ErrorCode.MEMBER_ID_REQUIRED:
            given = write_assignment(choice.sample(partitions, 3)) if code is ErrorCode.NONE else b""
            return SyncAnswer(request.attempt, SyncGroupResponse(error_code=code, assignment=given))
        case SendLeave():
            return LeaveAnswer(request.attempt)
    return None


# Members and leaders that send nonsense.


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\x00\x03\x7f\xff\xff\xff", b"\xff" * 40])
def test_a_member_whose_subscription_cannot_be_read_gets_no_partitions(metadata: bytes) -> None:
    driver = Driver()
    members = [*members_of(("m", ("t",))), ("broken-1", metadata)]
    gather = only(driver.joined(driver.subscribe(), leader="m", members=members), GatherTopics)
    assert driver.member.leadership is not None
    assert "broken-1" in driver.member.leadership.problems[0]
    sync = only(driver.member.handle(TopicsGathered(gather.attempt, racks(t=2))), SendSync)
    given = {each.member_id: read_assignment(each.assignment) for each in sync.request.assignments}
    assert given == {"m": frozenset(tp(0, 1)), "broken-1": frozenset()}


@pytest.mark.parametrize("name", ["", "a/b", ".", "x" * 300])
def test_an_impossible_topic_of_another_member_is_ignored(name: str) -> None:
    driver = Driver()
    members = members_of(("m", ("t",)), ("n", (name, "u")))
    gather = only(driver.joined(driver.subscribe(), leader="m", members=members), GatherTopics)
    assert gather.topics == {"t", "u"}
    assert driver.member.leadership is not None
    assert len(driver.member.leadership.problems) == 1


BAD_ASSIGNMENTS = {
    "cut": write_assignment(tp(1))[:-2],
    "noise": b"\xff" * 30,
    "negative": write_assignment(tp(-5)),
    "too many": write_assignment(tp(*range(MAX_ASSIGNED + 1))),
}


@pytest.mark.parametrize("name", BAD_ASSIGNMENTS)
@pytest.mark.parametrize("strategy", [RangeStrategy(), CooperativeStickyStrategy()], ids=lambda each: each.name)
def test_an_assignment_that_cannot_be_used_is_followed_by_another_rebalance(
    name: str, strategy: AssignmentStrategy
) -> None:
    driver = Driver(strategy)
    join = driver.subscribe()
    for _ in range(2):  # a usable one starts the count again
        for _ in range(BAD_ASSIGNMENTS_TOLERATED):
            sync = only(driver.joined(join), SendSync)
            response = SyncGroupResponse(error_code=0, assignment=BAD_ASSIGNMENTS[name])
            report, join = driver.member.handle(SyncAnswer(sync.attempt, response))  # type: ignore[assignment]
            assert isinstance(report, Report)
            assert join.pause
        driver.round(join, 1)
        assert driver.state is MemberState.STABLE
        (*_, last) = driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
        if isinstance(last, Revoke):
            (last,) = driver.member.handle(Released(last.number))
        assert isinstance(last, SendJoin)
        join = last
    actions: list[Action] = []
    for _ in range(BAD_ASSIGNMENTS_TOLERATED + 1):
        sync = only(driver.joined(join), SendSync)
        response = SyncGroupResponse(error_code=0, assignment=BAD_ASSIGNMENTS[name])
        actions = driver.member.handle(SyncAnswer(sync.attempt, response))
        join = actions[-1]  # type: ignore[assignment]
    assert isinstance(actions[-1], Fail)
    assert "the leader of the group" in str(actions[-1].error)


# Members that no task reads, that are fenced by themselves, or that lose their coordinator during a rebalance.


def test_a_new_topic_does_not_bring_back_a_member_that_does_not_read() -> None:
    driver = Driver().settle(0)
    lose, leave = driver.member.handle(PollOverdue())
    assert isinstance(lose, Lose)
    assert isinstance(leave, SendLeave)
    assert driver.member.handle(LeaveAnswer(leave.attempt)) == []
    assert driver.member.handle(Subscribe(frozenset({"t", "new"}))) == []
    assert driver.state is MemberState.UNJOINED
    only(driver.member.handle(Polled()), SendJoin)


@pytest.mark.parametrize("where", ["join", "sync"])
def test_a_static_member_that_its_own_join_may_have_fenced_joins_again_once(where: str) -> None:
    driver = Driver(instance_id="one")
    join = driver.subscribe()
    for attempt in range(2):
        if where == "join":
            actions = driver.refuse_join(join, ErrorCode.FENCED_INSTANCE_ID)
        else:
            actions = driver.refuse_sync(only(driver.joined(join), SendSync), ErrorCode.FENCED_INSTANCE_ID)
        if attempt == 0:
            join = only(actions, SendJoin)
            assert join.request.member_id == ""
            assert join.pause
    assert isinstance(actions[-1], Fail)


def test_a_static_member_of_a_generation_is_fenced_by_another_client() -> None:
    driver = Driver(instance_id="one").settle(0)
    assert isinstance(driver.heartbeat(ErrorCode.FENCED_INSTANCE_ID)[-1], Fail)


def test_a_static_member_that_is_fenced_when_it_joins_again_is_fenced_by_another_client() -> None:
    driver = Driver(instance_id="one").settle(0)
    revoke = only(driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS), Revoke)
    join = only(driver.member.handle(Released(revoke.number)), SendJoin)
    only(driver.refuse_join(join, ErrorCode.FENCED_INSTANCE_ID), Fail)


def test_a_deleted_topic_of_which_a_member_owns_nothing_causes_no_rebalance() -> None:
    driver = Driver().settle(0)
    assert driver.member.handle(Subscribe(frozenset({"t", "left"}), lazily=True)) == []
    assert driver.state is MemberState.STABLE
    only(driver.member.handle(Subscribe(frozenset({"left"}), lazily=True)), Revoke)


@pytest.mark.parametrize("state", ["JOINING", "SYNCING"])
def test_a_cooperative_member_whose_session_expires_during_a_rebalance_loses_its_partitions(state: str) -> None:
    driver = Driver(CooperativeStickyStrategy()).settle(0, 1)
    join = only(driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS), SendJoin)
    if state == "SYNCING":
        driver.joined(join)
    assert driver.state.name == state
    assert driver.member.needs_session
    lose = only(driver.member.handle(SessionExpired(driver.member.identity)), Lose)
    assert lose.partitions == tp(0, 1)
    assert not driver.member.needs_session
    only(driver.member.handle(Released(lose.number)), SendJoin)


def test_an_eager_member_needs_no_session_during_a_rebalance() -> None:
    driver = Driver().settle(0)
    revoke = only(driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS), Revoke)
    only(driver.member.handle(Released(revoke.number)), SendJoin)
    assert not driver.member.needs_session


# Data of a strategy.


class Numbering(RangeStrategy):
    """The leader sends each member a text of its own."""

    name = "numbering"

    def __init__(self) -> None:
        self.heard: list[object] = []

    def assignment_data(self, member_id: str, partitions: Sequence[TopicPartition], generation: int) -> bytes | None:
        return None if member_id == "m" else f"{member_id} has {len(partitions)} in {generation}".encode()

    def on_assignment(self, partitions: Sequence[TopicPartition], user_data: bytes | None, generation: int) -> None:
        self.heard.append((partitions, user_data, generation))


def test_a_strategy_passes_data_from_the_leader_to_each_member() -> None:
    leader, follower = Numbering(), Numbering()
    leads, follows = Driver(leader), Driver(follower)
    members = members_of(("m", ("t",)), ("n", ("t",)))
    gather = only(leads.joined(leads.subscribe(), leader="m", members=members), GatherTopics)
    sync = only(leads.member.handle(TopicsGathered(gather.attempt, racks(t=4))), SendSync)
    sent = {each.member_id: each.assignment for each in sync.request.assignments}
    leads.member.handle(SyncAnswer(sync.attempt, SyncGroupResponse(error_code=0, assignment=sent["m"])))
    other = only(follows.joined(follows.subscribe(), member_id="n"), SendSync)
    follows.member.handle(SyncAnswer(other.attempt, SyncGroupResponse(error_code=0, assignment=sent["n"])))
    assert leader.heard == [(tp(0, 1), None, 1)]
    assert follower.heard == [(tp(2, 3), b"n has 2 in 1", 1)]
    assert follows.member.partitions.owned == frozenset(tp(2, 3))


def test_a_member_without_an_assignment_has_no_data() -> None:
    strategy = Numbering()
    driver = Driver(strategy)
    sync = only(driver.joined(driver.subscribe()), SendSync)
    driver.member.handle(SyncAnswer(sync.attempt, SyncGroupResponse(error_code=0, assignment=b"")))
    assert strategy.heard == [((), None, 1)]
