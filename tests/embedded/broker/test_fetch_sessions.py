"""Fetch sessions (KIP-227): requests name partitions once, and responses have only changed partitions."""

from __future__ import annotations

import time

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)
from tests.embedded.broker.raw_client import Peer
from tests.pure.embedded.batches import produced


def request(session_id: int, epoch: int, offsets: dict[int, int], forget: list[int] | None = None) -> FetchRequest:
    partitions = [
        FetchRequestPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in offsets.items()
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchRequestTopic(topic="t", partitions=partitions)] if partitions else [],
        forgotten_topics_data=[FetchRequestForgottenTopic(topic="t", partitions=forget)] if forget else [],
    )


def told(response: FetchResponse) -> list[int]:
    return sorted(part.partition_index for topic in response.responses for part in topic.partitions)


async def test_an_incremental_fetch_returns_only_news(one: EmbeddedCluster) -> None:
    await one.create_topic("t", 3)
    async with Peer(one) as peer:
        full = await peer.ask(request(0, 0, {0: 0, 1: 0, 2: 0}), 12)
        assert full.session_id > 0
        assert told(full) == [0, 1, 2]
        assert told(await peer.ask(request(full.session_id, 1, {}), 12)) == []
        await peer.produce("t", produced(timestamp=int(time.time() * 1000)), partition=1)
        assert told(await peer.ask(request(full.session_id, 2, {}), 12)) == [1]
        assert told(await peer.ask(request(full.session_id, 3, {1: 1}), 12)) == []


async def test_forgotten_partitions_are_no_longer_read(one: EmbeddedCluster) -> None:
    await one.create_topic("t", 2)
    async with Peer(one) as peer:
        full = await peer.ask(request(0, 0, {0: 0, 1: 0}), 12)
        await peer.ask(request(full.session_id, 1, {}, forget=[1]), 12)
        await peer.produce("t", produced(timestamp=int(time.time() * 1000)), partition=1)
        assert told(await peer.ask(request(full.session_id, 2, {}), 12)) == []


async def test_a_session_ends_with_its_last_partition(one: EmbeddedCluster) -> None:
    await one.create_topic("t", 1)
    async with Peer(one) as peer:
        full = await peer.ask(request(0, 0, {0: 0}), 12)
        last = await peer.ask(request(full.session_id, 1, {}, forget=[0]), 12)
        assert (last.error_code, last.session_id) == (ErrorCode.NONE, 0)
        assert (await peer.ask(request(full.session_id, 2, {}), 12)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_wrong_session_epoch_or_id_has_its_own_error(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    async with Peer(one) as peer:
        full = await peer.ask(request(0, 0, {0: 0}), 12)
        assert (await peer.ask(request(full.session_id, 5, {}), 12)).error_code == 71
        assert (await peer.ask(request(full.session_id + 1, 1, {}), 12)).error_code == 70
        assert (
            await peer.ask(request(full.session_id, 1, {}), 13)
        ).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


async def test_a_final_epoch_ends_the_session(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    async with Peer(one) as peer:
        full = await peer.ask(request(0, 0, {0: 0}), 12)
        closing = await peer.ask(request(full.session_id, -1, {0: 0}), 12)
        assert (closing.session_id, told(closing)) == (0, [0])
        assert len(one.nodes[1].parts.fetch_sessions) == 0


async def test_an_error_and_its_end_are_news(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    async with Peer(one) as peer:
        full = await peer.ask(request(0, 0, {0: 9}), 12)
        (part,) = full.responses[0].partitions
        assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        better = await peer.ask(request(full.session_id, 1, {0: 0}), 12)
        assert told(better) == [0]


async def test_the_least_recently_used_session_makes_room(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    one.nodes[1].parts.fetch_sessions._slots = 2
    async with Peer(one) as peer:
        ids = [(await peer.ask(request(0, 0, {0: 0}), 12)).session_id for _ in range(3)]
        assert (await peer.ask(request(ids[0], 1, {}), 12)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert (await peer.ask(request(ids[2], 1, {}), 12)).error_code == 0


async def test_sessions_keep_a_limited_number_of_partitions(one: EmbeddedCluster) -> None:
    await one.create_topic("t", 3)
    sessions = one.nodes[1].parts.fetch_sessions
    sessions.most_partitions = 1_000
    async with Peer(one) as peer:
        first = await peer.ask(request(0, 0, {0: 0}), 12)
        second = await peer.ask(request(0, 0, {1: 0}), 12)
        assert len(sessions) == 2
        for epoch in range(1, 4):  # partitions that do not exist, other ones each time
            await peer.ask(
                request(first.session_id, epoch, dict.fromkeys(range(epoch * 300, epoch * 300 + 300), 0)), 12
            )
        assert told(await peer.ask(request(second.session_id, 1, {}), 12)) == []
        refused = await peer.ask(request(first.session_id, 4, dict.fromkeys(range(2_000, 2_100), 0)), 12)
        assert refused.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        too_large = await peer.ask(request(0, 0, dict.fromkeys(range(1_001), 0)), 12)
        assert (too_large.error_code, too_large.session_id) == (0, 0)
        assert len(told(too_large)) == 1_001
        assert told(await peer.ask(request(second.session_id, 2, {}), 12)) == []
        large = await peer.ask(request(0, 0, dict.fromkeys(range(1_000), 0)), 12)
        assert large.session_id > 0
        assert len(sessions) == 1
