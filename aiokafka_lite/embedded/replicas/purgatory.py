"""Waiting requests: each is tried once, and then tried again after a change of the keys that it watches.

An operation leaves the purgatory exactly once, at the first of these events: its condition holds, its timeout passes,
or its request is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

from ...compiled import mypyc_attr

T = TypeVar("T")


CallLater = Callable[[float, Callable[[], None]], Any]
"""Called like ``loop.call_later``. The result has ``cancel()``. It is Any: a compiled module would check a protocol."""


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedOperation(Generic[T]):
    """A response that is not ready yet. ``timeout`` is in seconds.

    Subclasses define ``try_complete``, ``result`` and, if the result differs after a timeout, ``on_expiration``. The
    purgatory sets ``timer``, ``waiter`` and ``keys``.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.completed: bool = False
        self.expired = False
        self.timer: Any = None
        self.waiter: asyncio.Future[T] | None = None
        self.keys: tuple[Hashable, ...] = ()

    def try_complete(self) -> bool:
        """Complete if the condition holds now. Return whether it does."""
        raise NotImplementedError

    def result(self) -> T:
        """Return the response. Called once, at completion."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """Change the result because the timeout has passed; ``result`` is called next."""

    def force_complete(self) -> bool:
        """Complete the operation. False if it was complete before."""
        if self.completed:
            return False
        self.completed = True
        if self.timer is not None:
            self.timer.cancel()
        if self.waiter is not None and not self.waiter.done():
            try:
                self.waiter.set_result(self.result())
            except Exception as error:  # noqa: BLE001 - the waiting request raises it
                self.waiter.set_exception(error)
        return True

    def abandon(self) -> None:
        """End the operation without a result, because the request was cancelled."""
        self.completed = True
        if self.timer is not None:
            self.timer.cancel()


class DelayedOperationPurgatory:
    """The waiting operations by the keys that they watch. Owner: a node's ReplicaManager."""

    def __init__(self, call_later: CallLater | None = None) -> None:
        self._call_later = call_later
        self._watchers: dict[Hashable, dict[DelayedOperation[Any], None]] = {}

    def __len__(self) -> int:
        return len({operation for watched in self._watchers.values() for operation in watched})

    def try_complete_else_watch(self, operation: DelayedOperation[T], keys: Iterable[Hashable]) -> bool:
        """Try once. If that fails, watch ``keys``, start the timeout and return False."""
        if operation.completed or operation.try_complete():
            return True
        self._watch_keys(operation, keys)
        return False

    def _watch_keys(self, operation: DelayedOperation[T], keys: Iterable[Hashable]) -> None:
        # Kafka tries once more after this, because another thread may have changed a key in between. Here nothing can:
        # there is no ``await``.
        assert not operation.keys, "an operation waits once"
        operation.keys = tuple(keys)
        for key in operation.keys:
            self._watchers.setdefault(key, {})[operation] = None
        call_later = self._call_later or asyncio.get_running_loop().call_later
        operation.timer = call_later(operation.timeout, lambda: self._expire(operation))

    def check_and_complete(self, key: Hashable) -> int:
        """Try all operations that watch ``key``. Returns the number of completed ones."""
        watched = self._watchers.get(key)
        if not watched:
            return 0
        completed = 0
        # A copy: the completion of an operation may begin or end others.
        for operation in list(watched):
            if operation.completed or operation.try_complete():
                self.remove(operation)
                completed += 1
        return completed

    async def wait(self, operation: DelayedOperation[T], keys: Iterable[Hashable]) -> T:
        """Wait for an operation, and return its result. A cancelled wait removes it."""
        if operation.completed or operation.try_complete():
            return operation.result()
        operation.waiter = asyncio.get_running_loop().create_future()
        self._watch_keys(operation, keys)
        try:
            return await operation.waiter
        finally:
            # After a cancellation the request has no client any more, and after a result this changes nothing.
            operation.abandon()
            self.remove(operation)

    def watch(self, operation: DelayedOperation[T], keys: Iterable[Hashable]) -> asyncio.Future[T]:
        """Watch an operation that no request waits for, and return a future of its result."""
        operation.waiter = waiter = asyncio.get_running_loop().create_future()
        self.try_complete_else_watch(operation, keys)
        return waiter

    def complete_all(self) -> None:
        """Complete all operations as after their timeouts, because the broker stops."""
        for watched in list(self._watchers.values()):
            for operation in list(watched):
                self._expire(operation)

    def _expire(self, operation: DelayedOperation[T]) -> None:
        if not operation.completed:
            operation.expired = True
            operation.on_expiration()
            is_first = operation.force_complete()
            assert is_first, "an operation completes once"
        self.remove(operation)

    def remove(self, operation: DelayedOperation[T]) -> None:
        for key in operation.keys:
            watched = self._watchers.get(key)
            if watched is not None:
                watched.pop(operation, None)
                if not watched:
                    del self._watchers[key]
        operation.keys = ()
