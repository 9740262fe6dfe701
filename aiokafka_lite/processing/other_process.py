"""Calls a handler of ``Workers`` in a process or an interpreter of an executor.

It imports nothing else of the package: each process of the executor imports it with the first record.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from typing import Any


class WorkNotBegun(TypeError):
    """The function has returned its work instead of doing it. It does so with each record, so no rule decides."""


def check_result(result: object) -> None:
    """Raise WorkNotBegun for a generator: its code has not begun, and nothing would iterate over it."""
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise WorkNotBegun(f"handle returned a generator, whose code has not begun: {result!r:.80}")


def call(handle: Callable[[Any], object], argument: Any) -> None:
    """Call the function. Raises its exception, or a RuntimeError with its text if it cannot be pickled.

    ``ProcessPoolExecutor`` would be broken by an exception that cannot be unpickled, and asyncio by a StopIteration.
    Raises WorkNotBegun if the function returns an awaitable or a generator, because nothing here runs it.
    """
    try:
        result = handle(argument)
    except Exception as error:  # the user's function may raise anything
        if (other := picklable(error)) is not error:
            raise other from None
        raise
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise WorkNotBegun("handle returned an awaitable; a function that runs in an executor must do its work itself")
    check_result(result)


def picklable(error: Exception) -> Exception:
    """Return the error, or a RuntimeError with its text if it cannot be pickled or cannot be raised by a future."""
    if isinstance(error, StopIteration) or not _can_be_pickled(error):
        return RuntimeError(f"{type(error).__qualname__}: {_text(error)}")
    return error


def _can_be_pickled(error: Exception) -> bool:
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:  # noqa: BLE001 - of the class's own __reduce__ or __init__
        return False


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - of the user's __str__
        return f"{type(failure).__name__} in __str__"
