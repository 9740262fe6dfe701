"""The health of a share consumer for liveness and readiness probes."""

from __future__ import annotations

from ..aio.service import Service, ServiceState
from ..arguments import check_wait
from ..cluster.health import Health, health_of
from .core import ShareCore
from .member import ShareMemberState


def share_health(service: Service, core: ShareCore, *, max_silence: float, max_poll_ago: float | None) -> Health:
    """Return the health at this moment. ``max_poll_ago`` is None if the program may take any time between two reads."""
    fatal, transient = [], []
    if max_poll_ago is not None:
        check_wait(max_poll_ago, "max_poll_ago")
        if core.pace.last_read_ago > max_poll_ago:
            fatal.append(f"the program has not asked for records for {core.pace.last_read_ago:.0f} s")
    state = core.membership.member.state
    if service.state is ServiceState.RUNNING and state is not ShareMemberState.STABLE:
        transient.append(f"it is not a member of its group: {state.name}")
    if (slow := core.pace.slow_reason) is not None:
        transient.append(slow)
    return health_of(service, core.client, max_silence, fatal=fatal, transient=transient)
