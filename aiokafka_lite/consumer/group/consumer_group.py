"""``ConsumerGroup``: a group member in the shape of Sarama's, with a handler, sessions, and a task for each claim.

A session is the time in which this member reads the same partitions. It begins with ``setup``, then runs
``consume_claim`` for all claimed partitions at once, and ends when the assignment is about to change. Then the claims'
iterations end, and each claim has until the rebalance timeout to finish its work. ``cleanup`` runs, and the marked
offsets are committed before the partitions are revoked. Nothing is marked automatically: the handler marks the records
that it has processed.

Unlike Sarama's, ``consume`` continues over rebalances, so it needs no loop around it. If ``consume_claim`` returns
early, only its own claim ends.
"""

from __future__ import annotations

import dataclasses
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, Unpack

import anyio

from ...aio import forks
from ...aio.component import NotCopyable
from ...aio.light_event import LightEvent
from ...aio.service import ServiceState
from ...arguments import check_timeout, must_be
from ...errors import ConfigurationError, IllegalStateError, KafkaError
from ...group.strategies import AssignmentStrategy, checked_strategies
from ...method_names import CONSUMER_GROUP, named_elsewhere
from ...net.connector import Connector
from ...serialization.deserializer import Deserializer
from ...types import K, Names, SubscriptionPattern, V
from ..deserializing import Deserializing, OnDeserializationError
from ..interceptor import ConsumerInterceptor
from ..position import OnOffsetReset
from ..settings import checked_topics, reading_options, strategies_of
from .group_core import GroupCore, GroupRun
from .group_pause import GroupPause, PauseCause
from .handler import ConsumerGroupHandler

if TYPE_CHECKING:
    from ...cluster.health import Health
    from ...net.metrics import BrokerTraffic
    from ...settings.keywords import ConsumerSettings
    from ..diagnosis import ConsumerDiagnosis
    from ..metrics import ConsumerMetrics

ERRORS_KEPT = 100
"""Errors that wait for ``errors()``. Older ones are dropped; all of them are in the log."""


