"""The calls of ``Admin`` about permissions, users, tokens and transactions.

Written by docs/make_blocking.py from the asyncio classes, which have the same calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..admin.acls import _EVERY
from ..admin.acls import Acls as AsyncAcls
from ..admin.tokens import Tokens as AsyncTokens
from ..admin.transactions import MAX_TRANSACTION_TIMEOUT
from ..admin.transactions import Transactions as AsyncTransactions
from ..admin.users import DEFAULT_MECHANISM
from ..admin.users import Users as AsyncUsers
from ..protocol.sasl.scram import FEWEST_ITERATIONS
from .wrapper import Blocking

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..acls import AclBinding, AclFilter
    from ..admin.results import Results
    from ..admin.tokens import DelegationToken
    from ..admin.transactions import (
        FencedProducer,
        HangingTransaction,
        ProducerState,
        TransactionDescription,
        TransactionListing,
        TransactionState,
    )
    from ..types import Node, TopicPartition


class Acls(Blocking):
    """The calls of ``admin.acls``."""

    _inner: AsyncAcls

    def describe(self, acl_filter: AclFilter = _EVERY, *, timeout: float | None = None) -> tuple[AclBinding, ...]:
        """List the ACLs that a filter matches, by default all ACLs."""
        return self._await(self._inner.describe, acl_filter, timeout=timeout)

    def create(
        self, bindings: AclBinding | Iterable[AclBinding], *, timeout: float | None = None
    ) -> Results[AclBinding, None]:
        """Create ACLs. An ACL that exists already counts as created."""
        return self._await(self._inner.create, bindings, timeout=timeout)

    def delete(
        self, filters: AclFilter | Iterable[AclFilter], *, timeout: float | None = None
    ) -> Results[AclFilter, tuple[AclBinding, ...]]:
        """Delete the ACLs that filters match. The result of a filter is the ACLs that it deleted, perhaps none."""
        return self._await(self._inner.delete, filters, timeout=timeout)


class Users(Blocking):
    """The calls of ``admin.users``."""

    _inner: AsyncUsers

    def describe(
        self, names: str | Iterable[str] | None = None, *, timeout: float | None = None
    ) -> Results[str, Mapping[str, int]]:
        """Describe the mechanisms of users, by default of all, with the number of iterations of each mechanism.

        A result is ``{"SCRAM-SHA-512": 4096}``. A user without a credential fails with RESOURCE_NOT_FOUND. Raises
        UnsupportedVersion with ``bootstrap_controllers``.
        """
        return self._await(self._inner.describe, names, timeout=timeout)

    def set_passwords(
        self,
        passwords: Mapping[str, str],
        *,
        mechanism: str = DEFAULT_MECHANISM,
        iterations: int = FEWEST_ITERATIONS,
        timeout: float | None = None,
    ) -> Results[str, None]:
        """Add users, or change their passwords for one mechanism, ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.

        With more ``iterations`` (4,096 to 16,384), a login takes longer, and a stolen credential is harder to break.
        """
        return self._await(
            self._inner.set_passwords, passwords, mechanism=mechanism, iterations=iterations, timeout=timeout
        )

    def remove(
        self, names: str | Iterable[str], *, mechanism: str = DEFAULT_MECHANISM, timeout: float | None = None
    ) -> Results[str, None]:
        """Remove the users' credentials for one mechanism, so that they can no longer log in by it."""
        return self._await(self._inner.remove, names, mechanism=mechanism, timeout=timeout)


class Tokens(Blocking):
    """The calls of ``admin.tokens``."""

    _inner: AsyncTokens

    def create(
        self,
        *,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        lifetime: float | None = None,
        timeout: float | None = None,
    ) -> DelegationToken:
        """Create a token for the client's own principal, or for another ``owner`` (since Kafka 3.3).

        ``renewers`` are principals who may renew and expire the token, like the owner. ``lifetime`` is in seconds; its
        default and its maximum are the brokers' ``delegation.token.max.lifetime.ms``.
        """
        return self._await(self._inner.create, owner=owner, renewers=renewers, lifetime=lifetime, timeout=timeout)

    def renew(self, hmac: bytes, *, period: float | None = None, timeout: float | None = None) -> int:
        """Extend the life of a token by ``period`` seconds from now. Returns its expiry in milliseconds.

        The default and the maximum are the brokers' ``delegation.token.expiry.time.ms``.
        """
        return self._await(self._inner.renew, hmac, period=period, timeout=timeout)

    def expire(self, hmac: bytes, *, timeout: float | None = None) -> None:
        """Make a token invalid now."""
        self._await(self._inner.expire, hmac, timeout=timeout)

    def describe(
        self, owners: str | Iterable[str] | None = None, *, timeout: float | None = None
    ) -> tuple[DelegationToken, ...]:
        """Describe the tokens of these owners (all by default) that the client may see."""
        return self._await(self._inner.describe, owners, timeout=timeout)


