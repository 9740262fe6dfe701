"""The result of a group of records, and the light promise of each record in it.

A batch has one ``BatchResult``, and a record's ``Delivery`` only refers to (result, index), so a record needs no future
and no task. Each *waiting* call makes one future of its own. If several tasks awaited the same future, the first
cancelled task would cancel it for all.

Records can also move to other groups. Pending records go to batches once metadata has their topic. A batch that is too
large for a broker is split. A ``Delivery`` follows its record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable
from contextvars import Context, copy_context
from functools import partial
from typing import Final, NoReturn

from ..aio import forks
from ..aio.callbacks import RAISED, CallbackErrors, callback_name
from ..compiled import mypyc_attr
from ..errors import IllegalStateError
from ..method_names import DELIVERY, named_elsewhere
from ..types import RecordMetadata, TimestampType

logger = logging.getLogger(__name__)

# Compiled code reads a Final without a look-up in the module's dictionary.
_new_tuple: Final = tuple.__new__  # creates a NamedTuple without the Python call of its constructor
_RECORD_METADATA: Final = RecordMetadata
_CONTEXT: Final = Context
_copy_context: Final = copy_context
_CREATE_TIME: Final = TimestampType.CREATE_TIME
_LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME

UNKNOWN_OFFSET = -1
"""The offset of a written record that the broker did not report: acks=0, or a duplicate of an old batch."""

SHOWN = 10
"""Topics that a log line names."""


# Logging of failures that were not raised to any caller.


class FailureLog:
    """Writes one log line, at ``level``, for groups of records that fail together, for example when a producer closes.

    The line is written after the garbage collector has removed the last group, when no more groups can fail. It names
    the topics of the groups whose error was not raised to any caller. Groups refer to their log, so it keeps the text
    of the error (see ``BatchResult``).
    """

    __slots__ = ("_groups", "_is_complete", "_level", "_text", "_topics")

    def __init__(self, error: Exception, level: int = logging.ERROR) -> None:
        self._text = repr(error)
        self._groups = 0
        # The groups are counted, because the garbage collector finalizes a log and the groups of a cycle in any order.
        self._is_complete = False
        self._level = level
        self._topics: dict[str, None] = {}

    def begin(self) -> None:
        """Add a failed group."""
        self._groups += 1

    def end(self, name: str, topic: str, error: Exception, *, is_observed: bool) -> None:
        """Remove a garbage-collected group. ``is_observed``: whether its error was raised to a caller."""
        self._groups -= 1
        if not is_observed:
            self._topics[topic] = None
        if self._is_complete:
            self._write()

    def __del__(self) -> None:
        self._is_complete = True
        self._write()

    def _write(self) -> None:
        if self._topics and not self._groups:
            text = "records for %s were not delivered: %s"
            logger.log(self._level, text, _listed(self._topics), self._text)


class ExpiryLog:
    """Writes two log lines for batches that expire during an outage: one for the first batch, one at the end."""

    __slots__ = ("_batches", "_topics")

    def __init__(self) -> None:
        self._batches = 0
        self._topics: dict[str, None] = {}

    def begin(self) -> None:
        """Add an expired batch. It is counted when it is garbage-collected, unless its error was raised to a caller."""

    def end(self, name: str, topic: str, error: Exception, *, is_observed: bool) -> None:
        """Remove a garbage-collected batch. ``is_observed``: whether its error was raised to a caller."""
        if is_observed:
            return
        self._batches += 1
        self._topics[topic] = None
        if self._batches == 1:
            logger.error("records for %s were not delivered: %r; further lost batches are only counted", name, error)

    def finish(self) -> None:
        """End the outage, because records are delivered again or the producer ends."""
        if self._batches > 1:
            logger.error("records for %s were not delivered: %d batches in total", _listed(self._topics), self._batches)
        self._batches = 0
        self._topics.clear()


class _Failure:
    """The error of a failed group. Logs the error when it is garbage-collected, unless it was raised to a caller.

    It is separate from ``BatchResult``, so that only failed groups have a finalizer.
    """

    __slots__ = ("_error", "_log", "_name", "_topic", "is_observed")

    def __init__(self, name: str, topic: str, error: Exception, log: FailureLog | ExpiryLog | None) -> None:
        self._name = name
        self._topic = topic
        self._error = error
        self._log = log
        self.is_observed = False
        if log is not None:
            log.begin()

    def __del__(self) -> None:
        if self._log is not None:
            self._log.end(self._name, self._topic, self._error, is_observed=self.is_observed)
        elif not self.is_observed:
            logger.error("records for %s were not delivered: %r", self._name, self._error)


_errors = CallbackErrors()


def _listed(topics: Iterable[str]) -> str:
    """Return the first names, and the number of the remaining names."""
    names = sorted(topics)
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


# Results.


def _copied(error: Exception) -> Exception:
    """Return a copy without a traceback."""
    kind = type(error)
    try:
        copy: Exception = kind.__new__(kind, *error.args)
    except TypeError:  # the constructor of the class takes other arguments
        return error
    copy.args = error.args
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    copy.__suppress_context__ = error.__suppress_context__
    return copy


class BatchResult:
    """The result of a group of records: delivered, failed, or moved to other groups. Settled once, by its owner.

    Each caller gets its own copy of the error. The traceback of a raised error refers to frames, and a frame may hold
    deliveries, which refer to this result. The garbage collector cannot find that cycle (``Delivery``).

    ``moved`` contains the new place of each record, as (result, index). ``base_offset`` is ``UNKNOWN_OFFSET`` until the
    records are delivered, and ``log_append_time`` -1 unless the broker sets timestamps (milliseconds).
    ``log_start_offset`` is the first offset of the partition at that time, -1 if it is not known.
    """

    __slots__ = (
        "_error",
        "_failure",
        "_followers",
        "_generation",
        "_waiters",
        "base_offset",
        "has_failed",
        "log_append_time",
        "log_start_offset",
        "moved",
        "partition",
        "settled",
        "topic",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic: str = topic
        self.partition: int = partition
        self.settled: bool = False
        self.has_failed: bool = False
        self.base_offset: int = UNKNOWN_OFFSET
        self.log_append_time: int = -1
        self.log_start_offset: int = -1
        self.moved: list[tuple[BatchResult, int]] | None = None
        self._waiters: list[asyncio.Future[None]] | None = None
        self._followers: list[Callable[[], None]] | None = None
        self._error: Exception | None = None
        self._failure: _Failure | None = None
        self._generation: int = forks.generation

    @property
    def error(self) -> Exception | None:
        """The error of records that have failed, as a new object."""
        return None if self._error is None else _copied(self._error)

    @property
    def name(self) -> str:
        """The partition, or the topic if no partition was chosen yet."""
        return self.topic if self.partition < 0 else f"{self.topic}-{self.partition}"

    def check_process(self) -> None:
        """Raise IllegalStateError if only a parent of this process will see the records settled."""
        if not self.settled and self._generation != forks.generation:
            raise IllegalStateError(
                f"a delivery for topic {self.topic!r} belongs to another process, whose producer sent the record "
                "before a fork; await it there"
            )

    def wait(self) -> asyncio.Future[None]:
        """Make a future for one waiter, done when this result is settled. It never carries an error."""
        self.check_process()
        if self._waiters:
            # The loop is looked up once for all waiters, because the lookup asks the system for the process id on
            # Python 3.11.
            waiter: asyncio.Future[None] = self._waiters[0].get_loop().create_future()
            self._waiters.append(waiter)
            return waiter
        waiter = asyncio.get_running_loop().create_future()
        if self.settled:
            waiter.set_result(None)
        else:
            self._waiters = [waiter]
        return waiter

    def stop_waiting(self, waiter: asyncio.Future[None]) -> None:
        """Remove a waiter that was cancelled. Without this, each call with a timeout would leak a waiter."""
        if self._waiters is not None and not self.settled:
            self._waiters.remove(waiter)

    def follow(self, function: Callable[[], None]) -> None:
        """Call ``function`` when this result is settled. ``function`` must not raise, and the result must be open."""
        self.check_process()
        if self._followers is None:
            self._followers = [function]
        else:
            self._followers.append(function)

    def deliver(self, base_offset: int, log_append_time: int = -1, log_start_offset: int = -1) -> None:
        """Settle the records as written, the first one at ``base_offset``."""
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.log_start_offset = log_start_offset
        self._settle()

    def fail(self, error: Exception, log: FailureLog | ExpiryLog | None = None) -> None:
        """Settle the records as failed. If the error is not raised to any caller, it is logged, by ``log`` if given."""
        self.has_failed = True
        self._error = _copied(error)
        self._failure = _Failure(self.name, self.topic, self._error, log)
        self._settle()

    def move(self, places: list[tuple[BatchResult, int]]) -> None:
        """Move the records to other groups; ``places`` contains the new place of each record."""
        self.moved = places
        self._settle()

    def observe(self) -> None:
        """Record that a caller got the error, so that it is not logged."""
        if self._failure is not None:
            self._failure.is_observed = True

    def _settle(self) -> None:
        assert not self.settled, "a result is settled once"
        self.settled = True
        waiters, self._waiters = self._waiters, None
        if waiters is not None:
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        followers, self._followers = self._followers, None
        if followers is not None:
            for function in followers:
                function()


async def settled(results: Iterable[BatchResult], on_move: Callable[[], None] = lambda: None) -> None:
    """Wait until all results are settled, including the results that their records moved to.

    ``on_move`` is called after a move. Errors do not count as observed; call ``BatchResult.observe`` for that.
    """
    waiting = list(results)
    while waiting:
        result = waiting.pop()
        if not result.settled:
            waiter = result.wait()
            try:
                await waiter
            except asyncio.CancelledError:
                result.stop_waiting(waiter)
                raise
        if result.moved is not None:
            waiting.extend(dict.fromkeys(place for place, _ in result.moved))
            on_move()


def metadata_of(result: BatchResult, index: int, timestamp: int, key_size: int, value_size: int) -> RecordMetadata:
    """Return the metadata of the record at ``index`` of a delivered result. ``timestamp`` is the record's timestamp."""
    kind = _CREATE_TIME
    if result.log_append_time >= 0:
        timestamp, kind = result.log_append_time, _LOG_APPEND_TIME
    offset = result.base_offset if result.base_offset < 0 else result.base_offset + index
    return _new_tuple(
        _RECORD_METADATA,
        (result.topic, result.partition, offset, timestamp, key_size, value_size, kind, result.log_start_offset),
    )


