"""The health of a client for liveness and readiness probes: read from its state, without I/O and without waiting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..aio.service import Service, ServiceState
from ..arguments import check_wait, plural
from ..snapshot import Snapshot
from .client import Client
from .metrics import client_metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Health(Snapshot):
    """The health of a client at one moment.

    ``is_live`` is False if the client cannot recover by itself, so that the process should be restarted. ``is_ready``
    is False while the client cannot do its work: it has not started, it closes, no broker answers, it is not a member
    of its group, or it stands still for another reason. ``problems`` has a text for each reason, and for each part of
    the work that stands still while the client is ready for the rest.
    """

    is_live: bool
    is_ready: bool
    problems: tuple[str, ...] = ()


REFUSALS_NAMED = 3
"""The number of refusals of which the health has the text. There may be one for each partition."""


def health_of(
    service: Service,
    client: Client,
    max_silence: float,
    *,
    fatal: Sequence[str] = (),
    transient: Sequence[str] = (),
) -> Health:
    """Return the health of a component with this client. ``fatal`` and ``transient`` are the component's own problems.

    The client is not ready after ``max_silence`` seconds without a response of any broker, if requests fail or wait. It
    is not ready either while it stands still, as ``client.standstill`` has found.
    """
    check_wait(max_silence, "max_silence")
    failure = service.failure or client.service.failure
    fatal, transient = list(fatal), list(transient)
    if failure is not None:
        fatal.insert(0, f"it has failed: {type(failure).__name__}: {failure}")
    elif service.state is ServiceState.CLOSED:
        fatal.insert(0, "it is closed")
    elif service.state is not ServiceState.RUNNING:
        transient.append({ServiceState.CLOSING: "it closes"}.get(service.state, "it has not started yet"))
    transient.extend(_refusals(client))
    metrics = client_metrics(client)
    # An outage that nobody retries is no reason to expect a response.
    silence, is_asking = metrics.last_response_ago, metrics.requests_in_flight or client.outages.are_recent()
    if silence is not None and silence > max_silence and is_asking:
        transient.append(f"no broker has answered for {silence:.0f} s")
    transient.extend(client.standstill.problems(is_partial=False))
    partial = client.standstill.problems(is_partial=True)
    return Health(
        is_live=not fatal,
        is_ready=not (fatal or transient),
        problems=(*fatal, *transient, *partial),
    )


def _refusals(client: Client) -> list[str]:
    """Return the refusals that continue, the latest one first: of logins, certificates and permissions."""
    refusals = [outage for outage in client.outages.all() if outage.began is not None and outage.is_refusal]
    texts = [f"{outage.place}: {outage.error}" for outage in refusals[:REFUSALS_NAMED]]
    if len(refusals) > REFUSALS_NAMED:
        texts.append(plural(len(refusals) - REFUSALS_NAMED, "more refusal"))
    return texts
