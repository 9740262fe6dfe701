"""Programs as they are in aiokafka's documentation: both libraries print the same."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from aiokafka_lite import EmbeddedCluster
from aiokafka_lite.embedded import Security
from tests.waiting import DEADLINE

SETTINGS: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}


async def test_objects_are_serialized_and_a_partitioner_chooses(library: Any, cluster: EmbeddedCluster) -> None:
    def by_length(key: bytes, all_partitions: list[int], available: list[int]) -> int:
        assert sorted(all_partitions) == sorted(available) == [0, 1]
        return len(key) % len(all_partitions)

    servers = cluster.bootstrap_servers
    producer = library.AIOKafkaProducer(
        bootstrap_servers=servers,
        key_serializer=str.encode,
        value_serializer=lambda value: None if value is None else json.dumps(value).encode(),
        partitioner=by_length,
        compression_type="lz4",
    )
    async with producer:
        for key, value in (("a", [1]), ("bb", {"x": 2}), ("a", None)):
            await producer.send_and_wait("orders", value, key=key)
    consumer = library.AIOKafkaConsumer(
        "orders",
        bootstrap_servers=servers,
        key_deserializer=bytes.decode,
        value_deserializer=lambda value: None if value is None else json.loads(value),
        **SETTINGS,
    )
    async with consumer, asyncio.timeout(DEADLINE):
        records = [await consumer.getone() for _ in range(3)]
    fields = sorted((record.partition, record.offset, record.key, record.value) for record in records)
    assert fields == [(0, 0, "bb", {"x": 2}), (1, 0, "a", [1]), (1, 1, "a", None)]


async def test_local_state_is_kept_with_its_offsets(library: Any, cluster: EmbeddedCluster) -> None:
    """A member counts keys. The state of a partition is stored when it is revoked, and loaded when it is assigned."""
    stored: dict[Any, tuple[int, Counter[bytes]]] = {}
    servers = cluster.bootstrap_servers

    async def count(until: int) -> None:
        state: dict[Any, Counter[bytes]] = {}
        consumer = library.AIOKafkaConsumer(bootstrap_servers=servers, group_id="counts", **SETTINGS)

        class Listener(library.ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_revoked(self, revoked: set[Any]) -> None:
                for partition in revoked:
                    stored[partition] = await consumer.position(partition), state[partition]

            async def on_partitions_assigned(self, assigned: set[Any]) -> None:
                for partition in assigned:
                    offset, state[partition] = stored.get(partition, (0, Counter()))
                    if offset:
                        consumer.seek(partition, offset)
                    else:
                        await consumer.seek_to_beginning(partition)

        await consumer.start()
        consumer.subscribe(["orders"], listener=Listener())
        async with asyncio.timeout(DEADLINE):
            while sum(counter.total() for counter in state.values()) < until:
                for partition, records in (await consumer.getmany(timeout_ms=100)).items():
                    state[partition].update(record.key for record in records)
        for partition in consumer.assignment():
            stored[partition] = await consumer.position(partition), state[partition]
        await consumer.stop()

    async with library.AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for half in (1, 2):
            for number in range(10):
                await producer.send_and_wait("orders", b"v", key=b"%d" % (number % 3), partition=number % 2)
            await count(10 * half)
    assert {partition.partition: offset for partition, (offset, _) in stored.items()} == {0: 10, 1: 10}
    assert sum((counter for _, counter in stored.values()), Counter()) == {b"0": 8, b"1": 6, b"2": 6}


async def test_records_are_processed_in_transactions(library: Any, cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("bills", 1)
    servers = cluster.bootstrap_servers
    async with library.AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for number in range(8):
            await producer.send_and_wait("orders", b"%d" % number, partition=number % 2)
    consumer = library.AIOKafkaConsumer("orders", bootstrap_servers=servers, group_id="billing", **SETTINGS)
    producer = library.AIOKafkaProducer(bootstrap_servers=servers, transactional_id="billing-1")
    done = attempts = 0
    async with consumer, producer, asyncio.timeout(DEADLINE):
        for partition in consumer.assignment():
            await consumer.commit({partition: 1})
        await consumer.seek_to_committed()
        while done < 6:
            batches = await consumer.getmany(timeout_ms=100, max_records=2)
            attempts += bool(batches)
            try:
                async with producer.transaction():
                    for records in batches.values():
                        for record in records:
                            await producer.send("bills", record.value)
                    offsets = {partition: records[-1].offset + 1 for partition, records in batches.items()}
                    if offsets:
                        await producer.send_offsets_to_transaction(offsets, "billing")
                    if attempts == 1 and batches:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                await consumer.seek_to_committed()
                continue
            done += sum(map(len, batches.values()))
    reader = library.AIOKafkaConsumer(
        "bills", bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    async with reader, asyncio.timeout(DEADLINE):
        bills = [(await reader.getone()).value for _ in range(6)]
        assert sorted(bills) == [b"2", b"3", b"4", b"5", b"6", b"7"]
        assert await reader.getmany(timeout_ms=0) == {}


async def test_the_lag_is_the_distance_to_the_end(library: Any, cluster: EmbeddedCluster) -> None:
    servers = cluster.bootstrap_servers
    partition = library.TopicPartition("orders", 0)
    async with library.AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for _ in range(5):
            await producer.send_and_wait("orders", b"v", partition=0)
    consumer = library.AIOKafkaConsumer("orders", bootstrap_servers=servers, group_id="billing", **SETTINGS)
    async with consumer, asyncio.timeout(DEADLINE):
        for _ in range(2):
            await consumer.getone()
        await consumer.commit()
        end = (await consumer.end_offsets([partition]))[partition]
        assert end - await consumer.position(partition) == 3
        assert end - await consumer.committed(partition) == 3


async def test_records_go_through_tls_with_a_password(library: Any) -> None:
    async with EmbeddedCluster(security=Security("SASL_SSL", users={"alice": "alice-secret"})) as cluster:
        client_settings = cluster.client_settings()
        settings = {
            "bootstrap_servers": client_settings["bootstrap_servers"],
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": "alice",
            "sasl_plain_password": "alice-secret",
            "ssl_context": library.helpers.create_ssl_context(cafile=client_settings["ssl_cafile"]),
        }
        async with library.AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait("orders", b"soup")
        async with library.AIOKafkaConsumer("orders", auto_offset_reset="earliest", **settings) as consumer:
            assert (await asyncio.wait_for(consumer.getone(), DEADLINE)).value == b"soup"


async def test_a_record_of_a_batch_has_its_number_its_size_and_its_time(library: Any, cluster: EmbeddedCluster) -> None:
    producer = library.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, max_batch_size=200)
    async with producer:
        batch = producer.create_batch()
        first = batch.append(key=b"k", value=b"v", timestamp=1000)
        second = batch.append(key=None, value=b"x" * 70, timestamp=2000, headers=[("é", b"1"), ("n", None)])
        assert [(metadata.offset, metadata.size, metadata.timestamp, metadata.crc) for metadata in (first, second)] == [
            (0, 9, 1000, None),
            (1, 88, 2000, None),
        ]
        assert batch.append(key=None, value=b"x" * 33, timestamp=0) is not None
        assert (batch.size(), batch.record_count(), batch.closed()) == (199, 3, False)
        assert batch.append(key=None, value=b"", timestamp=0) is None
        assert batch.closed()
        await (await producer.send_batch(batch, "orders", partition=0))
    written = cluster.records("orders", 0)
    assert [record.timestamp for record in written] == [1000, 2000, 0]


async def test_an_exception_of_a_partitioner_is_raised_by_the_send(library: Any, cluster: EmbeddedCluster) -> None:
    def fail(*_: object) -> int:
        raise LookupError("no partition for this key")

    producer = library.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, partitioner=fail)
    async with producer:
        with pytest.raises(LookupError, match="no partition for this key"):
            await producer.send("orders", b"x")


def test_the_hash_of_a_key_is_an_unsigned_number(library: Any) -> None:
    assert library.partitioner.murmur2(b"21") == 3321034988


async def test_an_exception_of_a_partitioner_keeps_its_cause(library: Any, cluster: EmbeddedCluster) -> None:
    cause = OSError("the table of keys cannot be read")

    def fail(*_: object) -> int:
        raise LookupError("no partition for this key") from cause

    producer = library.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, partitioner=fail)
    async with producer:
        with pytest.raises(LookupError) as caught:
            await producer.send("orders", b"x")
    assert caught.value.__cause__ is cause


def test_an_error_without_arguments_has_a_text(library: Any) -> None:
    assert str(library.errors.NoOffsetForPartitionError()) == "NoOffsetForPartitionError"


async def test_the_partition_without_an_offset_is_in_the_error(library: Any, cluster: EmbeddedCluster) -> None:
    settings = SETTINGS | {"auto_offset_reset": "none"}
    consumer = library.AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id="g", **settings)
    partition = library.TopicPartition("orders", 1)
    consumer.assign([partition])
    async with consumer, asyncio.timeout(DEADLINE):
        with pytest.raises(library.errors.NoOffsetForPartitionError) as caught:
            await consumer.getone()
    assert caught.value.args[0] == partition
    assert str(caught.value).startswith("NoOffsetForPartitionError: ")


async def test_a_record_without_acknowledgement_has_no_metadata(library: Any, cluster: EmbeddedCluster) -> None:
    async with library.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks=0) as producer:
        assert await producer.send_and_wait("orders", b"two coffees") is None
        batch = producer.create_batch()
        batch.append(timestamp=None, key=None, value=b"tea")
        assert await (await producer.send_batch(batch, "orders", partition=0)) is None


async def test_offsets_are_not_committed_before_an_assignment(library: Any, cluster: EmbeddedCluster) -> None:
    async with library.AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(library.errors.IllegalStateError):
            await consumer.commit({library.TopicPartition("orders", 0): 1})


async def test_the_topics_of_assigned_partitions_are_the_subscription(library: Any, cluster: EmbeddedCluster) -> None:
    async with library.AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        assert consumer.subscription() == set()
        partition = library.TopicPartition("orders", 1)
        consumer.assign([partition])
        assert consumer.subscription() == {"orders"}
        assert await consumer.position(partition) == 0


async def test_a_partition_without_a_committed_offset_keeps_its_position(
    library: Any, cluster: EmbeddedCluster
) -> None:
    first, second = (library.TopicPartition("orders", number) for number in range(2))
    for partition in (0, 1):
        for _ in range(3):
            await cluster.produce("orders", b"v", partition=partition)
    consumer = library.AIOKafkaConsumer(
        "orders", bootstrap_servers=cluster.bootstrap_servers, group_id="billing", **SETTINGS
    )
    async with consumer, asyncio.timeout(DEADLINE):
        for _ in range(6):
            await consumer.getone()
        await consumer.commit({first: 1})
        assert await consumer.seek_to_committed() == {first: 1, second: None}
        assert [await consumer.position(partition) for partition in (first, second)] == [1, 3]


async def test_the_state_of_a_transaction_is_checked_before_the_arguments(
    library: Any, cluster: EmbeddedCluster
) -> None:
    servers = cluster.bootstrap_servers
    async with (
        library.AIOKafkaProducer(bootstrap_servers=servers) as plain,
        library.AIOKafkaProducer(bootstrap_servers=servers, transactional_id="billing-1") as producer,
    ):
        for sender in (plain, producer):
            with pytest.raises(library.IllegalOperation):
                await sender.send_offsets_to_transaction({}, group_id=None)
        async with producer.transaction():
            with pytest.raises(ValueError):
                await producer.send_offsets_to_transaction({}, group_id=None)


async def test_a_transaction_whose_begin_is_cancelled_at_once_has_not_begun(
    library: Any, cluster: EmbeddedCluster
) -> None:
    producer = library.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="billing-1")
    async with producer:
        beginning = asyncio.create_task(producer.begin_transaction())
        await asyncio.sleep(0)
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning
        async with producer.transaction():
            await producer.send_and_wait("orders", b"v")
