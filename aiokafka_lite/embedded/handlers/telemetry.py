"""GetTelemetrySubscriptions and PushTelemetry: metrics of clients (KIP-714).

- A client that has no instance id, 0, gets one with its first subscription.
- As in Kafka, the two APIs are offered only if there is a receiver: ``ClusterConfig(receive_client_metrics=...)``.
"""

from __future__ import annotations

import uuid

from ...protocol import messages as m
from ...protocol.schema import ZERO_UUID
from ..client_telemetry import ACCEPTED, ClientTelemetry, MetricsPush
from ..request_context import RequestContext, handles


@handles(m.GetTelemetrySubscriptionsRequest)
def get_telemetry_subscriptions(
    context: RequestContext, request: m.GetTelemetrySubscriptionsRequest
) -> m.GetTelemetrySubscriptionsResponse:
    request_id = request.client_instance_id
    instance_id = uuid.uuid4().bytes if request_id == ZERO_UUID else request_id
    client = {
        "client_id": context.client_id,
        "client_instance_id": str(uuid.UUID(bytes=instance_id)),
        "client_source_address": context.client.client_host.removeprefix("/"),
    }
    subscription, error = _telemetry(context).subscribe(instance_id, client)
    return m.GetTelemetrySubscriptionsResponse(
        error_code=error,
        client_instance_id=instance_id if request_id == ZERO_UUID else ZERO_UUID,
        subscription_id=subscription.subscription_id,
        accepted_compression_types=list(map(int, ACCEPTED)),
        push_interval_ms=subscription.interval_ms,
        telemetry_max_bytes=context.broker.settings.number("telemetry.max.bytes"),
        delta_temporality=True,
        requested_metrics=list(subscription.metrics),
    )


@handles(m.PushTelemetryRequest)
def push_telemetry(context: RequestContext, request: m.PushTelemetryRequest) -> m.PushTelemetryResponse:
    pushed = MetricsPush(
        context.broker.node_id,
        uuid.UUID(bytes=request.client_instance_id),
        context.client_id,
        context.principal,
        request.terminating,
        bytes(request.metrics),
    )
    max_bytes = context.broker.settings.number("telemetry.max.bytes")
    error = _telemetry(context).push(pushed, request.subscription_id, request.compression_type, max_bytes)
    return m.PushTelemetryResponse(error_code=error)


def _telemetry(context: RequestContext) -> ClientTelemetry:
    telemetry = context.broker.telemetry
    assert telemetry is not None, "the API is not offered without a receiver"
    return telemetry
