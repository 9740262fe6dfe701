"""Quotas throttle clients: the response has the throttle time, and the broker does not read meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.embedded.quotas import QuotaLimits
from aiokafka_lite.errors import ConnectionLost, ErrorCode
from aiokafka_lite.protocol.codec import encode_message
from aiokafka_lite.protocol.messages import (
    AlterClientQuotasOperation,
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntity,
    AlterClientQuotasRequestEntry,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClientQuotasComponent,
    DescribeClientQuotasRequest,
    MetadataRequest,
)
from tests.embedded.broker.raw_client import Peer, fetch_request, produce_request
from tests.pure.embedded.batches import produced
from tests.virtual import in_virtual_time
from tests.waiting import until


def alter(entity: dict[str, str | None], key: str, value: float, *, remove: bool = False) -> AlterClientQuotasRequest:
    entry = AlterClientQuotasRequestEntry(
        entity=[AlterClientQuotasRequestEntity(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[AlterClientQuotasOperation(key=key, value=value, remove=remove)],
    )
    return AlterClientQuotasRequest(entries=[entry], validate_only=False)


@in_virtual_time
async def test_a_producer_over_its_quota_is_throttled_and_not_read() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, config=ClusterConfig(wall_clock=lambda: 1.0)) as cluster:
        await cluster.create_topic("t")
        async with Peer(cluster) as peer:
            await peer.ask(alter({"client-id": "peer"}, "producer_byte_rate", 1000.0))
            request = produce_request("t", produced(b"x" * 20_000))
            body = bytearray()
            encode_message(request, 9, body)
            response = await peer.ask(request, 9)
            wait = response.throttle_time_ms / 1000
            header = 2 + 2 + 4 + 2 + len("peer") + 1  # key, version, correlation id, client id, no tagged fields
            assert wait == pytest.approx((header + len(body)) / 1000 - 10, abs=0.002)
            loop = asyncio.get_running_loop()
            began = loop.time()
            await peer.ask(MetadataRequest(topics=[]), 9)
            assert loop.time() - began == pytest.approx(wait, abs=0.01)


@in_virtual_time
async def test_a_throttled_fetch_is_empty_and_loses_nothing() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, config=ClusterConfig(wall_clock=lambda: 1.0)) as cluster:
        await cluster.create_topic("t")
        async with Peer(cluster) as peer:
            await peer.produce("t", produced(b"x" * 9_000))
            await peer.ask(alter({"client-id": None}, "consumer_byte_rate", 1000.0))
            sizes = []
            for _ in range(4):
                response = await peer.ask(fetch_request("t", 0), 12)
                records = response.responses[0].partitions[0].records if response.responses else b""
                sizes.append((response.throttle_time_ms > 0, len(records or b"") > 0))
            assert sizes[0] == (False, True)
            assert (True, False) in sizes
            assert all(throttled != full for throttled, full in sizes)


async def test_quotas_are_described_by_exact_name_default_and_any(one: EmbeddedCluster) -> None:
    async with Peer(one) as peer:
        await peer.ask(alter({"client-id": "a"}, "producer_byte_rate", 1.0))
        await peer.ask(alter({"client-id": None}, "producer_byte_rate", 2.0))
        await peer.ask(alter({"user": "u", "client-id": "a"}, "request_percentage", 3.0))

        async def values(match_type: int, match: str | None = None, *, strict: bool = True) -> list[float]:
            component = DescribeClientQuotasComponent(entity_type="client-id", match_type=match_type, match=match)
            response = await peer.ask(DescribeClientQuotasRequest(components=[component], strict=strict))
            return sorted(value.value for entry in response.entries or [] for value in entry.values)

        assert await values(0, "a") == [1.0]
        assert await values(1) == [2.0]
        assert await values(2) == [1.0, 2.0]
        assert await values(2, strict=False) == [1.0, 2.0, 3.0]
        await peer.ask(alter({"client-id": "a"}, "producer_byte_rate", 0, remove=True))
        assert await values(2) == [2.0]
        refused = await peer.ask(alter({"client-id": "a"}, "nonsense", 1.0))
        assert refused.entries[0].error_code == 42


def test_the_most_specific_limit_counts() -> None:
    limits = QuotaLimits()
    key = "producer_byte_rate"
    order: list[dict[str, str | None]] = [
        {"client-id": None},
        {"client-id": "c"},
        {"user": None},
        {"user": None, "client-id": None},
        {"user": None, "client-id": "c"},
        {"user": "u"},
        {"user": "u", "client-id": None},
        {"user": "u", "client-id": "c"},
    ]
    for value, entity in enumerate(order, start=1):
        limits.set(frozenset(entity.items()), key, float(value))
        limit = limits.find("u", "c", key)
        assert limit is not None
        assert limit[1] == value


@in_virtual_time
async def test_a_throttle_time_is_limited_to_the_largest_number() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, config=ClusterConfig(wall_clock=lambda: 1.0)) as cluster:
        await cluster.create_topic("t", configs={"max.message.bytes": "10000000"})
        async with Peer(cluster) as peer:
            await peer.ask(alter({"client-id": "peer"}, "producer_byte_rate", 1.0))
            response = await peer.ask(produce_request("t", produced(b"x" * 3_000_000)), 9)
            assert response.throttle_time_ms == (2**31 - 1) // 1000 * 1000
        async with Peer(cluster) as peer:
            await peer.ask(alter({"client-id": "peer"}, "request_percentage", 1e-310))
            assert (await peer.ask(MetadataRequest(topics=[]), 9)).throttle_time_ms == 1000


@in_virtual_time
async def test_the_usage_of_silent_clients_is_dropped() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, config=ClusterConfig(wall_clock=lambda: 1.0)) as cluster:
        quotas = cluster.nodes[1].parts.quotas
        await cluster.create_topic("t")
        async with Peer(cluster) as peer:
            await peer.ask(alter({"client-id": None}, "producer_byte_rate", 1000.0))
            await peer.produce("t", produced(b"x"))
        cluster.clean_up()
        assert len(quotas._usage) == 1
        await asyncio.sleep(3700)
        cluster.clean_up()
        assert len(quotas._usage) == 0


@pytest.mark.parametrize("fault", ["delay", "apply_then_disconnect"])
@in_virtual_time
async def test_a_request_quota_counts_requests_with_faults(fault: str) -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, config=ClusterConfig(wall_clock=lambda: 1.0)) as cluster:
        async with Peer(cluster) as peer:
            await peer.ask(alter({"client-id": "peer"}, "request_percentage", 1e-310))
            hit = cluster.on(MetadataRequest)
            if fault == "delay":
                hit.delay(0.5)
            else:
                hit.apply_then_disconnect()
            peer.send(MetadataRequest(topics=[]), 9)
            if fault == "delay":
                assert (await peer.receive()).throttle_time_ms == 1000
            else:
                with pytest.raises(ConnectionLost):
                    await peer.receive()
        assert [key for key, _ in cluster.nodes[1].parts.quotas._usage] == ["request_percentage"]


@in_virtual_time
async def test_a_produce_without_acks_is_exempt_from_the_request_quota() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, config=ClusterConfig(wall_clock=lambda: 1.0)) as cluster:
        await cluster.create_topic("t")
        async with Peer(cluster) as peer, Peer(cluster) as admin:
            await admin.ask(alter({"client-id": "peer"}, "request_percentage", 1e-310))
            began = asyncio.get_running_loop().time()
            for _ in range(3):
                peer.send(produce_request("t", produced(b"x"), acks=0), 9, answered=False)
            log = cluster.nodes[1].replica_manager.partitions["t", 0].log
            await until(lambda: log.end_offset == 3, "all are appended")
            assert asyncio.get_running_loop().time() - began < 1.0


def topics(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=20, replication_factor=1, assignments=[], configs=[])
            for name in names
        ]
    )


@in_virtual_time
async def test_the_quota_of_controller_mutations_refuses_or_delays_by_version() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:  # noqa: SIM117
        async with Peer(cluster) as peer:
            await peer.ask(alter({"client-id": "peer"}, "controller_mutation_rate", 1.0))
            created = await peer.ask(topics("a", "b"), 7)
            assert [topic.error_code for topic in created.topics] == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
            assert created.throttle_time_ms == pytest.approx(9_000, abs=10)  # 20 partitions, 11 saved up
            assert set(cluster.nodes[1].metadata.topics) == {"a"}
            loop = asyncio.get_running_loop()
            began = loop.time()
            assert (await peer.ask(topics("b"), 7)).topics[0].error_code == 0
            assert loop.time() - began == pytest.approx(9.0, abs=0.1)  # the broker did not read meanwhile
            async with Peer(cluster) as other:  # the same client, on a connection that waits for nothing
                assert (await other.ask(topics("c"), 7)).topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            async with Peer(cluster) as other:
                old = await other.ask(topics("c"), 5)
                assert (old.topics[0].error_code, old.throttle_time_ms > 0) == (0, True)
            await asyncio.sleep(100)
            grown = CreatePartitionsTopic(name="a", count=32, assignments=None)
            request = CreatePartitionsRequest(topics=[grown], timeout_ms=1, validate_only=False)
            added = await peer.ask(request, 3)
            assert (added.results[0].error_code, added.throttle_time_ms) == (0, pytest.approx(1_000, abs=10))
            deleted = await peer.ask(DeleteTopicsRequest(topic_names=["b"], timeout_ms=1), 3)  # 20 more
            assert (deleted.responses[0].error_code, deleted.throttle_time_ms > 0) == (0, True)


@in_virtual_time
async def test_a_connection_above_the_quota_of_its_address_is_closed_after_the_throttle_time() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:  # noqa: SIM117
        async with Peer(cluster) as peer:
            await peer.ask(alter({"ip": None}, "connection_creation_rate", 1.0))
            for _ in range(10):
                async with Peer(cluster) as other:
                    assert (await other.ask(MetadataRequest(topics=[]), 9)).brokers
            loop = asyncio.get_running_loop()
            began = loop.time()
            async with Peer(cluster) as other:
                other.send(MetadataRequest(topics=[]), 9)
                assert await other.receive() is None
            assert loop.time() - began == pytest.approx(1.0, abs=0.1)
            await asyncio.sleep(12)
            async with Peer(cluster) as other:
                assert (await other.ask(MetadataRequest(topics=[]), 9)).brokers


@pytest.mark.parametrize("prefix", ["", "listener.name.plaintext."])
@in_virtual_time
async def test_connections_above_the_rate_are_accepted_one_after_the_other(prefix: str) -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        loop = asyncio.get_running_loop()

        async def answered_after() -> float:
            began = loop.time()
            async with Peer(cluster) as peer:
                assert (await peer.ask(MetadataRequest(topics=[]), 9)).brokers
            return round(loop.time() - began, 1)

        assert await asyncio.gather(*(answered_after() for _ in range(30))) == [0] * 30
        cluster.controller.settings.replace_dynamic("1", {f"{prefix}max.connection.creation.rate": "2"})
        waits = await asyncio.gather(*(answered_after() for _ in range(30)))
        assert waits[:20] == [0] * 20
        assert waits[-1] == 9  # as on Kafka: 0.5 s, 1 s, and then one a second
        cluster.controller.settings.replace_dynamic("1", {})
        assert await asyncio.gather(*(answered_after() for _ in range(30))) == [0] * 30


@pytest.mark.parametrize("key", ["producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"])
async def test_a_quota_of_whole_numbers_refuses_a_fraction(one: EmbeddedCluster, key: str) -> None:
    kind = "ip" if key == "connection_creation_rate" else "client-id"
    async with Peer(one) as peer:
        for value, code in ((4.5, ErrorCode.INVALID_REQUEST), (4.0, ErrorCode.NONE)):
            assert (await peer.ask(alter({kind: None}, key, value))).entries[0].error_code == code
