"""Writes the batches of a stream in transactions, so that a reader with ``read_committed`` gets each row once.

Each task of a batch writes its rows in a transaction, flushes it, and leaves it open (``write_rows``). When all tasks
have finished, the driver decides to commit the batch, and ends the transactions (``commit``). Only then does Spark add
the batch to the query's commit log. If the driver is killed between these steps, Spark repeats the batch. If the driver
is frozen, it may wake while its successor writes the same batch. These rules make both harmless:

Rule 1: the transactional id of a task is made of the query's id and the number of the task. A task first starts its
producer. This aborts the transaction of an earlier attempt, or waits for the end of its commit. It also fences that
attempt, which can then neither write rows nor end its transaction.

Rule 2: each transaction contains a marker with the number of the batch: an offset that a group, named like the
transactional id, commits. After rule 1, a task reads the marker. If it is of this batch, an earlier run has committed
the rows, and the task writes nothing. It still reads its rows, because the computation of the query may keep a state,
and compares their number and size with the marker. So each task of a batch is committed once, in any number of runs.

Rule 3: a run decides a batch before it commits any task of it. The decision is a marker with the number of tasks: an
offset of the query's group, committed in a transaction with the query's id. The driver begins that transaction when its
tasks have finished, which fences earlier drivers. Then it reads the marker, and commits the decision if there is none.
So a batch is decided once: a driver cannot decide after its successor has begun. A run without an open transaction
commits nothing, so it only reads the decision.

Rule 4: a run that finds its batch decided must have the same number of tasks. It fences its tasks without rows and
reads their markers: none may be committed. Otherwise the batch fails before this run commits anything.

Rule 5: the driver adds the markers to all its open transactions before it fences tasks, decides or commits anything.
The coordinator refuses a marker if another run has taken over the task. So a frozen driver that wakes after its
successor has begun fails, and disturbs no transaction of a task. But it has begun its decision before (rule 3), which
may fence the decision of the successor. Then the successor's batch fails, and its repetition writes the rows once.

Rule 6: a batch that is older than a marker fails, because nothing shows any more whether it was committed.

Rule 7: the driver aborts the open transactions of the query that no task of this run holds. An earlier run with more
tasks, or with rows in other tasks, has left them open, and readers would wait for them until the timeout. The driver
lists them before it adds the markers (rule 5), so the list has no transaction of a run that takes over later.

A driver can also be frozen between rule 5 and its next requests. Then it may fence tasks of its successor when it
wakes, or decide for another number of tasks. The successor's batch fails then, and writes nothing twice.

Assume that two runs commit tasks of one batch. One of them began its transaction of rule 3 later: call it S, and the
other one F. F commits only a batch that is decided, and cannot decide it after S has begun. So S found the decision, of
F or of a third run. All tasks of F had started before S began. There are three cases for each task:

- S has no rows in it. If F committed it before S fenced it, S finds the marker and fails; otherwise F cannot commit it.
- The task of S started after that of F. It found the marker of F, or has fenced F.
- The task of F started after that of S. Then S is refused by rule 5, and commits nothing.

So F commits nothing after the first commit of S. S has repeated no rows that F committed before, unless S has other
rows in a task, with the same number and size (rule 2).

The state after a kill of the driver, and what the next run does:

=============================  ============================================  =======================================
killed                         left                                          next run
=============================  ============================================  =======================================
before the tasks have ended    open transactions                             fences them (rules 1 and 7)
in the decision                open transactions, one with the decision      fences them, and decides
in the commit of the decision  the outcome, which its coordinator completes  waits for it (rule 3)
after the decision             open transactions, nothing committed          takes over the decision (rule 4)
between two commits            some tasks committed, with their markers      commits the others (rule 2)
before Spark's commit log      all tasks committed                           commits nothing (rule 2)
=============================  ============================================  =======================================

This module does not import Spark.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from ..admin import Admin, ItemsFailed, TransactionState
from ..admin.batch_markers import marker_metadata
from ..cluster.client import Client
from ..errors import IllegalStateError, KafkaError, UnsupportedVersion
from ..producer import Producer
from ..producer.transactions.detached_transaction import (
    DetachedTransaction,
    add_detached_offsets,
    begin_detached,
    end_detached,
)
from ..types import GroupMetadata, OffsetAndMetadata, TopicPartition
from .connection import leased_admin, leased_client
from .options import KAFKA_PREFIX, Properties
from .routing import by_topic
from .worker_loop import WorkerLoop, close_quietly, freeze_gc, worker_loop
from .writing import Target, TaskOutput, make_producer, rows_of_task

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

TRANSACTION_TIMEOUT_PROPERTY = "transaction.timeout.ms"
TRANSACTION_TIMEOUT_OPTION = KAFKA_PREFIX + TRANSACTION_TIMEOUT_PROPERTY

DEFAULT_TRANSACTION_TIMEOUT = 900.0
"""The default timeout of a transaction, in seconds: the most that brokers allow by default. A transaction is open until
all tasks of the batch have finished."""

LONGEST_DECISION = 60.0
"""The longest time that the transaction with the decision of a batch may be open, in seconds."""

ENDED_AT_ONCE = 16
"""The number of transactions that the driver ends at the same time."""


@dataclass(frozen=True, slots=True)
class Place:
    """A task of a batch. ``query`` is the part of the transactional id that all tasks of a query share."""

    query: str
    task: int
    batch: int

    @property
    def transactional_id(self) -> str:
        """The transactional id of the task, and the name of the group with its marker."""
        return f"{self.query}-{self.task}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """The result of a task. ``transaction`` is None if there are no rows, or if an earlier run has committed them.

    ``topic`` is a topic of the rows, None if there are none. The marker is committed for its partition 0. ``rows`` and
    ``size`` count the rows and the bytes of their keys and values.
    """

    place: Place
    topic: str | None = None
    rows: int = 0
    size: int = 0
    transaction: DetachedTransaction | None = None
    outcome: TaskOutput = field(default_factory=TaskOutput)
    begun_at: float = 0.0
    """When the transaction began, in seconds since the epoch, by the clock of the task's machine."""


