"""Interceptors: objects of the user that see each record when it is sent, and when it is settled."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...aio.callbacks import RAISED, CallbackErrors, in_copy, is_kind_of_any
from ...arguments import check_methods, must_be
from ...errors import ConfigurationError, SerializationError
from ...serialization.headers import Headers, headers_of
from ...types import Header, RecordMetadata


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """The arguments of a send, before they are serialized. Use ``dataclasses.replace`` to change some."""

    topic: str
    value: object = None
    key: object = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


class ProducerInterceptor(Protocol):
    """Is called twice for each record. Runs in the event loop, so it must not block.

    ``on_send`` is a part of the call that sends the record. ``on_acknowledgement`` runs in a copy of that call's
    context, so no other record sees a context variable that it sets. Exceptions are logged, once per type, and do not
    affect the record. If there are several interceptors, each receives the record that the previous one returned.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send: the same record, or another. Called before the record is serialized."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Sequence[Header]) -> None:
        """Handle a record that is acknowledged or has failed. Called once for each record of ``on_send``.

        With an error, ``metadata`` has the topic and offset -1, and partition -1 if no partition was chosen yet.
        ``headers`` are those of the record (KIP-512), and empty if the record failed because they were wrong. A
        ``Header`` that ``on_send`` added is the same object here.
        """
        ...


default_interceptors: list[Callable[[str], ProducerInterceptor]] = []
"""Functions that make another interceptor for each new producer, by its client id. ``instrumentation`` adds one."""


class Interceptors:
    """The interceptors of a producer, in their order. Their exceptions are logged here.

    Those of ``default_interceptors`` come last, unless the user has given an interceptor of the same kind.
    """

    def __init__(self, interceptors: Iterable[ProducerInterceptor], client_id: str = "") -> None:
        if not isinstance(interceptors, Iterable):
            raise ConfigurationError(must_be("interceptors", "a list of interceptors", interceptors))
        self._interceptors = tuple(interceptors)
        self._errors = CallbackErrors()
        for interceptor in self._interceptors:
            check_methods("interceptor", interceptor, "on_send", "on_acknowledgement")
            _check_takes_headers(interceptor)
        own = self._interceptors
        self.are_given: bool = bool(own)
        """Whether the user has given interceptors."""
        for make in default_interceptors:
            interceptor = make(client_id)
            if not is_kind_of_any(interceptor, own):
                self._interceptors += (interceptor,)

    def __len__(self) -> int:
        return len(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Pass a record through all interceptors."""
        for interceptor in self._interceptors:
            try:
                changed = interceptor.on_send(record)
                if not isinstance(changed, ProducerRecord):
                    raise TypeError(f"on_send must return a ProducerRecord, got {type(changed).__name__}")
            except RAISED as error:
                self._log(interceptor, "on_send", record.topic, error)
            else:
                record = changed
        return record

    def on_acknowledgement(self, headers: Sequence[Header], metadata: RecordMetadata, error: Exception | None) -> None:
        """Notify all interceptors that a record with these headers is settled."""
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error, headers)
            except RAISED as problem:
                self._log(interceptor, "on_acknowledgement", metadata.topic, problem)

    def refused(self, topic: str, partition: int | None, headers: Headers, error: Exception) -> None:
        """Notify all interceptors that a record was not accepted."""
        number = partition if isinstance(partition, int) else -1
        try:
            checked = headers_of(topic, headers)
        except SerializationError:
            checked = ()
        in_copy(self.on_acknowledgement, checked, RecordMetadata(topic, number, -1, -1, -1, -1), error)

    def _log(self, interceptor: ProducerInterceptor, method: str, topic: str, error: BaseException) -> None:
        self._errors.log(f"{type(interceptor).__name__}.{method}", error, f" for a record of topic {topic!r}")


def _check_takes_headers(interceptor: ProducerInterceptor) -> None:
    """Raise ConfigurationError for a method without the argument ``headers``, which would fail for each record."""
    try:
        signature = inspect.signature(interceptor.on_acknowledgement)
    except ValueError:  # a method in C may have no signature
        return
    try:
        signature.bind(None, None, ())
    except TypeError:
        raise ConfigurationError(
            f"{type(interceptor).__name__}.on_acknowledgement must accept (metadata, error, headers), got {signature}"
        ) from None
