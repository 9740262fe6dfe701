"""``ConsumerGroup``, ``Workers`` and what handlers get, for threads without an event loop.

Written by docs/make_blocking.py from the asyncio classes, which have the same calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, overload

from ..aio.runtime import wall_clock
from ..consumer import ConsumerGroupHandler as AsyncHandler
from ..consumer.group.consumer_group import ConsumerGroup as AsyncConsumerGroup
from ..consumer.group.consumer_group import GroupErrors as AsyncGroupErrors
from ..method_names import CONSUMER_GROUP
from ..processing.workers import Workers as AsyncWorkers
from ..types import K, V
from .callbacks import ConsumerGroupHandler, HandlerInThreads, check_handler
from .producer import Producer
from .producing import asynchronous
from .wrapper import Blocking, named_elsewhere

if TYPE_CHECKING:
    import re
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Executor
    from types import TracebackType
    from typing import Literal, Self, Unpack

    from ..cluster.health import Health
    from ..consumer.deserializing import OnDeserializationError
    from ..consumer.diagnosis import ConsumerDiagnosis
    from ..consumer.interceptor import ConsumerInterceptor
    from ..consumer.metrics import ConsumerMetrics
    from ..consumer.position import OnOffsetReset
    from ..errors import KafkaError
    from ..group.strategies import AssignmentStrategy
    from ..net.connector import Connector
    from ..net.metrics import BrokerTraffic
    from ..processing.breaker import CircuitBreaker
    from ..processing.rules import Decide, Rule
    from ..processing.workers import Handle, HandleBatch, WorkersMetrics
    from ..serialization.deserializer import Deserializer
    from ..settings.keywords import ConsumerSettings
    from ..types import Names, Record, SubscriptionPattern


class ConsumerGroup(Blocking, Generic[K, V]):
    """A member of a group whose records a handler processes. The constructor does no I/O.

    This is ``aiokafka_lite.ConsumerGroup`` for threads without an event loop: its calls wait.

    Takes the settings of ``Consumer``, its deserializers, interceptors and ``on_offset_reset``. ``group.consume(topics,
    handler)`` does everything from joining to leaving; ``with`` is needed only if another thread may close the group.

    ``ConsumerGroup`` of ``embedded`` is the group itself, as its coordinator keeps it.
    """

    _inner: AsyncConsumerGroup[K, V]

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
        super().__init__(
            AsyncConsumerGroup(
                bootstrap_servers,
                group_id=group_id,
                strategies=strategies,
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
                on_deserialization_error=on_deserialization_error,
                interceptors=interceptors,
                on_offset_reset=on_offset_reset,
                connector=connector,
                **settings,
            )
        )

    @property
    def client_id(self) -> str:
        """The name of this client in the logs of brokers and in metrics."""
        value: str = self._read("client_id")
        return value

    def consume(
        self, topics: Names | re.Pattern[str] | SubscriptionPattern, handler: ConsumerGroupHandler[K, V]
    ) -> None:
        """Take part in the group, session after session, until interrupted, closed, or ended by an error.

        Raises the handler's exception, or the error that makes membership impossible. In all cases, the claims have had
        time to finish, the marked offsets are committed, and the member has left the group.
        """
        check_handler(handler)
        adapted: AsyncHandler[K, V]
        adapted = handler.handler() if isinstance(handler, Workers) else HandlerInThreads(handler)
        self._await_kept(self._inner.consume, topics, adapted)

    def close(self, timeout: float | None = None) -> None:
        """End ``consume`` and wait until it has returned.

        The claims, ``cleanup``, the last commit and leaving the group take a few seconds at most; after ``timeout``
        seconds they are cancelled.
        """
        self._await(self._inner.close, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._await(self._inner.__aexit__, kind, error, traceback)

    def set_credentials(self, username: str, password: str) -> None:
        """Log in with this user name and password from now on (PLAIN and SCRAM), for example after a rotation.

        Open connections stay open; they use the new password when they log in again. May be called before the start
        too. Raises ConfigurationError for a wrong value, for a client that does not log in with a password, and if
        ``sasl_password`` is a function.
        """
        self._run(self._inner.set_credentials, username, password)

    def pause(self, reason: str = "") -> None:
        """Read no further records until ``resume()``. The member stays in the group, and nothing is rebalanced.

        Also for partitions that are assigned later, and before ``consume``. Records that the handler has go on;
        ``Workers`` begin no further record. Marks are committed as usual. ``reason`` is for ``health()``, which stays
        ready, and for the log. Raises IllegalStateError after the close, TypeError if ``reason`` is no string.
        """
        self._run(self._inner.pause, reason)

    def resume(self) -> None:
        """Read on after ``pause()``. Does nothing to a group that is not paused, or that a circuit breaker pauses."""
        self._run(self._inner.resume)

    @property
    def is_paused(self) -> bool:
        """Whether ``pause()`` or the circuit breaker of ``Workers`` has paused the group."""
        value: bool = self._read("is_paused")
        return value

    def diagnose(self) -> ConsumerDiagnosis:
        """Return ``Consumer.diagnose()`` of the running ``consume``. Raises IllegalStateError while none runs."""
        return self._run(self._inner.diagnose)

    def health(self, *, max_silence: float = 60.0, max_poll_ago: float | None = None) -> Health:
        """Return ``Consumer.health()`` of the running ``consume``.

        The group is not live if the handler works on one record for more than ``max_poll_ago`` seconds
        (``max_poll_interval`` by default), and if ``consume`` has raised. Before ``consume``, and after it has
        returned, the group is live and not ready.
        """
        return self._run(self._inner.health, max_silence=max_silence, max_poll_ago=max_poll_ago)

    def metrics(self) -> ConsumerMetrics:
        """Return ``Consumer.metrics()`` of the running ``consume``. Raises IllegalStateError while none runs."""
        return self._run(self._inner.metrics)

    def traffic(self) -> Mapping[int, BrokerTraffic]:
        """Return ``Consumer.traffic()`` of the running ``consume``. Raises IllegalStateError while none runs."""
        return self._run(self._inner.traffic)

    def errors(self) -> GroupErrors:
        """Iterate over failures that were retried, and refused commits, until the group is closed."""
        return GroupErrors(self._run(self._inner.errors))


class GroupErrors(Blocking):
    """The iteration over a group's errors. Each error goes to one iteration."""

    _inner: AsyncGroupErrors

    def __iter__(self) -> Self:
        self._run(self._inner.__aiter__)
        return self

    def __next__(self) -> KafkaError:
        return self._next(self._inner.__anext__)


