"""One event loop for a whole worker process: Spark calls from its own thread, and clients outlive the task.

Spark reuses its Python workers for many tasks, and asks for rows from a thread of its own. So each process has one
daemon thread with one loop, and what is costly to start (connections, metadata, a producer) is kept there by its
settings and closed when it has not been used for a while. Workers are forked: a process that finds the runtime of its
parent has neither its thread nor its sockets, and makes its own.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from ..aio.service import Component, ServiceState
from ..errors import KafkaError

logger = logging.getLogger(__name__)

T = TypeVar("T")
S = TypeVar("S", bound=Component)

IDLE_TIMEOUT = 60.0
"""Seconds that a client is kept which nobody uses: as long as Spark keeps an idle worker."""


class _Kept:
    """A service and who uses it. Belongs to the loop's thread."""

    def __init__(self) -> None:
        self.starting = asyncio.Lock()
        """Held by who starts it: whoever comes meanwhile waits, and finds it started."""
        self.service: Component | None = None
        self.users = 0
        self.closing: asyncio.TimerHandle | None = None


class Runtime:
    """A loop in a thread of its own, and the services that live on it. ``run`` and ``lease`` are for other threads."""

    def __init__(self, *, idle_timeout: float = IDLE_TIMEOUT) -> None:
        self.pid = os.getpid()
        self._idle_timeout = idle_timeout
        self._kept: dict[Hashable, _Kept] = {}
        self._ending: set[Future[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka_lite", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Runtime pid={self.pid} services={len(self._kept)}>"

    @property
    def closed(self) -> bool:
        return self._loop.is_closed()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it on the loop and wait for what it returns or raises; interrupted, it is cancelled."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # of no effect on one that is done
            raise

    @contextmanager
    def lease(self, key: Hashable, make: Callable[[], S]) -> Iterator[S]:
        """The started service of that key, made now if there is none; others may use it at the same time.

        It is not closed at the end, but after ``idle_timeout`` seconds without a user. ``make`` runs on the loop. What
        the start raises is raised, and the next lease tries anew; as it does when the service has failed since.
        """
        service = self.run(self._take(key, make))
        try:
            yield service
        finally:
            self._loop.call_soon_threadsafe(self._give_back, key, service)

    async def _take(self, key: Hashable, make: Callable[[], S]) -> S:
        kept = self._kept.setdefault(key, _Kept())
        if kept.closing is not None:
            kept.closing.cancel()
            kept.closing = None
        kept.users += 1
        try:
            async with kept.starting:
                if kept.service is None or kept.service.state is not ServiceState.RUNNING:
                    kept.service = None  # one that failed is closed by its last user
                    service = make()
                    await service.start()
                    kept.service = service
            return kept.service  # type: ignore[return-value]
        except BaseException:
            self._leave(key, kept)
            raise

    def _give_back(self, key: Hashable, service: Component) -> None:
        kept = self._kept[key]
        if kept.service is not service:
            self._end(service)
        self._leave(key, kept)

    def _leave(self, key: Hashable, kept: _Kept) -> None:
        kept.users -= 1
        if not kept.users:
            kept.closing = self._loop.call_later(self._idle_timeout, self._drop, key)

    def _drop(self, key: Hashable) -> None:
        kept = self._kept.pop(key)
        if kept.service is not None:
            self._end(kept.service)

    def _end(self, service: Component) -> None:
        ending = asyncio.run_coroutine_threadsafe(_closed(service), self._loop)
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def close(self) -> None:
        """Close the services and end the thread; for tests, as a worker's thread ends with its process."""

        async def close_all() -> None:
            for key, kept in list(self._kept.items()):
                if kept.closing is not None:
                    kept.closing.cancel()
                self._drop(key)
            await asyncio.gather(*map(asyncio.wrap_future, self._ending))

        self.run(close_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _closed(service: Component) -> None:
    try:
        await service.close()
    except KafkaError as error:  # what it died of was raised where it was used
        logger.debug("%r did not end in good order: %s", service, error)


_lock = threading.Lock()
_runtime: Runtime | None = None
_frozen_in: int | None = None


def runtime() -> Runtime:
    """This process's runtime, made on first use."""
    global _runtime
    with _lock:
        if _runtime is None or _runtime.closed or _runtime.pid != os.getpid():
            _runtime = Runtime()
        return _runtime


def freeze_gc() -> None:
    """Take what is alive out of the collector's sight, once in a worker.

    Spark's worker collects after every task, over some 30,000 objects of imported modules: half of what a small task
    costs.
    """
    global _frozen_in
    if _frozen_in != os.getpid():
        _frozen_in = os.getpid()
        gc.freeze()
