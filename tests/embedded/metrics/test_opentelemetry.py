"""Metrics and spans, read back with the OpenTelemetry SDK's exporters in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import baggage, context, propagate
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from aiokafka_lite import Consumer, ConsumerGroup, Producer, Record, TopicPartition, Workers
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode, IllegalStateError, KafkaError, SerializationError
from aiokafka_lite.metrics.instruments import INSTRUMENTS
from aiokafka_lite.metrics.opentelemetry import KafkaMeter
from aiokafka_lite.processing import retry
from aiokafka_lite.protocol.messages import ProduceRequest
from aiokafka_lite.tracing import TracingConsumerInterceptor, TracingProducerInterceptor
from tests.embedded.share.billing_consumers import begin_at_the_first_record, share_consumer
from tests.embedded.share.billing_consumers import read as share_read
from tests.waiting import until


def read(reader: InMemoryMetricReader) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the values by the name of the instrument and the values of its attributes."""
    data = reader.get_metrics_data()
    metrics = [metric for group in data.resource_metrics for scope in group.scope_metrics for metric in scope.metrics]
    return {
        metric.name: {tuple(point.attributes.values()): point.value for point in metric.data.data_points}
        for metric in metrics
    }


async def test_instruments_observe_what_the_clients_have_done(producer: Producer, consumer: Consumer) -> None:
    reader = InMemoryMetricReader()
    KafkaMeter(producer, consumer, meter_provider=MeterProvider([reader]))
    first = read(reader)
    assert first["kafka.producer.records.delivered"] == {("shop",): 3}
    assert first["kafka.consumer.partition.records.lag"]["shop-2", "orders", "0"] == 1
    assert first["kafka.consumer.assigned.partitions"] == {("shop-2", "billing"): 2}
    await producer.send("orders", b"4", partition=0)
    assert read(reader)["kafka.producer.records.delivered"] == {("shop",): 4}


