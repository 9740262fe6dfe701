"""The option ``deadLetterTopic``: rows that their topic cannot take, with their reason and origin in headers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from aiokafka_lite import Consumer, EmbeddedCluster, Producer, Record, TopicPartition
from aiokafka_lite.admin import AclBinding, AclOperation, AclResourceType
from aiokafka_lite.errors import KafkaError
from aiokafka_lite.processing import redrive
from aiokafka_lite.spark.options import Properties
from aiokafka_lite.spark.writing import Target, write_rows
from tests.end_to_end.conftest import Kafka
from tests.spark.conftest import on_spark, run_to_end, stream_of
from tests.spark.test_exactly_once import forget_the_last_commit
from tests.spark.test_sink import found_here, write

LIMIT = 2_000

ROWS: dict[str, list[Any]] = {
    "key": ["a", "b", None, "d", "e", "f", "g", "h", "i"],
    "value": ["good", "x" * LIMIT, "no key", "no topic", "7", "header", "name", "marked", "unknown"],
    "topic": ["target", "target", "compacted", None, "target", "target", "no name!", "target", "missing"],
    "partition": [None, None, None, None, 7, None, None, None, None],
    "headers": [None] * 5 + [[{"key": None, "value": b"1"}, {"key": "kept", "value": b"2"}]] + [None] * 3,
    "_error": [None] * 7 + ["amount is negative"] + [None],
    "origin": [{"topic": "source", "partition": 3, "offset": number, "timestamp": None} for number in range(9)],
}
TEXTS = ("key", "value", "topic", "_error")
HEADERS = pyarrow.list_(pyarrow.struct({"key": pyarrow.string(), "value": pyarrow.binary()}))
PLACE = {"topic": pyarrow.string(), "partition": pyarrow.int32(), "offset": pyarrow.int64()}
ORIGIN = pyarrow.struct({**PLACE, "timestamp": pyarrow.timestamp("us", "UTC")})
SCHEMA = pyarrow.schema(
    {**dict.fromkeys(TEXTS, pyarrow.string()), "partition": pyarrow.int32(), "headers": HEADERS, "origin": ORIGIN}
)
REASONS = {
    1: ("RecordTooLarge", f"above its max.message.bytes={LIMIT}"),
    2: ("BrokerError", "topic 'compacted' is compacted, and the row has no key"),
    3: ("SerializationError", "column topic is null"),
    4: ("UnknownTopic", "topic 'target' has partitions 0 to 1, got partition=7"),
    5: ("SerializationError", "the key of a header, is null"),
    6: ("InvalidTopic", "no name!"),
    7: ("MarkedByQuery", "amount is negative"),
    8: ("UnknownTopic", "missing"),
}


async def records_in(cluster: EmbeddedCluster | Kafka, topic: str) -> list[Record]:
    """Return the committed records of a topic, by partition and offset."""
    async with Consumer(cluster.bootstrap_servers, isolation_level="read_committed") as consumer:
        views = await consumer.partitions_for(topic)
        partitions = [TopicPartition(topic, view.partition) for view in views]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(partitions)
        ends = await consumer.end_offsets(partitions)
        records: list[Record] = []
        while any([await consumer.position(partition) < end for partition, end in ends.items()]):
            records += await consumer.poll(timeout=0.5)
    return sorted(records, key=lambda record: (record.partition, record.offset))


def headers_of(record: Record) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in record.headers}


def target_of(cluster: EmbeddedCluster, topic: str | None, **properties: str) -> Target:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "max.block.ms": "1000"}
    settings |= {name.replace("__", "."): value for name, value in properties.items()}
    return Target(properties=Properties(settings), topic=topic, freeze_gc=False, dead_letter_topic="dead")


@pytest.mark.usefixtures("driver")
async def test_a_row_that_its_topic_cannot_take_is_a_dead_letter_with_its_reason_and_origin() -> None:
    columns = [pyarrow.array(ROWS[name], SCHEMA.field(name).type) for name in SCHEMA.names]
    rows = pyarrow.RecordBatch.from_arrays(columns, schema=SCHEMA)
    async with EmbeddedCluster(auto_create_topics=False) as cluster:
        await cluster.create_topic("target", 2, configs={"max.message.bytes": str(LIMIT)})
        await cluster.create_topic("compacted", 1, configs={"cleanup.policy": "compact"})
        await cluster.create_topic("dead", 1)
        output = await on_spark(lambda: write_rows(target_of(cluster, None), [rows]))
        assert [record.value for record in await records_in(cluster, "target")] == [b"good"]
        letters = {int(headers_of(record)["origin.offset"]): record for record in await records_in(cluster, "dead")}
    assert output.records["dead", 0] == len(letters) == len(REASONS)
    for number, (error, text) in REASONS.items():
        headers = headers_of(letters[number])
        assert letters[number].key == (ROWS["key"][number].encode() if ROWS["key"][number] else None)
        assert letters[number].value == ROWS["value"][number].encode()
        assert headers["error.class"] == error
        assert text in headers["error.message"]
        assert (headers["origin.topic"], headers["origin.partition"]) == ("source", "3")
    assert headers_of(letters[5])["kept"] == "2"


@pytest.mark.usefixtures("driver")
async def test_what_is_compressed_to_the_limit_of_its_topic_is_no_dead_letter(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("target", 1, configs={"max.message.bytes": str(LIMIT)})
    await cluster.create_topic("dead", 1)
    rows = pyarrow.record_batch({"value": ["x" * 2 * LIMIT]})
    target = target_of(cluster, "target", compression__type="lz4")
    output = await on_spark(lambda: write_rows(target, [rows]))
    assert output.records == {("target", 0): 1}


@pytest.mark.usefixtures("driver")
async def test_a_dead_letter_keeps_a_value_that_is_compressed_to_the_limit_of_its_topic(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.create_topic("target", 1)
    await cluster.create_topic("dead", 1, configs={"max.message.bytes": str(LIMIT)})
    value = b"x" * 2 * LIMIT
    rows = pyarrow.record_batch({"value": [value], "_error": ["wrong"]})
    await on_spark(lambda: write_rows(target_of(cluster, "target", compression__type="lz4"), [rows]))
    (letter,) = await records_in(cluster, "dead")
    assert (letter.value, headers_of(letter)["error.class"]) == (value, "MarkedByQuery")


@pytest.mark.usefixtures("driver")
async def test_a_dead_letter_names_the_option_whose_limit_its_row_exceeds(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("target", 1)
    await cluster.create_topic("dead", 1)
    rows = pyarrow.record_batch({"value": ["x" * 500_000]})
    await on_spark(lambda: write_rows(target_of(cluster, "target", buffer__memory="400000"), [rows]))
    (letter,) = await records_in(cluster, "dead")
    assert "above kafka.buffer.memory=400000" in headers_of(letter)["error.message"]


@pytest.mark.usefixtures("driver")
async def test_a_value_that_is_too_large_for_both_topics_is_left_out_of_its_dead_letter(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.create_topic("target", 1)
    await cluster.create_topic("dead", 1)
    time = datetime(2026, 1, 1, tzinfo=UTC)
    rows = pyarrow.record_batch(
        {
            "key": [b"k"],
            "value": ["x" * 2_000_000],
            "topic": ["source"],
            "partition": [0],
            "offset": [5],
            "timestamp": [time],
        }
    )
    await on_spark(lambda: write_rows(target_of(cluster, "target"), [rows]))
    (letter,) = await records_in(cluster, "dead")
    headers = headers_of(letter)
    assert (letter.key, letter.value, headers["error.left_out"]) == (b"k", None, "value of 2000000 bytes")
    assert "above kafka.max.request.size=1048576" in headers["error.message"]
    with pytest.raises(KafkaError, match="offset 0 of dead-0 has no value, because it was too large"):
        await redrive(cluster.bootstrap_servers, "dead")
    assert [headers[f"origin.{name}"] for name in ("topic", "offset", "timestamp")] == ["source", "5", "1767225600000"]


@pytest.mark.usefixtures("driver")
async def test_a_dead_letter_topic_that_refuses_fails_the_task_with_its_name(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("target", 1)
    await cluster.create_topic("dead", 1, configs={"cleanup.policy": "compact"})
    rows = pyarrow.record_batch({"value": ["x"], "_error": ["wrong"]})
    with pytest.raises(
        KafkaError, match=r"deadLetterTopic: topic 'dead' did not take the refused rows: .*without a key"
    ):
        await on_spark(lambda: write_rows(target_of(cluster, "target"), [rows]))
    too_long = pyarrow.record_batch({"key": ["k" * 2_000_000], "value": ["x"]})
    with pytest.raises(KafkaError, match="too large for the dead-letter topic 'dead', even without its value"):
        await on_spark(lambda: write_rows(target_of(cluster, "target"), [too_long]))


@pytest.mark.usefixtures("driver")
async def test_a_dead_letter_topic_whose_limits_are_secret_takes_what_its_broker_takes() -> None:
    allowed = {"target": ("WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"), "dead": ("WRITE", "DESCRIBE", "READ")}
    async with EmbeddedCluster(1, super_users=[]) as cluster:
        assert cluster.authorizer.acls is not None
        for topic, operations in allowed.items():
            await cluster.create_topic(topic, 1, configs={"max.message.bytes": str(LIMIT)})
            for operation in operations:
                binding = AclBinding(AclResourceType.TOPIC, topic, "User:ANONYMOUS", AclOperation[operation])
                cluster.authorizer.acls.create(binding)
        rows = pyarrow.record_batch({"value": ["good", "bad"], "_error": [None, "wrong"]})
        output = await on_spark(lambda: write_rows(target_of(cluster, "target"), [rows]))
        assert output.records == {("target", 0): 1, ("dead", 0): 1}
        assert [
            (letter.value, headers_of(letter)["error.message"]) for letter in await records_in(cluster, "dead")
        ] == [(b"bad", "wrong")]
        too_large = pyarrow.record_batch({"value": ["x" * LIMIT]})
        complaint = r"deadLetterTopic: topic 'dead' did not take .*max.message.bytes=2000 .*kafka.max.request.size"
        with pytest.raises(KafkaError, match=complaint):
            await on_spark(lambda: write_rows(target_of(cluster, "target"), [too_large]))
        assert len(await records_in(cluster, "dead")) == 1


async def test_a_stream_writes_each_dead_letter_exactly_once(
    cluster: EmbeddedCluster, spark: SparkSession, tmp_path: Path
) -> None:
    servers = cluster.bootstrap_servers
    for topic in ("source", "target", "dead"):
        await cluster.create_topic(topic, 1)
    async with Producer(servers) as producer:
        await producer.send_many("source", [b"%d" % number for number in range(10)])

    def run() -> None:
        found_here(spark)
        rows = stream_of(spark, servers, subscribe="source", startingOffsets="earliest").selectExpr(
            "value",
            "struct(topic, partition, offset, timestamp) AS origin",
            "IF(CAST(CAST(value AS STRING) AS INT) % 5 = 0, 'a multiple of 5', NULL) AS _error",
        )
        writer = rows.writeStream.format("kafka-lite").option("kafka.bootstrap.servers", servers)
        writer = writer.options(topic="target", deadLetterTopic="dead", delivery="exactly-once")
        run_to_end(writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start)

    for _ in range(2):
        await on_spark(run)
        forget_the_last_commit(tmp_path)  # the second run repeats the batch
    assert len(await records_in(cluster, "target")) == 8
    letters = await records_in(cluster, "dead")
    assert [(record.value, headers_of(record)["origin.offset"]) for record in letters] == [(b"0", "0"), (b"5", "5")]
    assert {headers_of(record)["error.message"] for record in letters} == {"a multiple of 5"}


WRONG = {
    "option deadLetterTopic: topic 'missing' did not appear": ("'v' AS value", "missing"),
    "option deadLetterTopic must be the name of a topic, other than": ("'v' AS value", "target"),
    "column _error must be string, got int": ("'v' AS value, 1 AS _error", "dead"),
    r"column origin must be struct\(topic, partition, offset, timestamp\)": ("'v' AS value, 1 AS origin", "dead"),
}


async def test_wrong_options_and_columns_are_errors_on_the_driver(spark: SparkSession) -> None:
    async with EmbeddedCluster(auto_create_topics=False) as cluster:
        await cluster.create_topic("target", 1)
        await cluster.create_topic("dead", 1)
        for complaint, (columns, dead) in WRONG.items():
            rows = spark.sql(f"SELECT {columns}")
            options = {"topic": "target", "deadLetterTopic": dead, "kafka__max__block__ms": "1000"}
            with pytest.raises(PySparkException, match=complaint):
                await on_spark(lambda rows=rows, options=options: write(rows, cluster.bootstrap_servers, **options))
