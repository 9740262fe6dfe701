"""Requests of brokers about the state of share partitions: the state is the one that members use."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.coordinators.share.partition import RecordState, StateBatch
from aiokafka_lite.embedded.coordinators.share.state_batches import combine
from aiokafka_lite.errors import ErrorCode
from tests.embedded.broker.raw_client import Peer

from .raw_members import ACCEPT, Member, set_configs, write
from .state_requests import StateRequests, outcome


def requests_of(cluster: EmbeddedCluster, group: str = "workers") -> StateRequests:
    return StateRequests(group, cluster.controller.topics["orders"].topic_id)


def coordinator_of(cluster: EmbeddedCluster, requests: StateRequests) -> int:
    leader = cluster.share_groups.state_leader(requests.group, (requests.topic_id, 0))
    assert leader is not None
    return leader


async def test_members_continue_with_the_state_that_a_broker_writes(cluster: EmbeddedCluster) -> None:
    await set_configs(cluster, share_auto_offset_reset="earliest")
    await write(cluster, 5)
    async with Member(cluster) as member:
        assert await member.fetch(max_records=2) == [(0, 1, 1)]
        await member.acknowledge((0, 0, ACCEPT))
        requests = requests_of(cluster)
        async with Peer(cluster, coordinator_of(cluster, requests)) as peer:
            assert outcome(await peer.ask(requests.summary())) == (1, 0)
            epoch = (await peer.ask(requests.summary())).results[0].partitions[0].state_epoch
            state = requests.write((epoch, 0), 1, (2, 2, 2, 1), (3, 3, 0, 2), complete=1)
            assert outcome(await peer.ask(state)) == 0
        assert await member.offsets() == (1, 3)
        assert await member.fetch() == [(1, 1, 1), (3, 3, 3), (4, 4, 1)]


async def test_only_the_share_coordinator_answers(cluster: EmbeddedCluster) -> None:
    requests = requests_of(cluster)
    async with Peer(cluster, 1) as peer:
        assert outcome(await peer.ask(requests.initialize(0, 0))) == ErrorCode.NOT_COORDINATOR
    async with Member(cluster):
        others = set(cluster.nodes) - {coordinator_of(cluster, requests)}
        async with Peer(cluster, others.pop()) as peer:
            for request in (requests.read(0), requests.write((0, 0), 0), requests.delete(), requests.summary()):
                assert outcome(await peer.ask(request)) == ErrorCode.NOT_COORDINATOR


async def test_states_that_no_record_can_have_are_refused(cluster: EmbeddedCluster) -> None:
    async with Member(cluster):
        requests = requests_of(cluster)
        async with Peer(cluster, coordinator_of(cluster, requests)) as peer:
            for batch in ((5, 4, 0, 1), (-1, 4, 0, 1), (4, 5, 1, 1), (4, 5, 0, -1)):
                assert outcome(await peer.ask(requests.write((9, 0), 0, batch))) == ErrorCode.INVALID_REQUEST
            assert outcome(await peer.ask(requests.write((9, 0), -2))) == ErrorCode.INVALID_REQUEST
            assert outcome(await peer.ask(requests.initialize(9, -2))) == ErrorCode.INVALID_REQUEST


async def test_a_state_without_a_group_is_kept_until_the_group_is_made(tmp_path: Path) -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, data_dir=tmp_path) as cluster:
        await cluster.create_topic("orders")
        await write(cluster, 4)
        async with Member(cluster, group="other"):
            requests = requests_of(cluster)
            async with Peer(cluster) as peer:
                assert outcome(await peer.ask(requests.initialize(1, 2))) == 0
    async with EmbeddedCluster(brokers=1, tcp=False, data_dir=tmp_path) as cluster, Peer(cluster) as peer:
        assert outcome(await peer.ask(requests.read(0))) == (2, [])
        assert outcome(await peer.ask(requests.read(-1))) == ErrorCode.FENCED_LEADER_EPOCH
        assert outcome(await peer.ask(requests.initialize(1, 3))) == 0
        async with Member(cluster) as member:
            assert (await member.fetch())[0] == (3, 3, 1)


def test_combined_batches_have_the_state_of_the_last_delivery() -> None:
    """Compared with the plain rule, offset by offset."""
    states = {0: RecordState.AVAILABLE, 2: RecordState.ACKNOWLEDGED, 4: RecordState.ARCHIVED}
    generator = random.Random(7)
    for _ in range(300):
        batches = []
        for _ in range(generator.randint(0, 6)):
            first = generator.randint(0, 12)
            rank = generator.choice([0, 2, 4])
            count = generator.randint(1, 3)
            batches.append((StateBatch(first, first + generator.randint(0, 6), states[rank], count), (count, rank)))
        start = generator.randint(-1, 6)
        expected = {}
        for offset in range(max(start, 0), 20):
            covering = [rank for batch, rank in batches if batch.first <= offset <= batch.last]
            if covering:
                expected[offset] = max(covering)
        combined = combine([batch for batch, _ in batches], start)
        results = {
            offset: (batch.delivery_count, next(rank for rank, state in states.items() if state is batch.state))
            for batch in combined
            for offset in range(batch.first, batch.last + 1)
        }
        assert results == expected
        neighbours = pairwise(combined)
        assert all(one.last + 1 < other.first or one[2:] != other[2:] for one, other in neighbours)