async def test_a_blocked_event_loop_delays_a_reading_once_and_not_for_each_instrument(
    producer: Producer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiokafka_lite.metrics.clients.READ_TIMEOUT", 0.01)
    reader = InMemoryMetricReader()
    KafkaMeter(producer, meter_provider=MeterProvider([reader]))
    thread = threading.Thread(target=reader.get_metrics_data)
    thread.start()
    thread.join()  # blocks the event loop
    failed = [record for record in caplog.records if record.message.startswith("Callback failed")]
    assert len(failed) == 1
    assert read(reader)["kafka.producer.records.delivered"] == {("shop",): 3}


def deltas() -> tuple[InMemoryMetricReader, MeterProvider]:
    """Return a reader that gets the increase of each counter since the last reading."""
    reader = InMemoryMetricReader(preferred_temporality={ObservableCounter: AggregationTemporality.DELTA})
    return reader, MeterProvider([reader])


def fallen(values: dict[str, dict[tuple[str, ...], float]]) -> list[str]:
    counters = {instrument.opentelemetry_name for instrument in INSTRUMENTS if instrument.is_counter}
    return [name for name, points in values.items() if name in counters and min(points.values(), default=0) < 0]


async def test_a_counter_continues_when_a_client_is_made_again_under_its_name(cluster: EmbeddedCluster) -> None:
    reader, provider = deltas()
    meter = KafkaMeter(meter_provider=provider)
    sent = []
    for count in (5, 2, 7):
        async with Producer(cluster.bootstrap_servers, client_id="shop", connector=cluster.connector) as producer:
            meter.add(producer)
            await producer.send_many("orders", [b"x"] * count)
            values = read(reader)
            assert not fallen(values)
            sent.append(values["kafka.producer.records.delivered"]["shop",])
            await producer.send("orders", b"not read before the end")
        meter.remove(producer)
    assert sent == [5, 1 + 2, 1 + 7]


async def test_a_client_that_is_removed_and_added_again_is_not_counted_twice(producer: Producer) -> None:
    reader, provider = deltas()
    meter = KafkaMeter(producer, meter_provider=provider)
    first = read(reader)["kafka.producer.records.delivered"]["shop",]
    meter.remove(producer)
    meter.add(producer)
    assert (first, read(reader)["kafka.producer.records.delivered"]["shop",]) == (3, 0)


async def test_a_partition_that_returns_after_a_rebalance_counts_on(
    cluster: EmbeddedCluster, consumer: Consumer, producer: Producer
) -> None:
    reader, provider = deltas()
    KafkaMeter(consumer, meter_provider=provider)
    first = "shop", "orders", "0"
    assert read(reader)["kafka.consumer.partition.records.consumed"][first] == 2
    consumer.subscribe([])
    await until(lambda: not consumer.assignment)
    assert "kafka.consumer.partition.records.consumed" not in read(reader)
    consumer.subscribe(["orders"])
    assert len(await consumer.poll(1, timeout=30.0)) == 1
    values = read(reader)
    assert values["kafka.consumer.partition.records.consumed"][first] == 1
    assert not fallen(values)
    partitions = consumer.metrics().partitions
    assert consumer.metrics().records_consumed == partitions[TopicPartition("orders", 0)].records_consumed == 3


async def test_a_second_meter_of_a_provider_is_refused(producer: Producer, consumer: Consumer) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    meter = KafkaMeter(producer, meter_provider=provider)
    with pytest.raises(IllegalStateError, match=r"has a KafkaMeter already.*meter\.add\(client\)"):
        KafkaMeter(consumer, meter_provider=provider)
    meter.add(consumer)
    assert read(reader)["kafka.consumer.assigned.partitions"] == {("shop-2", "billing"): 2}


def test_a_meter_of_another_event_loop_continues_the_counters_of_a_closed_one() -> None:
    reader, provider = deltas()

    async def program(count: int) -> dict[str, dict[tuple[str, ...], float]]:
        async with (
            EmbeddedCluster() as cluster,
            Producer(cluster.bootstrap_servers, client_id="shop", connector=cluster.connector) as producer,
        ):
            KafkaMeter(producer, meter_provider=provider)
            await producer.send_many("orders", [b"x"] * count)
            return read(reader)

    for count in (5, 2, 7):
        values = asyncio.run(program(count))
        assert values["kafka.producer.records.delivered"] == {("shop",): count}
        assert not fallen(values)


class Traces:
    """Interceptors whose spans stay in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("tests")
        self.producer = TracingProducerInterceptor(tracer_provider=provider, client_id="shop")
        self.consumer = TracingConsumerInterceptor(tracer_provider=provider, group_id="billing")

    @property
    def finished(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.finished if span.name == name]


@pytest.fixture
def traces() -> Traces:
    return Traces()


@contextmanager
def attached(to: context.Context) -> Iterator[None]:
    token = context.attach(to)
    try:
        yield
    finally:
        context.detach(token)


def producer_of(cluster: EmbeddedCluster, traces: Traces) -> Producer:
    return Producer(cluster.bootstrap_servers, connector=cluster.connector, interceptors=[traces.producer])


def consumer_of(cluster: EmbeddedCluster, traces: Traces, **settings: Any) -> Consumer:
    interceptors = [traces.consumer]
    return Consumer(
        cluster.bootstrap_servers, topics=["orders"], connector=cluster.connector, interceptors=interceptors, **settings
    )


async def test_the_work_on_a_record_belongs_to_the_trace_of_its_sender(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    async with producer_of(cluster, traces) as producer:
        with traces.tracer.start_as_current_span("request") as request:
            await producer.send("orders", b"1", key=b"alice", partition=0, headers={"origin": b"web"})
    async with consumer_of(cluster, traces) as consumer:
        record = await anext(consumer)
        with pytest.raises(ValueError, match="no such customer"), traces.consumer.process(record):
            raise ValueError("no such customer")
    (sent,), (processed,) = traces.named("send orders"), traces.named("process orders")
    assert [header.key for header in record.headers] == ["origin", "traceparent"]
    assert sent.parent is not None
    assert sent.parent.span_id == request.get_span_context().span_id
    assert sent.kind is SpanKind.PRODUCER
    assert dict(sent.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.client.id": "shop",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.message.key": "alice",
        "messaging.kafka.offset": 0,
    }
    assert processed.parent is not None
    assert processed.parent.span_id == sent.get_span_context().span_id
    assert processed.get_span_context().trace_id == request.get_span_context().trace_id
    assert processed.status.status_code is StatusCode.ERROR
    assert dict(processed.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "billing",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.message.key": "alice",
        "messaging.kafka.offset": 0,
        "error.type": "ValueError",
    }


@pytest.mark.parametrize("as_list", [False, True], ids=["a record", "a list of one"])
async def test_the_baggage_of_a_record_is_set_while_it_is_processed(
    cluster: EmbeddedCluster, traces: Traces, as_list: bool
) -> None:
    async with producer_of(cluster, traces) as producer:
        with attached(baggage.set_baggage("tenant", "acme")):
            await producer.send("orders", b"1", partition=0)
        async with consumer_of(cluster, traces) as consumer:
            record = await anext(consumer)
            with attached(baggage.set_baggage("region", "north")):
                with traces.consumer.process([record] if as_list else record) as span:
                    assert baggage.get_all() == {"region": "north", "tenant": "acme"}
                    assert get_current_span() is span
                    await producer.send("bills", b"2")
                assert baggage.get_all() == {"region": "north"}
    (bill,) = cluster.records("bills")
    assert {header.key for header in bill.headers} == {"traceparent", "baggage"}


async def test_a_record_of_a_share_group_is_processed_in_its_trace(cluster: EmbeddedCluster, traces: Traces) -> None:
    await begin_at_the_first_record(cluster)
    async with producer_of(cluster, traces) as producer:
        await producer.send("orders", b"1")
    async with share_consumer(cluster) as consumer:
        with traces.consumer.process((await share_read(consumer, 1))[0]):
            pass
    (sent,), (processed,) = traces.named("send orders"), traces.named("process orders")
    assert processed.parent is not None
    assert processed.parent.span_id == sent.get_span_context().span_id


async def test_an_attempt_that_is_cancelled_is_an_error_of_its_span(cluster: EmbeddedCluster, traces: Traces) -> None:
    await cluster.produce("orders", b"1")
    calls = 0

    async def handle(record: Record[Any, Any]) -> None:
        nonlocal calls
        calls += 1
        with traces.consumer.process(record):
            await asyncio.sleep(60 if calls == 1 else 0)

    group = ConsumerGroup(cluster.bootstrap_servers, group_id="billing", connector=cluster.connector)
    task = asyncio.create_task(
        group.consume(["orders"], Workers(handle, rules=[retry(attempts=2, backoff=0.0)], timeout=0.01))
    )
    await until(lambda: len(traces.named("process orders")) == 2)
    await group.close()
    await task
    statuses = [
        (span.status.status_code, (span.attributes or {}).get("error.type"))
        for span in sorted(traces.named("process orders"), key=lambda span: span.start_time or 0)
    ]
    assert statuses == [(StatusCode.ERROR, "CancelledError"), (StatusCode.UNSET, None)]


def test_a_generator_that_is_closed_is_no_error_of_its_span(traces: Traces) -> None:
    def work() -> Iterator[None]:
        with traces.consumer.process([]):
            yield

    generator = work()
    next(generator)
    generator.close()  # type: ignore[attr-defined]
    (span,) = traces.named("process")
    assert span.status.status_code is StatusCode.UNSET


async def test_a_read_of_many_records_is_one_span_with_a_link_to_each(cluster: EmbeddedCluster, traces: Traces) -> None:
    async with producer_of(cluster, traces) as producer:
        await producer.send_many("orders", [b"1", None, b"3"], partition=0)
    async with consumer_of(cluster, traces) as consumer:
        records = await consumer.poll(timeout=30.0)
        with traces.tracer.start_as_current_span("job") as job, traces.consumer.process(records):
            pass
    sent = [span.get_span_context().span_id for span in traces.named("send orders")]
    (polled,), (processed,) = traces.named("poll orders"), traces.named("process orders")
    for span in (polled, processed):
        assert (span.attributes or {})["messaging.batch.message_count"] == 3
        assert [link.context.span_id for link in span.links] == sent
        assert [dict(link.attributes or {}) for link in span.links] == [
            {"messaging.destination.partition.id": "0", "messaging.kafka.offset": 0},
            {
                "messaging.destination.partition.id": "0",
                "messaging.kafka.offset": 1,
                "messaging.kafka.message.tombstone": True,
            },
            {"messaging.destination.partition.id": "0", "messaging.kafka.offset": 2},
        ]
    assert processed.parent is not None
    assert processed.parent.span_id == job.get_span_context().span_id


async def test_a_record_without_a_context_begins_a_trace(
    cluster: EmbeddedCluster, producer: Producer, traces: Traces
) -> None:
    async with consumer_of(cluster, traces) as consumer:
        with traces.consumer.process(await anext(consumer)):
            pass
    (processed,) = traces.named("process orders")
    assert processed.parent is None
    assert not processed.links


async def test_a_context_that_a_record_has_already_is_replaced(cluster: EmbeddedCluster, traces: Traces) -> None:
    async with producer_of(cluster, traces) as producer:
        await producer.send("orders", b"1", headers=[("traceparent", b"old"), ("traceparent", b"older")])
    async with consumer_of(cluster, traces) as consumer:
        (header,) = (await anext(consumer)).headers
    assert header.key == "traceparent"
    assert header.value is not None
    assert header.value.startswith(b"00-")


async def test_the_span_of_a_record_ends_with_its_acknowledgement(cluster: EmbeddedCluster, traces: Traces) -> None:
    async with producer_of(cluster, traces) as producer:
        await producer.partitions_for("orders")
        delivery = producer.send_nowait("orders", b"1", partition=1)
        assert not traces.named("send orders")
        await delivery
    (span,) = traces.named("send orders")
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        ({"value": b"1"}, "TOPIC_AUTHORIZATION_FAILED"),
        ({"value": 5}, "SerializationError"),
        ({"value": b"1" * 2_000_000}, "MESSAGE_TOO_LARGE"),
    ],
    ids=["from the broker", "from the serializer", "from the producer"],
)
async def test_a_record_that_fails_ends_its_span_with_the_error(
    cluster: EmbeddedCluster, traces: Traces, sent: dict[str, Any], kind: str
) -> None:
    cluster.on(ProduceRequest).fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    async with producer_of(cluster, traces) as producer:
        with pytest.raises(KafkaError) as raised:
            await producer.send("orders", **sent)
    (span,) = traces.named("send orders")
    assert (span.attributes or {})["error.type"] == kind
    assert span.status.status_code is StatusCode.ERROR
    assert [dict(event.attributes or {})["exception.message"] for event in span.events] == [str(raised.value)]


async def test_headers_of_an_iterator_that_raises_fail_their_own_record(
    cluster: EmbeddedCluster, traces: Traces, caplog: pytest.LogCaptureFixture
) -> None:
    def headers() -> Iterator[tuple[str, bytes]]:
        yield ("a", b"1")
        raise ValueError("own")

    async with producer_of(cluster, traces) as producer:
        with pytest.raises(SerializationError, match="own"):
            await producer.send("orders", b"1", headers=headers())
        await producer.send("orders", b"2", headers=iter([("a", b"1")]))
    (record,) = cluster.records("orders")
    assert [header.key for header in record.headers] == ["a", "traceparent"]
    assert not caplog.records


@pytest.fixture
def no_propagator() -> Iterator[None]:
    """The program propagates no context."""
    usual = propagate.get_global_textmap()
    propagate.set_global_textmap(CompositePropagator([]))
    yield
    propagate.set_global_textmap(usual)


async def test_a_span_without_a_propagator_ends_when_its_record_is_sent(
    cluster: EmbeddedCluster, traces: Traces, no_propagator: None
) -> None:
    async with producer_of(cluster, traces) as producer:
        delivery = producer.send_nowait("orders", b"1")
        assert len(traces.named("send orders")) == 1
        await delivery
    assert len(traces.named("send orders")) == 1


async def test_attributes_have_the_names_of_the_semantic_conventions(cluster: EmbeddedCluster, traces: Traces) -> None:
    async with producer_of(cluster, traces) as producer:
        await producer.send("orders", None, key="alice")
    async with consumer_of(cluster, traces, group_id="billing") as consumer:
        with traces.consumer.process(await consumer.poll(timeout=30.0)):
            consumer.mark()
        await consumer.commit()
    names = {name for span in traces.finished for name in span.attributes or {}}
    defined = {value for name, value in vars(messaging_attributes).items() if name.startswith("MESSAGING_")}
    assert len(names) > 8
    assert names <= defined
