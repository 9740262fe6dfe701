"""Share consumers under failures: lost connections and sessions, expired locks, dead and frozen brokers, fencing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from aiokafka_lite import Admin, KafkaError, KafkaTimeout, ShareConsumer, TopicPartition
from aiokafka_lite.admin import ConfigResource
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import (
    AcknowledgementFailed,
    AuthorizationError,
    BrokerError,
    ConnectionLost,
    DeserializationError,
    ErrorCode,
    ProtocolError,
    UnsupportedVersion,
)
from aiokafka_lite.protocol.messages import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchResponsePartition,
    ShareFetchResponseTopic,
    ShareGroupHeartbeatRequest,
)
from tests.embedded.share.billing_consumers import GROUP, read, share_consumer, write
from tests.waiting import until

ORDERS = TopicPartition("orders", 0)


def refusing(
    cluster: EmbeddedCluster, code: ErrorCode, *, every: int = 1
) -> Callable[[ShareFetchResponse], ShareFetchResponse]:
    """Alters answers: each answer, or ``every`` second one, refuses the partition of ``jobs``. The others lack it."""
    topic_id = cluster.controller.topics["jobs"].topic_id
    answers = count(1)

    def refuse(response: ShareFetchResponse) -> ShareFetchResponse:
        refused = ShareFetchResponsePartition(
            partition_index=0, error_code=code, acknowledge_error_code=ErrorCode.NONE, records=b"", acquired_records=[]
        )
        partitions = [] if next(answers) % every else [refused]
        response.responses = [ShareFetchResponseTopic(topic_id=topic_id, partitions=partitions)]
        return response

    return refuse


async def read_the_next(cluster: EmbeddedCluster, consumer: ShareConsumer[bytes, bytes]) -> None:
    """Write a record, read it, and commit it."""
    await write(cluster, b"next")
    assert [record.value for record in await read(consumer, 1)] == [b"next"]
    assert await consumer.commit()


async def test_a_record_whose_lock_expired_is_delivered_again_and_its_acknowledgement_fails(
    cluster: EmbeddedCluster,
) -> None:
    await write(cluster, b"a", topic="jobs")
    async with share_consumer(cluster, "jobs", renew_locks_for=0.0) as slow, share_consumer(cluster, "jobs") as other:
        (first,) = await read(slow, 1)
        assert slow.acquisition_lock_timeout == 30.0
        (again,) = await read(other, 1)
        assert (again.offset, again.delivery_count) == (first.offset, 2)
        slow.accept(first)
        result = await slow.commit()
        assert not result
        with pytest.raises(AcknowledgementFailed, match="acquisition lock had expired"):
            result.raise_for_refused()
        other.accept(again)
        assert await other.commit()


async def test_a_member_whose_event_loop_is_blocked_for_a_session_warns_is_evicted_and_joins_again(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    loop: Any = asyncio.get_running_loop()
    async with share_consumer(cluster) as consumer:
        await until(lambda: consumer.assignment)
        await asyncio.sleep(20.0)  # virtual time
        loop.now += 60.0
        await asyncio.sleep(20.0)
        assert consumer.health().is_ready
        assert len(consumer.assignment) == 2
    blocked, evicted = (record.getMessage() for record in caplog.records if "blocked" in record.getMessage())
    assert "and sent no heartbeat; the coordinator evicts a member whose session ends" in blocked
    assert "was evicted from the group after the event loop was blocked for" in evicted


async def test_a_record_is_not_rejected_because_a_server_does_not_answer_its_deserializer(
    cluster: EmbeddedCluster,
) -> None:
    await write(cluster, b"a", topic="jobs")
    outages = [KafkaTimeout("the schema registry does not answer")]

    def deserialize(data: bytes) -> bytes:
        if outages:
            raise outages.pop()
        return data

    settings = {"value_deserializer": deserialize, "on_deserialization_error": "reject"}
    async with share_consumer(cluster, "jobs", **settings) as consumer:
        with pytest.raises(DeserializationError, match="schema registry does not answer"):
            await consumer.poll(timeout=60.0)
        (record,) = await read(consumer, 1)
    assert (record.value, record.delivery_count) == (b"a", 2)


async def test_a_renewed_record_stays_with_its_consumer(cluster: EmbeddedCluster) -> None:
    await write(cluster, b"a", topic="jobs")
    async with share_consumer(cluster, "jobs") as slow, share_consumer(cluster, "jobs") as other:
        (record,) = await read(slow, 1)
        for _ in range(3):
            assert await other.poll(timeout=20.0) == []
            assert await slow.renew(record) == 30.0
        slow.accept(record)
        assert await slow.commit()
        assert await other.poll(timeout=60.0) == []


async def test_acknowledgements_of_a_lost_connection_fail_and_the_records_come_again(cluster: EmbeddedCluster) -> None:
    await write(cluster, b"a", b"b")
    seen: list[tuple[TopicPartition, tuple[int, ...], KafkaError | None]] = []
    async with share_consumer(cluster, on_acknowledged=lambda *result: seen.append(result)) as consumer:
        first, second = await read(consumer, 2)
        cluster.on(ShareAcknowledgeRequest).disconnect(times=1)
        consumer.accept(first)
        result = await consumer.commit()
        assert isinstance(result.refused[ORDERS], ConnectionLost)
        records = await read(consumer, 2)
        assert [(record.offset, record.delivery_count) for record in records] == [(0, 2), (1, 2)]
        await consumer.commit()
        assert consumer.metrics().sessions_lost == 1
    assert [(offsets, error is None) for _, offsets, error in seen] == [((0, 1), False), ((0, 1), True)]
    assert second.delivery_count == 1


@pytest.mark.parametrize("code", [ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH])
async def test_a_session_that_the_broker_dropped_is_opened_again(cluster: EmbeddedCluster, code: ErrorCode) -> None:
    await write(cluster, b"a")
    async with share_consumer(cluster) as consumer:
        await read(consumer, 1)
        await consumer.commit()
        cluster.on(ShareFetchRequest).fail(code, times=1)
        await read_the_next(cluster, consumer)


async def test_records_are_read_from_the_next_leader(cluster: EmbeddedCluster) -> None:
    await write(cluster, b"a")
    async with share_consumer(cluster) as consumer:
        await read(consumer, 1)
        await consumer.commit()
        await cluster.move_leader("orders", 0)
        await read_the_next(cluster, consumer)


async def test_records_of_a_killed_broker_are_read_from_the_next_leader(cluster: EmbeddedCluster) -> None:
    await write(cluster, b"a", b"b")
    async with share_consumer(cluster) as consumer:
        await read(consumer, 2)
        assert await consumer.commit()
        await cluster.kill(cluster.leader_of("orders", 0))
        await read_the_next(cluster, consumer)


async def test_closing_takes_a_bounded_time_when_a_broker_is_frozen(cluster: EmbeddedCluster) -> None:
    await write(cluster, b"a")
    loop = asyncio.get_running_loop()
    async with share_consumer(cluster) as consumer:
        await read(consumer, 1)
        await cluster.freeze(cluster.leader_of("orders", 0))
        reading = asyncio.create_task(consumer.poll(timeout=5.0))
        await asyncio.sleep(0.1)
        reading.cancel()
        began = loop.time()
        await consumer.close()
        assert loop.time() - began < 3.0


async def test_a_fenced_member_joins_again_and_reads_on(cluster: EmbeddedCluster) -> None:
    await write(cluster, b"a")
    async with share_consumer(cluster) as consumer:
        await read(consumer, 1)
        cluster.on(ShareGroupHeartbeatRequest).fail(ErrorCode.UNKNOWN_MEMBER_ID, times=1)
        await asyncio.sleep(15.0)
        await write(cluster, b"b")
        assert [record.value for record in await read(consumer, 1)] == [b"b"]
        assert consumer.metrics().member_state == "STABLE"


async def test_an_assignment_whose_answer_was_lost_is_requested_again(cluster: EmbeddedCluster) -> None:
    servers, connector = cluster.bootstrap_servers, cluster.connector
    async with share_consumer(cluster) as consumer, Admin(servers, connector=connector) as admin:
        await until(lambda: len(consumer.assignment) == 2)
        lost = cluster.on(ShareGroupHeartbeatRequest).apply_then_disconnect(times=1)
        (await admin.topics.add_partitions({"orders": 4})).raise_for_errors()
        await until(lambda: len(consumer.assignment) == 4)
        assert lost.hits == 1


async def test_records_that_an_answer_lacks_are_delivered_again(cluster: EmbeddedCluster) -> None:
    await write(cluster, b"a", b"b", topic="jobs")

    def cut(response: ShareFetchResponse) -> ShareFetchResponse:
        partition = response.responses[0].partitions[0]
        partition.records = bytes(partition.records or b"")[:-1]
        return response

    cluster.on(ShareFetchRequest).alter(cut, times=1)
    async with share_consumer(cluster, "jobs") as consumer:
        records = await read(consumer, 2)
        assert [(record.value, record.delivery_count) for record in records] == [(b"a", 1), (b"b", 2)]


async def test_a_renewal_that_the_answer_lacks_is_an_error(cluster: EmbeddedCluster) -> None:
    await write(cluster, b"a")

    def lacks_all(response: ShareAcknowledgeResponse) -> ShareAcknowledgeResponse:
        response.responses = []
        return response

    async with share_consumer(cluster) as consumer:
        (record,) = await read(consumer, 1)
        cluster.on(ShareAcknowledgeRequest).alter(lacks_all, times=1)
        with pytest.raises(ProtocolError, match="did not answer for orders-0"):
            await consumer.renew(record)


async def test_a_renewal_that_the_group_does_not_allow_is_an_error_and_the_record_can_be_accepted(
    cluster: EmbeddedCluster,
) -> None:
    await write(cluster, b"a")
    async with Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin:
        changes = {ConfigResource.group(GROUP): {"share.renew.acknowledge.enable": "false"}}
        (await admin.configs.alter(changes)).raise_for_errors()
    async with share_consumer(cluster) as consumer:
        (record,) = await read(consumer, 1)
        with pytest.raises(BrokerError, match="Renewing acquisition locks is not enabled for the group"):
            await consumer.renew(record)
        consumer.accept(record)
        (await consumer.commit()).raise_for_refused()


async def test_closing_during_a_long_fetch_acknowledges_and_leaves(cluster: EmbeddedCluster) -> None:
    """The other broker has no records, so its fetch waits while this one's record is accepted."""
    await write(cluster, b"a")
    seen: list[tuple[TopicPartition, tuple[int, ...], KafkaError | None]] = []
    settings: dict[str, Any] = {"fetch_max_wait": 10.0, "acknowledgement_mode": "explicit"}
    async with Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin:
        async with share_consumer(cluster, on_acknowledged=lambda *result: seen.append(result), **settings) as consumer:
            (record,) = await read(consumer, 1)
            consumer.accept(record)
        assert seen == [(ORDERS, (0,), None)]
        assert (await admin.share_groups.describe(GROUP))[GROUP].members == ()


