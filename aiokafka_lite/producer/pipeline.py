"""The stages of a producer that runs, wired together: a record goes through them from top to bottom.

``accept`` → ``accumulator`` → ``partition`` → ``dispatch`` → ``sender`` → ``answers`` → ``settle``. Calls go down this
list, and each module imports only modules below it; ``partition`` is pure and is used by all of them. An answer goes
from the sender to ``answers``, which has ``settle`` set the result, and passes a partition with more data to
``dispatch``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from ..aio.byte_budget import ByteBudget
from ..aio.children import ChildScope
from ..aio.retry import is_retriable
from ..aio.service import Service, ServiceState
from ..cluster.client import Client
from ..cluster.metadata import ClusterView
from ..cluster.standstill import Wait
from ..errors import IllegalStateError, KafkaError, KafkaTimeout, ProtocolError, UnsupportedVersion, error_for
from ..serialization.serializer import Serialization
from ..settings.producer import ProducerConfig
from .accept.accept import Acceptor
from .accept.hot_path import HotPath
from .accept.interceptor import Interceptors
from .accumulator import Accumulator
from .admission import Admission
from .answers import Answers
from .batch import BatchFactories
from .buffer_memory import BufferMemory
from .counters import ProducerCounters
from .delivery import FailureLog, settled
from .dispatch import Dispatcher, ReadyQueue
from .failures import FailureStreams
from .partitioning.interface import Partitioner
from .produce_requests import ProduceRequests
from .producer_ids import ProducerIdAndEpoch, ProducerIds
from .sender import Sender, SenderContext, Senders
from .settle import Settlement
from .timers import Timers
from .transactional_ids import TransactionalIds

if TYPE_CHECKING:
    from ..cluster.metrics import ClientMetrics
    from .accept.arrow import ArrowAcceptor
    from .accept.many import ManyAcceptor
    from .batch import ProducerBatch
    from .compressor import Compressor
    from .metrics import ProducerMetrics
    from .partition import PartitionProducer
    from .transactions.transactions import TransactionManager

logger = logging.getLogger(__name__)

_PLACE = "producer id"
"""The name under which failed attempts are counted as an outage."""


class Pipeline:
    """The stages of one producer, from start to end. Created in the event loop, when the client has metadata."""

    def __init__(
        self,
        client: Client,
        config: ProducerConfig,
        partitioner: Partitioner,
        serialization: Serialization,
        interceptors: Interceptors,
        failures: FailureStreams,
        clock: Callable[[], float],
        service: Service,
    ) -> None:
        self.client: Client = client
        self._failures = failures
        self._service = service
        self._is_requesting_id = False
        self.id_refusal: KafkaError | None = None
        """The error with which brokers refuse a producer id, until they assign one."""
        self._timers = Timers(service.fail)
        self.counters: ProducerCounters = ProducerCounters()
        self.ids: ProducerIds | None = self._make_ids(config)
        budget = ByteBudget(config.buffer_memory)
        batches = BatchFactories(config)
        load: Counter[int] = Counter()  # the bytes of sealed batches by broker
        self._dispatcher = Dispatcher(client, self._timers, budget, config, self._start_sender)
        self.settlement: Settlement = Settlement(
            client, budget, self._dispatcher, self._timers, self.counters, failures
        )
        answers = Answers(client, batches, self.settlement, self._dispatcher, self.counters, config)
        transactional_ids = self.ids if isinstance(self.ids, TransactionalIds) else None
        requests = ProduceRequests(client, config, batches, self.counters, transactional_ids)
        context = SenderContext(client, config, self._dispatcher, answers, requests, self._timers)
        self.senders: Senders = Senders(context, load, self._spawn_sender)
        self._compressor: Compressor | None = None  # few producers have large batches
        self.accumulator: Accumulator = Accumulator(
            client,
            config,
            partitioner,
            budget=budget,
            settlement=self.settlement,
            dispatcher=self._dispatcher,
            timers=self._timers,
            batches=batches,
            load=load,
            ids=self.ids,
            compress=self._compress,
            spawn=self._spawn,
        )
        self.memory: BufferMemory = BufferMemory(budget, config.max_block, service, self.accumulator.flush)
        self.admission: Admission = Admission()
        path = HotPath(self.accumulator, self.admission, budget, config, serialization, interceptors, clock)
        self.acceptor: Acceptor = Acceptor(path, self.admission, self.memory, config, serialization, service)
        is_plain = serialization.plain_keys and serialization.plain_values
        self.many_acceptor: Callable[[], ManyAcceptor] = partial(
            _many_acceptor,
            *(self.acceptor, self.accumulator, self.memory, self.admission, config, clock, service),
            on_refused=self.record_refused,
            takes_lists=is_plain and not interceptors,
        )
        self.arrow_acceptor: Callable[[], ArrowAcceptor] = partial(
            _arrow_acceptor,
            *(self.accumulator, self.memory, self.admission, batches, config, clock, service),
            is_plain and not interceptors.are_given,
        )
        self.transactions: TransactionManager | None = self._make_transactions(config)

    def _make_ids(self, config: ProducerConfig) -> ProducerIds | None:
        if config.transactional_id is not None:
            return TransactionalIds(self._request_partitions)
        return ProducerIds(self._request_id) if config.idempotence else None

    def _make_transactions(self, config: ProducerConfig) -> TransactionManager | None:
        if not isinstance(self.ids, TransactionalIds):
            return None
        # Imported here: most producers do not use transactions.
        from .transactions.transactions import TransactionManager

        return TransactionManager(
            self.client,
            config,
            self.ids,
            admission=self.admission,
            settlement=self.settlement,
            accumulator=self.accumulator,
            dispatcher=self._dispatcher,
            senders=self.senders,
            failures=self._failures,
            timers=self._timers,
            service=self._service,
            spawn=self._spawn,
        )

    def _request_partitions(self) -> None:
        assert self.transactions is not None
        self.transactions.parts.request_partitions()

    def required_transactions(self) -> TransactionManager:
        """Return the transactions. Raises IllegalStateError if the producer has none."""
        if self.transactions is None:
            raise IllegalStateError("transactions require transactional_id: Producer(..., transactional_id='orders-1')")
        return self.transactions

    def record_refused(self, error: Exception) -> None:
        """Fail the open transaction, because it lacks a record whose error a call returns in a list."""
        if self.transactions is not None:
            self.transactions.record_refused(error)

    # Tasks.

    async def start(self) -> None:
        """Start the tasks of the pipeline, as children of the producer. Returns when transactions can begin."""
        self.client.on_view_change(self._view_changed)
        self.client.standstill.watch(lambda: repr(self._service), [self._waits])
        self._service.at_end(self._fail_deliveries)
        if self.transactions is not None:
            await self.transactions.start()

    def _waits(self) -> Iterator[Wait]:
        from .waits import waits  # imported here: a producer that works for a moment does not need it

        return waits(
            self.client,
            self.accumulator.topics.values(),
            self.settlement.partitions(),
            self.memory,
            None if self.transactions is None else self.transactions.waiting_error,
            self.counters.records_delivered,
        )

    def _spawn(self, function: Callable[[], Coroutine[Any, Any, object]], name: str) -> ChildScope:
        return self._service.start_child(function, name=f"Producer: {name}")

    def _start_sender(self, node_id: int) -> ReadyQueue:
        return self.senders.start(node_id)

    def _spawn_sender(self, sender: Sender) -> ChildScope:
        return self._spawn(sender.run, f"broker {sender.node_id}")

    def _view_changed(self, view: ClusterView) -> None:
        # After the end, a changed view would move records to batches that no sender sends.
        if not self._timers.stopped:
            self.accumulator.view_changed(view)
            self.senders.keep(view.nodes)

    async def _fail_deliveries(self) -> None:
        """Fail all open deliveries, because the producer ends."""
        # First, so that no timer sends a partition whose batches fail below.
        self._timers.stop()
        self._dispatcher.stop()
        error = self._service.failure
        if not isinstance(error, Exception):
            error = KafkaTimeout("the producer was closed before the record was acknowledged")
        log = FailureLog(error)
        self.admission.end(error)
        self.accumulator.fail_pending(error, log)
        self.settlement.end(error, log)
        self._failures.end()
        if self._compressor is not None:
            self._compressor.end()

    def _compress(self, partition: PartitionProducer, batch: ProducerBatch) -> bool:
        if self._compressor is None:
            from .compressor import Compressor

            self._compressor = Compressor(self._dispatcher, self._timers)
        return self._compressor.start(partition, batch)

    def _request_id(self) -> None:
        """Request a producer id: before the first batch, and again when all epochs of an id are used up."""
        if not self._is_requesting_id:
            self._is_requesting_id = True
            self._spawn(self._obtain_producer_id, "producer id")

    async def _obtain_producer_id(self) -> None:
        assert self.ids is not None
        backoff = self.client.retry_backoff()
        outages = self.client.outages
        while self.ids.newest is None:
            try:
                self.ids.received(await self._ask_for_producer_id())
            except KafkaError as error:
                # A closing producer continues too, because ``close`` waits for records that need the id.
                if self._service.state not in (ServiceState.RUNNING, ServiceState.CLOSING):
                    raise
                # ``health()`` shows ``id_refusal`` for an error that is not retriable.
                problem = f"it has no producer id: {error}" if is_retriable(error) else ""
                level = logging.INFO if is_retriable(error) else logging.WARNING
                what = "could not obtain a producer id: %s"
                outages.report(logger, _PLACE, error, what, error, level=level, problem=problem)
                if not is_retriable(error):
                    # An operator may have to grant a permission. Until then, records fail at once.
                    self.id_refusal = error
                    self.settlement.fail_unsent(error, FailureLog(error))
                await asyncio.sleep(backoff.next())
        self.id_refusal = None
        outages.recovered(logger, _PLACE, "obtained a producer id")
        self._is_requesting_id = False
        for partition in self.settlement.partitions():
            self._dispatcher.offer(partition)

    async def _ask_for_producer_id(self) -> ProducerIdAndEpoch:
        from ..protocol.messages import InitProducerIdRequest

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        try:
            answer = await self.client.send(request, retry=False)
        except UnsupportedVersion as error:
            raise UnsupportedVersion(f"{error}; without it, set idempotence=False") from error
        if answer.error_code:
            raise error_for(
                answer.error_code,
                "requesting a producer id for idempotence; grant IDEMPOTENT_WRITE, or set idempotence=False",
            )
        if answer.producer_id < 0 or answer.producer_epoch < 0:  # with -1, brokers would not drop duplicates
            raise ProtocolError(
                f"a broker assigned producer id {answer.producer_id} and epoch {answer.producer_epoch}; both must be"
                " >= 0"
            )
        return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    def metrics(self, client: ClientMetrics, buffer_memory: int) -> ProducerMetrics:
        from .metrics import snapshot

        return snapshot(
            self.counters,
            self.senders.metrics(),
            client,
            buffered_bytes=self.memory.budget.used,
            buffer_memory=buffer_memory,
            senders_waiting=self.memory.waiting,
            batches_unsettled=len(self.settlement.unsettled),
            transactions=None if self.transactions is None else self.transactions.metrics(),
        )

    # Waiting.

    async def finish(self) -> None:
        """End an open transaction, and flush."""
        if self.transactions is not None:
            await self.transactions.close()
        await self.flush()

    async def flush(self) -> None:
        """Wait until all records that are accepted so far are settled; no batch lingers meanwhile."""
        self.accumulator.flush()
        # Records that have moved are in other batches now, which must not linger either.
        await settled(self.settlement.unsettled, on_move=self.accumulator.flush)


def _many_acceptor(*stages: Any, **options: Any) -> ManyAcceptor:
    from .accept.many import ManyAcceptor  # imported here, like the next one: most producers send single records

    return ManyAcceptor(*stages, **options)


def _arrow_acceptor(*stages: Any) -> ArrowAcceptor:
    from .accept.arrow import ArrowAcceptor

    return ArrowAcceptor(*stages)
