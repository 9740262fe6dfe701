"""Raw requests of share groups: the embedded cluster answers them as Apache Kafka does."""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka_lite import Admin, Producer
from aiokafka_lite.admin import ConfigResource
from aiokafka_lite.aio.framed_stream import FramedStreamReader
from aiokafka_lite.protocol import messages as m
from aiokafka_lite.protocol.connection import ClientProtocol
from tests.embedded.share_groups.requests import Batch, heartbeat, share_acknowledge, share_fetch
from tests.embedded.share_groups.state_requests import StateRequests, outcome
from tests.end_to_end.conftest import Kafka
from tests.real.releases import since
from tests.waiting import DEADLINE

shares = since("4.3.0", "renewals and strict limits are of Kafka 4.2, and the texts those of 4.3")
ACCEPT, RELEASE, REJECT, RENEW, GAP = (1,), (2,), (3,), (4,), (0,)
DONE = (0, None)
NOT_ACQUIRED = (121, "The offset cannot be acknowledged. The offset is not acquired.")
INVALID = (42, None)
LOADING, NOT_COORDINATOR = 14, 16
NOT_HOSTED = "This server does not host this topic-partition."
LONG = 20_000
"""Milliseconds that a fetch waits where there are records: Kafka loads a share partition at its first use."""


@asynccontextmanager
async def connection(address: str) -> AsyncIterator[Connection]:
    host, _, port = address.partition(":")
    connection = Connection()
    await asyncio.get_running_loop().create_connection(lambda: connection.stream, host, int(port))
    try:
        async with asyncio.timeout(DEADLINE):
            yield connection
    finally:
        connection.stream.abort()
        await connection.stream.wait_closed()


class Connection:
    def __init__(self) -> None:
        self.protocol: ClientProtocol[None] = ClientProtocol("broker")
        self.stream = FramedStreamReader(1 << 20, "broker")

    async def ask(self, request: Any, *, version: int | None = None) -> Any:
        """Return the response to a request, in the last version by default."""
        version = type(request).versions.last if version is None else version
        self.stream.write([self.protocol.encode_request(request, version, "test", None)])
        frame = await self.stream.read_frame()
        assert frame is not None
        return self.protocol.receive(frame)[1]


class Group:
    """A share group that reads partition 0 of a topic, and connections to its coordinator and to the leader."""

    def __init__(self, name: str, topic: str, topic_id: bytes, coordinator: Connection, leader: Connection) -> None:
        self.name = name
        self.topic = topic
        self.topic_id = topic_id
        self.coordinator = coordinator
        self.leader = leader
        self.epochs: dict[str, int] = {}  # of share sessions, by member

    async def join(self, member: str) -> None:
        """Join until the member has a partition: Kafka makes the state of share partitions in the background."""
        while True:
            answer = await self.coordinator.ask(heartbeat(self.name, member, 0, [self.topic]))
            if answer.error_code == 0 and answer.assignment.topic_partitions:
                return
            await asyncio.sleep(0.05)

    async def fetch(self, member: str, *batches: Batch, epoch: int | None = None, **options: Any) -> Any:
        """Return the error of the response; else the result of the acknowledgements, and what was acquired."""
        epoch = self.epochs.get(member, 0) if epoch is None else epoch
        topic_id = self.topic_id if batches or epoch == 0 else None
        answer = await self.leader.ask(share_fetch(self.name, member, epoch, topic_id, *batches, **options))
        if answer.error_code:
            return answer.error_code
        self.epochs[member] = epoch + 1
        return [
            (
                (partition.acknowledge_error_code, partition.acknowledge_error_message),
                [(got.first_offset, got.last_offset, got.delivery_count) for got in partition.acquired_records],
            )
            for topic in answer.responses
            for partition in topic.partitions
        ]

    async def acknowledge(self, member: str, *batches: Batch, epoch: int | None = None, **options: Any) -> Any:
        """Return the error of the response; else the error of the partition, with its text."""
        epoch = self.epochs.get(member, 0) if epoch is None else epoch
        request = share_acknowledge(
            self.name, member, epoch, options.pop("topic_id", self.topic_id), *batches, **options
        )
        answer = await self.leader.ask(request)
        if answer.error_code:
            return answer.error_code
        self.epochs[member] = epoch + 1
        partition = answer.responses[0].partitions[0]
        return partition.error_code, partition.error_message

    async def beat(self, member: str, epoch: int, topics: list[str] | None = None, group: str | None = None) -> Any:
        request = heartbeat(self.name if group is None else group, member, epoch, topics)
        while (answer := await self.coordinator.ask(request)).error_code == LOADING:
            await asyncio.sleep(0.05)
        return answer.error_code, answer.error_message

    async def offsets(self) -> Any:
        """Return the start offset and the lag."""
        request_group = m.DescribeShareGroupOffsetsRequestGroup(group_id=self.name, topics=None)
        answer = await self.coordinator.ask(m.DescribeShareGroupOffsetsRequest(groups=[request_group]))
        partition = answer.groups[0].topics[0].partitions[0]
        return partition.start_offset, partition.lag


