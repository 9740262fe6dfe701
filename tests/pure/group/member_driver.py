"""A member of a group without a network, and a coordinator whose answers the test chooses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.group.events import Action, HeartbeatAnswer, JoinAnswer, SendJoin, SendSync, Subscribe, SyncAnswer
from aiokafka_lite.group.member import Member
from aiokafka_lite.group.payloads import read_subscription, write_assignment, write_subscription
from aiokafka_lite.group.states import MemberState
from aiokafka_lite.group.strategies import AssignmentStrategy, GroupMember, RangeStrategy, TopicRacks
from aiokafka_lite.protocol.messages import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse
from aiokafka_lite.types import TopicPartition

A = TypeVar("A", bound=Action)


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
                JoinGroupResponseMember(member_id=member_id, group_instance_id=None, metadata=metadata)
                for member_id, metadata in members
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
        """Return one rebalance: from JoinGroup to the assignment."""
        return self.synced(only(self.joined(join), SendSync), tp(*numbers))

    def settle(self, *numbers: int) -> Driver:
        self.round(self.subscribe(), *numbers)
        assert self.state is MemberState.STABLE
        return self


def subscription_in(join: SendJoin) -> GroupMember:
    return read_subscription("m", None, join.request.protocols[0].metadata)


def members_of(*subscriptions: tuple[str, tuple[str, ...]]) -> list[tuple[str, bytes]]:
    return [(name, write_subscription(topics, (), -1, None, None)) for name, topics in subscriptions]


def racks(**topics: int) -> TopicRacks:
    return {name: [frozenset[str]()] * count for name, count in topics.items()}
