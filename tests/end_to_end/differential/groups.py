"""Random requests of group members, and about groups and their offsets."""

from __future__ import annotations

from typing import Any

from aiokafka_lite.protocol import messages as m
from aiokafka_lite.protocol.codec import encode_versioned
from tests.end_to_end.differential.compared_brokers import Side
from tests.end_to_end.differential.scenario import Scenario, Step, named


def _subscription(topics: list[str], version: int = 0) -> bytes:
    return encode_versioned(m.ConsumerProtocolSubscription(topics=topics), version)


def _protocols(scenario: Scenario) -> list[m.JoinGroupRequestProtocol]:
    subscription = _subscription([f"{scenario.prefix}plain"])
    return [
        m.JoinGroupRequestProtocol(name="range", metadata=subscription),
        m.JoinGroupRequestProtocol(name="sticky", metadata=subscription),
    ]


def joined(scenario: Scenario, group: str, instance: str | None) -> None:
    """Let a member join, a second time if it has to, and assign the partitions to itself."""
    protocols = _protocols(scenario)
    versions = scenario.versions[m.JoinGroupRequest.api_key]
    version = scenario.random.choice([version for version in versions if version >= 5 or instance is None])

    def join(side: Side, again: bool) -> m.JoinGroupRequest:
        member = side.member(-1) if again else ""
        request = m.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000 if version >= 1 else -1,
            member_id=member,
            protocol_type="consumer",
            protocols=protocols,
        )
        if instance is not None:
            request.group_instance_id = instance
        return request

    scenario.steps.append(Step(m.JoinGroupRequest, version, lambda side: join(side, again=False)))
    for _ in range(1 if version >= 4 and instance is None else 0):
        scenario.steps.append(Step(m.JoinGroupRequest, version, lambda side: join(side, again=True)))
    sync_versions = [
        version for version in scenario.versions[m.SyncGroupRequest.api_key] if version >= 3 or instance is None
    ]
    sync_version = scenario.random.choice(sync_versions)

    def sync(side: Side) -> m.SyncGroupRequest:
        member = side.member(-1)
        request = m.SyncGroupRequest(
            group_id=group,
            generation_id=side.generation,
            member_id=member,
            assignments=[m.SyncGroupRequestAssignment(member_id=member, assignment=b"assigned")],
        )
        if sync_version >= 5:
            request.protocol_type, request.protocol_name = "consumer", "range"
        if instance is not None:
            request.group_instance_id = instance
        return request

    scenario.steps.append(Step(m.SyncGroupRequest, sync_version, sync))


def left(scenario: Scenario, group: str, instance: str | None) -> None:
    by_instance = instance is not None and scenario.random.random() < 0.5

    def make(side: Side, version: int) -> m.LeaveGroupRequest:
        member = side.member(-1)
        if version < 3:
            return m.LeaveGroupRequest(group_id=group, member_id=member)
        leaving = m.LeaveGroupRequestMember(member_id="" if by_instance else member)
        if by_instance:
            leaving.group_instance_id = instance
        return m.LeaveGroupRequest(group_id=group, members=[leaving])

    scenario.add(m.LeaveGroupRequest, make)


def live_heartbeat(scenario: Scenario, group: str) -> None:
    off = scenario.random.choice([0, 0, 0, 1, -1])
    scenario.add(
        m.HeartbeatRequest,
        lambda side, _: m.HeartbeatRequest(
            group_id=group, generation_id=side.generation + off, member_id=side.member(-1)
        ),
    )


def live_commit(scenario: Scenario, group: str) -> None:
    off = scenario.random.choice([0, 0, 0, 1, -1])
    topics = _commit_topics(scenario, ["", "metadata", None, "x" * 4096, "x" * 4097, "ä" * 2100])
    scenario.add(
        m.OffsetCommitRequest,
        lambda side, version: m.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=side.generation + off,
            member_id=side.member(-1),
            topics=_named_commit_topics(side, topics, version),
        ),
    )


def _group_name(scenario: Scenario, group: str) -> str:
    return scenario.random.choice([group] * 5 + [f"{scenario.prefix}other", "", f"{scenario.prefix}none"])


Parts = list[tuple[int, int, int, str | None]]


