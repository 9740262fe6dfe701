"""The findings of a type checker about keys, values and settings of a program."""

from __future__ import annotations

import re
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
