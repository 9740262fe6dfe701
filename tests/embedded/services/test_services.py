"""The client's hot paths on imitations of managed services: versions that are capped, logins, and leaders that move."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka_lite import Consumer, ConsumerGroup, EmbeddedCluster, Producer, Workers
from aiokafka_lite.admin import Admin, NewTopic
from aiokafka_lite.embedded import service_cluster
from aiokafka_lite.embedded.services import SERVICES, claims_of_msk_token
from aiokafka_lite.errors import AuthenticationError, ConfigurationError, KafkaError, UnsupportedVersion
from aiokafka_lite.oauth import AwsMskIam
from tests.waiting import DEADLINE, until

PARTITIONS = 3


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def cluster(service: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EmbeddedCluster]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    async with service_cluster(service) as cluster:
        yield cluster


@pytest.fixture
async def settings(service: str, cluster: EmbeddedCluster) -> dict[str, Any]:
    """The settings of a client, with the topic ``orders``."""
    settings = cluster.client_settings()
    if service == "msk-iam":
        pytest.importorskip("aws_msk_iam_sasl_signer")
        settings["sasl_oauth_token_provider"] = AwsMskIam("eu-central-1")
    async with Admin(**settings) as admin:
        (await admin.topics.create([NewTopic("orders", PARTITIONS)])).raise_for_errors()
    return settings


VALUES = [b"%d" % number for number in range(600)]


async def test_records_are_written_and_read_in_order_and_once(settings: dict[str, Any]) -> None:
    async with Producer(**settings, linger=0.005) as producer:
        assert producer.config.idempotence
        for start in range(0, len(VALUES), 50):
            written = [producer.send("orders", value, key=b"k") for value in VALUES[start : start + 50]]
            await asyncio.gather(*written)
        await producer.send_many("orders", VALUES)
    read: list[bytes | None] = []
    async with Consumer(topics=["orders"], **settings) as consumer:
        async for records in consumer.read_until(max_records=100):
            read += [record.value for record in records if record.key == b"k"]
    assert read == VALUES


@pytest.mark.parametrize("codec", ["gzip", "lz4"])
async def test_batches_are_compressed(settings: dict[str, Any], codec: Any) -> None:
    async with Producer(**settings, compression=codec) as producer:
        await producer.send_many("orders", [b"x" * 10_000] * 20, partition=0)
    async with Consumer(topics=["orders"], **settings) as consumer:
        values = [record.value async for records in consumer.read_until() for record in records]
    assert values == [b"x" * 10_000] * 20


async def test_a_group_rebalances_commits_and_goes_on_where_it_ended(settings: dict[str, Any]) -> None:
    async with Producer(**settings) as producer:
        await producer.send_many("orders", VALUES)
    seen: list[bytes | None] = []

    async def handle(record: Any) -> None:
        seen.append(record.value)

    async with (
        ConsumerGroup(group_id="billing", **settings) as first,
        ConsumerGroup(group_id="billing", **settings) as second,
    ):
        consuming = [asyncio.create_task(group.consume(["orders"], Workers(handle))) for group in (first, second)]
        await until(lambda: len(set(seen)) == len(VALUES))
    await asyncio.gather(*consuming)
    async with Producer(**settings) as producer:
        await producer.send_many("orders", [b"later"] * 5)
    async with Consumer(topics=["orders"], group_id="billing", **settings) as consumer:
        values = [record.value async for records in consumer.read_until() for record in records]
    assert values == [b"later"] * 5


async def test_an_admin_client_looks_up_and_deletes(settings: dict[str, Any]) -> None:
    async with Producer(**settings) as producer:
        await producer.send("orders", b"x", partition=1)
    async with Admin(**settings) as admin:
        assert "orders" in [topic.name for topic in await admin.topics.list()]
        assert len((await admin.topics.describe(["orders"]))["orders"].partitions) == PARTITIONS
        (await admin.topics.delete(["orders"])).raise_for_errors()


async def test_transactions_work_or_are_refused_at_once(service: str, settings: dict[str, Any]) -> None:
    producer = Producer(**settings, transactional_id="writer")
    if service == "event-hubs":
        async with asyncio.timeout(DEADLINE):
            with pytest.raises(UnsupportedVersion, match="AddPartitionsToTxn"):
                async with producer, producer.transaction():
                    await producer.send("orders", b"x")
        return
    async with producer:
        async with producer.transaction():
            await producer.send_many("orders", [b"committed"] * 3)
        with pytest.raises(RuntimeError):
            async with producer.transaction():
                await producer.send_many("orders", [b"aborted"] * 3)
                raise RuntimeError
    async with Consumer(topics=["orders"], **settings) as consumer:
        values = [record.value async for records in consumer.read_until() for record in records]
    assert values == [b"committed"] * 3


async def test_zstd_is_written_or_refused_at_once(service: str, settings: dict[str, Any]) -> None:
    async with Producer(**settings, compression="zstd") as producer:
        if service == "event-hubs":
            with pytest.raises(UnsupportedVersion, match="zstd"):
                await producer.send("orders", b"x" * 1000)
        else:
            await producer.send("orders", b"x" * 1000)


async def test_the_consumer_protocol_is_refused_at_once(settings: dict[str, Any]) -> None:
    consumer = Consumer(topics=["orders"], group_id="new", group_protocol="consumer", **settings)
    with pytest.raises(UnsupportedVersion, match=r"requires Kafka 4\.0 or newer"):
        async with asyncio.timeout(DEADLINE), consumer:
            await consumer.poll(timeout=DEADLINE)


@pytest.mark.parametrize("service", ["event-hubs", "redpanda"], indirect=True)
async def test_a_wrong_password_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(AuthenticationError, match="refused the login"):
        await Admin(**settings | {"sasl_password": "wrong"}).start()


@pytest.mark.parametrize("service", ["msk-iam"], indirect=True)
async def test_a_token_that_is_not_signed_for_msk_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(AuthenticationError, match="refused the login by OAUTHBEARER"):
        await Admin(**settings | {"sasl_oauth_token_provider": lambda: "token"}).start()


@pytest.mark.parametrize(
    "url",
    [
        "https://kafka.eu.amazonaws.com/?Action=sts:Get&X-Amz-Signature=a&X-Amz-Expires=900",
        "https://evil.example/?Action=kafka-cluster:Connect&X-Amz-Signature=a&X-Amz-Expires=900",
        "https://kafka.eu.amazonaws.com/?Action=kafka-cluster:Connect&X-Amz-Expires=900",
        "https://kafka.eu.amazonaws.com/?Action=kafka-cluster:Connect&X-Amz-Signature=a&X-Amz-Expires=901",
    ],
)
def test_another_request_is_no_token_for_msk(url: str) -> None:
    with pytest.raises(ValueError, match="the token is not"):
        claims_of_msk_token(base64.urlsafe_b64encode(url.encode()).decode())


@pytest.mark.parametrize("service", ["warpstream"], indirect=True)
async def test_the_leaders_move_with_each_metadata(cluster: EmbeddedCluster, settings: dict[str, Any]) -> None:
    async with Admin(**settings) as admin:
        leaders = {(await admin.topics.describe(["orders"]))["orders"].partitions[0].leader for _ in range(6)}
    assert len(leaders) > 1


@pytest.mark.parametrize("name", ["kinesis", "", None, 7])
def test_an_unknown_service_is_named(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="service must be one of event-hubs, msk-iam, redpanda, warpstream"):
        service_cluster(name)


async def test_a_service_without_sockets_has_the_login_without_tls() -> None:
    async with service_cluster("event-hubs", brokers=1, tcp=False, password="Endpoint=sb://x") as cluster:
        settings = cluster.client_settings()
        assert (settings["sasl_username"], settings["security_protocol"]) == ("$ConnectionString", "SASL_PLAINTEXT")
        async with Producer(**settings) as producer:
            with pytest.raises(KafkaError):
                await producer.send("orders", b"x" * 1_100_000)
            assert (await producer.send("orders", b"x" * 1_000_000)).offset == 0
