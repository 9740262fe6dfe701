"""The share groups of a cluster (KIP-932), as their coordinators see them.

In Kafka, a group coordinator has the members of a share group, and a share coordinator has the state of its share
partitions. Brokers send requests to the share coordinator, which clients never see. Here one object of the cluster has
both roles, and every broker calls it directly. So a new coordinator, or a new leader of a partition, continues with the
same state. The state is also written to ``__consumer_offsets`` and ``__share_group_state``, so that a cluster with a
``data_dir`` has it after a restart. The members are not written; after a restart of the cluster they join again.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from ....errors import ErrorCode
from ...metadata.controller import Controller
from ...metadata.topics import PartitionKey
from ...replicas.manager import ReplicaManager
from ...settings.resource_configs import GROUP, GROUP_KEYS, group_number
from ..groups.assignors import TopicIdPartition
from ..groups.heartbeat_group import GroupRefusal
from ..groups.log import GroupLog
from ..groups.records import OFFSETS_TOPIC, partition_of
from ..internal_topics import create_internal_topic
from ..log import CoordinatorLog, Row, Rows
from .group import ShareGroup, ShareGroupState, ShareHeartbeat, ShareMember, ShareState
from .records import SHARE_STATE_TOPIC, encode_group, encode_state, group_key, read_group, read_state, state_key

logger = logging.getLogger(__name__)


class ShareStateLog(CoordinatorLog):
    """The partitions of ``__share_group_state`` on one node. Owner: the node."""

    topic = SHARE_STATE_TOPIC


class ShareBroker(Protocol):
    """The part of a node that share groups use."""

    @property
    def is_running(self) -> bool: ...

    @property
    def replica_manager(self) -> ReplicaManager: ...

    @property
    def group_log(self) -> GroupLog: ...

    @property
    def share_log(self) -> ShareStateLog: ...


class HostedShareGroups:
    """Owner: the EmbeddedCluster. ``nodes`` are all brokers by their ids."""

    def __init__(self, nodes: Mapping[int, ShareBroker], controller: Controller, now_ms: Callable[[], int]) -> None:
        self._nodes = nodes
        self._controller = controller
        self._now_ms = now_ms
        self._groups: dict[str, ShareGroup] = {}
        self._unclaimed: dict[str, dict[TopicIdPartition, ShareState]] = {}
        """States by group id that were stored by request, until a group of that id exists."""
        self._sessions: dict[tuple[str, str], asyncio.TimerHandle] = {}  # by group and member

    def __repr__(self) -> str:
        return f"<HostedShareGroups groups={len(self._groups)} members={len(self._sessions)}>"

    def __iter__(self) -> Iterator[ShareGroup]:
        return iter(self._groups.values())

    def find(self, group_id: str) -> ShareGroup | None:
        return self._groups.get(group_id)

    def replicated(self, group_id: str) -> ShareGroup | None:
        """Return a group as the replicas have it: the changes that they lack are left out."""
        group, node = self._groups.get(group_id), self._leader(OFFSETS_TOPIC, group_id)
        while group is not None and node is not None and not node.group_log.is_replicated(group_id, group.end_offset):
            group = group.before
        return group

    def setting(self, group_id: str, name: str) -> str:
        own = self._controller.settings.resource(GROUP, group_id)
        return own.get(name) or GROUP_KEYS[name].default or ""

    def number(self, group_id: str, name: str) -> int:
        return group_number(self._controller.settings.of(), group_id, name)

    # Members.

    def heartbeat(self, group_id: str, request: ShareHeartbeat) -> ShareMember:
        """Refresh a member, which may join. The first member makes the group. Raises GroupRefusal.

        The member is valid until the next heartbeat of the group.
        """
        group = self._groups.get(group_id)
        if group is None:
            if request.epoch != 0:
                raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
            group = self._new_group(group_id)
        # A change is made in a copy, so that a refused write leaves the group as it was.
        changed = group.copy()
        max_size = self._controller.settings.of().number("group.share.max.size")
        member = changed.heartbeat(request, self._controller.topics, max_size)
        self._replace(group, changed)
        self._start_session(group_id, member.member_id)
        return member

    def _new_group(self, group_id: str, epoch: int = 0) -> ShareGroup:
        group = ShareGroup(group_id, epoch)
        group.states.update(self._unclaimed.get(group_id, {}))
        return group

    def _add(self, group: ShareGroup) -> None:
        self._groups[group.group_id] = group
        self._unclaimed.pop(group.group_id, None)

    def _replace(self, old: ShareGroup, new: ShareGroup) -> None:
        """Write the changes of a group, and keep them. Raises GroupRefusal if the log refuses them."""
        assert new.epoch >= old.epoch, "the epoch of a group only grows"
        # The log has only the epoch of a group, so a change within an epoch is not written.
        if new.epoch != old.epoch:
            node = self._leader(OFFSETS_TOPIC, new.group_id)
            error = ErrorCode.NONE if node is None else node.group_log.append_membership(new.group_id, _group_rows(new))
            if error is not ErrorCode.NONE:
                raise GroupRefusal(error)
            new.before = self._groups.get(new.group_id)
            replicated = self.replicated(new.group_id)
            if replicated is not None:
                replicated.before = None  # no description needs an older one
            new.end_offset = 0 if node is None else node.group_log.end_offset(new.group_id)
        self._add(new)
        self._write_states(new.group_id, [state for state in new.states if state not in old.states])

    def _start_session(self, group_id: str, member_id: str) -> None:
        key = (group_id, member_id)
        self._cancel(key)
        timeout = self.number(group_id, "share.session.timeout.ms") / 1000
        self._sessions[key] = asyncio.get_running_loop().call_later(timeout, self._expire, *key)

    def _expire(self, group_id: str, member_id: str) -> None:
        try:
            self._remove(group_id, member_id)
        except GroupRefusal as refusal:
            logger.warning("share group %s failed to remove member %s: %s", group_id, member_id, refusal)
            # The member stays until the log accepts its removal, which is tried again after another session timeout.
            self._start_session(group_id, member_id)

    def leave(self, group_id: str, member_id: str) -> None:
        """Remove a member that leaves. Raises GroupRefusal."""
        group = self._groups.get(group_id)
        if group is None:
            raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        group.require(member_id)
        self._remove(group_id, member_id)

    def _remove(self, group_id: str, member_id: str) -> None:
        group = self._groups[group_id]
        changed = group.copy()
        changed.remove(member_id, self._controller.topics)
        self._replace(group, changed)
        self._cancel((group_id, member_id))

    def _cancel(self, key: tuple[str, str]) -> None:
        timer = self._sessions.pop(key, None)
        if timer is not None:
            timer.cancel()

    def delete(self, group_id: str) -> ErrorCode:
        """Delete a share group that has no members, with the state of its share partitions."""
        group = self._groups[group_id]
        if group.state is not ShareGroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        del self._groups[group_id]
        self._write_deletions(group_id, group.states)
        self._write(OFFSETS_TOPIC, group_id, [(group_key(group_id), None)])
        return ErrorCode.NONE

    def stop(self) -> None:
        """Cancel all timers, because the cluster stops."""
        for key in list(self._sessions):
            self._cancel(key)

    # The state of share partitions.

    def state(self, group_id: str, key: TopicIdPartition) -> ShareState | None:
        """Return the state of a share partition; None if no member of the group has subscribed to the topic."""
        group = self._groups.get(group_id)
        return None if group is None else group.states.get(key)

    def save(self, group_id: str, key: TopicIdPartition) -> None:
        """Write the state of a share partition, which its leader has changed."""
        self._write_states(group_id, [key])

    def stored_state(self, group_id: str, key: TopicIdPartition) -> ShareState | None:
        """Return the state of a share partition, also without a group of that id."""
        return self._states(group_id).get(key)

    def _states(self, group_id: str) -> Mapping[TopicIdPartition, ShareState]:
        group = self._groups.get(group_id)
        return self._unclaimed.get(group_id, {}) if group is None else group.states

    def store_state(self, group_id: str, key: TopicIdPartition, state: ShareState) -> None:
        """Write the state of a share partition. If it is a new object, the leader drops the records in flight."""
        group = self._groups.get(group_id)
        states = self._unclaimed.setdefault(group_id, {}) if group is None else group.states
        states[key] = state
        self._write_states(group_id, [key])

    def delete_state(self, group_id: str, key: TopicIdPartition) -> None:
        """Delete the state of a share partition, if there is one."""
        group = self._groups.get(group_id)
        states = self._unclaimed.get(group_id, {}) if group is None else group.states
        if states.pop(key, None) is not None:
            self._write_deletions(group_id, [key])
        if group is None and not states:
            self._unclaimed.pop(group_id, None)

    def state_leader(self, group_id: str, key: TopicIdPartition) -> int | None:
        """Return the id of the broker that coordinates a share partition; None if there is none."""
        topic = self._controller.topics.get(SHARE_STATE_TOPIC)
        if topic is None:
            return None
        return topic.partitions[partition_of(_state_name(group_id, key), len(topic.partitions))].leader

    def end_offset(self, key: PartitionKey) -> int | None:
        """Return the end of the records of a partition; None if it has no leader."""
        topic = self._controller.topics.get(key[0])
        node = None if topic is None else self._nodes.get(topic.partitions[key[1]].leader)
        replica = None if node is None else node.replica_manager.partitions.get(key)
        return None if replica is None else replica.log.high_watermark

    def set_start_offset(self, group_id: str, key: TopicIdPartition, start_offset: int) -> None:
        """Set the start offset of a share partition of an empty group, which ends all deliveries of its records.

        A group that does not exist is made.
        """
        group = self._groups.get(group_id)
        if group is None:
            group = self._new_group(group_id)
            self._add(group)
            self._write(OFFSETS_TOPIC, group_id, _group_rows(group))
        # A new object: the leader then drops the records in flight, whose deliveries belong to the old one.
        group.states[key] = ShareState(start_offset, state_epoch=group.epoch)
        self._write_states(group_id, [key])

    def delete_topic(self, group: ShareGroup, topic_id: bytes) -> bool:
        """Delete the state of the share partitions of a topic. False if there is none."""
        return self._delete_topic(group.group_id, group.states, topic_id)

    def _delete_topic(self, group_id: str, states: dict[TopicIdPartition, ShareState], topic_id: bytes) -> bool:
        keys = [key for key in states if key[0] == topic_id]
        self._write_deletions(group_id, keys)
        for key in keys:
            del states[key]
        return bool(keys)

    def drop_deleted_topics(self) -> None:
        """Drop the state of topics that were deleted."""
        alive = {topic.topic_id for topic in self._controller.topics.values()}
        states_of = {group_id: group.states for group_id, group in self._groups.items()} | self._unclaimed
        for group_id, states in states_of.items():
            for topic_id in {topic_id for topic_id, _ in states} - alive:
                self._delete_topic(group_id, states, topic_id)

    # The log.

    def load(self) -> None:
        """Read the groups from the logs of the brokers, after the cluster has started."""
        for key, value in self._records(OFFSETS_TOPIC):
            read = read_group(key, value)
            if read is not None:
                group_id, epoch = read
                self._groups.pop(group_id, None)
                if epoch is not None:
                    self._groups[group_id] = ShareGroup(group_id, epoch)
        for key, value in self._records(SHARE_STATE_TOPIC):
            about, state = read_state(key, value)
            group = self._groups.get(about.group_id)
            states = self._unclaimed.setdefault(about.group_id, {}) if group is None else group.states
            if state is not None:
                states[about.topic_id, about.partition] = state
            else:
                states.pop((about.topic_id, about.partition), None)
        self.drop_deleted_topics()

    def _records(self, name: str) -> Iterator[Row]:
        topic = self._controller.topics.get(name)
        for index, state in enumerate(() if topic is None else topic.partitions):
            node_id = state.leader if state.leader in self._nodes else state.replicas[0]
            yield from self._log(self._nodes[node_id], name).rows(index)

    def _write_states(self, group_id: str, keys: Iterable[TopicIdPartition]) -> None:
        states, now_ms = self._states(group_id), self._now_ms()
        for key in keys:
            rows: Rows = [(state_key(group_id, *key), encode_state(states[key], now_ms))]
            self._write(SHARE_STATE_TOPIC, _state_name(group_id, key), rows)

    def _write_deletions(self, group_id: str, keys: Iterable[TopicIdPartition]) -> None:
        for key in keys:
            self._write(SHARE_STATE_TOPIC, _state_name(group_id, key), [(state_key(group_id, *key), None)])

    def _write(self, topic: str, name: str, rows: Rows) -> None:
        """Write to the leader of the partition of ``name``. Without a leader the rows are lost at the next restart."""
        node = self._leader(topic, name)
        if node is not None:
            self._log(node, topic).append(name, rows)

    def _leader(self, topic: str, name: str) -> ShareBroker | None:
        if topic not in self._controller.topics:
            create_internal_topic(topic, self._controller, self._controller.settings.of())
        described = self._controller.topics.get(topic)
        if described is None:
            return None
        leader = described.partitions[partition_of(name, len(described.partitions))].leader
        node = self._nodes.get(leader)
        return node if node is not None and node.is_running else None

    @staticmethod
    def _log(node: ShareBroker, topic: str) -> CoordinatorLog:
        return node.group_log if topic == OFFSETS_TOPIC else node.share_log


def _state_name(group_id: str, key: TopicIdPartition) -> str:
    """Return the name by which a share partition finds its coordinator."""
    topic_id = base64.urlsafe_b64encode(key[0]).decode().rstrip("=")
    return f"{group_id}:{topic_id}:{key[1]}"


def _group_rows(group: ShareGroup) -> Rows:
    return [(group_key(group.group_id), encode_group(group.epoch))]