def _commit_topics(scenario: Scenario, texts: list[str | None]) -> list[tuple[str, Parts]]:
    random = scenario.random
    topics: dict[str, Parts] = {}
    for _ in range(random.choice([0, 1, 1, 2])):
        topic = scenario.topic()
        topics[topic] = [
            (index, random.choice([0, 1, 5, -1, -2, 10**12]), random.choice([-1, 0, 3]), random.choice(texts))
            for index in scenario.some_partitions(topic, 3)
        ]
    return list(topics.items())


def _named_commit_topics(side: Side, topics: list[tuple[str, Parts]], version: int) -> list[m.OffsetCommitRequestTopic]:
    return [
        m.OffsetCommitRequestTopic(
            **named(side, name, version >= 10),
            partitions=[
                m.OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=epoch if version >= 6 else -1,
                    committed_metadata=text,
                )
                for index, offset, epoch, text in parts
            ],
        )
        for name, parts in topics
    ]


def offset_commit(scenario: Scenario, group: str) -> None:
    """Commit without a member, or with an unknown one.

    Never for the group with an empty name, which all scenarios would share. Never with metadata that is too large:
    Kafka shows a group that only a refused commit has created when something else is written, or never.
    """
    random = scenario.random
    name = _group_name(scenario, group) or group
    generation, member = random.choice([(-1, ""), (-1, ""), (-1, ""), (5, ""), (-1, "stranger"), (5, "stranger")])
    topics = _commit_topics(scenario, ["", "", "metadata", None, "ä" * 4096])
    scenario.add(
        m.OffsetCommitRequest,
        lambda side, version: m.OffsetCommitRequest(
            group_id=name,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=_named_commit_topics(side, topics, version),
        ),
    )


def offset_fetch(scenario: Scenario, group: str) -> None:
    random = scenario.random
    groups = [_group_name(scenario, group) for _ in range(random.choice([1, 1, 2, 0]))]
    offset_topics = []
    for _ in range(scenario.several(2)):
        topic = scenario.topic()
        offset_topics.append((topic, scenario.some_partitions(topic, 2)))
    everything = random.random() < 0.3
    stable = random.random() < 0.3

    def make(side: Side, version: int) -> m.OffsetFetchRequest:
        if version < 8:
            topics = [
                m.OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in offset_topics
            ]
            request = m.OffsetFetchRequest(
                group_id=groups[0] if groups else "", topics=None if everything and version >= 2 else topics
            )
        else:
            many = [
                m.OffsetFetchRequestTopics(**named(side, name, version >= 10), partition_indexes=indexes)
                for name, indexes in offset_topics
            ]
            request = m.OffsetFetchRequest(
                groups=[
                    m.OffsetFetchRequestGroup(group_id=fromkey, topics=None if everything else many)
                    for fromkey in dict.fromkeys(groups)
                ]
            )
        if version >= 7:
            request.require_stable = stable
        return request

    scenario.add(m.OffsetFetchRequest, make)


def offset_delete(scenario: Scenario, group: str) -> None:
    name = _group_name(scenario, group)
    topic = scenario.topic()
    parts = [m.OffsetDeleteRequestPartition(partition_index=index) for index in scenario.some_partitions(topic, 2)]
    topics = [m.OffsetDeleteRequestTopic(name=topic, partitions=parts)]
    scenario.add(m.OffsetDeleteRequest, lambda side, _: m.OffsetDeleteRequest(group_id=name, topics=topics))


def find_coordinator(scenario: Scenario, group: str) -> None:
    random = scenario.random
    keys = [_group_name(scenario, group) for _ in range(random.choice([1, 1, 2, 0]))]
    kind = random.choice([0, 0, 0, 0, 3, -1])

    def make(side: Side, version: int) -> m.FindCoordinatorRequest:
        if version >= 4:
            return m.FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)
        request = m.FindCoordinatorRequest(key=keys[0] if keys else "")
        if version >= 1:
            request.key_type = kind
        return request

    scenario.add(m.FindCoordinatorRequest, make)


def describe_groups(scenario: Scenario, group: str) -> None:
    random = scenario.random
    groups = list(dict.fromkeys(_group_name(scenario, group) for _ in range(random.choice([1, 1, 2, 0]))))
    operations = random.random() < 0.3
    scenario.add(
        m.DescribeGroupsRequest,
        lambda side, version: m.DescribeGroupsRequest(
            groups=groups, include_authorized_operations=operations and version >= 3
        ),
    )


