"""The sources that ``benchmarks.spark`` compares with: one makes rows of nothing, and one uses confluent-kafka.

Both yield Arrow record batches with the columns of Kafka's source, because that is the fast way of a Python data
source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

ROWS = 10_000
SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
TYPES = [
    pyarrow.binary(),
    pyarrow.binary(),
    pyarrow.string(),
    pyarrow.int32(),
    pyarrow.int64(),
    pyarrow.timestamp("us", tz="UTC"),
    pyarrow.int32(),
]
NAMES = [column.split()[0] for column in SCHEMA.split(", ")]
ARROW = pyarrow.schema(list(zip(NAMES, TYPES)))


@dataclass
class Share(InputPartition):
    """A partition and the offsets of it that a task reads."""

    partition: int
    start: int
    end: int


class Synthetic(DataSource):
    """Returns the requested number of rows, all from one record batch: the upper limit that Spark itself sets."""

    @classmethod
    def name(cls) -> str:
        return "synthetic"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return SyntheticReader(self.options)


class SyntheticReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._tasks, self._rows = int(options["tasks"]), int(options["rows"])

    def partitions(self) -> list[InputPartition]:
        return [Share(number, 0, self._rows // self._tasks) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        assert isinstance(partition, Share)
        columns = [
            [b"key-00000"] * ROWS,
            [b"v" * 100] * ROWS,
            ["synthetic"] * ROWS,
            [partition.partition] * ROWS,
            list(range(ROWS)),
            [1_700_000_000_000_000] * ROWS,
            [0] * ROWS,
        ]
        arrays = [pyarrow.array(values, kind) for values, kind in zip(columns, TYPES)]
        batch = pyarrow.RecordBatch.from_arrays(arrays, schema=ARROW)
        for _ in range(partition.end // ROWS):
            yield batch


class Confluent(DataSource):
    """Topics by librdkafka. A task for each partition, a consumer for each task, no group."""

    @classmethod
    def name(cls) -> str:
        return "confluent"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return ConfluentReader(self.options)


class ConfluentReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._servers, self._topic = options["servers"], options["topic"]

    def _settings(self) -> dict[str, str | bool | int]:
        return {
            "bootstrap.servers": self._servers,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "check.crcs": True,
            "queued.max.messages.kbytes": 32 * 1024,
            "fetch.message.max.bytes": 8 * 1024 * 1024,
        }

    def partitions(self) -> list[InputPartition]:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(self._settings())
        numbers = consumer.list_topics(self._topic, timeout=10).topics[self._topic].partitions
        shares: list[InputPartition] = []
        for number in sorted(numbers):
            low, high = consumer.get_watermark_offsets(TopicPartition(self._topic, number), timeout=10)
            shares.append(Share(number, low, high))
        consumer.close()
        return shares

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        from confluent_kafka import Consumer, TopicPartition

        assert isinstance(partition, Share)
        consumer = Consumer(self._settings())
        consumer.assign([TopicPartition(self._topic, partition.partition, partition.start)])
        records_left = partition.end - partition.start
        while records_left:
            messages = consumer.consume(min(records_left, ROWS), timeout=1.0)
            count = len(messages)
            records_left -= count
            times = [message.timestamp() for message in messages]
            yield pyarrow.RecordBatch.from_arrays(
                [
                    pyarrow.array([message.key() for message in messages], TYPES[0]),
                    pyarrow.array([message.value() for message in messages], TYPES[1]),
                    pyarrow.repeat(pyarrow.scalar(self._topic), count),
                    pyarrow.repeat(pyarrow.scalar(partition.partition, TYPES[3]), count),
                    pyarrow.array([message.offset() for message in messages], TYPES[4]),
                    pyarrow.array([time * 1000 for _, time in times], TYPES[5]),
                    pyarrow.array([kind - 1 for kind, _ in times], TYPES[6]),
                ],
                schema=ARROW,
            )
        consumer.close()