@pytest.mark.parametrize("whole", [True, False])
async def test_fetches_that_are_refused_for_long_are_an_outage_that_is_logged_once(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture, whole: bool
) -> None:
    caplog.set_level(logging.INFO)
    await write(cluster, b"a", topic="jobs")
    fault = cluster.on(ShareFetchRequest, times=None)
    if whole:
        fault.fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    else:
        fault.alter(refusing(cluster, ErrorCode.KAFKA_STORAGE_ERROR))
    async with share_consumer(cluster, "jobs") as consumer:
        assert await consumer.poll(timeout=20.0) == []
        (outage,) = consumer.diagnose().outages
        assert outage.lasts_for is not None
        assert ("COORDINATOR_LOAD_IN_PROGRESS" if whole else "KAFKA_STORAGE_ERROR") in outage.error
        assert fault.hits <= 5 * 20
        fault.remove()
        assert [record.value for record in await read(consumer, 1)] == [b"a"]
    lines = [line for line in caplog.messages if line.startswith("fetch")]
    assert [line.partition(" from ")[0] for line in lines] == ["fetching", "fetched"]


async def test_a_partition_that_is_refused_in_every_second_answer_is_one_outage(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await write(cluster, b"a", topic="jobs")
    refuse = refusing(cluster, ErrorCode.KAFKA_STORAGE_ERROR, every=2)
    fault = cluster.on(ShareFetchRequest, times=None).alter(refuse)
    async with share_consumer(cluster, "jobs") as consumer:
        assert await consumer.poll(timeout=20.0) == []
        assert fault.hits > 20
        fault.remove()
        assert [record.value for record in await read(consumer, 1)] == [b"a"]
    lines = [line for line in caplog.messages if line.startswith("fetch")]
    assert [line.partition(" from ")[0] for line in lines] == ["fetching", "fetched"]


async def test_a_commit_that_is_refused_until_its_deadline_names_the_reason(cluster: EmbeddedCluster) -> None:
    await write(cluster, b"a", topic="jobs")
    async with share_consumer(cluster, "jobs") as consumer:
        (record,) = await read(consumer, 1)
        fault = cluster.on(ShareAcknowledgeRequest, times=None).fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        consumer.accept(record)
        with pytest.raises(KafkaTimeout, match=r"no results within 5 s; the last error was: .*LOAD_IN_PROGRESS"):
            await consumer.commit(timeout=5.0)
        assert fault.hits <= 5 * 5


async def test_a_refused_partition_is_raised_once_although_no_read_waits(cluster: EmbeddedCluster) -> None:
    refuse = refusing(cluster, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    async with share_consumer(cluster, "jobs") as consumer:
        await until(lambda: consumer.assignment)
        fault = cluster.on(ShareFetchRequest).alter(refuse, times=None)
        assert await consumer.poll() == []
        await asyncio.sleep(60.0)
        with pytest.raises(AuthorizationError):
            await consumer.poll()
        fault.remove()
        await write(cluster, b"a", topic="jobs")
        assert [record.value for record in await read(consumer, 1)] == [b"a"]


@pytest.mark.parametrize("request_type", [ShareGroupHeartbeatRequest, ShareFetchRequest])
async def test_a_missing_permission_is_raised_to_the_reader(cluster: EmbeddedCluster, request_type: type) -> None:
    cluster.on(request_type).fail(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError):
        async with share_consumer(cluster) as consumer:
            await read(consumer, 1)


async def test_a_broker_without_share_groups_is_named_with_the_version_that_is_needed(
    cluster: EmbeddedCluster,
) -> None:
    for node in cluster.nodes:
        cluster.cap_versions(node, ShareGroupHeartbeatRequest, 0, first=0)
    with pytest.raises(UnsupportedVersion, match=r"share groups require Kafka 4\.2 or newer"):
        async with share_consumer(cluster) as consumer:
            await read(consumer, 1)


async def test_an_error_of_one_partition_does_not_stop_the_others(cluster: EmbeddedCluster) -> None:
    await cluster.move_leader("orders", 1, cluster.leader_of("orders", 0))
    await write(cluster, b"a", partition=0)
    await write(cluster, b"b", partition=1)

    def refuse_the_first(response: ShareFetchResponse) -> ShareFetchResponse:
        for topic in response.responses:
            for partition in topic.partitions:
                if partition.partition_index == 0:
                    partition.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return response

    fault = cluster.on(ShareFetchRequest).alter(refuse_the_first, times=None)
    async with share_consumer(cluster) as consumer:
        assert [record.value for record in await read(consumer, 1)] == [b"b"]
        fault.remove()
        assert [record.value for record in await read(consumer, 1)] == [b"a"]


async def test_an_exception_of_the_callback_is_raised_by_the_next_read(cluster: EmbeddedCluster) -> None:
    await write(cluster, b"a", b"b")

    def refuse(*result: object) -> None:
        raise LookupError("no such invoice")

    async with share_consumer(cluster, on_acknowledged=refuse, max_fetch_records=1) as consumer:
        await read(consumer, 1)
        await consumer.commit()
        with pytest.raises(LookupError, match="no such invoice"):
            await consumer.poll(timeout=1.0)
        consumer.commit_nowait()
