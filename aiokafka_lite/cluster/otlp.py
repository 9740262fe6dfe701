"""Metrics in the format of OpenTelemetry (OTLP): the protobuf message ``MetricsData``, encoded by hand.

Only a few fields of a few messages are needed, so the package does not depend on protobuf.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..protocol.wire import put_uvarint

SCOPE = "aiokafka_lite"
DELTA, CUMULATIVE = 1, 2
"""The temporalities of a sum: the increase since the last push, or since the start."""

_VARINT, _FIXED64, _BYTES = 0, 1, 2


class Metric(NamedTuple):
    """A value of one metric. A counter only grows. ``attributes`` distinguish values with the same name."""

    name: str
    value: float
    is_counter: bool = False
    attributes: tuple[tuple[str, str], ...] = ()


class MetricsReport(NamedTuple):
    """The metrics of one client, and their resource attributes, such as ``group_id``."""

    metrics: Sequence[Metric]
    resource: Mapping[str, str]


def encode_metrics(
    metrics: Iterable[Metric], resource: Mapping[str, str], *, begin_ns: int, now_ns: int, temporality: int
) -> bytes:
    """Encode metrics as ``MetricsData`` with one resource. Times are in nanoseconds since the epoch.

    Counters count from ``begin_ns``.
    """
    points: dict[tuple[str, bool], list[bytes]] = {}
    for metric in metrics:
        points.setdefault((metric.name, metric.is_counter), []).append(_point(metric, begin_ns, now_ns))
    encoded = (_metric(name, is_counter, values, temporality) for (name, is_counter), values in points.items())
    scope = _bytes(1, _bytes(1, SCOPE.encode())) + b"".join(_bytes(2, metric) for metric in encoded)
    return _bytes(1, _bytes(1, _attributes(1, resource.items())) + _bytes(2, scope))


def _metric(name: str, is_counter: bool, points: Iterable[bytes], temporality: int) -> bytes:
    data = b"".join(_bytes(1, point) for point in points)
    if is_counter:
        return _bytes(1, name.encode()) + _bytes(7, data + _varint(2, temporality) + _varint(3, 1))  # Sum, monotonic
    return _bytes(1, name.encode()) + _bytes(5, data)  # Gauge


def _point(metric: Metric, begin_ns: int, now_ns: int) -> bytes:
    times = _fixed64(2, struct.pack("<Q", begin_ns)) + _fixed64(3, struct.pack("<Q", now_ns))
    return times + _fixed64(4, struct.pack("<d", metric.value)) + _attributes(7, metric.attributes)


def _attributes(field: int, attributes: Iterable[tuple[str, str]]) -> bytes:
    return b"".join(
        _bytes(field, _bytes(1, key.encode()) + _bytes(2, _bytes(1, value.encode()))) for key, value in attributes
    )


def _bytes(field: int, content: bytes) -> bytes:
    return _number(field << 3 | _BYTES) + _number(len(content)) + content


def _fixed64(field: int, content: bytes) -> bytes:
    return _number(field << 3 | _FIXED64) + content


def _varint(field: int, value: int) -> bytes:
    return _number(field << 3 | _VARINT) + _number(value)


def _number(value: int) -> bytes:
    encoded = bytearray()
    put_uvarint(encoded, value)
    return bytes(encoded)
