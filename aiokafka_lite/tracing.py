"""Spans and metrics of OpenTelemetry for records (``pip install aiokafka_lite[opentelemetry]``).

Names and attributes follow the semantic conventions for messaging and for Kafka. The context of a record travels in its
headers, by the global propagator: W3C's ``traceparent`` unless the program chooses another one. ``instrumentation``
gives these interceptors to all clients of a program.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .errors import BrokerError, SerializationError
from .extras import extra
from .producer import ProducerRecord
from .serialization.headers import headers_of
from .types import Header, OffsetAndMetadata, Record, RecordMetadata, ShareRecord, TopicPartition
from .version import VERSION

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

__all__ = [
    "TracingConsumerInterceptor",
    "TracingProducerInterceptor",
]

Attributes = dict[str, str | int | bool]
AnyRecord = Record[Any, Any] | ShareRecord[Any, Any]

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The bounds in seconds that the semantic conventions advise for durations."""


class _Metrics:
    """The instruments of the semantic conventions. There is one object for each meter provider.

    A provider exports an instrument twice if two meters create it.
    """

    def __init__(self, meter_provider: MeterProvider | None) -> None:
        api: Any = extra("opentelemetry.metrics", "opentelemetry")
        meter = api.get_meter("aiokafka_lite", VERSION, meter_provider)
        self.sent: Any = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages that the producer attempted to send."
        )
        self.consumed: Any = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were delivered to the program."
        )
        self.operation: Any = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Time from the send of a message to its acknowledgement or error.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self.process: Any = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Time that the program worked on a message or a list of messages.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )

    @classmethod
    def of(cls, meter_provider: MeterProvider | None) -> _Metrics:
        """Return the instruments of a provider; None is the global one, also if the program sets it later."""
        key: Any = cls if meter_provider is None else meter_provider
        metrics = _METRICS.get(key)
        if metrics is None:
            metrics = _METRICS[key] = cls(meter_provider)
        return metrics


_METRICS: weakref.WeakKeyDictionary[Any, _Metrics] = weakref.WeakKeyDictionary()


