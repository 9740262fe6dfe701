"""`EmbeddedKafkaServer`: a cluster in a thread of its own, for code that blocks."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Consumer, Producer

from aiokafka_lite.embedded import Refused
from aiokafka_lite.errors import ErrorCode, IllegalStateError
from aiokafka_lite.testing.server import EmbeddedKafkaServer


def test_a_blocking_client_in_the_same_thread_writes_and_reads() -> None:
    with EmbeddedKafkaServer() as server:
        server.create_topic("orders")
        producer = Producer({"bootstrap.servers": server.bootstrap_servers})
        producer.produce("orders", b"two coffees")
        assert producer.flush(30) == 0
        assert [record.value for record in server.records("orders")] == [b"two coffees"]
        server.produce("orders", "a cake")
        consumer = Consumer(
            {"bootstrap.servers": server.bootstrap_servers, "group.id": "billing", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        read = consumer.consume(2, timeout=30)
        consumer.close()
    assert [message.value() for message in read] == [b"two coffees", b"a cake"]


def test_call_runs_functions_and_coroutine_functions_in_the_loop_of_the_cluster() -> None:
    with EmbeddedKafkaServer(brokers=2) as server:
        server.create_topic("orders", replication_factor=2)
        before = server.call(server.cluster.leader_of, "orders", 0)
        server.call(server.cluster.stop, before)
        assert server.call(server.cluster.leader_of, "orders", 0) not in {before, -1}


def test_an_error_of_the_cluster_reaches_the_caller() -> None:
    with EmbeddedKafkaServer() as server, pytest.raises(Refused) as refused:
        server.records("misspelled")
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_synchronous_test_waits_for_the_records_of_its_program() -> None:
    with EmbeddedKafkaServer() as server:
        threading.Timer(0.05, server.produce, ["bills", "two coffees"]).start()
        assert [record.value for record in server.wait_for_records("bills", timeout=30.0)] == [b"two coffees"]


def test_no_thread_is_left_at_the_end() -> None:
    before = set(threading.enumerate())
    with EmbeddedKafkaServer() as server:
        server.create_topic("orders")
    assert set(threading.enumerate()) <= before


def test_a_server_that_does_not_run_says_so() -> None:
    server = EmbeddedKafkaServer()
    with pytest.raises(IllegalStateError, match="does not run; use it in 'with'"):
        server.produce("orders", b"two coffees")