@asynccontextmanager
async def group_of(kafka: Kafka, records: int) -> AsyncIterator[Group]:
    """Yield a group that begins with the first of so many records, which are one batch."""
    topic, name = await kafka.create_topic(partitions=1), f"share-{uuid.uuid4()}"
    async with Admin(kafka.bootstrap_servers) as admin:
        settings = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "60000"}
        (await admin.configs.alter({ConfigResource.group(name): settings})).raise_for_errors()
    async with Producer(kafka.bootstrap_servers) as producer:
        await producer.send_many(topic, [b"%d" % number for number in range(records)])
    async with connection(kafka.bootstrap_servers.partition(",")[0]) as first:
        described = await first.ask(m.MetadataRequest(topics=[m.MetadataRequestTopic(name=topic)]))
        addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in described.brokers}
        partition = None
        while partition is None or partition.error_code:  # the first request creates the topic of the coordinators
            answer = await first.ask(m.FindCoordinatorRequest(key_type=0, coordinator_keys=[name]))
            partition = answer.coordinators[0]
            await asyncio.sleep(0.05)
    leader = addresses[described.topics[0].partitions[0].leader_id]
    async with connection(addresses[partition.node_id]) as coordinator, connection(leader) as at_leader:
        yield Group(name, topic, described.topics[0].topic_id, coordinator, at_leader)


@shares
async def test_heartbeats_are_answered_as_by_apache_kafka(kafka: Kafka) -> None:
    async with group_of(kafka, 1) as group:
        assert await group.beat("m", 5) == (69, f"Share group {group.name} not found.")
        assert await group.beat("m", -1) == (69, f"Group {group.name} not found.")
        assert await group.beat("m", -2) == (42, "MemberEpoch is invalid.")
        assert await group.beat("m", 0) == (42, "SubscribedTopicNames must be set in first request.")
        assert await group.beat("m", 0, []) == (42, "SubscribedTopicNames must be set in first request.")
        await group.join("m")
        epoch_known = (await group.coordinator.ask(heartbeat(group.name, "m", 0, [group.topic]))).member_epoch
        assert await group.beat("m", epoch_known + 9) == (
            110,
            f"The share group member has a greater member epoch ({epoch_known + 9}) than the one known by the group "
            f"coordinator ({epoch_known}). The member must abandon all its partitions and rejoin.",
        )
        assert await group.beat("m", epoch_known) == DONE
        full = await group.coordinator.ask(heartbeat(group.name, "m", epoch_known, [group.topic]))
        assert full.assignment.topic_partitions[0].partitions == [0]
        assert await group.beat("other", 3) == (25, f"Member other is not a member of group {group.name}.")
        describe = m.DescribeGroupsRequest(groups=[group.name])
        described_group = (await group.coordinator.ask(describe)).groups[0]
        assert (described_group.error_code, described_group.error_message) == (
            69,
            f"Group {group.name} is not a classic group.",
        )
        assert await group.beat("m", -1) == DONE
        assert await group.beat("m", -1) == (25, f"Member m is not a member of group {group.name}.")
        described = await group.coordinator.ask(
            m.ShareGroupDescribeRequest(group_ids=[group.name], include_authorized_operations=True)
        )
        assert (described.groups[0].group_state, described.groups[0].authorized_operations) == ("Empty", 3400)


@shares
async def test_share_sessions_are_as_those_of_apache_kafka(kafka: Kafka) -> None:
    async with group_of(kafka, 2) as group:
        await group.join("m")
        assert await group.fetch("m", epoch=1) == 122
        assert await group.fetch("m", epoch=-1) == 122
        assert await group.acknowledge("m", (0, 0, ACCEPT), epoch=0) == 123
        assert await group.acknowledge("m", (0, 0, ACCEPT), epoch=1) == 122
        assert await group.fetch("m", (0, 0, ACCEPT)) == 42
        assert await group.fetch("m", max_records=1, share_acquire_mode=1, max_wait_ms=LONG) == [(DONE, [(0, 0, 1)])]
        assert await group.fetch("m", epoch=2) == 123
        assert await group.fetch("m", max_wait_ms=LONG) == [(DONE, [(1, 1, 1)])]
        assert await group.fetch("m") == []
        assert await group.fetch("m", (0, 0, ACCEPT)) == [(DONE, [])]
        assert await group.fetch("m", (1, 1, ACCEPT), epoch=-1) == [(DONE, [])]
        assert await group.fetch("m", epoch=4) == 122
        assert (await group.offsets())[1] == 0


