"""Exceptions of user code where no caller could take them: they are logged, and affect no record."""

from __future__ import annotations

import asyncio
import logging

logger = logging.getLogger(__name__)

RAISED = (Exception, asyncio.CancelledError)
"""What a callback may raise. CancelledError as well: a callback that asks a cancelled future for its result raises it,
and no task is cancelled by that."""


class CallbackErrors:
    """Logs an exception once per callback and type, because it mostly repeats for every record."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: set[tuple[str, type[BaseException]]] = set()

    def log(self, callback: str, error: BaseException, about: str = "") -> None:
        """Log an exception of ``callback``, such as "Audit.on_send"."""
        kind = (callback, type(error))
        if kind not in self._seen:
            self._seen.add(kind)
            logger.error("%s failed%s; this error is not logged again", callback, about, exc_info=error)
