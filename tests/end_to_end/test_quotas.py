"""Quotas of bytes: what a request counts is the same at the embedded broker and at Apache Kafka."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka_lite import Producer
from aiokafka_lite.admin import Admin
from aiokafka_lite.admin.quotas import Match, QuotaEntity
from tests.end_to_end.conftest import Kafka
from tests.real.releases import NEWEST, since
from tests.waiting import DEADLINE

RATE = 1000.0
LONG_NAME = "x" * 30_000
EVERY = QuotaEntity(client_id=Match.DEFAULT)


@since(NEWEST, "what a byte quota counts is compared once")
@pytest.mark.parametrize("client_id, size", [(LONG_NAME, 1), ("y", 30_000)])
async def test_a_byte_quota_counts_the_header_and_the_body_of_a_request(
    kafka: Kafka, client_id: str, size: int
) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with Admin(kafka.bootstrap_servers) as admin:
        (await admin.quotas.alter({EVERY: {"producer_byte_rate": RATE}})).raise_for_errors()
        try:
            async with Producer(kafka.bootstrap_servers, client_id=client_id, enable_metrics_push=False) as producer:

                def throttled() -> float:
                    return max(traffic.throttle_time for traffic in producer.traffic().values())

                async with asyncio.timeout(DEADLINE):
                    while not throttled():  # the quota reaches the brokers a moment later
                        await producer.send(topic, b"v" * size)
                        await asyncio.sleep(0.2)
                assert throttled() >= 30_000 / RATE - 11
        finally:
            (await admin.quotas.alter({EVERY: {"producer_byte_rate": None}})).raise_for_errors()
