"""What looks on, and may have a say, when records are sent and acknowledged."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from ..errors import ConfigurationError
from ..types import RecordMetadata
from .serializer import Headers

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record as it was given to `Producer.send`, before it is serialized. ``dataclasses.replace`` makes another."""

    topic: str
    value: object = None
    key: object = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


class ProducerInterceptor(Protocol):
    """Sees each record twice. Called in the loop, so it must not block.

    An exception that it raises is logged, once for each kind, and changes nothing for the record. Where there are
    several, each is given what the one before it made of the record.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record to send in place of this one, or this one. Called before serializing."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """The record is written or given up: called once for each record that went through ``on_send``.

        With an error ``metadata`` has the topic, and offset -1; the partition is -1 as well if none was chosen yet.
        """
        ...


class Interceptors:
    """A producer's interceptors in their order. Raises nothing that they raise."""

    def __init__(self, interceptors: Iterable[ProducerInterceptor]) -> None:
        if not isinstance(interceptors, Iterable):
            raise ConfigurationError(f"interceptors={interceptors!r}: a list of interceptors is needed")
        self._interceptors = tuple(interceptors)
        self._logged: set[tuple[int, str, type[Exception]]] = set()
        for each in self._interceptors:
            for method in ("on_send", "on_acknowledgement"):
                if not callable(getattr(each, method, None)):
                    raise ConfigurationError(f"{each!r} is no interceptor: it has no method {method}")

    def __len__(self) -> int:
        return len(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """What the interceptors make of a record."""
        for each in self._interceptors:
            try:
                changed = each.on_send(record)
                if not isinstance(changed, ProducerRecord):
                    raise TypeError(f"on_send returned {type(changed).__name__}, not a ProducerRecord")
            except Exception as error:  # noqa: BLE001 - it is not to break a send, whatever it is
                self._log(each, "on_send", record.topic, error)
            else:
                record = changed
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Tell all of them what came of a record."""
        for each in self._interceptors:
            try:
                each.on_acknowledgement(metadata, error)
            except Exception as problem:  # noqa: BLE001 - nor is it to break the handling of answers
                self._log(each, "on_acknowledgement", metadata.topic, problem)

    def refused(self, topic: str, partition: int | None, error: Exception) -> None:
        """Tell all of them that a record was not accepted."""
        number = partition if isinstance(partition, int) else -1
        self.on_acknowledgement(RecordMetadata(topic, number, -1, -1, -1, -1), error)

    def _log(self, interceptor: ProducerInterceptor, method: str, topic: str, error: Exception) -> None:
        kind = (id(interceptor), method, type(error))
        if kind not in self._logged:  # what goes wrong for one record mostly does so for all
            self._logged.add(kind)
            logger.error(
                "%s.%s failed for a record of topic %r; not logged again",
                type(interceptor).__name__,
                method,
                topic,
                exc_info=error,
            )
