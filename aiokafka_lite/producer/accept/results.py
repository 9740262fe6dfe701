"""The results of many records of one call, as a sequence that creates a record's metadata on access.

``send_many`` of a million records returns a few lists of small integers instead of a million objects.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import index
from typing import NamedTuple, TypeAlias, overload

from ...errors import KafkaError
from ...types import RecordMetadata
from ..delivery import BatchResult, Delivery, FailureLog, metadata_of

Outcome = RecordMetadata | Exception


class Run(NamedTuple):
    """``length`` consecutive records of ``result``, beginning at index ``first``."""

    result: BatchResult
    first: int
    length: int


class SinglePiece:
    """Records that were accepted one by one: the delivery of each, or the error that refused it.

    The first refusal is logged unless the outcomes are accessed, as the error of a batch is. ``log`` is the log of the
    earlier pieces of the same call, so that a call writes one line.
    """

    __slots__ = ("_accepted", "_refusal", "log")

    def __init__(self, topic: str, accepted: list[Delivery | Exception], log: FailureLog | None) -> None:
        self._accepted = accepted
        self.log: FailureLog | None = log
        self._refusal: BatchResult | None = None
        error = next((item for item in accepted if isinstance(item, Exception)), None)
        if error is not None:
            self._refusal = BatchResult(str(topic), -1)
            self.log = log or FailureLog(error)
            self._refusal.fail(error, self.log)

    def __len__(self) -> int:
        return len(self._accepted)

    @property
    def open(self) -> list[BatchResult]:
        """The results that have to be settled."""
        return list(dict.fromkeys(item.batch_result for item in self._accepted if isinstance(item, Delivery)))

    def outcomes(self) -> list[Outcome]:
        """Return the metadata or the error of each record, in their order."""
        outcomes: list[Outcome] = []
        if self._refusal is not None:
            self._refusal.observe()
        for item in self._accepted:
            try:
                outcomes.append(item.result() if isinstance(item, Delivery) else item)
            except KafkaError as error:
                outcomes.append(error)
        return outcomes


class ListPiece:
    """Records that were accepted as lists: the runs of each partition.

    ``value_sizes`` and ``key_sizes`` are in bytes, in the order of the runs. ``order`` contains the place of each
    record of the runs in the call; None if they are in order.
    """

    __slots__ = ("_key_sizes", "_order", "_timestamp", "runs", "value_sizes")

    def __init__(
        self, timestamp: int, value_sizes: list[int], key_sizes: list[int] | None, order: list[int] | None
    ) -> None:
        self.runs: list[Run] = []
        self._timestamp = timestamp
        self.value_sizes: list[int] = value_sizes
        self._key_sizes = key_sizes
        self._order = order

    def __len__(self) -> int:
        return sum(run.length for run in self.runs)

    @property
    def open(self) -> list[BatchResult]:
        """The results that have to be settled."""
        return [run.result for run in self.runs]

    def outcomes(self) -> list[Outcome]:
        """Return the metadata or the error of each record, in their order."""
        outcomes: list[Outcome] = []
        key_size = -1
        failed: BatchResult | None = None  # the result whose error was read last
        error: Exception | None = None
        for run in self.runs:
            for place in range(run.first, run.first + run.length):
                result, number = run.result, place
                while result.moved is not None:
                    result, number = result.moved[number]
                if result.has_failed:
                    result.observe()
                    # Each access of ``error`` makes a copy. The records of one batch share one.
                    if result is not failed:
                        failed, error = result, result.error
                    assert error is not None
                    outcomes.append(error)
                    continue
                if self._key_sizes is not None:
                    key_size = self._key_sizes[len(outcomes)]
                outcomes.append(metadata_of(result, number, self._timestamp, key_size, self.value_sizes[len(outcomes)]))
        if self._order is None:
            return outcomes
        in_order: list[Outcome] = outcomes.copy()
        for place, outcome in zip(self._order, outcomes, strict=True):
            in_order[place] = outcome
        return in_order


Piece: TypeAlias = SinglePiece | ListPiece
"""Some records of a call. When all results in ``open`` are settled, ``outcomes`` returns the outcome of each record."""


class SendResults(Sequence[Outcome]):
    """The result of each record of ``send_many``, in their order: its ``RecordMetadata``, or its exception.

    A sequence that cannot be changed. The metadata of a record is created at each access, so that a million results
    take a few megabytes; use ``list(results)`` to keep the objects. An error that is never accessed is logged, once per
    batch; those of refused records once per call.
    """

    __slots__ = ("_ends", "_last", "_pieces")

    def __init__(self, pieces: list[Piece]) -> None:
        self._pieces = [piece for piece in pieces if len(piece)]
        self._ends: list[int] = []
        end = 0
        for piece in self._pieces:
            end += len(piece)
            self._ends.append(end)
        self._last: tuple[int, list[Outcome]] = (-1, [])

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Outcome]:
        for piece in self._pieces:
            yield from piece.outcomes()

    @overload
    def __getitem__(self, place: int) -> Outcome: ...
    @overload
    def __getitem__(self, place: slice) -> list[Outcome]: ...
    def __getitem__(self, place: int | slice) -> Outcome | list[Outcome]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        number = index(place)
        if number < 0:
            number += len(self)
        if not 0 <= number < len(self):
            raise IndexError(f"there are {len(self)} results, got index {place}")
        which = bisect_right(self._ends, number)
        # The outcomes of one piece are cached, because neighbours are usually accessed one after the other.
        if self._last[0] != which:
            self._last = which, self._pieces[which].outcomes()
        return self._last[1][number - (self._ends[which - 1] if which else 0)]

    def __repr__(self) -> str:
        return f"<SendResults of {len(self)} records>"
