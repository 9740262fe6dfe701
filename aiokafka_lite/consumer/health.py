"""The health of a consumer, or of a running ``ConsumerGroup``, for liveness and readiness probes."""

from __future__ import annotations

from ..aio.service import Service
from ..arguments import check_wait
from ..cluster.client import Client
from ..cluster.health import Health, health_of
from ..group.states import MemberState
from .metrics import MemberMetrics

_OUTSIDE = (MemberState.UNJOINED.name, MemberState.LEAVING.name, MemberState.FENCED.name, MemberState.FATAL.name)


def consumer_health(
    service: Service,
    client: Client,
    member: MemberMetrics | None,
    *,
    max_silence: float,
    max_poll_ago: float,
    late_program: str | None = None,
) -> Health:
    """Return the health at this moment. ``member`` is None for a consumer that is not a member of a group.

    ``late_program`` is the text for a program that has not asked for records for too long.
    """
    check_wait(max_poll_ago, "max_poll_ago")
    fatal, transient = [], []
    if member is not None:
        if member.last_poll_ago > max_poll_ago:
            late = late_program or f"the program has not asked for records for {member.last_poll_ago:.0f} s"
            fatal.append(late)
        if member.state in _OUTSIDE:
            transient.append(f"it is not a member of its group: {member.state}")
        elif not member.rebalances.latency.count:
            transient.append("its group has not assigned partitions yet")
    return health_of(service, client, max_silence, fatal=fatal, transient=transient)
