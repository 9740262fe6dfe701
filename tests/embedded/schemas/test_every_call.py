"""Every public coroutine of the client of a schema registry, and of the embedded one, cancelled at every turn.

A cancelled call can be repeated with the same answer, a schema is registered once, and no connection stays open.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from aiokafka_lite.embedded import EmbeddedSchemaRegistry
from aiokafka_lite.embedded.registry.http_server import HttpResponse, HttpServer
from aiokafka_lite.schemas import Schema, SchemaRegistryClient
from tests.cancelling import Covered, at_every_turn, cancel_after, public_coroutines, turns_to_try
from tests.waiting import until

covers = Covered()


def schema(name: str = "Order") -> Schema:
    return Schema(json.dumps({"type": "record", "name": name, "fields": [{"name": "table", "type": "int"}]}), "AVRO")


CALLS: dict[str, tuple[Callable[[SchemaRegistryClient], Awaitable[object]], object]] = {
    "lookup": (lambda client: client.lookup("orders", schema()), None),
    "by_version": (lambda client: client.by_version("orders", 1), None),
    "latest": (lambda client: client.latest("orders"), None),
    "by_id": (lambda client: client.by_id(1), schema()),
    "check_compatibility": (lambda client: client.check_compatibility("orders", schema()), None),
    "subjects": (lambda client: client.subjects(), ["orders"]),
    "versions": (lambda client: client.versions("orders"), [1]),
    "compatibility": (lambda client: client.compatibility("orders"), "FULL"),
    "set_compatibility": (lambda client: client.set_compatibility("FULL", "orders"), None),
    "mode": (lambda client: client.mode("orders"), "READWRITE"),
    "set_mode": (lambda client: client.set_mode("READWRITE", "orders"), None),
    "register": (lambda client: client.register("orders", schema()), None),
}


@pytest.mark.thorough
@covers(*(f"SchemaRegistryClient.{name}" for name in CALLS), "SchemaRegistryClient.by_guid")
@pytest.mark.parametrize("name", [*CALLS, "by_guid"])
async def test_a_call_that_is_cancelled_can_be_repeated(
    embedded_schema_registry: EmbeddedSchemaRegistry, name: str
) -> None:
    url = embedded_schema_registry.url
    async with SchemaRegistryClient(url) as setting_up:
        guid = (await setting_up.register("orders", schema())).guid
        await setting_up.set_compatibility("FULL", "orders")
    assert guid is not None
    call, expected = CALLS.get(name, (lambda client: client.by_guid(guid), schema()))
    clients: list[SchemaRegistryClient] = []

    async def before() -> None:
        while clients:
            await clients.pop().close()
        clients.append(SchemaRegistryClient(url))  # without the answers in its cache

    tasks = asyncio.all_tasks()
    results = await at_every_turn(lambda: call(clients[0]), before)
    await before()
    for _ in range(3):  # on the same client, whose connections the cancelled calls have left
        cancelled = asyncio.ensure_future(call(clients[0]))
        for _ in range(3):
            await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
    again = await call(clients[0])
    assert all(result == again for result in results)
    assert expected is None or again == expected
    await clients.pop().close()
    await until(lambda: asyncio.all_tasks() <= tasks)
    async with SchemaRegistryClient(url) as looking:
        assert await looking.versions("orders") == [1]


@covers("SchemaRegistryClient.delete_subject", "SchemaRegistryClient.delete_version")
@pytest.mark.parametrize("name", ["delete_subject", "delete_version"])
async def test_a_deletion_that_is_cancelled_is_made_or_not(registry: SchemaRegistryClient, name: str) -> None:
    async def before() -> None:
        registered = await registry.register("orders", schema())
        assert (await registry.latest("orders")).schema_id == registered.schema_id

    async def call() -> None:
        version = (await registry.latest("orders")).version
        assert version is not None
        if name == "delete_subject":
            assert version in await registry.delete_subject("orders")
        else:
            await registry.delete_version("orders", version)

    await at_every_turn(call, before)
    assert await registry.subjects() == []


@covers("SchemaRegistryClient.close", "SchemaRegistryClient.__aenter__", "SchemaRegistryClient.__aexit__")
async def test_a_close_that_is_cancelled_closes_all_connections(
    embedded_schema_registry: EmbeddedSchemaRegistry,
) -> None:
    for turns in turns_to_try():
        registry = SchemaRegistryClient(embedded_schema_registry.url)
        await asyncio.gather(*(registry.compatibility() for _ in range(3)))  # three connections
        is_over = await cancel_after(turns, registry.close())
        await registry.close()
        await until(lambda: embedded_schema_registry.connections == 0)
        if is_over:
            return


@covers(*(f"EmbeddedSchemaRegistry.{name}" for name in ("start", "close", "__aenter__", "__aexit__")))
@pytest.mark.parametrize("call", ["start", "close"])
async def test_the_embedded_registry_can_be_cancelled_and_closed(call: str) -> None:
    for turns in turns_to_try():
        server = EmbeddedSchemaRegistry()
        if call == "close":
            await server.start()
            async with SchemaRegistryClient(server.url) as registry:
                assert await registry.subjects() == []
        is_over = await cancel_after(turns, getattr(server, call)())
        await server.close()
        async with server, SchemaRegistryClient(server.url) as registry:  # it can start again
            assert await registry.subjects() == []
        if is_over:
            return


async def test_a_cancelled_start_of_the_http_server_leaves_no_open_port() -> None:
    for turns in turns_to_try():
        server = HttpServer(lambda request: HttpResponse(200, None))
        is_over = await cancel_after(turns, server.start())
        assert server.is_running == is_over
        await server.close()
        if is_over:
            return


def test_every_public_coroutine_is_covered_here() -> None:
    assert public_coroutines(SchemaRegistryClient, EmbeddedSchemaRegistry) == covers
