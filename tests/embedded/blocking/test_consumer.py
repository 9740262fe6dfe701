"""``blocking.Consumer``: its calls are those of the asyncio consumer, without await."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from aiokafka_lite import TopicPartition
from aiokafka_lite.blocking import Consumer, Producer
from aiokafka_lite.errors import ConfigurationError, IllegalStateError, KafkaTimeout, UnknownTopic
from aiokafka_lite.testing.server import EmbeddedKafkaServer


@pytest.fixture
def filled(server: EmbeddedKafkaServer, topic: str) -> str:
    """The name of a topic with the values 0 to 99 in partition 0."""
    with Producer(server.bootstrap_servers) as producer:
        producer.send_many(topic, [b"%d" % number for number in range(100)], partition=0)
    return topic


NUMBERS = [b"%d" % number for number in range(100)]


def test_records_are_iterated(server: EmbeddedKafkaServer, filled: str) -> None:
    values = []
    with Consumer(server.bootstrap_servers, topics=[filled], auto_offset_reset="earliest") as consumer:
        consumer.seek_to_beginning()
        for record in consumer:
            values.append(record.value)
            if len(values) == 60:
                break
        assert consumer.position(TopicPartition(filled, 0)) == 60
        values += [next(consumer).value for _ in range(20)]
        values += [record.value for record in consumer.poll(timeout=10)]
    assert values == NUMBERS


def test_an_iteration_ends_when_another_thread_closes_the_consumer(server: EmbeddedKafkaServer, filled: str) -> None:
    values = []
    with Consumer(server.bootstrap_servers, topics=[filled]) as consumer:
        consumer.seek_to_beginning()
        closer = threading.Timer(0.0, lambda: None)
        for record in consumer:
            values.append(record.value)
            if len(values) == 100:
                closer = threading.Thread(target=consumer.close)
                closer.start()
        closer.join()
    assert values == NUMBERS


def test_a_bounded_read_ends(server: EmbeddedKafkaServer, filled: str) -> None:
    with Consumer(server.bootstrap_servers, topics=[filled]) as consumer:
        consumer.seek_to_beginning()
        reading = consumer.read_until({TopicPartition(filled, 0): 70}, max_records=50)
        assert [len(records) for records in reading] == [50, 20]
        assert reading.ends == {TopicPartition(filled, 0): 70}


def test_a_seek_during_an_iteration_counts_for_the_next_record(server: EmbeddedKafkaServer, filled: str) -> None:
    with Consumer(server.bootstrap_servers, topics=[filled]) as consumer:
        consumer.seek_to_beginning()
        records = iter(consumer)
        assert [next(records).offset for _ in range(3)] == [0, 1, 2]
        consumer.seek(TopicPartition(filled, 0), 50)
        assert [next(records).offset for _ in range(3)] == [50, 51, 52]


def test_batches_have_columns(server: EmbeddedKafkaServer, filled: str) -> None:
    with Consumer(server.bootstrap_servers, topics=[filled]) as consumer:
        consumer.seek_to_beginning()
        batch = next(iter(consumer.batches()))
        assert batch.values == NUMBERS
        consumer.seek_to_beginning()
        pytest.importorskip("pyarrow")
        for table in consumer.batches().to_arrow(["value", "offset"]):
            assert table.column("value").to_pylist() == NUMBERS
            break


def test_a_poll_without_records_returns_after_its_timeout(server: EmbeddedKafkaServer, topic: str) -> None:
    with Consumer(server.bootstrap_servers, topics=[topic]) as consumer:
        assert consumer.poll(timeout=0.05) == []


def test_a_group_commits_what_an_iteration_has_processed(server: EmbeddedKafkaServer, filled: str) -> None:
    first = TopicPartition(filled, 0)
    settings = {"topics": [filled], "group_id": filled, "auto_offset_reset": "earliest"}
    with Consumer(server.bootstrap_servers, **settings) as consumer:  # type: ignore[arg-type]
        assert sorted(consumer.wait_assigned()) == [first, TopicPartition(filled, 1)]
        for record in consumer:
            if record.offset == 41:  # 41 is not processed when the loop ends here
                break
    with Consumer(server.bootstrap_servers, **settings) as consumer:  # type: ignore[arg-type]
        assert next(consumer).offset == 41
        records = consumer.poll(5, timeout=10)
        assert consumer.mark(records)
        assert consumer.commit().refused == {}
        committed = consumer.committed([first])[first]
        assert committed is not None
        assert committed.offset == records[-1].offset + 1
        assert consumer.offsets.owned == {first, TopicPartition(filled, 1)}
        assert consumer.offsets.mark(first, 60)
        assert consumer.offsets.commit().refused == {}
        assert consumer.group_metadata().group_id == filled
        assert consumer.lag()[first] == 100 - consumer.position(first)


def test_a_poll_of_fetched_records_processes_those_of_the_last_one(server: EmbeddedKafkaServer, filled: str) -> None:
    first = TopicPartition(filled, 0)
    settings = {"topics": [filled], "group_id": filled, "auto_offset_reset": "earliest", "auto_commit": False}
    with Consumer(server.bootstrap_servers, **settings) as consumer:  # type: ignore[arg-type]
        assert len(consumer.poll(10, timeout=10)) == 10
        for number in (20, 30):  # all of them are fetched
            assert consumer.poll(10)[-1].offset == number - 1
            assert consumer.commit().refused == {}
            committed = consumer.committed([first])[first]
            assert committed is not None
            assert committed.offset == number - 10, "the program still works on the last ten"
        with pytest.raises(ValueError, match="max_records"):
            consumer.poll(0)
        assert consumer.position(first) == 30, "an argument that is refused takes no record"


def test_partitions_are_read_by_threads_of_their_own(server: EmbeddedKafkaServer, filled: str) -> None:
    with Producer(server.bootstrap_servers) as producer:
        producer.send_many(filled, NUMBERS, partition=1)
    with Consumer(server.bootstrap_servers) as consumer, ThreadPoolExecutor() as threads:
        consumer.assign([TopicPartition(filled, number) for number in (0, 1)])
        consumer.seek_to_beginning()

        def read(number: int) -> list[bytes | None]:
            reader = consumer.partition(filled, number)
            assert reader.topic_partition == (filled, number)
            first = next(reader)
            rest: list[bytes | None] = [first.value]
            while len(rest) < 100:
                rest += [record.value for record in reader.poll(timeout=1)]
            return rest

        assert list(threads.map(read, (0, 1))) == [NUMBERS, NUMBERS]


def test_keys_and_values_are_deserialized(server: EmbeddedKafkaServer, filled: str) -> None:
    with Consumer(server.bootstrap_servers, topics=[filled], value_deserializer=int) as consumer:
        consumer.seek_to_beginning()
        assert sum(next(consumer).value or 0 for _ in range(100)) == sum(range(100))


def test_errors_are_those_of_the_asyncio_client(server: EmbeddedKafkaServer, topic: str) -> None:
    consumer = Consumer(server.bootstrap_servers, allow_auto_create_topics=False)
    for call in (consumer.poll, consumer.lag, lambda: next(consumer), lambda: iter(consumer)):
        with pytest.raises(IllegalStateError, match="is not started: use it in 'with'"):
            call()
    with consumer:
        with pytest.raises(IllegalStateError, match="there is nothing to read"):
            consumer.poll()
        with pytest.raises(IllegalStateError, match="no group_id"):
            consumer.commit()
        with pytest.raises(ValueError, match="max_records"):
            consumer.poll(0)
        with pytest.raises(UnknownTopic):
            consumer.partitions_for("no-topic-of-this-name", timeout=0.5)
    for call in (consumer.poll, consumer.lag, lambda: iter(consumer.batches())):
        with pytest.raises(IllegalStateError, match="is closed"):
            call()
    with pytest.raises(ConfigurationError, match="must be a list"):
        Consumer(server.bootstrap_servers, topics=topic)  # type: ignore[arg-type]
    with pytest.raises(KafkaTimeout):
        Consumer("127.0.0.1:1", topics=[topic]).start(timeout=0.1)
