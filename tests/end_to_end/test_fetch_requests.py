"""Raw Fetch requests: the embedded cluster answers them as Apache Kafka does."""

from __future__ import annotations

import asyncio
import uuid

from aiokafka_lite import Admin, Producer
from aiokafka_lite.admin import QuotaEntity
from aiokafka_lite.protocol import messages as m
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.test_share_group_requests import connection
from tests.real.releases import since
from tests.waiting import DEADLINE

newest = since("4.3.0", "the request is sent in its last version")


def full_fetch(topic_id: bytes) -> m.FetchRequest:
    partition = m.FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return m.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=0,
        session_epoch=0,
        topics=[m.FetchRequestTopic(topic_id=topic_id, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
    )


@newest
async def test_a_throttled_request_opens_no_fetch_session(kafka: Kafka) -> None:
    topic = f"throttled-{uuid.uuid4().hex[:8]}"
    entity = QuotaEntity(client_id="test")
    async with Admin(kafka.bootstrap_servers) as admin, Producer(kafka.bootstrap_servers) as producer:
        await admin.topics.create(topic)
        await producer.send(topic, b"v" * 50_000)
        described = (await admin.topics.describe(topic))[topic]
        assert described.topic_id is not None
        topic_id = described.topic_id.bytes
        brokers = (await admin.cluster.describe()).brokers
        (leader,) = [node for node in brokers if node.node_id == described.partitions[0].leader]
        try:
            (await admin.quotas.alter({entity: {"consumer_byte_rate": 100.0}})).raise_for_errors()
            async with connection(f"{leader.host}:{leader.port}") as peer, asyncio.timeout(DEADLINE):
                answer = await peer.ask(full_fetch(topic_id))
                while not answer.throttle_time_ms:
                    assert answer.session_id > 0
                    answer = await peer.ask(full_fetch(topic_id))
                assert (answer.error_code, answer.session_id, answer.responses) == (0, 0, [])
        finally:
            await admin.quotas.alter({entity: {"consumer_byte_rate": None}})
            await admin.topics.delete(topic)
