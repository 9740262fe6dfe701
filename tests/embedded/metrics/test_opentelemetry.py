"""Metrics and spans, read back with the OpenTelemetry SDK's exporters in memory."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.metrics.opentelemetry import KafkaMeter
from aiokafka_lite.tracing import TracingConsumerInterceptor, TracingProducerInterceptor


def read(reader: InMemoryMetricReader) -> dict[str, dict[tuple[str, ...], float]]:
    """The values by the name of the instrument and the values of its attributes."""
    data = reader.get_metrics_data()
    metrics = [each for group in data.resource_metrics for scope in group.scope_metrics for each in scope.metrics]
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


class Traces:
    """Interceptors whose spans stay in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("tests")
        self.producer = TracingProducerInterceptor(tracer_provider=provider, client_id="shop")
        self.consumer = TracingConsumerInterceptor(tracer_provider=provider, group_id="billing")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def traces() -> Traces:
    return Traces()


def producer_of(cluster: EmbeddedCluster, traces: Traces) -> Producer:
    return Producer(cluster.bootstrap_servers, connector=cluster.connector, interceptors=[traces.producer])


def consumer_of(cluster: EmbeddedCluster, traces: Traces) -> Consumer:
    settings: dict[str, Any] = {"topics": ["orders"], "connector": cluster.connector, "interceptors": [traces.consumer]}
    return Consumer(cluster.bootstrap_servers, **settings)


async def test_the_work_on_a_record_belongs_to_the_trace_of_its_sender(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    async with producer_of(cluster, traces) as producer:
        with traces.tracer.start_as_current_span("request") as request:
            await producer.send("orders", b"1", partition=0, headers={"origin": b"web"})
    async with consumer_of(cluster, traces) as consumer:
        record = await anext(consumer)
        with pytest.raises(ValueError, match="no such customer"), traces.consumer.process(record):
            raise ValueError("no such customer")
    (created,), (processed,) = traces.named("create orders"), traces.named("process orders")
    assert [header.key for header in record.headers] == ["origin", "traceparent"]
    assert created.parent is not None
    assert created.parent.span_id == request.get_span_context().span_id
    assert created.kind is SpanKind.PRODUCER
    assert dict(created.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "create",
        "messaging.operation.type": "create",
        "messaging.client.id": "shop",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
    }
    assert processed.parent is not None
    assert processed.parent.span_id == created.get_span_context().span_id
    assert processed.get_span_context().trace_id == request.get_span_context().trace_id
    assert processed.status.status_code is StatusCode.ERROR
    assert dict(processed.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "billing",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
    }


async def test_a_read_of_many_records_is_one_span_with_a_link_to_each(cluster: EmbeddedCluster, traces: Traces) -> None:
    async with producer_of(cluster, traces) as producer:
        await producer.send_many("orders", [b"1", None, b"3"], partition=0)
    async with consumer_of(cluster, traces) as consumer:
        records = await consumer.poll(timeout=30.0)
    created = traces.named("create orders")
    (polled,) = traces.named("poll orders")
    assert len(records) == 3
    assert polled.attributes is not None
    assert polled.attributes["messaging.batch.message_count"] == 3
    linked = [link.context.span_id for link in polled.links]
    assert linked == [span.get_span_context().span_id for span in created]
    assert [bool(span.attributes and span.attributes.get("messaging.kafka.message.tombstone")) for span in created] == [
        False,
        True,
        False,
    ]


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
