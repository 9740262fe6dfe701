"""The heartbeats of a thread: what it sends after each answer, and what the member does about it afterwards."""

from __future__ import annotations

import time
from typing import Any

import pytest

from aiokafka_lite.cluster.client import Client
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.group.beats import SHORTEST_PATIENCE, ClassicBeat, ConsumerBeat, patience
from aiokafka_lite.group.events import (
    ConsumerHeartbeatAnswer,
    Identity,
    MovedByThread,
    Released,
    SendHeartbeat,
    ThreadStarted,
)
from aiokafka_lite.group.heartbeat_thread import HeartbeatThread
from aiokafka_lite.group.states import MemberState
from aiokafka_lite.protocol.messages import (
    ConsumerGroupHeartbeatResponse,
    HeartbeatResponse,
    ShareGroupHeartbeatAssignment,
    ShareGroupHeartbeatResponse,
)
from aiokafka_lite.settings.client import ClientConfig
from aiokafka_lite.share.beat import ShareBeat
from aiokafka_lite.share.member import ShareMember
from tests.pure.aio.recording_component import Probe
from tests.pure.group.member_driver import only
from tests.pure.group.test_consumer_member import IDS, NAMES, Driver, owned_in
from tests.waiting import until

FINAL = [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_AUTHORIZATION_FAILED]
RETRIED = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR]


def classic(**values: Any) -> ClassicBeat:
    settings = {"session_timeout": 45.0, "heartbeat_interval": 3.0, "is_joining": False}
    return ClassicBeat("g", Identity("m", 7, "i"), **{**settings, **values})


def consumer_answer(epoch: int, code: ErrorCode = ErrorCode.NONE) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, member_epoch=epoch, heartbeat_interval_ms=5000)


def share_answer(
    epoch: int, code: ErrorCode = ErrorCode.NONE, assignment: ShareGroupHeartbeatAssignment | None = None
) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
        error_code=code, member_epoch=epoch, heartbeat_interval_ms=5000, assignment=assignment
    )


# When the thread sends.


@pytest.mark.parametrize(
    ("session", "interval", "seconds"), [(45.0, 3.0, 15.0), (6.0, 1.0, 2.0), (6.0, 3.0, 1.5), (1.0, 0.1, 1.5)]
)
def test_the_thread_waits_for_a_third_of_the_session_or_less(session: float, interval: float, seconds: float) -> None:
    assert patience(session, interval) == seconds


def test_the_consumer_and_share_protocols_wait_for_an_interval_because_the_session_is_not_known() -> None:
    assert ConsumerBeat("g", Identity("m", 1, None), 5.0).patience == 5.0
    assert ShareBeat("g", "m", 1, 5.0).patience == 5.0
    assert ConsumerBeat("g", Identity("m", 1, None), 0.1).patience == SHORTEST_PATIENCE


# What the thread sends.


def test_a_heartbeat_of_the_consumer_protocol_has_no_optional_field() -> None:
    request = ConsumerBeat("g", Identity("m", 7, "i"), 5.0).request()
    assert (request.group_id, request.member_id, request.member_epoch, request.instance_id) == ("g", "m", 7, "i")
    assert (request.rack_id, request.rebalance_timeout_ms, request.server_assignor) == (None, -1, None)
    assert (request.subscribed_topic_names, request.topic_partitions) == (None, None)


def test_the_next_heartbeat_has_the_epoch_of_the_last_answer() -> None:
    beat = ConsumerBeat("g", Identity("m", 7, None), 5.0)
    assert beat.following(consumer_answer(7)) is beat
    following = beat.following(consumer_answer(9))
    assert following is not None
    assert following.request().member_epoch == 9
    share = ShareBeat("g", "m", 7, 5.0).following(share_answer(9))
    assert share is not None
    assert share.request().member_epoch == 9


@pytest.mark.parametrize("code", FINAL)
def test_nothing_follows_an_error_that_only_the_event_loop_can_handle(code: ErrorCode) -> None:
    assert classic().following(HeartbeatResponse(error_code=code)) is None
    assert ConsumerBeat("g", Identity("m", 7, None), 5.0).following(consumer_answer(0, code)) is None
    assert ShareBeat("g", "m", 7, 5.0).following(share_answer(0, code)) is None


def test_the_epoch_of_an_unread_answer_is_read_from_the_refusal() -> None:
    beat = ConsumerBeat("g", Identity("m", 7, None), 5.0)
    text = (
        "The consumer group member has a smaller member epoch (7) than the one known by the group coordinator ({}). "
        "The member must abandon all its partitions and rejoin."
    )
    fenced = consumer_answer(0, ErrorCode.FENCED_MEMBER_EPOCH)
    fenced.error_message = text.format(9)
    following = beat.following(fenced)
    assert following is not None
    assert (following.request().member_epoch, following.request().topic_partitions) == (9, None)
    for other in (text.format(6), text.format("?"), text.format(10**12), "", None):
        fenced.error_message = other
        assert beat.following(fenced) is None


