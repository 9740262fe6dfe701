"""One event loop per worker process: Spark calls from its own threads, and clients are leased from task to task.

Spark reuses its Python workers for many tasks, and asks for rows from a thread of its own. So each process has one
daemon thread with one event loop. Components that are expensive to start, such as connections, metadata and a producer,
stay in this loop. Tasks lease them by their settings. A component is closed after ``IDLE_TIMEOUT`` seconds without a
lease.

Workers are forked. A forked process cannot use its parent's loop, whose thread it does not have, and makes its own.
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

from ..aio.component import Component
from ..aio.service import ServiceState
from ..errors import KafkaError

logger = logging.getLogger(__name__)

T = TypeVar("T")
S = TypeVar("S", bound=Component)

IDLE_TIMEOUT = 60.0
"""Seconds after which an unused client is closed. Spark ends an idle worker after the same time."""


class _Lease:
    """A component with its users. Belongs to the loop's thread."""

    def __init__(self) -> None:
        self.starting = asyncio.Lock()
        """Held by the task that starts the component. Other tasks wait, and then find it started."""
        self.service: Component | None = None
        self.users = 0
        self.closing: asyncio.TimerHandle | None = None


class WorkerLoop:
    """An event loop in a thread of its own, and the components on it. Other threads call ``run`` and ``lease``."""

    def __init__(self, *, idle_timeout: float = IDLE_TIMEOUT) -> None:
        self.pid: int = os.getpid()
        self._idle_timeout = idle_timeout
        self._leases: dict[Hashable, _Lease] = {}
        self._ending: set[Future[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka_lite", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<WorkerLoop pid={self.pid} services={len(self._leases)}>"

    @property
    def closed(self) -> bool:
        return self._loop.is_closed()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, and return its result or raise its error. An interrupt cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # no effect if it is done
            raise

    @contextmanager
    def lease(self, key: Hashable, make: Callable[[], S]) -> Iterator[S]:
        """Lend the started component of a key. ``make`` creates it, on the loop, if there is none. Leases may overlap.

        The component is closed after ``idle_timeout`` seconds without a lease. Raises the error of its start. After
        such an error, or a failure of the component, the next lease makes a new component.
        """
        service = self.run(self._take(key, make))
        try:
            yield service
        finally:
            self._loop.call_soon_threadsafe(self._give_back, key, service)

    async def _take(self, key: Hashable, make: Callable[[], S]) -> S:
        lease = self._leases.setdefault(key, _Lease())
        if lease.closing is not None:
            lease.closing.cancel()
            lease.closing = None
        # Counted before the start: a lease with a user is never dropped by the timer of an earlier user.
        lease.users += 1
        try:
            async with lease.starting:
                if lease.service is None or lease.service.state is not ServiceState.RUNNING:
                    lease.service = None  # the last user of a failed component closes it
                    service = make()
                    await service.start()
                    lease.service = service
            return lease.service  # type: ignore[return-value]
        except BaseException:
            self._leave(key, lease)
            raise

    def _give_back(self, key: Hashable, service: Component) -> None:
        lease = self._leases[key]
        # The component has failed, and a later lease has replaced it.
        if lease.service is not service:
            self._end(service)
        self._leave(key, lease)

    def _leave(self, key: Hashable, lease: _Lease) -> None:
        lease.users -= 1
        assert lease.users >= 0, "a component is given back once for each lease"
        if not lease.users:
            lease.closing = self._loop.call_later(self._idle_timeout, self._drop, key)

    def _drop(self, key: Hashable) -> None:
        lease = self._leases.pop(key)
        if lease.service is not None:
            self._end(lease.service)

    def _end(self, service: Component) -> None:
        ending = asyncio.run_coroutine_threadsafe(close_quietly(service), self._loop)
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def close(self) -> None:
        """Close the components and end the thread. For tests: the thread of a worker ends with its process."""

        async def close_all() -> None:
            for key, lease in list(self._leases.items()):
                if lease.closing is not None:
                    lease.closing.cancel()
                self._drop(key)
            await asyncio.gather(*map(asyncio.wrap_future, self._ending))

        self.run(close_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def close_quietly(service: Component) -> None:
    """Close a component. Its error is only logged: the calls that used the component have raised it."""
    try:
        await service.close()
    except KafkaError as error:
        logger.debug("%r did not close cleanly: %s", service, error)


_lock = threading.Lock()
_worker_loop: WorkerLoop | None = None
_frozen_in: int | None = None


def worker_loop() -> WorkerLoop:
    """Return the loop of this process, made on first use."""
    global _worker_loop
    with _lock:
        # Spark's daemon forks its workers. A fork has the object of its parent, but not the thread.
        if _worker_loop is None or _worker_loop.closed or _worker_loop.pid != os.getpid():
            _worker_loop = WorkerLoop()
        return _worker_loop


def freeze_gc() -> None:
    """Exclude the objects that exist now from garbage collection, once per process.

    Spark's worker collects garbage after every task. The collection would scan some 30,000 objects of imported modules,
    which takes half of the time of a small task.
    """
    global _frozen_in
    if _frozen_in != os.getpid():
        _frozen_in = os.getpid()
        gc.freeze()
