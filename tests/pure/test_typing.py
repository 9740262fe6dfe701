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
from dataclasses import dataclass

from aiokafka_lite import Consumer, JsonDeserializer, JsonSerializer, ModelDeserializer, ModelSerializer, Producer

@dataclass
class Order:
    id: int

async def main() -> None:
    plain = Producer("localhost:9092", acks="all", compression="zstd", security_protocol="SSL")
    await plain.send("orders", b"7", key="table")
    await plain.send("orders", {"id": 7})  # wrong
    await plain.send_many("orders", ["a", 5])  # wrong
    as_json = Producer("localhost:9092", value_serializer=JsonSerializer())
    await as_json.send("orders", {"id": 7}, key=b"7")
    await as_json.send("orders", {"id": 7}, key=7)  # wrong
    typed = Producer("localhost:9092", value_serializer=ModelSerializer(Order))
    await typed.send("orders", Order(7))
    await typed.send("orders")
    await typed.send("orders", {"id": 7})  # wrong
    consumer = Consumer("localhost:9092", topics=["orders"], value_deserializer=ModelDeserializer(Order))
    async for record in consumer:
        order: Order | None = record.value
        text: str | None = record.value  # wrong
    async for found in Consumer("localhost:9092", topics=["orders"], value_deserializer=JsonDeserializer()):
        if found.value is not None:
            print(found.value["id"])
    async with typed.transaction(timeout=5.0) as transaction:
        await transaction.send("orders", Order(7), key="table")
        await transaction.send("orders", {"id": 7})  # wrong
        transaction.send_nowait("orders", Order(7), key=7)  # wrong
        await transaction.send_many("orders", [Order(7), None, 7])  # wrong
    Producer("localhost:9092", acks="most")  # wrong
    Producer("localhost:9092", compression="zip")  # wrong
    Consumer("localhost:9092", auto_offset_reset="earlier", isolation_level="read_committed")  # wrong
    Consumer("localhost:9092", sasl_mechanism="SCRAM")  # wrong
"""


def test_a_type_checker_refuses_wrong_values_and_settings(tmp_path: Path) -> None:
    # With the settings of `make lint`, so that what mypy has cached there is used here.
    mypy = pytest.importorskip("mypy.api", reason="mypy comes with the extra test")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    output, problems, _ = mypy.run(["--no-error-summary", f"--config-file={ROOT / 'pyproject.toml'}", str(program)])
    assert problems == ""
    found = {int(number) for number in re.findall(r"^.*program\.py:(\d+): error", output, re.MULTILINE)}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    assert found == wrong, output


PUBLIC = [
    *("", ".acls", ".admin", ".compat.aiokafka", ".config", ".consumer", ".embedded", ".errors", ".exactly_once"),
    *(".failure_topics", ".group", ".metrics", ".models", ".oauth", ".producer", ".schemas", ".security", ".share"),
    *(".snapshot", ".testing", ".tracing", ".types", ".workers"),
]


@cache
def classes_of(module: str) -> dict[str, ast.ClassDef]:
    source = Path(str(sys.modules[module].__file__)).with_suffix(".py").read_text(encoding="utf-8")
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


def attributes_without_a_type(owner: ast.ClassDef) -> set[str]:
    """The public attributes that methods of a class set to an expression without declaring their type."""
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
    bases = {base for each in public if isinstance(each, type) for base in each.__mro__}
    owners = [classes_of(base.__module__).get(base.__name__) for base in bases if "aiokafka_lite" in base.__module__]
    assert {text for owner in owners if owner is not None for text in attributes_without_a_type(owner)} == set()