@pytest.mark.parametrize("code", RETRIED)
def test_the_same_heartbeat_follows_an_error_that_may_pass(code: ErrorCode) -> None:
    for beat, response in [
        (classic(), HeartbeatResponse(error_code=code)),
        (ConsumerBeat("g", Identity("m", 7, None), 5.0), consumer_answer(0, code)),
        (ShareBeat("g", "m", 7, 5.0), share_answer(0, code)),
    ]:
        assert beat.following(response) is beat  # type: ignore[arg-type]


def test_a_member_of_the_classic_protocol_keeps_its_session_during_a_rebalance() -> None:
    beat = classic()
    assert beat.following(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)) is beat
    assert beat.following(HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION)) is None


def test_a_joining_member_follows_the_group_to_the_generation_of_the_unread_answer() -> None:
    later = classic(is_joining=True).following(HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION))
    assert later is not None
    assert later.request().generation_id == 8
    for _ in range(2):
        assert later is not None
        later = later.following(HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION))
    assert later is not None
    assert later.following(HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION)) is None


# What the member of the consumer protocol does afterwards.


def test_the_member_asks_for_the_assignment_that_the_thread_got() -> None:
    driver = Driver().settle(0)
    request = only(driver.handle(MovedByThread(1, 3)), SendHeartbeat).request
    assert request.member_epoch == 3
    assert (request.subscribed_topic_names, request.rebalance_timeout_ms) == (["t"], 60_000)
    assert owned_in(driver.sent) == {IDS["t"]: [0]}


def test_an_answer_that_waited_for_the_loop_does_not_take_the_epoch_back() -> None:
    driver = Driver().settle(0)
    in_flight = driver.due()
    assert driver.handle(MovedByThread(1, 2)) == []  # one heartbeat is in flight at a time
    assert driver.handle(MovedByThread(2, 4)) == []
    (heartbeat,) = driver.handle(ConsumerHeartbeatAnswer(in_flight.attempt, consumer_answer(1), NAMES))
    assert isinstance(heartbeat, SendHeartbeat)
    assert heartbeat.request.member_epoch == 4
    assert heartbeat.request.subscribed_topic_names == ["t"]


def test_a_thread_of_an_earlier_membership_does_not_move_the_member() -> None:
    driver = Driver().settle(0)
    assert driver.handle(MovedByThread(8, 9)) == []
    assert driver.member.generation == 1
    driver.due()
    driver.refuse(ErrorCode.FENCED_MEMBER_EPOCH)
    assert driver.handle(MovedByThread(1, 2)) == []


def test_with_a_thread_every_heartbeat_of_a_stable_member_lists_its_partitions() -> None:
    driver = Driver().settle(0)
    assert owned_in(driver.due()) is None
    driver.answer()
    assert driver.handle(ThreadStarted()) == []
    assert owned_in(driver.due()) == {IDS["t"]: [0]}


def test_a_member_that_releases_partitions_lists_none_of_its_own_accord() -> None:
    driver = Driver().settle(0, 1)
    driver.handle(ThreadStarted())
    revoke = driver.revoke(0)
    assert driver.state is MemberState.REVOKING
    assert owned_in(driver.due()) is None
    driver.answer()
    driver.handle(Released(revoke.number))
    assert owned_in(driver.sent) == {IDS["t"]: [0]}


# What the member of a share group does afterwards.


def test_a_share_member_asks_for_the_assignment_that_the_thread_got() -> None:
    member = ShareMember("g", "m", ["t"])
    member.answered(share_answer(1))
    assert member.heartbeat().subscribed_topic_names is None
    member.moved(1, 3)
    member.answered(share_answer(1))  # the answer to the heartbeat that was in flight
    request = member.heartbeat()
    assert (request.member_epoch, request.subscribed_topic_names) == (3, ["t"])
    member.answered(share_answer(3))
    assert member.heartbeat().subscribed_topic_names is None


# When the thread starts.


async def test_a_block_while_the_member_closes_starts_no_thread_and_is_no_error() -> None:
    client, closed = Client(ClientConfig(bootstrap_servers="localhost:9092")), Probe()
    await closed.close()
    started: list[str] = []
    thread = HeartbeatThread(
        client,
        "g",
        "auto",
        closed.service.start_child,
        beat=lambda: None,
        on_answer=lambda answer: None,
        poll_left=lambda: 1.0,
        on_start=lambda: started.append("thread"),
    )
    client.loop_delay.start()
    thread.watch()
    time.sleep(2.2)
    await until(lambda: client.loop_delay.blocks == 1, "the block is measured")
    client.loop_delay.stop()
    assert started == []
    assert thread.newest is None