class _Tracing:
    """A tracer, the attributes that all of its spans have, and the instruments of the metrics."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
        common: Mapping[str, str | None],
    ) -> None:
        self.api: Any = extra("opentelemetry.trace", "opentelemetry")
        self.propagate: Any = extra("opentelemetry.propagate", "opentelemetry")
        self.contexts: Any = extra("opentelemetry.context", "opentelemetry")
        self.tracer: Any = self.api.get_tracer("aiokafka_lite", VERSION, tracer_provider)
        self.metrics = _Metrics.of(meter_provider)
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
        span.set_attribute("error.type", _type_of(error))
        span.record_exception(error)
        span.set_status(self.api.StatusCode.ERROR, str(error))

    def context(self, record: AnyRecord) -> Any:
        """Return the context in the headers of a record, without the current context of the task."""
        return self.propagate.extract(record.headers, self.contexts.Context(), GETTER)

    def outside(self, record: AnyRecord) -> Any:
        """Return the context for the work on a record: its span, and its baggage over the baggage of the task.

        Without a span in the headers, no span is current: the work belongs to no trace of the task.
        """
        nowhere = self.api.set_span_in_context(self.api.INVALID_SPAN)
        return self.propagate.extract(record.headers, nowhere, GETTER)

    def measured(self, attributes: Attributes, error: BaseException | None = None) -> Attributes:
        """Return those attributes of a span that metrics have too."""
        measured = {name: value for name, value in attributes.items() if name in _OF_METRICS}
        return measured if error is None else {**measured, "error.type": _type_of(error)}


_OF_METRICS = (
    "messaging.system",
    "messaging.operation.name",
    "messaging.destination.name",
    "messaging.destination.partition.id",
    "messaging.consumer.group.name",
)
"""The attributes of metrics. Others, such as offsets and keys, would make a series for each record."""


def _type_of(error: BaseException) -> str:
    return error.code.name if isinstance(error, BrokerError) else type(error).__qualname__


class Work:
    """The work on records, from its beginning to its end: a span ``process``, and its duration in the metrics.

    The span of one record belongs to the trace of the record, the span of several to the current trace.
    """

    def __init__(self, tracing: _Tracing, records: Sequence[AnyRecord]) -> None:
        name, attributes = tracing.of_records("process", "process", records)
        parent = tracing.contexts.get_current()
        if len(records) == 1:
            parent = tracing.outside(records[0])
        else:
            attributes["messaging.batch.message_count"] = len(records)
        self.span: Any = tracing.tracer.start_span(
            name,
            context=parent,
            kind=tracing.api.SpanKind.CONSUMER,
            attributes=attributes,
            links=tracing.links(records),
        )
        self.context: Any = tracing.api.set_span_in_context(self.span, parent)
        """The context of the work, to attach."""
        self._tracing = tracing
        self._attributes = attributes
        self._began = time.perf_counter()

    def end(self, error: BaseException | None) -> None:
        """End the work, with the error if it failed."""
        tracing = self._tracing
        if error is not None:
            tracing.fail(self.span, error)
        self.span.end()
        tracing.metrics.process.record(time.perf_counter() - self._began, tracing.measured(self._attributes, error))


class TracingProducerInterceptor:
    """An interceptor of a producer that makes a span for each record, and puts its context into the headers.

    ::

        producer = Producer(servers, interceptors=[TracingProducerInterceptor()])

    The span ``send <topic>`` is a child of the current span. It begins when the record is sent, and ends when the
    record is acknowledged or has failed. Without a global propagator that writes headers, it ends at once.
    ``tracer_provider`` and ``meter_provider`` are the global ones by default; ``client_id`` becomes an attribute.
    Raises ConfigurationError if the extra ``opentelemetry`` is not installed.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        client_id: str | None = None,
    ) -> None:
        self._tracing = _Tracing(tracer_provider, meter_provider, {"messaging.client.id": client_id})

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record with the context of its span in the headers, which replaces an earlier context."""
        tracing = self._tracing
        try:
            headers = _OpenHeaders(headers_of(record.topic, record.headers))
        except SerializationError as error:
            # An iterator is used up now, so the record would be sent without its headers. It has to fail.
            return replace(record, headers=_FailingHeaders(error))
        attributes = {
            **tracing.attributes("send", "send", record.topic),
            **_content(record.key, record.value, record.partition),
        }
        headers.span = span = tracing.tracer.start_span(
            f"send {record.topic}", kind=tracing.api.SpanKind.PRODUCER, attributes=attributes
        )
        headers.began = time.perf_counter()
        tracing.propagate.inject(headers, tracing.api.set_span_in_context(span), SETTER)
        if _span_header(headers) is None:
            span.end()
        return replace(record, headers=list(headers))

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Sequence[Header]) -> None:
        """End the span of the record, and count the record."""
        tracing = self._tracing
        attributes = tracing.attributes("send", "send", metadata.topic)
        if metadata.partition >= 0:
            attributes["messaging.destination.partition.id"] = str(metadata.partition)
        measured = tracing.measured(attributes, error)
        tracing.metrics.sent.add(1, measured)
        own = _span_header(headers)
        if own is None:
            return
        # Another mapping: older releases of the SDK keep the one that they got with the count.
        timed = {**measured, "messaging.operation.type": "send"}
        tracing.metrics.operation.record(time.perf_counter() - own.began, timed)
        span = own.span
        if metadata.partition >= 0:
            span.set_attribute("messaging.destination.partition.id", str(metadata.partition))
        if error is not None:
            tracing.fail(span, error)
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
    work on a record, or on the list of a ``poll``. ``tracer_provider`` and ``meter_provider`` are the global ones by
    default; ``client_id`` and ``group_id`` become attributes. Raises ConfigurationError if the extra ``opentelemetry``
    is not installed.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        client_id: str | None = None,
        group_id: str | None = None,
    ) -> None:
        common = {"messaging.client.id": client_id, "messaging.consumer.group.name": group_id}
        self._tracing = _Tracing(tracer_provider, meter_provider, common)

    def on_consume(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
        """Make the span of a read, and count the records."""
        tracing = self._tracing
        name, attributes = tracing.of_records("poll", "receive", records)
        attributes["messaging.batch.message_count"] = len(records)
        kind, links = tracing.api.SpanKind.CLIENT, tracing.links(records)
        tracing.tracer.start_span(name, kind=kind, attributes=attributes, links=links).end()
        for (topic, partition), count in Counter((record.topic, record.partition) for record in records).items():
            measured = tracing.measured(tracing.attributes("poll", "receive", topic))
            tracing.metrics.consumed.add(count, {**measured, "messaging.destination.partition.id": str(partition)})
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
        return self._process([records] if isinstance(records, Record | ShareRecord) else list(records))

    @contextmanager
    def _process(self, records: list[AnyRecord]) -> Iterator[Span]:
        contexts, work = self._tracing.contexts, Work(self._tracing, records)
        token, failure = contexts.attach(work.context), None
        try:
            yield work.span
        except GeneratorExit:  # a generator around the work was closed, which is no error
            raise
        except BaseException as error:
            failure = error
            raise
        finally:
            contexts.detach(token)
            work.end(failure)


class _SpanHeader(Header):
    """A header that carries the span of its record to ``on_acknowledgement``.

    So no table of open spans is needed: if another interceptor or a serializer drops the header, the span is dropped
    too.
    """

    span: Any
    began: float


class _OpenHeaders(list[Header]):
    """The headers of a record while the propagator writes the context of its span into them."""

    span: Any
    began: float


def _span_header(headers: Sequence[Header]) -> _SpanHeader | None:
    return next((header for header in headers if isinstance(header, _SpanHeader)), None)


class _FailingHeaders:
    """Headers that raise this error when they are read."""

    def __init__(self, error: SerializationError) -> None:
        self._error = error

    def __iter__(self) -> Iterator[Header]:
        raise self._error


class _HeaderSetter:
    """Writes a context into headers."""

    def set(self, carrier: _OpenHeaders, key: str, value: str) -> None:
        carrier[:] = [header for header in carrier if header.key != key]
        header = _SpanHeader(key, value.encode())
        header.span, header.began = carrier.span, carrier.began
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
