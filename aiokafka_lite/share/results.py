"""The results of acknowledgements, as users see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..errors import AcknowledgementFailed, KafkaError
from ..types import TopicPartition

OnAcknowledged = Callable[[TopicPartition, tuple[int, ...], KafkaError | None], object]
"""Called with a partition, the offsets of its records, and the error that refused their acknowledgements, or None."""


@dataclass(frozen=True, slots=True)
class AcknowledgementResult:
    """The results of the acknowledgements since the last ``commit()``. True if no partition was refused.

    ``acknowledged`` has the number of records of each partition, ``refused`` the last error of each partition in which
    acknowledgements were refused. The brokers deliver refused records again.
    """

    acknowledged: Mapping[TopicPartition, int]
    refused: Mapping[TopicPartition, KafkaError]

    def __bool__(self) -> bool:
        return not self.refused

    def raise_for_refused(self) -> None:
        """Raise AcknowledgementFailed if any partition was refused."""
        if self.refused:
            raise AcknowledgementFailed(self.refused)
