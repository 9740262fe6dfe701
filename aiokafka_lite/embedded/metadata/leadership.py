"""Changes of one partition that a controller makes: elections, in-sync sets and reassignments.

A reassignment (KIP-455) adds the new replicas, waits until they are in sync, and then removes the old ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...arguments import must_be
from ...errors import ConfigurationError, ErrorCode
from .controller import CATCH_UP_INTERVAL, Controller, Refused
from .topics import NO_LEADER, PartitionKey, PartitionRegistration

logger = logging.getLogger(__name__)

REASSIGNMENT_TIME = 0.1
"""The shortest duration of a reassignment in seconds, so that it can be listed. In Kafka a follower joins with its next
fetch, and the controller decides after that."""


class PartitionLeadership:
    """Computes the next state of a partition, which the controller stores. Owner: the EmbeddedCluster."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._ending: dict[PartitionKey, asyncio.TimerHandle] = {}  # reassignments whose new replicas are in sync

    def stop(self) -> None:
        """Stop completing reassignments."""
        for timer in self._ending.values():
            timer.cancel()
        self._ending.clear()

    def move_leader(self, key: PartitionKey, node_id: int | None = None, *, unclean: bool = False) -> int:
        """Elect a live replica in the in-sync set, or, with ``unclean``, any live replica; by default the next one.

        An unclean election loses the records that the new leader does not have. Returns the leader. Raises Refused.
        """
        state = self._controller.state_of(key)
        if node_id is None:
            # Without replicas in sync, the eligible ones have all committed records (KIP-966).
            electable = state.replicas if unclean else (state.isr or state.elr)
            candidates = [node for node in electable if node != state.leader and self._controller.is_alive(node)]
            node_id = candidates[0] if candidates else state.leader
        if node_id not in state.replicas or not self._controller.is_alive(node_id):
            raise Refused(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"node {node_id} is not a live replica of {key[0]}-{key[1]}"
            )
        if not state.may_lead(node_id) and not unclean:
            raise Refused(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"node {node_id} is not in sync with {key[0]}-{key[1]}"
            )
        self._controller.set_partition(key, state.elected(node_id))
        return node_id

    def force_isr(self, key: PartitionKey, isr: tuple[int, ...]) -> None:
        """Replace the in-sync set without a proposal from the leader. Raises ConfigurationError and Refused."""
        state = self._controller.state_of(key)
        if not set(isr) <= set(state.replicas) or state.leader not in isr:
            what = f"replicas of {key[0]}-{key[1]} with the leader {state.leader}"
            raise ConfigurationError(must_be("isr", what, list(isr)))
        self._controller.set_partition(key, replace(state, isr=isr))

    def elect_preferred(self, key: PartitionKey) -> None:
        """Elect the first replica. Raises Refused."""
        state = self._controller.state_of(key)
        preferred = state.replicas[0]
        if state.leader == preferred:
            raise Refused(ErrorCode.ELECTION_NOT_NEEDED, f"node {preferred} already leads {key[0]}-{key[1]}")
        if not state.may_lead(preferred) or not self._controller.is_alive(preferred):
            raise Refused(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"node {preferred} is not in sync or not alive")
        self._controller.set_partition(key, state.elected(preferred))

    def elect_unclean(self, key: PartitionKey) -> None:
        """Elect any live replica of a partition without a leader. Raises Refused."""
        state = self._controller.state_of(key)
        if state.leader != NO_LEADER:
            raise Refused(ErrorCode.ELECTION_NOT_NEEDED, f"node {state.leader} leads {key[0]}-{key[1]}")
        live = [node for node in state.replicas if self._controller.is_alive(node)]
        if not live:
            raise Refused(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {key[0]}-{key[1]} is alive")
        in_sync = [node for node in live if state.may_lead(node)]
        self._controller.set_partition(key, state.elected((in_sync or live)[0]))

    def alter_partition(
        self, node_id: int, key: PartitionKey, leader_epoch: int, partition_epoch: int, isr: Iterable[int]
    ) -> bool:
        """Store the in-sync set that a leader proposes, and return True.

        False if the proposal is out of date, or cannot be saved: the leader proposes it again.
        """
        topic = self._controller.topics.get(key[0])
        if topic is None or key[1] >= len(topic.partitions):
            return False
        state = topic.partitions[key[1]]
        proposed = tuple(isr)
        # A proposal that is based on an older state must not undo a newer change.
        if (state.leader, state.leader_epoch, state.partition_epoch) != (node_id, leader_epoch, partition_epoch):
            return False
        # A leader may not know yet that a follower was fenced.
        if any(not self._controller.is_alive(node) for node in proposed):
            return False
        try:
            self._controller.set_partition(key, replace(state, isr=proposed))
        except Refused as refusal:
            logger.error("failed to save the in-sync set of %s-%d, which stays %s: %s", *key, list(state.isr), refusal)
            return False
        self._end_soon_if_complete(key)
        return True

    def reassign(self, key: PartitionKey, replicas: Sequence[int] | None, *, keep_factor: bool = False) -> None:
        """Begin to move a partition to other replicas, or, with None, cancel the move. Raises Refused.

        ``keep_factor`` refuses another number of replicas (KIP-860).
        """
        state = self._controller.state_of(key)
        settled = _without(state.replicas, state.adding)
        if replicas is None:
            if not (state.adding or state.removing):
                raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{key[0]}-{key[1]} is not being reassigned")
            self._move_to(key, state, settled)
            return
        self._controller.check_assignments([replicas])
        # A reassignment that is under way has replicas that it removes. They do not count.
        if keep_factor and len(replicas) != len(_without(settled, state.removing) or settled):
            raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, "the replication factor must not change")
        target = tuple(replicas)
        adding, removing = _without(target, settled), _without(settled, target)
        self._move_to(key, state, (*target, *removing) if adding else target, adding, removing if adding else ())

    def resume_reassignments(self) -> None:
        """End the reassignments of an earlier run whose new replicas were all in sync.

        All other reassignments end as usual.
        """
        for topic in self._controller.topics.values():
            for index in range(len(topic.partitions)):
                self._end_soon_if_complete((topic.name, index))

    def _end_soon_if_complete(self, key: PartitionKey) -> None:
        if key not in self._ending and self._is_complete(key):
            loop = asyncio.get_running_loop()
            self._ending[key] = loop.call_later(REASSIGNMENT_TIME, self._end_reassignment, key)

    def _move_to(
        self,
        key: PartitionKey,
        state: PartitionRegistration,
        replicas: tuple[int, ...],
        adding: tuple[int, ...] = (),
        removing: tuple[int, ...] = (),
    ) -> None:
        """Keep only ``replicas``; without ``adding``, that ends the reassignment. The leader is a replica in sync.

        A replica that an earlier reassignment has added leaves the in-sync set when a later one does not want it.
        """
        isr = tuple(node for node in state.isr if node in replicas)
        # A partition that has no replica in sync at all, because they are down, may get others too.
        if not isr and (state.isr or not adding):
            raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"none of {list(replicas)} is in sync")
        state = replace(state, replicas=replicas, isr=isr, adding=adding, removing=removing)
        if state.leader not in replicas:
            state = self._controller.elect(self._controller.topics[key[0]], state)
        self._controller.set_partition(key, state)

    def _is_complete(self, key: PartitionKey) -> bool:
        """Return whether the partition is being reassigned, and all its new replicas are in sync."""
        topic = self._controller.topics.get(key[0])
        state = None if topic is None or key[1] >= len(topic.partitions) else topic.partitions[key[1]]
        return state is not None and bool(state.adding) and set(state.adding) <= set(state.isr)

    def _end_reassignment(self, key: PartitionKey, is_retry: bool = False) -> None:
        del self._ending[key]
        if self._is_complete(key):  # otherwise it was cancelled, or a new replica has fallen behind again
            state = self._controller.state_of(key)
            try:
                self._move_to(key, state, _without(state.replicas, state.removing))
            except Refused as refusal:
                if not is_retry:
                    logger.error("failed to end the reassignment of %s-%d; retrying: %s", *key, refusal)
                loop = asyncio.get_running_loop()
                self._ending[key] = loop.call_later(CATCH_UP_INTERVAL, self._end_reassignment, key, True)


def _without(nodes: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(node for node in nodes if node not in others)
