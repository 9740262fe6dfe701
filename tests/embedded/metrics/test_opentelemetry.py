"""Metrics and spans, read back with the OpenTelemetry SDK's exporters in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from opentelemetry import propagate
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.trace import SpanKind, StatusCode

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode, KafkaError
from aiokafka_lite.metrics.opentelemetry import KafkaMeter
from aiokafka_lite.protocol.messages import ProduceRequest
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

    @property
    def finished(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.finished if span.name == name]


@pytest.fixture
def traces() -> Traces:
    return Traces()


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
