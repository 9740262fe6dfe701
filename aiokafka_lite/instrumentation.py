"""Traces and measures all clients of a program, without a change of the program (OpenTelemetry).

``opentelemetry-instrument python service.py`` finds ``AiokafkaLiteInstrumentor`` by its entry point, before the program
begins. Each client that is made from then on has the interceptors of ``tracing``. Nothing is patched: the clients ask
``default_interceptors`` when they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .consumer import interceptor as consumer_interceptor
from .errors import KafkaError
from .extras import extra
from .producer.accept import interceptor as producer_interceptor
from .tracing import TracingConsumerInterceptor, TracingProducerInterceptor, Work
from .types import Header, OffsetAndMetadata, Record, RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

BaseInstrumentor: Any = extra("opentelemetry.instrumentation.instrumentor", "opentelemetry-instrument").BaseInstrumentor

__all__ = ["AiokafkaLiteInstrumentor"]


@dataclass(slots=True)
class _Switch:
    """Whether the clients of one instrumentation make spans and metrics."""

    is_on: bool = True


class AiokafkaLiteInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # it has no types
    """The instrumentation of this package, for ``opentelemetry-instrument``, or for a call before clients are made.

    ::

        AiokafkaLiteInstrumentor().instrument()

    ``tracer_provider`` and ``meter_provider`` may be arguments of ``instrument``; by default they are the global ones.
    Clients that were made before are not instrumented. After ``uninstrument()`` no client makes spans or metrics, also
    those that exist. A client with a tracing interceptor of its own has no second one.

    Importing it raises ConfigurationError if the extra ``opentelemetry-instrument`` is not installed.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return no packages: this class is a part of the package that it instruments."""
        return ()

    def _instrument(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        **_settings: Any,
    ) -> None:
        switch = self._switch = _Switch()

        def of_producer(client_id: str) -> _Sends:
            return _Sends(switch, tracer_provider=tracer_provider, meter_provider=meter_provider, client_id=client_id)

        def of_consumer(client_id: str | None, group_id: str | None) -> _Reads:
            return _Reads(
                switch,
                tracer_provider=tracer_provider,
                meter_provider=meter_provider,
                client_id=client_id,
                group_id=group_id,
            )

        self._factories = of_producer, of_consumer
        producer_interceptor.default_interceptors.append(of_producer)
        consumer_interceptor.default_interceptors.append(of_consumer)

    def _uninstrument(self, **_settings: Any) -> None:
        of_producer, of_consumer = self._factories
        producer_interceptor.default_interceptors.remove(of_producer)
        consumer_interceptor.default_interceptors.remove(of_consumer)
        self._switch.is_on = False


class _Sends(TracingProducerInterceptor):
    """Traces the records of a producer while the instrumentation is on."""

    def __init__(self, switch: _Switch, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._switch = switch

    def on_send(self, record: producer_interceptor.ProducerRecord) -> producer_interceptor.ProducerRecord:
        return super().on_send(record) if self._switch.is_on else record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Sequence[Header]) -> None:
        if self._switch.is_on:
            super().on_acknowledgement(metadata, error, headers)


class _Reads(TracingConsumerInterceptor):
    """Traces the records of a consumer, a share consumer or ``Workers`` while the instrumentation is on."""

    def __init__(self, switch: _Switch, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._switch = switch

    def on_consume(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
        return super().on_consume(records) if self._switch.is_on else records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if self._switch.is_on:
            super().on_commit(offsets)

    def on_batch(self, partition: TopicPartition, count: int) -> None:
        if not self._switch.is_on:
            return
        tracing, (topic, number) = self._tracing, partition
        attributes = tracing.attributes("poll", "receive", topic)
        attributes["messaging.destination.partition.id"] = str(number)
        tracing.metrics.consumed.add(count, tracing.measured(attributes))
        attributes["messaging.batch.message_count"] = count
        # Without links: the headers are a column, and are not even decoded for Arrow.
        tracing.tracer.start_span(f"poll {topic}", kind=tracing.api.SpanKind.CLIENT, attributes=attributes).end()

    def begin(self, records: Sequence[Record[Any, Any]]) -> Callable[[BaseException | None], None]:
        if not self._switch.is_on:
            return _nothing
        work = Work(self._tracing, records)
        self._tracing.contexts.attach(work.context)  # it ends with the context of the attempt, so nothing detaches it
        return work.end

    def on_acknowledged(self, partition: TopicPartition, count: int, error: KafkaError | None) -> None:
        if not self._switch.is_on:
            return
        tracing = self._tracing
        attributes = tracing.attributes("ack", "settle", partition.topic)
        attributes["messaging.destination.partition.id"] = str(partition.partition)
        attributes["messaging.batch.message_count"] = count
        kind = tracing.api.SpanKind.CLIENT
        span = tracing.tracer.start_span(f"ack {partition.topic}", kind=kind, attributes=attributes)
        if error is not None:
            tracing.fail(span, error)
        span.end()


def _nothing(error: BaseException | None) -> None:
    """End work that was not observed."""
