"""The findings of a type checker about keys, values and settings of a program."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, assert_type

from aiokafka_lite import (
    Admin,
    Claim,
    Consumer,
    ConsumerGroup,
    ConsumerGroupHandler,
    ConsumerGroupSession,
    Delivery,
    EmbeddedCluster,
    ExactlyOnce,
    JsonDeserializer,
    JsonSerializer,
    ModelDeserializer,
    ModelSerializer,
    OffsetAndMetadata,
    Producer,
    Record,
    RecordMetadata,
    ShareConsumer,
    ShareRecord,
    StrDeserializer,
    StrSerializer,
    TopicPartition,
    Workers,
)
from aiokafka_lite.consumer import RebalanceHandle, RebalanceListener
from aiokafka_lite.group import CommitResult
from aiokafka_lite.processing import dead_letter
from aiokafka_lite.producer import IntSerializer
from aiokafka_lite.types import GroupMetadata
from aiokafka_lite.admin import NewTopic
from aiokafka_lite.producer import Transaction

FIRST = TopicPartition("orders", 0)

@dataclass
class Order:
    id: int

class Listener(RebalanceListener):
    async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        handle.seek(partitions[0], 0)

class Handler(ConsumerGroupHandler[str, Order]):
    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim[str, Order]) -> None:
        async for record in claim:
            assert_type(record, Record[str, Order])
            session.mark(record)

async def save(record: Record[str, Order]) -> None:
    print(record.value.id)
    print(record.value.identifier)  # wrong
    if record.value is None:
        print("a tombstone")
    assert record.value is not None
    print(record.value.id)
    print(record.key.upper())  # wrong

async def count(record: Record[bytes, bytes]) -> None: ...

def save_at_once(record: Record[str, Order]) -> int:
    return record.value.id

def count_at_once(record: Record[bytes, bytes]) -> None: ...

def save_all(records: list[Record[str, Order]]) -> None: ...

def save_two(record: Record[str, Order], other: Record[str, Order]) -> None: ...

def save_nothing() -> None: ...

def on_done(metadata: RecordMetadata | None, error: Exception | None) -> None: ...

async def producers() -> None:
    plain = Producer("localhost:9092", acks="all", compression="zstd", security_protocol="SSL")
    assert_type(plain, Producer[bytes | str, bytes | str])
    assert_type(await plain.send("orders", b"7", key="table", headers={"a": b"b"}, timeout=1), RecordMetadata)
    delivery = plain.send_nowait("orders", "7")
    delivery.report(on_done)
    assert_type(delivery, Delivery)
    assert_type(await delivery, RecordMetadata)
    await (await plain.put("orders", b"7"))
    for result in await plain.send_many("orders", ["a", None], keys=["k", b"l"]):
        assert_type(result, RecordMetadata | Exception)
    await plain.send("orders", {"id": 7})  # wrong
    plain.send_nowait("orders", 7)  # wrong
    await plain.put("orders", ["7"])  # wrong
    await plain.send_many("orders", ["a", 5])  # wrong
    await plain.send(b"orders", "7")  # wrong
    await plain.send("orders", "7", "key")  # wrong
    await plain.send("orders", "7", partition="0")  # wrong
    await plain.send("orders", "7", timeout_ms=5)  # wrong
    as_json = Producer("localhost:9092", value_serializer=JsonSerializer())
    await as_json.send("orders", {"id": 7}, key=b"7")
    await as_json.send("orders", {"id": 7}, key=7)  # wrong
    typed = Producer("localhost:9092", value_serializer=ModelSerializer(Order))
    assert_type(typed, Producer[bytes | str, Order])
    await typed.send("orders", Order(7))
    await typed.send("orders")
    await typed.send("orders", {"id": 7})  # wrong
    assert_type(Producer("localhost:9092", key_serializer=IntSerializer()), Producer[int, bytes | str])
    async with typed.transaction(timeout=5.0) as transaction:
        assert_type(transaction, Transaction[bytes | str, Order])
        await transaction.send("orders", Order(7), key="table")
        await transaction.send_offsets({FIRST: 5}, GroupMetadata("billing"))
        await transaction.send("orders", {"id": 7})  # wrong
        transaction.send_nowait("orders", Order(7), key=7)  # wrong
        await transaction.send_many("orders", [Order(7), None, 7])  # wrong
    Producer("localhost:9092", acks="al")  # wrong
    Producer("localhost:9092", compression="gz")  # wrong
    Producer("localhost:9092", linger="5")  # wrong
    with plain:  # wrong
        pass

async def consumers() -> None:
    consumer = Consumer("localhost:9092", topics=["orders"], value_deserializer=ModelDeserializer(Order))
    assert_type(consumer, Consumer[bytes, Order])
    async for record in consumer:
        order: Order | None = record.value
        text: str | None = record.value  # wrong
        consumer.mark(record)
        assert_type(await consumer.commit(), CommitResult)
    assert_type(await consumer.poll(max_records=5, timeout=1), list[Record[bytes, Order]])
    assert_type(await consumer.end_offsets([FIRST]), dict[TopicPartition, int])
    await consumer.commit({FIRST: 7, TopicPartition("orders", 1): OffsetAndMetadata(7)})
    async for found in Consumer("localhost:9092", topics=["orders"], value_deserializer=JsonDeserializer()):
        print(found.value["id"])
        assert found.value is not None
        print(found.value["id"])
    assert_type(Consumer("localhost:9092", value_deserializer=lambda data: data.decode()), Consumer[bytes, str])
    Consumer("localhost:9092", group_id="g", topics=["orders"], listener=Listener(), auto_offset_reset="earliest")
    Consumer("localhost:9092", auto_offset_reset="earliset", isolation_level="read_committed")  # wrong
    Consumer("localhost:9092", sasl_mechanism="SCRAM")  # wrong
    Consumer("localhost:9092", "orders")  # wrong
    consumer.seek(FIRST, "5")  # wrong
    consumer.pause(FIRST)  # wrong
    await consumer.poll(timeout_ms=5)  # wrong
    for each in consumer:  # wrong
        pass

async def groups() -> None:
    group = ConsumerGroup(
        "localhost:9092",
        group_id="billing",
        key_deserializer=StrDeserializer(),
        value_deserializer=ModelDeserializer(Order),
    )
    assert_type(group, ConsumerGroup[str, Order])
    failed = Producer("localhost:9092", key_serializer=StrSerializer(), value_serializer=ModelSerializer(Order))
    await group.consume(["orders"], Workers(save, rules=[dead_letter(topic="dead")], producer=failed))
    await group.consume(["orders"], Handler())
    await group.consume(["orders"], Workers(count))  # wrong
    await group.consume(["orders"], save)  # wrong
    Workers(save, order="keys")  # wrong
    Workers(print)
    await group.consume(["orders"], Workers(save_at_once))
    await group.consume(["orders"], Workers(count_at_once))  # wrong
    await group.consume(["orders"], Workers(lambda record: save(record)))
    with ProcessPoolExecutor() as processes:
        await group.consume(["orders"], Workers(save_at_once, executor=processes))
        await group.consume(["orders"], Workers(save_all, executor=processes, batch_size=10))
    await group.consume(["orders"], Workers(save_all))  # wrong
    await group.consume(["orders"], Workers(save_at_once, batch_size=10))  # wrong
    Workers(save_two)  # wrong
    Workers(save_nothing)  # wrong
    Workers(save_at_once, executor=4)  # wrong
    shared = ShareConsumer("localhost:9092", group_id="q", topics=["orders"], value_deserializer=JsonDeserializer())
    async for record in shared:
        assert_type(record, ShareRecord[bytes, Any])
        shared.accept(record)
    shared.accept("record")  # wrong
    consumer = Consumer("localhost:9092", group_id="g", topics=["orders"], auto_commit=False)
    async for records in ExactlyOnce(consumer, Producer("localhost:9092", transactional_id="x")):
        assert_type(records, list[Record[bytes, bytes]])
    ExactlyOnce(consumer, consumer)  # wrong

async def others() -> None:
    async with EmbeddedCluster(brokers=1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        (await admin.topics.create([NewTopic("orders", 3), "bills"])).raise_for_errors()
        await admin.topics.create("orders", 3)  # wrong
        await admin.topics.create([NewTopic("orders", "3")])  # wrong
        await admin.groups.alter_offsets("g", {FIRST: "5"})  # wrong
"""


