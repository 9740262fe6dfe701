"""``blocking.Producer``: its calls are those of the asyncio producer, without await."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import threading
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor, as_completed

import pytest

from aiokafka_lite import RecordMetadata, TopicPartition
from aiokafka_lite.blocking import Consumer, Delivery, Producer
from aiokafka_lite.compiled import COMPILED
from aiokafka_lite.errors import (
    BufferFull,
    ConfigurationError,
    IllegalStateError,
    InvalidTopic,
    KafkaTimeout,
    RecordTooLarge,
    SerializationError,
)
from aiokafka_lite.testing.server import EmbeddedKafkaServer


def values_of(server: EmbeddedKafkaServer, topic: str) -> list[bytes | None]:
    return [record.value for record in server.records(topic)]


def test_a_record_is_sent_when_send_returns(server: EmbeddedKafkaServer, topic: str) -> None:
    with Producer(server.bootstrap_servers) as producer:
        metadata = producer.send(topic, b"one", key=b"k", headers=[("h", b"1")], partition=1, timestamp=17)
        (record,) = server.records(topic, 1)
    assert metadata[:4] == (topic, 1, 0, 17)
    assert (record.value, record.key, record.headers) == (b"one", b"k", (("h", b"1"),))


def test_many_records_are_sent_in_one_call(server: EmbeddedKafkaServer, topic: str) -> None:
    with Producer(server.bootstrap_servers) as producer:
        results = producer.send_many(topic, [b"one", b"two", b"x" * 2_000_000], partition=0)
    assert [type(result) for result in results] == [RecordMetadata, RecordMetadata, RecordTooLarge]
    assert values_of(server, topic) == [b"one", b"two"]


def test_deliveries_report_what_was_written(server: EmbeddedKafkaServer, topic: str) -> None:
    with Producer(server.bootstrap_servers) as producer:
        deliveries = [producer.send_nowait(topic, b"%d" % number, partition=0) for number in range(3000)]
        assert [delivery.wait().offset for delivery in deliveries] == list(range(3000))
        assert all(delivery.done() for delivery in deliveries)
        assert [delivery.result().offset for delivery in deliveries] == list(range(3000))
        assert deliveries[0].exception() is None
        assert [future.result().partition for future in as_completed(d.future() for d in deliveries)] == [0] * 3000
    assert values_of(server, topic) == [b"%d" % number for number in range(3000)]


def test_a_delivery_that_is_open_says_so(server: EmbeddedKafkaServer, topic: str) -> None:
    with Producer(server.bootstrap_servers, linger=100) as producer:
        delivery = producer.send_nowait(topic, b"one")
        assert not delivery.done()
        with pytest.raises(IllegalStateError, match=r"not settled yet: call wait\(\)"):
            delivery.result()
        with pytest.raises(IllegalStateError, match="not settled"):
            delivery.exception()
        with pytest.raises(KafkaTimeout, match=r"was not settled within timeout=0\.05 s"):
            delivery.wait(timeout=0.05)
        # Compiled code checks the type before the method runs.
        error, text = (TypeError, "float") if COMPILED else (ConfigurationError, "timeout")
        with pytest.raises(error, match=text):
            delivery.wait(timeout="soon")  # type: ignore[arg-type]
        producer.flush()
        assert delivery.result().offset == 0


def test_callbacks_get_the_metadata_or_the_error_in_the_order_of_the_records(
    server: EmbeddedKafkaServer, topic: str
) -> None:
    reports: list[object] = []
    with Producer(server.bootstrap_servers, max_block=0.2) as producer:
        for value in (b"one", b"x" * 2_000_000, b"three"):
            producer.send_nowait(topic, value, partition=0).report(
                lambda metadata, error: reports.append(type(error) if error else metadata.offset)
            )
        producer.flush()
        late = producer.send_nowait(topic, b"four", partition=0)
        late.wait()
        done = threading.Event()
        late.report(lambda metadata, error: done.set())  # it is settled already
        assert done.wait(10)
    assert sorted(map(str, reports)) == ["0", "1", str(RecordTooLarge)]


def test_a_callback_runs_in_the_context_of_its_thread_and_may_send(server: EmbeddedKafkaServer, topic: str) -> None:
    request = contextvars.ContextVar("request", default="none")
    seen: list[str] = []

    with Producer(server.bootstrap_servers) as producer:

        def send_again(metadata: RecordMetadata, error: Exception | None) -> None:
            seen.append(request.get())
            producer.send_nowait(topic, b"again", partition=0)

        request.set("42")
        producer.send_nowait(topic, b"first", partition=0).report(send_again)
        producer.flush()
    assert seen == ["42"]
    assert values_of(server, topic) == [b"first", b"again"]


@pytest.mark.parametrize("has_variables", [False, True])
def test_a_callback_does_not_see_what_another_one_sets(
    server: EmbeddedKafkaServer, topic: str, has_variables: bool
) -> None:
    count = contextvars.ContextVar("count", default=0)
    seen: list[int] = []

    def add(metadata: RecordMetadata, error: Exception | None) -> None:
        seen.append(count.get())
        count.set(count.get() + 1)

    def send() -> None:
        if has_variables:
            count.set(5)
        with Producer(server.bootstrap_servers) as producer:
            for _ in range(3):
                delivery = producer.send_nowait(topic, b"one")
                delivery.report(add)
                delivery.report(add)
            producer.flush()

    contextvars.Context().run(send)
    assert seen == [5 if has_variables else 0] * 6


def test_a_settled_delivery_does_not_keep_its_callback(server: EmbeddedKafkaServer, topic: str) -> None:
    class Order:
        def __init__(self, delivery: Delivery) -> None:
            self.delivery = delivery

        def sent(self, metadata: RecordMetadata, error: Exception | None) -> None:
            pass

    with Producer(server.bootstrap_servers) as producer:
        order = Order(producer.send_nowait(topic, b"one"))
        order.delivery.report(order.sent)
        order.delivery.report(order.sent)
        kept = weakref.ref(order)
        gc.disable()  # it would free the cycle of the order, its delivery and the callbacks
        try:
            producer.flush()
            del order
            producer.send(topic, b"the loop turns")
            assert kept() is None
        finally:
            gc.enable()


def test_a_callback_that_waits_is_refused_and_logged(
    server: EmbeddedKafkaServer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Producer(server.bootstrap_servers) as producer:
        producer.send_nowait(topic, b"one").report(lambda metadata, error: producer.flush())
        producer.flush()
        producer.send(topic, b"the loop turns")
    assert "made in a callback, which runs in this loop" in caplog.text


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt()])
def test_functions_that_end_the_program_do_not_end_the_loop(
    server: EmbeddedKafkaServer, topic: str, caplog: pytest.LogCaptureFixture, raised: BaseException
) -> None:
    def end(value: object, error: object = None) -> bytes:
        raise raised

    reports: list[int] = []
    with Producer(server.bootstrap_servers) as producer, Producer(server.bootstrap_servers) as other:
        with Producer(server.bootstrap_servers, value_serializer=end) as ending:
            with pytest.raises(type(raised)):
                ending.send(topic, 1)
            deliveries = [ending.send_nowait(topic, value) for value in (1, 2)]
            for delivery in deliveries:
                with pytest.raises(IllegalStateError, match=type(raised).__name__):
                    delivery.wait(5)
        deliveries = [producer.send_nowait(topic, b"", partition=0) for _ in range(2)]
        deliveries[0].report(end)
        deliveries[1].report(lambda metadata, error: reports.append(metadata.offset))
        producer.flush()
        assert other.send(topic, b"", partition=0).offset == 2
    assert reports == [1]
    assert (
        "the callback test_functions_that_end_the_program_do_not_end_the_loop.<locals>.end of Delivery.report failed"
        in caplog.text
    )


def test_a_close_in_a_callback_leaves_the_producer_open(server: EmbeddedKafkaServer, topic: str) -> None:
    refused: list[str] = []

    with Producer(server.bootstrap_servers) as producer:

        def close(metadata: RecordMetadata, error: Exception | None) -> None:
            with pytest.raises(IllegalStateError) as raised:
                producer.close()
            refused.append(str(raised.value))

        producer.send_nowait(topic, b"one", partition=0).report(close)
        producer.flush()
        producer.send_nowait(topic, b"two", partition=0)
    assert "made in a callback" in refused[0]
    assert values_of(server, topic) == [b"one", b"two"]


def test_records_of_all_kinds_of_calls_keep_the_order_of_a_thread(server: EmbeddedKafkaServer, topic: str) -> None:
    with Producer(server.bootstrap_servers) as producer:
        for number in range(0, 400, 4):
            producer.send_nowait(topic, b"%d" % number, partition=0)
            producer.put(topic, b"%d" % (number + 1), partition=0)
            producer.send_nowait(topic, b"%d" % (number + 2), partition=0)
            producer.send(topic, b"%d" % (number + 3), partition=0)
    assert values_of(server, topic) == [b"%d" % number for number in range(400)]


def test_wrong_records_raise_the_errors_of_the_asyncio_client(server: EmbeddedKafkaServer, topic: str) -> None:
    with Producer(server.bootstrap_servers, max_block=0.2) as producer:
        for error, name, value in [
            (InvalidTopic, "a/b", b""),
            (RecordTooLarge, topic, b"x" * 2_000_000),
            (SerializationError, topic, 5),
        ]:
            with pytest.raises(error):
                producer.send(name, value)  # type: ignore[arg-type]
            with pytest.raises(error):
                producer.send_nowait(name, value).wait()  # type: ignore[arg-type]


def test_a_full_buffer_refuses_records_and_loses_none(server: EmbeddedKafkaServer, topic: str) -> None:
    with Producer(server.bootstrap_servers, buffer_memory=100_000, linger=100, batch_size=90_000) as producer:
        accepted = 0
        with pytest.raises(BufferFull, match=r"use put\(\.\.\.\), which waits"):
            while accepted < 1_000_000:
                producer.send_nowait(topic, b"x" * 1000, partition=0)
                accepted += 1
        producer.flush()
    assert len(server.records(topic)) == accepted


def test_serializers_run_for_records_without_waiting_too(server: EmbeddedKafkaServer, topic: str) -> None:
    async def slow(value: int) -> bytes:
        await asyncio.sleep(0)
        return b"%d" % value

    with Producer(server.bootstrap_servers, value_serializer=slow) as producer:
        for number in range(100):
            producer.send_nowait(topic, number, partition=0)
    assert values_of(server, topic) == [b"%d" % number for number in range(100)]

    with Producer(server.bootstrap_servers, value_serializer=lambda value: json.dumps(value).encode()) as producer:
        assert producer.send(topic, {"a": 1}, partition=0).offset == 100


def test_a_transaction_commits_or_aborts_with_its_body(server: EmbeddedKafkaServer, topic: str) -> None:
    with Producer(server.bootstrap_servers, transactional_id=topic) as producer:
        with producer.transaction() as transaction:
            transaction.send(topic, b"one", partition=0)
            transaction.send_nowait(topic, b"two", partition=0)
        with pytest.raises(RuntimeError, match="failed"), producer.transaction() as transaction:
            transaction.send_nowait(topic, b"three", partition=0)
            raise RuntimeError("failed")
        with pytest.raises(IllegalStateError):
            transaction.send(topic, b"four")
        producer.begin_transaction()
        producer.send_nowait(topic, b"five", partition=0)
        producer.commit_transaction()
        with pytest.raises(RecordTooLarge), producer.transaction() as transaction:
            transaction.send_nowait(topic, b"six", partition=0)
            transaction.send(topic, b"x" * 2_000_000)
    with Consumer(server.bootstrap_servers, isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        assert [next(consumer).value for _ in range(3)] == [b"one", b"two", b"five"]


def test_errors_about_transactions_are_in_the_words_of_threads(server: EmbeddedKafkaServer, topic: str) -> None:
    with Producer(server.bootstrap_servers, transactional_id=topic) as producer:
        with producer.transaction() as transaction:
            pass
        for call in (
            lambda: transaction.send(topic, b""),
            lambda: transaction.send_nowait(topic, b"").wait(),
            lambda: producer.send(topic, b""),
            lambda: producer.send_nowait(topic, b"").wait(),
        ):
            with pytest.raises(IllegalStateError, match=r"inside (its )?'with") as raised:
                call()
            assert "async" not in str(raised.value)


def test_many_threads_share_a_producer(server: EmbeddedKafkaServer, topic: str) -> None:
    with Producer(server.bootstrap_servers) as producer, ThreadPoolExecutor(20) as threads:

        def work(thread: int) -> None:
            for number in range(50):
                producer.send_nowait(topic, b"%d-%d" % (thread, number), partition=0)
                if number % 10 == 0:
                    producer.send(topic, b"%d-sent" % thread, partition=1)
                    producer.health()

        for done in [threads.submit(work, thread) for thread in range(20)]:
            done.result()
    values = [value.split(b"-") for value in values_of(server, topic) if value is not None]
    for thread in range(20):
        numbers = [number for of, number in values if of == b"%d" % thread and number != b"sent"]
        assert numbers == [b"%d" % number for number in range(50)]


def test_a_closed_producer_and_one_that_is_not_started_are_refused(server: EmbeddedKafkaServer, topic: str) -> None:
    producer = Producer(server.bootstrap_servers)
    for call in (lambda: producer.send(topic, b""), lambda: producer.send_nowait(topic, b""), producer.flush):
        with pytest.raises(IllegalStateError, match="is not started: use it in 'with'"):
            call()
    producer.start()
    delivery = producer.send_nowait(topic, b"one")
    with pytest.raises(IllegalStateError, match="is started already"):
        producer.start()
    producer.close()
    producer.close()
    assert delivery.result().topic == topic
    for call in (lambda: producer.send(topic, b""), lambda: producer.send_nowait(topic, b""), producer.flush):
        with pytest.raises(IllegalStateError, match="is closed"):
            call()
    with pytest.raises(IllegalStateError, match="cannot be started again"):
        producer.start()


def test_an_error_of_the_body_leaves_the_producer_closed(server: EmbeddedKafkaServer, topic: str) -> None:
    with pytest.raises(ZeroDivisionError), Producer(server.bootstrap_servers) as producer:
        producer.send_nowait(topic, b"one")
        raise ZeroDivisionError
    assert values_of(server, topic) == [b"one"]
    assert producer.state.name == "CLOSED"


async def test_a_call_in_a_running_loop_names_the_asyncio_class(server: EmbeddedKafkaServer, topic: str) -> None:
    producer = Producer(server.bootstrap_servers)
    with pytest.raises(IllegalStateError, match=r"use aiokafka_lite\.Producer, with await"):
        producer.start()
    await asyncio.to_thread(producer.start)
    with pytest.raises(IllegalStateError, match=r"use aiokafka_lite\.Producer, with await"):
        producer.send_nowait(topic, b"one")
    delivery = await asyncio.to_thread(producer.send_nowait, topic, b"one")
    with pytest.raises(IllegalStateError, match="use the clients of aiokafka_lite itself, with await"):
        delivery.wait()
    await asyncio.to_thread(producer.close)


def test_a_producer_that_is_dropped_is_closed_and_its_records_are_sent(server: EmbeddedKafkaServer, topic: str) -> None:
    producer = Producer(server.bootstrap_servers, linger=100)
    producer.start()
    producer.send_nowait(topic, b"one")
    with pytest.warns(ResourceWarning, match=r"unclosed Producer: use it in 'with', or call its close\(\)"):
        del producer
    assert server.wait_for_records(topic)[0].value == b"one"


def test_settings_are_checked_as_by_the_asyncio_class() -> None:
    with pytest.raises(ConfigurationError, match="linger must be"):
        Producer("localhost:9092", linger=-1)
    with pytest.raises(ConfigurationError, match="lingering"), warnings.catch_warnings():
        Producer("localhost:9092", lingering=1)  # type: ignore[call-arg]


def test_a_start_without_brokers_times_out_and_leaves_nothing() -> None:
    producer = Producer("127.0.0.1:1")
    with pytest.raises(KafkaTimeout):
        producer.start(timeout=0.2)
    with pytest.raises(IllegalStateError, match="is closed"):
        producer.send("topic", b"")
