"""Records on their way from the threads of the program into the loop.

Rule 1: a thread that sends does not wait for the loop. Its records are appended to a ``deque``, whose operations are
atomic, and the loop is woken once for all records that it has not seen yet.

Rule 2: records and calls reach the asyncio producer in the order in which a thread made them: a call waits until the
records before it are accepted.

Rule 3: a record without room stops the queue, and the records behind it wait. While it waits, ``send_nowait`` raises
BufferFull, as the buffer is full.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import Context
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from ..aio import forks
from ..aio.callbacks import CallbackErrors, callback_name
from ..aio.deadline import deadline
from ..arguments import check_timeout
from ..compiled import mypyc_attr
from ..errors import BufferFull, IllegalStateError
from ..producer import Delivery as AsyncDelivery
from ..producer.delivery import BatchResult, failed_delivery, present_context
from ..producer.record_calls import RecordCalls
from ..types import RecordMetadata
from .loop_thread import LoopThread, for_threads
from .wrapper import check_thread

T = TypeVar("T")

# Compiled code reads a Final without a look-up in the module's dictionary.
_running_loop: Final = asyncio._get_running_loop  # noqa: SLF001 - the public function raises without a loop

CROSSING_RECORDS = 10_000
"""Records that wait for the loop before ``send_nowait`` waits too: the program is faster than the loop."""

TURN = 1_000
"""Records that the loop accepts before its other tasks have a turn."""

_errors = CallbackErrors()

OnSettled = Callable[[RecordMetadata, Exception | None], None]


class SendQueue:
    """The records of one producer that the loop has not accepted yet. Its ``thread`` is known after the start."""

    def __init__(self) -> None:
        self._loop_thread: LoopThread | None = None
        self._process = -1  # the generation of the process that started the producer
        self._open_in = -1  # the same while records are taken
        self._records: deque[Crossing | asyncio.Future[None]] = deque()  # a future is done when its turn comes
        self._is_woken = False  # whether the loop will look at the queue
        self._waiting: asyncio.Task[None] | None = None  # accepts records while one has to wait
        self._is_full = False  # whether a record waits for room
        self._reports: dict[BatchResult, list[Delivery]] = {}  # deliveries with a callback, until they are settled
        self.report_lock: threading.Lock = threading.Lock()
        """Held while the callbacks of a delivery change: several threads may report the same one."""

    def start(self, thread: LoopThread) -> None:
        """Take records, and pass them to the loop of this thread."""
        self._loop_thread, self._process, self._open_in = thread, forks.generation, forks.generation

    def close(self) -> None:
        """Take no more records."""
        self._open_in = -1

    # In the threads of the program.

    # Hot: runs for each record.
    def add(
        self,
        calls: RecordCalls[Any, Any],
        topic: Any,
        value: Any,
        key: Any,
        headers: Any,
        partition: Any,
        timestamp: Any,
    ) -> Delivery:
        """Pass a record to ``calls.send_nowait`` in the loop. Raises BufferFull."""
        if (
            self._open_in != forks.generation
            or self._is_full
            or len(self._records) >= CROSSING_RECORDS
            or _running_loop() is not None
        ):
            self._make_room(topic)
        delivery = Crossing(self, calls, topic, value, key, headers, partition, timestamp)
        self._records.append(delivery)
        if not self._is_woken:
            self._wake()
        return delivery

    def attach(self, delivery: Delivery) -> None:
        """Let the loop see a callback of a delivery that it has accepted already."""
        self.running().soon(partial(self.report, delivery))

    def running(self) -> LoopThread:
        """Return the thread of the loop. Raises IllegalStateError before the start, and in a forked process."""
        if self._loop_thread is None:
            raise IllegalStateError("the producer is not started: use it in 'with', or call its start() first")
        if self._process != forks.generation:
            raise IllegalStateError(
                "the producer belongs to another process: it was started before a fork; create and start a new one in "
                "each process, after the fork"
            )
        return self._loop_thread

    def _wake(self) -> None:
        self._is_woken = True
        try:
            self.running().soon(self._drain)
        except BaseException:  # also of a signal handler: the next record wakes the loop
            self._is_woken = False
            raise

    def _make_room(self, topic: object) -> None:
        """Wait until the loop has accepted records. Raises BufferFull if it cannot."""
        thread = self.running()
        if self._open_in < 0:
            raise IllegalStateError("the producer is closed and cannot be started again: create a new one")
        if not thread.is_current:  # a callback may send
            check_thread("Producer", thread)
            if not self._is_full and len(self._records) >= CROSSING_RECORDS:
                thread.call(self.emptied)
        if self._is_full or len(self._records) >= CROSSING_RECORDS:
            raise BufferFull(
                f"no room for a record for topic {topic!r}: an earlier record waits for room in buffer_memory; use "
                "put(...), which waits for room"
            )

    # In the loop.

    def report(self, delivery: Delivery) -> None:
        """Call the callbacks of an accepted delivery when it is settled."""
        inner = delivery.inner
        assert inner is not None, "the loop has accepted the record"
        result = inner.batch_result
        if result.settled:
            delivery.call_back()
            return
        # One follower for all records of a batch: a follower for each takes longer than the rest of its way here.
        waiting = self._reports.get(result)
        if waiting is None:
            waiting = self._reports[result] = []
            result.follow(partial(self._report_batch, result))
        waiting.append(delivery)

    def _report_batch(self, result: BatchResult) -> None:
        settled = result.moved is None  # otherwise a record may have moved to a batch that is not settled
        for delivery in self._reports.pop(result):
            if settled:
                delivery.call_back()
            else:
                self.report(delivery)

    def after(self, function: Callable[[], Coroutine[Any, Any, T]]) -> Callable[[], Coroutine[Any, Any, T]]:
        """Return a call that begins when the records before it are accepted (rule 2)."""

        async def run() -> T:
            if self._records or self._waiting is not None:
                await self.emptied()
            return await function()

        return run

    async def emptied(self) -> None:
        """Wait until the present records are accepted."""
        if self._records or self._waiting is not None:
            turn = asyncio.get_running_loop().create_future()
            self._records.append(turn)
            self._drain()
            await turn

    def _drain(self) -> None:
        # First: a record that is appended from now on wakes the loop again.
        self._is_woken = False
        if self._waiting is not None:
            return
        records = self._records
        last: RecordCalls[Any, Any] | None = None
        for _ in range(min(TURN, len(records))):
            delivery = records.popleft()
            if not isinstance(delivery, Crossing):
                _finish(delivery)
                continue
            try:
                calls = delivery.calls
                assert calls is not None, "the record is not accepted yet"
                if calls is not last:  # nothing here awaits, so the producer is checked once for all of its records
                    accept, last = calls.acceptor.accept_nowait, calls
                accepted = delivery.offer(accept)
            except (BufferFull, IllegalStateError) as error:  # the second one also of a serializer that has to wait
                self._is_full = isinstance(error, BufferFull)
                self._waiting = self.running().spawn(self._drain_slowly(delivery))
                return
            except BaseException as error:  # noqa: BLE001 - of a serializer or a partitioner of the program
                accepted = delivery.refused(error)
            delivery.accept(accepted)
            if delivery.callback is not None:
                self.report(delivery)
        if records:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._drain)

    async def _drain_slowly(self, delivery: Crossing) -> None:
        """Accept a record that has to wait. The records behind it have their turn afterwards."""
        try:
            accepted = await delivery.put()
        except BaseException as error:
            accepted = delivery.refused(error)
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._waiting, self._is_full = None, False
            delivery.accept(accepted)
            if delivery.callback is not None:
                self.report(delivery)
            self._drain()


def _finish(turn: asyncio.Future[None]) -> None:
    if not turn.done():  # its call may have been interrupted
        turn.set_result(None)


def _call_back(inner: AsyncDelivery, context: Context | None, function: OnSettled) -> None:
    try:
        inner.report_in(context, function)
    except (KeyboardInterrupt, SystemExit) as error:
        # In the loop it would end only this turn, and the records that are settled in it.
        _errors.log(f"the callback {callback_name(function)} of Delivery.report", error)


# As for asyncio's ``Delivery``, the garbage collector ignores it in the compiled build: a settled one is in no cycle,
# as its callbacks, their contexts and the references of the queue are dropped.
@mypyc_attr(acyclic=True)
class Delivery:
    """The promise of one record. Call ``wait`` for the record's ``RecordMetadata`` or error.

    Any number of threads may wait for it, any number of times. An interrupted or late ``wait`` ends only the wait: an
    accepted record is sent in any case. A record that the producer refuses, for example because it is too large, has
    the error here, as the producer gets it a moment after ``send_nowait`` has returned.

    If the record fails and no caller asks for the error, the error is logged once per batch.
    """

    __slots__ = ("_context", "_more", "_queue", "callback", "inner")

    _context: Context | None
    _more: list[tuple[Context | None, OnSettled]] | None

    def __init__(self, queue: SendQueue, inner: AsyncDelivery | None = None) -> None:
        self._queue = queue
        self.inner = inner
        """The asyncio producer's promise of the record, when it is accepted."""
        self._context = self._more = None
        self.callback: OnSettled | None = None
        """The function of ``report`` that the loop has not seen yet. Set in this order: context, callback."""

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Delivery cannot be pickled or copied: call its wait(), and use its RecordMetadata")

    def __repr__(self) -> str:
        return "<blocking Delivery open>" if self.inner is None else f"<blocking {repr(self.inner)[1:]}"

    def done(self) -> bool:
        """Return whether the record is acknowledged or has failed."""
        inner = self.inner
        if inner is None:
            self._queue.running()  # raises in a forked process
            return False
        return inner.is_final or self._call(inner.done)

    def result(self) -> RecordMetadata:
        """Return the record's metadata. Raises its error, or IllegalStateError if it is not settled yet."""
        inner = self.inner
        if inner is not None and inner.is_final:
            return inner.result()
        if inner is None or not self.done():
            raise IllegalStateError("the record is not settled yet: call wait()")
        return self._call(inner.result)

    def exception(self) -> Exception | None:
        """Return the record's error; None if it was delivered. Raises IllegalStateError if it is not settled yet."""
        inner = self.inner
        if inner is not None and inner.is_final:
            return inner.exception()
        if inner is None or not self.done():
            raise IllegalStateError("the record is not settled yet: call wait()")
        return self._call(inner.exception)

    def wait(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record is settled. Returns its metadata or raises its error.

        Raises KafkaTimeout after ``timeout`` seconds; None is no limit.
        """
        inner = self.inner
        if inner is not None and inner.is_final:
            return inner.result()
        check_timeout(timeout)

        async def settled() -> RecordMetadata:
            with deadline(timeout, lambda: f"{self!r} was not settled within timeout={timeout:g} s"):
                if self.inner is None:
                    await self._queue.emptied()
                assert self.inner is not None, "the queue has passed the record on"
                return await self.inner

        thread = self._queue.running()
        check_thread("Delivery", thread)
        return thread.call(settled)

    def report(self, function: Callable[[RecordMetadata, Exception | None], None]) -> None:
        """Call ``function(metadata, error)`` when the record is settled, perhaps at once.

        The function runs in the thread of the event loop, in a copy of the present context. It must not block, and may
        call ``send_nowait``. An exception of the function is logged and affects no record.
        """
        queue = self._queue
        queue.running()  # raises in a forked process, where nothing settles the record and the lock may be held
        with queue.report_lock:
            if self.callback is None:
                self._context = present_context()
                self.callback = function
            else:
                self._more = [*(self._more or ()), (present_context(), function)]
        # In this order: the loop sets the delivery first, and looks at the callback then.
        if self.inner is not None:
            queue.attach(self)

    def future(self) -> Future[RecordMetadata]:
        """Make a future of the delivery, for ``concurrent.futures.wait``, ``as_completed`` and ``add_done_callback``.

        Cancelling the future ends only the wait, and the record is still sent.
        """
        future: Future[RecordMetadata] = Future()

        def settle(metadata: RecordMetadata, error: Exception | None) -> None:
            if not future.set_running_or_notify_cancel():
                return
            if error is None:
                future.set_result(metadata)
            else:
                assert self.inner is not None, "it is settled"
                self.inner.exception()  # the caller gets the error, so it is not logged
                future.set_exception(error)

        self.report(settle)
        return future

    # In the loop.

    def call_back(self) -> None:
        """Let the asyncio delivery call the callbacks. The record is settled."""
        assert self.inner is not None, "the loop has accepted the record"
        function = self.callback
        if function is None:  # another call has passed them
            return
        with self._queue.report_lock:
            context, more = self._context, self._more
            self.callback = self._context = self._more = None
        _call_back(self.inner, context, function)
        if more is not None:
            for context, function in more:
                _call_back(self.inner, context, function)

    def _call(self, function: Callable[[], T]) -> T:
        """Run a method of a delivery whose record has moved to another batch, which changes the delivery."""
        return self._queue.running().run(function)


@mypyc_attr(acyclic=True)
class Crossing(Delivery):
    """The delivery of a record that the loop has not accepted yet, with the record. The program gets it as a Delivery.

    ``calls`` is the asyncio producer, or its transaction, that sends the record, and is None from then on.
    """

    # One object for both: a tuple beside the delivery would be one more object for the garbage collector to visit.

    __slots__ = ("_headers", "_key", "_partition", "_timestamp", "_topic", "_value", "calls")

    def __init__(
        self,
        queue: SendQueue,
        calls: RecordCalls[Any, Any],
        topic: Any,
        value: Any,
        key: Any,
        headers: Any,
        partition: Any,
        timestamp: Any,
    ) -> None:
        # The asyncio producer checks the record, so the types are not declared: compiled code would check them as well.
        super().__init__(queue)
        self.calls: RecordCalls[Any, Any] | None = calls
        self._topic, self._value, self._key = topic, value, key
        self._headers, self._partition, self._timestamp = headers, partition, timestamp

    def offer(self, accept_nowait: Callable[..., AsyncDelivery]) -> AsyncDelivery:
        """Let the asyncio producer accept the record, if it need not wait. Raises its errors."""
        return accept_nowait(self._topic, self._value, self._key, self._headers, self._partition, self._timestamp)

    async def put(self) -> AsyncDelivery:
        """Let the asyncio producer accept the record when it can. Raises its errors."""
        assert self.calls is not None, "the record is not accepted yet"
        return await self.calls.put(
            self._topic,
            self._value,
            key=self._key,
            headers=self._headers,
            partition=self._partition,
            timestamp=self._timestamp,
        )

    def refused(self, error: BaseException) -> AsyncDelivery:
        """Return the promise of the record that the asyncio producer has refused."""
        # SystemExit in the loop would end nothing but the records behind this one.
        if isinstance(error, IllegalStateError) and (text := for_threads(str(error))) != str(error):
            error = IllegalStateError(text)
        return failed_delivery(self._topic, error if isinstance(error, Exception) else IllegalStateError(repr(error)))

    def accept(self, inner: AsyncDelivery) -> None:
        """Follow the asyncio producer's promise, and drop the record."""
        self.inner = inner
        self.calls = self._value = self._key = self._headers = None
