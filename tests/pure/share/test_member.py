"""The member of a share group, in all states and for all answers."""

from __future__ import annotations

import random
from itertools import product

import pytest

from aiokafka_lite import ShareConsumer
from aiokafka_lite.errors import AuthorizationError, BrokerError, ErrorCode, ProtocolError
from aiokafka_lite.group.payloads import MAX_ASSIGNED
from aiokafka_lite.group.requests import LONGEST_INTERVAL, SHORTEST_INTERVAL, problem_of_assignment
from aiokafka_lite.protocol.messages import (
    ShareGroupHeartbeatAssignment,
    ShareGroupHeartbeatResponse,
    ShareGroupHeartbeatTopicPartitions,
)
from aiokafka_lite.share.member import TRANSITIONS, ShareMember, ShareMemberState
from aiokafka_lite.share.session import TopicIdPartition

S = ShareMemberState
TOPIC_ID = bytes(range(16))


def answer(
    code: ErrorCode = ErrorCode.NONE, epoch: int = 3, partitions: list[int] | None = None
) -> ShareGroupHeartbeatResponse:
    assignment = None
    if partitions is not None:
        topic = ShareGroupHeartbeatTopicPartitions(topic_id=TOPIC_ID, partitions=partitions)
        assignment = ShareGroupHeartbeatAssignment(topic_partitions=[topic])
    return ShareGroupHeartbeatResponse(
        error_code=code, member_epoch=epoch, heartbeat_interval_ms=2_000, assignment=assignment
    )


def member_in(state: ShareMemberState) -> ShareMember:
    """Return a member in this state, with one partition where it has been in the group."""
    member = ShareMember("g", "id", ["orders", "bills"], rack="r1")
    if state is not S.JOINING:
        member.answered(answer(partitions=[0]))
    if state is S.FENCED:
        member.answered(answer(ErrorCode.UNKNOWN_MEMBER_ID))
    if state is S.FAILED:
        member.answered(answer(ErrorCode.UNSUPPORTED_VERSION))
    if state in (S.LEAVING, S.LEFT):
        member.close()
    if state is S.LEFT:
        member.left()
    assert member.state is state
    return member


AFTER = {
    ErrorCode.NONE: S.STABLE,
    ErrorCode.UNKNOWN_MEMBER_ID: S.FENCED,
    ErrorCode.FENCED_MEMBER_EPOCH: S.FENCED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: None,
    ErrorCode.GROUP_ID_NOT_FOUND: S.FAILED,
    ErrorCode.UNSUPPORTED_VERSION: S.FAILED,
    ErrorCode.NOT_COORDINATOR: None,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: None,
    ErrorCode.UNKNOWN_SERVER_ERROR: None,
}
"""The state after an answer, for a member that takes part; None: the state stays, and the heartbeat is sent again."""


@pytest.mark.parametrize(("state", "code"), list(product(S, AFTER)), ids=lambda value: value.name)
def test_every_answer_in_every_state(state: ShareMemberState, code: ErrorCode) -> None:
    member = member_in(state)
    member.answered(answer(code))
    takes_part = state in (S.JOINING, S.STABLE, S.FENCED)
    after = AFTER[code] or state
    if code is ErrorCode.GROUP_ID_NOT_FOUND and state is S.STABLE:
        after = S.FENCED  # the group of a member that has joined is gone, so the next heartbeat creates it again
    assert member.state is (after if takes_part else state)


@pytest.mark.parametrize("state", S, ids=lambda state: state.name)
def test_closing_in_every_state(state: ShareMemberState) -> None:
    member = member_in(state)
    member.close()
    left_without_a_request = {S.FENCED: S.LEFT, S.LEFT: S.LEFT, S.FAILED: S.FAILED}
    assert member.state is left_without_a_request.get(state, S.LEAVING)


def test_every_state_is_reached_by_the_table() -> None:
    reached = {following for events in TRANSITIONS.values() for following in events.values()}
    assert reached | {S.JOINING} == set(S)


def test_a_join_names_topics_and_rack_and_later_heartbeats_do_not() -> None:
    member = ShareMember("g", "id", ["orders", "bills"], rack="r1")
    join = member.heartbeat()
    assert (join.member_epoch, join.subscribed_topic_names, join.rack_id) == (0, ["bills", "orders"], "r1")
    member.answered(answer(epoch=7))
    later = member.heartbeat()
    assert (later.member_epoch, later.subscribed_topic_names, later.rack_id) == (7, None, None)


@pytest.mark.parametrize("failure", ["no answer", "an error"])
def test_after_a_failure_the_assignment_is_requested_again(failure: str) -> None:
    """A heartbeat with topics is such a request. The lost answer may have had another assignment."""
    member = member_in(S.STABLE)
    if failure == "no answer":
        member.unanswered()
    else:
        member.answered(answer(ErrorCode.NOT_COORDINATOR))
    again = member.heartbeat()
    assert (again.member_epoch, again.subscribed_topic_names, again.rack_id) == (3, ["bills", "orders"], "r1")
    member.answered(answer())
    assert member.heartbeat().subscribed_topic_names is None


