"""The types of acknowledgements, and the batches in which requests carry them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from ..protocol.messages import ShareAcknowledgementBatch


class AcknowledgeType(IntEnum):
    """The decision of a member about an acquired record."""

    GAP = 0
    """The offset has no record: compaction removed it, or it is a control record."""
    ACCEPT = 1
    """The record is processed."""
    RELEASE = 2
    """The broker must deliver the record again, to this consumer or another one."""
    REJECT = 3
    """The broker must not deliver the record again."""
    RENEW = 4
    """The record is still being processed: its acquisition lock begins again (KIP-1222)."""


class SettledRange(NamedTuple):
    """Offsets that are acknowledged although the user has not got them: ``first`` to ``last``, both included.

    The cost of a range does not depend on its size: a broker may acquire a million offsets without a record.
    """

    first: int
    last: int
    kind: AcknowledgeType

    @property
    def offsets(self) -> range:
        return range(self.first, self.last + 1)


def acknowledgement_batches(
    types: Mapping[int, AcknowledgeType], settled: Iterable[SettledRange] = ()
) -> list[ShareAcknowledgementBatch]:
    """Acknowledgements by offset and by range as batches: one for each run of offsets with the same type."""
    batches: list[ShareAcknowledgementBatch] = []
    first = end = -1
    of_run = AcknowledgeType.GAP
    for start, last, kind in sorted([*((offset, offset, kind) for offset, kind in types.items()), *settled]):
        if first >= 0 and start == end + 1 and kind is of_run:
            end = last
            continue
        if first >= 0:
            batches.append(_batch(first, end, of_run))
        first, end, of_run = start, last, kind
    if first >= 0:
        batches.append(_batch(first, end, of_run))
    return batches


def _batch(first: int, last: int, kind: AcknowledgeType) -> ShareAcknowledgementBatch:
    return ShareAcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[int(kind)])
