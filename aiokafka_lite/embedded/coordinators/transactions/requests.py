"""Requests between brokers that belong to transactions: markers to leaders, and questions to coordinators.

Brokers of an embedded cluster call each other directly, without connections. Such a call fails, like a request, if one
of the two brokers does not run, or if the network between them is cut. The sender uses its own metadata.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Protocol, Self

from ....errors import ErrorCode
from ...log.producer_state import Marker
from ...metadata.topics import PartitionKey
from ...metadata.view import MetadataView
from ...replicas.replication import Network
from ..groups.records import partition_of
from .records import TRANSACTION_TOPIC

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 1.0
"""Seconds between two attempts to write a marker."""

_SETTLED = {ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
"""The results after which a marker is not sent again: it is written, or a newer producer or coordinator wrote one."""


class VerifyingCoordinator(Protocol):
    """The part of a transaction coordinator that leaders ask."""

    async def confirm(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[PartitionKey],
        *,
        verify_only: bool,
    ) -> dict[PartitionKey, ErrorCode]: ...


class TransactionalBroker(Protocol):
    """The part of a node that transactions use."""

    node_id: int
    metadata: MetadataView

    @property
    def is_running(self) -> bool: ...

    @property
    def transactions(self) -> VerifyingCoordinator: ...

    async def write_marker(self, key: PartitionKey, marker: Marker) -> ErrorCode: ...


class HeldMarkers:
    """The markers of one partition are held until ``release()``, or until the end of a ``with`` block."""

    def __init__(self, key: PartitionKey, release: Callable[[PartitionKey], None]) -> None:
        self.key = key
        self._release = release

    def __repr__(self) -> str:
        return f"<HeldMarkers {self.key[0]}-{self.key[1]}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Write the markers that wait, and do not hold the next markers."""
        self._release(self.key)


class TransactionRequests:
    """Owner: the EmbeddedCluster."""

    def __init__(self, brokers: Mapping[int, TransactionalBroker], network: Network) -> None:
        self._brokers = brokers
        self._network = network
        self._held: dict[PartitionKey, asyncio.Event] = {}

    def hold_markers(self, key: PartitionKey) -> HeldMarkers:
        self._held.setdefault(key, asyncio.Event())
        return HeldMarkers(key, self._release)

    def _release(self, key: PartitionKey) -> None:
        event = self._held.pop(key, None)
        if event is not None:
            event.set()

    async def write_marker(self, sender: int, key: PartitionKey, marker: Marker, is_wanted: Callable[[], bool]) -> None:
        """Write a marker at the leader of its partition. Retry until the request succeeds, or is no longer needed."""
        # There is no limit of attempts: until the marker is written, the last stable offset of the partition does not
        # move, and readers of committed records get nothing behind the start of the transaction.
        pause = FIRST_PAUSE
        while is_wanted():
            released = self._held.get(key)
            if released is not None:
                await released.wait()
                continue  # a test may hold the markers again meanwhile
            if await self._try_marker(sender, key, marker) in _SETTLED:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _try_marker(self, sender: int, key: PartitionKey, marker: Marker) -> ErrorCode:
        broker = self._brokers[sender]
        if not broker.is_running:
            return ErrorCode.NETWORK_EXCEPTION
        # Each attempt looks the leader up again, because it may have moved since the last one.
        state = broker.metadata.partition_state(key)
        if state is None:
            return ErrorCode.NONE  # the topic was deleted
        leader = self._reached(broker, state.leader)
        return ErrorCode.NETWORK_EXCEPTION if leader is None else await leader.write_marker(key, marker)

    async def confirm_partitions(
        self,
        sender: int,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[PartitionKey],
        *,
        verify_only: bool,
    ) -> dict[PartitionKey, ErrorCode]:
        """Add partitions to a transaction at its coordinator, or, with ``verify_only``, ask whether it has them."""
        broker = self._brokers[sender]
        topic = broker.metadata.topics.get(TRANSACTION_TOPIC)
        coordinator = None
        if topic is not None:
            state = topic.partitions[partition_of(transactional_id, len(topic.partitions))]
            coordinator = self._reached(broker, state.leader)
        if coordinator is None:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return await coordinator.transactions.confirm(transactional_id, producer, partitions, verify_only=verify_only)

    def _reached(self, sender: TransactionalBroker, node_id: int) -> TransactionalBroker | None:
        """Return a broker, if the sender can reach it."""
        broker = self._brokers.get(node_id)
        if broker is None or not broker.is_running or self._network.is_cut(sender.node_id, node_id):
            return None
        return broker
