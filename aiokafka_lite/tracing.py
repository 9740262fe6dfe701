"""Spans of OpenTelemetry for records (``pip install aiokafka_lite[opentelemetry]``).

Names and attributes follow the semantic conventions for messaging and for Kafka. The context of a record travels in its
headers, by the global propagator: W3C's ``traceparent`` unless the program chooses another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .errors import BrokerError
from .extras import extra
from .producer import ProducerRecord
from .serialization.headers import headers_of
from .types import Header, OffsetAndMetadata, Record, RecordMetadata, ShareRecord, TopicPartition
from .version import VERSION

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

__all__ = [
    "TracingConsumerInterceptor",
    "TracingProducerInterceptor",
]

Attributes = dict[str, str | int | bool]
AnyRecord = Record[Any, Any] | ShareRecord[Any, Any]


class _Tracing:
    """A tracer, and the attributes that all of its spans have."""

    def __init__(self, tracer_provider: TracerProvider | None, common: Mapping[str, str | None]) -> None:
        self.api: Any = extra("opentelemetry.trace", "opentelemetry")
        self.propagate: Any = extra("opentelemetry.propagate", "opentelemetry")
        self.contexts: Any = extra("opentelemetry.context", "opentelemetry")
        self.tracer: Any = self.api.get_tracer("aiokafka_lite", VERSION, tracer_provider)
        self._common = {name: value for name, value in common.items() if value is not None}

    def attributes(self, operation: str, kind: str, topic: str | None) -> Attributes:
        attributes: Attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": operation,
            "messaging.operation.type": kind,
            **self._common,
        }
        if topic is not None:
            attributes["messaging.destination.name"] = topic
        return attributes

    def links(self, records: Sequence[AnyRecord]) -> list[Any]:
        """Return a link to the span that sent each record; no link for a record without a context.

        With several records, the attributes of each link name its record.
        """
        links = []
        for record in records:
            context = self.api.get_current_span(self.context(record)).get_span_context()
            if context.is_valid:
                links.append(self.api.Link(context, _place(record) if len(records) > 1 else None))
        return links

    def of_records(self, operation: str, kind: str, records: Sequence[AnyRecord]) -> tuple[str, Attributes]:
        """Return the name and the attributes of a span for records. With one record, the attributes describe it."""
        topics = {record.topic for record in records}
        topic = topics.pop() if len(topics) == 1 else None
        attributes = self.attributes(operation, kind, topic)
        if len(records) == 1:
            attributes |= _place(records[0])
        return operation if topic is None else f"{operation} {topic}", attributes

    def fail(self, span: Any, error: BaseException) -> None:
        """Record an error in a span. ``error.type`` is Kafka's name of the error, or the name of the exception."""
        kind = error.code.name if isinstance(error, BrokerError) else type(error).__qualname__
        span.set_attribute("error.type", kind)
        span.record_exception(error)
        span.set_status(self.api.StatusCode.ERROR, str(error))

    def context(self, record: AnyRecord) -> Any:
        """Return the context in the headers of a record, without the current context of the task."""
        return self.propagate.extract(record.headers, self.contexts.Context(), GETTER)

    @contextmanager
    def working_on(self, record: AnyRecord) -> Iterator[None]:
        """Make the headers' context the current one: its span, and its baggage over the baggage of the task.

        Without a span in the headers, no span is current: the work belongs to no trace of the task.
        """
        outside = self.api.set_span_in_context(self.api.INVALID_SPAN)
        token = self.contexts.attach(self.propagate.extract(record.headers, outside, GETTER))
        try:
            yield
        finally:
            self.contexts.detach(token)


