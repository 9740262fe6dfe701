"""Spans of OpenTelemetry for records (``pip install aiokafka_lite[opentelemetry]``).

Names and attributes follow the semantic conventions for messaging and for Kafka. The context of a record travels in its
headers, by the global propagator: W3C's ``traceparent`` unless the program chooses another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .extras import extra
from .producer import ProducerRecord
from .types import Header, OffsetAndMetadata, Record, RecordMetadata, TopicPartition
from .version import VERSION

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

Attributes = dict[str, str | int | bool]


class _Tracing:
    """A tracer, and the attributes that all of its spans have."""

    def __init__(self, tracer_provider: TracerProvider | None, common: Mapping[str, str | None]) -> None:
        self.api: Any = extra("opentelemetry.trace", "opentelemetry")
        self.propagate: Any = extra("opentelemetry.propagate", "opentelemetry")
        self.tracer: Any = self.api.get_tracer("aiokafka_lite", VERSION, tracer_provider)
        self._common = {name: value for name, value in common.items() if value is not None}

    def attributes(self, operation: str, kind: str, topic: str | None) -> Attributes:
        given: Attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": operation,
            "messaging.operation.type": kind,
            **self._common,
        }
        if topic is not None:
            given["messaging.destination.name"] = topic
        return given

    def links(self, records: Sequence[Record[Any, Any]]) -> list[Any]:
        """A link to the span that created each record; none for a record without a context."""
        contexts = (self.api.get_current_span(self.context(record)).get_span_context() for record in records)
        return [self.api.Link(context) for context in contexts if context.is_valid]

    def context(self, record: Record[Any, Any]) -> Any:
        """The context in the headers of a record, in an empty one."""
        return self.propagate.extract(record.headers, extra("opentelemetry.context", "opentelemetry").Context(), GETTER)


class TracingProducerInterceptor:
    """An interceptor of a producer that makes a span for each record, and puts its context into the headers.

    ::

        producer = Producer(servers, interceptors=[TracingProducerInterceptor()])

    The span ``create <topic>`` begins and ends when the record is accepted: a record does not know which span of the
    program waits for its acknowledgement. ``tracer_provider`` is the global one by default; ``client_id`` becomes an
    attribute. Raises ConfigurationError without the extra ``opentelemetry``.
    """

    def __init__(self, *, tracer_provider: TracerProvider | None = None, client_id: str | None = None) -> None:
        self._tracing = _Tracing(tracer_provider, {"messaging.client.id": client_id})

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record with the context of its span; a context that its headers have already is replaced."""
        tracing = self._tracing
        attributes = tracing.attributes("create", "create", record.topic)
        if record.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        if record.partition is not None:
            attributes["messaging.destination.partition.id"] = str(record.partition)
        given = record.headers.items() if isinstance(record.headers, Mapping) else record.headers
        headers = [Header(key, value) for key, value in given]
        with tracing.tracer.start_as_current_span(
            f"create {record.topic}", kind=tracing.api.SpanKind.PRODUCER, attributes=attributes
        ):
            tracing.propagate.inject(headers, setter=SETTER)
        return replace(record, headers=headers)

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """The span has ended already."""


class TracingConsumerInterceptor:
    """An interceptor of a consumer that makes a span for each read, linked to the spans that created the records.

    ::

        tracing = TracingConsumerInterceptor(group_id="billing")
        consumer = Consumer(servers, topics=["orders"], group_id="billing", interceptors=[tracing])
        async for record in consumer:
            with tracing.process(record):
                await bill(record)

    A read makes a span ``poll <topic>``, which ends when the records are returned. ``process`` makes a span for the
    work on a record. ``tracer_provider`` is the global one by default; ``client_id`` and ``group_id`` become
    attributes. Raises ConfigurationError without the extra ``opentelemetry``.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        client_id: str | None = None,
        group_id: str | None = None,
    ) -> None:
        common = {"messaging.client.id": client_id, "messaging.consumer.group.name": group_id}
        self._tracing = _Tracing(tracer_provider, common)

    def on_consume(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
        """Make the span of a read."""
        tracing = self._tracing
        topics = {record.topic for record in records}
        topic = topics.pop() if len(topics) == 1 else None
        attributes = tracing.attributes("poll", "receive", topic)
        attributes["messaging.batch.message_count"] = len(records)
        if len(records) == 1:
            attributes |= _place(records[0])
        name = "poll" if topic is None else f"poll {topic}"
        kind, links = tracing.api.SpanKind.CLIENT, tracing.links(records)
        tracing.tracer.start_span(name, kind=kind, attributes=attributes, links=links).end()
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Make the span of a commit."""
        tracing = self._tracing
        attributes = tracing.attributes("commit", "settle", None)
        attributes["messaging.batch.message_count"] = len(offsets)
        tracing.tracer.start_span("commit", kind=tracing.api.SpanKind.CLIENT, attributes=attributes).end()

    def process(self, record: Record[Any, Any]) -> AbstractContextManager[Span]:
        """A context for the work on a record: its span ``process <topic>`` is the current one.

        The span belongs to the trace of the record: its parent is the span that created it. An exception is recorded
        and raised.
        """
        return self._process(record)

    @contextmanager
    def _process(self, record: Record[Any, Any]) -> Iterator[Span]:
        tracing = self._tracing
        attributes = {**tracing.attributes("process", "process", record.topic), **_place(record)}
        links = tracing.links([record])
        with tracing.tracer.start_as_current_span(
            f"process {record.topic}",
            context=tracing.context(record) if links else None,
            kind=tracing.api.SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
        ) as span:
            yield span


class _HeaderSetter:
    """Writes a context into headers."""

    def set(self, carrier: list[Header], key: str, value: str) -> None:
        carrier[:] = [header for header in carrier if header.key != key]
        carrier.append(Header(key, value.encode()))


class _HeaderGetter:
    """Reads a context from headers. Of several with the same name, the last one counts."""

    def get(self, carrier: Sequence[Header], key: str) -> list[str] | None:
        values = [value for name, value in carrier if name == key and value is not None]
        return [values[-1].decode("utf-8", "replace")] if values else None

    def keys(self, carrier: Sequence[Header]) -> list[str]:
        return [name for name, _ in carrier]


SETTER, GETTER = _HeaderSetter(), _HeaderGetter()


def _place(record: Record[Any, Any]) -> Attributes:
    place: Attributes = {
        "messaging.destination.partition.id": str(record.partition),
        "messaging.kafka.offset": record.offset,
    }
    if record.value is None:
        place["messaging.kafka.message.tombstone"] = True
    return place
