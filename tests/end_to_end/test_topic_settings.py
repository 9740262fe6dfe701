"""Settings of a producer for single topics, on each kind of broker."""

from __future__ import annotations

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.producer import PartitionerByTopic, RoundRobinPartitioner, TopicSettings
from tests.end_to_end.conftest import Kafka


async def test_topics_with_other_settings_are_written_by_one_producer(kafka: Kafka) -> None:
    audit, events = await kafka.create_topic(partitions=1), await kafka.create_topic(partitions=3)
    values = [b"%d" % number * 50 for number in range(1_000)]
    async with Producer(
        kafka.bootstrap_servers,
        topic_settings={audit: TopicSettings(compression="gzip", batch_size=4_000, linger=0.01)},
        partitioner=PartitionerByTopic({events: RoundRobinPartitioner()}),
    ) as producer:
        await producer.send_many(audit, values)
        assert {metadata.partition for metadata in await producer.send_many(events, values)} == {0, 1, 2}
    async with Consumer(kafka.bootstrap_servers, topics=[audit]) as consumer:
        assert [record.value async for records in consumer.read_until() for record in records] == values
