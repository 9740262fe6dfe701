"""``blocking.ShareConsumer`` and ``blocking.Admin``."""

from __future__ import annotations

import pytest

from aiokafka_lite import TopicPartition
from aiokafka_lite.admin import ConfigResource, NewTopic, OffsetSpec
from aiokafka_lite.blocking import Admin, Producer, ShareConsumer
from aiokafka_lite.errors import IllegalStateError, UnknownTopic
from aiokafka_lite.testing.server import EmbeddedKafkaServer


def test_an_admin_client_makes_and_describes(server: EmbeddedKafkaServer, topic: str) -> None:
    name = f"made-{topic}"
    with Admin(server.bootstrap_servers) as admin:
        created = admin.topics.create([NewTopic(name, partitions=3)])
        assert created[name].partitions == 3
        assert name in {listing.name for listing in admin.topics.list()}
        assert len(admin.cluster.describe().brokers) == 1
        resource = ConfigResource.topic(name)
        admin.configs.alter({resource: {"retention.ms": 1000}})
        assert admin.configs.describe([resource])[resource]["retention.ms"].value == "1000"
        partition = TopicPartition(name, 0)
        assert admin.offsets.list({partition: OffsetSpec.LATEST})[partition].offset == 0
        assert admin.groups.list() is not None
        with pytest.raises(UnknownTopic):
            admin.topics.delete("no-such-topic", timeout=10)["no-such-topic"]
        admin.topics.delete([name])
    with pytest.raises(IllegalStateError, match="is closed"):
        admin.topics.list()
    with pytest.raises(IllegalStateError, match="is not started: use it in 'with'"):
        Admin(server.bootstrap_servers).topics.list()


async def test_calls_in_a_running_loop_name_the_asyncio_client(server: EmbeddedKafkaServer) -> None:
    admin = Admin(server.bootstrap_servers)
    with pytest.raises(IllegalStateError, match=r"use aiokafka_lite\.Admin, with await"):
        admin.start()
    with pytest.raises(IllegalStateError, match="use the clients of aiokafka_lite itself, with await"):
        admin.topics.list()


def test_a_share_consumer_acknowledges(server: EmbeddedKafkaServer, topic: str) -> None:
    with Producer(server.bootstrap_servers) as producer, Admin(server.bootstrap_servers) as admin:
        admin.configs.alter({ConfigResource.group(topic): {"share.auto.offset.reset": "earliest"}})
        producer.send_many(topic, [b"%d" % number for number in range(10)], partition=0)
    values: list[bytes | None] = []
    with ShareConsumer(
        server.bootstrap_servers, topics=[topic], group_id=topic, acknowledgement_mode="explicit"
    ) as consumer:
        while len(values) < 5:
            for record in consumer.poll(5 - len(values), timeout=5):
                values.append(record.value)
                consumer.accept(record)
        assert consumer.commit().refused == {}
    with ShareConsumer(server.bootstrap_servers, topics=[topic], group_id=topic) as consumer:
        for record in consumer:
            values.append(record.value)
            if len(values) == 10:
                break
        consumer.commit()
        assert consumer.assignment
    assert values == [b"%d" % number for number in range(10)]
