"""The parts of programs printed in docs/*.md, run with the clients and functions that their pages assume.

The parts of a page run one after the other, each on a cluster of its own, and a later one sees the definitions of the
earlier ones. A part that reads forever runs until it has passed a record to a function, or printed something.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from aiokafka_lite import Admin, Consumer, EmbeddedCluster, Producer
from aiokafka_lite.admin import ConfigResource
from aiokafka_lite.embedded import Security
from aiokafka_lite.errors import SerializationError
from tests.pure.documents import PAGES, Block, blocks
from tests.waiting import until

RUN_ELSEWHERE = {
    "admin.md": "test_admin_page.py runs them",
    "managed-kafka.md": "tests/embedded/security/test_managed_kafka.py runs them, each with its login",
    "spark.md": "tests/spark/test_docs_spark.py runs them",
    "spark-recipes.md": "tests/spark/test_recipes.py runs them",
    "migrating-from-aiokafka.md": "one of them gives the modules of aiokafka other names, for the whole process",
}
OTHERS_HOSTS = ("kafka.example:", "https://")
"""The reader's own services. A part that connects to them, or reads a keytab, only has to compile."""

ONLY_COMPILED = (
    *("GSSAPI", ".p12", "aiokafka_lite.blocking", "asyncpg", "ExactlyOnceInto", "PostgresOutbox", "instance."),
    *("Executor(", "redrive(", "AwsSts", "SignedAssertion", "load_verify_locations"),
)
"""Marks of parts that only have to compile, because they need files of the reader, a thread without an event loop, a
database, a simulation, dead letters, or a module that another process can import. Tests of those features have such
programs."""

PARTS = {page: [block for block in blocks(page) if block.is_part] for page in PAGES if page.name not in RUN_ELSEWHERE}
ENDLESS = ("async for ", "while True:", ".consume(")


@pytest.mark.parametrize("page", [page for page, parts in PARTS.items() if parts], ids=lambda page: page.name)
async def test_the_parts_of_a_page_run(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POD_NAME", "billing-0")
    defined: dict[str, Any] = {}
    for block in PARTS[page]:
        async with surroundings(block) as (names, has_shown):
            monkeypatch.setenv("BOOTSTRAP_SERVERS", names["servers"])
            defined |= names
            await run(block, defined, has_shown)
    if "AiokafkaLiteInstrumentor" in defined:
        defined["AiokafkaLiteInstrumentor"]().uninstrument()  # else the clients of later tests are instrumented too


@asynccontextmanager
async def surroundings(block: Block) -> AsyncIterator[tuple[dict[str, Any], Callable[[], object]]]:
    """Yield the names that a part uses without a definition, and whether it has shown something."""
    seen: list[object] = []

    async def bill(record: object) -> None:
        seen.append(record)

    async with AsyncExitStack() as stack:
        secured = Security("SASL_SSL", users={"alice": "alice-secret"})
        secure = await stack.enter_async_context(EmbeddedCluster(brokers=1, security=secured))
        shutil.copy(secure.client_settings("alice")["ssl_cafile"], "ca.pem")
        Path("client.properties").write_text("bootstrap.servers=localhost:9092\n")
        cluster = await stack.enter_async_context(EmbeddedCluster(brokers=3))
        servers = cluster.bootstrap_servers
        await cluster.create_topic("orders", partitions=2, replication_factor=3)
        await cluster.create_topic("bills")
        for partition in (0, 1):
            await cluster.produce("orders", b"two coffees", key=b"table-7", partition=partition)
        transactional = {"transactional_id": "given"} if ".transaction()" in block.text else {}
        producer = await stack.enter_async_context(Producer(servers, **transactional))
        consumer = await stack.enter_async_context(Consumer(servers, topics=["orders"], group_id="given"))
        admin = await stack.enter_async_context(Admin(servers))
        from_the_first = {ConfigResource.group("billing"): {"share.auto.offset.reset": "earliest"}}
        (await admin.configs.alter(from_the_first)).raise_for_errors()
        clients = {"admin": admin, "consumer": consumer, "producer": producer}
        names: dict[str, Any] = {
            "bill": bill,
            "process": bill,
            "print": lambda *values: seen.append(values),
            "servers": servers,
        }
        names |= {**clients, "cluster": secure if "client_settings" in block.text else cluster}
        yield names, lambda: seen or cluster.records("bills")


async def run(block: Block, names: dict[str, Any], has_shown: Callable[[], object]) -> None:
    text = block.text.replace("localhost:9092", names["servers"])
    code = compile(text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    connects = code.co_flags & inspect.CO_COROUTINE
    if any(mark in text for mark in ONLY_COMPILED) or (connects and any(host in text for host in OTHERS_HOSTS)):
        return
    coroutine = FunctionType(code, names)()
    if not inspect.isawaitable(coroutine):
        return
    if "mypy refuses" in block.title:
        with pytest.raises(SerializationError):
            await coroutine
        return
    running, showing = asyncio.ensure_future(coroutine), asyncio.create_task(until(has_shown, str(block)))
    tasks = [running, showing] if any(mark in text for mark in ENDLESS) else [running]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        running.cancel()
        showing.cancel()
        await asyncio.gather(running, showing, return_exceptions=True)
