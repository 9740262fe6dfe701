"""Answers that no schema registry should send: every call ends with a KafkaError, in bounded time and memory."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from aiokafka_lite.errors import KafkaError, KafkaTimeout, ProtocolError, SchemaRegistryError
from aiokafka_lite.schemas import AvroDeserializer, RegisteredSchema, Schema, SchemaReference, SchemaRegistryClient
from aiokafka_lite.schemas.http import LARGEST_ANSWER
from aiokafka_lite.schemas.serializing import DEEPEST_REFERENCE, MOST_REFERENCED, referenced
from tests.waiting import error_of

AVRO = Schema('"string"', "AVRO")

CALLS: dict[str, Callable[[SchemaRegistryClient], Awaitable[object]]] = {
    "register": lambda registry: registry.register("s", AVRO),
    "lookup": lambda registry: registry.lookup("s", AVRO),
    "by_id": lambda registry: registry.by_id(1),
    "by_guid": lambda registry: registry.by_guid("g"),
    "by_version": lambda registry: registry.by_version("s", 1),
    "latest": lambda registry: registry.latest("s"),
    "check_compatibility": lambda registry: registry.check_compatibility("s", AVRO),
    "subjects": lambda registry: registry.subjects(),
    "versions": lambda registry: registry.versions("s"),
    "delete_subject": lambda registry: registry.delete_subject("s"),
    "compatibility": lambda registry: registry.compatibility("s"),
    "mode": lambda registry: registry.mode(),
}
SENSELESS: list[Any] = [
    None,
    5,
    "text",
    [],
    [None],
    [[1]],
    {},
    {"schema": 5},
    {"schema": '"string"', "schemaType": ["AVRO"]},
    {"schema": '"string"', "references": 5},
    {"schema": '"string"', "references": [5]},
    {"id": "1", "subject": 7, "version": {}},
    {"is_compatible": True, "messages": 5},
    {"is_compatible": 1},
    {"message": [5], "error_code": "x"},
]


@asynccontextmanager
async def registry_that_sends(
    *pieces: bytes, status: str = "200 OK", headers: str = "", pause: float = 0.0, **settings: Any
) -> AsyncIterator[SchemaRegistryClient]:
    """Yield a client of a server that answers each request with these bytes, one piece after the other."""

    answering: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            size = sum(map(len, pieces))
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n{headers}Connection: close\r\n\r\n".encode())
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause)
            writer.close()
            await writer.wait_closed()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.add(asyncio.create_task(answer(reader, writer)))

    server = await asyncio.start_server(begin, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with server, SchemaRegistryClient(address, **settings) as client:
            yield client
    finally:
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)
        for _ in range(10):  # the transports, and the generators of httpx, close in the next turns
            await asyncio.sleep(0)


@pytest.mark.parametrize("content", SENSELESS, ids=json.dumps)
async def test_an_answer_of_another_type_is_an_error_or_a_result(content: Any) -> None:
    async with registry_that_sends(json.dumps(content).encode()) as registry:
        for call in CALLS.values():
            with suppress(KafkaError):
                await call(registry)


async def test_a_deeply_nested_answer_is_not_json() -> None:
    async with registry_that_sends(b"[" * 200_000) as registry:
        with pytest.raises(SchemaRegistryError, match="the answer is not JSON"):
            await registry.subjects()


@pytest.mark.parametrize("is_compressed", [False, True])
async def test_a_large_answer_is_an_error_and_takes_little_memory(is_compressed: bool) -> None:
    piece, count = b" " * (1 << 20), 64
    pieces, headers = (piece,) * count, ""
    if is_compressed:
        pieces, headers = (gzip.compress(piece * count),), "Content-Encoding: gzip\r\n"
    async with registry_that_sends(*pieces, headers=headers) as registry:
        tracemalloc.start()
        try:
            with pytest.raises(SchemaRegistryError, match="the answer has more than 8 MiB"):
                await registry.subjects()
            # One piece of 64 KiB from the network may decompress to 64 MiB.
            assert tracemalloc.get_traced_memory()[1] < LARGEST_ANSWER * (3 if not is_compressed else 20)
        finally:
            tracemalloc.stop()


async def test_an_answer_that_is_compressed_twice_is_refused() -> None:
    content = gzip.compress(gzip.compress(b" " * (64 << 20)))
    async with registry_that_sends(content, headers="Content-Encoding: gzip, gzip\r\n") as registry:
        with pytest.raises(SchemaRegistryError, match="the answer is compressed more than once"):
            await registry.subjects()


async def test_an_answer_that_comes_byte_by_byte_ends_at_the_timeout() -> None:
    async with registry_that_sends(*[b" "] * 1000, pause=0.05, timeout=0.3) as registry:
        with pytest.raises(KafkaTimeout, match=r"was not answered within timeout=0\.3 s"):
            await registry.subjects()


@pytest.mark.parametrize("schema_id", [-1, 2**31, 2**70])
async def test_an_id_that_no_prefix_can_carry_is_refused(schema_id: int) -> None:
    async with registry_that_sends(json.dumps({"id": schema_id}).encode()) as registry:
        with pytest.raises(ProtocolError, match=f"answered with the id {schema_id}; ids are from 0 to 2147483647"):
            await registry.register("s", AVRO)


async def test_a_guid_that_no_header_can_carry_is_refused() -> None:
    async with registry_that_sends(json.dumps({"id": 1, "guid": "x"}).encode()) as registry:
        with pytest.raises(ProtocolError, match="a GUID that is not valid, 'x'"):
            await registry.register("s", AVRO)


async def test_a_schema_that_refers_to_itself_is_an_error() -> None:
    reference = {"name": "a", "subject": "s", "version": 1}
    answer = {"schema": '"string"', "references": [reference], "subject": "s", "id": 1, "version": 1}
    async with registry_that_sends(json.dumps(answer).encode()) as registry:
        with pytest.raises(ProtocolError, match="refer to each other in a circle"):
            await AvroDeserializer(registry).deserialize("t", b"\0\0\0\0\1x", ())


class InventiveRegistry(SchemaRegistryClient):
    """A client that makes the answers itself: version n of each subject refers to versions above n."""

    def __init__(self, references: Callable[[int], list[SchemaReference]]) -> None:
        super().__init__("http://nowhere.invalid")
        self.references = references
        self.calls = 0

    async def by_version(self, subject: str, version: int) -> RegisteredSchema:
        self.calls += 1
        return RegisteredSchema(subject, version, Schema('"string"', "AVRO", tuple(self.references(version))), version)


async def test_schemas_that_are_reached_on_many_ways_are_requested_a_few_times_each() -> None:
    def twice_the_next(version: int) -> list[SchemaReference]:
        return [SchemaReference(f"{name}{version}", "s", version + 1) for name in "ab" if version < 14]

    registry = InventiveRegistry(twice_the_next)
    schemas = await referenced(registry, (await registry.by_version("s", 0)).schema)
    assert len(schemas) == 28
    assert registry.calls == 1 + 28


@pytest.mark.parametrize(
    ("width", "says"),
    [(1, f"more than {DEEPEST_REFERENCE} levels deep"), (MOST_REFERENCED + 1, f"more than {MOST_REFERENCED} others")],
)
async def test_references_without_end_are_an_error(width: int, says: str) -> None:
    def endless(version: int) -> list[SchemaReference]:
        if width > 1 and version:
            return []
        return [SchemaReference(f"{version}-{number}", "s", version + 1) for number in range(width)]

    registry = InventiveRegistry(endless)
    with pytest.raises(ProtocolError, match=says):
        await referenced(registry, (await registry.by_version("s", 0)).schema)


@pytest.mark.parametrize(
    ("status", "headers", "text"),
    [
        (
            "308 Permanent Redirect",
            "Location: https://me:pass@other/subjects?key=pass\r\n",
            r"it redirects to https://other/subjects \(HTTP status 308, code 308\); check that url is the address of a",
        ),
        (
            "302 Found",
            "Location: https://[other\r\n",
            r"it redirects to an address that is not valid \(HTTP status 302, code 302\); check that url",
        ),
        ("404 Not Found", "", r"no message \(HTTP status 404, code 404\); check that url is the address of a"),
    ],
)
async def test_a_web_server_that_is_no_registry_is_an_error(status: str, headers: str, text: str) -> None:
    async with registry_that_sends(b"<html>", status=status, headers=headers) as registry:
        with pytest.raises(SchemaRegistryError, match=text) as caught:
            await registry.latest("orders")
    assert "pass" not in str(caught.value)


async def test_the_error_for_a_registry_that_is_too_slow_names_the_reason() -> None:
    async def ask(timeout: float) -> None:
        settings = {"timeout": timeout, "request_timeout": timeout / 4, "retry_backoff": 0.001}
        async with registry_that_sends(b"[", b"]", pause=timeout, **settings) as registry:
            await registry.subjects()

    named = "does not answer: ReadTimeout"
    error = await error_of(ask, named)
    assert isinstance(error, KafkaTimeout)
    assert named in str(error)