def test_a_type_checker_refuses_wrong_values_and_settings(tmp_path: Path) -> None:
    # With the settings of `make lint`, so that what mypy has cached there is used here.
    mypy = pytest.importorskip("mypy.api", reason="mypy comes with the extra test")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    output, problems, _ = mypy.run(["--no-error-summary", f"--config-file={ROOT / 'pyproject.toml'}", str(program)])
    assert problems == ""
    lines = {int(number) for number in re.findall(r"^.*program\.py:(\d+): error", output, re.MULTILINE)}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    assert lines == wrong, output


PUBLIC = [
    *("", ".acls", ".admin", ".compat.aiokafka", ".config", ".consumer", ".embedded", ".errors"),
    *(".group", ".metrics", ".oauth", ".processing", ".producer", ".schemas", ".serialization.models", ".share"),
    *(".settings.security", ".snapshot", ".testing", ".tracing", ".types"),
]


@cache
def classes_of(module: str) -> dict[str, ast.ClassDef]:
    source = Path(str(sys.modules[module].__file__)).with_suffix(".py").read_text(encoding="utf-8")
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


def attributes_without_a_type(owner: ast.ClassDef) -> set[str]:
    """Return the public attributes that methods of a class set to an expression without declaring their type."""
    nodes = list(ast.walk(owner))
    declared = {ast.unparse(node.target).removeprefix("self.") for node in nodes if isinstance(node, ast.AnnAssign)}
    assigned = [node for node in nodes if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Name)]
    targets = {ast.unparse(name) for node in assigned for target in node.targets for name in ast.walk(target)}
    names = {target.removeprefix("self.") for target in targets if re.fullmatch(r"self\.[a-z]\w*", target)}
    return {f"{owner.name}.{name}" for name in names - declared}


@pytest.mark.thorough
def test_each_attribute_of_a_public_class_has_a_declared_type() -> None:
    modules = [import_module(f"aiokafka_lite{part}") for part in PUBLIC]
    names = [(module, name) for module in modules for name in getattr(module, "__all__", vars(module))]
    public = [getattr(module, name) for module, name in names if not name.startswith("_")]
    bases = {base for cls in public if isinstance(cls, type) for base in cls.__mro__}
    owners = [classes_of(base.__module__).get(base.__name__) for base in bases if "aiokafka_lite" in base.__module__]
    assert {text for owner in owners if owner is not None for text in attributes_without_a_type(owner)} == set()
