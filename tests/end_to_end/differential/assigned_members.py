"""Random requests of members that the coordinator assigns partitions to: consumer and streams groups.

The requests name members, epochs and partitions as a side knows them from its own answers, or wrong ones.

A subscription to a regular expression is always a wrong one: Kafka resolves a right one in the background, so that the
first answers depend on the time. ``test_consumer_group_protocol`` has those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol import messages as m
from aiokafka_lite.protocol.schema import Request
from tests.end_to_end.differential.compared_brokers import UNKNOWN_TOPIC_ID, Side
from tests.end_to_end.differential.scenario import GROUP, Scenario
from tests.waiting import DEADLINE

INTERVAL_MS = 6000
_KIND_OF_HEARTBEAT = {
    "consumer": m.ConsumerGroupHeartbeatRequest,
    "streams": m.StreamsGroupHeartbeatRequest,
}
_SETTINGS = {
    "consumer": {"consumer.assignment.interval.ms": "0"},
    "streams": {"streams.assignment.interval.ms": "0", "streams.initial.rebalance.delay.ms": "0"},
}


class Members:
    """The group of a scenario, and what each side has answered to its members."""

    def __init__(self, scenario: Scenario, kind: str) -> None:
        self.scenario = scenario
        self.kind = kind
        self.group = f"{scenario.prefix}{kind}"
        self.topics = list(scenario.partitions)
        self.ids = [f"{scenario.prefix}m{number}" for number in range(3)]
        self._epochs: dict[tuple[str, str], int] = {}
        self._owned: dict[tuple[str, str], Any] = {}

    def some_group(self) -> str:
        return self.scenario.random.choice([self.group] * 9 + [f"{self.scenario.prefix}other", ""])

    def some_member(self) -> str:
        return self.scenario.random.choice(self.ids * 6 + ["", "stranger"])

    def epoch(self, side: Side, member: str) -> int:
        return self._epochs.get((side.name, member), 0)

    def owned(self, side: Side, member: str) -> Any:
        return self._owned.get((side.name, member))

    def record_member(self, side: Side, request: Any, answer: Any) -> None:
        """Keep what the answer to a heartbeat says about a member."""
        key = side.name, request.member_id
        if not request.member_id and answer.member_id:
            side.members.append(answer.member_id)
        if request.group_id != self.group:
            return
        if answer.error_code == 0 and answer.member_epoch > 0:
            self._epochs[key] = answer.member_epoch
            assignment = answer.active_tasks if self.kind == "streams" else answer.assignment
            if assignment is not None:
                self._owned[key] = assignment if self.kind == "streams" else assignment.topic_partitions
        elif answer.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
            self._epochs.pop(key, None)
            self._owned.pop(key, None)

    # The first requests.

    def begin(self) -> None:
        """Set the group up, and wait until its coordinator knows the settings and the topics."""
        settings = {**_SETTINGS[self.kind], f"{self.kind}.heartbeat.interval.ms": str(INTERVAL_MS)}
        configs = [
            m.IncrementalAlterConfigsRequestConfig(name=name, config_operation=0, value=value)
            for name, value in settings.items()
        ]
        resource = m.IncrementalAlterConfigsRequestResource(
            resource_type=GROUP, resource_name=self.group, configs=configs
        )
        request = m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        self.scenario.add(m.IncrementalAlterConfigsRequest, lambda side, _: request, changes=(self.topics[0],))
        self.scenario.add(m.ListGroupsRequest, lambda side, _: m.ListGroupsRequest(), only_of_scenario=True,
                          before=self._until_ready)  # fmt: skip

    async def _until_ready(self, side: Side) -> None:
        """Join and leave until the member gets partitions. Then delete the group, so that its first epoch is known."""
        heartbeat = _KIND_OF_HEARTBEAT[self.kind]
        endpoints = {"endpoint_information_epoch": 0} if self.kind == "streams" else {}
        probe: dict[str, Any] = {"group_id": self.group, "member_id": "probe", **endpoints}
        leave: Request[Any] = heartbeat(member_epoch=-1, **probe)
        join = heartbeat(member_epoch=0, **probe, **self.joining())
        async with asyncio.timeout(DEADLINE):
            while True:
                answer: Any = await side.ask(join, heartbeat.versions.last)
                assigned = answer.active_tasks if self.kind == "streams" else answer.assignment
                await side.ask(leave, heartbeat.versions.last)
                if answer.heartbeat_interval_ms == INTERVAL_MS and getattr(assigned, "topic_partitions", assigned):
                    break
                await asyncio.sleep(0.02)
            await side.ask(m.DeleteGroupsRequest(groups_names=[self.group]), 2)

    def joining(self) -> dict[str, Any]:
        """Return the fields of a heartbeat that joins."""
        if self.kind == "consumer":
            subscribed = {"subscribed_topic_names": self.topics, "topic_partitions": []}
            return {"rebalance_timeout_ms": 60_000, **subscribed}
        tasks: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        return {"rebalance_timeout_ms": 60_000, "process_id": "p", "topology": _topology(self.topics[:1]), **tasks}


def _epoch(scenario: Scenario) -> Callable[[int], int]:
    """Choose an epoch, mostly the known one."""
    epochs = [lambda epoch: epoch] * 10
    wrong = [lambda epoch: 0] * 2 + [lambda epoch: epoch + 1, lambda epoch: epoch - 1, lambda epoch: 77]
    return scenario.random.choice([*epochs, *wrong, lambda epoch: -1, lambda epoch: -2, lambda epoch: -3])


def _beat(members: Members, kind: type[Request[Any]], fields: Callable[[Side, int, int], dict[str, Any]]) -> None:
    """Send a heartbeat; ``fields`` are for a side, a version, and the epoch of the member."""
    group, member, chosen = members.some_group(), members.some_member(), _epoch(members.scenario)

    def make(side: Side, version: int) -> Any:
        epoch = chosen(members.epoch(side, member))
        values = fields(side, version, epoch)
        if "owned" in values:
            name = "active_tasks" if members.kind == "streams" else "topic_partitions"
            values[name] = members.owned(side, member) if values["owned"] == "known" else values["owned"]
            del values["owned"]
        if not member and epoch == 0:
            # Refused: with an id that the broker makes, its place among the members, and so all partitions, are random.
            values["rebalance_timeout_ms"] = -1
        return kind(group_id=group, member_id=member, member_epoch=epoch, **values)

    members.scenario.add(kind, make, after=members.record_member)


def consumer_heartbeat(members: Members) -> None:
    random, prefix = members.scenario.random, members.scenario.prefix
    nowhere = [f"{prefix}nowhere"]
    topics = random.choice([members.topics] * 8 + [nowhere, [], None])
    news = random.choice([None] * 6 + [topics])
    regex = random.choice([None] * 12 + ["(", "[a", ""])
    assignor = random.choice(["range"] * 16 + ["nonsense", ""])
    instance = random.choice([None] * 12 + [f"{prefix}instance", f"{prefix}instance", "", " "])
    rack = random.choice([None] * 10 + ["r1", ""])
    timeout = random.choice([60_000] * 8 + [-1, 45_000])
    owned = random.choice([[]] * 8 + [None, "known"])
    later = random.choice([None, None, None, "known", "known", "known", [], "strange"])

    def fields(side: Side, version: int, epoch: int) -> dict[str, Any]:
        joins = epoch == 0
        strange = [m.ConsumerGroupHeartbeatTopicPartitions(topic_id=UNKNOWN_TOPIC_ID, partitions=[0, -1])]
        mine = owned if joins else later
        values = {
            "instance_id": instance,
            "rack_id": rack,
            "rebalance_timeout_ms": timeout if joins else -1,
            "subscribed_topic_names": topics if joins else news,
            "server_assignor": assignor,
            "owned": strange if mine == "strange" else mine,
        }
        return values | ({"subscribed_topic_regex": regex} if version >= 1 else {})

    _beat(members, m.ConsumerGroupHeartbeatRequest, fields)


def _topology(sources: list[str], epoch: int = 0) -> m.StreamsTopology:
    subtopology = m.StreamsSubtopology(
        subtopology_id="0",
        source_topics=sources,
        source_topic_regex=[],
        state_changelog_topics=[],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    return m.StreamsTopology(epoch=epoch, subtopologies=[subtopology])


def streams_heartbeat(members: Members) -> None:
    random = members.scenario.random
    usual = _topology(members.topics[:1])
    wrong = [_topology([]), _topology(members.topics), _topology([f"{members.scenario.prefix}nowhere"]), None]
    wrong += [_topology(members.topics[:1], epoch) for epoch in (1, 2)]
    topology = random.choice([usual] * 20 + wrong)
    news = random.choice([None] * 12 + [usual, topology])
    timeout = random.choice([60_000] * 8 + [-1])
    process = random.choice(["p"] * 6 + ["q", None])
    instance = random.choice([None] * 16 + ["instance", ""])
    rack = random.choice([None] * 12 + ["r1", ""])
    owned = random.choice([[]] * 12 + [None, "known"])
    later = random.choice([None, None, None, "known", "known", "known", "strange", []])
    tags = random.choice([None] * 6 + [[m.StreamsKeyValue(key="zone", value="z")]])

    def fields(side: Side, version: int, epoch: int) -> dict[str, Any]:
        joins = epoch == 0
        mine = owned if joins else later
        others: Any = None if mine is None else []
        if mine == "strange":
            mine = random_tasks
        return {
            "instance_id": instance,
            "rack_id": rack,
            "rebalance_timeout_ms": timeout if joins else -1,
            "topology": topology if joins else news,
            "process_id": process if joins else None,
            "client_tags": tags,
            "owned": mine,
            "standby_tasks": others,
            "warmup_tasks": others,
            "endpoint_information_epoch": 0,
        }

    names = random.choice(["0", "0", "9"])
    random_tasks = [m.StreamsTaskIds(subtopology_id=names, partitions=random.choice([[90], [90, 91]]))]
    _beat(members, m.StreamsGroupHeartbeatRequest, fields)


def describe(members: Members) -> None:
    kinds: dict[str, type[Request[Any]]] = {
        "consumer": m.ConsumerGroupDescribeRequest,
        "share": m.ShareGroupDescribeRequest,
        "streams": m.StreamsGroupDescribeRequest,
    }
    random = members.scenario.random
    kind: Any = kinds[random.choice([members.kind] * 4 + list(kinds))]
    groups = list(dict.fromkeys([members.some_group(), members.some_group()]))
    operations = random.random() < 0.3
    members.scenario.add(kind, lambda side, _: kind(group_ids=groups, include_authorized_operations=operations))


def member_commit(members: Members) -> None:
    """Commit offsets as a member."""
    member, chosen = members.some_member(), _epoch(members.scenario)
    topic, index = members.topics[0], members.scenario.random.choice([0, 0, 1, 9])
    part = m.OffsetCommitRequestPartition(partition_index=index, committed_offset=3, committed_metadata="")

    def make(side: Side, version: int) -> m.OffsetCommitRequest:
        named = {"topic_id": side.topic_id(topic)} if version >= 10 else {"name": topic}
        return m.OffsetCommitRequest(
            group_id=members.group,
            generation_id_or_member_epoch=chosen(members.epoch(side, member)),
            member_id=member,
            topics=[m.OffsetCommitRequestTopic(**named, partitions=[part])],
        )

    members.scenario.add(m.OffsetCommitRequest, make)


def member_fetch(members: Members) -> None:
    """Fetch offsets as a member."""
    member, chosen = members.some_member(), _epoch(members.scenario)
    topic = members.topics[0]

    def make(side: Side, version: int) -> m.OffsetFetchRequest:
        if version < 8:
            topics = [m.OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 1])]
            return m.OffsetFetchRequest(group_id=members.group, topics=topics)
        named = {"topic_id": side.topic_id(topic)} if version >= 10 else {"name": topic}
        group = m.OffsetFetchRequestGroup(
            group_id=members.group, topics=[m.OffsetFetchRequestTopics(**named, partition_indexes=[0, 1])]
        )
        if version >= 9:
            group.member_id, group.member_epoch = member, chosen(members.epoch(side, member))
        return m.OffsetFetchRequest(groups=[group])

    members.scenario.add(m.OffsetFetchRequest, make)
