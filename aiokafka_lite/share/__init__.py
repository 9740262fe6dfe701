"""Share groups (KIP-932): ``ShareConsumer``, its results, metrics and diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import lazy

if TYPE_CHECKING:
    from .consumer import ShareConsumer as ShareConsumer
    from .diagnosis import ShareConsumerDiagnosis as ShareConsumerDiagnosis
    from .metrics import ShareConsumerMetrics as ShareConsumerMetrics
    from .results import AcknowledgementResult as AcknowledgementResult
    from .results import OnAcknowledged as OnAcknowledged
else:  # with a __getattr__, a type checker would accept every name
    __all__, __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            ".consumer": "ShareConsumer",
            ".diagnosis": "ShareConsumerDiagnosis",
            ".metrics": "ShareConsumerMetrics",
            ".results": "AcknowledgementResult OnAcknowledged",
        },
    )
