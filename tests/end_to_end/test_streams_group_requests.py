"""Raw requests of streams groups (KIP-1071): the embedded cluster answers them as Apache Kafka does."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafka_lite import Admin, BrokerError, TopicPartition
from aiokafka_lite.admin import ConfigResource, GroupState, GroupType, NewTopic, Reset, StreamsTasks
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol import messages as m
from tests.embedded.streams_groups.requests import (
    answered,
    counting,
    heartbeat,
    internal_topic,
    join,
    subtopology,
    task_ids,
    tasks,
    topology,
)
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.test_share_group_requests import Connection, connection
from tests.real.releases import since
from tests.waiting import DEADLINE

streams = since("4.3.0", "the texts are those of Kafka 4.3, and streams groups are on by default since 4.2")
NOT_READY = {14, 15, 16}
"""The coordinator is still loading, or not known yet."""
FENCED, UNKNOWN_MEMBER, INVALID, INVALID_TOPOLOGY, NOT_FOUND, STALE = 110, 25, 42, 130, 69, 113


class Group:
    """A streams group, and a connection to its coordinator."""

    def __init__(self, name: str, coordinator: Connection) -> None:
        self.name = name
        self.coordinator = coordinator

    async def ask(self, request: m.StreamsGroupHeartbeatRequest) -> m.StreamsGroupHeartbeatResponse:
        async with asyncio.timeout(DEADLINE):
            while True:
                answer: m.StreamsGroupHeartbeatResponse = await self.coordinator.ask(request)
                if answer.error_code not in NOT_READY:
                    return answer
                await asyncio.sleep(0.05)

    async def join(self, member: str, *subtopologies: m.StreamsSubtopology, epoch: int = 0) -> Any:
        return answered(await self.ask(join(self.name, member, topology(*subtopologies, epoch=epoch))))

    async def beat(self, member: str, epoch: int, active: dict[str, list[int]] | None = None, **fields: Any) -> Any:
        return answered(await self.ask(heartbeat(self.name, member, epoch, active, **fields)))

    async def refused(self, request: m.StreamsGroupHeartbeatRequest) -> Any:
        answer = await self.ask(request)
        return answer.error_code, answer.error_message

    async def status(self, member: str, *subtopologies: m.StreamsSubtopology) -> Any:
        answer = await self.ask(join(self.name, member, topology(*subtopologies)))
        return [(status.status_code, status.status_detail) for status in answer.status or ()]

    async def until_known(self, topics: Sequence[str]) -> None:
        """Wait until the coordinator of this group knows the topics. In Kafka that is later than Metadata has them."""
        while topics and await self.status("first", subtopology("0", topics)):
            await self.beat("first", -1)
            await asyncio.sleep(0.05)
        if topics:
            await self.beat("first", -1)
            deleted = await self.coordinator.ask(m.DeleteGroupsRequest(groups_names=[self.name]))
            assert deleted.results[0].error_code == 0

    async def describe(self) -> m.StreamsGroupDescribeGroup:
        request = m.StreamsGroupDescribeRequest(group_ids=[self.name], include_authorized_operations=True)
        group: m.StreamsGroupDescribeGroup = (await self.coordinator.ask(request)).groups[0]
        return group


@asynccontextmanager
async def group_of(kafka: Kafka, topics: Mapping[str, int], **configs: str) -> AsyncIterator[Group]:
    """Yield a new group, with topics whose names begin with its own, and their numbers of partitions."""
    name = f"streams-{uuid.uuid4()}"
    settings = {"streams.assignment.interval.ms": "0", "streams.initial.rebalance.delay.ms": "0"}
    settings |= {key.replace("_", "."): value for key, value in configs.items()}
    async with Admin(kafka.bootstrap_servers) as admin:
        await admin.topics.create([NewTopic(f"{name}-{topic}", count) for topic, count in topics.items()])
        (await admin.configs.alter({ConfigResource.group(name): settings})).raise_for_errors()
        try:
            async with connection(kafka.bootstrap_servers.partition(",")[0]) as first, asyncio.timeout(DEADLINE):
                endpoint = None
                while (
                    endpoint is None or endpoint.error_code
                ):  # the first request creates the topic of the coordinators
                    request = m.FindCoordinatorRequest(key_type=0, coordinator_keys=[name])
                    endpoint = (await first.ask(request)).coordinators[0]
                    await asyncio.sleep(0.05)
            async with connection(f"{endpoint.host}:{endpoint.port}") as coordinator:
                group = Group(name, coordinator)
                async with asyncio.timeout(DEADLINE):
                    await group.until_known([f"{name}-{topic}" for topic in topics])
                yield group
        finally:
            created = [topic.name for topic in await admin.topics.list() if topic.name.startswith(f"{name}-")]
            if created:
                await admin.topics.delete(created)


@streams
async def test_an_admin_client_describes_and_resets_a_group(kafka: Kafka) -> None:
    async with group_of(kafka, {"in": 2}) as group, Admin(kafka.bootstrap_servers) as admin:
        name, topic = group.name, f"{group.name}-in"
        await group.join("x", subtopology("0", [topic]))
        described = (await admin.groups.describe(name))[name]
        (member,) = described.members
        assert (described.type, described.state) == (GroupType.STREAMS, GroupState.STABLE)
        assert (described.epoch, described.assignment_epoch, described.subtopologies) == (2, 2, {"0": (topic,)})
        assert (member.member_id, member.epoch, member.assignment) == ("x", 2, None)
        assert member.tasks == member.target_tasks == StreamsTasks({"0": (0, 1)}, {}, {})
        with pytest.raises(BrokerError, match="is Stable with 1 member; stop them first"):
            await admin.groups.reset_offsets(name, Reset.to_earliest(), topics=[topic])
        assert (await admin.groups.delete(name)).failed[name].code is ErrorCode.NON_EMPTY_GROUP  # type: ignore[attr-defined]
        await group.beat("x", -1)
        moved = await admin.groups.reset_offsets(name, Reset.to_earliest(), topics=[topic])
        assert [raise_for_error.after for raise_for_error in moved.raise_for_errors().values()] == [0, 0]
        lag = (await admin.groups.lag(name))[name]
        assert [(partition.partition.partition, partition.lag, partition.member) for partition in lag.partitions] == [
            (0, 0, None),
            (1, 0, None),
        ]
        (await admin.groups.delete_offsets(name, [TopicPartition(topic, 1)])).raise_for_errors()
        await group.join("y", subtopology("0", [topic]))
        (owned,) = (await admin.groups.lag(name))[name].partitions
        assert owned.member is not None
        assert owned.member.member_id == "y"
        await group.beat("y", -1)
        (await admin.groups.delete(name)).raise_for_errors()
        assert name not in [group_listing.group_id for group_listing in await admin.groups.list()]


@streams
async def test_a_second_instance_gets_a_part_of_each_subtopology(kafka: Kafka) -> None:
    async with group_of(kafka, {"a": 4, "b": 4, "c": 2}) as group:
        reading = [subtopology(str(number), [f"{group.name}-{topic}"]) for number, topic in enumerate("abc")]
        await group.join("x", *reading)
        await group.join("y", *reading)
        members = (await group.describe()).members
        targets = {member.member_id: task_ids_of(member.target_assignment.active_tasks) for member in members}
        assert targets == {
            "x": {"0": [0, 1], "1": [0, 1], "2": [0]},
            "y": {"0": [2, 3], "1": [2, 3], "2": [1]},
        }


def task_ids_of(tasks: Sequence[Any]) -> dict[str, list[int]]:
    return {task.subtopology_id: sorted(task.partitions) for task in tasks}


@streams
async def test_tasks_move_as_at_apache_kafka(kafka: Kafka) -> None:
    async with group_of(kafka, {"in": 3}) as group:
        reading = subtopology("0", [f"{group.name}-in"])
        assert await group.join("x", reading) == (2, {"0": [0, 1, 2]}, {}, [])
        assert await group.beat("x", 2) == (2, None, None, [])
        assert await group.join("y", reading) == (3, {}, {}, [])
        assert (await group.describe()).group_state == "Reconciling"
        assert await group.beat("x", 2) == (2, {"0": [0, 1]}, {}, [])
        assert await group.beat("x", 2, {"0": [0, 1, 2]}) == (2, None, None, [])
        assert await group.beat("x", 2, {"0": [0, 1]}) == (3, None, None, [])
        assert await group.beat("y", 3) == (3, {"0": [2]}, {}, [])
        assert await group.beat("x", 2, {"0": [0]}) == (3, None, None, []), "the last answer was lost"
        assert await group.beat("x", 3, rack_id="r1") == (4, None, None, []), "a change of a member is a new epoch"
        assert await group.beat("y", -1) == (-1, None, None, [])
        assert (await group.describe()).group_state == "Assigning"
        assert await group.beat("x", 4) == (5, {"0": [0, 1, 2]}, {}, [])
        assert await group.join("x", reading) == (5, {"0": [0, 1, 2]}, {}, []), "the member comes back"
        assert await group.beat("x", -1) == (-1, None, None, [])
        described = await group.describe()
        assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Empty", 6, 5)
        assert described.authorized_operations == 3400


@streams
async def test_internal_topics_are_created_as_by_apache_kafka(kafka: Kafka) -> None:
    async with group_of(kafka, {"in": 2}) as group:
        endpoint = m.StreamsEndpoint(host="here", port=1)
        first = await group.ask(join(group.name, "x", counting(group.name), user_endpoint=endpoint))
        (status,) = first.status or []
        begin, _, names = status.status_detail.partition(": ")
        assert (status.status_code, begin) == (3, "Internal topics are missing")
        assert set(names.split(", ")) == {f"{group.name}-repartition", f"{group.name}-changelog"}
        assert (await group.describe()).group_state == "NotReady"
        answer = first
        async with asyncio.timeout(DEADLINE):
            while answer.member_epoch == 2:  # Kafka creates topics in the background
                await asyncio.sleep(0.05)
                answer = await group.ask(heartbeat(group.name, "x", 2))
        assert (answer.member_epoch, tasks(answer.active_tasks)) == (3, {"0": [0, 1], "1": [0, 1]})
        (endpoint_partitions,) = answer.partitions_by_user_endpoint or []
        assert endpoint_partitions.user_endpoint == endpoint
        partitions = {
            active_partition.topic: sorted(active_partition.partitions)
            for active_partition in endpoint_partitions.active_partitions
        }
        assert partitions == {f"{group.name}-in": [0, 1], f"{group.name}-repartition": [0, 1]}
        described = await group.describe()
        assert described.topology is not None
        _, counted = described.topology.subtopologies or []
        assert [(topic.name, topic.partitions) for topic in counted.state_changelog_topics] == [
            (f"{group.name}-changelog", 2)
        ]


@streams
async def test_standby_tasks_are_as_those_of_apache_kafka(kafka: Kafka) -> None:
    async with group_of(kafka, {"in": 2, "log": 2}, streams_num_standby_replicas="1") as group:
        stateful = subtopology("0", [f"{group.name}-in"], changelogs=[internal_topic(f"{group.name}-log")])
        assert await group.join("x", stateful) == (2, {"0": [0, 1]}, {}, [])
        assert await group.join("y", stateful) == (3, {}, {"0": [0]}, [])
        assert await group.beat("x", 2, {"0": [0]}) == (3, {"0": [0]}, {}, [])
        assert await group.beat("y", 3) == (3, {"0": [1]}, {"0": [0]}, [])
        assert await group.beat("x", 3) == (3, {"0": [0]}, {"0": [1]}, []), "task 1 is free since the last heartbeat"
        assert await group.beat("y", 3, shutdown_application=True) == (3, None, None, [4])
        assert await group.beat("x", 3) == (3, None, None, [4])


@streams
async def test_a_status_has_the_text_of_apache_kafka(kafka: Kafka) -> None:
    async with group_of(kafka, {"a": 2, "b": 3, "log": 5}) as group:
        name = group.name
        missing = f"Source topics {name}-in0, {name}-in1, {name}-in2 and 2 additional topics are missing."
        sources = [f"{name}-in{number}" for number in range(5)]
        assert await group.status("x", subtopology("0", sources)) == [(1, missing)]
        assert (await group.describe()).group_state == "NotReady"
        a, b = f"{name}-a", f"{name}-b"
        internal = internal_topic("r", 3)
        wrong = {
            f"Following topics do not have the same number of partitions: [{{{a}=2, {b}=3}}]": subtopology(
                "0", [a, b], copartitioned=[([0, 1], [])]
            ),
            "Number of partitions [3] of repartition topic [r] doesn't match number of partitions [2] of the source "
            "topic.": subtopology("0", [a], repartition=[internal], sinks=["r"], copartitioned=[([0], [0])]),
            f"Existing topic {name}-log has different number of partitions: expected 2, found 5": subtopology(
                "0", [a], changelogs=[internal_topic(f"{name}-log")]
            ),
        }
        for text, subtopologies in wrong.items():
            async with group_of(kafka, {}) as other:
                assert await other.status("x", subtopologies) == [(2, text)]


@streams
async def test_heartbeats_are_refused_as_by_apache_kafka(kafka: Kafka) -> None:
    async with group_of(kafka, {"in": 3}) as group:
        reading = topology(subtopology("0", [f"{group.name}-in"]))

        async def refusal(epoch: int = 1, member: str = "x", active: Any = None, **fields: Any) -> Any:
            return await group.refused(heartbeat(group.name, member, epoch, active, **fields))

        async def join_refusal(topology: m.StreamsTopology | None = reading, **fields: Any) -> Any:
            return await group.refused(join(group.name, "x", topology, **fields))

        assert await refusal() == (NOT_FOUND, f"Streams group {group.name} not found.")
        assert await refusal(-1) == (NOT_FOUND, f"Group {group.name} not found.")
        assert await refusal(member="") == (INVALID, "MemberId can't be empty.")
        assert await refusal(-2) == (INVALID, "InstanceId can't be null.")
        assert await refusal(-3) == (INVALID, "MemberEpoch is -3, but must be greater than or equal to -2.")
        assert await refusal(topology=reading) == (INVALID, "Topology can only be provided when (re-)joining.")
        one_kind = "If one task-type is non-null, all must be non-null."
        assert await refusal(active_tasks=[]) == (INVALID, one_kind)
        assert await join_refusal(None) == (INVALID, "Topology must be non-null when (re-)joining.")
        assert await join_refusal(instance_id="i") == (INVALID, "Static membership is not yet supported.")
        assert await join_refusal(task_offsets=[]) == (INVALID, "TaskOffsets are not supported yet.")
        assert await join_refusal(warmup_tasks=task_ids({"0": [0]})) == (INVALID, "WarmupTasks are not supported yet.")
        assert await join_refusal(rack_id="") == (INVALID, "RackId can't be empty.")
        timeout = "RebalanceTimeoutMs must be provided in first request."
        assert await join_refusal(rebalance_timeout_ms=-1) == (INVALID, timeout)
        assert await join_refusal(active_tasks=None) == (INVALID, "ActiveTasks must be empty when (re-)joining.")
        sized = subtopology("0", ["in"], changelogs=[internal_topic("log", 3)])
        text = "Changelog topic log must have an undefined partition count, but it is set to 3."
        assert await join_refusal(topology(sized)) == (INVALID_TOPOLOGY, text)
        text = "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited."
        assert await join_refusal(topology(subtopology("0", ["__consumer_offsets"]))) == (INVALID_TOPOLOGY, text)
        text = "No source topics found for subtopology 0"
        assert await join_refusal(topology(subtopology("0"))) == (INVALID_TOPOLOGY, text)
        text = "Topic names a b are not valid topic names."
        assert await join_refusal(topology(subtopology("0", ["a b"]))) == (INVALID_TOPOLOGY, text)
        pattern = topology(subtopology("0", regex=["x.*"]))
        text = "Regular expressions for source topics are not supported yet."
        assert await join_refusal(pattern) == (INVALID, text)

        assert await group.join("x", *reading.subtopologies) == (2, {"0": [0, 1, 2]}, {}, [])
        assert await refusal(2, "z") == (UNKNOWN_MEMBER, f"Member z is not a member of group {group.name}.")
        fenced = (
            "The streams group member has a greater member epoch (9) than the one known by the group coordinator (2). "
            "The member must abandon all its partitions and rejoin."
        )
        assert await refusal(9) == (FENCED, fenced)
        text = "Task 7 for subtopology 0 is invalid. Number of tasks for this subtopology: 3"
        assert await refusal(2, active={"0": [7]}) == (INVALID, text)
        assert await refusal(2, active={"9": [0]}) == (INVALID, "Subtopology 9 does not exist in the topology.")
        other = topology(subtopology("0", [f"{group.name}-in"], sinks=["out"]))
        assert await join_refusal(other) == (INVALID, "Topology updates are not supported yet.")


@streams
async def test_a_streams_group_is_no_other_group(kafka: Kafka) -> None:
    async with group_of(kafka, {"in": 1}) as group:
        name, ask = group.name, group.coordinator.ask
        reading = subtopology("0", [f"{name}-in"])
        await group.join("x", reading)
        consumer = m.ConsumerGroupHeartbeatRequest(
            group_id=name,
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        answer = await ask(consumer)
        assert (answer.error_code, answer.error_message) == (NOT_FOUND, f"Group {name} is not a consumer group.")
        share = m.ShareGroupHeartbeatRequest(group_id=name, member_id="m", member_epoch=0, subscribed_topic_names=["t"])
        answer = await ask(share)
        assert (answer.error_code, answer.error_message) == (NOT_FOUND, f"Group {name} is not a share group.")
        classic = m.JoinGroupRequest(
            group_id=name,
            session_timeout_ms=10000,
            rebalance_timeout_ms=1000,
            member_id="",
            protocol_type="consumer",
            protocols=[m.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        assert (await ask(classic)).error_code == 23, "INCONSISTENT_GROUP_PROTOCOL"
        (described,) = (await ask(m.DescribeGroupsRequest(groups=[name]))).groups
        assert described.error_message == f"Group {name} is not a classic group."
        listed = await ask(m.ListGroupsRequest(types_filter=["Streams"]))
        assert [(group.group_type, group.protocol_type) for group in listed.groups if group.group_id == name] == [
            ("streams", "streams")
        ]
        assert (await ask(m.DeleteGroupsRequest(groups_names=[name]))).results[0].error_code == 68, "NON_EMPTY_GROUP"
        await group.beat("x", -1)
        assert (await ask(consumer)).error_message == f"Group {name} is not a consumer group.", "also while it is empty"
        assert (await ask(classic)).error_code == 79, "MEMBER_ID_REQUIRED, for a new classic group"
        async with asyncio.timeout(30):  # Kafka answers the join before its log has the change
            while (await group.describe()).error_message != f"Group {name} is not a streams group.":
                await asyncio.sleep(0.05)
        assert (await ask(m.DeleteGroupsRequest(groups_names=[name]))).results[0].error_code == 0
        assert await group.join("x", reading) == (2, {"0": [0]}, {}, [])


@streams
async def test_offsets_of_a_streams_group_are_checked_as_at_apache_kafka(kafka: Kafka) -> None:
    async with group_of(kafka, {"in": 1}) as group:
        name, ask = group.name, group.coordinator.ask
        await group.join("x", subtopology("0", [f"{name}-in"]))
        described = await ask(m.MetadataRequest(topics=[m.MetadataRequestTopic(name=f"{name}-in")]))
        topic_id = described.topics[0].topic_id

        async def commit(epoch: int, member: str) -> int:
            partition = m.OffsetCommitRequestPartition(
                partition_index=0, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
            )
            request = m.OffsetCommitRequest(
                group_id=name,
                generation_id_or_member_epoch=epoch,
                member_id=member,
                topics=[m.OffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition])],
            )
            code: int = (await ask(request)).topics[0].partitions[0].error_code
            return code

        async def fetch(epoch: int, member: str | None) -> int:
            request_group = m.OffsetFetchRequestGroup(group_id=name, member_id=member, member_epoch=epoch, topics=None)
            code: int = (await ask(m.OffsetFetchRequest(groups=[request_group]))).groups[0].error_code
            return code

        commits = [
            await commit(*arguments) for arguments in ((2, "x"), (1, "x"), (3, "x"), (-1, ""), (2, "other"), (-1, "x"))
        ]
        assert commits == [0, STALE, STALE, UNKNOWN_MEMBER, UNKNOWN_MEMBER, STALE]
        fetches = [await fetch(*arguments) for arguments in ((2, "x"), (1, "x"), (-1, None), (2, "other"))]
        assert fetches == [0, STALE, 0, UNKNOWN_MEMBER]
        partition = m.OffsetDeleteRequestPartition(partition_index=0)
        delete = m.OffsetDeleteRequest(
            group_id=name, topics=[m.OffsetDeleteRequestTopic(name=f"{name}-in", partitions=[partition])]
        )
        assert (await ask(delete)).topics[0].partitions[0].error_code == 86, "GROUP_SUBSCRIBED_TO_TOPIC"
        await group.beat("x", -1)
        assert (await ask(delete)).topics[0].partitions[0].error_code == 0
