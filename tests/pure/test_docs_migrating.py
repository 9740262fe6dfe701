"""In the migration tables, each call of the old client and of this one exists, with its arguments."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.admin
import aiokafka.errors
import pytest

import aiokafka_lite
import aiokafka_lite.admin
import aiokafka_lite.errors
import aiokafka_lite.producer
import aiokafka_lite.schemas
from tests.pure.documents import PARTS, ROOT, UNKNOWN, Names, Row, code_spans, imported, rows

confluent_kafka = pytest.importorskip("confluent_kafka")
for part in ("admin", "schema_registry.avro", "schema_registry.json_schema", "schema_registry.protobuf"):
    importlib.import_module(f"confluent_kafka.{part}")
kafka = imported("kafka")
OURS: dict[str, Any] = {
    **{name: getattr(aiokafka_lite, name) for name in aiokafka_lite.__all__},
    **vars(aiokafka_lite.errors),
    **{name: getattr(aiokafka_lite.admin, name) for name in aiokafka_lite.admin.__all__},
    **{name: getattr(aiokafka_lite.producer, name) for name in aiokafka_lite.producer.__all__},
    **{name: getattr(aiokafka_lite.schemas, name) for name in aiokafka_lite.schemas.__all__},
    **PARTS,
    **dict.fromkeys(["Order", "registry", "schema", "to_dict"], UNKNOWN),
    **dict.fromkeys(["f", "keys", "listener", "partition", "topics", "values"], UNKNOWN),
    "re": re,
}
GIVEN = dict.fromkeys(
    [
        *("acls", "alterations", "batch", "configs", "f", "listener", "offsets", "partition", "partitions"),
        *("records", "resources", "topics"),
        *("Order", "registry", "schema", "to_dict"),
    ],
    UNKNOWN,
)
THEIRS: dict[str, dict[str, Any]] = {
    "aiokafka": {
        **vars(aiokafka.errors),
        "message": aiokafka.structs.ConsumerRecord("t", 0, 0, 0, 0, None, None, None, 0, 0, ()),
        "AIOKafkaAdminClient": aiokafka.admin.AIOKafkaAdminClient,
        "AIOKafkaConsumer": aiokafka.AIOKafkaConsumer,
        "AIOKafkaProducer": aiokafka.AIOKafkaProducer,
        "admin": aiokafka.admin.AIOKafkaAdminClient,
        "consumer": aiokafka.AIOKafkaConsumer,
        "producer": aiokafka.AIOKafkaProducer,
    },
    "confluent-kafka": {
        **vars(confluent_kafka.schema_registry),
        **vars(confluent_kafka.schema_registry.avro),
        **vars(confluent_kafka.schema_registry.json_schema),
        **vars(confluent_kafka.schema_registry.protobuf),
        "AdminClient": confluent_kafka.admin.AdminClient,
        "Consumer": confluent_kafka.Consumer,
        "Producer": confluent_kafka.Producer,
        "admin": confluent_kafka.admin.AdminClient,
        "consumer": confluent_kafka.Consumer,
        "message": confluent_kafka.Message,
        "producer": confluent_kafka.Producer,
    },
    "kafka-python": {
        "KafkaAdminClient": kafka.KafkaAdminClient,
        "KafkaConsumer": kafka.KafkaConsumer,
        "KafkaProducer": kafka.KafkaProducer,
        "admin": kafka.KafkaAdminClient,
        "consumer": kafka.KafkaConsumer,
        "producer": kafka.KafkaProducer,
    },
}
each_client = pytest.mark.parametrize("client", THEIRS)


def page_of(client: str) -> Path:
    return ROOT / "docs" / f"migrating-from-{client}.md"


def calls(client: str) -> list[Row]:
    """Return the rows of the tables of old and new calls."""
    return [row for row in rows(page_of(client)) if f"in {client}" in row.cells]


def problems(spans: list[str], scope: dict[str, Any]) -> list[str]:
    names = Names(scope)
    for span in spans:
        names.check(span)
    return names.problems


@each_client
def test_every_call_of_ours_exists(client: str) -> None:
    for row in calls(client):
        spans = code_spans(row.cells["here"])
        assert spans or row.cells[""], f"line {row.line} says neither what there is nor why there is nothing"
        assert problems(spans, OURS) == [], f"line {row.line}"


@each_client
def test_every_call_of_theirs_exists(client: str) -> None:
    for row in calls(client):
        assert problems(code_spans(row.cells[f"in {client}"]), GIVEN | THEIRS[client]) == [], f"line {row.line}"


@each_client
def test_there_are_tables(client: str) -> None:
    assert len(calls(client)) > 25


def test_a_call_that_does_not_exist_is_found() -> None:
    assert problems(["await consumer.pull(timeout=1.0)"], OURS) != []
    assert problems(["await consumer.poll(seconds=1.0)"], OURS) == ["consumer.poll has no argument seconds"]