def present_context() -> Context | None:
    """Return a copy of the present context for a callback. None: it has no variables.

    Most threads and tasks have none. A context for each record took a quarter of the time of a record with a callback,
    most of it in the garbage collector, which visits all that are kept.
    """
    return _copy_context() or None


# In the compiled build, the garbage collector ignores deliveries, because it took a fifth of the time if a caller kept
# many. So no cycle may contain a settled delivery: see ``BatchResult``. When an open delivery is settled, its waiters
# are dropped.
@mypyc_attr(acyclic=True)
class Delivery:
    """The promise of one record. Await it for the record's ``RecordMetadata`` or error.

    Any number of tasks may await it, any number of times. Cancelling an await ends only the wait: an accepted record is
    sent in any case.

    A delivery is an awaitable, not a future, so it costs almost nothing. These work with a delivery directly:

     - ``await delivery``, ``asyncio.wait_for(delivery, 5)``, ``asyncio.gather(*deliveries)``,
       ``asyncio.as_completed(deliveries)``, ``asyncio.shield(delivery)``, ``asyncio.ensure_future``

    Where asyncio requires a future or a coroutine, use these:

     - ``asyncio.wait([delivery.future(), ...])``: ``future`` returns an ``asyncio.Future``, for callbacks as well
     - ``asyncio.create_task`` and ``TaskGroup.create_task``: pass ``delivery.wait()``, which is a coroutine

    If the record fails and no caller awaits or asks for the error, the error is logged once per batch.
    """

    __slots__ = ("_index", "_key_size", "_result", "_timestamp", "_value_size")

    def __init__(self, result: BatchResult, index: int, timestamp: int, key_size: int, value_size: int) -> None:
        self._result = result
        self._index = index
        self._timestamp = timestamp
        self._key_size = key_size
        self._value_size = value_size

    @property
    def batch_result(self) -> BatchResult:
        """The result of the batch that contains the record now: a split moves records to other batches."""
        return self._follow()

    @property
    def is_final(self) -> bool:
        """Whether the record is settled where it is now. Reads nothing that the loop changes later, so other threads
        may ask, and call ``result`` and ``exception`` if it is True."""
        result = self._result
        return result.settled and result.moved is None

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Delivery cannot be pickled or copied: await it, and use its RecordMetadata")

    def done(self) -> bool:
        """Return whether the record is acknowledged or has failed."""
        result = self._follow()
        result.check_process()
        return result.settled

    def result(self) -> RecordMetadata:
        """Return the record's metadata. Raises its error, or IllegalStateError if it is not settled yet."""
        result = self._follow()
        if (error := result.error) is not None:
            result.observe()
            raise error
        if not result.settled:
            result.check_process()
            raise IllegalStateError(f"a record for topic {result.topic!r} is not settled yet: await its delivery")
        return self._metadata(result)

    def exception(self) -> Exception | None:
        """Return the record's error; None if it was delivered. Raises IllegalStateError if it is not settled yet."""
        result = self._follow()
        if not result.settled:
            self.result()
        result.observe()
        return result.error

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        while True:
            result = self._result
            if result.moved is not None:
                result = self._follow()
            if result.settled:
                if result.has_failed:
                    return self.result()  # raises the error
                return metadata_of(result, self._index, self._timestamp, self._key_size, self._value_size)
            waiter = result.wait()
            try:
                yield from waiter
            except asyncio.CancelledError:
                result.stop_waiting(waiter)
                raise

    async def wait(self) -> RecordMetadata:
        """Wait like ``await delivery``, as a coroutine: for ``create_task`` and ``TaskGroup.create_task``."""
        return await self

    def future(self) -> asyncio.Future[RecordMetadata]:
        """Make a future of the delivery, for ``asyncio.wait`` and ``add_done_callback``.

        Cancelling the future ends only the wait, and the record is still sent. Call it in the event loop.
        """
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        self._settle_future(future)
        return future

    def _settle_future(self, future: asyncio.Future[RecordMetadata]) -> None:
        result = self._follow()
        if future.done():
            return
        if not result.settled:
            waiter = result.wait()
            waiter.add_done_callback(lambda _: self._settle_future(future))
            future.add_done_callback(lambda _: result.stop_waiting(waiter))
        elif (error := result.error) is not None:
            result.observe()  # asyncio logs the exception if the user does not retrieve it
            future.set_exception(error)
        else:
            future.set_result(self._metadata(result))

    def report(self, function: Callable[[RecordMetadata, Exception | None], None]) -> None:
        """Call ``function(metadata, error)`` when the record is settled, perhaps at once.

        The function runs in a copy of the present context, as a callback of a future does. An exception of the function
        is logged and affects no record. It is raised in the middle of a broker's answer, which also settles the records
        of other callers.
        """
        self.report_in(present_context(), function)

    def report_in(self, context: Context | None, function: Callable[[RecordMetadata, Exception | None], None]) -> None:
        """Call the function as ``report`` does, in this context (see ``present_context``)."""
        result = self._follow()
        if not result.settled:
            result.follow(partial(self.report_in, context, function))
            return
        try:
            (context or _CONTEXT()).run(function, self._metadata(result), result.error)
        except RAISED as error:
            _errors.log(f"the callback {callback_name(function)} of Delivery.report", error)

    def _metadata(self, result: BatchResult) -> RecordMetadata:
        return metadata_of(result, self._index, self._timestamp, self._key_size, self._value_size)

    def _follow(self) -> BatchResult:
        while (moved := self._result.moved) is not None:
            self._result, self._index = moved[self._index]
        return self._result

    def __repr__(self) -> str:
        result = self._follow()
        state = "open" if not result.settled else "delivered" if not result.has_failed else f"failed: {result.error!r}"
        # The partition is -1 until the metadata of the topic is known.
        place = result.topic if result.partition < 0 else f"{result.topic}-{result.partition}"
        return f"<Delivery {place} {state}>"


setattr(Delivery, "__getattr__", named_elsewhere(DELIVERY))  # noqa: B010 - type checkers must not see it


def failed_delivery(topic: object, error: Exception) -> Delivery:
    """Return the promise of a record that has failed with this error."""
    result = BatchResult(str(topic), -1)
    result.fail(error, FailureLog(error, logging.DEBUG))
    return Delivery(result, 0, -1, -1, -1)
