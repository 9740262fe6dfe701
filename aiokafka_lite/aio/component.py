"""The public side of a component with tasks, such as a client. The machinery is in its ``Service``."""

from __future__ import annotations

import logging
import warnings
from types import TracebackType
from typing import NoReturn, Self

from .service import Service, ServiceState, unwrapped

logger = logging.getLogger(__name__)


class NotCopyable:
    """The base of objects that own connections and tasks. A copy would share them with the original."""

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise TypeError(f"{name} cannot be pickled or copied, as it has connections and tasks: create another one")


class Component(NotCopyable):
    """The public side of a component with tasks: ``async with``, or ``start()`` and ``close()``, and its ``state``.

    A subclass implements ``_on_start`` and ``_on_close`` and uses ``self._service`` for everything else.
    """

    def __init__(self) -> None:
        self._service = Service(self, self._on_start, self._on_close, self._describe_late_start)

    async def _on_start(self) -> None:
        """Prepare the component for use."""

    async def _on_close(self) -> None:
        """End in an orderly way: flush records, leave the group."""

    def _describe_late_start(self, timeout: float) -> str:
        """Describe why a start exceeded ``timeout`` seconds; empty if the component has no special text."""
        return ""

    @property
    def state(self) -> ServiceState:
        return self._service.state

    async def start(self, timeout: float | None = None) -> None:
        """Start the component within ``timeout`` seconds (``api_timeout`` by default).

        Raises KafkaTimeout, or the error that prevented the start. After an error or a cancellation, no task and no
        connection remains.
        """
        await self._service.start(timeout)

    def __del__(self) -> None:
        service = self.__dict__.get("_service")  # the attribute is missing if the constructor raised early
        if service is not None and service.is_abandoned:
            warnings.warn(
                f"unclosed {type(self).__name__}: use it in 'async with', or await its close()",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    async def close(self, timeout: float | None = None) -> None:
        """Close in an orderly way within ``timeout`` seconds (3 by default), then cancel the remaining tasks.

        May be called more than once, from any task of the event loop. If the call is cancelled, all tasks are cancelled
        at once. Raises the exception that ended the component, if any, and KafkaTimeout if a task resists cancellation.
        """
        await self._service.close(timeout)

    async def _close_after_error(self) -> None:
        """Close when the body of ``async with`` has raised."""
        await self.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        try:
            await self._close_after_error()
        except Exception as failure:  # noqa: BLE001 - the exception of the body is the one to raise
            # The body may raise the error of a failed task in an exception group. ``close`` raises it alone.
            is_expected = unwrapped(failure) is unwrapped(error) or self._service.is_inherited
            if not is_expected:
                logger.warning("%r failed to close after %r: %r", self, error, failure)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.state.name}>"
