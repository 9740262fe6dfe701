"""The types of acknowledgements, and the batches in which requests carry them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

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


def acknowledgement_batches(types: Mapping[int, AcknowledgeType]) -> list[ShareAcknowledgementBatch]:
    """The acknowledgements by offset as batches: one for each run of offsets with the same type."""
    batches: list[ShareAcknowledgementBatch] = []
    first = last = -1
    of_run = AcknowledgeType.GAP
    for offset in sorted(types):
        kind = types[offset]
        if first >= 0 and offset == last + 1 and kind is of_run:
            last = offset
            continue
        if first >= 0:
            batches.append(_batch(first, last, of_run))
        first, last, of_run = offset, offset, kind
    if first >= 0:
        batches.append(_batch(first, last, of_run))
    return batches


def _batch(first: int, last: int, kind: AcknowledgeType) -> ShareAcknowledgementBatch:
    return ShareAcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[int(kind)])