# The tasks.


def write_rows(target: Target, place: Place, batches: Iterable[pyarrow.RecordBatch]) -> Prepared:
    """Write the rows of a task in a transaction that stays open, or find that an earlier run has committed them.

    Raises the error of the first record that failed; the transaction is aborted then. Raises IllegalStateError if the
    query has written a later batch, or if the rows of a repeated batch differ from its first run.
    """
    if target.freeze_gc:
        freeze_gc()
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        # Without rows there is no transaction. The driver aborts a transaction that an earlier run of this task has
        # left.
        return Prepared(place)
    loop, rows = worker_loop(), _Counted(chain([first], filled))
    # Refused rows may have no topic of their own, so the marker is on the topic that they all may go to.
    topic = target.topic or target.dead_letter_topic or next(by_topic(None, first))[0]
    # Rule 1: the start ends the transaction of an earlier attempt, and fences it. So the marker is read after the
    # start.
    with _started_producer(loop, target.properties, place) as producer:
        with leased_admin(loop, target.properties) as admin:
            marker = loop.run(_read_marker(admin, place.transactional_id, {topic}))
        if _is_written(place.batch, marker, place.transactional_id):
            # Rule 2: the rows are computed all the same, because the query may keep a state.
            for _ in rows:
                pass
            _check_same(place, marker, rows)
            logger.info("skipped task %d of batch %d: an earlier run has committed its rows", place.task, place.batch)
            return Prepared(place, topic, rows.rows, rows.size)
        begun_at = time.time()
        with rows_of_task(loop, target, producer) as task:
            loop.run(producer.begin_transaction())
            for batch in rows:
                loop.run(task.accept(batch))
            outcome = loop.run(task.finish())
        # The transaction stays open for the driver, which ends it from another process.
        transaction = loop.run(producer.detach_transaction())
        return Prepared(place, topic, rows.rows, rows.size, transaction, outcome, begun_at)


@contextmanager
def _started_producer(loop: WorkerLoop, properties: Properties, place: Place) -> Iterator[Producer]:
    """Start a producer for one task. It is not kept, because each attempt of a task must fence the earlier ones.

    Its end aborts the transaction, unless it is detached.
    """
    producer = make_transactional_producer(properties, place.transactional_id)
    loop.run(producer.start())
    try:
        yield producer
    finally:
        loop.run(close_quietly(producer))


