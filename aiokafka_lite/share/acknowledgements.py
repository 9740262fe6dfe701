"""The types of acknowledgements, and the batches in which requests carry them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ..protocol.messages import ShareAcknowledgementBatch


class AcknowledgeType(IntEnum):
    """The decision of a member about an acquired record.

    ``AcknowledgeType`` of ``embedded`` is the broker's side, with the same numbers.
    """

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
    types: Mapping[int, AcknowledgeType], settled: Sequence[SettledRange] = ()
) -> list[ShareAcknowledgementBatch]:
    """Return acknowledgements as batches: one for each run of offsets with the same type."""
    runs = _runs(types)
    if not settled:
        return [_batch(*run) for run in runs]
    batches: list[ShareAcknowledgementBatch] = []
    for first, last, kind in sorted([*runs, *settled]):
        previous = batches[-1] if batches else None
        if previous is not None and previous.last_offset + 1 == first and previous.acknowledge_types == [kind]:
            previous.last_offset = last
        else:
            batches.append(_batch(first, last, kind))
    return batches


def _runs(types: Mapping[int, AcknowledgeType]) -> list[tuple[int, int, AcknowledgeType]]:
    """Return the first and the last offset of each run with the same type, as tuples, because there may be many."""
    runs: list[tuple[int, int, AcknowledgeType]] = []
    first, end, of_run = -1, -2, AcknowledgeType.GAP
    for offset in sorted(types):
        kind = types[offset]
        if offset == end + 1 and kind is of_run:
            end = offset
            continue
        if first >= 0:
            runs.append((first, end, of_run))
        first, end, of_run = offset, offset, kind
    if first >= 0:
        runs.append((first, end, of_run))
    return runs


def _batch(first: int, last: int, kind: AcknowledgeType) -> ShareAcknowledgementBatch:
    return ShareAcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[int(kind)])
