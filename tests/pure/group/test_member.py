"""The state machine of a group member: its reaction to each answer, and its invariants."""

from __future__ import annotations

from typing import Any

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
    Assign,
    AssignmentsSeen,
    AwaitJoin,
    Close,
    Fail,
    GatherTopics,
    HeartbeatAnswer,
    Identity,
    LeaveAnswer,
    LookUpAssignments,
    Lose,
    MembershipRefused,
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
    TopicsGathered,
    TopicsSeen,
)
from aiokafka_lite.group.member import TRANSITIONS
from aiokafka_lite.group.payloads import read_assignment, write_assignment
from aiokafka_lite.group.states import MemberEvent, MemberState
from aiokafka_lite.group.strategies import (
    AssignmentStrategy,
    CooperativeStickyStrategy,
    RangeStrategy,
    StickyStrategy,
    TopicRacks,
)
from aiokafka_lite.types import TopicPartition
from tests.pure.group.member_driver import Driver, members_of, only, racks, subscription_in, tp

NOWHERE: frozenset[str] = frozenset()

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
    for _ in range(5):
        join = only(driver.refuse_join(join, ErrorCode.UNKNOWN_SERVER_ERROR), SendJoin)
    fail = only(driver.refuse_join(join, ErrorCode.UNKNOWN_SERVER_ERROR), Fail)
    assert "JoinGroup" in str(fail.error)


def test_unknown_server_errors_do_not_end_a_member_that_was_accepted() -> None:
    driver = Driver()
    join = driver.subscribe()
    for rebalances in (1, 2):
        for _ in range(3 * rebalances * rebalances):
            join = only(driver.refuse_join(join, ErrorCode.UNKNOWN_SERVER_ERROR), SendJoin)
        sync = only(driver.joined(join), SendSync)
        join = only(driver.refuse_sync(sync, ErrorCode.UNKNOWN_SERVER_ERROR), SendJoin)
        assert join.pause
        driver.round(join, 0)
        assert driver.heartbeat(ErrorCode.UNKNOWN_SERVER_ERROR) == []
        driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
        join = only(driver.member.handle(Released(rebalances)), SendJoin)


def test_a_missing_permission_is_reported_and_the_member_joins_again() -> None:
    driver = Driver()
    report, join = driver.refuse_join(driver.subscribe(), ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert isinstance(report, Report)
    assert isinstance(report.error, AuthorizationError)
    assert isinstance(join, SendJoin)
    assert join.pause
    driver.round(join, 0)
    (report,) = driver.heartbeat(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert isinstance(report, Report)
    assert driver.state is MemberState.STABLE


@pytest.mark.parametrize("code", [ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL])
def test_a_member_that_was_accepted_waits_until_it_is_accepted_again(code: ErrorCode) -> None:
    driver = Driver()
    driver.round(driver.subscribe(), 0)
    driver.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    join = only(driver.member.handle(Released(1)), SendJoin)
    report, again = driver.refuse_join(join, code)
    assert isinstance(report, Report)
    assert isinstance(again, SendJoin)
    assert again.pause


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
    assert driver.member.handle(MembershipRefused(old, ErrorCode.ILLEGAL_GENERATION)) == []
    assert driver.state is MemberState.STABLE


# The leader.


def test_the_leader_assigns_for_all_members() -> None:
    driver = Driver()
    members = members_of(("m", ("t", "u")), ("n", ("t",)))
    gather = only(driver.joined(driver.subscribe("t", "u"), leader="m", members=members), GatherTopics)
    assert gather.topics == {"t", "u"}
    sync = only(driver.member.handle(TopicsGathered(gather.attempt, racks(t=4))), SendSync)
    assigned = {assignment.member_id: read_assignment(assignment.assignment) for assignment in sync.request.assignments}
    assert assigned == {"m": frozenset(tp(0, 1)), "n": frozenset(tp(2, 3))}
    driver.synced(sync, assigned["m"])
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


def test_a_static_leader_that_is_named_by_its_former_id_watches_topics() -> None:
    """Brokers before KIP-814 do so, and list no members."""
    driver = Driver(instance_id="i")
    former = "i-0b9d2f3c-6d0a-4e3b-9a6f-0d9d6b1f7c55"
    gather = only(driver.joined(driver.subscribe(), leader=former), GatherTopics)
    sync = only(driver.member.handle(TopicsGathered(gather.attempt, racks(t=2))), SendSync)
    driver.synced(sync, tp(0, 1))
    actions = driver.member.handle(TopicsSeen({"t": 3}))
    # Only the answer to its first join: later, the name may be that of a member whose client id is its instance id.
    join = only(driver.member.handle(Released(only(actions, Revoke).number)), SendJoin)
    only(driver.joined(join, leader=former), SendSync)


def returned(driver: Driver, *assigned: TopicPartition) -> LookUpAssignments | None:
    """Let a static member come back, to this assignment. Returns its question, unless it joins again at once."""
    actions = driver.synced(only(driver.joined(driver.subscribe()), SendSync), assigned)
    return next((action for action in actions if isinstance(action, LookUpAssignments)), None)


@pytest.mark.parametrize(
    ("assignments", "is_stable"),
    [
        ([write_assignment(tp(0)), write_assignment(tp(1, 2))], True),
        ([write_assignment(tp(0)), write_assignment(tp(1))], False),
        ([write_assignment(tp(0)), b""], False),
        ([write_assignment(tp(0, topic="former"))], False),
        ([write_assignment(tp(2))], True),
        ([write_assignment(tp(0, 1)), b"\0"], True),
    ],
    ids=["complete", "one was added", "two were added", "the topic is new", "the strategy left some out", "unreadable"],
)
def test_a_static_member_that_came_back_rebalances_if_partitions_have_no_owner(
    assignments: list[bytes], is_stable: bool
) -> None:
    driver = Driver(instance_id="i")
    look_up = returned(driver, *tp(0))
    assert look_up is not None
    assert look_up.topics == {"t"}
    driver.member.handle(AssignmentsSeen(look_up.identity, {"t": 3}, assignments))
    assert (driver.state is MemberState.STABLE) == is_stable


def test_a_static_member_that_came_back_with_other_topics_rebalances_at_once() -> None:
    """Its former assignment has partitions that only other members read now (KAFKA-12759)."""
    driver = Driver(instance_id="i")
    assert returned(driver, *tp(0), *tp(0, topic="former")) is None
    assert driver.state is MemberState.REVOKING


def test_only_the_first_assignment_of_a_static_member_may_be_one_of_an_earlier_process() -> None:
    driver = Driver(instance_id="i")
    look_up = returned(driver, *tp(0))
    assert look_up is not None
    actions = driver.member.handle(AssignmentsSeen(look_up.identity, {"t": 2}, []))
    join = only(driver.member.handle(Released(only(actions, Revoke).number)), SendJoin)
    actions = driver.synced(only(driver.joined(join), SendSync), tp(0))
    assert not any(isinstance(action, LookUpAssignments) for action in actions)
    # What was seen of an earlier generation is ignored.
    assert driver.member.handle(AssignmentsSeen(look_up.identity, {"t": 2}, [])) == []
    dynamic = Driver()
    assert returned(dynamic, *tp(0)) is None
    assert dynamic.state is MemberState.STABLE


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
    event = HeartbeatAnswer(identity, code) if by == "heartbeat" else MembershipRefused(identity, code)
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
    event = HeartbeatAnswer(identity, code) if by == "heartbeat" else MembershipRefused(identity, code)
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
