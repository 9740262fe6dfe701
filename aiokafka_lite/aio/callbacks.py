"""Logs exceptions of user callbacks, for callbacks whose caller cannot raise them. They affect no record."""

from __future__ import annotations

import asyncio
import logging

logger = logging.getLogger(__name__)

RAISED = (Exception, asyncio.CancelledError)
"""Exceptions that a callback may raise. A callback that reads the result of a cancelled future raises CancelledError,
although no task is cancelled."""


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
