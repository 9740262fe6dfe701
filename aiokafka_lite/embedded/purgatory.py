"""Requests that wait for something: tried at once, then watched under the keys whose change may complete them.

The three ways out of the purgatory are the condition, the timeout and the cancellation of whoever waits. An operation
leaves it exactly once, whichever comes first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class Timer(Protocol):
    def cancel(self) -> object: ...


CallLater = Callable[[float, Callable[[], None]], Timer]


class DelayedOperation(Generic[T]):
    """An answer that is not ready yet.

    Subclasses give ``try_complete`` (complete if the condition holds), ``result`` and, where a timeout differs from
    completion, ``on_expiration``.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.completed = False
        self.expired = False
        self._timer: Timer | None = None
        self._waiter: asyncio.Future[T] | None = None
        self._keys: tuple[Hashable, ...] = ()

    def try_complete(self) -> bool:
        """Complete and return True if the condition holds now."""
        raise NotImplementedError

    def result(self) -> T:
        """The answer, made once, at the moment of completion."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """What the timeout changes before ``result`` is made."""

    def force_complete(self) -> bool:
        """Complete unless that has happened; tell whether this call did it."""
        if self.completed:
            return False
        self.completed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._waiter is not None and not self._waiter.done():
            try:
                self._waiter.set_result(self.result())
            except Exception as error:  # noqa: BLE001 - reaches the request that waits, whose connection answers
                self._waiter.set_exception(error)
        return True

    def abandon(self) -> None:
        """Nobody waits any more: leave without a result."""
        self.completed = True
        if self._timer is not None:
            self._timer.cancel()


class DelayedOperationPurgatory:
    """Operations by the keys they are watched under. Owner: a node's ReplicaManager."""

    def __init__(self, call_later: CallLater | None = None) -> None:
        self._call_later = call_later
        self._watchers: dict[Hashable, dict[DelayedOperation[Any], None]] = {}

    def __len__(self) -> int:
        return len({operation for watched in self._watchers.values() for operation in watched})

    def try_complete_else_watch(self, operation: DelayedOperation[T], keys: Iterable[Hashable]) -> bool:
        """Try once; else watch it under ``keys`` and start its timeout. Tells whether it is complete."""
        if operation.completed or operation.try_complete():
            return True
        operation._keys = tuple(keys)
        for key in operation._keys:
            self._watchers.setdefault(key, {})[operation] = None
        call_later = self._call_later or asyncio.get_running_loop().call_later
        operation._timer = call_later(operation.timeout, lambda: self._expire(operation))
        return False

    def check_and_complete(self, key: Hashable) -> int:
        """Try everything watched under ``key``; tells how many completed."""
        watched = self._watchers.get(key)
        if not watched:
            return 0
        completed = 0
        for operation in list(watched):
            if operation.completed or operation.try_complete():
                self.forget(operation)
                completed += 1
        return completed

    async def wait(self, operation: DelayedOperation[T], keys: Iterable[Hashable]) -> T:
        """The operation's result, now or when it comes. A cancelled wait takes the operation out."""
        if operation.completed or operation.try_complete():
            return operation.result()
        operation._waiter = asyncio.get_running_loop().create_future()
        self.try_complete_else_watch(operation, keys)
        try:
            return await operation._waiter
        finally:
            operation.abandon()
            self.forget(operation)

    def complete_all(self) -> None:
        """End every wait now, as a broker that goes away does."""
        for watched in list(self._watchers.values()):
            for operation in list(watched):
                self._expire(operation)

    def _expire(self, operation: DelayedOperation[T]) -> None:
        if not operation.completed:
            operation.expired = True
            operation.on_expiration()
            operation.force_complete()
        self.forget(operation)

    def forget(self, operation: DelayedOperation[T]) -> None:
        for key in operation._keys:
            watched = self._watchers.get(key)
            if watched is not None:
                watched.pop(operation, None)
                if not watched:
                    del self._watchers[key]
        operation._keys = ()
