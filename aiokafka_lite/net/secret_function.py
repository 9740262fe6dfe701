"""A function of the user that returns a secret for a login: a password, or a token.

A sync function runs in a thread, because it may block. The thread is a daemon of its own: a function that never returns
occupies neither the threads of the resolver nor the end of the program. A login that finds such a call still running
waits for its result, so there is at most one thread for each function of each client.

An async function runs in the user's event loop, also for connections in another loop (``home``).
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import NamedTuple

from ..aio.user_context import InContext
from ..errors import AuthenticationError, ConnectionLost

__all__ = ["SecretFunction"]


class _Outcome(NamedTuple):
    """What a function in a thread returned or raised. A future cannot carry a StopIteration as its exception."""

    value: object
    error: BaseException | None


class SecretFunction:
    """Calls the function of a setting, which the errors name. Owned by the loop of the client.

    ``home`` is the loop in which an async function runs; None for the loop of the client.
    """

    def __init__(
        self,
        setting: str,
        function: Callable[[], object | Awaitable[object]],
        home: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._setting = setting
        self._function = function
        self._home = home
        self._running: asyncio.Future[_Outcome] | None = None
        self._has_returned = True  # false during a call, and after one that was cancelled

    def __repr__(self) -> str:
        return f"<SecretFunction {self._setting}>"

    @property
    def delay(self) -> str:
        """The words for a login that waited for the function in vain; empty if it has returned."""
        return "" if self._has_returned else f": the function {self._setting} has not returned"

    async def call(self) -> object:
        """Call the function, and return its value, which is not checked.

        Raises AuthenticationError and ConnectionLost of the function. Any other exception becomes a ConnectionLost,
        because the next call may succeed. A cancellation ends an async function; a thread goes on.
        """
        self._has_returned = False
        try:
            # In a copy of the context: the connection works for many callers.
            context = copy_context()
            # A function that is not declared as async may block. It may still return an awaitable.
            if not self.is_async:
                value = await self._in_thread(context)
            elif self._home is None:
                value = context.run(self._function)
            else:
                value = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._at_home(context), self._home))
            if inspect.isawaitable(value):
                value = await InContext(value, context)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._has_returned = True
            raise self._failed(error) from error  # the function raised it: it waited for a task that was cancelled
        except Exception as error:
            self._has_returned = True
            if isinstance(error, AuthenticationError | ConnectionLost):
                raise
            raise self._failed(error) from error
        self._has_returned = True
        return value

    async def _at_home(self, context: Context) -> object:
        value = context.run(self._function)
        return await InContext(value, context) if inspect.isawaitable(value) else value

    def twin(self, home: asyncio.AbstractEventLoop) -> SecretFunction:
        """Make another one for connections in another loop than ``home``."""
        return SecretFunction(self._setting, self._function, home)

    @property
    def is_async(self) -> bool:
        """Whether the function is declared as async."""
        function = self._function
        return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)

    def _failed(self, error: BaseException) -> ConnectionLost:
        return ConnectionLost(f"{self._setting} failed: it raised {type(error).__name__}", sent=False)

    async def _in_thread(self, context: Context) -> object:
        running = self._running
        if running is None or running.done():
            loop = asyncio.get_running_loop()
            self._running = running = loop.create_future()
            arguments = (context, self._function, loop, running)
            threading.Thread(target=_run, args=arguments, name=self._setting, daemon=True).start()
        await asyncio.wait([running])  # unlike ``await running``, a cancellation does not cancel the future
        outcome = running.result()
        if outcome.error is not None:
            raise outcome.error
        return outcome.value


def _run(
    context: Context, function: Callable[[], object], loop: asyncio.AbstractEventLoop, promise: asyncio.Future[_Outcome]
) -> None:
    try:
        outcome = _Outcome(context.run(function), None)
    except Exception as error:  # noqa: BLE001 - raised in the login
        outcome = _Outcome(None, error)
    except BaseException as error:  # noqa: BLE001 - SystemExit in a thread must not leave the login waiting
        outcome = _Outcome(None, RuntimeError(f"{type(error).__name__} in a thread"))
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(promise.set_result, outcome)
