"""A broker that offers only old versions of an API: clients work, or raise UnsupportedVersion, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka_lite import Admin, Consumer, Producer, TopicPartition
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.errors import KafkaError, KafkaTimeout, UnsupportedVersion
from aiokafka_lite.protocol.messages import MetadataRequest
from aiokafka_lite.testing.virtual_time import run
from tests.embedded.cluster.apis import APIS
from tests.embedded.cluster.simulation import memory_cluster
from tests.virtual import in_virtual_time

CAPPED = [(api, version) for api in APIS for version in api.versions[:1] for version in (version, version + 1)]


def capped(api: Any, version: int) -> EmbeddedCluster:
    return memory_cluster(1, config=ClusterConfig(versions={api.api_key: (api.versions.first, version)}))


async def outcome(call: Callable[[], Awaitable[object]]) -> KafkaError | None:
    """Return the KafkaError of the call, None if it succeeds. Anything else fails the test."""
    try:
        async with asyncio.timeout(200):
            await call()
    except KafkaError as error:
        return error
    return None


@pytest.mark.parametrize(("api", "version"), CAPPED, ids=lambda value: getattr(value, "__name__", str(value)))
def test_every_client_works_or_says_which_version_is_missing(api: Any, version: int) -> None:
    async def main() -> list[KafkaError | None]:
        async with capped(api, version) as cluster:
            settings: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "connector": cluster.connector}
            await cluster.create_topic("t", partitions=1)

            async def produce() -> None:
                async with Producer(**settings) as producer:
                    await producer.send("t", b"x")

            async def consume(**more: Any) -> None:
                async with Consumer(**settings, **more) as consumer:
                    if not more:
                        consumer.assign([TopicPartition("t", 0)])
                    record = await anext(consumer)
                    assert record.value == b"x"
                    if more:
                        consumer.mark(record)
                        (await consumer.commit()).raise_for_refused()

            async def administer() -> None:
                async with Admin(**settings) as admin:
                    await admin.topics.list()
                    await admin.groups.list()
                    (await admin.groups.lag("g")).raise_for_errors()

            return [
                await outcome(produce),
                await outcome(consume),
                await outcome(lambda: consume(topics=["t"], group_id="g")),
                await outcome(administer),
            ]

    for error in run(main()):
        assert error is None or isinstance(error, UnsupportedVersion), repr(error)


@pytest.mark.parametrize("version", [0, 3])
@in_virtual_time
async def test_a_client_that_creates_no_topics_starts_at_an_old_broker(version: int) -> None:
    """The switch came with version 4 of Metadata. A request for no topic works without it."""
    async with capped(MetadataRequest, version) as cluster:
        settings: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "connector": cluster.connector}
        async with Producer(**settings, allow_auto_create_topics=False) as producer:
            with pytest.raises(KafkaTimeout, match=f"supports Metadata up to version {version}, which cannot"):
                await producer.send("t", b"x")
