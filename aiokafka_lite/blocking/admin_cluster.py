"""The calls of ``Admin`` about the cluster and its brokers.

Written by docs/make_blocking.py from the asyncio classes, which have the same calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..admin.cluster import Cluster as AsyncCluster
from ..admin.cluster import FeatureChange
from ..admin.leaders import Election
from ..admin.leaders import Leaders as AsyncLeaders
from ..admin.leaders import Reassignments as AsyncReassignments
from ..admin.log_dirs import LogDirs as AsyncLogDirs
from ..admin.quotas import Quotas as AsyncQuotas
from .wrapper import Blocking

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..admin.cluster import ApiSupport, ClusterDescription, Features, Quorum
    from ..admin.leaders import Reassignment
    from ..admin.log_dirs import LogDir, Replica
    from ..admin.quotas import Match, QuotaEntity
    from ..admin.results import Results
    from ..types import TopicPartition


class Cluster(Blocking):
    """The calls of ``admin.cluster``."""

    _inner: AsyncCluster

    def describe(self, *, include_fenced: bool = False, timeout: float | None = None) -> ClusterDescription:
        """Describe the cluster: its brokers, its controller, its id. ``include_fenced`` requires Kafka 4.0.

        With ``bootstrap_controllers``, ``brokers`` are the controllers, ``controller`` is the active one, and
        ``include_fenced`` raises ValueError.
        """
        return self._await(self._inner.describe, include_fenced=include_fenced, timeout=timeout)

    def features(self, *, timeout: float | None = None) -> Features:
        """Describe the features of the cluster (KIP-584). Requires Kafka 2.7."""
        return self._await(self._inner.features, timeout=timeout)

    def update_features(
        self,
        levels: Mapping[str, int],
        *,
        change: FeatureChange = FeatureChange.UPGRADE,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Finalize levels of features for the whole cluster. Level 0 removes a feature. All levels change, or none.

        Requires Kafka 2.7; ``validate_only``, and the difference between safe and unsafe downgrades, require 3.3.
        """
        self._await(self._inner.update_features, levels, change=change, validate_only=validate_only, timeout=timeout)

    def quorum(self, *, timeout: float | None = None) -> Quorum:
        """Describe the controllers of a cluster without ZooKeeper. Requires Kafka 3.3."""
        return self._await(self._inner.quorum, timeout=timeout)

    def unregister_broker(self, node_id: int, *, timeout: float | None = None) -> None:
        """Remove a fenced broker that has left permanently. Requires Kafka 3.0 or newer, without ZooKeeper.

        Raises BrokerError with BROKER_ID_NOT_REGISTERED for an unknown broker.
        """
        self._await(self._inner.unregister_broker, node_id, timeout=timeout)

    def api_versions(
        self, brokers: Iterable[int] | None = None, *, timeout: float | None = None
    ) -> Results[int, tuple[ApiSupport, ...]]:
        """Ask brokers for their APIs, in order of the keys; all brokers if None."""
        return self._await(self._inner.api_versions, brokers, timeout=timeout)


class Leaders(Blocking):
    """The calls of ``admin.leaders``."""

    _inner: AsyncLeaders

    def elect(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        election: Election = Election.PREFERRED,
        timeout: float | None = None,
    ) -> Results[TopicPartition, bool]:
        """Elect leaders of the partitions, or of all partitions that need an election if None. Requires Kafka 2.2.

        The result is True if the partition has a new leader, False if the election was not needed.
        """
        return self._await(self._inner.elect, partitions, election=election, timeout=timeout)


class Reassignments(Blocking):
    """The calls of ``admin.reassignments``. They require Kafka 2.4."""

    _inner: AsyncReassignments

    def alter(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Move each partition to its brokers. The first of them is the preferred leader. None cancels a move.

        Returns when the moves have begun. ``allow_replication_factor_change=False`` requires Kafka 4.1.
        """
        return self._await(
            self._inner.alter,
            replicas,
            allow_replication_factor_change=allow_replication_factor_change,
            timeout=timeout,
        )

    def list(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> Mapping[TopicPartition, Reassignment]:
        """List the moves that are in progress, of these partitions or of all. Other partitions are left out."""
        return self._await(self._inner.list, partitions, timeout=timeout)


class LogDirs(Blocking):
    """The calls of ``admin.log_dirs``."""

    _inner: AsyncLogDirs

    def describe(
        self,
        brokers: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout: float | None = None,
    ) -> Results[int, tuple[LogDir, ...]]:
        """Describe the log directories of brokers, with the replicas of these partitions; all if None.

        Requires Kafka 2.0. Before Kafka 3.2, a client without the permission gets no directories instead of an error.
        """
        return self._await(self._inner.describe, brokers, partitions=partitions, timeout=timeout)

    def alter(self, directories: Mapping[Replica, str], *, timeout: float | None = None) -> Results[Replica, None]:
        """Move replicas to other directories of their brokers, given by absolute paths. Requires Kafka 1.1.

        The broker copies a replica in the background. Until the end of the copy, ``describe`` shows it with
        ``is_future``. A missing directory fails with BrokerError (LOG_DIR_NOT_FOUND), a missing replica with
        BrokerError (REPLICA_NOT_AVAILABLE).
        """
        return self._await(self._inner.alter, directories, timeout=timeout)


class Quotas(Blocking):
    """The calls of ``admin.quotas``."""

    _inner: AsyncQuotas

    def describe(
        self,
        *,
        user: str | Match | None = None,
        client_id: str | Match | None = None,
        ip: str | Match | None = None,
        strict: bool = False,
        timeout: float | None = None,
    ) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """Describe the quotas of entities whose parts match; all quotas if no part is given.

        ``strict`` leaves out entities that also have a part that was not given.
        """
        return self._await(self._inner.describe, user=user, client_id=client_id, ip=ip, strict=strict, timeout=timeout)

    def alter(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Results[QuotaEntity, None]:
        """Set these quotas. A value of None removes the quota. All other quotas stay."""
        return self._await(self._inner.alter, changes, validate_only=validate_only, timeout=timeout)