class ConsumerGroup(NotCopyable, Generic[K, V]):
    """A member of a group whose records a handler processes. The constructor does no I/O.

    Takes the settings of ``Consumer``, its deserializers, interceptors and ``on_offset_reset``. ``await
    group.consume(topics, handler)`` does everything from joining to leaving; ``async with`` is needed only if another
    task may close the group.

    ``ConsumerGroup`` of ``embedded`` is the group itself, as its coordinator keeps it.
    """

    if not TYPE_CHECKING:
        __getattr__ = named_elsewhere(CONSUMER_GROUP)

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        group_id: str,
        strategies: Sequence[AssignmentStrategy | str] | None = None,
        key_deserializer: Deserializer[K] | Callable[[bytes], K | Awaitable[K]] | None = None,
        value_deserializer: Deserializer[V] | Callable[[bytes], V | Awaitable[V]] | None = None,
        on_deserialization_error: OnDeserializationError = "raise",
        interceptors: Sequence[ConsumerInterceptor] = (),
        on_offset_reset: OnOffsetReset | None = None,
        connector: Connector | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        if group_id is None:
            raise ConfigurationError("group_id is required")
        self._options = reading_options(
            bootstrap_servers,
            group_id,
            settings,
            deserializing=Deserializing.of(key_deserializer, value_deserializer, on_deserialization_error),
            interceptors=interceptors,
            on_offset_reset=on_offset_reset,
            connector=connector,
        )
        self._group_id = group_id
        assert self._options.group is not None
        self._strategies = checked_strategies(strategies_of(self._options.group, strategies))
        self._run: GroupRun | None = None
        self._process: int | None = None  # the fork generation of the first consume()
        self._failure: Exception | None = None
        """The error that the last ``consume`` raised."""
        self._closed = False
        self._closed_during_start = False
        self._idle = LightEvent()
        self._idle.set()
        self._errors = ErrorQueue()
        self._pause = GroupPause()

    def __repr__(self) -> str:
        return f"<ConsumerGroup {self._group_id} {'idle' if self._run is None else self._run}>"

    @property
    def client_id(self) -> str:
        """The name of this client in the logs of brokers and in metrics."""
        return self._options.client.client_id

    async def consume(
        self, topics: Names | re.Pattern[str] | SubscriptionPattern, handler: ConsumerGroupHandler[K, V]
    ) -> None:
        """Take part in the group, session after session, until cancelled, closed, or ended by an error.

        Raises the handler's exception, or the error that makes membership impossible. In all cases, the claims have had
        time to finish, the marked offsets are committed, and the member has left the group.
        """
        self._check_process()
        if self._closed:
            raise IllegalStateError(f"{self!r} is closed; create a new one")
        if self._run is not None:
            raise IllegalStateError(f"{self!r} is consuming already; use another ConsumerGroup for a second consume()")
        if not isinstance(handler, ConsumerGroupHandler):
            raise TypeError(must_be("handler", "a ConsumerGroupHandler, or Workers(function)", handler))
        checked = checked_topics(topics, self._options.group)
        if not checked:
            raise ConfigurationError(must_be("topics", "at least one name, or a pattern", topics))
        self._process = forks.generation
        run = self._run = GroupRun(
            self._options, checked, handler, self._pause, strategies=self._strategies, on_error=self._errors.add
        )
        self._idle.clear()
        self._failure = None
        try:
            await self._perform(run)
        except Exception as error:
            self._failure = error
            raise
        finally:
            self._run = None
            self._idle.set()

    async def _perform(self, run: GroupRun) -> None:
        try:
            async with run:
                await run.wait()
        except IllegalStateError:
            if not self._closed_during_start:
                raise
        # A claim or ``cleanup`` may also fail while the run closes, after ``wait`` has returned.
        if run.handler_error is not None:
            raise run.handler_error

    async def close(self, timeout: float | None = None) -> None:
        """End ``consume`` and wait until it has returned.

        The claims, ``cleanup``, the last commit and leaving the group take a few seconds at most; after ``timeout``
        seconds they are cancelled.
        """
        check_timeout(timeout)
        self._check_process()
        self._closed = True
        if self._run is not None:
            await self._end(self._run, timeout)
        self._errors.close()

    async def _end(self, run: GroupRun, timeout: float | None) -> None:
        run.finish()
        if run.state is ServiceState.STARTING:
            # If no broker is reachable, the start takes up to api_timeout.
            self._closed_during_start = True
            await run.close(timeout)
        if run.is_own_task:
            return  # a claim cannot wait for its own end
        with anyio.move_on_after(timeout) as scope:
            await self._idle.wait()
        if scope.cancelled_caught:
            await run.close(0.0)
            await self._idle.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def set_credentials(self, username: str, password: str) -> None:
        """Log in with this user name and password from now on (PLAIN and SCRAM), for example after a rotation.

        Open connections stay open; they use the new password when they log in again. May be called before the start
        too, in the event loop. Raises ConfigurationError for a wrong value, for a client that does not log in with a
        password, and if ``sasl_password`` is a function.
        """
        self._check_process()
        client = self._options.client.with_credentials(username, password)
        self._options = dataclasses.replace(self._options, client=client)  # for the next consume()
        if self._run is not None:
            self._run.core.client.set_credentials(username, password)

    def pause(self, reason: str = "") -> None:
        """Read no further records until ``resume()``. The member stays in the group, and nothing is rebalanced.

        Also for partitions that are assigned later, and before ``consume``. Records that the handler has go on;
        ``Workers`` begin no further record. Marks are committed as usual. ``reason`` is for ``health()``, which stays
        ready, and for the log. Raises IllegalStateError after the close, TypeError if ``reason`` is no string.
        """
        self._check_process()
        if self._closed:
            raise IllegalStateError(f"{self!r} is closed")
        if not isinstance(reason, str):
            raise TypeError(must_be("reason", "a string", reason))
        text = "the program has paused the group"
        self._pause.begin(self, PauseCause(f"{text}: {reason}" if reason else text, is_problem=False))

    def resume(self) -> None:
        """Read on after ``pause()``. Does nothing to a group that is not paused, or that a circuit breaker pauses."""
        self._check_process()
        self._pause.end(self)

    @property
    def is_paused(self) -> bool:
        """Whether ``pause()`` or the circuit breaker of ``Workers`` has paused the group."""
        self._check_process()
        return self._pause.is_paused

    def diagnose(self) -> ConsumerDiagnosis:
        """Return ``Consumer.diagnose()`` of the running ``consume``. Raises IllegalStateError while none runs."""
        return self._running_core("there is nothing to diagnose").diagnose()

    def health(self, *, max_silence: float = 60.0, max_poll_ago: float | None = None) -> Health:
        """Return ``Consumer.health()`` of the running ``consume``.

        The group is not live if the handler works on one record for more than ``max_poll_ago`` seconds
        (``max_poll_interval`` by default), and if ``consume`` has raised. Before ``consume``, and after it has
        returned, the group is live and not ready.
        """
        self._check_process()
        if self._run is not None:
            return self._run.core.health(max_silence, max_poll_ago)
        from ...cluster.health import Health

        problem = "consume() does not run"
        if self._failure is not None:
            problem = f"consume() has failed: {type(self._failure).__name__}: {self._failure}"
        is_live = self._failure is None and not self._closed
        return Health(is_live=is_live, is_ready=False, problems=(problem,))

    def metrics(self) -> ConsumerMetrics:
        """Return ``Consumer.metrics()`` of the running ``consume``. Raises IllegalStateError while none runs."""
        return self._running_core("it has no metrics").metrics()

    def traffic(self) -> Mapping[int, BrokerTraffic]:
        """Return ``Consumer.traffic()`` of the running ``consume``. Raises IllegalStateError while none runs."""
        return self._running_core("there is no traffic to count").traffic()

    def _running_core(self, consequence: str) -> GroupCore:
        self._check_process()
        if self._run is None:
            raise IllegalStateError(f"{self!r} is not consuming; {consequence}")
        return self._run.core

    def errors(self) -> GroupErrors:
        """Iterate over failures that were retried, and refused commits, until the group is closed."""
        self._check_process()
        return GroupErrors(self._errors, self._check_process)

    def _check_process(self) -> None:
        """Raise IllegalStateError in a forked process whose parent has consumed."""
        if self._process is not None:
            forks.check_process(self, self._process)


class ErrorQueue:
    """The errors of a group that are not yet returned by an iteration. Owner: the ``ConsumerGroup``."""

    def __init__(self) -> None:
        self.is_closed: bool = False
        self._errors: deque[KafkaError] = deque(maxlen=ERRORS_KEPT)
        self._changed = LightEvent()

    def add(self, error: KafkaError) -> None:
        self._errors.append(error)
        self._changed.set()

    def close(self) -> None:
        """End the iterations after the present errors."""
        self.is_closed = True
        self._changed.set()

    async def next(self) -> KafkaError | None:
        """Wait for the next error; None if there is none and the group is closed. A cancelled call loses no error."""
        while not self._errors:
            if self.is_closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._errors.popleft()


class GroupErrors:
    """The iteration over a group's errors. Each error goes to one iteration."""

    __slots__ = ("_check_process", "_queue")

    def __init__(self, queue: ErrorQueue, check_process: Callable[[], None]) -> None:
        self._queue = queue
        self._check_process = check_process

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> KafkaError:
        self._check_process()
        error = await self._queue.next()
        if error is None:
            raise StopAsyncIteration
        return error
