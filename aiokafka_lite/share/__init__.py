"""Share groups (KIP-932): ``ShareConsumer``, its results, metrics and diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import lazy

if TYPE_CHECKING:
    from .consumer import ShareConsumer
    from .diagnosis import ShareConsumerDiagnosis
    from .metrics import ShareConsumerMetrics
    from .results import AcknowledgementResult, OnAcknowledged

_HOMES = {
    "consumer": ("ShareConsumer",),
    "diagnosis": ("ShareConsumerDiagnosis",),
    "metrics": ("ShareConsumerMetrics",),
    "results": ("AcknowledgementResult", "OnAcknowledged"),
}

__all__ = [
    "AcknowledgementResult",
    "OnAcknowledged",
    "ShareConsumer",
    "ShareConsumerDiagnosis",
    "ShareConsumerMetrics",
]

if not TYPE_CHECKING:  # with a __getattr__, a type checker would accept every name
    __getattr__ = lazy.attributes(__name__, _HOMES)