class TracingProducerInterceptor:
    """An interceptor of a producer that makes a span for each record, and puts its context into the headers.

    ::

        producer = Producer(servers, interceptors=[TracingProducerInterceptor()])

    The span ``send <topic>`` is a child of the current span. It begins when the record is sent, and ends when the
    record is acknowledged or has failed. Without a global propagator that writes headers, it ends at once.
    ``tracer_provider`` is the global one by default; ``client_id`` becomes an attribute. Raises ConfigurationError
    if the extra ``opentelemetry`` is not installed.
    """

    def __init__(self, *, tracer_provider: TracerProvider | None = None, client_id: str | None = None) -> None:
        self._tracing = _Tracing(tracer_provider, {"messaging.client.id": client_id})

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record with the context of its span in the headers, which replaces an earlier context."""
        tracing = self._tracing
        headers = _OpenHeaders(headers_of(record.topic, record.headers))
        attributes = {
            **tracing.attributes("send", "send", record.topic),
            **_content(record.key, record.value, record.partition),
        }
        headers.span = span = tracing.tracer.start_span(
            f"send {record.topic}", kind=tracing.api.SpanKind.PRODUCER, attributes=attributes
        )
        tracing.propagate.inject(headers, tracing.api.set_span_in_context(span), SETTER)
        if _span_of(headers) is None:
            span.end()
        return replace(record, headers=list(headers))

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Sequence[Header]) -> None:
        """End the span of the record."""
        span = _span_of(headers)
        if span is None:
            return
        if metadata.partition >= 0:
            span.set_attribute("messaging.destination.partition.id", str(metadata.partition))
        if error is not None:
            self._tracing.fail(span, error)
        elif metadata.offset >= 0:
            span.set_attribute("messaging.kafka.offset", metadata.offset)
        span.end()


class TracingConsumerInterceptor:
    """An interceptor of a consumer that makes a span for each read, linked to the spans that created the records.

    ::

        tracing = TracingConsumerInterceptor(group_id="billing")
        consumer = Consumer(servers, topics=["orders"], group_id="billing", interceptors=[tracing])
        async for record in consumer:
            with tracing.process(record):
                await bill(record)

    A read makes a span ``poll <topic>``, which ends when the records are returned. ``process`` makes a span for the
    work on a record, or on the list of a ``poll``. ``tracer_provider`` is the global one by default; ``client_id`` and
    ``group_id`` become attributes. Raises ConfigurationError if the extra ``opentelemetry`` is not installed.
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
        name, attributes = tracing.of_records("poll", "receive", records)
        attributes["messaging.batch.message_count"] = len(records)
        kind, links = tracing.api.SpanKind.CLIENT, tracing.links(records)
        tracing.tracer.start_span(name, kind=kind, attributes=attributes, links=links).end()
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Make the span of a commit."""
        tracing = self._tracing
        attributes = tracing.attributes("commit", "settle", None)
        if len(offsets) == 1:
            ((topic, partition),) = offsets
            attributes |= {
                "messaging.destination.name": topic,
                "messaging.destination.partition.id": str(partition),
            }
        tracing.tracer.start_span("commit", kind=tracing.api.SpanKind.CLIENT, attributes=attributes).end()

    def process(self, records: AnyRecord | Sequence[AnyRecord]) -> AbstractContextManager[Span]:
        """Return a context for the work on a record or on several: its span ``process <topic>`` is the current one.

        The span of one record belongs to the trace of the record: its parent is the span that sent it. The span of
        several records belongs to the current trace, and has a link to each. With one record, its baggage is set too.
        An exception is recorded and raised, also a cancellation, as at the end of the ``timeout`` of ``Workers``.
        """
        every = [records] if isinstance(records, Record | ShareRecord) else list(records)
        return self._process_one(every[0]) if len(every) == 1 else self._process(every)

    @contextmanager
    def _process_one(self, record: AnyRecord) -> Iterator[Span]:
        with self._tracing.working_on(record), self._process([record]) as span:
            yield span

    @contextmanager
    def _process(self, records: list[AnyRecord]) -> Iterator[Span]:
        tracing = self._tracing
        name, attributes = tracing.of_records("process", "process", records)
        if len(records) != 1:
            attributes["messaging.batch.message_count"] = len(records)
        links = tracing.links(records)
        with tracing.tracer.start_as_current_span(
            name,
            kind=tracing.api.SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except GeneratorExit:  # a generator around the work was closed, which is no error
                raise
            except BaseException as error:
                tracing.fail(span, error)
                raise


class _SpanHeader(Header):
    """A header that carries the span of its record to ``on_acknowledgement``.

    So no table of open spans is needed: if another interceptor or a serializer drops the header, the span is dropped
    too.
    """

    span: Any


class _OpenHeaders(list[Header]):
    """The headers of a record while the propagator writes the context of its span into them."""

    span: Any


def _span_of(headers: Sequence[Header]) -> Any:
    return next((header.span for header in headers if isinstance(header, _SpanHeader)), None)


class _HeaderSetter:
    """Writes a context into headers."""

    def set(self, carrier: _OpenHeaders, key: str, value: str) -> None:
        carrier[:] = [header for header in carrier if header.key != key]
        header = _SpanHeader(key, value.encode())
        header.span = carrier.span
        carrier.append(header)


class _HeaderGetter:
    """Reads a context from headers. Of several with the same name, the last one counts."""

    def get(self, carrier: Sequence[Header], key: str) -> list[str] | None:
        values = [value for name, value in carrier if name == key and value is not None]
        return [values[-1].decode("utf-8", "replace")] if values else None

    def keys(self, carrier: Sequence[Header]) -> list[str]:
        return [name for name, _ in carrier]


SETTER, GETTER = _HeaderSetter(), _HeaderGetter()


def _place(record: AnyRecord) -> Attributes:
    """Return the attributes of a record that was read."""
    return {
        "messaging.kafka.offset": record.offset,
        **_content(record.key, record.value, record.partition),
    }


def _content(key: object, value: object, partition: int | None) -> Attributes:
    """Return the attributes of a record: its partition, whether it is a tombstone, and its key if that is text."""
    attributes: Attributes = {}
    if partition is not None:
        attributes["messaging.destination.partition.id"] = str(partition)
    if value is None:
        attributes["messaging.kafka.message.tombstone"] = True
    if isinstance(key, bytes):
        with suppress(UnicodeDecodeError):
            key = key.decode()
    if isinstance(key, str | int):
        attributes["messaging.kafka.message.key"] = str(key)
    return attributes
