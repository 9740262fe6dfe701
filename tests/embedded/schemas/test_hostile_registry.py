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

from aiokafka_lite.errors import KafkaError, KafkaTimeout, SchemaRegistryError
from aiokafka_lite.schemas import Schema, SchemaRegistryClient
from aiokafka_lite.schemas.http import LARGEST_ANSWER

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
    *pieces: bytes, headers: str = "", pause: float = 0.0, **settings: Any
) -> AsyncIterator[SchemaRegistryClient]:
    """A client of a server that answers each request with these bytes, one piece after the other."""

    answering: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            size = sum(map(len, pieces))
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n{headers}Connection: close\r\n\r\n".encode())
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
