"""What a blocking ``Producer`` and its transactions add to the calls of their asyncio counterparts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import anyio

from ..arguments import must_be
from ..errors import ConfigurationError, IllegalStateError
from ..producer import BulkDelivery as AsyncBulkDelivery
from ..producer import Producer as AsyncProducer
from ..producer import Transaction as AsyncTransaction
from ..producer.accept.arrow import Written
from ..producer.producer import ABRUPT_CLOSE_TIMEOUT, CLOSE_TIMEOUT
from .loop_thread import LoopThread
from .sending import SendQueue
from .wrapper import Blocking, BlockingClient

P = ParamSpec("P")
T = TypeVar("T")


class Sending(Blocking):
    """An object whose calls come after the records that its thread has sent before."""

    def __init__(self, inner: Any, queue: SendQueue) -> None:
        super().__init__(inner)
        self._queue = queue

    def _await(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread().call(self._queue.after(partial(function, *args, **kwargs)))


class Ending:
    """Closes a producer. The records of its queue count as accepted."""

    def __init__(self, producer: AsyncProducer[Any, Any], queue: SendQueue) -> None:
        self._producer = producer
        self._queue = queue

    def __repr__(self) -> str:
        return repr(self._producer)

    async def close(self, timeout: float | None = CLOSE_TIMEOUT) -> None:
        """Pass all records to the producer, and close it, within ``timeout`` seconds."""
        timeout = CLOSE_TIMEOUT if timeout is None else timeout
        begin = asyncio.get_running_loop().time()
        with anyio.move_on_after(timeout):
            await self._queue.emptied()
        # Records that still wait for room fail now, as in any call that waits while the producer is closed.
        await self._producer.close(max(0.0, begin + timeout - asyncio.get_running_loop().time()))

    async def close_after_error(self, kind: type[BaseException], error: BaseException | None) -> None:
        """Close when the body of ``with`` has raised."""
        with anyio.move_on_after(ABRUPT_CLOSE_TIMEOUT):
            await self._queue.emptied()
        await self._producer.__aexit__(kind, error, None)


class BlockingProducer(BlockingClient, Sending):
    """The lifetime of a blocking producer, which has a queue of records beside its asyncio producer."""

    _inner: AsyncProducer[Any, Any]

    def __init__(self, inner: AsyncProducer[Any, Any]) -> None:
        BlockingClient.__init__(self, inner)
        self._queue = SendQueue()
        self._ending = Ending(inner, self._queue)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish(CLOSE_TIMEOUT)
        else:
            self._close_queue()
            self._end(self._ending.close_after_error, kind, error)

    @property
    def asynchronous(self) -> AsyncProducer[Any, Any]:
        """The asyncio producer, for clients of the package that send with it."""
        return self._inner

    def _closable(self) -> Ending:
        return self._ending

    def _begin(self, start: Callable[[float | None], Coroutine[Any, Any, None]], timeout: float | None) -> None:
        super()._begin(start, timeout)
        self._queue.start(self._thread())

    def _finish(self, timeout: float | None) -> None:
        self._close_queue()
        self._end(self._ending.close, timeout)

    def _close_queue(self) -> None:
        self._thread()  # first: where the close is refused, the producer stays open
        self._queue.close()


class BlockingTransaction(Sending):
    """A transaction that no interrupt leaves open: its body does not run, or has ended."""

    _inner: AsyncTransaction[Any, Any]

    def _enter(self) -> None:
        thread = self._thread()
        begin = self._queue.after(self._inner.__aenter__)
        # An interrupted caller has no open transaction, so it would never end it.
        thread.call(begin, keep=lambda _: self._abort_soon(thread, "the begin of the transaction was interrupted"))

    def _exit(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        thread = self._thread()
        try:
            self._await(self._inner.__aexit__, kind, error, traceback)
        except BaseException:
            # An interrupt may come before the call. Otherwise it has ended the transaction, and this does nothing.
            with suppress(IllegalStateError):  # the loop has ended
                thread.soon(partial(self._abort_soon, thread, "the end of the transaction was interrupted"))
            raise

    def _abort_soon(self, thread: LoopThread, why: str) -> None:
        error = IllegalStateError(why)
        thread.spawn(self._inner.__aexit__(type(error), error, None))


def asynchronous(producer: object) -> AsyncProducer[Any, Any] | None:
    """Return the asyncio producer of a blocking one. Raises ConfigurationError for another object."""
    if producer is None:
        return None
    if not isinstance(producer, BlockingProducer):
        raise ConfigurationError(must_be("producer", "a Producer of aiokafka_lite.blocking", producer))
    return producer.asynchronous


class BulkDelivery(Blocking):
    """The promise of the records of a table. Call ``wait`` for the list of ``Written``, or for the first error.

    It is done when all records are settled, even if some have failed. ``size`` is the number of bytes before
    compression. Any number of threads may wait for it, any number of times; interrupting a wait ends only the wait.
    """

    _inner: AsyncBulkDelivery

    @property
    def size(self) -> int:
        return self._inner.size

    def done(self) -> bool:
        """Return whether every record is acknowledged or has failed."""
        return self._run(self._inner.done)

    def exception(self) -> Exception | None:
        """Return the first error so far; None if there is none."""
        return self._run(self._inner.exception)

    @property
    def written(self) -> Sequence[Written]:
        """The runs of records that are acknowledged so far."""
        written: Sequence[Written] = self._read("written")
        return written

    @property
    def acknowledged(self) -> int:
        """The number of records that are acknowledged so far."""
        acknowledged: int = self._read("acknowledged")
        return acknowledged

    def wait(self) -> list[Written]:
        """Wait until all records are settled. Returns their offsets, or raises the first error."""

        async def settled() -> list[Written]:
            return await self._inner

        return self._await(settled)
