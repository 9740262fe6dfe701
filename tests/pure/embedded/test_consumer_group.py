"""The consumer group of the embedded broker: epochs, targets, revocations, sessions, and the state after a move."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafka_lite.embedded.coordinators.groups.assignors import TopicIdPartition
from aiokafka_lite.embedded.coordinators.groups.consumer_group import (
    ConsumerGroup,
    HeartbeatResult,
    MemberHeartbeat,
)
from aiokafka_lite.embedded.coordinators.groups.consumer_group_members import LEAVE_STATIC
from aiokafka_lite.embedded.coordinators.groups.consumer_group_records import read_consumer_key
from aiokafka_lite.embedded.coordinators.groups.heartbeat_group import (
    LEAVE,
    GroupEnvironment,
    GroupRefusal,
    HeartbeatGroupState,
)
from aiokafka_lite.embedded.coordinators.log import Rows
from aiokafka_lite.embedded.metadata.topics import PartitionRegistration, Topic
from aiokafka_lite.embedded.metadata.view import MetadataView
from aiokafka_lite.embedded.settings.configs import TopicConfig
from aiokafka_lite.errors import ErrorCode

SESSION = 45.0
REBALANCE = 20.0
SETTINGS = {"consumer.session.timeout.ms": 45000, "consumer.assignment.interval.ms": 0}


class World:
    """A group with its topics, and heartbeats with default values."""

    def __init__(self, **settings: int) -> None:
        self.metadata = MetadataView()
        self.log: dict[tuple[int, str], bytes] = {}
        self.is_refused = False  # whether the log refuses records
        self.now, self.now_ms = 5.0, 1_000_000
        self.settings = SETTINGS | {name.replace("_", "."): value for name, value in settings.items()}
        self.group = self.new_group()

    def new_group(self) -> ConsumerGroup:
        environment = GroupEnvironment(
            metadata=self.metadata,
            setting=self.settings.__getitem__,
            max_size=3,
            call_later=asyncio.get_running_loop().call_later,
            now=lambda: self.now,
            now_ms=lambda: self.now_ms,
        )
        return ConsumerGroup(
            "g",
            environment,
            assignors=["uniform", "range"],
            persist=self.store,
            downgrade=lambda group: False,
        )

    def store(self, rows: Rows) -> None:
        if self.is_refused:
            raise GroupRefusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        for key, value in rows:
            about = read_consumer_key(key)
            assert about is not None
            kind, group_id, member_id = about
            assert group_id == "g"
            if value is None:
                del self.log[kind, member_id]
            else:
                self.log[kind, member_id] = value

    def topic(self, name: str, partitions: int) -> None:
        state = PartitionRegistration((1,), (1,), 1)
        self.metadata.put(Topic(name, name.encode().ljust(16), (state,) * partitions, TopicConfig.parse({}, {})))

    def heartbeat(self, member_id: str, epoch: int, owned: object = None, **values: object) -> HeartbeatResult:
        request = MemberHeartbeat(member_id, epoch, "c", "/h")._replace(owned=owned, **values)  # type: ignore[arg-type]
        return self.group.heartbeat(request, lambda name: not name.startswith("secret"))

    def join(self, member_id: str, *topics: str, **values: object) -> HeartbeatResult:
        subscription = {"rebalance_timeout": REBALANCE, "topics": topics} | values
        return self.heartbeat(member_id, 0, frozenset(), **subscription)

    def settle(self) -> Mapping[str, set[TopicIdPartition]]:
        """Let each member report what it owns, until the group is stable: at most three rounds."""
        for _ in range(3):
            for member in list(self.group.members.values()):
                self.heartbeat(member.member_id, member.epoch, frozenset(member.assigned))
        assert self.group.state in (HeartbeatGroupState.STABLE, HeartbeatGroupState.EMPTY)
        return {member.member_id: set(member.assigned) for member in self.group.members.values()}


def numbers(assignment: object) -> list[int]:
    assert assignment is not None
    return sorted(number for _, number in assignment)  # type: ignore[attr-defined]


@pytest.fixture
async def world() -> World:
    world = World()
    world.topic("t", 4)
    return world


async def test_the_first_member_gets_all_partitions(world: World) -> None:
    answer = world.join("a", "t")
    assert (answer.epoch, numbers(answer.assignment)) == (2, [0, 1, 2, 3])
    assert world.group.state is HeartbeatGroupState.STABLE


async def test_a_partition_passes_on_when_its_owner_has_revoked_it(world: World) -> None:
    world.join("a", "t")
    assert world.join("b", "t").assignment == frozenset()
    kept = world.heartbeat("a", 2).assignment
    assert world.group.state is HeartbeatGroupState.RECONCILING
    assert world.heartbeat("b", 3).assignment is None, "a has not revoked"
    assert world.heartbeat("a", 2, kept).epoch == 3
    moved = world.heartbeat("b", 3).assignment
    assert sorted([*numbers(kept), *numbers(moved)]) == [0, 1, 2, 3]
    assert world.group.state is HeartbeatGroupState.STABLE


async def test_a_member_that_does_not_revoke_in_time_is_fenced(world: World) -> None:
    world.join("a", "t")
    world.join("b", "t")
    world.heartbeat("a", 2)
    await asyncio.sleep(REBALANCE + 1)
    assert list(world.group.members) == ["b"]
    with pytest.raises(GroupRefusal, match="Member a is not a member of group g"):
        world.heartbeat("a", 2)


async def test_an_assignment_that_the_log_refuses_begins_no_interval() -> None:
    world = World(consumer_assignment_interval_ms=1000)
    world.topic("t", 4)
    world.join("a", "t")
    world.now += 1
    world.is_refused = True
    with pytest.raises(GroupRefusal):
        world.join("b", "t")
    world.is_refused = False
    assert world.join("b", "t").epoch == 3


async def test_a_member_without_heartbeats_is_fenced(world: World) -> None:
    world.join("a", "t")
    world.join("b", "t")
    world.settle()
    await asyncio.sleep(SESSION - 1)
    world.heartbeat("b", 3)
    await asyncio.sleep(2)
    assert list(world.group.members) == ["b"]
    assert len(world.settle()["b"]) == 4


async def test_new_partitions_begin_a_new_epoch(world: World) -> None:
    world.join("a", "t", "later")
    world.topic("t", 5)
    answer = world.heartbeat("a", 2)
    assert (answer.epoch, numbers(answer.assignment)) == (3, [0, 1, 2, 3, 4])
    world.topic("later", 1)
    assert len(world.heartbeat("a", 3).assignment or ()) == 6
    world.metadata.remove(world.metadata.topics["t"])
    assert len(world.heartbeat("a", 4).assignment or ()) == 1


async def test_a_pattern_matches_the_topics_that_the_member_may_describe(world: World) -> None:
    for name in ("t2", "other", "secret-t"):
        world.topic(name, 1)
    assert len(world.join("a", regex=".*t.?", topics=None).assignment or ()) == 4 + 1
    world.topic("t3", 1)
    assert len(world.heartbeat("a", 2).assignment or ()) == 4 + 1 + 1


async def test_assignments_are_computed_at_most_once_in_the_interval() -> None:
    world = World(consumer_assignment_interval_ms=1000)
    world.topic("t", 4)
    world.join("a", "t")
    assert world.join("b", "t") == HeartbeatResult("b", 2, frozenset())
    assert world.group.state is HeartbeatGroupState.ASSIGNING
    world.now_ms += 1000
    assert world.heartbeat("b", 2).epoch == 2
    world.now += 1.0
    assert world.heartbeat("b", 2).epoch == 3


async def test_a_time_of_day_that_goes_back_delays_no_assignment() -> None:
    world = World(consumer_assignment_interval_ms=1000)
    world.topic("t", 4)
    world.join("a", "t")
    world.now += 1.0
    world.now_ms -= 100_000
    assert world.join("b", "t").epoch == 3


async def test_a_full_group_takes_no_other_member(world: World) -> None:
    for member in "abc":
        world.join(member, "t")
    with pytest.raises(GroupRefusal) as refused:
        world.join("d", "t")
    assert refused.value.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.join("c", "t").member_id == "c"


async def test_most_members_choose_the_assignor(world: World) -> None:
    world.join("a", "t")
    assert world.group.assignor == "uniform"
    world.join("b", "t", assignor="range")
    world.join("c", "t", assignor="range")
    assert world.group.assignor == "range"


async def test_a_static_member_that_is_away_keeps_its_partitions(world: World) -> None:
    world.join("a", "t", instance_id="i")
    world.join("b", "t")
    owned = world.settle()
    world.group.leave("a", "i", LEAVE_STATIC)
    assert set(world.join("b", "t").assignment or ()) == owned["b"]
    assert set(world.join("c", "t", instance_id="i").assignment or ()) == owned["a"]


async def test_a_static_member_that_returns_with_the_id_of_another_member_takes_its_place(world: World) -> None:
    """As in Kafka, the partitions of the other member have no owner until the next epoch."""
    world.join("a", "t", instance_id="i")
    world.join("b", "t")
    owned = world.settle()
    world.group.leave("a", "i", LEAVE_STATIC)
    await asyncio.sleep(SESSION - 10)
    assert set(world.join("b", "t", instance_id="i").assignment or ()) == owned["a"]
    assert [(member.member_id, member.instance_id) for member in world.group.members.values()] == [("b", "i")]
    assert world.group.epoch == 3
    await asyncio.sleep(SESSION - 10)
    assert list(world.group.members) == ["b"], "the session of the other member is over, that of the static one is not"
    await asyncio.sleep(20)
    assert world.group.is_empty


async def test_a_join_with_the_id_of_a_static_member_is_that_member(world: World) -> None:
    first = world.join("a", "t", instance_id="i")
    again = world.join("a", "t")
    assert (again.epoch, again.assignment) == (first.epoch, first.assignment)
    assert world.group.owner("i", "a") is world.group.members["a"]


async def test_a_restored_group_has_the_same_state(world: World) -> None:
    world.join("a", "t", instance_id="i", rack_id="r")
    world.join("b", "t", assignor="range")
    world.settle()
    world.join("c", regex="t", topics=())
    world.heartbeat("a", 3)
    before, stored = world.group, dict(world.log)
    before.close(ErrorCode.NOT_COORDINATOR)
    world.group = world.new_group()
    world.group.restore(stored)
    assert world.group.stored.tombstones() == before.stored.tombstones()
    assert world.group.state is before.state
    for member_id, member in before.members.items():
        restored = world.group.members[member_id]
        for name in ("instance_id", "rack_id", "topics", "regex", "assignor", "epoch", "assigned", "revoking", "state"):
            assert getattr(restored, name) == getattr(member, name), name
    assert len({partition for owner in world.settle().values() for partition in owner}) == 4


async def test_a_restored_member_that_does_not_revoke_in_time_is_fenced(world: World) -> None:
    world.join("a", "t")
    world.join("b", "t")
    world.heartbeat("a", 2)
    before = world.group
    before.close(ErrorCode.NOT_COORDINATOR)
    world.group = world.new_group()
    world.group.restore(dict(world.log))
    await asyncio.sleep(REBALANCE + 1)
    assert list(world.group.members) == ["b"]


async def test_a_member_that_takes_an_instance_id_stays_one_member(world: World) -> None:
    world.join("a", "t")
    assert numbers(world.join("a", "t", instance_id="i").assignment) == [0, 1, 2, 3]
    world.join("a", "t")
    await asyncio.sleep(SESSION + 1)
    assert world.group.state is HeartbeatGroupState.EMPTY


async def test_a_group_without_members_leaves_no_records_of_members(world: World) -> None:
    world.join("a", "t")
    world.group.leave("a", None, LEAVE)
    assert world.group.state is HeartbeatGroupState.EMPTY
    assert {member for _, member in world.log} == {""}


async def test_commits_are_checked_by_epoch(world: World) -> None:
    world.join("a", "t")
    world.join("b", "t")
    world.settle()
    member = world.group.members["a"]
    (mine, *_), (theirs, *_) = sorted(member.assigned), sorted(world.group.members["b"].assigned)

    def check(member_id: str, epoch: int, partition: TopicIdPartition, *, transactional: bool = False) -> ErrorCode:
        name, number = partition[0].decode().rstrip(), partition[1]
        return world.group.check_commit(member_id, None, epoch, [(name, number)], transactional=transactional)

    assert check("a", member.epoch, mine) is ErrorCode.NONE
    assert check("a", 2, mine) is ErrorCode.NONE, "it has had the partition since epoch 2"
    assert check("a", 1, mine) is ErrorCode.STALE_MEMBER_EPOCH
    assert check("a", 2, theirs) is ErrorCode.STALE_MEMBER_EPOCH
    assert check("a", 99, mine) is ErrorCode.STALE_MEMBER_EPOCH
    assert check("x", 1, mine) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check("", -1, mine) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check("", -1, mine, transactional=True) is ErrorCode.NONE
    assert check("a", 1, mine, transactional=True) is ErrorCode.ILLEGAL_GENERATION
    assert world.group.check_fetch(None, -1) is ErrorCode.NONE
    assert world.group.check_fetch("a", member.epoch) is ErrorCode.NONE
    assert world.group.check_fetch("a", 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert world.group.check_fetch("x", 1) is ErrorCode.UNKNOWN_MEMBER_ID


WHAT = ["beat", "revoke", "join", "leave", "other", "both"]
EVENTS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(WHAT)))


@settings(max_examples=100)
@given(EVENTS)
async def test_two_members_never_own_one_partition(events: list[tuple[str, str]]) -> None:
    world = World()
    world.topic("t", 3)
    world.topic("u", 2)
    for member_id, event in events:
        member = world.group.members.get(member_id)
        topics = {"other": ("u",), "both": ("t", "u")}.get(event, ("t",))
        if member is None or event == "join":
            world.join(member_id, *topics)
        elif event == "leave":
            world.group.leave(member_id, None, LEAVE)
        elif event == "beat":
            world.heartbeat(member_id, member.epoch)
        elif event == "revoke":
            world.heartbeat(member_id, member.epoch, frozenset(member.assigned))
        else:
            world.heartbeat(member_id, member.epoch, topics=topics)
        owned = [partition for one in world.group.members.values() for partition in (*one.assigned, *one.revoking)]
        assert len(owned) == len(set(owned))
    owners = world.settle()
    subscribed = {name for member in world.group.members.values() for name in member.topics}
    world.group.close(ErrorCode.NOT_COORDINATOR)
    assert sum(map(len, owners.values())) == 3 * ("t" in subscribed) + 2 * ("u" in subscribed)


async def test_a_member_that_gives_up_a_topic_gets_the_partitions_that_remain() -> None:
    """The next assignment is not due yet, so the member keeps its target."""
    world = World(consumer_assignment_interval_ms=1000)
    world.topic("t", 1)
    world.topic("u", 1)
    world.join("a", "t", "u")
    owned = frozenset(world.group.members["a"].assigned)
    answer = world.heartbeat("a", world.group.members["a"].epoch, owned, topics=("t",))
    assert answer.assignment == {partition for partition in owned if partition[0].rstrip() == b"t"}
    world.group.close(ErrorCode.NOT_COORDINATOR)
