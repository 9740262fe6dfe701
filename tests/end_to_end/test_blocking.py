"""The blocking clients from end to end, on the embedded cluster and on Apache Kafka, in threads of the test."""

from __future__ import annotations

import asyncio
import threading

import pytest

from aiokafka_lite import Record, TopicPartition
from aiokafka_lite.admin import ConfigResource
from aiokafka_lite.blocking import Admin, Consumer, ConsumerGroup, Producer, ShareConsumer, Workers
from aiokafka_lite.errors import RecordTooLarge
from tests.end_to_end.conftest import Kafka

VALUES = [b"%d" % number for number in range(1000)]


async def test_records_go_through_all_kinds_of_calls(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)

    def write_and_read() -> None:
        with Producer(kafka.bootstrap_servers) as producer:
            deliveries = [producer.send_nowait(topic, value) for value in VALUES[:400]]
            assert [delivery.wait(60).offset for delivery in deliveries] == list(range(400))
            with pytest.raises(RecordTooLarge):
                producer.send(topic, b"x" * 2_000_000)
            assert len(producer.send_many(topic, VALUES[400:800])) == 200 + 200
            for value in VALUES[800:]:
                producer.put(topic, value)
        with Consumer(kafka.bootstrap_servers, topics=[topic], group_id=topic) as consumer:
            values = []
            for record in consumer:
                values.append(record.value)
                if len(values) == 500:
                    break
            while len(values) < 1000:
                values += [record.value for record in consumer.poll(5000, timeout=10.0)]
            assert values == VALUES
            consumer.mark()
            assert consumer.commit().refused == {}
            partition = TopicPartition(topic, 0)
            assert consumer.end_offsets([partition]) == {partition: 1000}
        with Consumer(kafka.bootstrap_servers, topics=[topic], group_id=topic) as consumer:
            consumer.wait_assigned()
            assert consumer.lag() == {partition: 0}

    await asyncio.to_thread(write_and_read)


@pytest.mark.since("2.5", "transactions check the generation of a group")
async def test_a_transaction_is_visible_as_a_whole(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)

    def write_and_read() -> None:
        with Producer(kafka.bootstrap_servers, transactional_id=topic) as producer:
            with pytest.raises(ZeroDivisionError), producer.transaction() as transaction:
                transaction.send_nowait(topic, b"aborted")
                raise ZeroDivisionError
            with producer.transaction() as transaction:
                for value in VALUES[:10]:
                    transaction.send_nowait(topic, value)
        with Consumer(kafka.bootstrap_servers, topics=[topic], isolation_level="read_committed") as consumer:
            consumer.seek_to_beginning()
            assert [next(consumer).value for _ in range(10)] == VALUES[:10]

    await asyncio.to_thread(write_and_read)


async def test_workers_process_each_record_in_threads(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=3)

    def work() -> None:
        with Producer(kafka.bootstrap_servers) as producer:
            producer.send_many(topic, VALUES)
        seen: list[bytes | None] = []
        lock = threading.Lock()
        group: ConsumerGroup[bytes, bytes] = ConsumerGroup(kafka.bootstrap_servers, group_id=topic)

        def bill(record: Record[bytes, bytes]) -> None:
            with lock:
                seen.append(record.value)
                if len(seen) == len(VALUES):
                    threading.Thread(target=group.close).start()

        with group:
            group.consume([topic], Workers(bill, concurrency=8))
        assert sorted(value or b"" for value in seen) == sorted(VALUES)

    await asyncio.to_thread(work)


@pytest.mark.since("4.2", "share groups")
async def test_a_share_consumer_and_an_admin_client(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)

    def work() -> None:
        with Admin(kafka.bootstrap_servers) as admin:
            admin.configs.alter({ConfigResource.group(topic): {"share.auto.offset.reset": "earliest"}})
        with Producer(kafka.bootstrap_servers) as producer:
            producer.send_many(topic, VALUES[:20])
        with ShareConsumer(kafka.bootstrap_servers, topics=[topic], group_id=topic) as consumer:
            values: list[bytes | None] = []
            while len(values) < 20:
                values += [record.value for record in consumer.poll(timeout=10.0)]
                assert consumer.commit().refused == {}
        assert values == VALUES[:20]

    await asyncio.to_thread(work)