@shares
async def test_a_record_that_the_end_of_its_session_releases_counts_as_delivered(kafka: Kafka) -> None:
    async with group_of(kafka, 3) as group:
        await group.join("m")
        assert await group.fetch("m", max_wait_ms=LONG) == [(DONE, [(0, 2, 1)])]
        assert await group.acknowledge("m", (1, 1, RELEASE)) == DONE
        await group.fetch("m", epoch=-1)
        await group.join("n")
        assert await group.fetch("n", max_wait_ms=LONG) == [(DONE, [(0, 2, 2)])]


@shares
async def test_unusual_share_requests_are_answered_as_by_apache_kafka(kafka: Kafka) -> None:
    async with group_of(kafka, 1) as group:
        await group.join("m")
        assert await group.fetch("m", share_acquire_mode=7) == -1
        assert await group.fetch("m", epoch=1, max_records=0) == []
        assert await group.acknowledge("m", (0, 0, ACCEPT)) == (3, NOT_HOSTED)
        assert await group.fetch("m", max_wait_ms=LONG) == [(DONE, [(0, 0, 1)])]
        answers = []
        for epoch, topic_id in enumerate((None, group.topic_id, group.topic_id)):
            request = share_fetch(group.name, "other", epoch, topic_id)
            answers.append([topic.topic_id for topic in (await group.leader.ask(request)).responses])
        assert answers == [[], [group.topic_id], []]


@shares
async def test_acknowledgements_are_answered_as_by_apache_kafka(kafka: Kafka) -> None:
    async with group_of(kafka, 12) as group:
        await group.join("m")
        assert await group.offsets() == (-1, -1)
        assert await group.fetch("m", max_wait_ms=LONG) == [(DONE, [(0, 11, 1)])]
        expected: list[tuple[tuple[Batch, ...], Any]] = [
            (((8, 8, ACCEPT),), DONE),
            (((8, 8, ACCEPT),), NOT_ACQUIRED),
            (((7, 8, ACCEPT),), NOT_ACQUIRED),
            (((7, 7, ACCEPT), (8, 8, ACCEPT)), NOT_ACQUIRED),
            (((4, 6, ACCEPT), (6, 7, ACCEPT)), NOT_ACQUIRED),
            (((6, 6, ACCEPT), (4, 4, ACCEPT)), INVALID),
            (((4, 4, (9,)),), INVALID),
            (((4, 7, (1, 1)),), INVALID),
            (((4, 4, ()),), INVALID),
            (((5, 4, ACCEPT),), INVALID),
            (((4, 4, RENEW),), INVALID),
            (
                ((50, 51, ACCEPT),),
                (42, "Batch record not found. The first offset in request is past acquired records."),
            ),
            (((11, 12, ACCEPT),), (42, "Batch record not found. The last offset in request is past acquired records.")),
            (((0, 2, (1, 0, 3)),), DONE),
            (((0, 2, ACCEPT),), DONE),
            (((3, 4, RELEASE),), DONE),
        ]
        for batches, outcome in expected:
            assert await group.acknowledge("m", *batches) == outcome, batches
        assert await group.acknowledge("m", (5, 5, RENEW), renew=True) == DONE
        assert await group.acknowledge("m", (5, 5, ACCEPT), partition=9) == (3, None)
        assert await group.acknowledge("m", (5, 5, ACCEPT), topic_id=bytes(15) + b"x") == (100, None)
        assert await group.offsets() == (3, 8)
        assert await group.fetch("m", (8, 8, ACCEPT), max_wait_ms=LONG) == [(NOT_ACQUIRED, [(3, 4, 2)])]
        assert await group.fetch("m", (5, 5, (9,))) == [(INVALID, [])]
        assert await group.fetch("m", (5, 5, RENEW), is_renew_ack=True) == 42
        nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "batch_size": 0}
        assert await group.fetch("m", (5, 5, RENEW), is_renew_ack=True, **nothing) == [(DONE, [])]
        await group.join("other")
        assert await group.fetch("other") == [(DONE, [])]
        assert await group.acknowledge("other", (6, 6, ACCEPT)) == (121, "Member is not the owner of offset")
        assert await group.acknowledge("m", (6, 6, ACCEPT), epoch=-1) == DONE
        assert await group.fetch("other", max_wait_ms=LONG) == [(DONE, [(3, 4, 3), (5, 5, 2), (7, 7, 2), (9, 11, 2)])]


