"""An embedded cluster for code that blocks: it runs in an event loop of its own, in a thread.

Synchronous tests (FastAPI's ``TestClient``, Django, any blocking Kafka client) block their thread, so a cluster in the
same thread could not answer them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, cast, overload

from anyio.from_thread import start_blocking_portal

from ..aio import forks
from ..embedded import EmbeddedCluster
from ..errors import IllegalStateError
from ..types import Record

P = ParamSpec("P")
T = TypeVar("T")


class EmbeddedKafkaServer:
    """An ``EmbeddedCluster`` in a thread with its own event loop, for ``with``. All calls block until they are done.

    The arguments are the same as for ``EmbeddedCluster``; ``brokers`` is 1 by default. ``call`` runs a function in the
    loop of the cluster: ``server.call(server.cluster.stop, 1)``. Any thread except the cluster's own may call the
    methods.
    """

    def __init__(self, brokers: int = 1, **arguments: Any) -> None:
        self.cluster: EmbeddedCluster = EmbeddedCluster(brokers, **arguments)
        self._stack: ExitStack | None = None

    def __repr__(self) -> str:
        return f"<EmbeddedKafkaServer {self.cluster!r}>"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal())
            running = cast("AbstractContextManager[object]", self._portal.wrap_async_context_manager(self.cluster))
            stack.enter_context(running)
            self._stack = stack.pop_all()
            self._process = forks.generation
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            forks.check_process(self, self._process)
            stack.close()

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every node, separated by commas."""
        return self.cluster.bootstrap_servers

    @overload
    def call(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T: ...

    @overload
    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a function, or a coroutine function, in the cluster's event loop. Returns its result or raises its error.

        Raises IllegalStateError outside of ``with``, and in a process that was forked inside of it.
        """
        if self._stack is None:
            raise IllegalStateError(f"{self!r} does not run; use it in 'with'")
        forks.check_process(self, self._process)  # the thread that would answer is in the parent

        async def run() -> Any:
            result = function(*args, **kwargs)
            return await result if isinstance(result, Awaitable) else result

        return self._portal.call(run)

    def create_topic(self, name: str, partitions: int = 1, replication_factor: int = 1) -> None:
        """Create a topic; see ``EmbeddedCluster.create_topic``."""
        self.call(self.cluster.create_topic, name, partitions, replication_factor)

    def produce(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes | None] | None = None,
        partition: int | None = None,
    ) -> int:
        """Write records; see ``EmbeddedCluster.produce``."""
        return self.call(self.cluster.produce, topic, value, key=key, headers=headers, partition=partition)

    def wait_for_records(
        self, topic: str, count: int = 1, *, partition: int | None = None, timeout: float = 10.0
    ) -> list[Record[bytes, bytes]]:
        """Block until a topic has this many records, and return them; see ``EmbeddedCluster.wait_for_records``."""
        return self.call(self.cluster.wait_for_records, topic, count, partition=partition, timeout=timeout)

    def records(self, topic: str, partition: int | None = None) -> list[Record[bytes, bytes]]:
        """Return the records of a topic; see ``EmbeddedCluster.records``."""
        return self.call(self.cluster.records, topic, partition)
