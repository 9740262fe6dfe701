"""The snapshot after an answer, in one call."""

from __future__ import annotations

from typing import Any

from aiokafka_lite.cluster.answer import MetadataAnswer
from aiokafka_lite.cluster.metadata import ClusterView, merging
from aiokafka_lite.protocol.messages import MetadataResponse


def merge(view: ClusterView, response: MetadataResponse, **arguments: Any) -> ClusterView:
    """Run ``merging`` to its end, without a turn for other tasks."""
    *_, merged = merging(view, MetadataAnswer(response), **arguments)
    assert merged is not None
    return merged