class Workers(ConsumerGroupHandler[K, V], Blocking):
    """A handler for ``ConsumerGroup.consume`` that processes up to ``concurrency`` records at once.

    This is ``aiokafka_lite.Workers`` for threads without an event loop: its calls wait.

    ::

        def bill(record: Record) -> None: ...

        group = ConsumerGroup(servers, group_id="billing")
        rules = [retry(attempts=5), retry_topic(topics={"orders.retry": 60.0}), dead_letter(topic="orders.dead")]
        workers = Workers(bill, concurrency=64, rules=rules, producer=producer)
        group.consume(["orders", *workers.retry_topics], workers)

    ``order`` says which records wait for one another. With ``"key"``, records with the same key wait; records without a
    key do not. With ``"partition"``, records of the same partition wait. With ``"none"``, no record waits. Offsets are
    committed up to the first record that is not finished. So after a crash or a rebalance a record may be processed
    again, but no record is skipped (at least once).

    With ``batch_size``, ``handle`` gets a list of up to so many records of one partition, in the order of their
    offsets, and ``concurrency`` is the number of lists at once. A list may have several records of a key, and no other
    list has records of this key at the same time. A list that is not full waits ``batch_timeout`` seconds for more
    records. ``handle`` may raise ``BatchFailure(index, error)`` to name the record that failed. After another
    exception, a rule ``retry`` repeats the whole list, and before any other rule except ``stop`` each record is
    processed alone, to find the one that fails.

    An async ``handle`` runs in the event loop. A plain one runs in a thread, or in a process or an interpreter of
    ``executor``, a ``ProcessPoolExecutor`` or ``InterpreterPoolExecutor``: then function, records and exceptions must
    be picklable. Give the executor as many workers as ``concurrency``, and shut it down yourself. Nothing can stop a
    thread or a process. At the ``timeout``, ``anyio.from_thread.check_cancelled()`` raises in the thread, and the
    record waits for the end of the function in any case. With ``executor`` there is no ``timeout``. If the executor
    breaks or is shut down, ``consume`` ends with its error. When time for a rebalance or a close is over, functions are
    left running, and their records are processed again.

    An attempt fails if it raises, or takes longer than ``timeout`` seconds. ``rules`` decide what happens to the
    record: ``retry``, ``retry_topic``, ``dead_letter``, ``skip`` and ``stop`` of ``aiokafka_lite.processing``, or
    functions of the error, the record and the number of its failed attempts that return one of these, or None. The
    first rule that matches and has something left to try decides. Without one, ``consume`` ends with the exception, and
    the record is not committed. Records that a deserializer refuses are subject to the rules too; functions get them as
    bytes. ``producer`` sends the records of ``retry_topic`` and ``dead_letter``, with the key and value that they have
    in the log. If it cannot send one, ``consume`` ends with its error, so no failed record is lost. It must not be
    transactional, and not have ``acks=0``.

    A ``breaker`` pauses the group when what ``handle`` calls is away, and probes with one record: see
    ``CircuitBreaker``. While it is open, or ``ConsumerGroup.pause`` was called, no further record begins.

    Each attempt begins with a copy of the context variables of ``consume``, so a variable that it sets is seen by no
    other record. Functions of ``rules`` run in the context of the attempt that failed.

    In each partition, at most ``max_pending`` records are read after the first unfinished one. When partitions are
    revoked, no further record begins, and records in progress must end before the rebalance timeout of the group. When
    the group is closed, they have 1.5 seconds: call ``drain()`` before ``close()`` if they need more time.

    Raises ConfigurationError for wrong arguments, for conflicting rules, and for a ``handle`` that is no function of
    one argument. One ``Workers`` serves one ``ConsumerGroup`` at a time: ``consume`` of another one raises
    IllegalStateError.
    """

    _inner: AsyncWorkers[K, V]

    @overload
    def __init__(
        self,
        handle: Handle[K, V],
        *,
        concurrency: int = 64,
        order: Literal["key", "partition", "none"] = "key",
        executor: Executor | None = None,
        rules: Sequence[Rule | Decide] = (),
        breaker: CircuitBreaker | None = None,
        producer: Producer[Any, Any] | None = None,
        timeout: float | None = None,
        max_pending: int = 1000,
        clock: Callable[[], float] = wall_clock,
    ) -> None: ...

    @overload
    def __init__(
        self,
        handle: HandleBatch[K, V],
        *,
        batch_size: int,
        batch_timeout: float = 0.0,
        concurrency: int = 64,
        order: Literal["key", "partition", "none"] = "key",
        executor: Executor | None = None,
        rules: Sequence[Rule | Decide] = (),
        breaker: CircuitBreaker | None = None,
        producer: Producer[Any, Any] | None = None,
        timeout: float | None = None,
        max_pending: int = 1000,
        clock: Callable[[], float] = wall_clock,
    ) -> None: ...

    def __init__(
        self,
        handle: Handle[K, V] | HandleBatch[K, V],
        *,
        concurrency: int = 64,
        order: Literal["key", "partition", "none"] = "key",
        batch_size: int | None = None,
        batch_timeout: float = 0.0,
        executor: Executor | None = None,
        rules: Sequence[Rule | Decide] = (),
        breaker: CircuitBreaker | None = None,
        producer: Producer[Any, Any] | None = None,
        timeout: float | None = None,
        max_pending: int = 1000,
        clock: Callable[[], float] = wall_clock,
    ) -> None:
        settings: dict[str, Any] = {"batch_size": batch_size, "batch_timeout": batch_timeout}
        workers: AsyncWorkers[K, V] = AsyncWorkers(
            handle,
            concurrency=concurrency,
            order=order,
            executor=executor,
            rules=rules,
            breaker=breaker,
            producer=asynchronous(producer),
            timeout=timeout,
            max_pending=max_pending,
            clock=clock,
            **settings,
        )
        Blocking.__init__(self, workers)

    @property
    def retry_topics(self) -> list[str]:
        """The topics of ``retry_topic`` in the rules. The group must read them too."""
        value: list[str] = self._read("retry_topics")
        return value

    def drain(self, *, timeout: float | None = None) -> bool:
        """Begin no further record, and wait until the records in progress are finished and marked.

        Close the group afterwards, which commits the marks. Returns False if the records were not finished within
        ``timeout`` seconds. A drained ``Workers`` processes no more records; make a new one for another ``consume``.
        Raises IllegalStateError if ``handle`` or a rule calls it, because the function would wait for itself.
        """
        return self._await(self._inner.drain, timeout=timeout)

    def in_progress(self) -> list[tuple[Record[K, V], float]]:
        """Return the records whose function runs now, with the loop's time at which it began."""
        return self._run(self._inner.in_progress)

    def metrics(self) -> WorkersMetrics:
        """Return the present counters."""
        return self._run(self._inner.metrics)

    def handler(self) -> AsyncHandler[K, V]:
        """Return what the asyncio group calls."""
        return self._inner
