"""How ``Workers`` call the user's function: in the event loop, in a thread, or in an executor.

An async function is called in the event loop. Any other function may block, so it is called in a thread of anyio, or in
the executor that the user gave. Nothing can stop a function that runs in a thread or a process. So:

- Another attempt, or a later record of the key, never begins while the function runs. At the timeout, a function in a
  thread is only asked to end: ``anyio.from_thread.check_cancelled()`` raises in it. If it returns nevertheless, the
  record is done.
- If the task is cancelled, because the group is closed or other members wait no longer, the function is left alone: the
  record is not finished, and the next owner of the partition processes it again, perhaps while the function still runs.

In virtual time, every function is called in the event loop: the clock would not wait for a thread.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import pickle
from collections.abc import Awaitable, Callable
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from contextvars import Context, ContextVar
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Protocol

import anyio
import anyio.to_thread

from ..aio.forks import OwnProcess
from ..aio.user_context import InContext
from ..aio.virtual_time import VirtualTimeLoop
from ..arguments import must_be
from ..consumer.group.callbacks import took_longer, wait
from ..errors import ConfigurationError, IllegalStateError, KafkaTimeout
from . import other_process

calling: ContextVar[Call | None] = ContextVar("calling", default=None)
"""The call whose thread runs this code, or has started the task that runs it."""


class Call(Protocol):
    """Calls the user's function once."""

    async def __call__(self, argument: Any, context: Context, what: str, timeout: float | None) -> Exception | None:
        """Call the function in this context, within ``timeout`` seconds. Returns its exception, None if it succeeded.

        ``what`` names the call in errors. Raises an error that no rule may decide about, because it does not concern
        the record.
        """


def call_of(handle: Any, what: str, executor: Executor | None) -> Call:
    """Return how to call the function. Raises ConfigurationError for a wrong function or executor.

    ``what`` is the argument of the function, for the texts of errors.
    """
    is_async = _is_async(handle, what)
    try:
        inspect.signature(handle).bind(None)
    except TypeError as error:
        raise ConfigurationError(f"handle must take one argument, a {what}: {error}") from None
    except ValueError:
        pass  # it has no signature that Python knows
    if executor is None:
        return _InLoop(handle) if is_async else _InThread(handle)
    _check_executor(executor)
    if is_async:
        raise ConfigurationError("executor is for plain functions, and handle is an async function: leave executor out")
    try:
        pickle.dumps(handle)
    except Exception as error:
        raise ConfigurationError(
            f"handle must be a function of a module, so that it can be pickled for the executor: {error}"
        ) from error
    return _InExecutor(handle, executor)


def _is_async(handle: Any, what: str) -> bool:
    """Return whether the callable is known to be an async function. Raises ConfigurationError if it cannot be called.

    A callable that was not defined in Python, for example one that was compiled, is not known. It is called in a
    thread, and what it returns is awaited.
    """
    function: Any = handle
    while isinstance(function, functools.partial):
        function = function.func
    if not callable(function) or isinstance(function, type):
        raise ConfigurationError(must_be("handle", f"a function of a {what}", handle))
    if inspect.iscoroutinefunction(function):
        return True
    if not isinstance(function, FunctionType | MethodType):
        function = type(function).__call__
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(f"handle must not be a generator function, which does nothing when called: {handle!r}")
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inspect.unwrap(function))


def _check_executor(executor: object) -> None:
    what = "a ProcessPoolExecutor, an InterpreterPoolExecutor or another Executor that pickles"
    if not isinstance(executor, Executor):
        raise ConfigurationError(must_be("executor", what, executor))
    # InterpreterPoolExecutor (Python 3.14) is a subclass of ThreadPoolExecutor.
    if isinstance(executor, ThreadPoolExecutor) and type(executor).__name__ != "InterpreterPoolExecutor":
        raise ConfigurationError(
            must_be("executor", what, executor) + "; without executor, plain functions run in threads"
        )


class _InLoop:
    """Calls an async function in the event loop."""

    def __init__(self, handle: Callable[[Any], Awaitable[object]]) -> None:
        self._handle = handle

    async def __call__(self, argument: Any, context: Context, what: str, timeout: float | None) -> Exception | None:
        try:
            awaitable = context.run(self._handle, argument)
            if inspect.isawaitable(awaitable):
                await wait(what, InContext(awaitable, context), timeout)
                return None
        except Exception as error:  # noqa: BLE001 - the user's function may raise anything
            return error
        raise TypeError(f"handle wraps an async function, but it returned {awaitable!r:.80}")


