"""Decides which replicas of a partition begin in sync after a start, by what their directories have.

A damaged replica that began in sync, or even as the leader, would make the other replicas delete the records that it
lacks. So it begins empty and copies them, as long as another replica in sync is whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..log.files import LoadedLog
from ..metadata.topics import NO_LEADER, PartitionRegistration

Replicas = Mapping[int, LoadedLog | None]
"""By node, what the directory of a replica has; None if there is no directory."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """The state with which a partition begins, and the replicas that begin empty, as node ids.

    With ``is_lost`` no replica in sync can be used. With ``is_older`` the logs are newer than the topic's file.
    """

    state: PartitionRegistration
    empty: tuple[int, ...] = ()
    is_lost: bool = False
    is_older: bool = False


def recover(state: PartitionRegistration, replicas: Replicas) -> Recovery:
    """Decide for one partition. ``state`` has the next epochs, in which no record was written."""
    loaded = {node: log for node, log in replicas.items() if log is not None}
    largest_epoch = max((log.last_epoch for log in loaded.values()), default=-1)
    partition_epoch = max((log.partition_epoch for log in loaded.values()), default=-1)
    is_older = largest_epoch >= state.leader_epoch or partition_epoch >= state.partition_epoch
    in_sync = state.isr or state.elr
    # A state is saved before any broker uses its epochs. So a log with a newer epoch shows that the topic's file is an
    # older copy, such as one from a backup.
    if is_older:
        state = replace(
            state,
            leader_epoch=max(state.leader_epoch, largest_epoch + 1),
            partition_epoch=max(state.partition_epoch, partition_epoch + 1),
        )
        # The replicas in sync are unknown. The log of the last leader has all committed records.
        end = max(((log.last_epoch, log.end_offset) for log in loaded.values()), default=None)
        in_sync = tuple(node for node, log in loaded.items() if (log.last_epoch, log.end_offset) == end) or in_sync
    reached = max((log.high_watermark for log in loaded.values()), default=0)
    whole = tuple(node for node in in_sync if (log := loaded.get(node)) and log.is_whole and log.end_offset >= reached)
    if not whole:
        # Every replica in sync lacks records. The one whose log ends last stays in sync, after its repair. The other
        # damaged ones begin empty and copy its log.
        usable = [node for node in in_sync if node in loaded and not loaded[node].losses]
        if not usable:
            return Recovery(state, is_lost=True)
        whole = (max(usable, key=lambda node: (loaded[node].last_epoch, loaded[node].end_offset, -node)),)
    empty = tuple(
        node for node, log in replicas.items() if node not in whole and (log is None or log.losses or log.damage)
    )
    if set(whole) != set(state.isr or state.elr):
        leader = state.leader
        if leader not in whole and leader != NO_LEADER:
            leader = next(node for node in state.replicas if node in whole)
        state = replace(state, isr=whole, elr=(), leader=leader, last_leader=NO_LEADER)
    return Recovery(state, empty, is_older=is_older)
