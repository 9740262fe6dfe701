"""Interceptors: objects of the user that see each record when it is sent, and when it is settled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from ..aio.callbacks import RAISED, CallbackErrors
from ..arguments import check_methods, must_be
from ..errors import ConfigurationError
from ..types import RecordMetadata
from .serializer import Headers


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
    """Sees each record twice. Runs in the event loop, so it must not block.

    Its exceptions are logged, once per type, and do not affect the record. If there are several interceptors, each
    receives the record that the one before it returned.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send: this one, or another. Called before the record is serialized."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """The record is acknowledged or has failed. Called once for each record that went through ``on_send``.

        With an error, ``metadata`` has the topic and offset -1, and partition -1 if no partition was chosen yet.
        """
        ...


class Interceptors:
    """The interceptors of a producer, in their order. Their exceptions are logged here."""

    def __init__(self, interceptors: Iterable[ProducerInterceptor]) -> None:
        if not isinstance(interceptors, Iterable):
            raise ConfigurationError(must_be("interceptors", "a list of interceptors", interceptors))
        self._interceptors = tuple(interceptors)
        self._errors = CallbackErrors()
        for each in self._interceptors:
            check_methods("interceptor", each, "on_send", "on_acknowledgement")

    def __len__(self) -> int:
        return len(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Pass a record through all interceptors."""
        for each in self._interceptors:
            try:
                changed = each.on_send(record)
                if not isinstance(changed, ProducerRecord):
                    raise TypeError(f"on_send returned {type(changed).__name__}, not a ProducerRecord")
            except RAISED as error:
                self._log(each, "on_send", record.topic, error)
            else:
                record = changed
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Notify all interceptors that a record is settled."""
        for each in self._interceptors:
            try:
                each.on_acknowledgement(metadata, error)
            except RAISED as problem:
                self._log(each, "on_acknowledgement", metadata.topic, problem)

    def refused(self, topic: str, partition: int | None, error: Exception) -> None:
        """Notify all interceptors that a record was not accepted."""
        number = partition if isinstance(partition, int) else -1
        self.on_acknowledgement(RecordMetadata(topic, number, -1, -1, -1, -1), error)

    def _log(self, interceptor: ProducerInterceptor, method: str, topic: str, error: BaseException) -> None:
        self._errors.log(f"{type(interceptor).__name__}.{method}", error, f" for a record of topic {topic!r}")
