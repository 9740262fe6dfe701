"""Runs user code in a copy of a context, so that context variables which it sets are seen by no other code of the user.

A task of this package calls user code many times: for many records, rebalances and commits. Without a copy, a variable
that one call sets, such as the order id of a log line, would still be set in the next call, for another record. So each
call that the user's own task does not make begins with a copy, as each request of a web framework does. ``in_copy`` of
``aio/callbacks.py`` calls a plain function so.

An awaitable runs in its copy without a task of its own: ``InContext`` passes each step of a coroutine to
``Context.run``. That takes 0.6 µs for a call and 0.4 µs for each suspension; a task takes 5 µs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class InContext(Generic[T]):
    """Awaits an awaitable in a context. The awaitable remains a part of the task that awaits it.

    So a cancellation of the task, ``asyncio.current_task()`` and cancel scopes work as without the context.
    """

    __slots__ = ("_awaitable", "_context")

    def __init__(self, awaitable: Awaitable[T], context: Context) -> None:
        self._awaitable = awaitable
        self._context = context

    def __await__(self) -> Generator[Any, Any, T]:
        # A Coroutine has send() and throw(); other awaitables need not have them.
        awaitable = self._awaitable
        coroutine: Coroutine[Any, Any, T] = awaitable if isinstance(awaitable, Coroutine) else _result_of(awaitable)
        run = self._context.run
        step: Callable[[Any], Any] = coroutine.send
        argument: Any = None
        while True:  # as "yield from" does it (PEP 380)
            try:
                future = run(step, argument)
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                argument = yield future
            except GeneratorExit:
                run(coroutine.close)
                raise
            except BaseException as error:  # noqa: BLE001 - passed on to the coroutine
                step, argument = coroutine.throw, error
            else:
                step = coroutine.send


async def _result_of(awaitable: Awaitable[T]) -> T:
    return await awaitable
