"""Brokers stop accepting the producer's login: records fail at once. They are written when the brokers accept it
again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import AuthenticationError
from aiokafka_lite.producer import Producer
from aiokafka_lite.protocol.messages import ProduceRequest
from tests.embedded.producer.producers_and_logs import values_of


class Door:
    """A connector that connects to the cluster, or raises that the login is refused."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.shut = False
        self.refused = 0

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], Any]) -> tuple[Any, Any]:
        if self.shut:
            self.refused += 1
            raise AuthenticationError("the password is another one now")
        assert self._cluster.connector is not None
        return await self._cluster.connector.connect(host, port, protocol_factory)


@pytest.mark.parametrize("written", [False, True])
async def test_records_fail_at_once_and_later_ones_are_written(cluster: EmbeddedCluster, written: bool) -> None:
    await cluster.create_topic("t", 1)
    door = Door(cluster)
    loop = asyncio.get_running_loop()
    async with Producer(cluster.bootstrap_servers, connector=door) as producer:
        await producer.send("t", b"before")
        fault = cluster.on(ProduceRequest)
        if written:
            fault.apply_then_disconnect()
        else:
            fault.disconnect()
        door.shut = True
        began = loop.time()
        lost = [producer.send_nowait("t", b"lost") for _ in range(3)]
        failures = await asyncio.gather(*lost, return_exceptions=True)
        assert [type(failure) for failure in failures] == [AuthenticationError] * 3
        with pytest.raises(AuthenticationError, match="the password is another one now"):
            await producer.send("t", b"lost")
        assert loop.time() - began < 5.0
        await asyncio.sleep(60.0)
        assert door.refused < 20, "it is not tried again and again"
        door.shut = False
        await producer.send("t", b"after")
    assert values_of(cluster, "t", 0) == [b"before", *([b"lost"] * 3 if written else []), b"after"]
