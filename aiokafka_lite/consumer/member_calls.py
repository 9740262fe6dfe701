"""The calls of ``Consumer`` about its membership in a group."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..arguments import must_be
from ..errors import ConfigurationError
from ..types import GroupMetadata
from .consumer_core import ConsumerCore
from .group.rebalance import RebalanceListener

if TYPE_CHECKING:
    from ..group.states import MemberState


class MemberCalls:
    """The base of ``Consumer``, which sets ``_core``."""

    _core: ConsumerCore

    def group_metadata(self) -> GroupMetadata:
        """Return the member's identity, for commits in a transaction. Read it when ``poll`` has returned the records.

        The coordinator refuses an identity that is older than the last rebalance. Raises IllegalStateError without a
        ``group_id``, and while the consumer is not a member: before its first assignment, and after it has lost its
        partitions.
        """
        self._core.service.check_process()
        return self._core.require_group().metadata()

    @property
    def membership(self) -> MemberState | None:
        """The state of the member; None without a membership."""
        self._core.service.check_process()
        coordinator = self._core.coordinator
        return None if coordinator is None else coordinator.member.state

    @property
    def auto_commit(self) -> bool:
        """Whether the consumer commits the offsets of processed records by itself."""
        return self._core.group is not None and self._core.group.config.auto_commit

    @property
    def max_poll_interval(self) -> float:
        """Seconds that the program may take between two reads; infinite if the consumer is not a member of a group."""
        return math.inf if self._core.group is None else self._core.group.config.max_poll_interval

    def add_listener(self, listener: RebalanceListener) -> None:
        """Call another listener as well, after the present ones; ``ExactlyOnce`` uses this.

        Raises IllegalStateError for a consumer that is not a member of a group, ConfigurationError for another object.
        """
        self._core.service.check_process()
        self._core.add_listener(checked_listener(listener))


def checked_listener(listener: object) -> RebalanceListener:
    """Return the listener. Raises ConfigurationError for another object."""
    if not isinstance(listener, RebalanceListener):
        raise ConfigurationError(must_be("listener", "an instance of RebalanceListener", listener))
    return listener