def list_groups(scenario: Scenario, group: str) -> None:
    random = scenario.random
    states = random.choice([[], [], ["Stable"], ["Empty"], ["stable", "Empty"], ["Nonsense"], ["Dead"]])
    types = random.choice([[], [], ["classic"], ["Consumer"], ["nonsense"]])

    def make(side: Side, version: int) -> m.ListGroupsRequest:
        request = m.ListGroupsRequest()
        if version >= 4:
            request.states_filter = states
        if version >= 5:
            request.types_filter = types
        return request

    scenario.add(m.ListGroupsRequest, make, only_of_scenario=True)


def delete_groups(scenario: Scenario, group: str) -> None:
    groups = list(dict.fromkeys(_group_name(scenario, group) for _ in range(scenario.several(2))))
    scenario.add(m.DeleteGroupsRequest, lambda side, _: m.DeleteGroupsRequest(groups_names=groups))


def heartbeat(scenario: Scenario, group: str) -> None:
    random = scenario.random
    name = _group_name(scenario, group)
    generation, member = random.choice([-1, 0, 1, 5]), random.choice(["", "stranger"])
    instance = random.choice([None, None, "no instance", f"{scenario.prefix}instance"])

    def make(side: Side, version: int) -> m.HeartbeatRequest:
        request = m.HeartbeatRequest(group_id=name, generation_id=generation, member_id=member)
        if version >= 3:
            request.group_instance_id = instance
        return request

    scenario.add(m.HeartbeatRequest, make)


def sync_group(scenario: Scenario, group: str) -> None:
    """Send a request that fails: an unknown member, or the wrong generation or protocol."""
    random = scenario.random
    name = _group_name(scenario, group)
    how = random.choice(["stranger", "generation", "protocol", "no protocol"])

    def make(side: Side, version: int) -> m.SyncGroupRequest:
        member = side.member(-1) if how != "stranger" else "stranger"
        request = m.SyncGroupRequest(
            group_id=name,
            generation_id=side.generation + (5 if how == "generation" else 0),
            member_id=member,
            assignments=[],
        )
        if version >= 5 and how != "no protocol":
            request.protocol_type = "consumer"
            request.protocol_name = "other" if how == "protocol" else "range"
        return request

    scenario.add(m.SyncGroupRequest, make)


def join_group_wrongly(scenario: Scenario, group: str) -> None:
    random = scenario.random
    protocols = _protocols(scenario)
    fields: dict[str, Any] = {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "member_id": "stranger",
        "protocol_type": "consumer",
        "protocols": protocols,
    }
    wrong: dict[str, Any] = random.choice(
        [
            {},
            {"group_id": "", "member_id": ""},
            {"session_timeout_ms": 5},
            {"session_timeout_ms": 5, "member_id": ""},
            {"session_timeout_ms": 10_000_000},
            {"session_timeout_ms": -1},
            {"protocols": []},
            {"protocols": [], "member_id": ""},
            {"protocol_type": "", "member_id": ""},
            {"protocol_type": ""},
        ]
    )
    scenario.add(
        m.JoinGroupRequest,
        lambda side, version: m.JoinGroupRequest(
            **{**fields, **wrong}, rebalance_timeout_ms=30_000 if version >= 1 else -1
        ),
    )


def leave_group_wrongly(scenario: Scenario, group: str) -> None:
    random = scenario.random
    name = _group_name(scenario, group)
    choices: list[list[tuple[str, str | None]]] = [
        [("stranger", None)], [("", None)], [("", "no instance")], [("stranger", "no instance")], [],
        [("a", None), ("b", None)],
    ]  # fmt: skip
    members = random.choice(choices)

    def make(side: Side, version: int) -> m.LeaveGroupRequest:
        if version < 3:
            return m.LeaveGroupRequest(group_id=name, member_id=members[0][0] if members else "")
        return m.LeaveGroupRequest(
            group_id=name,
            members=[
                m.LeaveGroupRequestMember(member_id=member, group_instance_id=instance) for member, instance in members
            ],
        )

    scenario.add(m.LeaveGroupRequest, make)
