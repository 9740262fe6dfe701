"""Interceptors: objects of the user that see each record when it is read, and the offsets that are committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ..aio.callbacks import RAISED, CallbackErrors, in_copy, is_kind_of_any
from ..arguments import check_methods, must_be, plural
from ..errors import ConfigurationError, KafkaError
from ..types import OffsetAndMetadata, Record, TopicPartition


class ConsumerInterceptor(Protocol):
    """Observes the records that are read and the offsets that are committed.

    Runs in the event loop, so it must not block. ``on_consume`` is a part of the call that reads, so a context variable
    that it sets is set in the code that reads. ``on_commit`` runs in a copy of the context. Exceptions are logged, once
    per type, and do not affect the records. If there are several interceptors, each receives the records that the
    previous interceptor returned.
    """

    def on_consume(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
        """Return the same records, or replacements for them. Their number must not change.

        Called just before a read returns, with deserialized keys and values. ``poll`` passes the list that it returns;
        an iteration passes one record at a time. Positions and commits follow the records that were read, not those
        returned here.
        """
        ...

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Observe offsets of the group that are committed, by the program or automatically.

        Not called for offsets that a transaction commits.
        """
        ...


class InstrumentingInterceptor(ConsumerInterceptor, Protocol):
    """Observes batches of columns, the work of ``Workers`` and the acknowledgements of a share consumer too.

    ``on_consume`` of a share consumer gets its records.
    """

    def on_batch(self, partition: TopicPartition, count: int) -> None:
        """Observe that ``batches()`` returns so many records of a partition, as columns or as Arrow."""
        ...

    def begin(self, records: Sequence[Record[Any, Any]]) -> Callable[[BaseException | None], None]:
        """Begin the work on records in the present context. The function that this returns ends it, with its error."""
        ...

    def on_acknowledged(self, partition: TopicPartition, count: int, error: KafkaError | None) -> None:
        """Observe that a broker has answered the acknowledgements of so many records."""
        ...


default_interceptors: list[Callable[[str | None, str | None], InstrumentingInterceptor]] = []
"""Functions that make another interceptor for each new consumer, by its client id and group. ``instrumentation`` adds
one."""


class ConsumerInterceptors:
    """The interceptors of a consumer, in their order. Their exceptions are logged here.

    Those of ``default_interceptors`` come last, unless the user has given an interceptor of the same kind.
    """

    def __init__(
        self, interceptors: Iterable[ConsumerInterceptor], client_id: str | None = None, group_id: str | None = None
    ) -> None:
        if not isinstance(interceptors, Iterable):
            raise ConfigurationError(must_be("interceptors", "a list of interceptors", interceptors))
        self._interceptors = tuple(interceptors)
        self._errors = CallbackErrors()
        for interceptor in self._interceptors:
            check_methods("interceptor", interceptor, "on_consume", "on_commit")
        own = self._interceptors
        self.are_given: bool = bool(own)
        """Whether the user has given interceptors."""
        defaults = [make(client_id, group_id) for make in default_interceptors]
        self._instrumenting = [interceptor for interceptor in defaults if not is_kind_of_any(interceptor, own)]
        self._interceptors += tuple(self._instrumenting)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_consume(self, records: list[Any]) -> list[Any]:
        """Pass the records of one read through all interceptors. Those of a share consumer are ``ShareRecord``."""
        kind = type(records[0]) if records else Record
        for interceptor in self._interceptors if records else ():
            try:
                changed = list(interceptor.on_consume(records))
                if len(changed) != len(records) or not all(isinstance(record, kind) for record in changed):
                    raise TypeError(f"on_consume must return {plural(len(records), 'record')}, got {changed!r:.80}")
            except RAISED as error:
                self._errors.log(
                    f"{type(interceptor).__name__}.on_consume", error, f" for records of {records[0].topic!r}"
                )
            else:
                records = changed
        return records

    def one_by_one(self, records: Iterator[Record]) -> Iterator[Record]:
        """Iterate over the records. Each passes through all interceptors when it is taken."""
        return map(self._on_consume_one, records)

    def _on_consume_one(self, record: Record) -> Record:
        records: list[Record] = self.on_consume([record])
        return records[0]

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Notify all interceptors of committed offsets."""
        for interceptor in self._interceptors:
            try:
                in_copy(interceptor.on_commit, offsets)
            except RAISED as error:
                self._errors.log(f"{type(interceptor).__name__}.on_commit", error)

    def on_batch(self, partition: TopicPartition, count: int) -> None:
        """Notify the instrumenting interceptors of a batch of columns."""
        for interceptor in self._instrumenting:
            try:
                interceptor.on_batch(partition, count)
            except RAISED as error:
                self._errors.log(f"{type(interceptor).__name__}.on_batch", error)

    def begin(self, records: Sequence[Record[Any, Any]]) -> Callable[[BaseException | None], None]:
        """Begin the work on records in the present context. Returns a function that ends it, with its error."""
        endings: list[tuple[str, Callable[[BaseException | None], None]]] = []
        for interceptor in self._instrumenting:
            what = f"{type(interceptor).__name__}.begin"
            try:
                endings.append((what, interceptor.begin(records)))
            except RAISED as error:
                self._errors.log(what, error)

        def end(failure: BaseException | None) -> None:
            for what, ending in endings:
                try:
                    ending(failure)
                except RAISED as error:
                    self._errors.log(f"the end of {what}", error)

        return end

    def on_acknowledged(self, partition: TopicPartition, count: int, error: KafkaError | None) -> None:
        """Notify the instrumenting interceptors of acknowledgements that a broker has answered."""
        for interceptor in self._instrumenting:
            try:
                in_copy(interceptor.on_acknowledged, partition, count, error)
            except RAISED as problem:
                self._errors.log(f"{type(interceptor).__name__}.on_acknowledged", problem)
