"""The group of the embedded broker: which requests wait, which members are dropped, when a generation begins."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from aiokafka_lite.embedded.coordinators.groups.group import (
    NEW_MEMBER_JOIN_TIMEOUT,
    Group,
    GroupState,
)
from aiokafka_lite.embedded.coordinators.groups.members import JoiningMember, JoinResult, SyncResult
from aiokafka_lite.errors import ErrorCode

Joining = JoinResult | asyncio.Future[JoinResult]
Syncing = SyncResult | asyncio.Future[SyncResult]


class Members:
    """A group, and requests to it with default values."""

    def __init__(self, **settings: Any) -> None:
        numbers = itertools.count(1)
        self.persisted: list[tuple[GroupState, int]] = []
        self.waiting: list[Callable[[ErrorCode], None]] | None = None
        """The writes that the replicas do not have yet; None if they have each write at once."""
        self.group = Group(
            "g",
            call_later=asyncio.get_running_loop().call_later,
            new_id=lambda: str(next(numbers)),
            persist=self._persist,
            **settings,
        )

    def _persist(self, group: Group, assignments: Mapping[str, bytes], stored: Callable[[ErrorCode], None]) -> None:
        self.persisted.append((group.state, group.generation))
        if self.waiting is None:
            stored(ErrorCode.NONE)
        else:
            self.waiting.append(stored)

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        session: float = 10.0,
        rebalance: float = 60.0,
        protocols: str = "range",
        about: bytes = b"s",
        require_id: bool = False,
        protocol_type: str = "consumer",
    ) -> Joining:
        names = tuple((name, about) for name in protocols.split())
        request = JoiningMember(member_id, instance, "c", "/host", session, rebalance, protocol_type, names)
        return self.group.join(request, require_member_id=require_id)

    def sync(self, result: JoinResult, assignments: Mapping[str, bytes] = {}, **settings: Any) -> Syncing:
        instance = settings.pop("instance", None)
        return self.group.sync(result.member_id, instance, result.generation, assignments, **settings)

    def heartbeat(self, result: JoinResult, instance: str | None = None) -> ErrorCode:
        return self.group.heartbeat(result.member_id, instance, result.generation)

    async def of(self, *names: str, **settings: Any) -> list[JoinResult]:
        """Return a stable group of new members; the assignments are their own ids."""
        waiting = [future(self.join(**settings)) for _ in names]
        if len(names) > 1:
            first = await waiting[0]
            waiting[0] = future(self.join(first.member_id, **settings))
        results = [await join for join in waiting]
        await self.settle(results)
        return results

    async def settle(self, results: list[JoinResult]) -> None:
        leader = next(result for result in results if result.member_id == result.leader)
        assignments = {result.member_id: result.member_id.encode() for result in results}
        answers = [
            future(self.sync(result, assignments if result is leader else {}))
            for result in sorted(results, key=lambda result: result is leader)
        ]
        assert {(await answer).error for answer in answers} == {ErrorCode.NONE}
        assert self.group.state is GroupState.STABLE


def future(answer: Any) -> asyncio.Future[Any]:
    """Return an answer as a future, which is done if the answer was immediate."""
    if isinstance(answer, asyncio.Future):
        return answer
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    done.set_result(answer)
    return done


def error_of(answer: Any) -> ErrorCode:
    assert isinstance(answer, JoinResult | SyncResult), answer
    return answer.error


@pytest.fixture
async def members() -> Any:
    members = Members()
    yield members
    members.group.close(ErrorCode.NOT_COORDINATOR)


# Joining.


async def test_the_first_member_leads_and_brings_the_assignment(members: Members) -> None:
    result = await future(members.join(about=b"mine"))
    assert (result.generation, result.leader, result.protocol) == (1, result.member_id, "range")
    assert result.members == ((result.member_id, None, b"mine"),)
    assert members.group.state is GroupState.COMPLETING_REBALANCE
    synced = await future(members.sync(result, {result.member_id: b"all"}))
    assert synced.assignment == b"all"
    assert members.group.state is GroupState.STABLE
    assert members.persisted == [(GroupState.COMPLETING_REBALANCE, 1)]


async def test_a_new_member_gets_an_id_and_the_group_waits_for_it(members: Members) -> None:
    refusal = members.join(require_id=True)
    assert isinstance(refusal, JoinResult)
    assert refusal.error is ErrorCode.MEMBER_ID_REQUIRED
    assert refusal.member_id == "c-1"
    other = members.join()
    await asyncio.sleep(5.0)
    assert isinstance(other, asyncio.Future)
    assert not other.done()
    mine = members.join("c-1")
    assert (await future(mine)).generation == 1
    assert (await other).generation == 1


async def test_a_pending_member_that_never_joins_is_dropped(members: Members) -> None:
    members.join(require_id=True, session=10.0)
    other = members.join()
    await asyncio.sleep(10.1)
    assert future(other).done()
    assert error_of(members.join("c-1")) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_pending_member_may_leave(members: Members) -> None:
    members.join(require_id=True)
    other = future(members.join())
    assert members.group.leave("c-1", None) is ErrorCode.NONE
    assert other.done()


async def test_a_new_member_waits_until_the_others_have_joined_again(members: Members) -> None:
    (first,) = await members.of("first")
    second = future(members.join())
    await asyncio.sleep(1.0)
    assert not second.done()
    assert members.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    again = future(members.join(first.member_id))
    assert (await again).generation == (await second).generation == 2
    assert (await again).leader == first.member_id
    assert len((await again).members) == 2
    assert (await second).members == ()


async def test_a_member_that_does_not_join_in_time_is_dropped(members: Members) -> None:
    (first,) = await members.of("first", session=1_000.0, rebalance=30.0)
    second = future(members.join(rebalance=20.0))
    await asyncio.sleep(29.0)
    assert not second.done()
    await asyncio.sleep(2.0)
    assert (await second).leader == (await second).member_id
    assert members.heartbeat(first) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_the_first_rebalance_waits_for_more_members() -> None:
    members = Members(initial_delay=3.0)
    first = future(members.join())
    await asyncio.sleep(2.0)
    second = future(members.join())
    await asyncio.sleep(2.0)
    assert not first.done()
    await asyncio.sleep(2.1)
    assert len((await first).members) == 2
    assert second.done()


@pytest.mark.parametrize(
    "wrong,error",
    [
        ({"protocols": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "unknown", "instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_wrong_joins_are_refused(members: Members, wrong: dict[str, Any], error: ErrorCode) -> None:
    await members.of("first")
    assert error_of(members.join(**wrong)) is error


async def test_the_protocol_is_elected_among_those_that_all_members_support(members: Members) -> None:
    (first,) = await members.of("first", protocols="sticky range roundrobin")
    others = [future(members.join(protocols=protocols)) for protocols in ("range roundrobin", "roundrobin range")]
    again = future(members.join(first.member_id, protocols="sticky range roundrobin"))
    assert (await again).protocol == "range"
    assert {(await other).protocol for other in others} == {"range"}


async def test_a_full_group_accepts_no_member(members: Members) -> None:
    members.group.max_size = 1
    (first,) = await members.of("first")
    assert error_of(members.join()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not isinstance(members.join(first.member_id, about=b"changed"), JoinResult)


async def test_a_lost_answer_is_repeated(members: Members) -> None:
    first, second = await members.of("first", "second")
    follower = second if second.leader != second.member_id else first
    again = members.join(follower.member_id)
    assert isinstance(again, JoinResult)
    assert again.generation == members.group.generation
    assert members.group.state is GroupState.STABLE
    # The leader's join, and one that wants something else, begin a rebalance.
    assert isinstance(members.join(follower.member_id, about=b"else"), asyncio.Future)
    assert members.group.state is GroupState.PREPARING_REBALANCE


# Syncing.


async def test_followers_wait_for_the_leader(members: Members) -> None:
    first = future(members.join())
    result = await first
    other = future(members.join())
    again = await future(members.join(result.member_id))
    theirs = await other
    waiting = future(members.sync(theirs))
    await asyncio.sleep(1.0)
    assert not waiting.done()
    mine = future(members.sync(again, {again.member_id: b"a", theirs.member_id: b"b"}))
    assert ((await mine).assignment, (await waiting).assignment) == (b"a", b"b")
    assert error_of(members.sync(theirs)) is ErrorCode.NONE  # asked again, answered again


async def test_a_rebalance_fails_waiting_syncs(members: Members) -> None:
    result = await future(members.join())
    other = future(members.join())
    again, theirs = await future(members.join(result.member_id)), await other
    waiting = future(members.sync(theirs))
    members.join()
    assert (await waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert error_of(members.sync(again)) is ErrorCode.REBALANCE_IN_PROGRESS


async def test_wrong_syncs_are_refused(members: Members) -> None:
    (result,) = await members.of("first")
    assert error_of(members.sync(result._replace(generation=9))) is ErrorCode.ILLEGAL_GENERATION
    assert error_of(members.sync(result._replace(member_id="x"))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error_of(members.sync(result, protocol="sticky")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert error_of(members.sync(result, protocol_type="connect")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_a_member_that_never_syncs_is_dropped(members: Members) -> None:
    result = await future(members.join(rebalance=20.0, session=1_000.0))
    await asyncio.sleep(20.1)
    assert members.heartbeat(result) is ErrorCode.UNKNOWN_MEMBER_ID
    assert members.group.state is GroupState.EMPTY


# Staying, leaving, being dropped.


async def test_a_member_without_heartbeats_expires(members: Members) -> None:
    (result,) = await members.of("first", session=10.0)
    for _ in range(5):
        await asyncio.sleep(9.0)
        assert members.heartbeat(result) is ErrorCode.NONE
    assert members.heartbeat(result._replace(generation=7)) is ErrorCode.ILLEGAL_GENERATION
    await asyncio.sleep(10.1)
    assert members.heartbeat(result) is ErrorCode.UNKNOWN_MEMBER_ID
    assert members.group.state is GroupState.EMPTY
    assert members.persisted[-1] == (GroupState.EMPTY, 2)


async def test_a_new_member_may_wait_in_its_join_beyond_its_session(members: Members) -> None:
    (first,) = await members.of("first", session=1_000.0, rebalance=200.0)
    waiting = future(members.join(session=6.0))
    await asyncio.sleep(100.0)
    assert not waiting.done()
    assert NEW_MEMBER_JOIN_TIMEOUT > 100.0
    members.join(first.member_id)
    assert (await waiting).error is ErrorCode.NONE


async def test_when_the_leader_leaves_the_others_rebalance_under_a_new_one(members: Members) -> None:
    first, second = await members.of("first", "second")
    leader, other = (first, second) if first.leader == first.member_id else (second, first)
    assert members.group.leave(leader.member_id, None) is ErrorCode.NONE
    assert members.group.state is GroupState.PREPARING_REBALANCE
    again = await future(members.join(other.member_id))
    assert again.leader == other.member_id
    assert members.group.leave("unknown", None) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_closing_a_group_answers_the_waiting_requests(members: Members) -> None:
    (first,) = await members.of("first")
    waiting = future(members.join())
    members.group.close(ErrorCode.NOT_COORDINATOR)
    assert (await waiting).error is ErrorCode.NOT_COORDINATOR
    assert error_of(members.join()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert members.heartbeat(first) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert members.group.leave(first.member_id, None) is ErrorCode.COORDINATOR_NOT_AVAILABLE


# Writes that take time.


async def test_assignments_count_when_the_replicas_have_them(members: Members) -> None:
    result = await future(members.join())
    members.waiting = []
    syncing = future(members.sync(result, {result.member_id: b"mine"}))
    assert members.heartbeat(result) is ErrorCode.NONE
    await asyncio.sleep(1.0)
    assert members.group.state is GroupState.COMPLETING_REBALANCE
    assert not syncing.done()
    members.waiting.pop()(ErrorCode.NONE)
    assert (await syncing).assignment == b"mine"
    assert members.group.state is GroupState.STABLE


async def test_assignments_that_the_replicas_do_not_get_begin_another_rebalance(members: Members) -> None:
    result = await future(members.join())
    members.waiting = []
    syncing = future(members.sync(result, {result.member_id: b"mine"}))
    members.waiting.pop()(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert await syncing == SyncResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert members.group.members[result.member_id].assignment == b""
    assert members.heartbeat(result) is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("outcome", [ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE])
async def test_the_outcome_of_a_write_does_not_count_in_the_next_generation(
    members: Members, outcome: ErrorCode
) -> None:
    first = await future(members.join())
    members.waiting = []
    syncing = future(members.sync(first, {first.member_id: b"mine"}))
    other = future(members.join())
    assert await syncing == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    again = await future(members.join(first.member_id))
    await other
    members.waiting.pop()(outcome)
    assert members.group.state is GroupState.COMPLETING_REBALANCE
    assert members.group.members[first.member_id].assignment == b""
    assert members.heartbeat(again) is ErrorCode.NONE


async def test_a_static_member_whose_return_is_not_stored_is_as_before(members: Members) -> None:
    result = await future(members.join(instance="i"))
    await future(members.sync(result, {result.member_id: b"mine"}, instance="i"))
    members.waiting = []
    back = future(members.join(instance="i"))
    assert members.heartbeat(result, "i") is ErrorCode.FENCED_INSTANCE_ID
    members.waiting.pop()(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert await back == JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert members.heartbeat(result, "i") is ErrorCode.NONE
    assert (await future(members.sync(result, instance="i"))).assignment == b"mine"
    again = members.join(result.member_id, instance="i", about=b"other")
    assert (await future(again)).leader == result.member_id


@pytest.mark.parametrize("outcome", [ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE])
async def test_the_outcome_of_a_static_members_return_does_not_count_in_its_next_join(
    members: Members, outcome: ErrorCode
) -> None:
    first = await future(members.join(instance="i"))
    await future(members.sync(first, {first.member_id: b"mine"}, instance="i"))
    members.waiting = []
    returning, joining = future(members.join(instance="i")), future(members.join())
    back, other = await returning, await joining
    third = future(members.join())
    again = future(members.join(back.member_id, instance="i"))
    members.waiting.pop()(outcome)
    assert not again.done()
    members.join(other.member_id)
    assert (await again).generation == (await third).generation == 3
    assert members.heartbeat(await again, "i") is ErrorCode.NONE


async def test_members_that_have_synced_wait_for_a_slow_write_beyond_the_rebalance_timeout(members: Members) -> None:
    result = await future(members.join(rebalance=20.0))
    members.waiting = []
    syncing = future(members.sync(result, {result.member_id: b"mine"}))
    await asyncio.sleep(20.1)
    assert members.group.state is GroupState.COMPLETING_REBALANCE
    assert not syncing.done()
    members.waiting.pop()(ErrorCode.NONE)
    assert (await syncing).assignment == b"mine"


# Static members.


async def test_a_static_member_gets_its_place_back_without_a_rebalance(members: Members) -> None:
    result = await future(members.join(instance="i"))
    await future(members.sync(result, {result.member_id: b"mine"}, instance="i"))
    back = await future(members.join(instance="i"))
    assert back.former_leader == result.member_id
    assert back.generation == result.generation
    assert back.member_id != result.member_id
    assert members.heartbeat(result, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert error_of(members.sync(result, instance="i")) is ErrorCode.FENCED_INSTANCE_ID
    assert error_of(members.join(result.member_id, instance="i")) is ErrorCode.FENCED_INSTANCE_ID
    assert (await future(members.sync(back, instance="i"))).assignment == b"mine"
    assert members.group.state is GroupState.STABLE


async def test_a_static_member_keeps_its_place_until_its_session_ends(members: Members) -> None:
    result = await future(members.join(instance="i", session=10.0))
    await future(members.sync(result, {result.member_id: b"mine"}, instance="i"))
    await asyncio.sleep(9.9)
    assert "i" in members.group.members.static
    await asyncio.sleep(0.2)
    assert "i" not in members.group.members.static
    assert members.group.state is GroupState.EMPTY


async def test_an_operator_removes_a_static_member_by_its_instance_alone(members: Members) -> None:
    await future(members.join(instance="i"))
    assert members.group.leave("", "other") is ErrorCode.UNKNOWN_MEMBER_ID
    assert members.group.leave("", "i") is ErrorCode.NONE
    assert members.group.members == {}


async def test_a_static_member_that_does_not_join_again_is_not_dropped_with_the_dynamic_ones(
    members: Members,
) -> None:
    result = await future(members.join(instance="i", session=1_000.0, rebalance=20.0))
    await future(members.sync(result, {result.member_id: b"mine"}, instance="i"))
    newcomer = future(members.join(rebalance=20.0))
    await asyncio.sleep(20.1)
    assert (await newcomer).generation == 2
    assert "i" in members.group.members.static


# Moving to another coordinator.


async def test_a_restored_group_continues_its_generation() -> None:
    old, new = Members(), Members()
    (result,) = await old.of("first")
    members = list(old.group.members.values())
    new.group.restore(old.group.generation, old.group.members.leader, old.group.protocol, members)
    assert new.heartbeat(result) is ErrorCode.NONE
    assert new.group.state is GroupState.STABLE
    for group in (old, new):
        group.group.close(ErrorCode.NOT_COORDINATOR)