@shares
async def test_requests_about_the_state_of_share_partitions_are_answered_as_by_apache_kafka(kafka: Kafka) -> None:
    async with group_of(kafka, 1) as group:
        await group.join("m")
        async with share_coordinator(kafka, group.name, group.topic_id) as own:
            summary = await own.ask(StateRequests(group.name, group.topic_id).summary())
            assert outcome(summary) == (-1, -1)
            assert summary.results[0].partitions[0].state_epoch > 0
        name = f"state-{uuid.uuid4()}"
        here, nowhere = StateRequests(name, group.topic_id), StateRequests(name, group.topic_id, partition=9)
        negative, unnamed = StateRequests(name, group.topic_id, partition=-1), StateRequests("", group.topic_id)
        unknown = StateRequests(name, bytes(15) + b"x")
        fenced_leader, fenced_state, invalid, absent = 74, 124, 42, 3
        steps: list[tuple[Any, Any]] = [
            (here.read(0), invalid),
            (here.write((0, 0), 0), invalid),
            (here.summary(), (-1, -1)),
            (here.delete(), 0),
            (here.initialize(5, -1), 0),
            (here.read(0), (-1, [])),
            (here.initialize(4, 7), fenced_state),
            (here.initialize(5, 7), 0),
            (here.read(2), (7, [])),
            (here.read(1), fenced_leader),
            (here.write((5, 1), 0), fenced_leader),
            (here.write((4, 2), 0), fenced_state),
            (here.write((5, 3), 10, (10, 14, 0, 1), (15, 19, 2, 1), complete=5), 0),
            (here.write((5, 3), -1, (12, 16, 0, 2), (30, 35, 4, 1), complete=6), 0),
            (here.read(3), (10, [(10, 11, 0, 1), (12, 16, 0, 2), (17, 19, 2, 1), (30, 35, 4, 1)])),
            (here.write((5, 3), 13), 0),
            (here.write((5, 3), 11, (11, 12, 2, 1)), 0),
            (here.read(3), (11, [(11, 12, 2, 1), (13, 16, 0, 2), (17, 19, 2, 1), (30, 35, 4, 1)])),
            (here.initialize(6, 100), 0),
            (here.read(0), fenced_leader),
            (here.read(3), (100, [])),
            (here.delete(), 0),
            (here.read(0), invalid),
            *[(requests.initialize(0, 0), absent) for requests in (nowhere, unknown)],
            *[(requests.delete(), absent) for requests in (nowhere, unknown)],
            *[(requests.read(0), invalid) for requests in (nowhere, unknown, negative)],
            *[(requests.write((0, 0), 0), invalid) for requests in (nowhere, unknown, negative)],
            *[(request, invalid) for request in (negative.initialize(0, 0), negative.summary(), negative.delete())],
            *[(request, None) for request in (unnamed.initialize(0, 0), unnamed.read(0), unnamed.delete())],
        ]
        async with (
            share_coordinator(kafka, name, group.topic_id) as coordinator,
            share_coordinator(kafka, name, nowhere.topic_id, nowhere.partition) as of_nowhere,
            share_coordinator(kafka, name, unknown.topic_id) as of_unknown,
        ):
            others = {nowhere.partition: of_nowhere, unknown.topic_id: of_unknown}
            for number, (request, expected) in enumerate(steps):
                ((topic_id, partition),) = [(topic.topic_id, topic.partitions[0].partition) for topic in request.topics]
                owner = others.get(partition) or others.get(topic_id) or coordinator
                assert outcome(await owner.ask(request)) == expected, (number, request)


@asynccontextmanager
async def share_coordinator(kafka: Kafka, group: str, topic_id: bytes, partition: int = 0) -> AsyncIterator[Connection]:
    """Connect to the broker that keeps the state of a partition, when it has loaded the state."""
    key = f"{group}:{base64.urlsafe_b64encode(topic_id).decode().rstrip('=')}:{partition}"
    find = m.FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
    async with connection(kafka.bootstrap_servers.partition(",")[0]) as first:
        while (answer := (await first.ask(find)).coordinators[0]).error_code:
            await asyncio.sleep(0.05)
    async with connection(f"{answer.host}:{answer.port}") as coordinator:
        summary = StateRequests(group, topic_id, partition).summary()
        while outcome(await coordinator.ask(summary)) == NOT_COORDINATOR:
            await asyncio.sleep(0.05)
        yield coordinator