class Transactions(Blocking):
    """The calls of ``admin.transactions``."""

    _inner: AsyncTransactions

    def list(
        self,
        *,
        states: Iterable[TransactionState | str] = (),
        producer_ids: Iterable[int] = (),
        min_duration: float | None = None,
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> tuple[TransactionListing, ...]:
        """List all transactional ids that this client may see, by name. Filters select some of them.

        Requires Kafka 3.0. ``min_duration`` in seconds selects transactions that have been open for longer (Kafka 3.8).
        ``pattern`` is a regular expression in the syntax of RE2 that the whole id must match (Kafka 4.1). Raises the
        error if one broker did not answer, since the list would not be complete.
        """
        return self._await(
            self._inner.list,
            states=states,
            producer_ids=producer_ids,
            min_duration=min_duration,
            pattern=pattern,
            timeout=timeout,
        )

    def coordinators(
        self, transactional_ids: str | Iterable[str], *, timeout: float | None = None
    ) -> Results[str, Node]:
        """Find the broker that coordinates each transactional id, whether the id exists or not."""
        return self._await(self._inner.coordinators, transactional_ids, timeout=timeout)

    def describe(
        self, transactional_ids: str | Iterable[str], *, timeout: float | None = None
    ) -> Results[str, TransactionDescription]:
        """Describe the state of transactional ids, with the partitions of open transactions. Requires Kafka 3.0.

        An id that no coordinator has fails with TRANSACTIONAL_ID_NOT_FOUND.
        """
        return self._await(self._inner.describe, transactional_ids, timeout=timeout)

    def fence_producers(
        self, transactional_ids: str | Iterable[str], *, timeout: float | None = None
    ) -> Results[str, FencedProducer]:
        """Fence the present producers of transactional ids (KIP-277): abort their transactions, refuse their requests.

        Waits until the abort is complete. An id that does not exist yet is created.
        """
        return self._await(self._inner.fence_producers, transactional_ids, timeout=timeout)

    def describe_producers(
        self, partitions: Iterable[TopicPartition], *, broker: int | None = None, timeout: float | None = None
    ) -> Results[TopicPartition, tuple[ProducerState, ...]]:
        """Describe the producers that have written to each partition and are not expired. Requires Kafka 2.8.

        The leaders of the partitions answer, or with ``broker`` this broker.
        """
        return self._await(self._inner.describe_producers, partitions, broker=broker, timeout=timeout)

    def abort(
        self,
        partition: TopicPartition,
        *,
        start_offset: int | None = None,
        producer: ProducerState | None = None,
        timeout: float | None = None,
    ) -> None:
        """Abort a hanging transaction: the leader of the partition writes an abort marker. Requires Kafka 2.8.

        Give ``start_offset``, the first offset of the transaction, or the ``producer`` that has it open;
        ``find_hanging`` returns both. Call it only for a transaction that no coordinator has. Otherwise this partition
        is aborted, and the coordinator may still commit the other partitions; ``fence_producers`` aborts a whole
        transaction. Raises ValueError if no transaction begins at ``start_offset``, and ProducerFenced
        (INVALID_PRODUCER_EPOCH) if the producer has a newer epoch.
        """
        self._await(self._inner.abort, partition, start_offset=start_offset, producer=producer, timeout=timeout)

    def find_hanging(
        self,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        broker: int | None = None,
        max_transaction_timeout: float = MAX_TRANSACTION_TIMEOUT,
        timeout: float | None = None,
    ) -> tuple[HangingTransaction, ...]:
        """Find transactions that are open in a partition although their coordinator does not have them.

        Examines these partitions, or all; with ``broker``, only partitions that this broker leads. A transaction whose
        last record is younger than ``max_transaction_timeout`` seconds is skipped: it may still end normally. Requires
        Kafka 3.0. Raises the error if one partition or broker did not answer.
        """
        return self._await(
            self._inner.find_hanging,
            partitions=partitions,
            broker=broker,
            max_transaction_timeout=max_transaction_timeout,
            timeout=timeout,
        )
