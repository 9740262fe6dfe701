"""``ConsumerGroupHandler``: the user's code of a ``ConsumerGroup``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic

from ...types import K, Record, V
from .claim import Claim
from .session import ConsumerGroupSession


class ConsumerGroupHandler(Generic[K, V]):
    """Override ``consume_claim``, and the other methods if you need them.

    An exception ends ``consume``, which raises it after the member has left the group. A ``setup`` or ``cleanup`` that
    takes longer than the rebalance timeout is cancelled, because the other members wait for it; ``consume`` then raises
    KafkaTimeout. Each call begins with a copy of the context variables of ``consume``.
    """

    async def setup(self, session: ConsumerGroupSession) -> None:
        """Prepare for a session that begins. Its claims begin to read when this call returns."""

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim[K, V]) -> None:
        """Read one partition, in a task of its own: ``async for record in claim``, which ends with the session.

        It may raise the error of a transaction that was refused because of a rebalance. Then it is called again in the
        same session, from the last commit: see ``ConsumerGroupSession.group_metadata``.
        """
        raise NotImplementedError(f"{type(self).__name__} must override consume_claim()")

    def in_progress(self) -> Iterable[tuple[Record[K, V], float]] | None:
        """Return the records that are processed now, with the loop's time at which the work on each began.

        Override it in a handler that reads ahead, so that ``health()`` detects a record that never ends. With None, the
        time since a claim last asked for a record counts.
        """
        return None

    def before_commit(self, session: ConsumerGroupSession) -> None:
        """Add what is to be committed with the marks, such as ``session.annotate``.

        Called in the session before each commit of marked offsets, also before an automatic one that may then have
        nothing to do. It must not await, and its exceptions are logged.
        """

    async def cleanup(self, session: ConsumerGroupSession) -> None:
        """Clean up when a session ends and all claims have returned.

        The marked offsets are committed next, unless the partitions were lost. At a close, this has 1.5 seconds.
        """
