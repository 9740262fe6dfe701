"""The state machine of a group member under random answers, and under members and leaders that send nonsense."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.group.events import (
    Action,
    Assign,
    Fail,
    GatherTopics,
    HeartbeatAnswer,
    JoinAnswer,
    LeaveAnswer,
    Lose,
    Polled,
    PollOverdue,
    Released,
    Report,
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
from aiokafka_lite.group.member import BAD_ASSIGNMENTS_TOLERATED
from aiokafka_lite.group.payloads import MAX_ASSIGNED, read_assignment, write_assignment
from aiokafka_lite.group.states import MemberState
from aiokafka_lite.group.strategies import AssignmentStrategy, CooperativeStickyStrategy, RangeStrategy
from aiokafka_lite.protocol.messages import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse
from aiokafka_lite.types import TopicPartition
from tests.case_notes import case
from tests.pure.group.member_driver import Driver, members_of, only, racks, tp

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
    owned: set[TopicPartition] = set()  # by the user
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
                    owned |= set(done.added)
                else:
                    assert isinstance(done, Revoke | Lose)
                    owned -= set(done.partitions)
                    event = Released(done.number)
        if event is None:
            continue
        for action in member.handle(event):
            if isinstance(action, SendJoin | SendSync | GatherTopics | SendLeave):
                request = action
                if isinstance(action, SendJoin) and not cooperative:
                    # The user releases partitions before the group can assign them to other members.
                    assert not owned or handovers
            elif isinstance(action, Assign | Revoke | Lose):
                if isinstance(action, Assign):
                    assert not owned & set(action.added) or handovers
                handovers.append(action)
        if not handovers and member.state is MemberState.STABLE:
            assert owned == member.partitions.owned
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
            assignment = write_assignment(choice.sample(partitions, 3)) if code is ErrorCode.NONE else b""
            return SyncAnswer(request.attempt, SyncGroupResponse(error_code=code, assignment=assignment))
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
    assigned = {assignment.member_id: read_assignment(assignment.assignment) for assignment in sync.request.assignments}
    assert assigned == {"m": frozenset(tp(0, 1)), "broken-1": frozenset()}


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
@pytest.mark.parametrize("strategy", [RangeStrategy(), CooperativeStickyStrategy()], ids=lambda strategy: strategy.name)
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
    sent = {assignment.member_id: assignment.assignment for assignment in sync.request.assignments}
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
