"""Interceptors: objects of the user that see each record when it is read, and the offsets that are committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ..aio.callbacks import RAISED, CallbackErrors, in_copy
from ..arguments import check_methods, must_be, plural
from ..errors import ConfigurationError
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


class ConsumerInterceptors:
    """The interceptors of a consumer, in their order. Their exceptions are logged here."""

    def __init__(self, interceptors: Iterable[ConsumerInterceptor]) -> None:
        if not isinstance(interceptors, Iterable):
            raise ConfigurationError(must_be("interceptors", "a list of interceptors", interceptors))
        self._interceptors = tuple(interceptors)
        self._errors = CallbackErrors()
        for interceptor in self._interceptors:
            check_methods("interceptor", interceptor, "on_consume", "on_commit")

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_consume(self, records: list[Record[Any, Any]]) -> list[Record[Any, Any]]:
        """Pass the records of one read through all interceptors."""
        for interceptor in self._interceptors if records else ():
            try:
                changed = list(interceptor.on_consume(records))
                if len(changed) != len(records) or not all(isinstance(record, Record) for record in changed):
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
        return self.on_consume([record])[0]

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Notify all interceptors of committed offsets."""
        for interceptor in self._interceptors:
            try:
                in_copy(interceptor.on_commit, offsets)
            except RAISED as error:
                self._errors.log(f"{type(interceptor).__name__}.on_commit", error)