class _InThread:
    """Calls a plain function in a thread, and awaits what it returns if that can be awaited.

    A lambda often returns the coroutine of an async function.
    """

    def __init__(self, handle: Callable[[Any], object]) -> None:
        self._handle = handle

    async def __call__(self, argument: Any, context: Context, what: str, timeout: float | None) -> Exception | None:
        scope = anyio.CancelScope()  # the one that check_cancelled() looks at
        try:
            if isinstance(asyncio.get_running_loop(), VirtualTimeLoop):
                result = context.run(self._handle, argument)
            else:
                context.run(calling.set, self)
                call = partial(context.run, self._call, argument)
                thread = asyncio.create_task(OwnProcess(_run_thread(scope, call)))
                await _wait_for_thread(thread, scope, timeout)
                if thread.cancelled():
                    raise IllegalStateError(f"{what}: the task that waited for the thread was cancelled from outside")
                result = thread.result()
            if inspect.isawaitable(result):
                await wait(what, InContext(result, context), timeout)
                return None
        except _Ended as error:
            if scope.cancel_called and timeout is not None:
                return KafkaTimeout(took_longer(what, timeout))
            return IllegalStateError(f"{what} raised CancelledError although nothing cancelled it: {error.__cause__!r}")
        except Exception as error:  # noqa: BLE001 - the user's function may raise anything
            return error
        other_process.check_result(result)
        return None

    def _call(self, argument: Any) -> object:
        try:
            return self._handle(argument)
        except asyncio.CancelledError as error:
            raise _Ended from error  # not to be confused with a cancellation of the task that waits


class _Ended(Exception):
    """The function raised CancelledError, as ``check_cancelled()`` does, or did not begin before the timeout."""


async def _run_thread(scope: anyio.CancelScope, call: Callable[[], object]) -> object:
    # The slots of the Workers limit the number of threads, so each thread has a limiter of its own.
    with scope:
        return await anyio.to_thread.run_sync(call, limiter=anyio.CapacityLimiter(1))
    raise _Ended


async def _wait_for_thread(thread: asyncio.Task[object], scope: anyio.CancelScope, timeout: float | None) -> None:
    """Wait until the thread has ended. After ``timeout`` seconds, ask it to end, and wait on.

    A cancellation asks it too, and does not wait.
    """
    try:
        await asyncio.wait([thread], timeout=timeout)
        if not thread.done():
            scope.cancel()  # the task is shielded from it: it ends with the thread
            await asyncio.wait([thread])
    except asyncio.CancelledError:
        scope.cancel()
        thread.cancel()  # anyio leaves the thread alone
        with anyio.CancelScope(shield=True):
            await asyncio.wait([thread])
        if not thread.cancelled():
            thread.exception()  # of a function that ended at this moment; asyncio reports what nobody retrieves
        raise


class _InExecutor:
    """Calls a plain function in a process or an interpreter of the user's executor."""

    def __init__(self, handle: Callable[[Any], object], executor: Executor) -> None:
        self._handle = handle
        self._executor = executor

    async def __call__(self, argument: Any, context: Context, what: str, timeout: float | None) -> Exception | None:
        if isinstance(asyncio.get_running_loop(), VirtualTimeLoop):
            try:
                context.run(other_process.call, self._handle, argument)
            except other_process.WorkNotBegun:
                raise
            except Exception as error:  # noqa: BLE001 - the user's function may raise anything
                return error
            return None
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        try:
            future = self._executor.submit(other_process.call, self._handle, argument)
        except RuntimeError:  # it was shut down, or is broken: no record is at fault
            raise
        except Exception as error:  # noqa: BLE001 - of pickling the record
            return error
        try:
            await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if task.cancelling() > before:
                raise
            raise IllegalStateError(f"{what} was cancelled: the executor was shut down") from None
        except (BrokenExecutor, other_process.WorkNotBegun):
            raise
        except Exception as error:  # noqa: BLE001 - the user's function may raise anything
            return error
        return None
