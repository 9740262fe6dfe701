"""The interfaces that a program may implement: a rebalance listener and a token provider."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable

from ...types import TopicPartition


class ConsumerRebalanceListener(ABC):
    """Called when the group revokes or assigns partitions. The methods may be async."""

    @abstractmethod
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Awaitable[None] | None:
        """Prepare for the loss of these partitions, before they go to other members.

        If they are already lost, ``commit()`` raises CommitFailedError.
        """

    @abstractmethod
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Awaitable[None] | None:
        """Receive all partitions that the consumer reads from now on."""


class AbstractTokenProvider(ABC):
    """Makes tokens for OAUTHBEARER."""

    @abstractmethod
    async def token(self) -> str:
        """Return a token for one login."""

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions of the login."""
        return {}
