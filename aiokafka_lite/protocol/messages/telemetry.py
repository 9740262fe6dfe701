"""Metrics that clients push to brokers (KIP-714).

GetTelemetrySubscriptions returns the metrics that the operator of the cluster wants, and PushTelemetry sends them in
the format of OpenTelemetry.
"""

from __future__ import annotations

from ..schema import Request, Response, array, blob, boolean, int8, int16, int32, message, string, uuid


@message(key=71, versions=(0, 0), flexible=0)
class GetTelemetrySubscriptionsResponse(Response):
    """The metrics that the client must push.

    ``requested_metrics`` are prefixes of names; an empty list selects no metric, an empty prefix every metric.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(string)


@message(key=71, versions=(0, 0), flexible=0)
class GetTelemetrySubscriptionsRequest(Request[GetTelemetrySubscriptionsResponse]):
    """Request the subscription of a client; the id of a new client is 0."""

    client_instance_id: bytes = uuid()


@message(key=72, versions=(0, 0), flexible=0)
class PushTelemetryResponse(Response):
    """Whether the broker took the metrics."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()


@message(key=72, versions=(0, 0), flexible=0)
class PushTelemetryRequest(Request[PushTelemetryResponse]):
    """The metrics of a client, compressed."""

    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = blob()