def test_a_fenced_member_loses_its_partitions_and_joins_again_with_the_same_id() -> None:
    member = member_in(S.FENCED)
    assert member.assignment == frozenset()
    again = member.heartbeat()
    assert (again.member_id, again.member_epoch, again.subscribed_topic_names) == ("id", 0, ["bills", "orders"])


def test_an_answer_without_an_assignment_keeps_the_partitions() -> None:
    member = member_in(S.STABLE)
    member.answered(answer(epoch=4))
    assert member.assignment == {TopicIdPartition(TOPIC_ID, 0)}
    member.answered(answer(epoch=5, partitions=[]))
    assert member.assignment == frozenset()


def test_a_member_that_leaves_sends_epoch_minus_one_and_takes_no_assignment() -> None:
    member = member_in(S.LEAVING)
    assert member.heartbeat().member_epoch == -1
    member.answered(answer(partitions=[1]))
    assert member.assignment == {TopicIdPartition(TOPIC_ID, 0)}


def test_the_interval_of_heartbeats_is_the_coordinators() -> None:
    member = member_in(S.STABLE)
    assert member.heartbeat_interval == 2.0
    for milliseconds, seconds in ((0, SHORTEST_INTERVAL), (-1, SHORTEST_INTERVAL), (2**31 - 1, LONGEST_INTERVAL)):
        wrong = answer()
        wrong.heartbeat_interval_ms = milliseconds
        member.answered(wrong)
        assert member.heartbeat_interval == seconds


@pytest.mark.parametrize(
    "epoch, partitions, says",
    [
        (0, [0], "epoch 0"),
        (-1, [0], "epoch -1"),
        (7, [-1], "an assigned partition with the number -1"),
        (7, [2**31 - 1], "an assigned partition with the number 2147483647"),
        (7, [0] * (MAX_ASSIGNED + 1), "an assignment of 100001 partitions"),
    ],
    ids=["epoch 0", "epoch -1", "partition -1", "partition 2^31-1", "too many partitions"],
)
def test_an_answer_that_makes_no_sense_changes_nothing(epoch: int, partitions: list[int], says: str) -> None:
    member = member_in(S.STABLE)
    before = member.epoch, member.assignment
    error = member.answered(answer(epoch=epoch, partitions=partitions))
    assert isinstance(error, ProtocolError)
    assert says in str(error)
    assert (member.epoch, member.assignment, member.state) == (*before, S.STABLE)
    assert member.heartbeat().subscribed_topic_names is not None


def test_each_entry_of_a_topic_that_an_assignment_repeats_is_checked() -> None:
    assert problem_of_assignment([(TOPIC_ID, [-1]), (TOPIC_ID, [0])]) == "an assigned partition with the number -1"
    many = problem_of_assignment([(TOPIC_ID, [0] * MAX_ASSIGNED), (TOPIC_ID, [1])])
    assert many is not None
    assert "100001 partitions" in many
    response = answer(partitions=[2**31 - 1])
    assert response.assignment is not None
    response.assignment.topic_partitions.append(ShareGroupHeartbeatTopicPartitions(topic_id=TOPIC_ID, partitions=[0]))
    assert isinstance(member_in(S.STABLE).answered(response), ProtocolError)


def test_a_refusal_says_what_to_do() -> None:
    refused = member_in(S.JOINING).answered(answer(ErrorCode.GROUP_ID_NOT_FOUND))
    assert isinstance(refused, BrokerError)
    assert "a group of another type has this id; use another group_id" in str(refused)
    refused = member_in(S.JOINING).answered(answer(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert isinstance(refused, AuthorizationError)
    assert "needs READ on the group" in str(refused)


def test_a_member_whose_group_the_brokers_lost_joins_again_and_is_refused_only_then() -> None:
    member = member_in(S.STABLE)
    lost = member.answered(answer(ErrorCode.GROUP_ID_NOT_FOUND))
    assert "the brokers no longer know the group" in str(lost)
    assert (member.state, member.heartbeat().member_epoch) == (S.FENCED, 0)
    refused = member.answered(answer(ErrorCode.GROUP_ID_NOT_FOUND))
    assert member.state is S.FAILED
    assert "a group of another type has this id" in str(refused)


def test_programs_that_seed_random_alike_have_members_of_different_ids() -> None:
    ids = set()
    for _ in range(2):
        random.seed(42)
        ids.add(ShareConsumer("localhost:9092", topics=["orders"], group_id="billing").member_id)
    assert len(ids) == 2
    assert {len(id_) for id_ in ids} == {22}
