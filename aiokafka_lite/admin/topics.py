"""Topics: create and delete. Both go to the controller and wait until it has done the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aiokafka_lite.errors import UnsupportedVersion, error_for
from aiokafka_lite.protocol.messages import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from aiokafka_lite.cluster.client import Client


async def create_topic(
    client: Client,
    name: str,
    *,
    partitions: int = 1,
    replication_factor: int = 1,
    configs: Mapping[str, str] | None = None,
    timeout: float = 30.0,
) -> None:
    """Create one topic. The error is the broker's own, TOPIC_ALREADY_EXISTS among others.

    Every broker learns of it a moment later: a client that asks at once may still be told that there is none.
    """
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=setting, value=value) for setting, value in (configs or {}).items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=round(timeout * 1000))
    answer = await client.send(request, controller=True, timeout=timeout)
    for result in answer.topics:
        if result.error_code:
            raise error_for(result.error_code, f"creating topic {result.name}: {result.error_message or ''}".rstrip())


async def delete_topics(client: Client, names: Sequence[str], *, timeout: float = 30.0) -> None:
    """Delete topics; the first error that the broker reports is raised after all of them were tried."""
    if not names:
        return
    timeout_ms = round(timeout * 1000)
    try:
        states = [DeleteTopicState(name=name) for name in names]
        request = DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
        answer = await client.send(request, controller=True, timeout=timeout)
    except (UnsupportedVersion, ValueError):  # before Kafka 2.8 there is no such list, only one of bare names
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
        answer = await client.send(request, controller=True, timeout=timeout)
    for result in answer.responses:
        if result.error_code:
            raise error_for(result.error_code, f"deleting topic {result.name}")
