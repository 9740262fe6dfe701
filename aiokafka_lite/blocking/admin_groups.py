"""The calls of ``Admin`` about groups.

Written by docs/make_blocking.py from the asyncio classes, which have the same calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..admin.groups import Groups as AsyncGroups
from ..admin.share_groups import ShareGroups as AsyncShareGroups
from ..types import IsolationLevel
from .wrapper import Blocking

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..admin.group_descriptions import GroupDescription, GroupListing, GroupState, GroupType
    from ..admin.groups import GroupLag
    from ..admin.resets import Reset, ResetOffset
    from ..admin.results import Results
    from ..admin.share_groups import ShareGroupDescription, ShareOffset
    from ..types import Node, OffsetAndMetadata, TopicPartition


class Groups(Blocking):
    """The calls of ``admin.groups``."""

    _inner: AsyncGroups

    def list(
        self,
        *,
        states: Iterable[GroupState | str] = (),
        types: Iterable[GroupType | str] = (),
        timeout: float | None = None,
    ) -> tuple[GroupListing, ...]:
        """List all groups that this client may see, by name. ``states`` and ``types`` select some of them.

        Raises the error if one broker did not answer, since the list would not be complete.
        """
        return self._await(self._inner.list, states=states, types=types, timeout=timeout)

    def describe(self, groups: str | Iterable[str], *, timeout: float | None = None) -> Results[str, GroupDescription]:
        """Describe classic, consumer and streams groups, with their members and assignments."""
        return self._await(self._inner.describe, groups, timeout=timeout)

    def coordinators(self, groups: str | Iterable[str], *, timeout: float | None = None) -> Results[str, Node]:
        """Find the broker that coordinates each group, whether the group exists or not."""
        return self._await(self._inner.coordinators, groups, timeout=timeout)

    def delete(self, groups: str | Iterable[str], *, timeout: float | None = None) -> Results[str, None]:
        """Delete groups and their offsets. A group with members fails with NON_EMPTY_GROUP."""
        return self._await(self._inner.delete, groups, timeout=timeout)

    def offsets(
        self,
        groups: str | Iterable[str],
        *,
        partitions: Iterable[TopicPartition] | None = None,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> Results[str, Mapping[TopicPartition, OffsetAndMetadata]]:
        """Read the committed offsets of groups in these partitions, or in all. A group that does not exist has none.

        With ``require_stable``, the call waits for the end of transactions that commit offsets of these partitions
        (Kafka 2.5; older brokers do not wait). Without ``partitions``, it waits only for partitions that already have a
        committed offset. Brokers do not find a partition whose first commit is in an open transaction.
        """
        return self._await(
            self._inner.offsets, groups, partitions=partitions, require_stable=require_stable, timeout=timeout
        )

    def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], *, timeout: float | None = None
    ) -> Results[TopicPartition, None]:
        """Commit offsets for a group without members. Creates the group if it does not exist.

        A group with members refuses with UNKNOWN_MEMBER_ID.
        """
        return self._await(self._inner.alter_offsets, group, offsets, timeout=timeout)

    def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> Results[TopicPartition, None]:
        """Delete committed offsets (Kafka 2.4). A topic with subscribers fails with GROUP_SUBSCRIBED_TO_TOPIC."""
        return self._await(self._inner.delete_offsets, group, partitions, timeout=timeout)

    def remove_members(
        self, group: str, members: Iterable[str] = (), *, instances: Iterable[str] = (), timeout: float | None = None
    ) -> Results[str, None]:
        """Remove members by their ids, and static members by their instance ids (Kafka 2.4); the results are by id.

        A member that still runs joins again. An id that the group does not have fails with UNKNOWN_MEMBER_ID. In the
        consumer protocol (KIP-848) brokers remove only static members: another member fails in the same way.
        """
        return self._await(self._inner.remove_members, group, members, instances=instances, timeout=timeout)

    def reset_offsets(
        self,
        group: str,
        to: Reset,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        topics: Iterable[str] | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> Results[TopicPartition, ResetOffset]:
        """Reset the committed offsets of a group without members. ``dry_run`` changes nothing.

        Resets ``partitions`` and all partitions of ``topics``. Without both, it resets the partitions that ``to``
        names, for example by a file, or else all partitions that the group has committed. New offsets stay within the
        range of the partition. Raises BrokerError (NON_EMPTY_GROUP) if the group has members.
        """
        return self._await(
            self._inner.reset_offsets, group, to, partitions=partitions, topics=topics, dry_run=dry_run, timeout=timeout
        )

    def lag(
        self,
        groups: str | Iterable[str],
        *,
        isolation_level: str | IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        timeout: float | None = None,
    ) -> Results[str, GroupLag]:
        """Compute the lag of groups in each partition that has a committed offset or belongs to a member.

        For a streams group, the result has only partitions with a committed offset.

        The lag counts up to the high watermark, or with ``isolation_level="read_committed"`` up to the last stable
        offset: the first record of the oldest open transaction.
        """
        return self._await(self._inner.lag, groups, isolation_level=isolation_level, timeout=timeout)


class ShareGroups(Blocking):
    """The calls of ``admin.share_groups``. They require Kafka 4.1 or newer."""

    _inner: AsyncShareGroups

    def list(
        self, *, states: Iterable[GroupState | str] = (), timeout: float | None = None
    ) -> tuple[GroupListing, ...]:
        """List all share groups that this client may see, by name. ``states`` selects some of them.

        Raises the error if one broker did not answer, since the list would not be complete.
        """
        return self._await(self._inner.list, states=states, timeout=timeout)

    def describe(
        self, groups: str | Iterable[str], *, timeout: float | None = None
    ) -> Results[str, ShareGroupDescription]:
        """Describe share groups, with their members and assignments."""
        return self._await(self._inner.describe, groups, timeout=timeout)

    def delete(self, groups: str | Iterable[str], *, timeout: float | None = None) -> Results[str, None]:
        """Delete share groups and their offsets. A group with members fails with NON_EMPTY_GROUP."""
        return self._await(self._inner.delete, groups, timeout=timeout)

    def offsets(
        self, groups: str | Iterable[str], *, timeout: float | None = None
    ) -> Results[str, Mapping[TopicPartition, ShareOffset]]:
        """Read the start offsets of share groups in all partitions that they have read."""
        return self._await(self._inner.offsets, groups, timeout=timeout)

    def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> Results[TopicPartition, None]:
        """Set the start offsets of a share group without members. A group with members fails with NON_EMPTY_GROUP."""
        return self._await(self._inner.alter_offsets, group, offsets, timeout=timeout)

    def delete_offsets(
        self, group: str, topics: str | Iterable[str], *, timeout: float | None = None
    ) -> Results[str, None]:
        """Delete the offsets of topics in a share group without members.

        The group then reads the topics from its start policy.
        """
        return self._await(self._inner.delete_offsets, group, topics, timeout=timeout)

    def reset_offsets(
        self,
        group: str,
        to: Reset,
        *,
        topics: Iterable[str] | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> Results[TopicPartition, ResetOffset]:
        """Reset the start offsets of a share group without members. By default, all topics that it has read.

        New offsets stay within the range of the partition. ``dry_run`` changes nothing. Raises BrokerError
        (NON_EMPTY_GROUP) if the group has members.
        """
        return self._await(self._inner.reset_offsets, group, to, topics=topics, dry_run=dry_run, timeout=timeout)
