"""A bounded read of a real broker: runs of a job each read what is new, and end."""

from __future__ import annotations

from aiokafka_lite import Consumer, Producer, TopicPartition
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.test_transactions import until_stable


async def test_runs_of_a_job_read_what_is_new_and_end(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=3)
    read: list[bytes | None] = []
    async with Producer(kafka.bootstrap_servers) as producer:
        for run in range(3):
            values = [b"%d-%d" % (run, number) for number in range(300)]
            await producer.send_many(topic, values)
            async with Consumer(kafka.bootstrap_servers, topics=[topic], group_id=topic) as consumer:
                async for records in consumer.read_until(max_records=70):
                    read += [record.value for record in records]
    assert sorted(map(bytes, filter(None, read))) == sorted(
        b"%d-%d" % (run, number) for run in range(3) for number in range(300)
    )


async def test_the_markers_of_transactions_at_the_end_are_passed(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with Producer(kafka.bootstrap_servers, transactional_id=topic) as producer:
        for number in range(3):
            async with producer.transaction():
                await producer.send(topic, b"%d" % number)
    await until_stable(kafka, topic)  # a broker answers EndTxn before it has written the markers
    async with Consumer(kafka.bootstrap_servers, topics=[topic]) as consumer:
        values = [record.value async for records in consumer.read_until() for record in records]
        assert values == [b"0", b"1", b"2"]
        assert await consumer.position(TopicPartition(topic, 0)) == 6
        assert [records async for records in consumer.read_until({TopicPartition(topic, 0): 6})] == []
