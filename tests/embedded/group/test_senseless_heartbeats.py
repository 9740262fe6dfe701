"""Wrong answers to ConsumerGroupHeartbeat cause few requests and few log lines. Correct answers end their effects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
    MetadataRequest,
    OffsetFetchRequest,
)
from tests.embedded.cluster.alterations import with_topic_id
from tests.embedded.group.recording_members import CONSUMER, ORDERS, member_of, until_stable

LAST = 2**31 - 1


def with_fields(**fields: int) -> Callable[[Any], Any]:
    def change(response: Any) -> Any:
        for name, value in fields.items():
            setattr(response, name, value)
        return response

    return change


@pytest.mark.parametrize("epoch", [-1, 0, LAST])
async def test_a_wrong_epoch_costs_few_heartbeats_and_few_log_lines(
    cluster: EmbeddedCluster, epoch: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with member_of(cluster, **CONSUMER) as member:
        await until_stable(member)
        caplog.set_level(logging.INFO, "aiokafka_lite.group")
        wrong = cluster.on(ConsumerGroupHeartbeatRequest, times=None).alter(with_fields(member_epoch=epoch))
        await asyncio.sleep(60.0)
        assert wrong.hits <= 140
        # A member that is evicted again and again says so after each pause.
        assert len(caplog.records) <= (5 if epoch <= 0 else 5 * 70)
        wrong.remove()
        await asyncio.sleep(10.0)
        assert sorted(member.assignment) == ORDERS


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
async def test_a_member_that_is_fenced_at_each_fetch_of_offsets_joins_at_most_about_once_a_second(
    cluster: EmbeddedCluster, code: ErrorCode
) -> None:
    wrong = cluster.on(OffsetFetchRequest, times=None).fail(code)
    async with member_of(cluster, **CONSUMER) as member:
        await asyncio.sleep(60.0)
        assert 10 <= wrong.hits <= 90
        wrong.remove()
        await asyncio.sleep(10.0)
        assert sorted(member.assignment) == ORDERS


async def test_an_interval_without_end_does_not_stop_the_heartbeats(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster, **CONSUMER) as member:
        cluster.on(ConsumerGroupHeartbeatRequest, times=None).alter(with_fields(heartbeat_interval_ms=LAST))
        await until_stable(member)
        await asyncio.sleep(240.0)
        cluster.history.clear()
        await member.poll(timeout=240.0)
        assert len(cluster.history.of(ConsumerGroupHeartbeatRequest)) >= 8


async def test_an_assignment_of_partitions_that_do_not_exist_is_refused_and_the_partitions_stay(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    ids: list[bytes] = []
    is_wrong = False

    def change(response: Any) -> Any:
        if response.assignment is not None:
            ids.extend(topic_partition.topic_id for topic_partition in response.assignment.topic_partitions)
        if is_wrong:
            wrong = ConsumerGroupHeartbeatTopicPartitions(topic_id=ids[0], partitions=list(range(100_000)))
            response.assignment = ConsumerGroupHeartbeatAssignment(topic_partitions=[wrong])
        return response

    cluster.on(ConsumerGroupHeartbeatRequest, times=None).alter(change)
    async with member_of(cluster, **CONSUMER) as member:
        await until_stable(member)
        caplog.set_level(logging.INFO, "aiokafka_lite.group")
        is_wrong = True
        cluster.history.clear()
        await asyncio.sleep(30.0)
        assert sorted(member.assignment) == ORDERS
        assert "an assignment with 99994 partitions that do not exist; topic 'orders' has 6 partitions" in caplog.text
        assert len(cluster.history.of(MetadataRequest)) <= 40
        is_wrong = False
        await asyncio.sleep(10.0)
        cluster.history.clear()
        await asyncio.sleep(10.0)
        assert len(cluster.history.of(ConsumerGroupHeartbeatRequest)) <= 3
        assert sorted(member.assignment) == ORDERS


@pytest.mark.parametrize("topic_id", [bytes(16), b"another topic id"], ids=["no id", "an unknown id"])
async def test_an_assignment_of_a_topic_that_does_not_exist_is_requested_again(
    cluster: EmbeddedCluster, topic_id: bytes
) -> None:
    wrong = cluster.on(ConsumerGroupHeartbeatRequest, times=None).alter(with_topic_id(topic_id))
    async with member_of(cluster, **CONSUMER) as member:
        await asyncio.sleep(30.0)
        assert not member.assignment
        assert wrong.hits <= 60
        wrong.remove()
        await asyncio.sleep(30.0)
        assert sorted(member.assignment) == ORDERS
