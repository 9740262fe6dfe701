"""The examples of the documentation run in a simulation, as they are.

A program has ``asyncio.run(main())`` at its end, which gives its coroutine to the simulation. What it prints are its
effects. ``NOT_SIMULATED`` says which examples do not run here, and why.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from types import CodeType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from aiokafka_lite.testing.simulation import (
    History,
    Instance,
    Message,
    RowExists,
    at_least_once,
    default_checks,
    no_unhandled_exception,
    nothing_left_behind,
    processed_at_most_once,
    simulate,
    stops_within,
)

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "docs" / "examples"
SEEDS = 20

SPARK = "it runs on Spark, which is other processes"
DEMO = "it starts a cluster and processes of its own"
NOT_SIMULATED = {
    "docs/examples/bulk_load.py": "it writes 100,000 records once, and is no service",
    "docs/examples/columns.py": "it reads the records of bulk_load.py once, and is no service",
    "docs/examples/spark_notebook.ipynb": SPARK,
    "docs/examples/testing/test_invoices.py": "it is the test of invoices.py, which runs here",
    "docs/examples/testing/test_invoices_on_kafka.py": "it is the test of invoices.py on a real Kafka",
    "examples/demo.py": DEMO,
    "examples/demo_group.py": DEMO,
    "examples/demo_results.py": DEMO,
    "examples/demo_spark.py": SPARK,
    "examples/pipeline.py": SPARK,
    "examples/pipeline_queries.py": SPARK,
    "examples/spark_session.py": SPARK,
    "examples/shop/shop.py": "its outbox is in PostgreSQL, over a socket; `fills_an_outbox` has the same pattern",
    "examples/shop/test_shop.py": "it is the test of shop.py",
}
SIMULATED = (
    "acknowledged_producer.py", "auto_commit.py", "exactly_once.py", "graceful_shutdown.py", "manual_commit.py",
    "partition_tasks.py", "testing/invoices.py", "web_service.py", "worker.py",
)  # fmt: skip


def test_each_example_is_simulated_or_has_a_reason_why_not() -> None:
    folders = (EXAMPLES, ROOT / "examples")
    programs = {path for folder in folders for end in ("*.py", "*.ipynb") for path in folder.rglob(end)}
    examples = {path.relative_to(ROOT).as_posix() for path in programs}
    assert examples == {f"docs/examples/{name}" for name in SIMULATED} | set(NOT_SIMULATED)


@cache
def code_of(name: str) -> CodeType:
    path = EXAMPLES / name
    return compile(path.read_text(encoding="utf-8"), str(path), "exec")


def load(name: str, instance: Instance, effect: str = r"", **variables: object) -> dict[str, Any]:
    """Execute an example of ``SIMULATED`` in a module of its own.

    Printed texts that match ``effect`` are effects of its first group.
    """
    assert name in SIMULATED
    pattern = re.compile(effect)

    def note(text: object) -> None:
        if effect and (match := pattern.fullmatch(str(text))):
            instance.happened("print", match[1])

    names = {"__name__": "example", "print": note}
    environment = {"BOOTSTRAP_SERVERS": instance.bootstrap_servers, "WORKER": str(instance.number)}
    with mock.patch.dict(os.environ, environment):
        exec(code_of(name), names)
    return names


def program(name: str, effect: str = r"") -> Callable[[Instance], Coroutine[Any, Any, None]]:
    """Return an example as a service."""

    async def run(instance: Instance) -> None:
        mains: list[Coroutine[Any, Any, None]] = []
        with mock.patch.object(asyncio, "run", mains.append):
            load(name, instance, effect)
        await mains[0]

    return run


def purchases(random: Random) -> Iterator[Message]:
    for number in range(40):
        yield Message("purchases", f"purchase-{number}", f"guest-{random.randrange(8)}")


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("auto_commit.py", r"billed \S+ for (\S+) .*"),
        ("graceful_shutdown.py", r"ended b'(\S+)'"),
        ("partition_tasks.py", r"prepared (\S+) of partition .*"),
    ],
)
def test_an_example_processes_each_purchase(name: str, effect: str) -> None:
    assert simulate(program(name, effect), purchases, seeds=SEEDS, checks=at_least_once()).seeds == SEEDS


def test_the_workers_prepare_each_purchase() -> None:
    def all_prepared(history: History) -> str | None:
        prepared = {effect.id for effect in history.effects}
        missing = [
            written.message.identity for written in history.written.values()
            if f"{written.offset} of partition {written.partition}" not in prepared
        ]  # fmt: skip
        return f"not prepared: {missing}" if missing else None

    all_prepared.pending = lambda history: all_prepared(history) is not None  # type: ignore[attr-defined]
    checks = [all_prepared, no_unhandled_exception(), stops_within(), nothing_left_behind()]
    simulate(program("worker.py", r"prepared offset (\d+ of partition \d+)"), purchases, seeds=SEEDS, checks=checks)


def test_exactly_once_writes_one_bill_for_each_purchase() -> None:
    assert simulate(program("exactly_once.py"), purchases, seeds=SEEDS, checks=default_checks()).seeds == SEEDS


def test_each_order_has_an_invoice() -> None:
    async def invoices(instance: Instance) -> None:
        await load("testing/invoices.py", instance)["write_invoices"](instance.bootstrap_servers)

    workload = [Message("orders", f"order-{number}", f"table-{number % 5}") for number in range(40)]
    simulate(invoices, workload, seeds=SEEDS, checks=at_least_once())


def test_each_acknowledged_purchase_is_in_the_topic() -> None:
    def acknowledged_are_there(history: History) -> str | None:
        there = {f"{record.partition} at offset {record.offset}" for record in history.outputs.get("purchases", ())}
        lost = {effect.id for effect in history.effects} - there
        return f"acknowledged, but not there: {lost}" if lost else None

    producing = program("acknowledged_producer.py", r"\S+ bought \S+: purchases-(\d+ at offset \d+)")
    checks = [acknowledged_are_there, no_unhandled_exception(), nothing_left_behind()]
    simulate(producing, [Message("ticks", "tick")], seeds=SEEDS, seconds=5.0, checks=checks)


def test_manual_commits_archive_each_purchase_once() -> None:
    """Its table of SQLite, with a thread of its own, is the database of the simulation here."""

    async def archive(instance: Instance) -> None:
        async def to_thread(insert: object, rows: list[tuple[int, int, bytes]]) -> None:
            assert insert is names["insert"]
            async with instance.database.transaction() as transaction:
                for part, place, item in rows:
                    with suppress(RowExists):  # `insert or ignore`
                        await transaction.insert("purchases", item, key=(part, place))
                        transaction.effect("archive", item.decode())

        mains: list[Coroutine[Any, Any, None]] = []
        with mock.patch.object(asyncio, "run", mains.append):
            names = load("manual_commit.py", instance)
        names["asyncio"] = SimpleNamespace(to_thread=to_thread)
        await mains[0]

    checks = [*at_least_once(), processed_at_most_once()]
    assert simulate(archive, purchases, seeds=SEEDS, checks=checks).seeds == SEEDS


def test_each_order_that_the_web_service_accepts_has_a_receipt() -> None:
    """The handlers of its requests are called without the server."""
    fastapi = pytest.importorskip("fastapi")

    async def serves(instance: Instance) -> None:
        names = load("web_service.py", instance)
        async with names["lifespan"](names["app"]):
            number = 0
            while asyncio.get_running_loop().time() < 15.0:  # there is time for their receipts before the end
                number += 1
                order = f"{instance.name.replace(' ', '-')}-{number}"
                with suppress(fastapi.HTTPException):
                    await names["place"](names["Order"](order_id=order, item="tea"))
                    instance.happened("accept", order)
                await asyncio.sleep(1.5)
            await instance.stopping.wait()

    def web_orders(random: Random) -> Iterator[Message]:
        for number in range(40):
            order = f"order-{number}"
            yield Message("orders", json.dumps({"order_id": order, "item": "tea"}), order, order)

    def accepted_have_receipts(history: History) -> str | None:
        receipts = {json.loads(record.value)["order_id"] for record in history.outputs.get("receipts", ())}
        missing = {effect.id for effect in history.effects} - receipts
        return f"accepted, but without a receipt: {sorted(missing)}" if missing else None

    accepted_have_receipts.pending = lambda history: accepted_have_receipts(history) is not None  # type: ignore[attr-defined]
    accepted: list[int] = []

    def some_are_accepted(history: History) -> str | None:
        accepted.append(len(history.effects))
        return None

    checks = [*at_least_once(), accepted_have_receipts, some_are_accepted]
    simulate(serves, web_orders, seeds=SEEDS, checks=checks)
    assert min(accepted) > 0
