"""The program's rebalance listener, called with aiokafka's methods at aiokafka's times."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial

from ... import consumer as native
from ...types import TopicPartition
from .abc import ConsumerRebalanceListener

logger = logging.getLogger(__name__)

Commit = Callable[[], Callable[[], Awaitable[None]] | None]


@dataclass(slots=True)
class _Rebalance:
    """A call of a listener in progress: its owner, and the calls of the consumer that the listener may make."""

    owner: Listening
    handle: native.RebalanceHandle | None


_rebalance: ContextVar[_Rebalance | None] = ContextVar("rebalance", default=None)
"""The call of a listener that runs this code. A task that the listener starts inherits it until the call returns."""


class Listening(native.RebalanceListener):
    """Calls the program's present listener. Its exceptions are logged, as in aiokafka.

    A revocation comes before each assignment; the first one revokes nothing. A consumer that stops revokes nothing.
    ``on_change`` is called after an assignment and before a revocation. ``commit`` is a weak reference to the call that
    commits the returned records before partitions are revoked; None without automatic commits. Owner: the
    ``AIOKafkaConsumer``. There is no other reference to the owner here, because a task of the inner consumer must not
    keep the owner alive.
    """

    def __init__(self, on_change: Callable[[], None], commit: Commit | None) -> None:
        self.listener: ConsumerRebalanceListener | None = None
        self.is_stopped = False
        self.has_new_topics: bool = False
        """Whether the topics or their partitions may have changed. The owner clears it when it looks them up."""
        self._on_change = on_change
        self._commit = commit
        self._has_revoked = False

    @property
    def handle(self) -> native.RebalanceHandle | None:
        """The calls that the code of a listener may make; None outside of it."""
        running = _rebalance.get()
        return running.handle if running is not None and running.owner is self else None

    async def on_assigned(self, handle: native.RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        if not self._has_revoked:
            await self._call("on_partitions_revoked", handle, ())
        self._has_revoked = False
        await self._call("on_partitions_assigned", handle, partitions)
        self.has_new_topics = True
        self._on_change()

    async def on_revoked(self, handle: native.RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        commit = None if self._commit is None else self._commit()
        if commit is not None and not self.is_stopped:
            await self._run("the commit before the rebalance", handle, partitions, commit)
        await self.on_lost(handle, partitions)

    async def on_lost(self, handle: native.RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        self._on_change()
        if not self.is_stopped:
            self._has_revoked = self.listener is not None
            await self._call("on_partitions_revoked", handle, partitions)

    async def _call(self, method: str, handle: native.RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        if self.listener is not None:
            await self._run(f"{method}()", handle, partitions, partial(getattr(self.listener, method), set(partitions)))

    async def _run(
        self,
        what: str,
        handle: native.RebalanceHandle,
        partitions: Sequence[TopicPartition],
        function: Callable[[], Awaitable[None] | None],
    ) -> None:
        running = _Rebalance(self, handle)
        token = _rebalance.set(running)
        try:
            result = function()
            if inspect.isawaitable(result):
                await result
        except Exception:
            logger.exception("%s failed for %s", what, partitions)
        finally:
            running.handle = None
            _rebalance.reset(token)
