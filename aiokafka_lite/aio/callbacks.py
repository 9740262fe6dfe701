"""User callbacks: calls them in a copy of the context, and logs exceptions that no caller can raise.

Neither a context variable that a callback sets nor its exception affects another record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextvars import copy_context
from typing import Generic, TypeVar, TypeVarTuple

logger = logging.getLogger(__name__)

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
Ts = TypeVarTuple("Ts")

RAISED = (Exception, asyncio.CancelledError)
"""Exceptions that a callback may raise. A callback that reads the result of a cancelled future raises CancelledError,
although no task is cancelled."""


def in_copy(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Call ``function(*args)`` in a copy of the present context."""
    return copy_context().run(function, *args)


def callback_name(function: object) -> str:
    """Return the name of a function of the program, for the log."""
    name: str = getattr(function, "__qualname__", type(function).__qualname__)
    return name


class CallbackErrors:
    """Logs an exception once per callback and type, because it usually repeats for every record."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: set[tuple[str, type[BaseException]]] = set()

    def log(self, callback: str, error: BaseException, about: str = "") -> None:
        """Log an exception of ``callback``, such as "Audit.on_send"."""
        kind = (callback, type(error))
        if kind not in self._seen:
            self._seen.add(kind)
            logger.error("%s failed%s; this error is not logged again", callback, about, exc_info=error)


class EventHook(Generic[T_contra]):
    """A function of the user that is called with events. Whatever it raises is logged, and changes nothing."""

    __slots__ = ("_errors", "_function")

    def __init__(self, function: Callable[[T_contra], object]) -> None:
        self._function = function
        self._errors = CallbackErrors()

    def __call__(self, event: T_contra) -> None:
        try:
            in_copy(self._function, event)
        except RAISED as error:
            self._errors.log(f"on_event for {type(event).__name__}", error)


def is_kind_of_any(interceptor: object, others: Iterable[object]) -> bool:
    """Return whether another interceptor does the same: one has the class of the other, or they share a base class."""
    kind = type(interceptor)
    bases = tuple(base for base in kind.__bases__ if base is not object)
    return any(isinstance(interceptor, type(other)) or isinstance(other, bases) for other in others)