def make_transactional_producer(properties: Properties, transactional_id: str) -> Producer:
    """Make a producer without starting it. Raises ConfigurationError, which names the option as the user wrote it."""
    fixed: dict[str, object] = {"transactional_id": transactional_id}
    if TRANSACTION_TIMEOUT_PROPERTY not in properties:
        fixed["transaction_timeout"] = DEFAULT_TRANSACTION_TIMEOUT
    return make_producer(properties, **fixed)


class _Counted:
    """An iterable of batches. Counts the rows that were taken, and the bytes of their keys and values.

    It does not compare the order of rows, which may differ from run to run after a shuffle.
    """

    def __init__(self, batches: Iterable[pyarrow.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0
        self.size = 0

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow.compute as compute

        for batch in self._batches:
            self.rows += batch.num_rows
            for name in ("key", "value"):
                if name in batch.schema.names:
                    self.size += compute.sum(compute.binary_length(batch.column(name))).as_py() or 0
            yield batch


# The driver.


def commit(target: Target, batch: int, tasks: Sequence[Prepared]) -> None:
    """End the transactions of all tasks of a batch, each with its marker.

    Raises IllegalStateError if the batch was begun with another number of tasks, or if a later batch was written.
    Raises KafkaError if the batch was not decided, or if a transaction was not committed. If one transaction was not
    committed, others of the batch may be.
    """
    if not tasks:
        return
    loop = worker_loop()
    with (
        leased_client(loop, target.properties) as client,
        leased_admin(loop, target.properties) as admin,
    ):
        topics = {topic for topic in (target.topic, *(task.topic for task in tasks)) if topic is not None}
        loop.run(_commit(client, admin, batch, tasks, topics))


async def _commit(client: Client, admin: Admin, batch: int, tasks: Sequence[Prepared], topics: Collection[str]) -> None:
    query = tasks[0].place.query
    assert all((task.place.query, task.place.batch) == (query, batch) for task in tasks), "the tasks are of one batch"
    assert len({task.place.task for task in tasks}) == len(tasks), "each task has a transactional id of its own"
    without_rows = [task.place for task in tasks if task.topic is None]
    timeouts = [task.transaction.transaction_timeout for task in tasks if task.transaction is not None]
    if not timeouts:  # this run commits nothing, so it neither decides nor fences
        if _check_decided(batch, tasks, await _read_marker(admin, query, topics)):
            await _check_without_rows(admin, without_rows, topics)
        return
    timeout = min(LONGEST_DECISION, *timeouts)
    # Rule 3: this fences earlier drivers. None of them can decide after the marker is read below.
    with _not_committed(batch):
        decision = await begin_detached(client, query, timeout)
    newest = await _read_marker(admin, query, topics)
    is_decided = _check_decided(batch, tasks, newest)
    # Rule 7: listed before the markers are added, or the list could have transactions of a run that takes over later.
    former = await _former_transactions(admin, query, tasks, newest)

    async def mark(task: Prepared, transaction: DetachedTransaction) -> None:
        marker = _marker_of(task.topic, batch, rows=task.rows, size=task.size)
        await add_detached_offsets(client, transaction, marker, GroupMetadata(task.place.transactional_id))

    async def end(task: Prepared, transaction: DetachedTransaction) -> None:
        await end_detached(client, transaction, committed=True)

    # Rule 5: this fails if another run has taken over a task. So it comes before fencing, deciding and committing.
    await _with_each(batch, tasks, mark)
    if is_decided:
        # Rule 4: a task without rows must not have committed rows in the run that decided.
        await _fence(client, {*former, *(place.transactional_id for place in without_rows)}, timeout)
        await _check_without_rows(admin, without_rows, topics)
    else:
        await _fence(client, former, timeout)
        marker = _marker_of(next(task.topic for task in tasks if task.topic), batch, tasks=len(tasks))
        with _not_committed(batch):
            await add_detached_offsets(client, decision, marker, GroupMetadata(query))
            await end_detached(client, decision, committed=True)
    _warn_if_slow(batch, tasks)
    await _with_each(batch, tasks, end)


@contextmanager
def _not_committed(batch: int) -> Iterator[None]:
    """Name the batch in the errors of its decision."""
    try:
        yield
    except KafkaError as error:
        raise KafkaError(
            f"batch {batch} was not committed: {error}. If another run of the query has the same checkpoint, stop that"
            " run. Restart the query: it repeats the batch"
        ) from error


async def _each(step: Callable[[Item], Awaitable[None]], items: Sequence[Item]) -> Iterator[tuple[Item, BaseException]]:
    """Call ``step`` with each item, at most ``ENDED_AT_ONCE`` at the same time.

    Returns the items that failed, with their errors. All steps are awaited, because Spark's reaction to a failure must
    not overlap with a commit in progress.
    """
    limit = asyncio.Semaphore(ENDED_AT_ONCE)

    async def limited(item: Item) -> None:
        async with limit:
            await step(item)

    errors = await asyncio.gather(*map(limited, items), return_exceptions=True)
    return ((item, error) for item, error in zip(items, errors, strict=True) if error is not None)


async def _with_each(
    batch: int, tasks: Sequence[Prepared], step: Callable[[Prepared, DetachedTransaction], Awaitable[None]]
) -> None:
    """Call ``step`` with each open transaction. Raises KafkaError if a step fails."""

    async def of_task(task: Prepared) -> None:
        if task.transaction is not None:
            await step(task, task.transaction)

    for task, error in await _each(of_task, tasks):
        if not isinstance(error, KafkaError):
            raise error
        raise KafkaError(
            f"task {task.place.task} of batch {batch} was not committed: {error}. If its transaction was open for"
            f" longer than {TRANSACTION_TIMEOUT_OPTION}, increase that. If another run of the query has the same"
            " checkpoint, stop that run. If spark.speculation is on, turn it off. Restart the query: it repeats the"
            " batch, without the rows that are committed"
        ) from error


def _warn_if_slow(batch: int, tasks: Sequence[Prepared]) -> None:
    """Warn if a transaction was open for more than half of its timeout. A slower batch could exceed the timeout."""
    now = time.time()
    for task in tasks:
        timeout = 0.0 if task.transaction is None else task.transaction.transaction_timeout
        if timeout and now - task.begun_at > timeout / 2:
            logger.warning(
                "batch %d: the transaction of task %d was open for %.0f s, more than half of %s=%.0f;"
                " increase this timeout, or write smaller batches",
                *(batch, task.place.task, now - task.begun_at, TRANSACTION_TIMEOUT_OPTION, timeout * 1000),
            )
            return


def _check_decided(batch: int, tasks: Sequence[Prepared], newest: _Marker | None) -> bool:
    """Check whether the newest decision of the query is about this batch.

    Raises IllegalStateError if it is about a later batch, or about another number of tasks (rules 4 and 6).
    """
    if not _is_written(batch, newest, tasks[0].place.query):
        return False
    assert newest is not None
    if newest.counts.get("tasks") != len(tasks):
        raise IllegalStateError(
            f"batch {batch} was begun with {newest.counts.get('tasks')} tasks, and is repeated with {len(tasks)}. Some"
            " of its rows may be committed, so no more are written: restart the query with the former number of"
            " partitions, and change it after this batch"
        )
    return True


async def _former_transactions(
    admin: Admin, query: str, tasks: Sequence[Prepared], newest: _Marker | None
) -> list[str]:
    """Look up the transactional ids of the query with an open transaction that no task of this run holds (rule 7)."""
    own_ids = {task.place.transactional_id for task in tasks if task.topic is not None}
    of_query = re.compile(re.escape(query) + "-[0-9]+")
    try:
        transactions = await admin.transactions.list(states=(TransactionState.ONGOING,))
    except KafkaError as error:
        # If several brokers failed, the error has the error of each broker.
        each_error = error.errors.values() if isinstance(error, ItemsFailed) else (error,)
        if any(isinstance(cause, UnsupportedVersion) for cause in each_error):  # before Kafka 3.0
            return [f"{query}-{task}" for task in range(len(tasks), newest.counts.get("tasks", 0) if newest else 0)]
        raise KafkaError(
            f"the search for open transactions of earlier runs of the query failed: {error}. Restart the query: it"
            " repeats the batch"
        ) from error
    return [
        name
        for transaction in transactions
        if of_query.fullmatch(name := transaction.transactional_id) and name not in own_ids
    ]


async def _fence(client: Client, transactional_ids: Collection[str], timeout: float) -> None:
    """Abort the open transactions of these ids. Their producers can no longer commit them."""

    async def fence(name: str) -> None:
        await begin_detached(client, name, timeout)

    for name, error in await _each(fence, list(transactional_ids)):
        if not isinstance(error, KafkaError):
            raise error
        raise KafkaError(
            f"the transaction that an earlier run of the query may have left open under {name!r} was not aborted:"
            f" {error}. Restart the query: it repeats the batch"
        ) from error


async def _check_without_rows(admin: Admin, places: Sequence[Place], topics: Collection[str]) -> None:
    """Raise IllegalStateError if a task without rows had rows in an earlier run of this batch.

    Another task may have these rows now, and would write them again.
    """
    markers = await _read_markers(admin, [place.transactional_id for place in places], topics)
    for place in places:
        marker = markers[place.transactional_id]
        if _is_written(place.batch, marker, place.transactional_id):
            _check_same(place, marker, _Counted(()))


def abort(target: Target, tasks: Iterable[Prepared]) -> None:
    """Abort the transactions of a failed batch that are still open, so that readers need not wait for their timeout."""
    transactions = [task.transaction for task in tasks if task.transaction is not None]
    if not transactions:
        return
    loop = worker_loop()
    with leased_client(loop, target.properties) as client:
        loop.run(_abort(client, transactions))


async def _abort(client: Client, transactions: Iterable[DetachedTransaction]) -> None:
    ending = (end_detached(client, transaction, committed=False) for transaction in transactions)
    for error in await asyncio.gather(*ending, return_exceptions=True):
        if error is not None:  # committed already, aborted by the coordinator, or fenced
            logger.debug("a transaction of a failed batch was not aborted: %s", error)


# Markers.


@dataclass(frozen=True, slots=True)
class _Marker:
    batch: int
    counts: Mapping[str, int]


def _marker_of(topic: str | None, batch: int, **counts: int) -> dict[TopicPartition, OffsetAndMetadata]:
    assert topic is not None, "a task with rows has a topic"
    return {TopicPartition(topic, 0): OffsetAndMetadata(batch, marker_metadata(counts))}


async def _read_marker(admin: Admin, group: str, topics: Collection[str]) -> _Marker | None:
    return (await _read_markers(admin, [group], topics))[group]


async def _read_markers(admin: Admin, groups: Sequence[str], topics: Collection[str]) -> dict[str, _Marker | None]:
    """Read the newest marker of each group. The topics of a query may change, so a group may have several markers.

    Waits for the end of the transactions that commit markers of these groups. A broker finds an open transaction with
    the first marker of a group only if the request names its partition. So the first request names ``topics``, the
    topics of this batch, and the second request asks for all markers.
    """
    committed: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]] = {}
    expected = [TopicPartition(topic, 0) for topic in topics]
    for partitions in (expected, None) if expected else (None,):
        if groups:
            answer = await admin.groups.offsets(groups, partitions=partitions, require_stable=True)
            committed = answer.raise_for_errors()
    markers: dict[str, _Marker | None] = {}
    for group, offsets in committed.items():
        newest = max(offsets.values(), key=lambda marker: marker.offset, default=None)
        markers[group] = None if newest is None else _Marker(newest.offset, json.loads(newest.metadata or "{}"))
    return markers


def _is_written(batch: int, marker: _Marker | None, group: str) -> bool:
    """Return whether a marker belongs to this batch. Raises IllegalStateError if it belongs to a later batch."""
    if marker is not None and marker.batch > batch:
        raise IllegalStateError(
            f"batch {batch} is older than batch {marker.batch}, the last one in group {group!r}: another run of the"
            " query is writing, or the checkpoint is an old copy. Stop the other run, or begin with a new checkpoint"
        )
    return marker is not None and marker.batch == batch


def _check_same(place: Place, marker: _Marker | None, counted: _Counted) -> None:
    assert marker is not None
    counts = {"rows": counted.rows, "size": counted.size}
    if marker.counts != counts:
        raise IllegalStateError(
            f"task {place.task} of batch {place.batch} has {counted.rows} rows with {counted.size} bytes, but an"
            f" earlier run has committed {marker.counts.get('rows')} rows with {marker.counts.get('size')} bytes: the"
            " query has to compute the same rows each time. Remove random values and changed settings. If that is not"
            " possible, or the checkpoint is an old copy, begin with a new checkpoint"
        )
