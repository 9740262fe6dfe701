"""The settings of a member of a consumer group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from ..errors import ConfigurationError
from .checks import filled, one_of, plain_strings, seconds, switch, wrong
from .java import Java, Unset, to_lower

GroupProtocolName = Literal["classic", "consumer", "auto"]
HeartbeatThreadMode = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """How a consumer takes part in its group."""

    group_id: Annotated[str, Java("group.id", is_property=False)]
    """The name of the group."""
    group_instance_id: Annotated[str | None, Java("group.instance.id")] = None
    """A name that makes the member static (KIP-345): it keeps its partitions when it restarts."""
    session_timeout: Annotated[float, Java("session.timeout.ms")] = 45.0
    """Seconds without a heartbeat after which the coordinator removes the member from the group."""
    heartbeat_interval: Annotated[float, Java("heartbeat.interval.ms")] = 3.0
    """Seconds between heartbeats. It must be less than ``session_timeout``, and should be at most a third."""
    max_poll_interval: Annotated[float, Java("max.poll.interval.ms")] = 300.0
    """The longest time between two reads, in seconds. After that time, the member leaves the group until it reads
    again."""
    rebalance_timeout: Annotated[float | None, Java(None), Unset("`max_poll_interval`")] = None
    """Seconds that other members wait for this member to revoke partitions and join. None is ``max_poll_interval``."""
    auto_commit: Annotated[bool, Java("enable.auto.commit")] = True
    """Whether marked records are committed automatically: on a timer, before partitions are revoked, and on close."""
    auto_commit_interval: Annotated[float, Java("auto.commit.interval.ms")] = 5.0
    """Seconds between automatic commits."""
    group_protocol: Annotated[GroupProtocolName, Java("group.protocol", read=to_lower)] = "classic"
    """``"classic"``, ``"consumer"`` or ``"auto"``. With ``"consumer"`` (KIP-848), the brokers assign the partitions,
    and set session timeout and heartbeat interval. ``"auto"`` is ``"consumer"`` if the cluster has it."""
    heartbeat_thread: Annotated[HeartbeatThreadMode, Java(None)] = "auto"
    """Whether a thread sends heartbeats while the event loop is blocked, until ``max_poll_interval``. ``"auto"``: after
    the first block of more than a second, so that block may still end the session. ``"always"``: from the start."""
    group_remote_assignor: Annotated[
        str | None, Java("group.remote.assignor"), Unset("the first strategy of the brokers")
    ] = None
    """The brokers' assignment strategy under the consumer protocol: ``"uniform"`` or ``"range"``. None: their
    default."""

    def __post_init__(self) -> None:
        plain_strings(self)
        filled(self, "group_id")
        if self.group_instance_id is not None:
            filled(self, "group_instance_id")
        seconds(self, "session_timeout", "heartbeat_interval", "max_poll_interval", zero=False)
        seconds(self, "auto_commit_interval", zero=False)
        if self.rebalance_timeout is not None:
            seconds(self, "rebalance_timeout", zero=False)
        if self.heartbeat_interval >= self.session_timeout:
            raise wrong(
                "heartbeat_interval", f"less than session_timeout={self.session_timeout!r}", self.heartbeat_interval
            )
        switch(self, "auto_commit")
        one_of(self, "group_protocol", get_args(GroupProtocolName))
        one_of(self, "heartbeat_thread", get_args(HeartbeatThreadMode))
        if self.group_remote_assignor is not None:
            filled(self, "group_remote_assignor")
            if self.group_protocol == "classic":
                raise ConfigurationError('group_remote_assignor requires group_protocol "consumer" or "auto"')

    @property
    def time_to_rebalance(self) -> float:
        """``rebalance_timeout`` or its default, in seconds."""
        return self.max_poll_interval if self.rebalance_timeout is None else self.rebalance_timeout

    @property
    def time_to_revoke(self) -> float:
        """Seconds that the user may hold partitions that must be revoked, before the member joins without waiting.

        The time counts from the last heartbeat before the rebalance. It is shorter than the rebalance timeout, because
        this member has to join again within that timeout. The coordinator counts that timeout from the first member's
        JoinGroup.
        """
        limit = self.time_to_rebalance
        return max(limit / 2, limit - self.heartbeat_interval)
