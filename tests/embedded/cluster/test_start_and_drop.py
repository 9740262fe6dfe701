"""``start(timeout)``, the reports of a client that cannot reach its cluster, and clients that are not closed."""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka_lite import Admin, ConfigurationError, Consumer, KafkaTimeout, Producer
from aiokafka_lite.aio.component import Component
from aiokafka_lite.embedded import EmbeddedCluster
from tests.embedded.cluster.simulation import memory_cluster, now, simulated
from tests.waiting import LONGER_AND_LONGER

DEAD = "127.0.0.1:1"
CLIENTS: list[Callable[..., Component]] = [
    Producer,
    Consumer,
    Admin,
    lambda servers, **more: Consumer(servers, topics=["t"], group_id="g", **more),
]


@pytest.mark.parametrize("make", CLIENTS)
async def test_start_on_a_dead_port_ends_after_its_timeout_and_names_the_cause(
    make: Callable[..., Component], caplog: pytest.LogCaptureFixture
) -> None:
    for timeout in LONGER_AND_LONGER:
        caplog.clear()
        with pytest.raises(KafkaTimeout) as caught:
            await make(DEAD).start(timeout)
        if "refused" in str(caught.value):
            break
    text = r"cannot connect to 127\.0\.0\.1:1 \(connection refused"
    assert caught.match(f"no bootstrap server answered within {timeout:g} s: {text}")
    [line] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "cannot reach the cluster, trying until start() times out: cannot connect to" in line.getMessage()
    assert "connection refused" in line.getMessage()


@simulated
async def test_the_timeout_of_start_replaces_api_timeout() -> None:
    async with memory_cluster(1) as cluster:
        await cluster.freeze(1)
        producer = Producer(cluster.bootstrap_servers, connector=cluster.connector, api_timeout=5)
        with pytest.raises(KafkaTimeout, match="within 100 s"):
            await producer.start(timeout=100)
        assert now() == pytest.approx(100, abs=1)
        await cluster.thaw(1)


@pytest.mark.parametrize("timeout", [-1, 0])
@simulated
async def test_a_start_without_time_times_out_and_leaves_nothing(timeout: float) -> None:
    async with memory_cluster(1) as cluster:
        with pytest.raises(KafkaTimeout):
            await Producer(cluster.bootstrap_servers, connector=cluster.connector).start(timeout)


@pytest.mark.parametrize("timeout", ["5", True, float("nan")])
async def test_a_timeout_that_is_no_number_is_refused(timeout: Any) -> None:
    with pytest.raises(ConfigurationError, match="timeout must be a number of seconds, or None"):
        await Producer(DEAD).start(timeout)


@pytest.mark.parametrize("make", CLIENTS)
async def test_a_client_that_is_dropped_without_close_is_a_resource_warning(make: Callable[..., Component]) -> None:
    async with EmbeddedCluster(brokers=1) as cluster:
        client = make(cluster.bootstrap_servers)
        await client.start()
        name, service = type(client).__name__, client._service
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del client
            gc.collect()
        unclosed = [str(warning.message) for warning in caught if warning.category is ResourceWarning]
        assert f"unclosed {name}: use it in 'async with', or await its close()" in unclosed
        assert len([text for text in unclosed if "unclosed" in text and "use it" in text]) == 1
        await service.close()


@pytest.mark.parametrize("make", CLIENTS)
async def test_a_client_that_is_closed_or_never_started_is_no_warning(make: Callable[..., Component]) -> None:
    async with EmbeddedCluster(brokers=1) as cluster:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            async with make(cluster.bootstrap_servers):
                pass
            make(cluster.bootstrap_servers)
            gc.collect()
        assert [
            warning for warning in caught if "unclosed Pr" in str(warning.message) or "use it" in str(warning.message)
        ] == []
